"""Right and wrong ways to write `bits_per_weight`."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.bits_per_weight import bits_per_weight


def by_splitting(
    shape: tuple[int, int],
    bits: int,
    group: int | None = None,
    step_bits: int = 16,
    zero_bits: int = 0,
    codebook_bits: int = 0,
    factors: int = 1,
) -> Fraction:
    """Rows are split by torch, and pieces counted; fractions."""
    matrix = torch.empty(shape, dtype=torch.int8)
    groups = 1 if group is None else sum(len(row.split(group)) for row in matrix)
    held = Fraction(0)
    for _ in range(factors):
        held += matrix.numel() * bits + sum(codebook_bits for _ in range(2**bits))
        held += groups * step_bits + groups * zero_bits
    return held / matrix.numel()


def term_by_term(
    shape: tuple[int, int],
    bits: int,
    group: int | None = None,
    step_bits: int = 16,
    zero_bits: int = 0,
    codebook_bits: int = 0,
    factors: int = 1,
) -> float:
    """What each part adds for an entry."""
    entries = shape[0] * shape[1]
    shared = step_bits + zero_bits
    steps = shared / entries if group is None else ((shape[1] + group - 1) // group) * shared / shape[1]
    return factors * (bits + steps + (1 << bits) * codebook_bits / entries)


RIGHT = (right(by_splitting, independent="torch.split and fractions"), right(term_by_term))

counted = partial(edited, bits_per_weight)
GROUPS, BOOK, SHARED = "m * -(-n // group)", "2**bits * codebook_bits", "(step_bits + zero_bits)"
RETURN = "factors * stored / (m * n)"

WRONG = (
    wrong(
        "codes_alone",
        "You count the codes alone. Without steps and codebooks nobody can read them.",
        counted((f" + groups * {SHARED} + {BOOK}", "")),
    ),
    wrong("codebook_left_out", "The values of the codebook are stored, too.", counted((f" + {BOOK}", ""))),
    wrong(
        "codebook_of_bits_values",
        "Codes of b bits tell 2**b values apart, and the codebook has all of them.",
        counted((BOOK, "bits * codebook_bits")),
        counted((BOOK, "(2**bits - 1) * codebook_bits")),
        counted((BOOK, "codebook_bits")),
    ),
    wrong(
        "codebook_for_each_group",
        "There is one codebook for the matrix, whatever its groups.",
        counted((BOOK, f"groups * {BOOK}")),
    ),
    wrong("zero_points_left_out", "Each grid has a zero point beside its step.", counted((SHARED, "step_bits"))),
    wrong(
        "one_zero_point",
        "Each group has a zero point of its own.",
        counted((f"groups * {SHARED}", "groups * step_bits + zero_bits")),
    ),
    wrong(
        "ragged_group_dropped",
        "The rest of a row that fills no group has a step too: round the number of groups up.",
        counted((GROUPS, "m * (n // group)")),
    ),
    wrong(
        "ragged_group_in_part",
        "A shorter group has a whole step, not a part of one.",
        counted((GROUPS, "m * n / group")),
    ),
    wrong(
        "groups_across_rows",
        "Your groups go on in the next row. They are neighbours in one row.",
        counted((GROUPS, "-(-m * n // group)")),
    ),
    wrong(
        "one_group_too_many",
        "Where group divides n there is no shorter group: n // group + 1 counts one that is empty.",
        counted((GROUPS, "m * (n // group + 1)")),
    ),
    wrong(
        "groups_down_columns",
        "Groups lie in rows, (m, n) has m of them: you split columns.",
        counted((GROUPS, "n * -(-m // group)")),
    ),
    wrong(
        "groups_of_one_row",
        "You count the groups of one row. Each of the m rows has as many.",
        counted((GROUPS, "-(-n // group)")),
    ),
    wrong(
        "no_step_for_the_matrix",
        "With group None there is one step for the matrix, also beside a codebook. It adds little, but not nothing.",
        counted(("1 if group is None", "0 if group is None")),
        counted(("1 if group is None", "(0 if codebook_bits else 1) if group is None")),
    ),
    wrong(
        "step_for_each_row",
        "With group None there is one step in all, not one for each row.",
        counted(("1 if group is None", "m if group is None")),
    ),
    wrong(
        "factors_ignored",
        "A second factor has as many codes as the first, and all that belongs to them.",
        counted((RETURN, "stored / (m * n)")),
    ),
    wrong(
        "codes_of_factors_alone",
        "Each factor has steps and a codebook of its own, not codes alone.",
        counted((RETURN, "((factors - 1) * m * n * bits + stored) / (m * n)")),
        counted(("1 if group is None", "1 / factors if group is None")),
    ),
    wrong(
        "rounded",
        "You round, or divide integers: bits per weight are seldom whole.",
        counted((RETURN, "factors * stored // (m * n)")),
        counted((RETURN, "round(factors * stored / (m * n), 2)")),
        counted((RETURN, "round(factors * stored / (m * n), 6)")),
    ),
    wrong("in_bytes", "That is in bytes. 8 bits are a byte.", counted((RETURN, "factors * stored / (m * n) / 8"))),
)
