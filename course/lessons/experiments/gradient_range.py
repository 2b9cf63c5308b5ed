"""How small are gradients, and which of them does a format of few bits still hold?

tiny GPT --one backward pass in fp32--> |g| of weights and of activations --times scale--> lost, subnormal, overflowing
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from course.lessons.experiments.formats import dtypes
from course.lessons.experiments.problems import gpt_problem

FORMATS = dtypes("fp16", "bf16", "e5m2")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where a format loses numbers, by their magnitude.

    lost       up to here they are rounded to 0: half the smallest subnormal number (the tie goes to 0)
    normal     from here on they have all bits
    overflow   from here on they are rounded to inf: the largest number and half a gap
    """

    lost: float
    normal: float
    overflow: float


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Which shares of the gradients that are not 0 are rounded to 0, keep fewer bits, become inf."""

    lost: float
    subnormal: float
    overflow: float


def limits(name: str) -> Limits:
    """Of one of FORMATS, as formats with inf round: e5m2 has one too, though casts to it may saturate elsewhere."""
    found = torch.finfo(FORMATS[name])
    digits = -torch.tensor(found.eps, dtype=torch.float64).log2()  # of the fraction
    top = 2.0 ** torch.tensor(found.max, dtype=torch.float64).log2().floor()
    return Limits(
        lost=found.smallest_normal * found.eps / 2,
        normal=found.smallest_normal,
        overflow=found.max + float(top * 2.0 ** (-digits - 1)),
    )


@cache
def magnitudes(kind: str) -> Tensor:
    """The gradients of "weights" or "activations" that are not 0, without sign, sorted: (n,), float64.

    The tiny GPT before training, and its mean loss over 8 windows of 64 characters. Activations are what embeddings,
    norms and linear layers give on.
    """
    return dict(zip(("weights", "activations"), _backward(), strict=True))[kind]


@cache
def _backward() -> tuple[Tensor, Tensor]:
    problem, rng = gpt_problem(), torch.Generator().manual_seed(0)
    model, seen = problem.model(rng), []

    def keep(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    for module in model.modules():
        if isinstance(module, (torch.nn.Embedding, torch.nn.LayerNorm, torch.nn.Linear)):
            module.register_forward_hook(keep)
    tokens, targets = problem.batch(rng)
    torch.autograd.backward(F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()))
    return _sizes(list(model.parameters())), _sizes(seen)


def _sizes(tensors: list[Tensor]) -> Tensor:
    every = torch.cat([each.grad.flatten() for each in tensors if each.grad is not None]).double().abs()
    return every[every > 0].sort().values


def shares(kind: str, scale: float, name: str = "fp16") -> Shares:
    """What happens to the gradients of this kind, times a scale, in a format."""
    sizes, where = magnitudes(kind) * scale, limits(name)
    edges = torch.tensor([where.lost, where.normal, where.overflow], dtype=torch.float64)
    lost, small, fitting = (int((sizes <= edges[0]).sum()), *(int((sizes < edge).sum()) for edge in edges[1:]))
    return Shares(lost=lost / len(sizes), subnormal=(small - lost) / len(sizes), overflow=1 - fitting / len(sizes))
