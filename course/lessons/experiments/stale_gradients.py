"""Asynchronous SGD: what does a step cost whose gradient was computed from weights of some steps ago?

staleness k, rate --gradient at w(t - k), step from w(t)--> the loss of the digits after 300 steps

With N workers that never wait for one another a gradient is about N - 1 steps old when it is used. Every setting sees
the same batches, and begins with the same networks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course.lessons.data import digits_split
from course.lessons.experiments.side_by_side import batches, fresh, losses

STALENESS = (0, 1, 3, 7, 15, 31)
RATES = tuple(2.0 ** (power / 2) for power in range(-16, 4))  # 0.004 to 2.8
STEPS, BATCH, SEEDS = 300, 32, 3


@dataclass(frozen=True, kw_only=True)
class Stale:
    """The loss in nats after the last step, mean over seeds: losses[staleness][rate]; infinite where it overflowed."""

    rates: Sequence[float]
    losses: dict[int, list[float]]

    def best(self, staleness: int) -> tuple[float, float]:
        """The rate with the least loss, and that loss."""
        return min(zip(self.rates, self.losses[staleness], strict=True), key=lambda pair: pair[1])

    def at(self, staleness: int, rate: float) -> float:
        """The loss with a rate of RATES."""
        return self.losses[staleness][list(self.rates).index(rate)]


def measure(staleness: Sequence[int] = STALENESS, rates: Sequence[float] = RATES, *, steps: int = STEPS) -> Stale:
    """Trains networks with all of these rates, for each staleness."""
    return Stale(rates=tuple(rates), losses={each: _losses(each, rates, steps) for each in staleness})


def _losses(staleness: int, rates: Sequence[float], steps: int) -> list[float]:
    data, lr = digits_split()[0], torch.tensor(rates).view(-1, 1, 1, 1)
    params, examples = fresh(len(rates), SEEDS), batches(data, BATCH, SEEDS)
    known: deque[list[Tensor]] = deque(maxlen=staleness + 1)  # the weights of the last steps, oldest first
    for _ in range(steps):
        known.append([each.detach().clone() for each in params])
        old = [each.requires_grad_() for each in known[0]]
        images, labels = next(examples)
        grads = torch.autograd.grad(losses(old, images, labels).sum(), old)
        with torch.no_grad():
            for param, grad in zip(params, grads, strict=True):
                param -= lr * grad
    with torch.no_grad():
        found = losses(params, data.images, data.labels).mean(1)
    return [each if math.isfinite(each) else math.inf for each in found.tolist()]
