"""Bytes counted block by block foretell the peak of a real GPT's step under any plan of segments."""

from __future__ import annotations

import pytest
import torch

from course.lessons.experiments import planned
from course.lessons.models import next_token_loss

ROWS = (
    (),
    ((0, 12),),
    tuple((at, at + 1) for at in range(12)),
    ((0, 4), (4, 8), (8, 12)),
    ((0, 4), (4, 8)),
    ((2, 5), (7, 8)),
    ((0, 5), (5, 9), (9, 11)),
)


@pytest.fixture(scope="module")
def gpt() -> tuple[planned.GPT, planned.Batch, list[tuple[int, int]], int]:
    model, batch = planned.problem()
    bytes_, _, rest = planned.measured(model, batch)
    return model, batch, bytes_, rest


@pytest.mark.parametrize("segments", ROWS, ids=str)
def test_the_predicted_peak_is_the_meters(segments: planned.Segments, gpt: tuple[planned.GPT, ...]) -> None:
    model, batch, bytes_, rest = gpt
    peak = planned.step(model, batch, segments).peak
    assert peak is not None
    assert planned.predicted_peak(bytes_, rest, segments) == pytest.approx(peak.live, rel=0.05)


def test_no_plan_changes_the_gradients() -> None:
    grads = []
    for segments in ((), ((0, 5), (5, 9), (10, 11))):
        model, (tokens, targets) = planned.problem()
        next_token_loss(planned.forward(model, tokens, segments), targets).backward()
        grads.append([each.grad for each in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*grads, strict=True))


def test_without_segments_it_is_the_models_own_forward() -> None:
    model, (tokens, _) = planned.problem()
    assert torch.equal(planned.forward(model, tokens), model(tokens))


def test_every_block_recomputed_costs_its_products_again_at_most() -> None:
    model, batch = planned.problem()
    _, cost, _ = planned.measured(model, batch)
    once, again = (sum(planned.step(model, batch, segments).flops.values()) for segments in ((), ((0, 4), (6, 9))))
    assert 0.8 * 7 * cost[0] < again - once <= 7 * cost[0]


def test_units_are_rounded_up() -> None:
    assert planned.in_units([(planned.UNIT, planned.UNIT + 1)]) == [(1, 2)]
