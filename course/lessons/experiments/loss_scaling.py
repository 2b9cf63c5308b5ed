"""What does a loss scale buy where the loss is an average over very many examples?

    masters --to fp16--> weights --fp16 forward--> loss / parts --times scale, fp16 backward--> gradients
    gradients --to fp32, unscale, times parts--> SGD on the masters

A step of a large run averages over millions of tokens, in micro-batches of which each worker sees a few. Each of them
divides its loss by the number of all micro-batches, so that the gradients need only be added up. Here one micro-batch
of 64 digits stands for all of them: its gradient, after it was rounded to fp16, is multiplied by their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from course.lessons.data import digits_split
from course.lessons.experiments.half_stand_ins import LossScaler
from course.lessons.experiments.recording import Recording, load, record
from course.lessons.models import mlp

BATCH, STEPS, RATE = 64, 300, 0.3
PARTS = 2**18  # 16.8 million examples in a step
FIRST, INTERVAL = 2.0**44, 20  # too large at first, so that the way down is seen; torch's interval is 2,000
SEEDS = 5
LAST = 50  # steps over which the last losses are averaged


class Scaler(Protocol):
    """What the exercise `LossScaler` asks for."""

    @property
    def factor(self) -> Any: ...
    def scale(self, loss: Tensor) -> Tensor: ...
    def unscale_(self, grads: Sequence[Tensor | None]) -> None: ...
    def step(self, step: Callable[[], object]) -> bool: ...
    def update(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training, step by step: the loss in nats, log2 of the scale, and whether the step was taken."""

    losses: list[float]
    scales: list[float]
    taken: list[bool]

    @property
    def last(self) -> float:
        """The mean loss of the last steps."""
        return sum(self.losses[-LAST:]) / LAST


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The mean loss of the last steps, for each seed: by what was computed in, with a scaler or without.

    alone  fp16 without a scale, with the loss of one micro-batch alone
    """

    fp32: list[float]
    fp16: list[float]
    scaled: list[float]
    alone: list[float]


def train(
    dtype: torch.dtype, scaler: Scaler | None = None, *, parts: int = PARTS, steps: int = STEPS, seed: int = 0
) -> Run:
    """Digits by an MLP of 64, 64, 64 and 10, whose weights, activations and gradients are in `dtype`.

    scaler  a new one; its scales are powers of two. Without one the loss is not scaled.
    parts   how many micro-batches there are in a step
    The masters are in fp32, and so is the loss, from logits in `dtype`.
    """
    rng, data = torch.Generator().manual_seed(seed), digits_split()[0]
    model = mlp((64, 64, 64, 10), rng)
    masters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(masters.values(), lr=RATE)
    run = Run(losses=[], scales=[], taken=[])
    for _ in range(steps):
        index = torch.randint(len(data.labels), (BATCH,), generator=rng)
        weights = {name: each.detach().to(dtype).requires_grad_() for name, each in masters.items()}
        logits = functional_call(model, weights, (data.images[index].to(dtype),))
        loss = F.cross_entropy(logits.float(), data.labels[index])
        part = loss / parts
        torch.autograd.backward(part if scaler is None else scaler.scale(part))
        for name, master in masters.items():
            gradient = weights[name].grad
            master.grad = None if gradient is None else gradient.float()
        run.losses.append(float(loss.detach()))
        run.scales.append(0.0 if scaler is None else float(torch.tensor(float(scaler.factor)).log2()))
        run.taken.append(_step(optimizer, masters, scaler, parts))
    return run


def _step(optimizer: torch.optim.Optimizer, masters: dict[str, Any], scaler: Scaler | None, parts: int) -> bool:
    """Unscales, adds up the micro-batches (as many times the same gradient), and steps; whether it did."""
    grads = [each.grad for each in masters.values()]
    if scaler is not None:
        scaler.unscale_(grads)
    for gradient in grads:
        gradient.mul_(parts)
    if scaler is None:
        optimizer.step()
        return True
    taken = scaler.step(optimizer.step)
    scaler.update()
    return taken


def compare(scaler: Callable[..., Scaler], *, steps: int = STEPS, seed: int = 0) -> dict[str, Run]:
    """fp32, fp16, and fp16 with a scaler of this class."""
    return {
        "fp32": train(torch.float32, steps=steps, seed=seed),
        "fp16": train(torch.float16, steps=steps, seed=seed),
        "fp16, scaled": train(
            torch.float16, scaler(init_scale=FIRST, growth_interval=INTERVAL), steps=steps, seed=seed
        ),
    }


def measure(seeds: int = SEEDS) -> Losses:
    """Each of them on several seeds, with torch's scaler."""
    runs = [compare(LossScaler, seed=seed) for seed in range(seeds)]
    alone = [train(torch.float16, parts=1, seed=seed).last for seed in range(seeds)]
    by_name = {name: [each[name].last for each in runs] for name in runs[0]}
    return Losses(fp32=by_name["fp32"], fp16=by_name["fp16"], scaled=by_name["fp16, scaled"], alone=alone)


def recorded() -> Recording[Losses]:
    """What `python -m course.lessons.experiments.loss_scaling` found."""
    return load("loss_scaling", Losses)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(record("loss_scaling", measure))
