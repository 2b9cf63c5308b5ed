"""`lora_parameters(shapes, r)`: how many numbers are trained where each of these matrices has an adapter."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

Shapes = dict[str, tuple[int, int]]
SQUARE, LONG, SEVERAL, NONE, LARGE, PAPER = (
    "one square matrix",
    "one matrix that is not square",
    "several matrices",
    "no matrix",
    "r above the shorter length",
    "175 billion parameters",
)


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks several questions; no length is twice another, so that slips differ. Only in `LARGE` is r so large
    that the factors have more numbers than the matrix.
    """

    def grouped(layers: int) -> Shapes:
        """Queries and output square, keys and values for fewer heads: of all layers alike."""
        width, few = 64 * integer(rng, 20, 60), 64 * integer(rng, 2, 9)
        tall = {"q_proj": (width, width), "k_proj": (few, width), "v_proj": (few, width), "out_proj": (width, width)}
        return {f"layers.{layer}.{name}": shape for layer in range(layers) for name, shape in tall.items()}

    side, short = integer(rng, 300, 900), integer(rng, 20, 90)
    square, wide, tall = (side, side), (short, 5 * short + integer(rng, 1, 9)), (3 * short + 1, short)
    few = {"up": tall, "down": tall[::-1], "head": (short + 7, side)}
    wide_matrix = 12_288
    of_the_paper: Shapes = {
        f"layers.{layer}.{name}": (wide_matrix, wide_matrix) for layer in range(96) for name in ("q_proj", "v_proj")
    }
    drawn: dict[str, list[tuple[Shapes, int]]] = {
        SQUARE: [({"q_proj": square}, r) for r in (1, integer(rng, 3, 9), integer(rng, 10, 49))],
        LONG: [({"up": shape}, r) for shape in (wide, tall) for r in (1, integer(rng, 3, 14))],
        SEVERAL: [(few, integer(rng, 2, 9)), (grouped(1), 4), (grouped(integer(rng, 2, 5)), 16)],
        NONE: [({}, 8)],
        LARGE: [({"up": tall}, short + integer(rng, 1, 20)), ({"q_proj": square, "up": wide}, 2 * side + 1)],
        PAPER: [(of_the_paper, 1), (of_the_paper, 8), ({**of_the_paper, "head": (50_257, wide_matrix)}, 1_001)],
    }
    return [Case(name=name, inputs={**_by_name(questions)}) for name, questions in drawn.items()]


def _by_name(questions: list[tuple[Shapes, int]]) -> dict[str, Any]:
    """The questions, each under a name by which it can be worked out by hand where it is small."""
    named = {}
    for shapes, r in questions:
        first = ", ".join(f"{m:,} x {n:,}" for m, n in [*shapes.values()][:4])
        more = f" and {len(shapes) - 4} more" if len(shapes) > 4 else ""
        listed = {matrix: [*shape] for matrix, shape in shapes.items()}
        named[f"r = {r}: {first or 'no matrix'}{more}"] = {"shapes": listed, "r": r}
    return named


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question; the mapping is one that nobody can change."""
    found = {}
    for label, asked in inputs.items():
        shapes = {name: (m, n) for name, (m, n) in asked["shapes"].items()}
        found[label] = answer(MappingProxyType(shapes), asked["r"])
    return observe({**found})


def _whole(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each count is an int."""
    other = next((count for count in got.values() if not isinstance(count, int)), None)
    return None if other is None else f"{other!r}, a {type(other).__name__}"


EXERCISE = Exercise(
    id="lora.lora_parameters",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "both_factors",
            "An adapter is two matrices, A and B. Write both of them down for a square W, and count their numbers.",
            points=2,
            cases=(SQUARE,),
        ),
        Property(
            "two_lengths",
            "A has as many columns as W, and B as many rows. Where W is not square these are two different numbers.",
            points=2,
            cases=(LONG,),
        ),
        Property(
            "every_matrix",
            "Each matrix in the mapping has an adapter of its own, with the lengths of its own. Several may have one "
            "shape.",
            cases=(SEVERAL, NONE),
        ),
        Property(
            "large_r",
            "Nothing stops r from being larger than a length of W. The adapter is then a waste, but it has its "
            "numbers all the same.",
            cases=(LARGE,),
            needs=("two_lengths",),
        ),
        Property(
            "the_papers_numbers",
            "The matrices of the queries and of the values in 96 layers, 12,288 x 12,288 each: 4.7 million numbers at "
            "r = 1 and 37.7 million at r = 8. With an output layer and r = 1,001 they are more than an int32 holds: "
            "every digit counts.",
            cases=(PAPER,),
        ),
        Property(
            "an_int",
            "Numbers are counted: return an int. A division makes a float, even where it comes out whole.",
            holds=_whole,
            needs=("both_factors", "two_lengths"),
        ),
    ),
    hints=(
        "Which shapes have the two matrices that are trained for one W?",
        "One matrix has as many rows as W, the other as many columns. Both have r for the other length.",
        "One matrix of shape (m, n) gives m r + r n numbers. Add these up over the values of `shapes`.",
    ),
    promises={
        "a mapping": ("every_matrix",),
        "which may be empty": ("every_matrix", NONE),
        "at least 1, and perhaps above m or n": ("both_factors", "large_r"),
        "of all adapters together": ("every_matrix", "the_papers_numbers"),
        "an int": ("an_int",),
        "the shape (m, n) of its weight": ("two_lengths",),
    },
)
