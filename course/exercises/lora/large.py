"""A weight so large that a tensor of its size shows in the memory of a process, and a piece of it that stands alone.

in grading   4,096 x 4,096, and the kernel says what the process took at its highest
elsewhere    SMALL x SMALL, and the largest tensor that was made is looked at

Of what belongs to rows and columns of the weight one PIECE is looked at, and which is hidden. All others count by what
they add to x A' and dy B, (rows, r) each: in the small one stand these numbers, beside a unit matrix in A and B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.meter import metered
from course.performing.blocks import over_peak
from course.performing.draws import integer
from course.performing.exercise import Ask, Case, Inputs, Observation, Values, observe
from course.performing.oracle import is_here
from course.performing.pledges import Look, Sample, Stage, number, pieces, pledged, shown
from course.tree import Leaf, Tree

SIZE, PIECE, LARGE_R, ROWS = 4096, 16, 2, 3  # rows and columns of the weight in grading, and of what is looked at
ANOTHER = "nothing of this shape"
SMALL = PIECE + LARGE_R  # rows and columns of the weight in a notebook


def large_case(name: str, rng: torch.Generator, inputs: Mapping[str, Tree]) -> Case:
    """A case that a probe tells by its input `large`, a seed."""
    seed, piece = integer(rng, 0, 2**31), integer(rng, 0, SIZE // PIECE)
    return Case(name=name, inputs={"large": seed, **inputs}, hidden={"piece": piece})


def large_tensors(seed: int, ask: Ask) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x and dy (ROWS, size), A (r, size) and B (size, r) in float32, of which each has one sign: no sum cancels."""
    rng = torch.Generator().manual_seed(seed)
    x, dy, a, b = (torch.rand(rows, SIZE, generator=rng) + 0.5 for rows in (ROWS, ROWS, LARGE_R, LARGE_R))
    dy, a, b = -dy, a / 64, b / 64
    if is_here(ask):
        at = slice(PIECE * number(ask, "piece"), PIECE * (number(ask, "piece") + 1))
        x, a = _alone(x, a, at)
        dy, b = _alone(dy, b, at)
    return x, dy, a, b.T.contiguous()


def _alone(of_rows: Tensor, factor: Tensor, at: slice) -> tuple[Tensor, Tensor]:
    """The piece of both, beside what has the same product as all the others."""
    rest = of_rows.double() @ factor.double().T - of_rows[:, at].double() @ factor[:, at].double().T
    return torch.cat([of_rows[:, at], rest.float()], -1), torch.cat([factor[:, at], torch.eye(len(factor))], -1)


def large_observed(found: Mapping[str, Tensor | None], ledger: dict[str, Leaf], ask: Ask) -> Observation:
    """The piece of each result, of which the first dimension is that of the weight's rows or columns."""
    size = SMALL if is_here(ask) else SIZE
    parts: dict[str, list[Tensor] | str] = {
        name: ANOTHER if each is None or each.shape[:1] != (size,) else pieces(each, PIECE)
        for name, each in found.items()
    }
    if is_here(ask):
        return observe(
            {name: each if isinstance(each, str) else each[0].clone() for name, each in parts.items()}, ledger
        )
    piece = pledged(ask, parts)["piece"]
    return shown(ask, {name: each[piece].clone() for name, each in parts.items() if not isinstance(each, str)})


def sample(*results: str) -> Callable[[Case], Sample]:
    """The oracle: a piece of each of these."""
    look = Look(
        stages=(Stage(pieces=dict.fromkeys(results, SIZE // PIECE), tells=("piece",)),),
        at=lambda numbers: dict.fromkeys(results, numbers["piece"]),
    )
    return partial(Sample, look=look)


def with_costs(call: Callable[[], Any], ask: Ask) -> tuple[Any, dict[str, Leaf]]:
    """What a call returns, and where nobody measures from outside how many numbers its largest tensor has."""
    if not is_here(ask):
        return call(), {}
    with metered() as run:
        result = call()
    return result, {"largest_tensor": run.largest.bytes // run.largest.dtype.itemsize if run.largest else 0}


def no_large_matrix(peak: int) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: no tensor of the weight's size was made; in grading, at most `peak` bytes."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        if "peak_bytes" in got:
            sentence = "{peak:,} bytes at the highest, where {most:,} are enough without a matrix (m, n)"
            return over_peak(got["peak_bytes"], peak, sentence)
        found = got["largest_tensor"]
        if isinstance(found, int) and found < SMALL * SMALL:
            return None
        return f"a tensor of {found:,} numbers was made, where the weight has {SMALL * SMALL:,}"

    return holds
