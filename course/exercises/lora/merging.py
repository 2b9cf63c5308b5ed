"""What `merge_` and `unmerge_` share: the layers that they work on, what is seen of them, and how it is judged.

The weight must stand in the memory where it stood, in every dtype: a tensor that is put in its place lies elsewhere.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from course.lessons.adapted import Adapted
from course.meter import kept_bytes
from course.performing.compare import EPS
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Form, Inputs, Observation, Property, Values, every_form, observe
from course.performing.forms import at_once, in_dtype, put, strided

USUAL, SQUARE, ONE, DOUBLE = "a wide weight", "all sizes equal", "r = 1, square", "in float64"
TRAINABLE, TWICE, DONE, HALF, NOTHING, STRIDED = (
    "a weight that requires a gradient",
    "two calls",
    "done before",
    "many numbers in bfloat16",
    "B and scale are 0",
    "views that are not contiguous",
)
FLOATS = ("weight", "A", "B")
NOISE = 64  # roundings of float32, or of float64: far below one of half precision


def cases(rng: torch.Generator, merged: bool) -> list[Case]:
    """Layers whose flag is `merged` before the call; in one case it is not, and nothing is to be done."""

    def drawn(m: int, n: int, r: int) -> dict[str, Any]:
        scale = 1.5 + float(torch.rand((), generator=rng, dtype=torch.float64))
        weight, A, B = normal(rng, m, n), normal(rng, r, n), normal(rng, m, r)
        return {"weight": weight, "A": A, "B": B, "scale": scale, "merged": merged, "trainable": False, "calls": 1}

    def case(name: str, sizes: tuple[int, int, int], **more: Any) -> Case:
        return Case(name=name, inputs={**drawn(*sizes), **more})

    double = {key: each.double() if isinstance(each, Tensor) else each for key, each in drawn(3, 4, 2).items()}
    double["A"] += 2.0**-40
    half = {key: each.bfloat16() if isinstance(each, Tensor) else each for key, each in drawn(24, 20, 3).items()}
    return [
        case(USUAL, (3, 5, 2)),
        case(SQUARE, (3, 3, 3)),
        case(ONE, (4, 4, 1)),
        Case(name=DOUBLE, inputs=double),
        case(TRAINABLE, (4, 3, 2), trainable=True),
        case(TWICE, (3, 4, 2), calls=2),
        case(DONE, (3, 4, 2), merged=not merged),
        Case(name=HALF, inputs=half, hard=True),
        case(NOTHING, (3, 4, 2), B=torch.zeros(3, 2), scale=0.0),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The layer after one call, or two."""
    weight = inputs["weight"].detach()
    linear = nn.Linear(1, 1)
    linear.out_features, linear.in_features = weight.shape
    linear.weight = nn.Parameter(weight, requires_grad=inputs["trainable"])
    linear.bias = nn.Parameter(weight[:, 0].clone())
    layer = Adapted(linear, inputs["A"].detach().clone(), inputs["B"].detach().clone(), inputs["scale"])
    layer.merged = inputs["merged"]
    parameters = dict(layer.named_parameters())
    with kept_bytes() as meter:
        for _ in range(inputs["calls"]):
            answer(layer)
    after = dict(layer.named_parameters())
    left: dict[str, Any] = {name: after[name].detach().clone() for name in ("A", "B", "base.bias") if name in after}
    same = " ".join(f"{name}: {after.get(name) is each}" for name, each in parameters.items())
    same += f" memory: {layer.base.weight.data_ptr() == weight.data_ptr()}"
    flags = " ".join(f"{name}: {each.requires_grad}, {each.is_leaf}" for name, each in after.items())
    dtypes = " ".join(f"{name}: {after[name].dtype == weight.dtype}" for name in left)
    now = layer.base.weight.detach().clone()
    found: dict[str, Any] = {"weight": now, "merged": str(layer.merged), "scale": layer.scale}
    found |= {"same": same, "flags": flags, "dtypes": dtypes, "left": left, "kept": meter.bytes_alive()}
    return observe(found)


def _rounded_once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: half a rounding of the sum in the weight's dtype, and noise of a finer one."""
    seen, right = got["weight"], expected["weight"]
    assert isinstance(seen, Tensor)
    assert isinstance(right, Tensor)
    if seen.dtype != inputs["weight"].dtype:
        return f"the weight is in {seen.dtype} now, and was in {inputs['weight'].dtype}"
    noise = NOISE * EPS[torch.promote_types(inputs["weight"].dtype, torch.float32)] * right.abs().max()
    once = EPS[seen.dtype] / 2 * right.abs().frexp().exponent.sub(1).double().exp2()
    if bool(((seen.double() - right).abs() <= once + noise).all()):
        return None
    return f"a number of the weight differs from the exact one by more than one rounding of {seen.dtype}"


def properties(sum_of: str, after: str) -> tuple[Property, ...]:
    """All of them; `sum_of` is the formula of the new weight, and `after` what `merged` says then."""
    bits = functools.partial(Property, roundings=0)
    return (
        Property(
            "weight",
            f"The weight of base becomes {sum_of}, by an operation that ends in an underscore, or copy_. Where it "
            "requires a gradient, or A and B do, that takes torch.no_grad().",
            points=3,
            keys=("weight",),
            cases=(USUAL, SQUARE, ONE, TRAINABLE),
        ),
        Property(
            "says_so",
            f"layer.merged is {after} after the call, whatever it was before, and also where B or scale is 0.",
            keys=("merged",),
            cases=(USUAL, TRAINABLE, TWICE, NOTHING),
            needs=("weight",),
        ),
        Property(
            "twice_is_once",
            "A second call, and one on a layer where it is done already, must change nothing: look at layer.merged.",
            points=2,
            keys=("weight", "merged"),
            cases=(TWICE, DONE),
            needs=("weight",),
        ),
        Property(
            "same_parameters",
            "A parameter was replaced by another object, or its memory by another. Whoever holds the old one, an "
            "optimizer or a tied layer, would no longer hold the layer's: change the numbers in it.",
            points=2,
            keys=("same",),
            cases=(USUAL, DOUBLE, TRAINABLE, HALF, "in float16", STRIDED),
            needs=("weight",),
        ),
        bits(
            "factors_unchanged",
            "A, B, the bias and scale are afterwards what they were, in the dtype that they had: all are needed to "
            "take the adapter out again. Compute in a finer dtype with copies.",
            keys=("left/*", "scale", "dtypes"),
            cases=(USUAL, TRAINABLE, TWICE, HALF, DOUBLE),
            needs=("weight",),
        ),
        Property(
            "flags_and_graph",
            "A parameter requires a gradient now and did not before, or the other way round, or it hangs on a graph of "
            "autograd: torch.no_grad() around the sum is all it takes.",
            keys=("flags",),
            cases=(USUAL, TRAINABLE),
            needs=("weight",),
        ),
        Property(
            "nothing_kept",
            "A tensor that you made is still alive after the call: a copy of the weight, or B A, kept to undo the sum. "
            "That is the memory of a second weight in each layer.",
            keys=("kept",),
            cases=(USUAL, TRAINABLE, HALF),
            needs=("weight",),
        ),
        Property(
            "digits_of_float64",
            "Where the weight is in float64, the product and the sum are too: no .float() on the way.",
            keys=("weight",),
            cases=(DOUBLE,),
            needs=("weight",),
        ),
        Property(
            "rounded_once",
            "In half precision B A, its product with scale and the sum each lose digits. Compute all three in float32, "
            "and round where the weight is written.",
            points=2,
            holds=_rounded_once,
            cases=(HALF, "in float16"),
            needs=("weight",),
        ),
        every_form(needs=("weight",), keys=("weight",), roundings=4),
    )


TALL = 16 * torch.arange(1.0, 8.0)[:, None]  # far above what is added or taken off: nothing cancels
FORMS: tuple[Form, ...] = (
    strided("weight", of=USUAL),
    at_once("in float16", in_dtype(torch.float16, *FLOATS), of=SQUARE),
    put("a scale of 1", scale=1.0),
    put("one column", weight=TALL, A=torch.tensor([[0.75], [1.25]]), B=TALL / 64 + torch.tensor([[0.5, 0.75]])),
    put("one row, r = 1", weight=TALL.T.contiguous(), A=TALL.T / 64, B=torch.tensor([[0.75]])),
)
PROMISES = {
    "all in one floating dtype": ("in float16", HALF, DOUBLE),
    "weight (m, n)": ("one column", "one row, r = 1"),
    "may be a view": (STRIDED,),
    "r may be 1": (ONE,),
    "is changed in its own memory": ("weight", "same_parameters"),
    "no parameter is replaced": ("same_parameters",),
    "A, B and the bias are not changed": ("factors_unchanged",),
    "whether it requires a gradient": ("flags_and_graph",),
    "no graph": ("flags_and_graph",),
    "in float32, or in float64 where the weight is": ("rounded_once", "digits_of_float64"),
    "then rounded once to the dtype of the weight": ("rounded_once",),
    "no tensor outlives the call": ("nothing_kept",),
}
