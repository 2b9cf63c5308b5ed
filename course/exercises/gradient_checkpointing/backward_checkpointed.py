"""`backward_checkpointed(chain, x, dy, every)`: one activation of each segment kept, a segment at a time recomputed."""

from __future__ import annotations

from functools import partial

import torch

from course.exercises.gradient_checkpointing.chains import (
    AGAIN,
    TENSORS,
    ChainOracle,
    Y,
    alive,
    case,
    evaluated,
    probe,
    tensors,
)
from course.performing.draws import integer
from course.performing.exercise import Case, Exercise, Property

FULL, RAGGED, LIMITS = "full segments", "a short last segment", "one segment, or segments of one layer"
TOKENS = (FULL, RAGGED, LIMITS, AGAIN)


def cases(rng: torch.Generator) -> list[Case]:
    """Every length with every kind of spacing: that divides it, that leaves each remainder, 1, n, and more."""

    def draw(low: int, high: int) -> int:
        return integer(rng, low, high + 1)

    full = [(4, 2), (6, 3), (6, 3), (40, 5), (36, 6), (40, 8), (100, 10)]  # (6, 3): called twice
    full += [(every * draw(2, 40 // every), every) for every in (2, 3, 4)]
    each = [(n, every) for n in range(3, 41) for every in [draw(2, n - 1)] if n % every]
    remainders = [(36 + rest, 6) for rest in range(1, 5)] + [(21, 4), (22, 4), (23, 4), (3, 2), (10, 9), (40, 7)]
    one = [(n, every) for n in (1, 2, 3, 7, 40) for every in sorted({1, n, n + 1, 2 * n + draw(0, 3)})]
    return [
        case(rng, FULL, full),
        case(rng, RAGGED, [*remainders, *each]),
        case(rng, LIMITS, one),
        case(rng, AGAIN, [(8, 3), (12, 4), (20, 6)], distinct=3),
        tensors(rng, 7, 3),
    ]


def segments(n: int, every: int) -> list[int]:
    """The length of each."""
    return [min(every, n - start) for start in range(0, n, every)]


def due(n: int, every: int) -> int:
    """Evaluations: the last segment is not recomputed, and of the others all but their last layer."""
    return n + sum(length - 1 for length in segments(n, every)[:-1])


def allowed(n: int, every: int) -> int:
    """Activations: right answers have one less, which Python may hold in a variable."""
    lengths = segments(n, every)
    return len(lengths) + max(lengths)


EXERCISE = Exercise(
    id="gradient_checkpointing.backward_checkpointed",
    cases=cases,
    probe=probe,
    properties=(
        Y,
        Property(
            "dx_of_full_segments",
            "Segments are taken from the last to the first, and the layers in each as well. Each layer gets its own "
            "input, and the derivative that the layer after it gave.",
            points=2,
            keys=("dx",),
            cases=(FULL,),
        ),
        Property(
            "dx_with_a_short_last_segment",
            "Where `every` does not divide n, the last segment has fewer layers, and they count too.",
            points=2,
            keys=("dx",),
            cases=(RAGGED, AGAIN, TENSORS),
        ),
        Property(
            "dx_at_the_limits",
            "`every` may be 1, n, or more than n: then each layer is a segment, or all of them are one.",
            keys=("dx",),
            cases=(LIMITS,),
        ),
        Property(
            "evaluations",
            "Each layer once for y. Then each segment but the last again from its checkpoint, without its last "
            "layer: the output of that is the next checkpoint. The last segment is still there.",
            points=3,
            evidence="ledger",
            holds=evaluated(due),
            beside=("dx",),
            cases=TOKENS,
            needs=("dx_of_full_segments",),
        ),
        Property(
            "activations_alive",
            "Checkpoints, and the activations of one segment: let go of those of a segment before the next is "
            "recomputed, and of those that are no checkpoints while you compute y.",
            points=3,
            evidence="ledger",
            holds=alive(allowed),
            beside=("dx",),
            cases=TOKENS,
            needs=("dx_of_full_segments",),
        ),
    ),
    hints=(
        "On the way forward, which activations must be there at the end, and which of them belong to the last segment?",
        "Cut the chain into segments first. Two things repeat: evaluate a segment and keep its inputs; go back through "
        "a segment with its inputs.",
        "Forward through all segments but the last, keeping only what enters each. Through the last keeping every "
        "input; back through it. Then for each other segment, from the last to the first: inputs from the checkpoint, "
        "and back.",
    ),
    promises={
        "n >= 1": TOKENS,
        "tensors, or tokens that stand for them": (FULL, TENSORS),
        "the chain's output, and the gradient with respect to its input": ("y", "dx_of_full_segments"),
        "at least 1, and possibly more than n": ("dx_at_the_limits",),
        "the last one may be shorter": ("dx_with_a_short_last_segment",),
        "n for y, and length - 1 for each segment but the last": ("evaluations",),
        "at most ceil(n / every) + min(n, every) activations are alive": ("activations_alive",),
    },
    oracle=partial(ChainOracle, allowed=allowed),
)
