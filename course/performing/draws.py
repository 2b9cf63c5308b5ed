"""Random numbers that every processor draws alike."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

OWN_BITS = 32  # of a seed that torch's generator on the CPU looks at
WORDS = 624  # of a Mersenne Twister's state, each in 8 bytes of torch's, which begins with HEADER others
HEADER = 24  # bytes: the seed, how many words are left, whether it was seeded, the next word's place


def generator(seed: int, name: str) -> torch.Generator:
    """A generator for the cases of the exercise `name`.

    A seed of up to 32 bits is torch's own. Of a larger one torch would take the low 32, and who sees a few numbers can
    try them all: there the whole state comes from a hash of seed and name, so that what one exercise shows tells
    nothing of another's numbers.
    """
    rng = torch.Generator()
    if seed < 2**OWN_BITS:
        return rng.manual_seed(seed)
    state = rng.manual_seed(0).get_state()
    words = hashlib.shake_256(f"{seed} {name}".encode()).digest(4 * WORDS)
    state[HEADER : HEADER + 8 * WORDS].view(WORDS, 8)[:, :4] = torch.frombuffer(
        bytearray(words), dtype=torch.uint8
    ).view(WORDS, 4)
    return rng.set_state(state)


def integer(rng: torch.Generator, low: int, high: int) -> int:
    """A whole number from low to high - 1."""
    return int(torch.randint(low, high, (), generator=rng))


def normal(rng: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers, drawn in float64: in float32 their last bits depend on the processor's vectors, which a
    form of the case in float64 would show.
    """
    return torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
