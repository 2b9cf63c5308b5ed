"""`SaveLess`: an autograd.Function of y = x sigmoid(x) that keeps x only, besides y, and can be differentiated twice.

First and second derivatives are observed as numbers and compared with the reference's in float64; finite
differences (`torch.autograd.gradcheck`) would say the same less sharply.

Memory is that of many layers: small ones, whose tensors are counted, in a notebook; large ones, whose process is
measured from outside, in grading.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.exercises.computational_graphs.blocks import Sample, draw, number
from course.meter import kept_bytes
from course.performing.exercise import Answer, Ask, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.oracle import is_here
from course.tree import Tree

LAYERS = 16
PIECE = 64  # numbers of a layer in a notebook
BLOCK, BLOCKS = 1_024, 96  # numbers and blocks of a layer in grading: 0.75 MiB in float64
MEMORY = "16 layers"
PEAK = 36 * 2**20  # bytes in grading: right answers take 28 to 31 MiB, one tensor more for each layer 40 to 42 MiB


def cases(rng: torch.Generator) -> list[Case]:
    """Values, first and second derivatives on several shapes in float32 and float64, large |x|, memory of 16 layers.

    The second derivative has roots near |x| = 2.4, where all digits cancel: dy and v are near 1, so that no such place
    outweighs the others, and a single x is one too. Where |x| is about 100, exp(|x|) overflows float32. Only the
    first derivative is asked for there: the second of the right form 1 / (1 + exp(-x)) is nan.
    """

    def case(name: str, asks: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Case:
        def near_one() -> Tensor:
            return 0.5 + torch.rand(shape, generator=rng, dtype=dtype)

        inputs: dict[str, Any] = {"asks": asks}
        inputs["x"] = torch.randn(shape, generator=rng, dtype=dtype) if shape else near_one()
        for each in {"value": [], "first": ["dy"], "second": ["dy", "v"]}[asks]:
            inputs[each] = near_one()
        return Case(name=name, inputs=inputs)

    far = case("far from zero", "first", (6,))
    far.inputs["x"] = torch.tensor([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0]) * (95 + 10 * torch.rand(6, generator=rng))
    limits = {"seed": 2**31, "layer": LAYERS, "block": BLOCKS, "start": BLOCK - PIECE}
    hidden: dict[str, Tree] = {name: int(torch.randint(limit, (), generator=rng)) for name, limit in limits.items()}
    scale = 1 + torch.rand((), generator=rng, dtype=torch.float64)
    layers: dict[str, Tree] = {"asks": "memory", "seed": hidden.pop("seed"), "scale": scale}
    return [
        case("value", "value", (3, 4)),
        case("value of one number", "value", ()),
        case("derivative", "first", (7,)),
        case("derivative in float64", "first", (2, 3, 4), torch.float64),
        case("twice", "second", (6,)),
        case("twice in float64", "second", (2, 3), torch.float64),
        case("twice for one number", "second", ()),
        far,
        Case(name=MEMORY, inputs=layers, hidden=hidden),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One run of `answer.apply`, in the scenario that the case asks for. Raises WrongOutput where it is no Function."""
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
    return "one with an apply of its own" if "apply" in own else ""


def _values(answer: Any, inputs: Inputs) -> dict[str, Tree]:
    """y; with dy its derivative; with v the derivatives of v . dx, zeros where no path of the graph leads back."""
    x = inputs["x"]
    if inputs["asks"] == "value":
        return {"y": answer.apply(x)}
    y = answer.apply(x.requires_grad_())
    if inputs["asks"] == "first":
        return {"y": y, "dx": torch.autograd.grad(y, x, inputs["dy"])[0]}
    dy = inputs["dy"].requires_grad_()
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    again = torch.autograd.grad((inputs["v"] * dx).sum(), (x, dy), materialize_grads=True)
    return {"dx": dx, "second_x": again[0], "second_dy": again[1]}


def _memory(answer: Any, inputs: Inputs, ask: Ask) -> Observation:
    """Many layers at once, whose y the caller holds and whose x nobody but the answer; then backward through one.

    Small ones where the oracle is here. There, tensors are counted, however they are kept: saved, as attributes of
    ctx, in closures, in globals. y is free even where it is saved: the caller holds that very tensor. Memory that torch
    does not own (a NumPy copy) is not seen, so an answer of which nothing is seen does not hold either.
    """
    if not is_here(ask):
        leaf, ys = _all_layers(answer, inputs, draw(inputs["seed"], range(BLOCKS), BLOCK))
        return observe(_one_layer(leaf, ys, ask, number(ask, "block"), number(ask, "start")))
    block, start = number(ask, "block"), number(ask, "start")
    piece = draw(inputs["seed"], range(block, block + 1), BLOCK)[:, start : start + PIECE]
    with kept_bytes() as meter:
        leaf, ys = _all_layers(answer, inputs, piece)
    kept = meter.bytes_alive() - sum(tensor.nbytes for tensor in (leaf, *ys))
    return observe(_one_layer(leaf, ys, ask, 0, 0), {"kept_bytes": kept})


def _all_layers(answer: Any, inputs: Inputs, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A leaf of numbers between 0 and 2, and the y of each layer; no two layers have the same x."""
    leaf = (x * inputs["scale"]).requires_grad_()
    return leaf, [answer.apply(leaf * (1 + layer / LAYERS)) for layer in range(LAYERS)]


def _one_layer(leaf: Tensor, ys: list[Tensor], ask: Ask, block: int, start: int) -> dict[str, Any]:
    """A piece of one layer's y, and of its derivative. Which layer and which piece, nobody knew before."""
    y = ys[number(ask, "layer")]
    (dx,) = torch.autograd.grad(y, leaf, torch.ones_like(leaf))
    return {name: each[block, start : start + PIECE].clone() for name, each in {"y": y, "dx": dx}.items()}


def _at_most_x(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """One tensor of x's size besides y: x itself, or whatever the answer prefers to keep in its place."""
    if "peak_bytes" in got:
        peak = got["peak_bytes"]
        if isinstance(peak, int) and peak <= PEAK:
            return None
        return f"{peak:,} bytes at the highest, where {PEAK:,} are enough for every x and y"
    kept, allowed = got["kept_bytes"], LAYERS * PIECE * inputs["scale"].element_size()
    if isinstance(kept, int) and 0 < kept <= allowed:
        return None
    if kept == 0:
        return "no tensor besides y is kept, and y alone does not tell which x it came from"
    return f"{kept} bytes are kept besides the y of {LAYERS} layers, where their x have {allowed}"


EXERCISE = Exercise(
    id="computational_graphs.SaveLess",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "value",
            "y is x times sigmoid(x), element by element, in a new tensor.",
            cases=("value", "value of one number"),
        ),
        Property(
            "derivative",
            "Product rule, with s = sigmoid(x) and s' = s (1 - s): the derivative has two terms, and dy "
            "multiplies both. The x in them is what forward was given, not y and not a tensor written over since.",
            points=2,
            keys=("dx",),
            cases=("derivative", "derivative in float64"),
        ),
        Property(
            "second_derivative",
            "Backward itself must be differentiable: torch operations on the saved x and on dy, with "
            "nothing detached and nothing that forward computed. forward runs without recording, so its "
            "results are constants later.",
            points=3,
            keys=("second_x", "second_dy"),
            cases=("twice", "twice in float64", "twice for one number"),
            needs=("derivative",),
        ),
        Property(
            "far_from_zero",
            "exp overflows float32 above 88, and infinity over infinity, or times 0, is nan. torch.sigmoid is "
            "finite for every x, and so is every term that is made of it.",
            cases=("far from zero",),
            needs=("value", "derivative"),
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
    ),
    hints=(
        "Of x, sigmoid(x) and y: from which one can the derivative be computed without the other two?",
        "Save x alone. backward gets it back with its history, so what you compute from it there can be differentiated "
        "again; what you computed in forward cannot.",
        "forward: save x, return x times its sigmoid. backward: take x back, compute s = sigmoid(x) anew, and "
        "return dy times (s plus x times the derivative of s).",
    ),
    removes=("torch.nn.functional.silu", "torch.utils.checkpoint"),
    oracle=Sample,
    measured=(MEMORY,),
    seconds=5.0,
)
