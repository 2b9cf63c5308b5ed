"""The reference `muon_step`: bit for bit torch.optim.Muon over 200 steps of given gradients."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.reference.optimizers.muon import muon_step

SHAPES = [(6, 3), (3, 6), (4, 4)]
SETTINGS = [{}, {"lr": 0.02, "weight_decay": 0.0, "nesterov": False}, {"momentum": 0.5, "weight_decay": 0.3}]


def difference_after_200_steps(dtype: torch.dtype, device: str, settings: dict) -> float:
    """The largest difference between torch's parameters and ours; some gradients are missing."""
    rng = torch.Generator().manual_seed(0)
    ours = [torch.randn(shape, generator=rng, dtype=dtype).to(device) for shape in SHAPES]
    theirs = [torch.nn.Parameter(each.clone()) for each in ours]
    optimizer, state = torch.optim.Muon(theirs, **settings), [{} for _ in ours]
    for step in range(200):
        grads = [torch.randn(shape, generator=rng, dtype=dtype).to(device) for shape in SHAPES]
        given = [None if (step + number) % 7 == 0 else grad for number, grad in enumerate(grads)]
        for parameter, grad in zip(theirs, given, strict=True):
            parameter.grad = grad
        optimizer.step()
        muon_step(ours, given, state, **settings)
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_200_steps_are_torchs(dtype, settings):
    assert difference_after_200_steps(dtype, "cpu", settings) == 0.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_200_steps_are_torchs_on_a_gpu():
    assert difference_after_200_steps(torch.float32, "cuda", {}) == 0.0


def test_only_the_momentum_is_kept_in_the_shape_and_dtype_of_the_parameter():
    params, state = [torch.ones(2, 3, dtype=torch.float64)], [{}]
    muon_step(params, [torch.ones(2, 3, dtype=torch.float64)], state)
    assert {name: (each.shape, each.dtype) for name, each in state[0].items()} == {
        "momentum_buffer": ((2, 3), torch.float64)
    }


def test_parameters_that_require_grad_are_changed_in_place_without_a_graph():
    parameter, grad = torch.nn.Parameter(torch.ones(2, 3)), torch.arange(6.0).reshape(2, 3)
    muon_step([parameter], [grad], [{}], lr=0.1)
    assert parameter.is_leaf
    assert not torch.equal(parameter, torch.ones(2, 3))
    assert torch.equal(grad, torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"lr": -0.1}, "lr must be"), ({"momentum": -1.0}, "momentum must be"), ({"weight_decay": -1.0}, "weight_decay")],
)
def test_negative_numbers_are_refused_before_anything_changes(settings, message):
    params, state = [torch.ones(2, 2)], [{}]
    with pytest.raises(BadArgument, match=message):
        muon_step(params, [torch.ones(2, 2)], state, **settings)
    assert (params[0].tolist(), state) == ([[1.0, 1.0], [1.0, 1.0]], [{}])


def test_vectors_are_refused():
    with pytest.raises(BadArgument, match=r"parameter 1 must be a matrix, got the shape \(3,\): use AdamW"):
        muon_step([torch.ones(2, 2), torch.ones(3)], [None, None], [{}, {}])
