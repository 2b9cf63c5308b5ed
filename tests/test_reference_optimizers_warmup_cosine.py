"""The reference of `warmup_cosine`: its corners, torch's cosine, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course.errors import BadArgument
from course.reference.optimizers.warmup_cosine import warmup_cosine

FINE = {"step": 1, "peak": 1.0, "warmup": 4, "total": 12}


@given(warmup=st.integers(0, 20), decay=st.integers(1, 40), peak=st.floats(1e-6, 10), share=st.floats(0, 1))
def test_it_starts_at_0_reaches_the_peak_and_stays_on_the_floor(warmup, decay, peak, share):
    numbers = {"peak": peak, "warmup": warmup, "total": warmup + decay, "floor": share * peak}
    assert warmup_cosine(0, **numbers) == pytest.approx(0.0 if warmup else peak, rel=1e-15)
    assert warmup_cosine(warmup, **numbers) == pytest.approx(peak, rel=1e-15)
    for step in (warmup + decay, warmup + decay + 1, 3 * (warmup + decay)):
        assert warmup_cosine(step, **numbers) == share * peak


@given(warmup=st.integers(1, 20), decay=st.integers(1, 40), share=st.floats(0, 0.9))
def test_the_rate_climbs_by_equal_amounts_and_then_never_rises(warmup, decay, share):
    numbers = {"peak": 1.0, "warmup": warmup, "total": warmup + decay, "floor": share}
    rates = torch.tensor([warmup_cosine(step, **numbers) for step in range(warmup + 2 * decay)], dtype=torch.float64)
    torch.testing.assert_close(rates[: warmup + 1].diff(), torch.full((warmup,), 1 / warmup, dtype=torch.float64))
    assert bool((rates[warmup:].diff() <= 0).all())


def test_the_example_of_the_lesson():
    steps = (0, 1, 4, 6, 8, 12, 100)
    rates = [warmup_cosine(step, peak=1.0, warmup=4, total=12) for step in steps]
    assert rates == pytest.approx([0, 0.25, 1, (1 + math.sqrt(0.5)) / 2, 0.5, 0, 0])


@pytest.mark.parametrize("floor", [0.0, 1e-4])
def test_the_descent_is_that_of_torch(floor):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200, eta_min=floor)
    for step in range(201):
        expected = warmup_cosine(step, peak=3e-3, warmup=0, total=200, floor=floor)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, abs=1e-12)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(
    ("name", "number"), [("step", -1), ("peak", -0.1), ("warmup", -1), ("floor", -1e-9), ("peak", math.nan)]
)
def test_what_is_negative_is_refused_by_name(name, number):
    with pytest.raises(BadArgument, match=f"{name} must be at least 0, got {number}"):
        warmup_cosine(**{**FINE, name: number})


@pytest.mark.parametrize("total", [4, 3])
def test_a_descent_without_steps_is_refused(total):
    with pytest.raises(BadArgument, match=f"total must be greater than warmup, got total {total} and warmup 4"):
        warmup_cosine(**{**FINE, "total": total})
