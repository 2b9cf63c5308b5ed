"""torch's own parts under the names and in the forms of lesson 03's exercises, for answers that are not there yet.

Autocast on a CPU goes by the CPU's lists. torch has no master copies and no stochastic rounding: those are two lines
each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from course.lessons.experiments.assembled import Parts, having

MANTISSA = {(5, 10): torch.float16, (8, 7): torch.bfloat16, (5, 2): torch.float8_e5m2}


class _Calls(Optimizer):
    """An optimizer whose step calls what it is handed: torch's scaler wants one."""

    def __init__(self) -> None:
        super().__init__([nn.Parameter(torch.zeros(()))], {})

    def hold(self, grads: Sequence[Tensor]) -> None:
        """Makes these the gradients that the scaler sees and divides."""
        self.param_groups[0]["params"] = having(grads)

    def step(self, closure: Callable[[], Any] | None = None) -> bool:  # type: ignore[override]
        """Calls it, and says that it did."""
        if closure is not None:
            closure()
        return True


class LossScaler:
    """torch.amp.GradScaler."""

    def __init__(self, init_scale: float = 2.0**16, *, growth_interval: int = 2000) -> None:
        self._scaler = torch.amp.GradScaler("cpu", init_scale, growth_interval=growth_interval)
        self._scaler.scale(torch.ones(()))  # it makes its scale at the first call
        self._optimizer = _Calls()

    @property
    def factor(self) -> float:
        """Its scale."""
        return self._scaler.get_scale()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        scaled: Tensor = self._scaler.scale(loss)
        return scaled

    def unscale_(self, grads: Sequence[Tensor | None]) -> None:
        """Divides them in place."""
        self._optimizer.hold([grad for grad in grads if grad is not None])
        self._scaler.unscale_(self._optimizer)

    def step(self, step: Callable[[], object]) -> bool:
        """Calls `step` where all gradients were finite."""
        return bool(self._scaler.step(self._optimizer, step))

    def update(self) -> None:
        """The scale of the next step."""
        self._scaler.update()


class Autocast:
    """torch.autocast on the CPU."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._context = torch.autocast("cpu", dtype)

    def __enter__(self) -> Autocast:
        self._context.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def run(self, op: Callable[..., Tensor], *args: Any) -> Tensor:
        """The operator, cast by torch."""
        return op(*args)


@torch.no_grad()
def master_step(p16: Sequence[Tensor], p32: Sequence[Tensor], g16: Sequence[Tensor], lr: float) -> None:
    """torch's arithmetic in float32, then its cast."""
    for low, master, grad in zip(p16, p32, g16, strict=True):
        low.copy_(master.sub_(lr * grad.float()))


def stochastic_round(x: Tensor, u: Tensor) -> Tensor:
    """To bfloat16: u of a gap is added to the bits of a finite x, and what bfloat16 does not hold is cut off."""
    added = x.view(torch.int32) + (u * 2**16).int()
    return (added & ~0xFFFF).view(torch.float32).bfloat16()


def round_to(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """torch's cast to the dtype that has these bits, and back."""
    return x.to(MANTISSA[exponent_bits, mantissa_bits]).float()


def adamw_direction(
    grads: Sequence[Tensor], state: dict[str, Any], *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> list[Tensor]:
    """What AdamW subtracts at the rate 1, without weight decay: m_hat / (sqrt(v_hat) + eps), float32.

    state  empty before the first call; then both averages and the number of calls
    """
    if not state:
        state.update(t=0, m=[torch.zeros_like(g) for g in grads], v=[torch.zeros_like(g) for g in grads])
    state["t"] += 1
    first, second = (1 - beta ** state["t"] for beta in betas)
    for g, m, v in zip(grads, state["m"], state["v"], strict=True):
        m.lerp_(g, 1 - betas[0])
        v.lerp_(g * g, 1 - betas[1])
    return [m / first / (v.sqrt() / math.sqrt(second) + eps) for m, v in zip(state["m"], state["v"], strict=True)]


_BY_TORCH = (LossScaler, Autocast, master_step, stochastic_round, round_to)
PARTS = Parts(torchs={each.__name__: each for each in _BY_TORCH}, names=[each.__name__ for each in _BY_TORCH])
