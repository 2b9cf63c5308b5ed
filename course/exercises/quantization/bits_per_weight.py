"""`bits_per_weight(shape, bits, group, ...)`: what a scheme stores for a matrix, all of it."""

from __future__ import annotations

from typing import Any

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

TENSOR, CHANNEL, GROUPS, RAGGED, LONG, ZEROS, BOOKS, FACTORS = (
    "one step for the matrix",
    "a step for each row",
    "groups",
    "ragged groups",
    "groups longer than a row",
    "zero points",
    "codebooks",
    "two factors",
)
EXACT = 4  # roundings: as many as a sum of three terms and a quotient have in float64


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks several questions. Rows are odd in number, and no ragged row fills its groups: slips show."""

    def size() -> tuple[int, int]:
        return 2 * integer(rng, 10, 30) + 1, 32 * integer(rng, 2, 5)

    (m, n), step = size(), integer(rng, 9, 31)
    odd = 2 * integer(rng, 1, 10) + 1
    full = {"step_bits": step, "zero_bits": 5, "codebook_bits": 17}
    some: dict[str, list[dict[str, Any]]] = {
        TENSOR: [
            {"shape": size(), "bits": 4},
            {"shape": (3, 7), "bits": 3, "step_bits": 32},  # 32/21 has no end
            {"shape": (1, 1), "bits": 2},
        ],
        CHANNEL: [{"shape": (m, n), "bits": 4, "group": n}, {"shape": (m, 1), "bits": 8, "group": 1, "step_bits": 32}],
        GROUPS: [
            {"shape": size(), "bits": 4, "group": 32},
            {"shape": (m, n), "bits": 3, "group": 1, "step_bits": step},
        ],
        RAGGED: [
            {"shape": (m, 32 * 2 + odd), "bits": 4, "group": 32},
            {"shape": (3, 7), "bits": 2, "group": 5, "step_bits": 0, "zero_bits": 3},
        ],
        LONG: [{"shape": (m, n), "bits": 4, "group": 2 * n + 3}, {"shape": (1, 5), "bits": 4, "group": 64}],
        ZEROS: [
            {"shape": size(), "bits": 4, "group": 32, "zero_bits": 4},
            {"shape": (3, 7), "bits": 5, "zero_bits": 7},
            {"shape": (m, n + odd), "bits": 5, "group": 16, "step_bits": step, "zero_bits": 9},
        ],
        BOOKS: [
            {"shape": (m, n), "bits": 4, "codebook_bits": 16},
            {"shape": (m, n), "bits": 3, "group": 32, "codebook_bits": 32},
            {"shape": (7, 3), "bits": 8, "step_bits": 0, "codebook_bits": 32},
        ],
        FACTORS: [
            {"shape": (m, n), "bits": 2, "step_bits": 0, "codebook_bits": 16, "factors": 2},
            {"shape": (m, n + odd), "bits": 3, "group": 32, **full, "factors": 2},
            {"shape": (3, 7), "bits": 3, "group": 5, **full, "factors": 2},
            {"shape": (m, n), "bits": 2, "group": n, "step_bits": 0, "factors": 3},
            {"shape": (7, 3), "bits": 2, "zero_bits": 5, "codebook_bits": 17, "factors": 2},
        ],
    }
    return [
        Case(name=name, inputs={_label(each): {**each, "shape": [*each["shape"]]} for each in questions})
        for name, questions in some.items()
    ]


def _label(asked: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in asked.items())


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question."""
    found = {}
    for label, asked in inputs.items():
        result = answer(**{**asked, "shape": tuple(asked["shape"])})
        single = isinstance(result, torch.Tensor) and result.numel() == 1
        found[label] = float(result) if single else result  # a float32 tensor is rounded, and shows it as a float
    return observe({**found})


EXERCISE = Exercise(
    id="quantization.bits_per_weight",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "steps",
            "Codes, and steps shared by all entries, by a row or by a group, over the entries of the matrix.",
            points=2,
            roundings=EXACT,
            cases=(TENSOR, CHANNEL, GROUPS),
        ),
        Property(
            "ragged_groups",
            "Groups do not go on in the next row: each row has so many groups, the last one perhaps shorter, and each "
            "has a whole step.",
            roundings=EXACT,
            cases=(RAGGED, LONG),
        ),
        Property("zero_points", "There are as many zero points as steps.", roundings=EXACT, cases=(ZEROS,)),
        Property(
            "codebooks",
            "A codebook has a value for each code: 2**bits of them, once for the matrix, and steps are kept beside it.",
            roundings=EXACT,
            cases=(BOOKS,),
        ),
        Property(
            "factors",
            "Each factor is as large as the matrix, and has all that a matrix has. The entries are those of one.",
            roundings=EXACT,
            cases=(FACTORS,),
        ),
    ),
    hints=(
        "List what a file must hold so that somebody else can make the matrix from it.",
        "How many groups has a row of 70 in groups of 32? And the matrix?",
        "m n codes; m ceil(n / group) steps and zero points, or one; 2**bits values; all times factors, over m n.",
    ),
    promises={
        "both at least 1": (TENSOR,),
        "of each code": ("steps",),
        "one step for the whole matrix": (TENSOR, BOOKS, FACTORS),
        "at least 1; where group does not divide": (GROUPS, RAGGED),
        "of each step; may be 0": (RAGGED, BOOKS),
        "of each zero point, of which there are as many as steps; may be 0": ("zero_points", "steps"),
        "0 where there is none": (TENSOR,),
        "at least 1, each with codes": ("factors", TENSOR),
        "not rounded": ("steps", RAGGED, BOOKS, FACTORS),
    },
)
