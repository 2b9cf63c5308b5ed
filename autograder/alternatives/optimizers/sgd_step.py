"""Other right ways to write `sgd_step`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Alternative


def _refuse(lr: float, momentum: float, weight_decay: float, params: list[Tensor], grads: list[Tensor]) -> None:
    if lr < 0 or weight_decay < 0 or not 0 <= momentum < 1:
        raise ValueError(f"lr {lr}, momentum {momentum} or weight_decay {weight_decay} is out of range")
    if [p.shape for p in params] != [g.shape for g in grads]:
        raise ValueError("gradients must have the shapes of their parameters")


def buffers_that_start_as_zeros(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """mu 0 + g is the first gradient, so zeros are as good as a copy; all in place, the options as factors."""
    _refuse(lr, momentum, weight_decay, params, grads)
    for i in range(len(params)):
        g = grads[i].add(params[i], alpha=weight_decay)
        if momentum != 0:
            if not state[i]:
                state[i]["velocity"] = torch.zeros_like(params[i])
            b = state[i]["velocity"]
            b *= momentum
            b += g
            g = g + momentum * b if nesterov else b
        params[i] -= lr * g


def new_buffers_each_time(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """Formulas that make new tensors, stored again under their key; the parameter is copied into."""
    _refuse(lr, momentum, weight_decay, params, grads)
    for p, g, kept in zip(params, grads, state, strict=True):
        d = g + weight_decay * p
        if momentum > 0:
            kept["b"] = d.clone() if kept.get("b") is None else momentum * kept["b"] + d
            d = d + momentum * kept["b"] if nesterov else kept["b"]
        p.copy_(p - lr * d)


def in_float64(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """Computes with more digits, keeps the parameter's dtype, and counts steps in the state."""
    _refuse(lr, momentum, weight_decay, params, grads)
    for p, g, kept in zip(params, grads, state, strict=True):
        d = g.double() + weight_decay * p.double()
        if momentum:
            b = d if kept.setdefault("step", 0) == 0 else momentum * kept["buffer"].double() + d
            kept["step"] += 1
            kept["buffer"] = b.to(p.dtype)
            d = d + momentum * b if nesterov else b
        p.data = (p.double() - lr * d).to(p.dtype)


def weights_of_two_terms(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """The decay factor of the parameter is pulled out, and Nesterov's direction is spelled mu^2 b_old + (1 + mu) g."""
    _refuse(lr, momentum, weight_decay, params, grads)
    for p, grad, kept in zip(params, grads, state, strict=True):
        if not momentum:
            p.mul_(1 - lr * weight_decay).sub_(grad, alpha=lr)
            continue
        g = torch.add(grad, p, alpha=weight_decay)
        old = kept["b"].clone() if kept else torch.zeros_like(p)
        kept["b"] = torch.addcmul(g, old, torch.full_like(old, momentum))
        p.sub_((momentum**2 * old + (1 + momentum) * g) if nesterov else kept["b"], alpha=lr)


ALTERNATIVES = (
    Alternative(name="buffers_that_start_as_zeros", answer=buffers_that_start_as_zeros),
    Alternative(name="new_buffers_each_time", answer=new_buffers_each_time),
    Alternative(name="in_float64", answer=in_float64),
    Alternative(name="weights_of_two_terms", answer=weights_of_two_terms),
)
