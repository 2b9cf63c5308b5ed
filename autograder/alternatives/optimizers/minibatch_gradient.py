"""Other right ways to write `minibatch_gradient`."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Alternative


def weights_times_matrix(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """A vector of weights times the matrix of what was drawn."""
    weights = probs[indices].reciprocal() / (grads.shape[0] * indices.numel())
    return weights @ grads.index_select(0, indices)


def one_draw_at_a_time(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """Adds in place on a new tensor; the weight is a Python number."""
    total = torch.zeros_like(grads[0])
    for i in indices.tolist():
        total += grads[i] / (len(grads) * probs[i].item())
    return total / len(indices)


def counts_the_draws(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """How often each example was drawn, over how often it was expected; 0 where it cannot be drawn."""
    drawn = torch.bincount(indices, minlength=len(probs)).to(grads.dtype)
    expected = len(indices) * probs
    ratio = torch.where(probs > 0, drawn / expected.where(probs > 0, torch.ones_like(probs)), 0.0)
    return (ratio[:, None] * grads).mean(0)


def einsum_in_float64(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """Float64 inside."""
    picked, p = grads.double()[indices], probs.double()[indices]
    return (torch.einsum("bd,b->d", picked, 1 / p) / len(probs) / len(indices)).to(grads.dtype)


ALTERNATIVES = (
    Alternative(name="weights_times_matrix", answer=weights_times_matrix),
    Alternative(name="one_draw_at_a_time", answer=one_draw_at_a_time),
    Alternative(name="counts_the_draws", answer=counts_the_draws),
    Alternative(name="einsum_in_float64", answer=einsum_in_float64),
)
