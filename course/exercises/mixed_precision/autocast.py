"""`Autocast`: operators in the precision of CUDA's lists, and each weight cast once per pass.

Inputs are small integers, some with a part that half precision drops, so that every product and sum of what is cast
is exact, in any order. The reference is performed on float64 inputs: the probe makes float32 and half precision of
them itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from course.errors import WrongOutput
from course.meter import metered
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.tree import Tree

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
PRODUCTS = tuple(f"products in {half}" for half in HALF)
DROPPED = 2.0**-12  # of an integer from 1 to 3: below a half rounding of float16 and of bfloat16
COPIES = ("_to_copy", "copy_", "clone")
Run = Callable[..., Any]


def cases(rng: torch.Generator) -> list[Case]:
    """One for each list, for what stays, for weights, for gradients, and for what a pass leaves behind."""

    def integers(*shape: int) -> Tensor:
        """From 1 to 3 with a sign."""
        sizes, signs = (torch.randint(0, high, shape, generator=rng) for high in (3, 2))
        return (sizes + 1.0) * (2 * signs - 1)

    def case(name: str, asks: str, half: str) -> Case:
        inputs: dict[str, Any] = {"asks": asks, "half": half}
        inputs["x"], inputs["w"], inputs["v"] = (integers(*shape) * (1 + DROPPED) for shape in ((3, 4), (4, 4), (4, 4)))
        inputs["b"], inputs["change"] = integers(4), 7 * integers(4, 4)
        inputs["targets"] = torch.randint(0, 4, (3,), generator=rng)
        return Case(name=name, inputs=inputs)

    return [
        *(case(name, "products", half) for name, half in zip(PRODUCTS, HALF, strict=True)),
        case("softmax, norms, sums and losses", "high", "bfloat16"),
        case("inputs that must agree", "widest", "float16"),
        case("operators in no list", "unlisted", "bfloat16"),
        case("float64 and integers", "left", "bfloat16"),
        case("a weight used three times", "weights", "float16"),
        case("gradients", "gradients", "bfloat16"),
        case("evaluated first", "evaluated", "float16"),
        case("changed between two passes", "passes", "bfloat16"),
        case("a pass that ended in an error", "error", "float16"),
        case("an activation changed in place", "changed", "bfloat16"),
        case("after a pass", "after", "bfloat16"),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One scenario. float32 tensors x (3, 4), w and v (4, 4) and b (4,), and `h`, x in half precision."""
    half, scenario = HALF[inputs["half"]], SCENARIOS[inputs["asks"]]
    given = {name: inputs[name].float() for name in ("x", "w", "v", "b", "change")}
    weights = {name: given[name].requires_grad_() for name in ("w", "v", "b")}
    made = answer(half)
    return observe(scenario(made, {**given, **weights, "h": given["x"].to(half), "targets": inputs["targets"]}))


def _seen(result: Any) -> dict[str, Tree]:
    """A result and its dtype. Raises WrongOutput where `run` returned no tensor."""
    if not isinstance(result, Tensor):
        raise WrongOutput(f"`run` must return what the operator returns, a tensor here, got {type(result).__name__}")
    return {"y": result.detach().clone(), "dtype": str(result.dtype)}


def _came(made: Any, call: tuple[Any, ...]) -> dict[str, Tree]:
    """Where an operator refuses its inputs, the others still show what they get."""
    try:
        return _seen(made.run(*call))
    except NotImplementedError:
        raise
    except RuntimeError as error:
        return {"y": f"RuntimeError: {str(error).partition('.')[0][:100]}", "dtype": "none"}


def _all_seen(cast_: Any, calls: dict[str, tuple[Any, ...]]) -> dict[str, Tree]:
    """What each call gives, and the dtypes of all that it was given, as it left them, and whether numbers changed."""
    given = [each for call in calls.values() for each in call if isinstance(each, Tensor)]
    before = [each.detach().clone() for each in given]
    with cast_ as made:
        found: dict[str, Any] = {name: _came(made, call) for name, call in calls.items()}
    same = all(torch.equal(a.double(), b.double()) for a, b in zip(before, given, strict=True))
    return {**found, "after": {"dtypes": " ".join(str(each.dtype) for each in given), "same numbers": same}}


def _bytes(name: str) -> Run:
    """An operator with the name of one in torch. It gives the bytes per number in each tensor that it gets."""

    def run(*args: Any) -> Tensor:
        """In lists and tuples too."""
        given = [each for arg in args for each in (arg if isinstance(arg, (list, tuple)) else [arg])]
        return torch.tensor([float(each.itemsize) for each in given])

    run.__name__ = name
    return run


def _products(cast_: Any, t: Inputs) -> dict[str, Tree]:
    calls = {
        "matmul": (torch.matmul, t["x"], t["w"]),
        "linear": (F.linear, t["x"], t["w"], t["b"]),
        "linear on half": (F.linear, t["h"], t["v"]),
        "bmm": (torch.bmm, t["x"][None], t["v"].t()[None]),
        "addmm": (torch.addmm, t["b"], t["h"], t["w"]),
        "addmm with one number": (torch.addmm, t["b"].detach()[0], t["h"], t["w"]),
        "bytes per number in a list and a tuple that einsum gets": (_bytes("einsum"), [t["h"], t["x"]], (t["x"],)),
        "linear, v.T on the memory of v": (F.linear, t["h"], t["v"].detach().t().requires_grad_()),
    }
    return _all_seen(cast_, calls)


def _high(cast_: Any, t: Inputs) -> dict[str, Tree]:
    h, small = t["h"], t["h"] / 8
    calls = {
        "softmax": (F.softmax, small, -1),
        "log_softmax": (F.log_softmax, h, 1),
        "layer_norm": (F.layer_norm, h, (4,), t["b"], None),
        "cross_entropy": (F.cross_entropy, small, t["targets"]),
        "mse_loss": (F.mse_loss, small, t["x"]),
        "sum": (torch.sum, small * 257, 0),
        "exp": (torch.exp, small),
        "log": (torch.log, h.abs()),
        "pow": (torch.pow, small + 3, 3),
        "norm": (torch.norm, h),
        "float32 stays": (torch.exp, t["x"] / 8),
        "bytes per number in a list and a tuple that logsumexp gets": (_bytes("logsumexp"), [h, h], (h, h), h),
    }
    return _all_seen(cast_, calls)


def _widest(cast_: Any, t: Inputs) -> dict[str, Tree]:
    h, x = t["h"], t["x"]
    calls = {
        "addcmul, one in float32": (torch.addcmul, h, x, h),
        "addcmul, all in half": (torch.addcmul, h, h, h),
        "dot, float32 first": (torch.dot, x[0], h[1]),
        "dot, float32 last": (torch.dot, h[0], t["b"]),
        "tensordot": (torch.tensordot, h, t["w"].detach(), 1),
        "atan2 in float32": (torch.atan2, x, x + 1),
        "atan2, one number in float32": (torch.atan2, h[0], x[0, 0]),
        "bilinear, float32 third": (F.bilinear, h, h, t["w"].detach()[None], t["b"].detach()[:1].to(h.dtype)),
    }
    return _all_seen(cast_, calls)


def _unlisted(cast_: Any, t: Inputs) -> dict[str, Tree]:
    h, x = t["h"], t["x"]
    calls = {
        "relu of half": (F.relu, h),
        "relu of float32": (torch.relu, x),
        "half and float32 added": (torch.add, h, x),
        "half added": (torch.add, h, h),
        "a product by elements": (torch.mul, x, t["b"]),
        "max of half": (torch.amax, h, 1),
        "bytes per number that exp_ gets": (_bytes("exp_"), h),
        "bytes per number that mvlgamma gets": (_bytes("mvlgamma"), x),
        "bytes per number in a list and a tuple that cat gets": (_bytes("cat"), [h, x], (x, x)),
    }
    return _all_seen(cast_, calls)


def _left(cast_: Any, t: Inputs) -> dict[str, Tree]:
    x, whole = t["x"].double() + 2.0**-40, t["x"].long()
    calls = {
        "linear in float64": (F.linear, x, t["w"].double()),
        "softmax in float64": (F.softmax, x / 8, -1),
        "addcmul, one in float64": (torch.addcmul, x, t["h"], t["x"]),
        "bytes per number that addcmul gets": (_bytes("addcmul"), t["h"], x, t["x"]),
        "bytes per number that atan2 gets, none in float32": (_bytes("atan2"), t["h"], x),
        "matmul of integers": (torch.matmul, whole, whole.t()),
        "sum of integers": (torch.sum, whole, 0),
        "sum of booleans": (torch.sum, whole > 0),
    }
    return _all_seen(cast_, calls)


def _copies(trace: list[Any]) -> int:
    """How many floating tensors were copied, cast or not, or went from float32 into half precision by another op."""
    return sum(
        (op.name in COPIES and any(each.is_floating_point for each in op.inputs))
        or (torch.float32 in op.inputs and any(each in HALF.values() for each in op.outputs))
        for op in trace
    )


def _weights(cast_: Any, t: Inputs) -> dict[str, Tree]:
    """w three times and v once in one pass, on activations in half precision, in float32 and of another operator; then
    each row of v, and one number, in turns.
    """
    rows, one = ([each.clone().requires_grad_() for each in t[name].detach()] for name in "vb")
    with metered() as meter, cast_ as made:
        y = made.run(F.linear, t["h"], t["w"], t["b"])
        y = made.run(torch.add, made.run(torch.matmul, t["x"], t["w"]), y)
        y = made.run(torch.add, made.run(F.linear, y, t["v"]), made.run(F.linear, t["x"], t["w"]))
        y = made.run(torch.sum, y, 1)
        for row in rows * 2:
            y = made.run(torch.add, y, made.run(torch.matmul, t["h"], row))
            y = made.run(torch.add, y, made.run(torch.addmm, one[0], t["h"], t["w"])[:, 0])
        y = made.run(torch.sum, y, 0)
        found = _seen(y)
        casts = _copies(meter.trace) - 1  # that of `_seen`
    return {**found, "casts": casts}


def _gradients(cast_: Any, t: Inputs) -> dict[str, Tree]:
    x = t["x"].requires_grad_()
    with cast_ as made:
        y = made.run(F.linear, made.run(torch.matmul, x, t["w"]), t["v"], t["b"])
        loss = made.run(torch.sum, made.run(torch.add, y, made.run(F.linear, x, t["w"])))
    return _grads(loss, {"x": x, "w": t["w"], "v": t["v"], "b": t["b"]})


def _grads(loss: Tensor, leaves: dict[str, Tensor]) -> dict[str, Tree]:
    """The gradient that each leaf gets; what gets none shows it by "none"."""
    if loss.requires_grad:
        torch.autograd.backward(loss)
    return {name: "none" if leaf.grad is None else _seen(leaf.grad) for name, leaf in leaves.items()}


def _evaluated(cast_: Any, t: Inputs) -> dict[str, Tree]:
    """A weight twice without recording, and twice with it, in one pass; then another one on the same memory."""
    twin = t["w"].detach().requires_grad_()
    with metered() as meter, cast_ as made:
        with torch.no_grad():
            before = made.run(F.linear, made.run(F.linear, t["h"], t["w"]), t["w"])
        loss = made.run(torch.sum, made.run(torch.add, before, made.run(F.linear, t["h"], t["w"])))
        loss = made.run(torch.add, loss, made.run(torch.sum, made.run(torch.matmul, t["h"], t["w"])))
        casts = _copies(meter.trace)
        loss = made.run(torch.add, loss, made.run(torch.sum, made.run(F.linear, t["h"], twin)))
    return {"before": _seen(before), "casts": casts, **_grads(loss, {"w": t["w"], "twin": twin})}


def _passes(cast_: Any, t: Inputs) -> dict[str, Tree]:
    found = []
    for _ in range(3):
        with cast_ as made:
            found.append(_seen(made.run(F.linear, t["h"], t["w"])))
        with torch.no_grad():
            t["w"] += t["change"]
    return {"passes": cast(Tree, found)}


def _error(cast_: Any, t: Inputs) -> dict[str, Tree]:
    """An operator fails in the first pass: the caller gets the error, mends the weight and begins again."""
    came = "nothing"
    try:
        with cast_ as made:
            made.run(F.linear, t["h"], t["w"])
            made.run(torch.matmul, t["x"], t["x"])
    except RuntimeError as error:
        came = type(error).__name__
    with torch.no_grad():
        t["w"] += t["change"]
    with cast_ as made:
        return {"came": came, **_seen(made.run(F.linear, t["h"], t["w"]))}


def _changed(cast_: Any, t: Inputs) -> dict[str, Tree]:
    """A buffer filled anew, a frozen nn.Parameter and a leaf in half precision changed; a result with a
    history added to.
    """
    small = t["h"].clone().requires_grad_()
    buffer, residual = t["x"].clone(), t["x"] @ t["w"]
    frozen = torch.nn.Parameter(t["v"].detach().clone(), requires_grad=False)
    found = []
    with cast_ as made:
        for _ in range(2):
            found += [_seen(made.run(F.linear, buffer, frozen)), _seen(made.run(torch.matmul, residual, t["v"]))]
            found += [_seen(made.run(torch.pow, small, 2))]
            with torch.no_grad():
                small.mul_(3)
            buffer.add_(3)
            frozen.add_(5)
            residual[:, :1] += 7
    return {"results": cast(Tree, found)}


def _after(cast_: Any, t: Inputs) -> dict[str, Tree]:
    """Bytes that are left of passes whose results nobody holds, the second with an error; no graph holds any either."""
    with torch.no_grad(), metered() as meter:
        with cast_ as made:
            found = _seen(made.run(F.linear, t["x"], t["w"]))
        numbers, dtype = cast(Tensor, found.pop("y")).tolist(), found.pop("dtype")
        kept = meter.kept()
        with contextlib.suppress(RuntimeError), cast_ as made:
            made.run(F.linear, t["h"], t["v"])
            made.run(torch.matmul, t["h"], t["h"])
        failed = meter.kept()
    return {"y": torch.tensor(numbers), "dtype": dtype, "kept": kept, "kept after an error": failed}


SCENARIOS: dict[str, Callable[[Any, Inputs], dict[str, Tree]]] = {
    "products": _products,
    "high": _high,
    "widest": _widest,
    "unlisted": _unlisted,
    "left": _left,
    "weights": _weights,
    "gradients": _gradients,
    "evaluated": _evaluated,
    "passes": _passes,
    "error": _error,
    "changed": _changed,
    "after": _after,
}


def _no_more_casts(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes."""
    made, needed = got["casts"], expected["casts"]
    if isinstance(made, int) and isinstance(needed, int) and made <= needed:
        return None
    return f"{made} tensors were cast or copied, where {needed} casts are enough"


EXERCISE = Exercise(
    id="mixed_precision.Autocast",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "products_low",
            "An operator in LOW gets all its floating tensors in the dtype of the constructor: activations, weights "
            "and biases, once rounded.",
            points=2,
            cases=PRODUCTS,
        ),
        Property(
            "sensitive_ones_high",
            "An operator in HIGH gets its floating tensors in float32, and its result stays in float32. What is not a "
            "tensor (a dimension, a list, None) and class numbers go in as they are.",
            points=2,
            cases=("softmax, norms, sums and losses",),
        ),
        Property(
            "widest_agree",
            "For an operator in WIDEST look at all floating tensors first: where one is in float32, the others are "
            "cast to float32; where none is, nothing is cast.",
            cases=("inputs that must agree",),
            needs=("products_low",),
        ),
        Property(
            "others_as_they_come",
            "An operator in none of the three lists runs on its tensors as they come; torch promotes where it must.",
            cases=("operators in no list",),
            needs=("products_low",),
        ),
        Property(
            "float64_and_integers_stay",
            "Only float32 and half precision are cast. float64, integers and booleans go through every operator as "
            "they are.",
            cases=("float64 and integers",),
            needs=("products_low",),
        ),
        Property(
            "given_tensors_stay",
            "A tensor of the caller has another dtype after the call, or other numbers. `.to` makes a new one; do not "
            "write to .data.",
            keys=("after/*",),
            cases=(*PRODUCTS, "softmax, norms, sums and losses"),
            needs=("products_low", "sensitive_ones_high"),
        ),
        Property(
            "gradients_in_float32",
            "The cast belongs to the graph: backward goes through it, and each weight gets its gradient in float32. "
            "No detach, no .data; and a cast that is kept must have been recorded, whatever its first use was.",
            points=2,
            cases=("gradients", "evaluated first"),
        ),
        Property(
            "weights_cast_once",
            "In one pass a weight is cast at its first use and never again, with and without torch.no_grad(), and a "
            "tensor that has the right dtype is not copied. Keep the casts of all weights, whatever their shape, in a "
            "dict on the object.",
            points=2,
            holds=_no_more_casts,
            cases=("a weight used three times", "evaluated first"),
            needs=("products_low", "sensitive_ones_high"),
        ),
        Property(
            "each_pass_anew",
            "The optimizer changes weights between passes. A cast from an earlier pass is out of date: drop all of "
            "them where the pass ends, also where it ends in an error, which goes on to the caller.",
            points=2,
            cases=("changed between two passes", "a pass that ended in an error"),
            needs=("products_low",),
        ),
        Property(
            "activations_cast_anew",
            "What is no weight may change within a pass: a buffer that is filled anew, a residual that is added to. "
            "Keep casts of float32 leaves that require a gradient, and of nothing else.",
            cases=("an activation changed in place",),
            needs=("products_low",),
        ),
        Property(
            "nothing_kept",
            "After the pass the object still holds tensors: half a copy of the model. Let go of them in __exit__, also "
            "where the pass ended in an error.",
            keys=("kept*",),
            roundings=0,
            cases=("after a pass",),
            needs=("products_low", "weights_cast_once"),
        ),
    ),
    hints=(
        "Which dtype should the inputs have, if you know the operator's list? And which inputs are cast at all?",
        "Write one method that gives the target dtype for an operator, and one that casts one tensor to it. Only the "
        "second knows the dict of casts. What identifies a weight: its numbers, its shape, or the tensor itself?",
        "In the second: return the tensor if it is float64, no floating tensor, or in the target already. A weight on "
        "its way to half precision is looked up in the dict, and put there if it is missing, with gradients recorded. "
        "Everything else: `.to(target)`. __exit__ empties the dict.",
    ),
    promises={
        "torch.float16 or torch.bfloat16": PRODUCTS,
        "a pass, which ends with the block": ("each_pass_anew", "a pass that ended in an error"),
        "floating tensors are cast to half": ("products_low",),
        "floating tensors are cast to float32; the result is returned as it is": ("sensitive_ones_high",),
        "floating tensors are cast to float32 where any": ("widest_agree",),
        "in no list": ("others_as_they_come",),
        "float64, integers, booleans": ("float64_and_integers_stay",),
        "is cast once in a pass": ("weights_cast_once",),
        "may change in place": ("activations_cast_anew",),
        "in float32, also where": ("gradients", "evaluated first"),
        "Nothing is kept": ("nothing_kept",),
        "as they were": ("given_tensors_stay",),
    },
    removes=("torch.autocast", "torch.amp"),
    seconds=3.0,
)
