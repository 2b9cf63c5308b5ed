"""fully_shard on ranks that are not there: bytes by class are those of the formulas."""

from __future__ import annotations

import pytest

from course.errors import CourseError
from course.lessons.experiments.thousand_ranks import measure, planned, table
from course.lessons.models import GPTConfig

SMALL = GPTConfig(vocabulary=70, context=64, width=256, heads=4, layers=6)


def test_every_planned_class_comes_out():
    found, expected = measure(48, SMALL), planned(48, SMALL)
    exact = {name: count for name, count in expected.items() if name != "Activation"}
    assert {name: found[name] for name in exact} == pytest.approx(exact, rel=0.001)
    assert found["Activation"] == pytest.approx(expected["Activation"], rel=0.06)
    assert len([*table(found, expected)]) == 1 + len(expected) + 2  # a total, and what is temporary


def test_what_goes_wrong_in_the_process_is_told():
    with pytest.raises(CourseError, match="must end, but"):
        measure(-1, SMALL)
