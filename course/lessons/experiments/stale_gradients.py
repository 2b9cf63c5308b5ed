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
from course.lessons.experiments import recording
from course.lessons.experiments.side_by_side import batches, fresh, losses

NAME = "stale_gradients"
STALENESS = (0, 1, 3, 7, 15, 31)
RATES = tuple(2.0 ** (power / 2) for power in range(-16, 4))  # 0.004 to 2.8
STEPS, BATCH, SEEDS = 300, 32, 3


@dataclass(frozen=True, kw_only=True)
class Stale:
    """The loss in nats after the last step, mean over seeds; None where it overflowed.

    losses    a row for each age of the gradient, a column for each rate
    together  for each age the best loss of as many workers, age + 1, that wait for one another: as many samples in all,
              in fewer steps from larger batches
    """

    staleness: list[int]
    rates: list[float]
    losses: list[list[float | None]]
    together: list[float]

    def best(self, staleness: int) -> tuple[float, float]:
        """The rate with the least loss, and that loss."""
        pairs = zip(self.rates, self.losses[self.staleness.index(staleness)], strict=True)
        return min(((rate, loss) for rate, loss in pairs if loss is not None), key=lambda pair: pair[1])


def measure(staleness: Sequence[int] = STALENESS, rates: Sequence[float] = RATES, *, steps: int = STEPS) -> Stale:
    """Trains networks with all of these rates, for each staleness."""
    losses = [_losses(each, rates, steps) for each in staleness]
    waiting = [_losses(0, rates, steps // (each + 1), BATCH * (each + 1)) for each in staleness]
    together = [min(loss for loss in row if loss is not None) for row in waiting]
    return Stale(staleness=list(staleness), rates=list(rates), losses=losses, together=together)


def _losses(staleness: int, rates: Sequence[float], steps: int, batch: int = BATCH) -> list[float | None]:
    data, lr = digits_split()[0], torch.tensor(rates).view(-1, 1, 1, 1)
    params, examples = fresh(len(rates), SEEDS), batches(data, batch, SEEDS)
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
    return [each if math.isfinite(each) else None for each in found.tolist()]


def recorded() -> recording.Recording[Stale]:
    """What was found when it was recorded: the numbers that the lesson's text repeats."""
    return recording.load(NAME, Stale)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(recording.record(NAME, measure))
