"""What is alive in a chain at each call of a layer, under three strategies: counted, without running a layer.

Layers are numbered from 1; layer i takes x_{i-1} and gives x_i. Activations are x_0 to x_{n-1}: y = x_n is the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

ALL, NONE, SOME = "keep all", "keep none", "checkpoints"
FORWARD, AGAIN, BACKWARD = "evaluates", "evaluates again", "goes back through"


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One call of a layer.

    does         FORWARD, AGAIN or BACKWARD
    alive        numbers of the activations that are alive during the call, its output left out
    checkpoints  those of them that are kept to recompute from
    """

    does: str
    layer: int
    alive: frozenset[int]
    checkpoints: frozenset[int]


@cache
def moments(strategy: str, layers: int, spacing: int = 1) -> tuple[Moment, ...]:
    """All calls of one forward and one backward pass; the spacing counts for checkpoints only."""
    if strategy == NONE:
        return tuple(_keep_none(layers))
    return tuple(_segments(layers, layers if strategy == ALL else spacing, strategy == SOME))


def evaluations(strategy: str, layers: int, spacing: int = 1) -> int:
    """Calls of forward."""
    return sum(each.does != BACKWARD for each in moments(strategy, layers, spacing))


def highest(strategy: str, layers: int, spacing: int = 1) -> int:
    """Most activations alive in one call."""
    return max(len(each.alive) for each in moments(strategy, layers, spacing))


def _keep_none(layers: int) -> Iterator[Moment]:
    """x_0 and one more, at most; x_0 is what everything is recomputed from."""

    def moment(does: str, layer: int) -> Moment:
        return Moment(does=does, layer=layer, alive=frozenset({0, layer - 1}), checkpoints=frozenset({0}))

    yield from (moment(FORWARD, layer) for layer in range(1, layers + 1))
    for last in range(layers, 0, -1):
        yield from (moment(AGAIN, layer) for layer in range(1, last))
        yield moment(BACKWARD, last)


def _segments(layers: int, spacing: int, marked: bool) -> Iterator[Moment]:
    """Every `spacing`-th activation up to the one at work, and the segment at work. One segment keeps all."""

    def moment(does: str, layer: int, start: int) -> Moment:
        kept = frozenset(range(0, layer, spacing))
        alive = kept | frozenset(range(start, layer))
        return Moment(does=does, layer=layer, alive=alive, checkpoints=kept if marked else frozenset())

    final = (layers - 1) // spacing * spacing
    yield from (moment(FORWARD, layer, min(final, layer - 1)) for layer in range(1, layers + 1))
    for start in range(final, -1, -spacing):
        end = min(start + spacing, layers)
        if start < final:
            yield from (moment(AGAIN, layer, start) for layer in range(start + 1, end))
        yield from (moment(BACKWARD, layer, start) for layer in range(end, start, -1))
