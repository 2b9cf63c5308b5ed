"""course/reference/optimizers: sgd_step and its batched form, against torch.optim.SGD."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.reference.optimizers.batched import sgd_step_foreach
from course.reference.optimizers.sgd_step import sgd_step

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
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "weight_decay": 0.1},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
]


def drawn(dtype, device="cpu", seed=0):
    """Parameters of several shapes."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(device, dtype) for shape in SHAPES]


def trained(step, dtype, device, lr=0.01, **options):
    """The parameters after 200 steps of scripted gradients, with what was kept."""
    params, state = drawn(dtype, device), [{} for _ in SHAPES]
    for t in range(STEPS):
        step(params, drawn(dtype, device, seed=t + 1), state, lr=lr, **options)
    return params, state


def trained_by_torch(dtype, device, lr=0.01, **options):
    """The same by torch.optim."""
    params = drawn(dtype, device)
    optimizer = torch.optim.SGD(params, lr=lr, **options)
    for t in range(STEPS):
        for param, grad in zip(params, drawn(dtype, device, seed=t + 1), strict=True):
            param.grad = grad
        optimizer.step()
    return params


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("step", "foreach"), [(sgd_step, False), (sgd_step_foreach, True)])
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_two_hundred_steps_equal_torch(step, foreach, options, dtype, device):
    params, _ = trained(step, dtype, device, **options)
    torch.testing.assert_close(params, trained_by_torch(dtype, device, foreach=foreach, **options))


@pytest.mark.parametrize(("device", "dtype"), WHERE_FORMS_AGREE)
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_the_batched_form_steps_and_keeps_as_the_plain_one(options, device, dtype):
    plain = trained(sgd_step, dtype, device, **options)
    torch.testing.assert_close(trained(sgd_step_foreach, dtype, device, **options), plain)


@pytest.mark.parametrize("step", [sgd_step, sgd_step_foreach])
def test_parameters_of_several_dtypes_keep_theirs(step):
    params = [torch.ones(3, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)]
    state = [{} for _ in params]
    step(params, [torch.ones_like(each) for each in params], state, lr=0.5, momentum=0.5)
    assert [each.tolist() for each in params] == [[0.5] * 3] * 3
    assert [kept["momentum"].dtype for kept in state] == [each.dtype for each in params]


@pytest.mark.parametrize("step", [sgd_step, sgd_step_foreach])
def test_a_parameter_that_joins_later_starts_from_its_own_gradient(step):
    old, new = torch.zeros(2), torch.zeros(2)
    state = [{}, {}]
    step([old], [torch.ones(2)], state[:1], lr=1.0, momentum=0.5)
    step([old, new], [torch.ones(2), torch.ones(2)], state, lr=1.0, momentum=0.5)
    assert (old.tolist(), new.tolist()) == ([-2.5, -2.5], [-1.0, -1.0])


@pytest.mark.parametrize("step", [sgd_step, sgd_step_foreach])
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_gradients_stay_as_they_are(step, options):
    grads = drawn(torch.float32, seed=1)
    state = [{} for _ in SHAPES]
    for _ in range(2):
        step(drawn(torch.float32), grads, state, lr=0.1, **options)
    torch.testing.assert_close(grads, drawn(torch.float32, seed=1), rtol=0, atol=0)


@pytest.mark.parametrize("step", [sgd_step, sgd_step_foreach])
def test_the_buffer_is_no_view_of_the_first_gradient(step):
    grad, state = torch.ones(2), [{}]
    step([torch.zeros(2)], [grad], state, lr=0.1, momentum=0.9)
    grad.zero_()
    assert state[0]["momentum"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("step", [sgd_step, sgd_step_foreach])
def test_no_parameters_are_no_error(step):
    assert step([], [], [], lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1) is None


@pytest.mark.parametrize("step", [sgd_step, sgd_step_foreach])
def test_parameters_of_a_model_are_stepped_outside_of_autograd(step):
    layer = torch.nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    torch.nn.init.ones_(layer.bias)
    step([layer.bias], [layer.bias.grad], [{}], lr=0.5)
    assert layer.bias.item() == 0.5
    assert layer.bias.is_leaf


@pytest.mark.parametrize("step", [sgd_step, sgd_step_foreach])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -0.1}, "lr must be at least 0, got -0.1"),
        ({"lr": float("nan")}, "lr must be at least 0, got nan"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"momentum": -0.5}, r"momentum must lie in \[0, 1\), got -0.5"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_before_a_change(step, options, words):
    param = torch.ones(2)
    with pytest.raises(BadArgument, match=words):
        step([param], [torch.ones(2)], [{}], **{"lr": 0.1, **options})
    assert param.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("step", [sgd_step, sgd_step_foreach])
def test_a_gradient_that_would_broadcast_is_refused_before_a_change(step):
    params = [torch.ones(2), torch.ones(4, 3)]
    with pytest.raises(BadArgument, match=r"gradient 1 must have the shape \(4, 3\) of its parameter, got \(3,\)"):
        step(params, [torch.ones(2), torch.ones(3)], [{}, {}], lr=0.1)
    assert params[0].tolist() == [1.0, 1.0]
