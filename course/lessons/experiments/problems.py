"""Two small problems on which optimizers are compared: digits, and text whose least loss is known.

Problem: model(rng) begins it, batch(rng) feeds it, `judged` says in the end how well it did, `least` how well it could.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course.lessons import floor, grammar
from course.lessons.data import digits_split
from course.lessons.models import GPT, GPTConfig, mlp

Batch = tuple[Tensor, Tensor]  # inputs and targets


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something to train: how it begins, what it is fed, what judges it in the end, and the least loss there is."""

    name: str
    steps: int
    model: Callable[[torch.Generator], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    judged: Batch
    hidden: Callable[[str], bool]  # which matrices are Muon's
    least: float  # nats


def digits_problem(steps: int = 300) -> Problem:
    """64 -> 64 -> 64 -> 10 on batches of 64 digits; judged by the loss on all 1,500 that it is trained on."""
    data, _ = digits_split()

    def batch(rng: torch.Generator) -> Batch:
        index = torch.randint(len(data.labels), (64,), generator=rng)
        return data.images[index], data.labels[index]

    return Problem(
        name="digits MLP",
        steps=steps,
        model=lambda rng: mlp((64, 64, 64, 10), rng),
        batch=batch,
        judged=(data.images, data.labels),
        hidden=lambda name: name != "linear3.weight",
        least=0.0,
    )


def gpt_problem(steps: int = 600) -> Problem:
    """A GPT of two layers, 32 wide, on 8 windows of 64 characters; judged on 128 windows of another text.

    Its least loss is the mean surprisal of those windows under the grammar itself.
    """
    rng, context = torch.Generator().manual_seed(0), 64
    tokens, others = (grammar.encode(grammar.text(grammar.NORTH, size, rng)) for size in (300_000, 30_000))
    judged = grammar.batch(others, 128, context, rng)
    config = GPTConfig(vocabulary=len(grammar.ALPHABET), context=context, width=32, heads=4, layers=2)
    return Problem(
        name="character GPT",
        steps=steps,
        model=lambda rng: GPT(config, rng),
        batch=lambda rng: grammar.batch(tokens, 8, context, rng),
        judged=judged,
        hidden=lambda name: name.startswith("blocks."),
        least=floor.perfect_loss(grammar.NORTH, judged[1]),
    )
