"""What survives at few bits: error of a weight and loss of the small GPT, by scheme, at bits that are all counted.

weight --scheme, at 2 to 8 bits--> Kept: bits per weight (all that is stored counted), what a file holds --> the weight
small GPT --each matrix of its blocks--> loss on text that no training saw, and the size of a file with all of the model
layers of the small GPT --rounding, GPTQ--> error on their real inputs

A step, or a value of a codebook, takes 16 bits; a random rotation takes none, because its seed makes it again. Codes
are packed, and every weight is made again from what the file holds. The file has a line of text for each tensor, too,
which the bits per weight do not count.
GPTQ and the two factors are exercises, so that who measures hands them in: this module is measured in the course's
repository, and shown everywhere.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from course.lessons import floor, grammar
from course.lessons.experiments import recording
from course.lessons.experiments.bit_packing import packed_bits, unpacked_bits
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
Exercises: TypeAlias = Mapping[str, Callable[..., Any]]  # gptq_quantize, two_factor_quantize, by name


class Kept(NamedTuple):
    """A weight in few bits: bits per weight as counted, the weight that comes back, and what a file holds of it."""

    bits: float
    near: Tensor
    held: dict[str, Tensor]


class Judged(NamedTuple):
    """The small GPT with such weights: bits per weight of the blocks' matrices, its loss, and bytes of its file."""

    bits: float
    loss: float
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Error |W - Q| / |W| at each number of bits per weight."""

    weights: str
    bits: list[float]
    error: list[float]


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """Its error for each kind of weights, and the small GPT's loss in nats per character and file in bytes."""

    name: str
    curves: list[Curve]
    gpt_bits: list[float]  # per weight of the blocks' matrices
    gpt_loss: list[float]
    gpt_bytes: list[int]


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
    """amax over the last code, for each run of `group` weights of a row (all of them: None), as 16 bits hold it."""
    step: Tensor = _runs(w, group).abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return step.half().float()


def rounded(w: Tensor, bits: int, group: int | None) -> Kept:
    """To the nearest multiple of the step."""
    step = steps_of(w, bits, group)
    return on_grid((_runs(w, group) / step).round().to(torch.int8), step, bits, w.shape)


def on_grid(codes: Tensor, step: Tensor, bits: int, shape: torch.Size) -> Kept:
    """Multiples of steps; codes int8 (runs, numbers of a run), step (runs, 1)."""
    held = {"codes": packed_bits(codes, bits), "step": step.half()}
    near = unpacked_bits(held["codes"], bits, codes.numel()).reshape(codes.shape) * held["step"].float()
    return Kept(bits + STORED / codes.shape[1], near.reshape(shape), held)


def _runs(w: Tensor, group: int | None) -> Tensor:
    return w.reshape(-1, group) if group else w.reshape(1, -1)


def rotated(w: Tensor, bits: int) -> Kept:
    """Rounded in another basis, with a step for each row, and turned back."""
    q = rotation(w.shape[1])
    kept = rounded(w @ q, bits, w.shape[1])
    return kept._replace(near=kept.near @ q.T)


def nf4(w: Tensor) -> Kept:
    """Quantiles of a normal distribution, scaled by each block's largest entry (Dettmers et al., arXiv 2305.14314)."""
    blocks = w.reshape(-1, BLOCK)
    scale = blocks.abs().amax(dim=1, keepdim=True).half().float()
    nf4 = torch.tensor(NF4)
    codes = (blocks / scale)[..., None].sub(nf4).abs().argmin(dim=-1)
    near, held = _looked_up(codes, nf4, 4)
    return Kept(4 + STORED / BLOCK, (near * scale).reshape(w.shape), {"codes": held, "scale": scale.half()})


def _looked_up(codes: Tensor, book: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The values that codes from 0 on name, and the codes packed."""
    packed = packed_bits(codes - 2 ** (bits - 1), bits)
    return book[unpacked_bits(packed, bits, codes.numel()).reshape(codes.shape).int() + 2 ** (bits - 1)], packed


def clustered(w: Tensor, bits: int) -> Kept:
    """One codebook for the matrix, by k-means."""
    book = codebook(w, bits).half()
    codes = torch.bucketize(w, (book.float()[1:] + book.float()[:-1]) / 2)
    near, packed = _looked_up(codes, book.float(), bits)
    return Kept(bits + STORED * 2**bits / w.numel(), near, {"codes": packed, "book": book})


def codebook(w: Tensor, bits: int, rounds: int = 1_000) -> Tensor:
    """2 ** bits values that k-means moves until they stay.

    They begin as dense as the cube root of the weights' density, which is best for many values (Panter and Dite 1951,
    *Quantization Distortion in Pulse-Count Modulation*): from quantiles on k-means ends far from it.
    """
    values = w.flatten().double().sort().values
    sums = torch.cat([values.new_zeros(1), values.cumsum(dim=0)])
    some = values[:: max(1, len(values) // 1_024)]
    mass = torch.cat([values.new_zeros(1), (some.diff() ** (2 / 3)).cumsum(dim=0)])
    wanted = (torch.arange(2**bits) + 0.5) / 2**bits * mass[-1]
    book = some[torch.searchsorted(mass, wanted).clamp(max=len(some) - 1)]
    for _ in range(rounds):
        inner = torch.searchsorted(values, (book[1:] + book[:-1]) / 2)
        ends = torch.cat([inner.new_zeros(1), inner, inner.new_tensor([len(values)])])
        sizes = ends.diff()
        moved = torch.where(sizes > 0, sums[ends].diff() / sizes.clamp(min=1), book)
        if torch.equal(moved, book):
            break
        book = moved
    return book.float()


def clustered_in_another_basis(w: Tensor, bits: int) -> Kept:
    """One codebook for the rotated matrix."""
    q = rotation(w.shape[1])
    kept = clustered(w @ q, bits)
    return kept._replace(near=kept.near @ q.T)


def clustered_twice(w: Tensor, bits: int) -> Kept:
    """A codebook for the matrix, and one for what it leaves, in another basis: two factors without a split before."""
    q = rotation(w.shape[1])
    first = clustered(w, bits)
    second = clustered((w - first.near) @ q, bits)
    held = {f"{name}_{key}": each for name, kept in (("u", first), ("v", second)) for key, each in kept.held.items()}
    return Kept(first.bits + second.bits, first.near + second.near @ q.T, held)


def schemes(exercises: Exercises) -> dict[str, list[Callable[[Tensor], Kept]]]:
    """By name, the ways at each number of bits."""

    def two_factors(w: Tensor, bits: int) -> Kept:
        q = rotation(w.shape[1])
        codes_u, book_u, codes_v, book_v = exercises["two_factor_quantize"](w, q, bits)
        book_u, book_v = book_u.half(), book_v.half()
        u, packed_u = _looked_up(codes_u.long(), book_u.float(), bits)
        v, packed_v = _looked_up(codes_v.long(), book_v.float(), bits)
        held = {"codes_u": packed_u, "codes_v": packed_v, "book_u": book_u, "book_v": book_v}
        return Kept(2 * bits + STORED * 2 * 2**bits / w.numel(), u + v @ q.T, held)

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
        "two codebooks, no split": at(clustered_twice, *FEW),
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
def loss_with(keep: Callable[[str, Tensor], Kept], windows: tuple[Tensor, Tensor]) -> Judged:
    """The small GPT where keep(name, weight) says what is kept of each matrix of its blocks."""
    model = copy.deepcopy(small_gpt())
    bits = count = 0.0
    file = others(model)
    for name, layer in matrices(model).items():
        kept = keep(name, layer.weight)
        bits, count = bits + kept.bits * kept.near.numel(), count + kept.near.numel()
        file |= {f"{name}.{key}": each for key, each in kept.held.items()}
        layer.weight.copy_(kept.near)
    return Judged(bits / count, loss_on(model, windows), file_bytes(file))


def others(model: GPT) -> dict[str, Tensor]:
    """All that is not a matrix of the blocks, in 16 bits; the head is the embedding, and not there twice."""
    ours = {f"{name}.weight" for name in matrices(model)}
    return {name: each.detach().half() for name, each in model.named_parameters() if name not in ours}


def file_bytes(tensors: Mapping[str, Tensor]) -> int:
    """The size of a file with these tensors."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file({name: each.contiguous() for name, each in tensors.items()}, path)
        return path.stat().st_size


def measure(exercises: Exercises) -> Measured:
    """All schemes on all weights and in the small GPT. About a minute on one core."""
    windows, model = judged(grammar.NORTH, WINDOWS), small_gpt()
    seen = inputs_of(model, judged(grammar.NORTH, CALIBRATION, seed=2_000)[0])
    hessians = {name: x.T @ x for name, x in seen.items()}
    found = []
    for name, ways in schemes(exercises).items():
        curves = [_curve(kind, w, ways) for kind, w in weights().items()]
        several = [loss_with(lambda _, w, way=way: way(w), windows) for way in ways]  # type: ignore[misc]
        found.append(_scheme(name, curves, several))

    def gptq(bits: int) -> Callable[[str, Tensor], Kept]:
        def keep(name: str, w: Tensor) -> Kept:
            step = steps_of(w, bits, w.shape[1])
            return on_grid(exercises["gptq_quantize"](w, hessians[name], step, bits, DAMP), step, bits, w.shape)

        return keep

    found.append(_scheme("GPTQ, per channel", [], [loss_with(gptq(bits), windows) for bits in BITS]))
    unseen = inputs_of(model, windows[0])
    layers = []
    for name, layer in matrices(model).items():
        w = layer.weight.detach()
        errors = [_of_outputs(unseen[name], w, near) for _, near, _ in (rounded(w, 3, w.shape[1]), gptq(3)(name, w))]
        layers.append(Layer(name=name, rounded=errors[0], gptq=errors[1]))
    return Measured(
        schemes=found, layers=layers, loss=loss_on(model, windows), floor=floor.perfect_loss(grammar.NORTH, windows[1])
    )


def _curve(kind: str, w: Tensor, ways: list[Callable[[Tensor], Kept]]) -> Curve:
    kept = [way(w) for way in ways]
    errors = [float((near - w).norm() / w.norm()) for _, near, _ in kept]
    return Curve(weights=kind, bits=[round(size, 4) for size, _, _ in kept], error=_short(errors))


def _scheme(name: str, curves: list[Curve], found: list[Judged]) -> Scheme:
    return Scheme(
        name=name,
        curves=curves,
        gpt_bits=[round(each.bits, 4) for each in found],
        gpt_loss=_short([each.loss for each in found]),
        gpt_bytes=[each.bytes for each in found],
    )


def _of_outputs(x: Tensor, w: Tensor, near: Tensor) -> float:
    return float(f"{float((x @ (w - near).T).square().sum() / (x @ w.T).square().sum()):.5g}")


def _short(values: list[float]) -> list[float]:
    return [float(f"{each:.5g}") for each in values]


def loaded() -> recording.Recording[Measured]:
    """What was recorded."""
    return recording.load(NAME, Measured)


def table(measured: Measured, bits: int = 4) -> str:
    """A line for each scheme, at its most bits per weight below `bits` + 3/4: errors, size of a file, perplexity."""
    head = f"{'':23}  {'bits':>5}  {'Gaussian':>8}  {'heavy':>8}  {'trained':>8}"
    lines = [f"{head}  {'bits, GPT':>9}  {'kB, GPT':>7}  perplexity"]
    for each in measured.schemes:
        at = max((k for k, size in enumerate(each.gpt_bits) if size < bits + 0.75), default=None)
        if at is None:
            continue
        errors = "  ".join(f"{curve.error[at]:8.4f}" for curve in each.curves) or " " * 28
        size = f"{each.curves[0].bits[at]:5.2f}" if each.curves else " " * 5
        gpt = f"{each.gpt_bits[at]:9.2f}  {each.gpt_bytes[at] / 1e3:7.1f}  {math.exp(each.gpt_loss[at]):.3f}"
        lines.append(f"{each.name:23}  {size}  {errors}  {gpt}")
    return "\n".join([*lines, f"not quantized: {math.exp(measured.loss):.3f}, floor {math.exp(measured.floor):.3f}"])


def _of_the_course(*names: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The course's own answers, which its repository has and a student's installation lacks."""
    for name in names:
        yield name, getattr(importlib.import_module(f"course.reference.quantization.{name}"), name)


if __name__ == "__main__":
    given = dict(_of_the_course("gptq_quantize", "two_factor_quantize"))
    print(recording.record(NAME, lambda: measure(given)))
    print(table(loaded().data))
