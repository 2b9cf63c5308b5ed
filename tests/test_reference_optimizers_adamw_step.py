"""course/reference/optimizers: adamw_step and its batched form, against torch.optim.AdamW."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.reference.optimizers.adamw_step import adamw_step
from course.reference.optimizers.batched import adamw_step_foreach

SHAPES = ((4, 3), (5,), (), (2, 3, 2), (1,))
STEPS = 200
ON_CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]
DEVICES = ["cpu", pytest.param("cuda", marks=ON_CUDA)]
# Not in bfloat16 on the CPU, where an in-place product of a list rounds its factor to bfloat16.
WHERE_FORMS_AGREE = [
    ("cpu", torch.float32),
    ("cpu", torch.float64),
    *[pytest.param("cuda", each, marks=ON_CUDA) for each in (torch.float32, torch.float64, torch.bfloat16)],
]
OPTIONS = [
    {},
    {"weight_decay": 0.0},
    {"betas": (0.5, 0.9), "eps": 0.1},
    {"betas": (0.0, 0.0), "weight_decay": 0.5},
]


def drawn(dtype, device="cpu", seed=0):
    """Parameters of several shapes."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(device, dtype) for shape in SHAPES]


def gradients(t, dtype, device="cpu"):
    """Those of step t; every third parameter has none in every fourth step, the first included."""
    return [None if t % 4 == 0 and i % 3 == 1 else each for i, each in enumerate(drawn(dtype, device, seed=t + 1))]


def trained(step, dtype, device="cpu", lr=0.01, **options):
    """The parameters after 200 steps of scripted gradients, with what was kept."""
    params, state = drawn(dtype, device), [{} for _ in SHAPES]
    for t in range(STEPS):
        step(params, gradients(t, dtype, device), state, lr=lr, **options)
    return params, state


def trained_by_torch(dtype, device="cpu", lr=0.01, **options):
    """The same by torch.optim; with torch's state."""
    params = drawn(dtype, device)
    optimizer = torch.optim.AdamW(params, lr=lr, **options)
    for t in range(STEPS):
        for param, grad in zip(params, gradients(t, dtype, device), strict=True):
            param.grad = grad
        optimizer.step()
    return params, [optimizer.state[param] for param in params]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("step", "foreach"), [(adamw_step, False), (adamw_step_foreach, True)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_two_hundred_steps_equal_torch(step, foreach, options, dtype, device):
    params, _ = trained(step, dtype, device, **options)
    torch.testing.assert_close(params, trained_by_torch(dtype, device, foreach=foreach, **options)[0])


@pytest.mark.parametrize(("device", "dtype"), WHERE_FORMS_AGREE)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_batched_form_steps_and_keeps_as_the_plain_one(options, device, dtype):
    plain = trained(adamw_step, dtype, device, **options)
    torch.testing.assert_close(trained(adamw_step_foreach, dtype, device, **options), plain)


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_what_is_kept_is_what_torch_keeps(step):
    _, state = trained(step, torch.float32)
    _, theirs = trained_by_torch(torch.float32)
    named = [{"step": kept["step"], "exp_avg": kept["m"], "exp_avg_sq": kept["v"]} for kept in state]
    torch.testing.assert_close(named, theirs)


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_a_parameter_without_a_gradient_stays_with_all_that_is_kept_of_it(step):
    params, state = [torch.ones(2), torch.ones(2)], [{}, {}]
    step(params, [torch.ones(2), None], state, lr=0.1)
    assert params[1].tolist() == [1.0, 1.0]
    assert [len(kept) for kept in state] == [3, 0]
    step(params, [None, torch.ones(2)], state, lr=0.1)
    assert [int(kept["step"]) for kept in state] == [1, 1]
    assert torch.equal(*params)


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_a_step_in_which_nothing_has_a_gradient_changes_nothing(step):
    param, state = torch.ones(2), [{}]
    step([param], [None], state, lr=0.1)
    assert (param.tolist(), state) == ([1.0, 1.0], [{}])


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_parameters_of_several_dtypes_keep_theirs(step):
    params = [torch.ones(3, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)]
    state = [{} for _ in params]
    step(params, [torch.ones_like(each) for each in params], state, lr=0.5, weight_decay=0.0)
    assert [each.tolist() for each in params] == [pytest.approx([0.5] * 3, rel=0.01)] * 3
    assert [(kept["m"].dtype, kept["v"].dtype) for kept in state] == [(each.dtype, each.dtype) for each in params]


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_gradients_stay_as_they_are(step):
    grads = drawn(torch.float32, seed=1)
    step(drawn(torch.float32), grads, [{} for _ in SHAPES], lr=0.1)
    torch.testing.assert_close(grads, drawn(torch.float32, seed=1), rtol=0, atol=0)


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_a_gradient_of_zeros_moves_nothing(step):
    param = torch.ones(2)
    step([param], [torch.zeros(2)], [{}], lr=0.1, weight_decay=0.0)
    assert param.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_no_parameters_are_no_error(step):
    assert step([], [], [], lr=0.1) is None


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_parameters_of_a_model_are_stepped_outside_of_autograd(step):
    layer = torch.nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    torch.nn.init.ones_(layer.bias)
    step([layer.bias], [layer.bias.grad], [{}], lr=0.5, weight_decay=0.0)
    assert layer.bias.item() == pytest.approx(0.5)
    assert layer.bias.is_leaf


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -0.1}, "lr must be at least 0, got -0.1"),
        ({"eps": -1e-8}, "eps must be at least 0, got -1e-08"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
        ({"betas": (1.0, 0.9)}, r"beta1 must lie in \[0, 1\), got 1.0"),
        ({"betas": (0.9, -0.5)}, r"beta2 must lie in \[0, 1\), got -0.5"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_before_a_change(step, options, words):
    param = torch.ones(2)
    with pytest.raises(BadArgument, match=words):
        step([param], [torch.ones(2)], [{}], **{"lr": 0.1, **options})
    assert param.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("step", [adamw_step, adamw_step_foreach])
def test_a_gradient_that_would_broadcast_is_refused_before_a_change(step):
    params = [torch.ones(2), torch.ones(4, 3)]
    with pytest.raises(BadArgument, match=r"gradient 1 must have the shape \(4, 3\) of its parameter, got \(3,\)"):
        step(params, [torch.ones(2), torch.ones(3)], [{}, {}], lr=0.1)
    assert params[0].tolist() == [1.0, 1.0]
