"""Other right ways to write `adaptive_step`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Alternative

State = dict[str, Tensor]


def _refuse(rule: str, lr: float, decay: float) -> None:
    if rule not in ("adagrad", "rmsprop", "adadelta"):
        raise ValueError(f"unknown rule {rule}")
    if lr < 0 or decay < 0 or decay >= 1:
        raise ValueError(f"lr must be at least 0 and decay in [0, 1), got {lr} and {decay}")


def new_tensors_in_the_state(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """Formulas only: every accumulator is a new tensor, and nothing is made before the first step."""
    _refuse(rule, lr, decay)
    old = state.get("v", torch.zeros_like(grad))
    state["v"] = old + grad**2 if rule == "adagrad" else decay * old + (1 - decay) * grad**2
    if rule == "adadelta":
        u = state.get("u", torch.zeros_like(grad))
        d = grad * torch.sqrt((u + eps) / (state["v"] + eps))
        state["u"] = decay * u + (1 - decay) * d**2
    else:
        d = grad / (torch.sqrt(state["v"]) + eps)
    param -= lr * d


def lerp_and_addcdiv(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """A branch for each rule, in place as far as it goes, and a step count that nobody needs."""
    _refuse(rule, lr, decay)
    if not state:
        state["step"] = torch.zeros(())
        state["mean"] = torch.zeros_like(param)
        if rule == "adadelta":
            state["delta"] = torch.zeros_like(param)
    state["step"] += 1
    mean = state["mean"]
    if rule == "adagrad":
        mean.addcmul_(grad, grad)
        param.addcdiv_(grad, mean.sqrt().add_(eps), value=-lr)
        return
    mean.lerp_(grad.square(), 1 - decay)
    if rule == "rmsprop":
        param.addcdiv_(grad, mean.sqrt().add_(eps), value=-lr)
        return
    move = state["delta"].add(eps).sqrt_() * mean.add(eps).rsqrt_() * grad
    state["delta"].lerp_(move.square(), 1 - decay)
    param.add_(move, alpha=-lr)


def float64_inside(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """Computes in float64; what is kept has the dtype of the parameter."""
    _refuse(rule, lr, decay)
    names = ("squares", "moves") if rule == "adadelta" else ("squares",)
    wide = {name: state[name].double() if name in state else torch.zeros_like(param).double() for name in names}
    g = grad.double()
    forget, take = (1.0, 1.0) if rule == "adagrad" else (decay, 1 - decay)
    wide["squares"] = forget * wide["squares"] + take * g * g
    if rule == "adadelta":
        d = ((wide["moves"] + eps) / (wide["squares"] + eps)) ** 0.5 * g
        wide["moves"] = forget * wide["moves"] + take * d * d
    else:
        d = g / (wide["squares"] ** 0.5 + eps)
    param.copy_(param.double() - lr * d)
    state.update({name: each.to(param.dtype) for name, each in wide.items()})


def keeps_roots(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """Keeps roots in place of squares, and a Python number beside them: `hypot` adds up the squares of two roots."""
    _refuse(rule, lr, decay)
    loose: Any = state
    loose["age"] = loose.get("age", 0) + 1
    root = state.setdefault("root", torch.zeros_like(param))
    if rule == "adagrad":
        torch.hypot(root, grad, out=root)
    else:
        torch.hypot(decay**0.5 * root, (1 - decay) ** 0.5 * grad, out=root)
    d = grad / (root + eps)
    if rule == "adadelta":
        moved = state.setdefault("moved", torch.zeros_like(param))
        floor = torch.full_like(param, eps**0.5)
        d = torch.hypot(moved, floor) / torch.hypot(root, floor) * grad
        torch.hypot(decay**0.5 * moved, (1 - decay) ** 0.5 * d, out=moved)
    param[:] = param - lr * d


ALTERNATIVES = (
    Alternative(name="new_tensors_in_the_state", answer=new_tensors_in_the_state),
    Alternative(name="lerp_and_addcdiv", answer=lerp_and_addcdiv),
    Alternative(name="float64_inside", answer=float64_inside),
    Alternative(name="keeps_roots", answer=keeps_roots),
)
