"""Tiled attention gives what torch's own gives, for any lengths and blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from course import exercises
from course.exercises.gradient_checkpointing.tiles import ONE_TILE
from course.lessons.experiments.attention_bytes import in_tiles
from course.performing.exercise import PUBLIC_SEED
from course.reference.gradient_checkpointing.attention_tiled import attention_tiled
from course.reference.gradient_checkpointing.attention_tiled_backward import attention_tiled_backward


@settings(max_examples=25, deadline=None)
@given(
    queries=st.integers(1, 9),
    keys=st.integers(1, 9),
    block=st.integers(1, 11),
    lead=st.lists(st.integers(1, 2), max_size=2),
    causal=st.booleans(),
)
def test_value_and_gradients_are_torchs(queries: int, keys: int, block: int, lead: list[int], causal: bool) -> None:
    """Ragged tails, a block of one, a block longer than the sequence, and with a mask."""
    keys = queries if causal else keys
    drawn = torch.Generator().manual_seed(block)
    shapes = (queries, 4), (keys, 4), (keys, 3)
    ours = [
        torch.randn(*lead, *shape, generator=drawn, dtype=torch.float64).mul_(4).requires_grad_() for shape in shapes
    ]
    theirs = q, k, v = [each.detach().clone().requires_grad_() for each in ours]
    got = in_tiles(attention_tiled, attention_tiled_backward, block, causal)(*ours)
    wanted = scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(got, wanted)
    dout = torch.randn(got.shape, generator=drawn, dtype=torch.float64)
    torch.autograd.backward([got, wanted], [dout, dout])
    for ours_at, theirs_at in zip(ours, theirs, strict=True):
        torch.testing.assert_close(ours_at.grad, theirs_at.grad)


def test_log_sum_exp_of_large_scores() -> None:
    """exp of these scores would be infinite."""
    q, k, v = (torch.full((3, 4), 30.0) for _ in range(3))
    _, lse = attention_tiled(q, k, v, 2)
    torch.testing.assert_close(lse, torch.full((3,), 1800.0).add(torch.tensor(3.0).log()))


@pytest.mark.parametrize("name", ["attention_tiled", "attention_tiled_backward"])
def test_a_q_that_is_scaled_in_place_and_back_is_not_what_it_was(name: str) -> None:
    """A scale of 1 / 2 would leave no trace."""
    q = next(case.inputs["q"] for case in exercises.load(name).draw(PUBLIC_SEED) if case.name == ONE_TILE)
    assert isinstance(q, torch.Tensor)
    root = q.shape[-1] ** 0.5
    assert not torch.equal(q.div(root).mul(root), q)
