"""`backward_keep_none(chain, x, dy)`: every layer's input recomputed from the chain's."""

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

TOKENS = "1 to 64 layers"
COUNTED = (TOKENS, AGAIN)
ALIVE = 3  # right answers have 2, and Python may hold one more in a variable
FEW_MORE = 5  # variables; whoever keeps inputs has more than these in the longest chain


def cases(rng: torch.Generator) -> list[Case]:
    """All short chains, one called twice, a long one, some with few layers, and one of real ones; costs grow with the
    length's square.
    """
    drawn = integer(rng, 9, 20)
    return [
        case(rng, TOKENS, [(n, 0) for n in (1, 2, 3, 3, *range(4, 9), drawn, 64)]),
        case(rng, AGAIN, [(n, 0) for n in (4, 8, 20)], distinct=3),
        tensors(rng, 5),
    ]


EXERCISE = Exercise(
    id="gradient_checkpointing.backward_keep_none",
    cases=cases,
    probe=probe,
    properties=(
        Y,
        Property(
            "dx",
            "chain[i] needs its own input: what the layers before it, and not itself, make of the chain's input.",
            points=2,
            keys=("dx",),
        ),
        Property(
            "evaluations",
            "n evaluations give y. After that, chain[i] needs i evaluations for its input, and no more.",
            points=2,
            evidence="ledger",
            holds=evaluated(lambda n, every: n * (n + 1) // 2),
            beside=("dx",),
            cases=COUNTED,
            needs=("dx",),
        ),
        Property(
            "nothing_kept",
            "Only the chain's input and the input of the layer at work may be alive. A list, a dict, or calls that "
            "have not returned yet hold the others.",
            points=2,
            evidence="ledger",
            holds=alive(lambda n, every: ALIVE, FEW_MORE),
            beside=("dx",),
            cases=COUNTED,
            needs=("dx",),
        ),
        Property(
            "no_variable_too_many",
            "Three are alive at most: the chain's input, the input of the layer at work, and one more. Any other "
            "variable that still names an activation while a layer is called keeps it alive.",
            evidence="ledger",
            holds=alive(lambda n, every: ALIVE),
            beside=("dx",),
            cases=COUNTED,
            needs=("dx",),
        ),
    ),
    hints=(
        "If only the chain's input is kept, how do you get the input of chain[i]?",
        "Two loops, one in the other: over the layers in reverse order, and over the layers before each.",
        "First y. Then for i from n - 1 down to 0: begin with x, evaluate chain[0] to chain[i - 1], and call backward "
        "of chain[i].",
    ),
    promises={
        "n >= 1": (TOKENS,),
        "tensors, or tokens that stand for them": (TOKENS, TENSORS),
        "the chain's output, and the gradient with respect to its input": ("y", "dx"),
        "n for y, then i for the input of layer i = n - 1, ..., 0": ("evaluations",),
        "at most 3 activations are alive": ("nothing_kept", "no_variable_too_many"),
    },
    oracle=partial(ChainOracle, allowed=lambda n, every: ALIVE),
)
