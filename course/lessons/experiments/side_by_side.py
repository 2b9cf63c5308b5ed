"""Many small networks that read digits, trained at once: one tensor operation moves all of them.

A network is 64 pixels -> 32 relu units -> 10 logits: 2,410 numbers. Each parameter has two dimensions in front:
`settings` (a learning rate, say) and `seeds` (where the network began, and which examples it drew).

w1 (settings, seeds, 64, 32)   b1 (settings, seeds, 1, 32)   w2 (settings, seeds, 32, 10)   b2 (settings, seeds, 1, 10)

The networks of one seed begin alike and draw the same examples, so that settings are compared on equal luck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from course.errors import BadArgument
from course.lessons.data import Digits

PIXELS, HIDDEN, CLASSES = 64, 32, 10
BETAS, EPS = (0.9, 0.999), 1e-8  # of Adam, as in torch


def fresh(settings: int, seeds: int) -> list[Tensor]:
    """New networks, drawn as `nn.Linear` draws: uniform within 1/sqrt(inputs) of zero; seed s by generator s."""
    drawn = [_one(torch.Generator().manual_seed(seed)) for seed in range(seeds)]
    stacked = [torch.stack(each).repeat(settings, 1, 1, 1) for each in zip(*drawn, strict=True)]
    return [each.requires_grad_() for each in stacked]


def _one(generator: torch.Generator) -> list[Tensor]:
    shapes = [(PIXELS, HIDDEN, PIXELS), (1, HIDDEN, PIXELS), (HIDDEN, CLASSES, HIDDEN), (1, CLASSES, HIDDEN)]
    return [(2 * torch.rand(rows, columns, generator=generator) - 1) * n**-0.5 for rows, columns, n in shapes]


def losses(params: list[Tensor], images: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of each network in nats, (settings, seeds).

    images  (seeds, n, 64), or (n, 64) where all look at the same ones
    labels  (seeds, n) or (n,)
    """
    w1, b1, w2, b2 = params
    logits = (images @ w1 + b1).relu() @ w2 + b2  # (settings, seeds, n, 10)
    wanted = labels.expand(logits.shape[:-1]).flatten()
    return F.cross_entropy(logits.flatten(0, 2), wanted, reduction="none").view(logits.shape[:-1]).mean(-1)


def batches(data: Digits, size: int, seeds: int) -> Iterator[Digits]:
    """Without end: `size` examples for each seed, drawn with replacement; images (seeds, size, 64)."""
    generator = torch.Generator().manual_seed(size)
    while True:
        index = torch.randint(len(data.labels), (seeds, size), generator=generator)
        yield Digits(data.images[index], data.labels[index])


Rule = Callable[[Tensor, Tensor, dict[str, Tensor], int, Tensor, Tensor], None]


def sgd(param: Tensor, grad: Tensor, state: dict[str, Tensor], step: int, lr: Tensor, decay: Tensor) -> None:
    """Plain stochastic gradient descent, in place; `decay` pulls as in AdamW."""
    param.mul_(1 - lr * decay)
    param.sub_(lr * grad)


def adamw(param: Tensor, grad: Tensor, state: dict[str, Tensor], step: int, lr: Tensor, decay: Tensor) -> None:
    """AdamW (arXiv 1711.05101), in place; `step` counts from 1. With `decay` 0 it is Adam (arXiv 1412.6980)."""
    m = state.setdefault("m", torch.zeros_like(grad))
    v = state.setdefault("v", torch.zeros_like(grad))
    param.mul_(1 - lr * decay)
    m.lerp_(grad, 1 - BETAS[0])  # m = beta1 m + (1 - beta1) g
    v.lerp_(grad * grad, 1 - BETAS[1])  # v = beta2 v + (1 - beta2) g^2
    root = (v / (1 - BETAS[1] ** step)).sqrt_()
    param.sub_(lr * m / (1 - BETAS[0] ** step) / (root + EPS))


RULES: dict[str, Rule] = {"sgd": sgd, "adam": adamw}


def descend(
    params: list[Tensor], examples: Iterator[Digits], lr: Tensor, *, rule: str = "sgd", decay: Tensor | None = None
) -> Iterator[int]:
    """Takes a step with each batch of `examples`, in place, and yields how many have been taken.

    lr, decay  (settings,): the rate and the decoupled weight decay of each setting
    Raises BadArgument for a rule that is not one of RULES.
    """
    if rule not in RULES:
        raise BadArgument(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    rates = lr.view(-1, 1, 1, 1)
    decays = torch.zeros(1) if decay is None else decay.view(-1, 1, 1, 1)
    states: list[dict[str, Tensor]] = [{} for _ in params]
    for step, (images, labels) in enumerate(examples, 1):
        grads = torch.autograd.grad(losses(params, images, labels).sum(), params)  # no network touches another
        with torch.no_grad():
            for param, grad, state in zip(params, grads, states, strict=True):
                RULES[rule](param, grad, state, step, rates, decays)
        yield step
