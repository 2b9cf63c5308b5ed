"""Random numbers that every processor draws alike."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

OWN_BITS = 32  # of a seed that torch's generator on the CPU looks at
WORDS = 624  # of a Mersenne Twister's state, each in 8 bytes of torch's, which begins with HEADER others
HEADER = 24  # bytes: the seed, how many words are left, whether it was seeded, the next word's place


@contextlib.contextmanager
def drawing(seed: int, name: str) -> Iterator[torch.Generator]:
    """A generator for the cases of the exercise `name`, while they are drawn.

    A seed of up to 32 bits is torch's own. Of a larger one torch would take the low 32, and who sees a few numbers can
    try them all: there the whole state comes from a hash, and a new one for every call that draws. A Mersenne Twister's
    state can be computed from the numbers that it has given; so what is seen tells nothing of what another call drew.
    """
    rng = torch.Generator()
    if seed < 2**OWN_BITS:
        yield rng.manual_seed(seed)
        return
    with _Afresh(rng, f"{seed} {name}"):
        yield rng


class _Afresh(TorchFunctionMode):
    """Before a function draws from the generator, its state is filled from a hash of what is secret and its turn."""

    def __init__(self, rng: torch.Generator, secret: str) -> None:
        super().__init__()
        self._rng, self._secret, self._turn = rng, secret, 0
        self._state = rng.manual_seed(0).get_state()
        self._words = self._state.numpy()[HEADER : HEADER + 8 * WORDS].view("<u8")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if given.get("generator") is self._rng:
            self._fill()
        return func(*args, **given)

    def _fill(self) -> None:
        drawn = hashlib.shake_256(f"{self._secret} {self._turn}".encode()).digest(4 * WORDS)
        self._turn += 1
        self._words[:] = np.frombuffer(drawn, dtype="<u4")
        self._rng.set_state(self._state)


def integer(rng: torch.Generator, low: int, high: int) -> int:
    """A whole number from low to high - 1."""
    return int(torch.randint(low, high, (), generator=rng))


def signs(rng: torch.Generator, count: int) -> Tensor:
    """So many signs in random order, (count,), float64: of two and more, some of each kind."""
    return 1 - 2 * ((torch.randperm(count, generator=rng) + integer(rng, 0, 2)) % 2).double()


def near_one(rng: torch.Generator, signs: Tensor, *shape: int, dtype: torch.dtype) -> Tensor:
    """Numbers of a size from 1/2 to 3/2, drawn in float64, with signs that broadcast to the shape."""
    return (signs * (torch.rand(shape, generator=rng, dtype=torch.float64) + 0.5)).to(dtype)


def normal(rng: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers, drawn in float64: in float32 their last bits depend on the processor's vectors, which a
    form of the case in float64 would show.
    """
    return torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
