"""`backward_keep_all(chain, x, dy)`: every layer evaluated once, its input kept."""

from __future__ import annotations

import torch

from course.exercises.gradient_checkpointing.chains import (
    AGAIN,
    TENSORS,
    ChainOracle,
    Y,
    case,
    evaluated,
    probe,
    tensors,
)
from course.performing.exercise import Case, Exercise, Property

ALL = "1 to 100 layers"


def cases(rng: torch.Generator) -> list[Case]:
    """All short lengths, one of them with a second call, two long ones, some with few layers, and one of real ones."""
    return [
        case(rng, ALL, [(n, 0) for n in (1, 2, 3, 3, *range(4, 11), 40, 100)]),
        case(rng, AGAIN, [(n, 0) for n in (4, 8, 20)], distinct=3),
        tensors(rng, 5),
    ]


EXERCISE = Exercise(
    id="gradient_checkpointing.backward_keep_all",
    cases=cases,
    probe=probe,
    properties=(
        Y,
        Property(
            "dx",
            "Backward goes from the last layer to the first. Each layer needs its own input again, and the derivative "
            "that the layer after it gave.",
            points=3,
            keys=("dx",),
        ),
        Property(
            "each_layer_once",
            "n evaluations give y and every input that backward needs. Keep the inputs, and evaluate nothing again.",
            points=2,
            evidence="ledger",
            holds=evaluated(lambda n, every: n),
            beside=("dx",),
            cases=(ALL, AGAIN),
            needs=("dx",),
        ),
    ),
    hints=(
        "Which of the tensors on the way forward does the backward method of a layer ask for?",
        "Put each layer's input into a list before you evaluate the layer.",
        "Forward: append x, then x becomes the layer's output. Backward: over the layers in reverse order, with the "
        "inputs from the end of the list.",
    ),
    promises={
        "n >= 1": (ALL,),
        "may stand in it twice": (AGAIN, TENSORS),
        "tensors, or tokens that stand for them": (ALL, TENSORS),
        "the chain's output, and the gradient with respect to its input": ("y", "dx"),
        "each layer's forward once and each layer's backward once": ("each_layer_once",),
    },
    oracle=ChainOracle,
)
