"""What survives at few bits: error of a weight and loss of the small GPT, by scheme, at bits that are all counted.

weight --scheme, at 2 to 8 bits--> bits per weight (steps and codebooks counted), the weight as it comes back
small GPT --each matrix of its blocks--> loss on text that no training saw; GPTQ and rounding on its real inputs

A step, or a value of a codebook, takes 16 bits; a random rotation takes none, because its seed makes it again.
GPTQ and the two factors are exercises, so that who measures hands them in: this module is measured in the course's
repository, and shown everywhere.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from course.lessons import floor, grammar
from course.lessons.experiments import recording
from course.lessons.experiments.small_gpt import judged, loss_on, small_gpt
from course.lessons.models import GPT
from course.lessons.nf4 import NF4

NAME = "four_bits"
BITS, FEW = (2, 3, 4, 5, 6, 8), (1, 2, 3, 4)  # of a code; of a code of one of two factors
STORED = 16  # bits of a step, or of a value of a codebook
GROUP, BLOCK = 32, 64
TRAINED = "blocks.2.mlp.up"
WINDOWS, CALIBRATION = 256, 128  # of 64 characters
DAMP = 0.01
Kept: TypeAlias = tuple[float, Tensor]  # bits per weight, the weight that comes back
Exercises: TypeAlias = Mapping[str, Callable[..., Any]]  # gptq_quantize, two_factor_quantize, by name


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Error |W - Q| / |W| at each number of bits per weight."""

    weights: str
    bits: list[float]
    error: list[float]


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """Its error for each kind of weights, and the small GPT's loss in nats per character."""

    name: str
    curves: list[Curve]
    gpt_bits: list[float]  # per weight of the blocks' matrices
    gpt_loss: list[float]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Squared error of a layer's outputs over their squared size, on real inputs that no Hessian saw, at 3 bits."""

    name: str
    rounded: float
    gptq: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything; `loss` is the small GPT's as it is, `floor` a perfect model's."""

    schemes: list[Scheme]
    layers: list[Layer]
    loss: float
    floor: float


def weights() -> dict[str, Tensor]:
    """Normal numbers, Student's t with 3 degrees of freedom, and a matrix of the small GPT: each (256, 64)."""
    rng = torch.Generator().manual_seed(0)
    normal, *parts = torch.randn(5, 256, 64, generator=rng).unbind()
    heavy = parts[0] / torch.stack(parts[1:]).square().mean(dim=0).sqrt()
    return {
        "Gaussian": normal,
        "heavy tails": heavy,
        "trained": dict(small_gpt().named_parameters())[f"{TRAINED}.weight"].detach(),
    }


def rotation(n: int) -> Tensor:
    """A random orthogonal (n, n), the same for each n."""
    drawn = torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    q: Tensor = torch.linalg.qr(drawn)[0]
    return q.float()


def steps_of(w: Tensor, bits: int, group: int | None) -> Tensor:
    """amax over the last code, for each run of `group` weights of a row (all of them: None); like w."""
    parts = w.reshape(-1, group) if group else w.reshape(1, -1)
    step: Tensor = parts.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return step.expand_as(parts).reshape(w.shape)


def rounded(w: Tensor, bits: int, group: int | None) -> Kept:
    """To the nearest multiple of the step."""
    step = steps_of(w, bits, group)
    return bits + STORED / (group or w.numel()), (w / step).round() * step


def rotated(w: Tensor, bits: int) -> Kept:
    """Rounded in another basis, with a step for each row, and turned back."""
    q = rotation(w.shape[1])
    size, near = rounded(w @ q, bits, w.shape[1])
    return size, near @ q.T


def nf4(w: Tensor) -> Kept:
    """Quantiles of a normal distribution, scaled by each block's largest entry (Dettmers et al., arXiv 2305.14314)."""
    blocks = w.reshape(-1, BLOCK)
    scale = blocks.abs().amax(dim=1, keepdim=True)
    nf4 = torch.tensor(NF4)
    near = nf4[(blocks / scale)[..., None].sub(nf4).abs().argmin(dim=-1)] * scale
    return 4 + STORED / BLOCK, near.reshape(w.shape)


def clustered(w: Tensor, bits: int, rounds: int = 50) -> Kept:
    """One codebook for the matrix, by k-means from the quantiles on."""
    values, _ = w.flatten().sort()
    book = values[((torch.arange(2**bits) + 0.5) / 2**bits * len(values)).long()]
    for _ in range(rounds):
        ends = torch.searchsorted(values, (book[1:] + book[:-1]) / 2).tolist()
        runs = [values[a:b] for a, b in zip([0, *ends], [*ends, len(values)], strict=True)]
        book = torch.stack([run.mean() if len(run) else old for run, old in zip(runs, book, strict=True)])
    near = book[torch.bucketize(w, (book[1:] + book[:-1]) / 2)]
    return bits + STORED * 2**bits / w.numel(), near


def clustered_in_another_basis(w: Tensor, bits: int) -> Kept:
    """One codebook for the rotated matrix."""
    q = rotation(w.shape[1])
    size, near = clustered(w @ q, bits)
    return size, near @ q.T


def schemes(exercises: Exercises) -> dict[str, list[Callable[[Tensor], Kept]]]:
    """By name, the ways at each number of bits."""

    def two_factors(w: Tensor, bits: int) -> Kept:
        q = rotation(w.shape[1])
        codes_u, book_u, codes_v, book_v = exercises["two_factor_quantize"](w, q, bits)
        near = book_u[codes_u.long()] + book_v[codes_v.long()] @ q.T
        return 2 * bits + STORED * 2 * 2**bits / w.numel(), near

    def at(way: Callable[[Tensor, int], Kept], *of: int) -> list[Callable[[Tensor], Kept]]:
        return [lambda w, bits=bits: way(w, bits) for bits in of]  # type: ignore[misc]

    return {
        "per tensor": at(lambda w, bits: rounded(w, bits, None), *BITS),
        "per channel": at(lambda w, bits: rounded(w, bits, w.shape[1]), *BITS),
        f"groups of {GROUP}": at(lambda w, bits: rounded(w, bits, GROUP), *BITS),
        f"NF4, blocks of {BLOCK}": [nf4],
        "rotated, per channel": at(rotated, *BITS),
        "one codebook": at(clustered, *BITS),
        "rotated, one codebook": at(clustered_in_another_basis, *BITS),
        "two factors": at(two_factors, *FEW),
    }


def matrices(model: GPT) -> dict[str, nn.Linear]:
    """What is quantized: the linear layers of the blocks, by name."""
    return {
        name: each for name, each in model.named_modules() if name.startswith("blocks") and isinstance(each, nn.Linear)
    }


@torch.no_grad()
def inputs_of(model: GPT, tokens: Tensor) -> dict[str, Tensor]:
    """The inputs (tokens, n) of each of these layers, by name."""
    seen: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[..., None]:
        return lambda layer, given, result: seen.update({name: given[0].flatten(0, 1)})

    hooks = [each.register_forward_hook(hook(name)) for name, each in matrices(model).items()]
    model(tokens)
    for each in hooks:
        each.remove()
    return seen


@torch.no_grad()
def loss_with(keep: Callable[[str, Tensor], Kept], windows: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Bits per weight of the blocks' matrices, and the small GPT's loss, where keep(name, weight) says what is kept."""
    model = copy.deepcopy(small_gpt())
    bits = count = 0.0
    for name, layer in matrices(model).items():
        size, near = keep(name, layer.weight)
        bits, count = bits + size * near.numel(), count + near.numel()
        layer.weight.copy_(near)
    return bits / count, loss_on(model, windows)


def measure(exercises: Exercises) -> Measured:
    """All schemes on all weights and in the small GPT. About a minute on one core."""
    windows, model = judged(grammar.NORTH, WINDOWS), small_gpt()
    seen = inputs_of(model, judged(grammar.NORTH, CALIBRATION, seed=2_000)[0])
    hessians = {name: x.T @ x for name, x in seen.items()}
    found = []
    for name, ways in schemes(exercises).items():
        curves = [_curve(kind, w, ways) for kind, w in weights().items()]
        pairs = [loss_with(lambda _, w, way=way: way(w), windows) for way in ways]  # type: ignore[misc]
        found.append(_scheme(name, curves, pairs))

    def gptq(bits: int) -> Callable[[str, Tensor], Kept]:
        def keep(name: str, w: Tensor) -> Kept:
            step = steps_of(w, bits, w.shape[1])[:, :1]
            codes = exercises["gptq_quantize"](w, hessians[name], step, bits, DAMP)
            return bits + STORED / w.shape[1], codes * step

        return keep

    found.append(_scheme("GPTQ, per channel", [], [loss_with(gptq(bits), windows) for bits in BITS]))
    unseen = inputs_of(model, windows[0])
    layers = []
    for name, layer in matrices(model).items():
        w = layer.weight.detach()
        errors = [_of_outputs(unseen[name], w, near) for _, near in (rounded(w, 3, w.shape[1]), gptq(3)(name, w))]
        layers.append(Layer(name=name, rounded=errors[0], gptq=errors[1]))
    return Measured(
        schemes=found, layers=layers, loss=loss_on(model, windows), floor=floor.perfect_loss(grammar.NORTH, windows[1])
    )


def _curve(kind: str, w: Tensor, ways: list[Callable[[Tensor], Kept]]) -> Curve:
    kept = [way(w) for way in ways]
    errors = [float((near - w).norm() / w.norm()) for _, near in kept]
    return Curve(weights=kind, bits=[round(size, 4) for size, _ in kept], error=_short(errors))


def _scheme(name: str, curves: list[Curve], pairs: list[tuple[float, float]]) -> Scheme:
    return Scheme(
        name=name,
        curves=curves,
        gpt_bits=[round(bits, 4) for bits, _ in pairs],
        gpt_loss=_short([loss for _, loss in pairs]),
    )


def _of_outputs(x: Tensor, w: Tensor, near: Tensor) -> float:
    return float(f"{float((x @ (w - near).T).square().sum() / (x @ w.T).square().sum()):.5g}")


def _short(values: list[float]) -> list[float]:
    return [float(f"{each:.5g}") for each in values]


def loaded() -> recording.Recording[Measured]:
    """What was recorded."""
    return recording.load(NAME, Measured)


def table(measured: Measured, bits: int = 4) -> str:
    """A line for each scheme, at its most bits per weight below `bits` + 3/4: errors, and perplexity."""
    lines = [f"{'':22}  {'bits':>5}  {'Gaussian':>8}  {'heavy':>8}  {'trained':>8}  {'bits, GPT':>9}  perplexity"]
    for each in measured.schemes:
        at = max((k for k, size in enumerate(each.gpt_bits) if size < bits + 0.75), default=None)
        if at is None:
            continue
        errors = "  ".join(f"{curve.error[at]:8.4f}" for curve in each.curves) or " " * 28
        size = f"{each.curves[0].bits[at]:5.2f}" if each.curves else " " * 5
        lines.append(f"{each.name:22}  {size}  {errors}  {each.gpt_bits[at]:9.2f}  {math.exp(each.gpt_loss[at]):.3f}")
    return "\n".join([*lines, f"not quantized: {math.exp(measured.loss):.3f}, floor {math.exp(measured.floor):.3f}"])


def _of_the_course(*names: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The course's own answers, which its repository has and a student's installation lacks."""
    for name in names:
        yield name, getattr(importlib.import_module(f"course.reference.quantization.{name}"), name)


if __name__ == "__main__":
    given = dict(_of_the_course("gptq_quantize", "two_factor_quantize"))
    print(recording.record(NAME, lambda: measure(given)))
    print(table(loaded().data))
