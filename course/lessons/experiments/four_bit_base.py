"""Adapters above a base of four bits: what is kept, and whether they still learn (QLoRA, arXiv 2305.14314).

linear layer --nf4_quantize, pack_int4--> Held: bytes and scales; forward and backward make the weight for a moment
small GPT with Held in its blocks, adapters beside them --tuned to the southern dialect--> loss
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.lessons import floor, grammar
from course.lessons.experiments import assembled_quantization as assembled
from course.lessons.experiments.adapters import batches, trainable, tune
from course.lessons.experiments.one_taken_away import NOTHING, layers, made
from course.lessons.experiments.small_gpt import judged, loss_on, small_gpt
from course.lessons.models import GPT

FORM = assembled.FORMATS["NF4, blocks of 64"]
R, ALPHA, RATE, STEPS, BATCH, WINDOWS = 4, 16.0, 5e-3, 50, 8, 64
BASES = ("float32", "NF4", "2 bits, one step for each matrix")

Functions = Mapping[str, Callable[..., Any]]


class Product(torch.autograd.Function):
    """x W', where W is made in forward, forgotten, and made again in backward; W gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Callable[[], Tensor]) -> Tensor:
        """x (..., n) to (..., m)."""
        ctx.weight = weight
        return F.linear(x, weight())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """dx = dy W."""
        (dy,) = gradients
        return torch.einsum("...m,mn->...n", dy, ctx.weight()), None


class Held(nn.Module):
    """A frozen linear layer whose weight is bytes: codes and scales, and no float copy of it."""

    def __init__(self, linear: nn.Linear, parts: Functions) -> None:
        super().__init__()
        self.shape, self.parts = linear.weight.shape, parts
        for name, each in assembled.stored(parts, linear.weight.detach(), FORM).items():
            self.register_buffer(name, each)
        self.register_buffer("bias", linear.bias.detach())

    def weight(self) -> Tensor:
        """Out of its bytes, in float32."""
        kept = {name: each for name, each in self.named_buffers() if name != "bias"}
        return assembled.restored(self.parts, kept, self.shape, FORM)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        apply: Callable[..., Tensor] = Product.apply
        y = apply(x, self.weight)
        return y + self.get_buffer("bias")


class Above(nn.Module):
    """Any frozen layer, and an adapter beside it."""

    def __init__(self, base: nn.Module, shape: torch.Size, rng: torch.Generator) -> None:
        super().__init__()
        m, n = shape
        self.base = base
        self.down = nn.Parameter(torch.empty(n, R).normal_(0, n**-0.5, generator=rng))
        self.up = nn.Parameter(torch.zeros(R, m))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        y: Tensor = self.base(x) + x @ self.down @ self.up * (ALPHA / R)
        return y


def adapted(parts: Functions, base: str) -> GPT:
    """The small GPT with its blocks' matrices in this form, frozen, and a fresh adapter beside each."""
    model, rng = small_gpt(), torch.Generator().manual_seed(0)
    if base == BASES[2]:
        plain = {name: made(parts, NOTHING, 2, layer) for name, layer in layers(1).items()}
        model = assembled.with_weights(plain)
    model.requires_grad_(requires_grad=False)
    for name, linear in assembled.matrices(model).items():
        held = Held(linear, parts) if base == "NF4" else linear
        model.blocks.set_submodule(name, Above(held, linear.weight.shape, rng))
    return model


def base_bytes(base: str) -> float:
    """Of the blocks' matrices in memory, biases left out; at 2 bits as they could be packed, without the steps."""
    numbers = sum(each.numel() for each in assembled.weights().values())
    return numbers * {"float32": 4.0, "NF4": 0.5 + 2 / 64, BASES[2]: 0.25}[base]


def tuned(parts: Functions, steps: int = STEPS) -> Iterator[str]:
    """Adapters trained on each base; a line for each."""
    windows = judged(grammar.SOUTH, WINDOWS)
    text = list(batches(grammar.SOUTH, steps, BATCH))
    least = floor.perfect_loss(grammar.SOUTH, windows[1])
    yield f"{'base':32}  {'kB':>5}  {'kB trained':>10}  {'before':>6}  {'after':>6}   (floor {least:.3f})"
    for base in BASES:
        model = adapted(parts, base)
        before = loss_on(model, windows)
        for _ in tune(model, text, rate=RATE):
            pass
        trained = sum(each.nbytes for each in trainable(model)) / 1e3
        after = loss_on(model, windows)
        yield f"{base:32}  {base_bytes(base) / 1e3:5.0f}  {trained:10.0f}  {before:6.3f}  {after:6.3f}"
