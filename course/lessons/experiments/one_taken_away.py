"""What each way to make do with few bits buys: the small GPT in files, by a recipe with one thing taken away at a time.

the small GPT with a channel made an outlier --recipe, bits--> a file --read--> loss above the floor
a matrix: columns apart in 16 bits; the rest, rotated --gptq_quantize, group by group--> codes and steps
with a second factor: u and v of kashin_split, each with half of the bits; v takes over what rounding u has left

One outlier of the size that large models have is planted, because this model has none: see `louder`.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from course.lessons import grammar
from course.lessons.experiments.assembled_quantization import (
    CALIBRATION,
    THRESHOLD,
    Functions,
    Weights,
    least,
    louder,
    matrices,
    windows,
)
from course.lessons.experiments.bit_packing import packed_bits, unpacked_bits
from course.lessons.experiments.four_bits import file_bytes, others
from course.lessons.experiments.small_gpt import judged, loss_on
from course.lessons.models import GPT

GAIN = 20  # times that the outlier is larger (arXiv 2208.07339, section 1)
GROUP, DAMP, SPLITS = 32, 0.01, 30
ONCE_DAMPED = 1e-6  # the Hessians are damped before they are cut into groups


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How few bits are made to do.

    outliers  columns of the weight that meet inputs of THRESHOLD and more stay in 16 bits
    rotate    the inputs' basis, by a random rotation
    shared    by which numbers a step is: "group" (GROUP of a row), "row" or "matrix"
    normal    the step is what suits normal numbers of this size; else the largest number has the largest code
    hessian   errors are made good by later columns; else each number is rounded by itself
    second    two factors with half of the bits each
    """

    outliers: bool = True
    rotate: bool = True
    shared: str = "group"
    normal: bool = True
    hessian: bool = True
    second: bool = False


ALL = Recipe()
NOTHING = Recipe(outliers=False, rotate=False, shared="matrix", normal=False, hessian=False)
RECIPES = {
    "all, and a second factor": replace(ALL, second=True),
    "all": ALL,
    "outliers not apart": replace(ALL, outliers=False),
    "no rotation": replace(ALL, rotate=False),
    "no groups, a step for each row": replace(ALL, shared="row"),
    "one step for the matrix": replace(ALL, shared="matrix"),
    "step from the largest": replace(ALL, normal=False),
    "no Hessian": replace(ALL, hessian=False),
    "nothing": NOTHING,
}
BY_ROW = replace(ALL, shared="row")
STRETCHED = {
    "a step for each row": BY_ROW,
    "without the Hessian": replace(BY_ROW, hessian=False),
    "step from the largest": replace(BY_ROW, normal=False),
}


class Layer(NamedTuple):
    """A weight (m, n), the sum of x x' over its inputs, and which of the n inputs are outliers."""

    w: Tensor
    hessian: Tensor
    loud: Tensor


@functools.cache
def layers(gain: float = GAIN) -> dict[str, Layer]:
    """Those of the blocks, on a text of its own, where the outlier is so many times larger."""
    model, found = louder(gain), {}
    for name, linear in matrices(model).items():

        def see(layer: nn.Linear, inputs: tuple[Tensor], name: str = name) -> None:
            x = inputs[0].flatten(0, -2)
            found[name] = Layer(layer.weight.detach(), x.T @ x, (x.abs() >= THRESHOLD).any(dim=0))

        linear.register_forward_pre_hook(see)
    loss_on(model, judged(grammar.NORTH, CALIBRATION, seed=5))
    return found


@functools.cache
def rotation(n: int, seed: int = 0) -> Tensor:
    """An orthogonal matrix (n, n), drawn evenly from all of them (Mezzadri, arXiv math-ph/0609050, section 5)."""
    drawn = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q, r = torch.linalg.qr(drawn)
    even: Tensor = q * r.diagonal().sign()
    return even.float()


def kept(parts: Functions, recipe: Recipe, bits: int, layer: Layer) -> Weights:
    """What a file holds of a matrix."""
    apart = layer.loud if recipe.outliers else torch.zeros_like(layer.loud)
    held = {"columns": apart.nonzero().flatten().short(), "apart": layer.w[:, apart].half()} if apart.any() else {}
    r = _basis(recipe, int((~apart).sum()))
    w, hessian = layer.w[:, ~apart] @ r, r.T @ layer.hessian[~apart][:, ~apart] @ r
    if not recipe.second:
        return held | fed_forward(parts, recipe, bits, w, hessian)
    q = rotation(len(r), seed=1)
    u, v = parts["kashin_split"](w, q, SPLITS)
    first = fed_forward(parts, recipe, bits // 2, u, hessian)
    v = v + (u - meant(recipe, bits // 2, first, u.shape)) @ q
    second = fed_forward(parts, recipe, bits // 2, v, q.T @ hessian @ q)
    return (
        held
        | {f"{name}_u": each for name, each in first.items()}
        | {f"{name}_v": each for name, each in second.items()}
    )


def restored(recipe: Recipe, bits: int, held: Weights, shape: torch.Size) -> Tensor:
    """The matrix that the file means."""
    found, rest = torch.empty(shape), torch.ones(shape[1], dtype=torch.bool)
    if "columns" in held:
        rest[held["columns"].long()] = False
        found[:, ~rest] = held["apart"].float()
    size = torch.Size((shape[0], int(rest.sum())))
    if recipe.second:
        u, v = (meant(recipe, bits // 2, {k: held[f"{k}_{each}"] for k in ("codes", "step")}, size) for each in "uv")
        turned = u + v @ rotation(size[1], seed=1).T
    else:
        turned = meant(recipe, bits, held, size)
    found[:, rest] = turned @ _basis(recipe, size[1]).T
    return found


def _basis(recipe: Recipe, n: int) -> Tensor:
    return rotation(n) if recipe.rotate else torch.eye(n)


def fed_forward(parts: Functions, recipe: Recipe, bits: int, w: Tensor, hessian: Tensor) -> Weights:
    """Packed codes and steps; the error of each group moves the columns after it to where they make good for it.

    The columns of a group see what is left of the Hessian when all later ones are free: its Schur complement.
    """
    n, last = w.shape[1], (1 << bits - 1) - 1
    h = hessian if recipe.hessian else torch.eye(n)
    h = h + DAMP * h.diagonal().mean() * torch.eye(n)
    size, left, codes, steps = GROUP if recipe.shared == "group" else n, w.clone(), [], []
    for at in range(0, n, size):
        here, later = slice(at, at + size), slice(at + size, n)
        group = left[:, here]
        seen = group.reshape(1, -1) if recipe.shared == "matrix" else group
        suits = seen.square().mean(1, keepdim=True).sqrt() * best(parts, bits)
        step = (suits if recipe.normal else seen.abs().amax(1, keepdim=True) / last).half()
        follow = torch.linalg.solve(h[later, later], h[later, here])
        inner = h[here, here] - h[here, later] @ follow
        wide = step.float().expand(len(w), 1).contiguous()
        codes.append(parts["gptq_quantize"](group, (inner + inner.T) / 2, wide, bits, ONCE_DAMPED))
        left[:, later] += (group - codes[-1] * wide) @ follow.T
        steps.append(step)
    return {"codes": packed_bits(torch.cat(codes, dim=1), bits), "step": torch.cat(steps, dim=1)}


def meant(recipe: Recipe, bits: int, held: Weights, shape: torch.Size) -> Tensor:
    """What packed codes and steps stand for."""
    step = held["step"].float()
    if recipe.shared == "group":
        step = step.repeat_interleave(GROUP, dim=1)[:, : shape[1]]
    return unpacked_bits(held["codes"], bits, shape.numel()).reshape(shape) * step


def best(parts: Functions, bits: int) -> float:
    """The step for normal numbers of size 1; found once for each function that finds it."""
    return _best(parts["best_step"], bits)


@functools.cache
def _best(function: Callable[[int], float], bits: int) -> float:
    return float(function(bits))


def made(parts: Functions, recipe: Recipe, bits: int, layer: Layer) -> Tensor:
    """The matrix at so few bits, back in its own basis."""
    return restored(recipe, bits, kept(parts, recipe, bits, layer), layer.w.shape)


def with_layers(changed: Mapping[str, Tensor], gain: float = GAIN) -> GPT:
    """The small GPT with these matrices in the place of its own."""
    model = louder(gain)
    with torch.no_grad():
        for name, layer in matrices(model).items():
            layer.weight.copy_(changed[name])
    return model


def above(model: GPT) -> float:
    """Its loss above the floor."""
    return loss_on(model, windows()) - least()


def written(parts: Functions, recipe: Recipe, bits: int, path: Path) -> int:
    """Writes the model to a file; returns its bytes."""
    found = {f"{name}.{k}": v for name, each in layers().items() for k, v in kept(parts, recipe, bits, each).items()}
    save_file({name: each.contiguous() for name, each in (found | others(louder(GAIN))).items()}, path)
    return path.stat().st_size


def read(recipe: Recipe, bits: int, path: Path) -> GPT:
    """The model that the file holds."""
    file = load_file(path)
    changed = {}
    for name, layer in layers().items():
        held = {key.removeprefix(f"{name}."): each for key, each in file.items() if key.startswith(f"{name}.")}
        changed[name] = restored(recipe, bits, held, layer.w.shape)
    return with_layers(changed)


def lines(parts: Functions, folder: Path, bits: tuple[int, ...] = (4, 3, 2)) -> Iterator[str]:
    """Size of the file and loss above the floor of each recipe, where it has bits enough for both of its factors."""
    yield f"{'':31}" + "".join(f"  {f'{each} bits: kB':>10}    loss" for each in bits) + "   (above the floor)"
    path = folder / "recipe.safetensors"
    for title, recipe in RECIPES.items():
        found = []
        for each in (each for each in bits if not recipe.second or each in {4, 6, 8}):
            size = written(parts, recipe, each, path)
            found.append(_cell(size, read(recipe, each, path)))
        yield f"{title:31}" + "".join(found)
    pairs = (in_codebooks(parts, each // 2) for each in bits if each % 2 == 0)
    cells = dict(zip((each for each in bits if each % 2 == 0), (_cell(*pair) for pair in pairs), strict=True))
    yield f"{'two codebooks, and nothing else':31}" + "".join(cells.get(each, " " * 20) for each in bits)


def _cell(size: int, model: GPT) -> str:
    return f"  {size / 1e3:10.1f}  {above(model):6.4f}"


def in_codebooks(parts: Functions, bits: int) -> tuple[int, GPT]:
    """The model by `two_factor_quantize` alone, with so many bits for each factor, and the size of its file."""
    file, changed = others(louder(GAIN)), {}
    for name, layer in layers().items():
        q = rotation(layer.w.shape[1])
        u, book_u, v, book_v = parts["two_factor_quantize"](layer.w, q, bits)
        books = {f"{name}.book_u": book_u.half(), f"{name}.book_v": book_v.half()}
        codes = {
            f"{name}.{key}": packed_bits(each.short() - 2 ** (bits - 1), bits) for key, each in {"u": u, "v": v}.items()
        }
        file |= books | codes
        changed[name] = book_u.half().float()[u.long()] + book_v.half().float()[v.long()] @ q.T
    return file_bytes(file), with_layers(changed)


def stretched(parts: Functions, bits: int = 2) -> Iterator[str]:
    """What few bits leave of a matrix's outputs, and the loss once each matrix is stretched by it; a line for each.

    The part that is left of y = W x is the sum of (Q x) y over all inputs, divided by that of y y.
    """
    yield f"{f'{bits} bits':23}  {'error of outputs':>16}  {'part left':>9}  {'loss':>6}  {'stretched':>9}"
    for title, recipe in STRETCHED.items():
        errors, left, changed, longer = [], [], {}, {}
        for name, layer in layers().items():
            w, h, _ = layer
            q = changed[name] = made(parts, recipe, bits, layer)
            size = torch.sum(w @ h * w)
            left.append(float(torch.sum(q @ h * w) / size))
            errors.append(float(torch.sum((q - w) @ h * (q - w)) / size))
            longer[name] = q / left[-1]
        losses = [above(with_layers(each)) for each in (changed, longer)]
        row = f"{statistics.median(errors):16.1%}  {statistics.median(left):9.2f}  {losses[0]:6.3f}  {losses[1]:9.3f}"
        yield f"{title:23}  {row}"
