"""Which piece of a result is looked at: told when all of it is pledged, so that none of it can be left out.

    probe --pledge: a hash of each piece of a result--> oracle --which piece--> probe
    probe --show: that piece--> oracle, which holds it against its hash and observes it itself

In grading whoever runs in the probe's process can ask in its place, at any time. He is told only what he has pledged
before; a result is pledged once, and what is observed is what was shown, whatever else that process says. So who asks
early must know all of the result by then. In a notebook the probe peeks, and works on that piece alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from course.performing.exercise import Ask, Case, Observation, observe
from course.performing.oracle import Here, UnknownQuestion
from course.tree import Leaf, Tree

Numbers = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What is pledged together: results with the number of their pieces. Then these hidden numbers are told."""

    pieces: Numbers
    tells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What is looked at, by the hidden numbers of a case.

    stages  in their order
    at      which piece of each result
    cut     what is observed of such a piece
    """

    stages: tuple[Stage, ...] = ()
    at: Callable[[Numbers], Numbers] = dict
    cut: Callable[[Tensor, Numbers], Tensor] = lambda piece, numbers: piece


NOTHING = Look()
MOST_SHOWN = 2 * 2**20  # bytes of all that is shown at once, which whoever looks then keeps; the largest has 128 KiB


class Sample:
    """Knows which piece of a result is looked at. It does not count."""

    def __init__(self, case: Case, look: Look = NOTHING) -> None:
        self._hidden, self._look = cast(Numbers, case.hidden), look
        self._pledged: dict[str, Tensor] = {}
        self._values: dict[str, Leaf] = {}
        self._stage, self._peeked = 0, not case.hidden

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What is pledged, in its order."""
        return self._look.stages

    def ask(self, verb: str, arguments: Tree) -> Tree:
        """`pledge` the results of the next stage, each by hashes or by words that say what it is instead; or `show`
        the pieces. Raises UnknownQuestion.
        """
        asked: Any = arguments
        try:
            return self._show(asked) if verb == "show" else self._pledge(verb, asked)
        except Exception as error:  # what is asked comes from the process of an answer, and may be anything
            raise UnknownQuestion(
                "what is returned must have the shape that the docstring says, and stay as it is while the check looks "
                f"at a piece of it, got something else ({verb!r:.40}, {type(error).__name__}); look at every shape"
            ) from None

    def peek(self, name: str) -> int:
        """A hidden number, for a probe beside this oracle: what it observes is its own then."""
        self._peeked = True
        return self._hidden[name]

    def values(self) -> dict[str, Leaf] | None:
        """What was shown; None where the case hides nothing, or the probe peeks."""
        return None if self._peeked else dict(self._values)

    def ledger(self) -> dict[str, Leaf]:
        """Nothing: it does not count."""
        return {}

    def _pledge(self, verb: str, hashes: dict[str, Tensor | str]) -> Tree:
        stage = self._look.stages[self._stage]
        if verb != "pledge" or hashes.keys() != stage.pieces.keys():
            raise ValueError("another verb, or other results")
        for name, each in hashes.items():
            fits = isinstance(each, Tensor) and each.dtype == torch.uint8 and each.shape == (stage.pieces[name], SIZE)
            if not (fits or isinstance(each, str)):
                raise ValueError("no hash of each piece")
        for name, each in hashes.items():
            if isinstance(each, Tensor):
                self._pledged[name] = each
            else:
                self._values[name] = each
        self._stage += 1
        return {name: self._hidden[name] for name in stage.tells}

    def _show(self, pieces: dict[str, Tensor]) -> Tree:
        if not 0 < self._stage == len(self._look.stages) or self._values.keys() & pieces.keys():
            raise ValueError("too early, or once more")
        if sum(piece.nbytes for piece in pieces.values()) > MOST_SHOWN:
            raise ValueError("too large")
        at = self._look.at(self._hidden)
        if any(not torch.equal(_hash(piece), self._pledged[name][at[name]]) for name, piece in pieces.items()):
            raise ValueError("another piece")
        self._values |= {name: self._look.cut(piece, self._hidden) for name, piece in pieces.items()}
        return None


# --- the probe's side -------------------------------------------------------------------------------------


def number(ask: Ask, name: str) -> int:
    """A hidden number, where the oracle is here."""
    return cast(Sample, cast(Here, ask).oracle).peek(name)


def pieces(result: Tensor, rows: int) -> list[Tensor]:
    """The result in pieces of so many rows."""
    return [result[start : start + rows] for start in range(0, len(result), rows)]


def pledged(ask: Ask, results: Mapping[str, Iterable[Tensor] | str]) -> dict[str, int]:
    """The hidden numbers that are told for results, each in pieces or words that say what it is instead."""
    given: dict[str, Tree] = {
        name: each if isinstance(each, str) else torch.stack([_hash(piece) for piece in each])
        for name, each in results.items()
    }
    return cast(dict[str, int], ask("pledge", given))


def shown(ask: Ask, found: Mapping[str, Tensor]) -> Observation:
    """Shows these pieces. The observation is empty: the oracle fills it."""
    ask("show", {name: piece.detach() for name, piece in found.items()})
    return observe({})


SIZE = hashlib.sha256().digest_size


def _hash(piece: Tensor) -> Tensor:
    """Of dtype, shape and numbers, (SIZE,) bytes."""
    flat = piece.detach().contiguous()
    found = hashlib.sha256(f"{flat.dtype} {tuple(flat.shape)}".encode())
    found.update(flat.reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(found.digest()), dtype=torch.uint8)
