"""`master_step(p16, p32, g16, lr)`: one plain step on float32 masters; half-precision parameters are their roundings.

All numbers are whole multiples of 2^-22 and fit into float32 with their products, so every order of operations gives
the same bits, and float64 too: but for `TIE`, where float16 must be rounded from what float32 holds.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from course.performing.compare import as_numbers, describe
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Form,
    Inputs,
    Observation,
    Property,
    Values,
    every_form,
    observe,
)
from course.performing.forms import LAYOUTS, at_once, inside, put

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
RATE = 2459 / 2**18  # twelve bits, one too many for float16; times a gradient's six far too many
TINY, LONG = 2.0**-13, 1000
TIE = "masters at a tie of float16"
SHAPES: list[tuple[int, ...]] = [(8, 5), (240,)]  # of 16 numbers one is another where it is rounded twice


def cases(rng: torch.Generator) -> list[Case]:
    """One step in each half precision, and a thousand that are each below half a gap.

    Masters have more digits than half precision holds, products of rate and gradient too. A single step is longer than
    a gap, so that it is seen in the parameters.
    """

    def whole(low: int, high: int, shape: tuple[int, ...]) -> Tensor:
        signs = 2 * torch.randint(0, 2, shape, generator=rng) - 1
        return signs * torch.randint(low, high, shape, generator=rng)

    def case(name: str, dtype: str, **more: Any) -> Case:
        inputs: dict[str, Any] = {
            "masters": [(2 * whole(2**20, 2**21, shape) + 1) / 2**22 for shape in SHAPES],
            "grads": [(2 * whole(8, 31, (1, *shape)) + 1) / 2**4 for shape in SHAPES],
            "dtype": dtype,
            "grads_in": dtype,
            "lr": RATE,
            "lies": "",
            "stale": False,
        }
        return Case(name=name, inputs=inputs | more)

    ones: dict[str, Any] = {
        "masters": [torch.ones(3)],
        "grads": [torch.tensor([1.0, -2.0, 0.5]).expand(LONG, 3).clone()],
        "lr": TINY,
    }
    tie: dict[str, Any] = {  # what is left is a tie in float32; in float64 it lies 2^-30 above
        "masters": [torch.full(shape, 1 + 2.0**-11 + 2.0**-23) for shape in SHAPES],
        "grads": [torch.full((1, *shape), 127 / 128) for shape in SHAPES],
        "lr": 2.0**-23,
    }
    large = [(2 * whole(2**22, 2**23 - 2**19, shape) + 1) / 2**6 for shape in SHAPES]
    fine = [(2 * whole(2**13, 2**15, (1, *shape)) + 1) / 2**14 for shape in SHAPES]
    return [
        case("one step in bfloat16", "bfloat16"),
        case("one step in float16", "float16"),
        case("a thousand tiny steps", "bfloat16", **ones),
        case("gradients in float32", "float16", grads_in="float32", grads=fine, lr=2.0**-4),
        case("weights beyond float16", "bfloat16", masters=large, lr=1024.0),
        case(TIE, "float16", **tie),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """As many calls as there are gradients; what the memory of all tensors holds is looked at after the last."""
    dtype, lies = DTYPES[inputs["dtype"]], inputs["lies"]
    others = "strided" if lies == "strided" else ""
    masters = [_laid_out(each.float(), others) for each in inputs["masters"]]
    params = [_laid_out((each * torch.nan if inputs["stale"] else each).to(dtype), lies) for each in inputs["masters"]]
    grads = [_laid_out(each.to(DTYPES[inputs["grads_in"]]), others) for each in inputs["grads"]]
    held = {name: [each.detach() for each in tensors] for name, tensors in (("p16", params), ("p32", masters))}
    for t in range(len(grads[0])):
        answer(list(params), list(masters), [each[t] for each in grads], inputs["lr"])
    held |= {"g16": grads}
    seen: dict[str, Any] = {name: [each.double() for each in tensors] for name, tensors in held.items()}
    return observe({**seen, "trained": [str(each.requires_grad) for each in params + masters]})


def _laid_out(tensor: Tensor, lies: str) -> Tensor:
    """A copy that lies in memory as said; without a word it is a piece of a longer tensor, as in a flat buffer."""
    return cast(Tensor, LAYOUTS[lies](copy.deepcopy(tensor))) if lies else inside(tensor)


def _rounded(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """States that each parameter is the rounding of its master as the answer left it, if that has moved."""
    for at, start in enumerate(inputs["masters"]):
        half, master = as_numbers(got[f"p16/{at}"]), as_numbers(got[f"p32/{at}"])
        if half is None or master is None or half.shape != master.shape:
            return f"{describe(got[f'p16/{at}'])}, which cannot be read as parameters"
        if torch.equal(master, start.double()):
            return f"p32[{at}], a master, as it was before"
        wrong = half != master.float().to(DTYPES[inputs["dtype"]]).double()
        if bool(wrong.any()):
            return (
                f"{describe(half[wrong][0])} in p16[{at}], where the master is {describe(master[wrong][0], digits=9)}"
            )
    return None


ONE_STEP = ("one step in bfloat16", "one step in float16")
MASTERS, ROUNDINGS, SUMS = "masters_move", "parameters_are_roundings_of_masters", "tiny_steps_add_up"
BOTH = ("p16/*", "p32/*")
LEAVES, VIEWS = "parameters that require a gradient", "views that are not contiguous"
AT_A_RATE_OF_0 = "inf and nan at a rate of 0"
SMALL, STALE, ENDLESS = "one number, of shape (), and none", "a rate of 0, parameters out of step", "inf and nan"
ZEROS = "gradients of 0, parameters out of step"
exactly = partial(Property, roundings=0)


def _with_inf_and_nan(case: Case) -> Case:
    """The first gradients are not finite."""
    first, *others = cast(list[Tensor], case.inputs["grads"])
    spoilt = first.clone()
    spoilt.view(-1)[:3] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    return replace(case, inputs={**case.inputs, "grads": [spoilt, *others]})


def _small(case: Case) -> Case:
    """Of the first tensors one number is left, of the others none."""
    (master, *masters), (grad, *grads) = (cast(list[Tensor], case.inputs[name]) for name in ("masters", "grads"))
    small: dict[str, Any] = {
        "masters": [master[0, 0], *(each[:0] for each in masters)],
        "grads": [grad[:, 0, 0], *(each[:, :0] for each in grads)],
    }
    return replace(case, inputs={**case.inputs, **small})


EXERCISE = Exercise(
    id="mixed_precision.master_step",
    cases=cases,
    probe=probe,
    properties=(
        exactly(
            MASTERS,
            "Each master loses lr times the gradient, in its own memory and in float32: `lr * g` of a gradient in "
            "half precision is in half precision too, and has lost digits before it reaches the master.",
            points=2,
            keys=("p32/*",),
            cases=ONE_STEP,
        ),
        Property(
            ROUNDINGS,
            "After the step each parameter holds what its master rounds to, in the parameter's own memory: "
            "p.copy_(master) rounds to nearest. An assignment to a name, to a place in the list or to .data does not.",
            holds=_rounded,
            cases=(*ONE_STEP, TIE),
        ),
        exactly(
            SUMS,
            "A thousand steps, each below half a gap of the parameter, must move it. They add up in the master, so "
            "nothing but the step may write to it, and the next step begins from it.",
            keys=BOTH,
            cases=("a thousand tiny steps",),
        ),
        exactly(
            "gradients_in_float32",
            "A gradient may come in float32, and then all of its digits count. Do not round it to the parameter's "
            "dtype.",
            keys=BOTH,
            cases=("gradients in float32",),
            needs=(MASTERS,),
        ),
        exactly(
            "weights_beyond_float16",
            "These are parameters in bfloat16 beyond 65504. Round to the parameter's own dtype: .half() is float16, "
            "and ends there.",
            keys=BOTH,
            cases=("weights beyond float16",),
            needs=(MASTERS,),
        ),
        exactly(
            "gradients_unchanged",
            "A gradient was changed in place (mul_, *=). It belongs to the caller, who may report its norm or add to "
            "it: work on a new tensor.",
            keys=("g16/*",),
            needs=(MASTERS,),
        ),
        every_form(needs=(MASTERS,), keys=(*BOTH, "trained/*"), roundings=0),
    ),
    hints=(
        "Two things change in a step. Which of them decides, and which only follows?",
        "Per parameter two lines: the first changes the master, the second the parameter. Which dtype does the "
        "product have when both factors are in half precision, or one is a Python number?",
        "Under torch.no_grad(), because parameters may require a gradient: subtract lr times the gradient in float32 "
        "from the master with an operation in place, then copy the master into the parameter, which rounds.",
    ),
    forms=(
        put(LEAVES, lies="leaf", of="one step in float16"),
        put(VIEWS, lies="strided"),
        at_once(SMALL, Form(name="small", change=_small), of="gradients in float32"),
        put(STALE, lr=0.0, stale=True, of="one step in float16"),
        put(ZEROS, grads=[torch.zeros(1, *shape) for shape in SHAPES], stale=True, of="one step in float16"),
        Form(name=ENDLESS, change=_with_inf_and_nan),
        at_once(AT_A_RATE_OF_0, Form(name="spoilt", change=_with_inf_and_nan), put("rate", lr=0.0)),
    ),
    promises={
        "all float16 or all bfloat16": ONE_STEP,
        "of any shapes, () and empty ones too": (SMALL,),
        "views too": (VIEWS,),
        "they may require a gradient, and still do so afterwards": (LEAVES,),
        "What they hold before the step does not matter": (STALE, ZEROS),
        "float32, the masters of p16: one for each": (MASTERS, SUMS),
        "in p16's dtype, as backward leaves them, or in float32": (*ONE_STEP, "gradients_in_float32"),
        "inf and nan count like other numbers": (ENDLESS, AT_A_RATE_OF_0),
        "They are not changed": ("gradients_unchanged",),
        "at least 0": (STALE,),
        "both in the tensors' own memory": (MASTERS, ROUNDINGS, VIEWS),
        "p32 holds p32 - lr g16, computed in float32 or finer": (MASTERS, "gradients_in_float32"),
        "p16 the nearest numbers to p32": (ROUNDINGS, "weights_beyond_float16", TIE),
    },
)
