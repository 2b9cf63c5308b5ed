"""The reference of `adaptive_step` against torch.optim."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.reference.optimizers.adaptive_step import ACCUMULATORS, adaptive_step

TORCH = {
    "adagrad": lambda params, lr, decay, eps: torch.optim.Adagrad(params, lr=lr, eps=eps),
    "rmsprop": lambda params, lr, decay, eps: torch.optim.RMSprop(params, lr=lr, alpha=decay, eps=eps),
    "adadelta": lambda params, lr, decay, eps: torch.optim.Adadelta(params, lr=lr, rho=decay, eps=eps),
}
rules = pytest.mark.parametrize("rule", list(TORCH))


def grads_of_many_sizes(shape, dtype=torch.float64):
    """One gradient for each of 200 steps; their sizes lie between 1e-4 and 1."""
    rng = torch.Generator().manual_seed(3)
    sizes = 10 ** (-4 * torch.rand(shape, generator=rng, dtype=dtype))
    return [sizes * torch.randn(shape, generator=rng, dtype=dtype) for _ in range(200)]


@rules
@pytest.mark.parametrize("eps", [1e-8, 1e-3])
def test_200_steps_equal_those_of_torch(rule, eps):
    ours, theirs = torch.ones(5, 3, dtype=torch.float64), torch.nn.Parameter(torch.ones(5, 3, dtype=torch.float64))
    optimizer, state = TORCH[rule]([theirs], 0.05, 0.8, eps), {}
    for grad in grads_of_many_sizes((5, 3)):
        adaptive_step(rule, ours, grad, state, lr=0.05, decay=0.8, eps=eps)
        theirs.grad = grad.clone()
        optimizer.step()
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-12)


@rules
def test_the_state_holds_what_torch_holds(rule):
    param, theirs, state = torch.ones(4), torch.nn.Parameter(torch.ones(4)), {}
    optimizer = TORCH[rule]([theirs], 0.1, 0.9, 1e-6)
    for grad in grads_of_many_sizes((4,), torch.float32):
        adaptive_step(rule, param, grad, state, lr=0.1, decay=0.9, eps=1e-6)
        theirs.grad = grad.clone()
        optimizer.step()
    wanted = [each for name, each in optimizer.state[theirs].items() if name != "step"]
    torch.testing.assert_close(list(state.values()), wanted)


@rules
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_state_is_like_the_parameter(rule, dtype):
    param, state = torch.ones(2, 3, dtype=dtype), {}
    adaptive_step(rule, param, torch.ones_like(param), state, lr=0.1)
    assert [(each.shape, each.dtype) for each in state.values()] == [(param.shape, dtype)] * len(ACCUMULATORS[rule])


@rules
def test_a_step_is_in_place_and_leaves_the_gradient(rule):
    param, grad = torch.ones(3), torch.tensor([1.0, -2.0, 0.0])
    memory, before = param.view(-1), grad.clone()
    adaptive_step(rule, param, grad, {}, lr=0.1)
    assert bool((memory[:2] != 1).all())
    assert float(memory[2]) == 1.0
    assert torch.equal(grad, before)


@rules
def test_a_parameter_that_requires_grad_is_stepped_outside_of_autograd(rule):
    param, state = torch.ones(3, requires_grad=True), {}
    adaptive_step(rule, param, torch.ones(3), state, lr=0.1)
    assert param.is_leaf
    assert not any(each.requires_grad for each in state.values())


def test_the_first_step_of_adadelta_is_of_the_size_of_the_root_of_eps():
    param = torch.zeros(1, dtype=torch.float64)
    adaptive_step("adadelta", param, torch.ones(1, dtype=torch.float64), {}, lr=1.0, decay=0.9, eps=1e-6)
    assert float(param) == pytest.approx(-((1e-6 / (0.1 + 1e-6)) ** 0.5))


def test_runs_on_another_device_without_moving_anything():
    param, state = torch.ones(3, device="meta"), {}
    adaptive_step("adadelta", param, torch.ones(3, device="meta"), state, lr=0.1)
    assert {each.device.type for each in state.values()} == {"meta"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rule": "adam"}, "rule must be one of adagrad, rmsprop, adadelta, got 'adam'"),
        ({"lr": -0.1}, "lr must be at least 0, got -0.1"),
        ({"eps": -1.0}, "eps must be at least 0, got -1.0"),
        ({"decay": 1.0}, r"decay must lie in \[0, 1\), got 1.0"),
        ({"grad": torch.ones(2)}, r"must have the shape \(3,\)"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_changes(wrong, message):
    param, state = torch.ones(3), {}
    usual = {"rule": "rmsprop", "grad": torch.ones(3), "lr": 0.1}
    with pytest.raises(BadArgument, match=message):
        adaptive_step(param=param, state=state, **{**usual, **wrong})
    assert torch.equal(param, torch.ones(3))
    assert not state
