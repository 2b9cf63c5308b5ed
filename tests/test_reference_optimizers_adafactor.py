"""The reference `adafactor_step`: equal to torch.optim.Adafactor over 200 steps of given gradients."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.reference.optimizers.adafactor import adafactor_step

SHAPES = [(6, 3), (5,), (), (2, 3, 4), (1, 4)]
SETTINGS = [
    {},
    {"lr": 1.0, "weight_decay": 0.1, "d": 2.0},
    {"beta2_decay": -0.5, "eps": (0.1, 0.5)},
]


def both_after_200_steps(dtype: torch.dtype, device: str, settings: dict) -> tuple[list, list]:
    """(parameters, state) after 200 steps, ours and torch's; some gradients are missing, some are tiny."""
    rng = torch.Generator().manual_seed(0)
    ours = [torch.randn(shape, generator=rng, dtype=dtype).to(device) for shape in SHAPES]
    theirs = [torch.nn.Parameter(each.clone()) for each in ours]
    optimizer, state = torch.optim.Adafactor(theirs, **settings), [{} for _ in ours]
    for step in range(200):
        size = 10.0 ** -(step % 4)
        grads = [size * torch.randn(shape, generator=rng, dtype=dtype).to(device) for shape in SHAPES]
        given = [None if (step + number) % 7 == 0 else grad for number, grad in enumerate(grads)]
        for parameter, grad in zip(theirs, given, strict=True):
            parameter.grad = grad
        optimizer.step()
        adafactor_step(ours, given, state, **settings)
    return [ours, state], [[each.detach() for each in theirs], [dict(optimizer.state[each]) for each in theirs]]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_200_steps_and_what_is_kept_are_torchs(dtype, settings):
    ours, theirs = both_after_200_steps(dtype, "cpu", settings)
    tolerance = 200 * torch.finfo(dtype).eps  # a few roundings per step, on parameters of size 1
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_200_steps_are_torchs_on_a_gpu():
    ours, theirs = both_after_200_steps(torch.float32, "cuda", {})
    torch.testing.assert_close(ours, theirs, rtol=200 * 2**-23, atol=200 * 2**-23)


def test_a_matrix_keeps_a_number_per_row_and_column_and_a_vector_is_kept_in_full():
    params, state = [torch.ones(4, 3), torch.ones(5)], [{}, {}]
    adafactor_step(params, [torch.ones(4, 3), torch.ones(5)], state)
    assert [{name: tuple(each.shape) for name, each in kept.items()} for kept in state] == [
        {"step": (), "row_var": (4, 1), "col_var": (1, 3)},
        {"step": (), "variance": (5,)},
    ]


def test_parameters_that_require_grad_are_changed_in_place_and_gradients_stay():
    parameter, grad = torch.nn.Parameter(torch.ones(2, 3)), torch.arange(6.0).reshape(2, 3)
    adafactor_step([parameter], [grad], [{}])
    assert parameter.is_leaf
    assert not torch.equal(parameter, torch.ones(2, 3))
    assert torch.equal(grad, torch.arange(6.0).reshape(2, 3))


def test_a_gradient_of_zeros_moves_nothing():
    params = [torch.ones(2, 3), torch.ones(4)]
    adafactor_step(params, [torch.zeros(2, 3), torch.zeros(4)], [{}, {}])
    assert all(bool((each == 1).all()) for each in params)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -0.1}, "lr must be at least 0, got -0.1"),
        ({"beta2_decay": 0.8}, "beta2_decay must be at most 0, got 0.8"),
        ({"eps": (-1.0, 1e-3)}, "eps1 must be at least 0"),
        ({"eps": (None, -1.0)}, "eps2 must be at least 0"),
        ({"d": 0.5}, "d must be at least 1, got 0.5"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
    ],
)
def test_numbers_out_of_range_are_refused_before_anything_changes(settings, message):
    params, state = [torch.ones(2)], [{}]
    with pytest.raises(BadArgument, match=message):
        adafactor_step(params, [torch.ones(2)], state, **settings)
    assert (params[0].tolist(), state) == ([1.0, 1.0], [{}])


def test_a_gradient_of_another_shape_is_refused():
    with pytest.raises(BadArgument, match="gradient 0 must have the shape"):
        adafactor_step([torch.ones(2, 3)], [torch.ones(3, 2)], [{}])
