"""Other right ways to write `adamw_step`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Alternative

Betas = tuple[float, float]


def _refuse(params: list[Tensor], grads: list[Tensor | None], lr: float, betas: Betas) -> None:
    if lr < 0:
        raise ValueError(f"lr must be at least 0, got {lr}")
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must lie in [0, 1), got {betas}")
    if any(g is not None and g.shape != p.shape for p, g in zip(params, grads, strict=True)):
        raise ValueError("gradients must have the shapes of their parameters")


def formulas_with_a_step_tensor(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[Any],
    *,
    lr: float,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """The paper's lines, each a new tensor; the step is a float32 tensor, and so are the corrections."""
    _refuse(params, grads, lr, betas)
    for p, g, kept in zip(params, grads, state, strict=True):
        if g is None:
            continue
        if not kept:
            kept.update(t=torch.tensor(0.0), mean=torch.zeros_like(p), square=torch.zeros_like(p))
        kept["t"] = kept["t"] + 1
        kept["mean"] = betas[0] * kept["mean"] + (1 - betas[0]) * g
        kept["square"] = betas[1] * kept["square"] + (1 - betas[1]) * g**2
        m_hat = kept["mean"] / (1 - betas[0] ** kept["t"])
        v_hat = kept["square"] / (1 - betas[1] ** kept["t"])
        p -= lr * (m_hat / (v_hat.sqrt() + eps) + weight_decay * p)


def corrections_in_the_rate(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[Any],
    *,
    lr: float,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """The form before section 2.1 of the Adam paper, with eps scaled so that the value is Algorithm 1's; lerp_."""
    _refuse(params, grads, lr, betas)
    for i, g in enumerate(grads):
        if g is not None:
            kept, p = state[i], params[i]
            kept["t"] = kept.get("t", 0) + 1
            m = kept.setdefault("m", torch.zeros_like(p)).lerp_(g, 1 - betas[0])
            v = kept.setdefault("v", torch.zeros_like(p)).lerp_(g.square(), 1 - betas[1])
            scale = (1 - betas[1] ** kept["t"]) ** 0.5
            rate = lr * scale / (1 - betas[0] ** kept["t"])
            p.mul_(1 - lr * weight_decay)
            p.addcdiv_(m, v.sqrt().add_(eps * scale), value=-rate)


def powers_kept_in_float64(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[Any],
    *,
    lr: float,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """The powers of the betas are kept in place of a step count; float64 in between; moments made at first use."""
    _refuse(params, grads, lr, betas)
    beta1, beta2 = betas
    for p, g, kept in zip(params, grads, state, strict=True):
        if g is None:
            continue
        wide = g.double()
        m = beta1 * kept["m"].double() + (1 - beta1) * wide if kept else (1 - beta1) * wide
        v = beta2 * kept["v"].double() + (1 - beta2) * wide**2 if kept else (1 - beta2) * wide**2
        powers = kept.get("powers", (1.0, 1.0))
        kept["powers"] = powers[0] * beta1, powers[1] * beta2
        kept["m"], kept["v"] = m.to(p.dtype), v.to(p.dtype)
        direction = (m / (1 - kept["powers"][0])) / ((v / (1 - kept["powers"][1])).sqrt() + eps)
        p.copy_((1 - lr * weight_decay) * p.double() - lr * direction)


ALTERNATIVES = (
    Alternative(name="formulas_with_a_step_tensor", answer=formulas_with_a_step_tensor),
    Alternative(name="corrections_in_the_rate", answer=corrections_in_the_rate),
    Alternative(name="powers_kept_in_float64", answer=powers_kept_in_float64),
)
