"""What stands in for answers of lesson 07, and how the small GPT is tuned to another dialect.

model --inject--> adapters beside its linear layers --tune: AdamW, warm-up, falling rate--> losses
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course.lessons import grammar
from course.lessons.experiments.small_gpt import CONTEXT
from course.lessons.models import next_token_loss

ATTENTION, MLP = r"blocks\.\d+\.attention\.\w+", r"blocks\.\d+\.mlp\.\w+"
BOTH = rf"{ATTENTION}|{MLP}"
QUERIES_AND_VALUES = r"blocks\.\d+\.attention\.[qv]_proj"
CHARACTERS = 300_000  # of a dialect to tune on
BATCH, WARMUP = 16, 10

Wrap = Callable[[nn.Linear], nn.Module]


class Beside(nn.Module):
    """A linear layer with an adapter beside it (Hu et al., arXiv 2106.09685, section 4.1), by einsum."""

    def __init__(self, base: nn.Linear, r: int, alpha: float, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.base, self.scale, self.merged = nn.Module.requires_grad_(base, False), alpha / r, False
        rows = base.weight.new_empty(r, base.in_features)
        self.A = nn.Parameter(rows.normal_(0, base.in_features**-0.5, generator=rng))
        self.B = nn.Parameter(rows.new_zeros(base.out_features, r))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        low = torch.einsum("...n,rn->...r", x, self.A)
        y: Tensor = self.base(x).add(torch.einsum("...r,mr->...m", low, self.B), alpha=self.scale)
        return y


def inject(model: nn.Module, pattern: str, wrap: Wrap) -> list[str]:
    """Puts `wrap(linear)` in the place of every linear layer that the pattern names; all else is frozen."""
    model.requires_grad_(requires_grad=False)
    found = {name: each for name, each in model.named_modules() if re.fullmatch(pattern, name)}
    linears = {name: each for name, each in found.items() if isinstance(each, nn.Linear)}
    for path, linear in linears.items():
        model.set_submodule(path, wrap(linear))
    return list(linears)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained."""
    return [each for each in model.parameters() if each.requires_grad]


def respelt(dialect: grammar.Dialect, name: str, spell: Callable[[str], str]) -> grammar.Dialect:
    """The same dialect with every word spelt otherwise; the rules and their chances stay.

    spell  a word of small letters to another one; unlike words must stay unlike
    """

    def symbol(old: str) -> str:
        return f" {spell(old[1:])}" if old.startswith(" ") else old

    rules = {
        left: tuple(rule._replace(symbols=tuple(map(symbol, rule.symbols))) for rule in rules)
        for left, rules in dialect.rules.items()
    }
    return dataclasses.replace(dialect, name=name, rules=rules)


MIRROR = respelt(grammar.NORTH, "mirror", lambda word: word[::-1])
SHIFTED = respelt(grammar.NORTH, "shifted", lambda word: "".join(chr((ord(c) - 96) % 26 + 97) for c in word))


def batches(dialect: grammar.Dialect, steps: int, count: int = BATCH, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows to tune on, always the same ones for a seed."""
    rng = torch.Generator().manual_seed(seed)
    tokens = grammar.encode(grammar.text(dialect, CHARACTERS, rng))
    for _ in range(steps):
        yield grammar.batch(tokens, count, CONTEXT, rng)


def tune(
    model: nn.Module, windows: Sequence[tuple[Tensor, Tensor]], *, rate: float, params: Sequence[Tensor] | None = None
) -> Iterator[int]:
    """AdamW on what is trainable, a step for each window; the rate rises for some steps and then falls to nothing.

    Yields how many steps have been made, from 0 on, so that the caller may look at the model in between.
    """
    chosen = trainable(model) if params is None else list(params)
    optimizer: Any = torch.optim.AdamW(chosen, lr=rate, weight_decay=0.0)
    steps = len(windows)
    yield 0
    for step, (inputs, targets) in enumerate(windows):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / WARMUP, (steps - step) / max(1, steps - WARMUP))
        torch.autograd.backward(next_token_loss(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        yield step + 1
