"""`SaveLess`: an autograd.Function of y = x sigmoid(x) that keeps x only, besides y, and can be differentiated twice.

First and second derivatives are observed as numbers and compared with the reference's in float64; finite
differences (`torch.autograd.gradcheck`) would say the same less sharply.

Memory is that of many layers: small ones, whose tensors are counted, in a notebook; large ones, whose process is
measured from outside, in grading, in float32. In other dtypes the tensors of one call are counted.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.meter import kept_bytes
from course.performing.blocks import draw, over_peak
from course.performing.draws import integer, near_one, normal, signs
from course.performing.exercise import (
    Answer,
    Ask,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    every_form,
    in_the_dtype_of,
    observe,
)
from course.performing.forms import alone, at_once, cut, in_dtype, put, strided
from course.performing.oracle import is_here
from course.performing.pledges import Look, Numbers, Sample, Stage, number, pledged, shown
from course.tree import Tree

APPLY = inspect.getattr_static(torch.autograd.Function, "apply").__func__  # not an answer's, whatever it shows
LAYERS, FEW_LAYERS = 48, 4  # in grading, and in a notebook
PIECE = 64  # numbers of a layer in a notebook
BLOCK, BLOCKS = 16_384, 4  # numbers and blocks of a layer in grading: 0.25 MiB in float32
MEMORY = "many layers"
PEAK = 32 * 2**20  # bytes in grading: right answers take 27 to 28 MiB, in float64 30; half a tensor more a layer 34


def cases(rng: torch.Generator) -> list[Case]:
    """Values, first and second derivatives on several shapes, large |x|, memory of many layers.

    The second derivative has roots near |x| = 2.4, where all digits cancel: dy and v are near 1 or -1, so that no such
    place outweighs the others. Where |x| is about 100, exp(|x|) overflows float32; where it is 11
    or 22, the derivative is near its limit and not there yet (and 1 - s has lost so many digits that it takes most of
    32 roundings). Only the first is asked for: the second of the right form 1 / (1 + exp(-x)) is nan at -100.
    """

    def case(name: str, asks: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Case:
        def drawn() -> Tensor:
            return near_one(rng, signs(rng, math.prod(shape)).reshape(shape), *shape, dtype=dtype)

        inputs: dict[str, Any] = {"asks": asks}
        inputs["x"] = normal(rng, *shape, dtype=dtype)
        for each in {"value": [], "first": ["dy"], "second": ["dy", "v"]}[asks]:
            inputs[each] = drawn()
        return Case(name=name, inputs=inputs)

    def far(name: str, dtype: torch.dtype) -> Case:
        made, stretched = case(name, "first", (6,), dtype), 1 + torch.rand(6, generator=rng, dtype=dtype) / 10
        made.inputs["x"] = torch.tensor([-95.0, 95.0, -22.0, 22.0, -11.0, 11.0]) * stretched
        return made

    one = case("one number", "first", ())
    one.inputs["x"] = 0.5 + torch.rand((), generator=rng)
    limits = {"seed": 2**31, "layer": LAYERS - 1, "block": BLOCKS, "start": BLOCK - PIECE}  # one is behind each layer
    hidden: dict[str, Tree] = {name: integer(rng, 0, limit) for name, limit in limits.items()}
    scale = 1 + torch.rand((), generator=rng)
    layers: dict[str, Tree] = {"asks": "memory", "seed": hidden.pop("seed"), "scale": scale}
    return [
        case("value", "value", (3, 4)),
        case("derivative", "first", (2, 3, 4)),
        case("twice", "second", (2, 3), torch.float64),
        one,
        far("far from zero", torch.float32),
        far("far from zero in float64", torch.float64),
        Case(name=MEMORY, inputs=layers, hidden=hidden),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One run by torch's own `apply`, in the scenario that the case asks for. Raises WrongOutput where it is no
    Function.
    """
    came = _other_form(answer)
    if came:
        raise WrongOutput(
            f"must be a subclass of torch.autograd.Function with a forward and a backward of its own, got {came}"
        )
    return _memory(answer, inputs, ask) if inputs["asks"] == "memory" else observe(_values(answer, inputs))


def _other_form(answer: Answer) -> str:
    """What it is instead; "" where the class, or a parent below Function, defines both halves and no apply."""
    base = torch.autograd.Function
    if not (isinstance(answer, type) and issubclass(answer, base)):
        return f"a {'class' if isinstance(answer, type) else type(answer).__name__} that is none"
    own = {name for part in answer.__mro__ if part not in base.__mro__ for name in vars(part)}
    halves = {"forward": {"forward"}, "backward": {"backward", "vjp"}}  # vjp is torch's other name of backward
    missing = [half for half, names in halves.items() if own.isdisjoint(names)]
    if missing:
        return f"one without {' and '.join(missing)}"
    return "" if getattr(answer.apply, "__func__", None) is APPLY else "one with an apply of its own"


def _values(answer: Any, inputs: Inputs) -> dict[str, Tree]:
    """y; with dy its derivative; with v the derivatives of v . dx, zeros where no path of the graph leads back."""
    asks, given = inputs["asks"], [inputs[each] for each in ("x", "dy") if each in inputs]
    for tensor in given if asks == "second" else given[: asks != "value"]:
        tensor.requires_grad_()
    x, before = inputs["x"], [tensor._version for tensor in given]
    y = APPLY(answer, x)
    values: dict[str, Any] = {"y": y}
    if asks == "sum":
        values["dx"] = torch.autograd.grad(y.sum(), x)[0]
    elif asks != "value":
        values["dx"] = torch.autograd.grad(y, x, inputs["dy"], create_graph=asks == "second")[0]
    if asks == "second":
        again = torch.autograd.grad((inputs["v"] * values["dx"]).sum(), given, materialize_grads=True)
        values.update(second_x=again[0], second_dy=again[1])
    writes = [tensor._version - version for tensor, version in zip(given, before, strict=True)]
    if asks == "first":
        values["beyond_x"] = _beyond(answer, x)
    return {**values, "after": {"x_and_dy": given, "writes": writes}}


def _beyond(answer: Any, x: Tensor) -> int:
    """The bytes that a call keeps beyond those of x, which nobody but the answer holds; y is the caller's."""
    zeros = torch.zeros_like(x, requires_grad=True)
    with kept_bytes() as meter:
        y = APPLY(answer, zeros + x.detach())
    beyond: int = meter.bytes_alive() - y.nbytes - x.nbytes
    return max(0, beyond)


def _memory(answer: Any, inputs: Inputs, ask: Ask) -> Observation:
    """Many layers at once, whose y the caller holds and whose x nobody but the answer; then backward through one.

    Small ones where the oracle is here. There, tensors are counted, however they are kept: saved, as attributes of
    ctx, in closures, in globals. y is free even where it is saved: the caller holds that very tensor. Memory that torch
    does not own (a NumPy copy) is not seen, so an answer of which nothing is seen does not hold either.
    """
    if not is_here(ask):
        leaf, ys = _layers(answer, inputs, range(LAYERS), range(BLOCKS), slice(BLOCK))
        layer = pledged(ask, {"y": [block for y in ys for block in y.detach()]})["layer"]
        found = _one_layer(leaf, ys[layer])
        block = pledged(ask, {"dx": found["dx"]})["block"]
        return shown(ask, {name: each[block] for name, each in found.items()})
    layer, block, start = (number(ask, name) for name in ("layer", "block", "start"))
    few, piece = range(layer, layer + FEW_LAYERS), slice(start, start + PIECE)
    with kept_bytes() as meter:
        leaf, ys = _layers(answer, inputs, few, range(block, block + 1), piece)
    kept = meter.bytes_alive() - sum(tensor.nbytes for tensor in (leaf, *ys))
    return observe({name: each[0].clone() for name, each in _one_layer(leaf, ys[0]).items()}, {"kept_bytes": kept})


def _layers(answer: Any, inputs: Inputs, layers: range, blocks: range, part: slice) -> tuple[Tensor, list[Tensor]]:
    """A leaf of zeros, and the y of each layer. Its x is the leaf plus numbers between 0 and 2, drawn for this layer
    alone: of no x that is kept can another one be computed.
    """

    def drawn(layer: int) -> Tensor:
        here = range(layer * BLOCKS + blocks.start, layer * BLOCKS + blocks.stop)
        numbers = draw(inputs["seed"], here, BLOCK)[:, part].float()  # for the reference too: its bytes stand beside
        return numbers.mul_(inputs["scale"])

    leaf = torch.zeros(len(blocks), len(range(BLOCK)[part]), requires_grad=True)
    return leaf, [APPLY(answer, leaf + drawn(layer)) for layer in layers]


def _one_layer(leaf: Tensor, y: Tensor) -> dict[str, Tensor]:
    """A layer's y and its derivative. Which layer, and which piece of it, no answer knew before."""
    (dx,) = torch.autograd.grad(y, leaf, torch.ones_like(leaf))
    return {"y": y.detach(), "dx": dx}


def _at(numbers: Numbers) -> Numbers:
    """Which block of all layers' y is looked at, and which of one layer's dx."""
    return {"y": numbers["layer"] * BLOCKS + numbers["block"], "dx": numbers["block"]}


def _cut(block: Tensor, numbers: Numbers) -> Tensor:
    """What is observed of a block."""
    return block[numbers["start"] : numbers["start"] + PIECE].clone()


LOOK = Look(
    stages=(
        Stage(pieces={"y": LAYERS * BLOCKS}, tells=("layer",)),
        Stage(pieces={"dx": BLOCKS}, tells=("block",)),
    ),
    at=_at,
    cut=_cut,
)


def _at_most_x(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """One tensor of x's size besides y: x itself, or whatever the answer prefers to keep in its place."""
    if "peak_bytes" in got:
        sentence = "{peak:,} bytes at the highest, where {most:,} are enough for every x and y"
        return over_peak(got["peak_bytes"], PEAK, sentence)
    kept, allowed = got["kept_bytes"], FEW_LAYERS * PIECE * torch.float32.itemsize
    if isinstance(kept, int) and 0 < kept <= allowed:
        return None
    if kept == 0:
        return "no tensor besides y is kept, and y alone does not tell which x it came from"
    return f"{kept} bytes are kept besides the y of {FEW_LAYERS} layers, where their x have {allowed}"


NUMBERS = {"x": -0.75, "dy": 1.25, "v": -1.5}
FEW = 8  # roundings, each 1/128 in bfloat16
ONCE = (
    strided("x", "dy", of="derivative"),
    put("x at 0, and the dy of a sum", asks="sum", x=torch.zeros(2, 3, 4), of="derivative"),
    cut("no numbers", x=(1, 0), dy=(1, 0), of="derivative"),
    in_dtype(torch.float64, "x", "dy", of="derivative"),
    in_dtype(torch.bfloat16, "x", "dy", of="derivative"),
    in_dtype(torch.float16, "x", "dy", of="far from zero", name="far from zero in float16"),
)
TWICE = (
    in_dtype(torch.float16, "x", "dy", "v", of="twice", name="twice in float16"),
    in_dtype(torch.bfloat16, "x", "dy", "v", of="twice", name="twice in bfloat16"),
    put("twice at 0", x=torch.zeros(2, 3, dtype=torch.float64), of="twice"),
    strided("x", "dy", "v", of="twice", name="twice on views"),
    alone(put("twice on a number", {name: torch.tensor(x).double() for name, x in NUMBERS.items()}, of="twice")),
    at_once(
        "twice in float32, up to 100",
        in_dtype(torch.float32, "x", "dy", "v"),
        put("far above 0", x=torch.tensor([[100.0, 60.0, 20.0], [5.0, 1.0, 0.5]])),
        of="twice",
    ),
)

EXERCISE = Exercise(
    id="computational_graphs.SaveLess",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "value",
            "y is x times sigmoid(x), element by element, in a new tensor.",
            keys=("y",),
            cases=("value", "derivative"),
        ),
        Property(
            "derivative",
            "Product rule, with s = sigmoid(x) and s' = s (1 - s): the derivative has two terms, and dy "
            "multiplies both. The x in them is what forward was given, not y and not a tensor written over since.",
            points=2,
            keys=("dx",),
            cases=("derivative",),
        ),
        Property(
            "second_derivative",
            "Backward itself must be differentiable, also at x = 0, in every dtype and shape: torch operations on the "
            "saved x and on dy, with nothing detached and nothing that forward computed, not even a reshaped or "
            "contiguous copy of x. forward runs without recording, so its results are constants later.",
            points=3,
            keys=("second_x", "second_dy"),
            cases=("twice", *(form.name for form in TWICE)),
            needs=("derivative",),
        ),
        Property(
            "far_from_zero",
            "exp overflows float32 above 88, and infinity over infinity, or times 0, is nan. torch.sigmoid is "
            "finite for every x, and so is every term that is made of it.",
            keys=("y", "dx"),
            cases=("far from zero", "far from zero in float64"),
            needs=("value", "derivative"),
        ),
        every_form(
            needs=("value",),
            keys=("y", "dx"),
            roundings=FEW,
            cases=("one number", *(form.name for form in ONCE)),
        ),
        Property(
            "dtype_of_x",
            "y comes in the dtype of x: backward may compute in a finer one, and forward too, but what it returns is "
            "rounded back.",
            holds=in_the_dtype_of("x", "y"),
            cases=("value", "in float64", "in bfloat16", "far from zero in float16", "twice in float16", "no numbers"),
            needs=("value",),
        ),
        Property(
            "nothing_overwritten",
            "Neither x nor dy is yours to write into, not even for a moment: no +=, mul_ or out= on them. The caller "
            "and the rest of the graph still need both.",
            keys=("after/*",),
            roundings=0,
            cases=("value", "derivative"),
            needs=("value",),
        ),
        Property(
            "keeps_only_x",
            "Keep one tensor of x's size, with ctx.save_for_backward, and compute the rest again in backward. "
            "Tensors count, however they are kept. Only y is free, also when you save it: the caller holds that very "
            "tensor anyway.",
            points=3,
            evidence="ledger",
            holds=_at_most_x,
            beside=("y", "dx"),
            shows="kept_bytes",
            cases=(MEMORY,),
            needs=("value", "derivative"),
        ),
        Property(
            "keeps_only_x_in_every_dtype",
            "In half precision a copy of x in float32 has twice its bytes, and in float64 there is no more room than "
            "elsewhere: keep x as it came, and convert it again in backward.",
            keys=("beyond_x",),
            roundings=0,
            cases=("derivative", "in float64", "in bfloat16", "far from zero in float16"),
            needs=("value", "derivative"),
        ),
    ),
    hints=(
        "Of x, sigmoid(x) and y: from which one can the derivative be computed without the other two?",
        "Save x alone. backward gets it back with its history, so what you compute from it there can be differentiated "
        "again; what you computed in forward cannot.",
        "forward: save x, return x times its sigmoid. backward: take x back, compute s = sigmoid(x) anew, and "
        "return dy times (s plus x times the derivative of s).",
    ),
    forms=(*ONCE, *TWICE),
    promises={
        "x of any shape and floating dtype": ("every_form", "one number", "no numbers", "in float64", "in bfloat16"),
        "y is a new tensor of that shape and dtype": ("value", "dtype_of_x", "nothing_overwritten"),
        "as many bytes as x has, and no more": ("keeps_only_x", "keeps_only_x_in_every_dtype"),
        "y and dy/dx are finite and right, also at x = 100": ("far_from_zero", "far from zero in float16"),
        "in float32 and in float16": ("far from zero", "far from zero in float16"),
        "with respect to x and to dy": ("second_derivative", "twice in float16", "twice at 0"),
        "where exp(-x) does not overflow": ("twice in float32, up to 100",),
        "in every dtype and shape": ("twice in bfloat16", "twice on views", "twice on a number"),
        "x and dy as they are": ("nothing_overwritten",),
    },
    removes=("torch.nn.functional.silu", "torch.utils.checkpoint"),
    oracle=partial(Sample, look=LOOK),
    measured=(MEMORY,),
    seconds=5.0,
)
