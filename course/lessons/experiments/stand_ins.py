"""torch's own parts under the names and in the forms of lesson 02's exercises, for answers that are not there yet.

A step is a function of parameters, gradients and state. An optimizer of torch wants parameters of its own; those made
here share their memory with the caller's, and stand in the state of the first parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import compress
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, SequentialLR

from course.lessons.experiments.assembled import Parts, having
from course.lessons.experiments.problems import Problem

State = list[dict[str, Any]]


def adamw_step(params: list[Tensor], grads: list[Tensor], state: State, *, lr: float) -> None:
    """A step of torch.optim.AdamW."""
    _step(lambda own: AdamW(own, lr), params, grads, state, lr)


def muon_step(params: list[Tensor], grads: list[Tensor], state: State, *, lr: float) -> None:
    """A step of torch.optim.Muon, with Moonshot's scale. It orthogonalizes in bfloat16."""
    _step(lambda own: Muon(own, lr, adjust_lr_fn="match_rms_adamw"), params, grads, state, lr)


def _step(
    make: Callable[[list[Tensor]], Optimizer], params: list[Tensor], grads: list[Tensor], state: State, lr: float
) -> None:
    if not state[0]:
        own: list[Tensor] = [nn.Parameter(p) for p in params]  # in the memory of p
        state[0].update(own=own, optimizer=make(own))
    for parameter, grad in zip(state[0]["own"], grads, strict=True):
        parameter.grad = grad
    optimizer: Optimizer = state[0]["optimizer"]
    optimizer.param_groups[0]["lr"] = lr
    optimizer.step()


Step = Callable[..., None]  # of parameters, gradients, state, and the rate by name


def shared(problem: Problem, muon: Step, adamw: Step) -> Step:
    """A step of one on the hidden matrices of the problem's model, and of the other on the rest."""
    named = problem.model(torch.Generator()).named_parameters()
    hidden = [p.ndim == 2 and problem.hidden(name) for name, p in named]
    rest = [not each for each in hidden]

    def step(params: list[Tensor], grads: list[Tensor], state: State, *, lr: float) -> None:
        for one, chosen in ((muon, hidden), (adamw, rest)):
            one(*(list(compress(each, chosen)) for each in (params, grads, state)), lr=lr)

    return step


def clip_grad_norm_(grads: list[Tensor], max_norm: float) -> Tensor:
    """torch.nn.utils.clip_grad_norm_, which wants parameters that have gradients."""
    return nn.utils.clip_grad_norm_(having(grads), max_norm)


def warmup_cosine(step: int, *, peak: float, warmup: int, total: int) -> float:
    """The rate of one step by torch's schedulers: LambdaLR on the way up, CosineAnnealingLR on the way down."""
    return peak * _shares(warmup, total)[min(step, total)]


@cache
def _shares(warmup: int, total: int) -> list[float]:
    optimizer = SGD([torch.zeros(1)], lr=1.0)
    up, down = LambdaLR(optimizer, lambda step: step / warmup), CosineAnnealingLR(optimizer, total - warmup)
    scheduler, shares = SequentialLR(optimizer, [up, down], [warmup]), []
    for _ in range(total + 1):
        shares.append(float(scheduler.get_last_lr()[0]))
        optimizer.step()
        scheduler.step()
    return shares


PARTS = Parts(
    torchs={each.__name__: each for each in (adamw_step, clip_grad_norm_, warmup_cosine)},
    names=("adamw_step", "clip_grad_norm_", "warmup_cosine", "orthogonalize"),  # Muon's step is made of the last
)
