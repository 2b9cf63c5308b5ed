"""The small GPT with bits and a group of their own for each matrix: what plans are made from, and what they leave.

text --forward, backward--> (w, x, g) of each matrix --a function of students'--> plans --rounded--> loss on hidden text
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from course.lessons import grammar
from course.lessons.experiments.assembled_quantization import matrices, weights, with_weights
from course.lessons.experiments.small_gpt import judged, loss_on, small_gpt

Plan: TypeAlias = tuple[int, int]  # bits, and how many weights of a row share a step: 0 for all
Layer: TypeAlias = tuple[Tensor, Tensor, Tensor]  # w (m, n), x (k, n) and g (k, m)
Chooser: TypeAlias = Callable[[list[Layer], int], Sequence[tuple[int, int]]]
STEP_BITS = 16
WINDOWS = 32


def lost(w: Tensor, plan: Plan, more: int = 0) -> Tensor:
    """W - Q, float64 (m, n), where Q are the nearest multiples of steps; the last code is `more` than there is."""
    (bits, group), errors = plan, []
    for part in torch.split(w.double(), group or w.shape[1], dim=1):
        largest = part.abs().amax(dim=1, keepdim=True)
        step = torch.where(largest > 0, largest / (2 ** (bits - 1) - 1 + more), 1.0)
        errors.append(part - (part / step).round() * step)
    return torch.cat(errors, dim=1)


def price(w: Tensor, plan: Plan) -> int:
    """Bits of codes and steps."""
    (m, n), (bits, group) = w.shape, plan
    return m * (n * bits + STEP_BITS * math.ceil(n / (group or n)))


def calibration(seed: int, tokens: int) -> list[Layer]:
    """Of so many tokens of a northern text: what goes into each matrix, and the gradients of its outputs.

    The gradients are those of the sum of all losses, so that each token's is its own but for later tokens that see it.
    All are float32.
    """
    model, inputs, gradients = small_gpt(), {}, {}
    for name, layer in matrices(model).items():

        def see(_: object, given: tuple[Tensor], made: Tensor, name: str = name) -> None:
            inputs[name] = given[0].detach().flatten(0, -2)
            made.register_hook(functools.partial(keep, name))  # type: ignore[no-untyped-call]

        def keep(name: str, gradient: Tensor) -> None:
            gradients[name] = gradient.flatten(0, -2)

        layer.register_forward_hook(see)
    ids, targets = judged(grammar.NORTH, WINDOWS, seed)
    summed = F.cross_entropy(model(ids).flatten(0, -2), targets.flatten(), reduction="sum")
    summed.backward()  # type: ignore[no-untyped-call]
    some = torch.randperm(targets.numel(), generator=torch.Generator().manual_seed(seed))[:tokens]
    return [(w, inputs[name][some], gradients[name][some]) for name, w in weights().items()]


def hidden(seed: int) -> tuple[Tensor, Tensor]:
    """Northern text that no plan was made from: inputs and targets, int64 (windows, context)."""
    return judged(grammar.NORTH, WINDOWS, seed)


def loss_with(plans: Sequence[Plan], text: tuple[Tensor, Tensor]) -> float:
    """Nats per character of the small GPT whose matrices are rounded by these plans."""
    pairs = zip(weights().items(), plans, strict=True)
    with torch.no_grad():
        return loss_on(with_weights({name: (w.double() - lost(w, plan)).float() for (name, w), plan in pairs}), text)


def compared(choose: Chooser, bits: Sequence[float] = (3.25, 3.5, 4.0, 4.5)) -> Iterator[str]:
    """What plans leave of the small GPT at so many bits a weight; without gradients, all outputs count alike."""
    layers, text = calibration(7, 1_000), judged(grammar.NORTH)
    rng = torch.Generator().manual_seed(9)
    alike = [(w, x, torch.randn(g.shape, generator=rng)) for w, x, g in layers]
    total, float32 = sum(w.numel() for w, _, _ in layers), loss_on(small_gpt(), text)
    yield f"nats above the {float32:.4f} of float32"
    yield f"{'bits a weight':>13}  {'one plan for all':>16}  {'no gradients':>12}  {'yours':>7}"
    for each in bits:
        budget = int(each * total)
        same = min(
            loss_with([plan] * len(layers), text)
            for plan in ((bits, group) for bits in (2, 3, 4, 6, 8) for group in (8, 0))
            if sum(price(w, plan) for w, _, _ in layers) <= budget
        )
        plans = [
            [
                (bits, 0 if group == w.shape[1] else group)
                for (bits, group), (w, _, _) in zip(found, layers, strict=True)
            ]
            for found in (choose(alike, budget), choose(layers, budget))
        ]
        found = [same, *(loss_with(plan, text) for plan in plans)]
        yield f"{each:13.2f}  " + "  ".join(
            f"{loss - float32:{w}.4f}" for loss, w in zip(found, (16, 12, 7), strict=True)
        )
