"""The small GPT in files of 8, 4 and 3 bits a weight, with outliers, and on a grid, put together from exercises.

matrices of its blocks --qparams, quantize, pack_int4 or nf4_quantize--> a file --unpack, dequantize--> the small GPT
outliers: a channel made larger where the function stays the same, before layers that compute in 8 bits
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from course.lessons import floor, grammar
from course.lessons.experiments.adapters import batches, tune
from course.lessons.experiments.assembled import Parts
from course.lessons.experiments.bit_packing import packed_bits, unpacked_bits
from course.lessons.experiments.four_bits import others
from course.lessons.experiments.quantized_stand_ins import (
    IntegerLinear,
    affine,
    coded,
    fed_forward,
    from_nibbles,
    halves,
    meant,
    nearest_nf4,
    nibbles,
    normal_step,
    parted,
    straight_through,
    two_codebooks,
)
from course.lessons.experiments.small_gpt import judged, loss_on, small_gpt
from course.lessons.models import GPT, Block
from course.lessons.nf4 import NF4

WINDOWS, CALIBRATION = 64, 32  # windows that a loss is the mean of; of another text, for the Hessians
LOUD, GAINS = 7, (1, 20, 100, 500)  # the channel that is made an outlier, and how many times larger
THRESHOLD = 6.0  # from where on numbers are outliers (arXiv 2208.07339, section 3)

Functions = Mapping[str, Callable[..., Any]]
Weights = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Format:
    """How a file holds a matrix.

    bits   of a code
    group  numbers that share a step; None: those of a row
    nf4    whether the codes are NF4's
    """

    bits: int
    group: int | None = None
    nf4: bool = False


FORMATS = {
    "8 bits, a step for each row": Format(bits=8),
    "4 bits, a step for each row": Format(bits=4),
    "4 bits, groups of 32": Format(bits=4, group=32),
    "NF4, blocks of 64": Format(bits=4, group=64, nf4=True),
    "3 bits, groups of 32": Format(bits=3, group=32),
}


PARTS = Parts(
    torchs={
        "qparams": affine,
        "quantize": coded,
        "dequantize": meant,
        "best_step": normal_step,
        "pack_int4": nibbles,
        "unpack_int4": from_nibbles,
        "Int8Linear": IntegerLinear,
        "split_outliers": parted,
        "fake_quant": straight_through,
        "nf4_quantize": nearest_nf4,
        "gptq_quantize": fed_forward,
        "kashin_split": halves,
        "two_factor_quantize": two_codebooks,
    },
    names=(
        "qparams",
        "quantize",
        "dequantize",
        "best_step",
        "pack_int4",
        "unpack_int4",
        "Int8Linear",
        "split_outliers",
        "fake_quant",
        "nf4_quantize",
        "gptq_quantize",
        "kashin_split",
        "two_factor_quantize",
    ),
    whence="ours",
)


def matrices(model: GPT) -> dict[str, nn.Linear]:
    """The linear layers of the blocks, by name: the head is the embedding, and stays as it is."""
    return {name: each for name, each in model.blocks.named_modules() if isinstance(each, nn.Linear)}


def weights() -> Weights:
    """Of these layers."""
    return {name: each.weight.detach() for name, each in matrices(small_gpt()).items()}


def with_weights(changed: Mapping[str, Tensor]) -> GPT:
    """The small GPT with these matrices in the place of its own."""
    model = small_gpt()
    with torch.no_grad():
        for name, layer in matrices(model).items():
            layer.weight.copy_(changed[name])
    return model


@functools.cache
def windows() -> tuple[Tensor, Tensor]:
    """Northern text that no training saw."""
    return judged(grammar.NORTH, WINDOWS)


@functools.cache
def least() -> float:
    """The loss of a perfect model on it."""
    return floor.perfect_loss(grammar.NORTH, windows()[1])


def stored(parts: Functions, w: Tensor, form: Format) -> Weights:
    """What the file holds of a matrix."""
    if form.nf4:
        codes, scales = parts["nf4_quantize"](w, form.group)
        return {"codes": parts["pack_int4"](codes.to(torch.int8) - 8), "step": scales.half()}
    rows = w if form.group is None else w.reshape(-1, form.group)
    step, zero = parts["qparams"](rows, form.bits, 0)
    step = step.half()  # in the file; codes are made with what it holds
    codes = parts["quantize"](rows, step.float(), zero, form.bits)
    if form.bits != 8:
        codes = parts["pack_int4"](codes) if form.bits == 4 else packed_bits(codes, form.bits)
    return {"codes": codes, "step": step, "zero": zero.to(torch.int8)}


def restored(parts: Functions, kept: Weights, shape: torch.Size, form: Format) -> Tensor:
    """The matrix that the file means."""
    count = shape.numel()
    if form.nf4:
        codes = parts["unpack_int4"](kept["codes"], count).int() + 8
        return (torch.tensor(NF4)[codes].reshape(-1, form.group or count) * kept["step"].float()[:, None]).reshape(
            shape
        )
    flat = kept["codes"]
    if form.bits != 8:
        flat = parts["unpack_int4"](flat, count) if form.bits == 4 else unpacked_bits(flat, form.bits, count)
    step = kept["step"].float()
    rows = flat.reshape(len(step), -1)
    found: Tensor = parts["dequantize"](rows, step, kept["zero"].int())
    return found.reshape(shape)


def make_files(parts: Functions, folder: Path) -> Iterator[str]:
    """Writes the small GPT in each format, reads it again and judges what was read; a line for each."""
    model = small_gpt()
    numbers = sum(each.numel() for each in weights().values())
    head = f"{'':28}  {'kB':>6}  {'bits per weight':>15}  {'loss':>6}  {'perplexity':>10}"
    yield f"{head}   (floor {math.exp(least()):.4f})"
    for title, form in {"16 bits": None, **FORMATS}.items():
        if form is None:
            held = {f"{name}.weight": each.half() for name, each in weights().items()}
        else:
            held = {f"{name}.{k}": v for name, w in weights().items() for k, v in stored(parts, w, form).items()}
        path = folder / f"{title.replace(' ', '_')}.safetensors"
        save_file({key: each.contiguous() for key, each in {**held, **others(model)}.items()}, path)
        loss = loss_on(read_file(parts, path, form), windows())
        bits = 8 * sum(each.nbytes for each in held.values()) / numbers
        kilobytes = path.stat().st_size / 1e3
        yield f"{title:28}  {kilobytes:6.0f}  {bits:15.2f}  {loss:6.4f}  {math.exp(loss):10.4f}"


def read_file(parts: Functions, path: Path, form: Format | None) -> GPT:
    """The model that a file of `make_files` holds; None is 16 bits."""
    held = load_file(path)
    if form is None:
        return with_weights({name: held[f"{name}.weight"].float() for name in weights()})
    shapes = {name: each.shape for name, each in weights().items()}
    kept = {
        name: {k: held[f"{name}.{k}"] for k in ("codes", "step", "zero") if f"{name}.{k}" in held} for name in shapes
    }
    return with_weights({name: restored(parts, kept[name], shapes[name], form) for name in shapes})


def louder(gain: float) -> GPT:
    """The small GPT with one channel after each norm `gain` times larger, and its weights as much smaller: the same
    function.
    """
    model = small_gpt()
    with torch.no_grad():
        for block in model.blocks:
            assert isinstance(block, Block)
            attention = block.attention
            readers = (attention.q_proj, attention.k_proj, attention.v_proj), (block.mlp.up,)
            for norm, layers in zip((block.attention_norm, block.mlp_norm), readers, strict=True):
                norm.weight[LOUD] *= gain
                norm.bias[LOUD] *= gain
                for layer in layers:
                    layer.weight[:, LOUD] /= gain
    return model


class Parted(nn.Module):
    """A linear layer by `split_outliers`."""

    def __init__(self, linear: nn.Linear, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.linear, self.function = linear, function

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        y = self.function(x.flatten(0, -2), self.linear.weight.detach(), THRESHOLD)
        return y.reshape(*x.shape[:-1], -1) + self.linear.bias


def outliers(parts: Functions) -> Iterator[str]:
    """Layers that compute in 8 bits, as the model is and with an outlier in it; a line for each."""
    ways: dict[str, Callable[[nn.Linear], nn.Module]] = {
        "float32": lambda linear: linear,
        "8 bits": lambda linear: parts["Int8Linear"](linear.weight.detach(), linear.bias.detach()),
        "8 bits, outliers apart": lambda linear: Parted(linear, parts["split_outliers"]),
    }
    yield f"{'one channel larger, by':23}" + "".join(f"{gain:8,}" for gain in GAINS) + "   loss above the floor"
    for title, way in ways.items():
        losses = []
        for gain in GAINS:
            model = louder(gain)
            for name, layer in matrices(model).items():
                model.blocks.set_submodule(name, way(layer))
            losses.append(loss_on(model, windows()) - least())
        yield f"{title:23}" + "".join(f"{loss:8.4f}" for loss in losses)


class Through(nn.Module):
    """A linear layer whose weight stands on a grid in forward, with a step for each row that stays as it began."""

    def __init__(self, linear: nn.Linear, parts: Functions, bits: int) -> None:
        super().__init__()
        self.linear, self.function, self.bits = linear, parts["fake_quant"], bits
        self.step, self.zero = parts["qparams"](linear.weight.detach(), bits, 0)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        return F.linear(x, self.function(self.linear.weight, self.step, self.zero, self.bits), self.linear.bias)


def through(parts: Functions, bits: int = 2, steps: int = 40) -> Iterator[str]:
    """The small GPT on grids of so few bits, before and after it has been trained through the rounding."""
    model = small_gpt()
    for name, layer in matrices(model).items():
        model.blocks.set_submodule(name, Through(layer, parts, bits))
    text = list(batches(grammar.NORTH, steps, 8, seed=3))
    yield f"{bits} bits, rounded: {loss_on(model, windows()) - least():.3f} above the floor"
    for _ in tune(model, text, rate=1e-3):
        pass
    yield f"after {steps} steps: {loss_on(model, windows()) - least():.3f} above the floor"
