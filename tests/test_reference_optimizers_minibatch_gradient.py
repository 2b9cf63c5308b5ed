"""The reference of `minibatch_gradient`: right on average over all draws, a plain mean where all are drawn alike."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course.reference.optimizers.minibatch_gradient import minibatch_gradient


@given(n=st.integers(1, 4), b=st.integers(1, 3), seed=st.integers(0, 2**31))
def test_its_expectation_over_all_draws_is_the_mean_gradient(n, b, seed):
    rng = torch.Generator().manual_seed(seed)
    grads = torch.randn(n, 3, generator=rng, dtype=torch.float64)
    probs = torch.rand(n, generator=rng, dtype=torch.float64) + 0.01
    probs = probs / probs.sum()
    draws = [torch.tensor(draw) for draw in itertools.product(range(n), repeat=b)]
    expectation = sum(probs[draw].prod() * minibatch_gradient(grads, probs, draw) for draw in draws)
    torch.testing.assert_close(expectation, grads.mean(0))


def test_the_example_of_the_lesson():
    grads, probs = torch.tensor([[2.0], [4.0]]), torch.tensor([0.25, 0.75])
    for draw, expected in (([0], 4.0), ([1], 8 / 3), ([0, 0, 1], 32 / 9)):
        torch.testing.assert_close(minibatch_gradient(grads, probs, torch.tensor(draw)), torch.tensor([expected]))


def test_drawn_alike_it_is_the_mean_of_the_draws():
    grads = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    draw = torch.tensor([6, 1, 6])
    found = minibatch_gradient(grads, torch.full((8,), 1 / 8), draw)
    torch.testing.assert_close(found, grads[draw].mean(0))


def test_what_is_never_drawn_is_not_read():
    grads = torch.tensor([[1.0], [torch.nan], [3.0]])
    found = minibatch_gradient(grads, torch.tensor([0.5, 0.0, 0.5]), torch.tensor([0, 2]))
    torch.testing.assert_close(found, torch.tensor([4 / 3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_estimate_has_the_dtype_of_the_gradients(dtype):
    found = minibatch_gradient(torch.ones(4, 2, dtype=dtype), torch.full((4,), 0.25, dtype=dtype), torch.tensor([3]))
    assert found.dtype == dtype
