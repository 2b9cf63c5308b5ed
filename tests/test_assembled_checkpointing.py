"""A GPT within a budget: torch's parts stand in for answers, and losses do not depend on what is remembered."""

from __future__ import annotations

import pytest
import torch

from course.lessons.experiments import assembled_checkpointing as assembled


def test_torchs_tiles_are_the_explicit_attention_in_both_directions() -> None:
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 8, 4, generator=rng, requires_grad=True) for _ in range(3))
    dout = torch.randn(2, 2, 8, 4, generator=rng)
    tiles = assembled.tiled(assembled.PARTS.with_yours({}))
    one, other = assembled.explicit(q, k, v, causal=True), tiles(q, k, v)
    torch.testing.assert_close(one, other)
    for a, b in zip(*(torch.autograd.grad(out, (q, k, v), dout) for out in (one, other)), strict=True):
        torch.testing.assert_close(a, b)


def test_equal_segments_are_the_shortest_that_fit_and_refuse_what_does_not() -> None:
    blocks = [(1, 5)] * 4
    assert assembled.equal_segments(blocks, [1] * 4, 9) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert assembled.equal_segments([(4, 1)] * 4, [1] * 4, 15) == [(0, 2), (2, 4)]
    with pytest.raises(ValueError, match="at most 5 live"):
        assembled.equal_segments(blocks, [1] * 4, 5)


def test_plain_training_is_stopped_and_a_plan_fits_at_equal_losses() -> None:
    parts = assembled.PARTS.with_yours({})
    plain, planned = (assembled.outcome(name, parts, steps=2) for name in ("plain", "all three"))
    assert "live bytes must be at most" in plain.stopped
    assert planned.stopped == ""
    assert planned.peak is not None
    assert planned.peak <= assembled.BUDGET
    assert planned.losses == pytest.approx(plain.losses, rel=1e-5)
