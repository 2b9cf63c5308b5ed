"""The faulty programs in float16: each log shows its symptom, and a mended program does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from course.errors import BadArgument, WrongOutput
from course.lessons.experiments import half_runs
from course.lessons.experiments.programs import replacement
from course.reference.mixed_precision.mend_the_runs import mend_the_runs


def log(name: str, *cure: tuple[int, str]) -> half_runs.Log:
    """The log of the lesson, of the program as it is or mended."""
    program = half_runs.PROGRAMS.mended(name, *cure[0]) if cure else ""
    return half_runs.run(name, program, **half_runs.example(name))


def test_each_faulty_log_shows_its_symptom() -> None:
    clipped, growing, cached = (log(name) for name in half_runs.PROGRAMS)
    assert clipped.norm == pytest.approx([1 / 1024] * 16, rel=1e-5)
    assert growing.scale[:5] == [2**14, 2**14, 2**14, 2**13, 2**14]
    assert math.isinf(growing.norm[2])
    assert len({*cached.norm}) == len({*cached.loss}) == 1


def test_mended_programs_train() -> None:
    clipped, growing, cached = (log(name, mend_the_runs()[name]) for name in half_runs.PROGRAMS)
    assert clipped.norm[0] == pytest.approx(1, rel=1e-3)
    assert clipped.loss[-1] < clipped.loss[0] / 100
    assert growing.scale[3:8] == [2**13] * 4 + [2**14]
    assert cached.loss[-1] < cached.loss[0] / 100


def test_the_logs_stand_side_by_side() -> None:
    text = half_runs.table({name: log(name) for name in half_runs.PROGRAMS})
    assert [len(line) for line in text.splitlines()[1:]] == [4 + 3 * 31] * 17


def test_what_is_no_line_and_what_is_no_log_is_refused() -> None:
    with pytest.raises(BadArgument, match="lines 1 to 12, got 13"):
        half_runs.PROGRAMS.mended("clipped", 13, "pass")
    with pytest.raises(WrongOutput, match="the weights and its log"):
        half_runs.run("cached", half_runs.PROGRAMS.mended("cached", 12, "return w"), **half_runs.example("cached"))
    assert torch.equal(half_runs.example("cached")["w"], half_runs.example("growing")["w"])


@pytest.mark.parametrize("pair", [(2, "x = 1"), [np.int64(2), "x = 1"]])
def test_a_line_and_its_number_are_read_from_any_pair(pair) -> None:
    assert replacement({"f": pair}, "f") == (2, "x = 1")


@pytest.mark.parametrize("pair", [(2.0, "x = 1"), (True, "x = 1"), (2, 1), (2,), "x = 1", None])
def test_anything_else_is_refused(pair) -> None:
    with pytest.raises(WrongOutput, match="'f' must have a line number and a line"):
        replacement({"f": pair}, "f")
