"""Of two factors a product of rank r is judged: an answer that ignores r has no error, and no points."""

from __future__ import annotations

import pytest
import torch

from course.exercises.lora.best_rank_r import EXERCISE
from course.judging.judge import judge
from course.performing.perform import perform_all
from course.reference.lora.best_rank_r import best_rank_r


def as_rows(delta, r):
    return delta, torch.eye(delta.shape[1], dtype=delta.dtype)


def as_columns(delta, r):
    return torch.eye(len(delta), dtype=delta.dtype), delta.clone()


@pytest.mark.parametrize(("answer", "points"), [(best_rank_r, 12), (as_rows, 0), (as_columns, 0)])
def test_who_gives_all_of_delta_earns_nothing(answer, points):
    cases = EXERCISE.draw(3)
    seen, right = (perform_all(EXERCISE, each, cases) for each in (answer, best_rank_r))
    assert judge(EXERCISE, cases, seen, right).points == points
