"""A limit of live bytes stops a body at the op that exceeds it, in both directions, and counts what the body made."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.meter import OverBudget, memory_limit


def test_a_body_may_use_the_limit_to_the_last_byte() -> None:
    with memory_limit(1024) as meter:
        x = torch.ones(256)
    assert meter.bytes_alive() == x.nbytes == 1024


def test_the_op_that_goes_beyond_it_is_the_last_one_and_is_named() -> None:
    with memory_limit(1500):
        x = torch.ones(256)
        with pytest.raises(OverBudget, match=r"at most 1,500, but are 2,048 after `mul`"):
            x.mul(2)


def test_memory_that_is_free_again_and_memory_from_before_do_not_count() -> None:
    before = torch.ones(10_000)
    with memory_limit(1024):
        before.add_(1)
        for _ in range(3):
            x = torch.ones(256)
            del x


def test_a_backward_is_stopped_too() -> None:
    x = torch.ones(256, requires_grad=True)
    with memory_limit(1500):
        y = x.sum()
        with pytest.raises(OverBudget):
            torch.autograd.backward((y * x).sum())


def test_after_a_stop_nothing_is_watched_any_more() -> None:
    with pytest.raises(OverBudget), memory_limit(0):
        torch.ones(1)
    assert torch.ones(1000).sum() == 1000


def test_a_limit_below_0_makes_no_sense() -> None:
    with pytest.raises(BadArgument, match="at least 0 bytes, got -1"), memory_limit(-1):
        pass
