"""`adapter_state(model)`: what a file of the adapter holds, and nothing beside it.

After the call each factor in the model is changed, and what was returned must not be; then the other way round.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from course.errors import WrongOutput
from course.exercises.lora.adapted_models import PATHS, alternate_modes, built, drawn, factors, modules_of
from course.lessons.adapted import Adapted
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    entries_of,
    is_tensor,
    observe,
)
from course.performing.forms import in_dtype, offset, strided, transposed

SEVERAL, NONE, ROOT, TWICE, TIED = (
    "several layers",
    "no adapter",
    "the model itself is adapted",
    "a layer at two places",
    "two adapters share a factor",
)
LIKE, FROZEN, MERGED, LATER = (
    "other parameters called A and B",
    "an adapter that is frozen",
    "a merged layer",
    "a class derived from Adapted",
)
DOUBLE, COARSE = "factors in float64", "factors finer than their bases"


def cases(rng: torch.Generator) -> list[Case]:
    """Models with adapters at some places, and with what is easily taken for one."""
    some = {
        SEVERAL: drawn(rng, *PATHS),
        NONE: drawn(rng, like=["scan.A"]),
        ROOT: drawn(rng, ""),
        TWICE: drawn(rng, *PATHS[:3], copies=[["again", PATHS[1]]]),
        TIED: drawn(rng, *PATHS[:2]),
        LIKE: drawn(rng, *PATHS[:2], like=["scan.A", "body.scan.B"]),
        FROZEN: drawn(rng, *PATHS[:3], frozen=[PATHS[1]]),
        MERGED: drawn(rng, *PATHS[:3], merged=[PATHS[1]]),
        LATER: drawn(rng, *PATHS[:2], later=[PATHS[1]]),
        DOUBLE: drawn(rng, *PATHS[:2]),
        COARSE: drawn(rng, *PATHS[:2], bases="bfloat16"),
    }
    some[DOUBLE] |= {name: [each.double() + 2.0**-40 for each in some[DOUBLE][name]] for name in "AB"}
    some[TIED]["A"][1], some[TIED]["B"][1] = some[TIED]["A"][0].clone(), some[TIED]["B"][0] + 1
    some[TIED]["tied"] = [[PATHS[1], PATHS[0]]]
    return [Case(name=name, inputs=inputs) for name, inputs in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """What is returned, how it lies in memory, and who shares this memory."""
    model = built(inputs)
    alternate_modes(model)
    before = _flags(model)
    given = answer(model)
    state = dict(entries_of(given)) if isinstance(given, dict) else {}
    others = [type(each).__name__ for each in state.values() if not is_tensor(each)]
    if others or not isinstance(given, dict):
        inside = f" with {others[0]} in it" if others else ""
        raise WrongOutput(f"must return a dict of tensors, got {type(given).__name__}{inside}")
    there = factors(model, inputs)
    values: dict[str, Any] = {
        "names": f"{len(state)}: {', '.join(map(str, state))}",
        "numbers": {name: each.detach().clone() for name, each in state.items()},
        "form": {name: _form(each) for name, each in state.items()},
        "bytes per byte": {name: _share(each) for name, each in state.items()},
        "model": {"flags": "as they were" if _flags(model) == before else "changed", "modules": modules_of(model)},
        "left": {name: each.detach().clone() for name, each in there.items()},
    }
    with torch.inference_mode():
        for each in {*there.values()}:
            each.add_(1)
        values["after the model changed"] = {name: each.detach().clone() for name, each in state.items()}
        for name, each in state.items():
            each.mul_(len(name))  # memory that two of them share would show
        values["after each was changed"] = {name: each.detach().clone() for name, each in state.items()}
        values["in the model then"] = {name: each.detach().clone() for name, each in there.items()}
    return observe(values)


def _flags(model: nn.Module) -> list[object]:
    parameters = [
        (name, id(p), p.requires_grad, p.dtype, p.data_ptr(), p.stride()) for name, p in model.named_parameters()
    ]
    modules = [(name, id(each)) for name, each in model.named_modules()]
    adapted = [each for each in model.modules() if isinstance(each, Adapted)]
    return [parameters, modules, [(each.merged, each.base.weight.tolist()) for each in adapted]]


def _form(tensor: Tensor) -> str:
    """How it lies and what hangs on it."""
    lies = "contiguous" if tensor.is_contiguous() else "not contiguous"
    return f"on the {tensor.device.type}, {lies}, {'requires a gradient' if tensor.requires_grad else 'no gradient'}"


def _share(tensor: Tensor) -> Tensor:
    """Bytes that are kept alive for each byte that is its own."""
    return torch.tensor(tensor.untyped_storage().nbytes() / tensor.nbytes)


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether each copy has its factor's dtype. The reference, performed in float64, is not asked."""
    for path, *pair in zip(inputs["paths"], inputs["A"], inputs["B"], strict=True):
        for name, factor in zip("AB", pair, strict=True):
            found = got[f"numbers/{path}.{name}" if path else f"numbers/{name}"]
            if isinstance(found, Tensor) and found.dtype != factor.dtype:
                return f"{path}.{name} in {found.dtype}, which is in {factor.dtype} in the model"
    return None


EXERCISE = Exercise(
    id="lora.adapter_state",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "numbers",
            "For each `Adapted` module, NAME.A and NAME.B with the numbers of its factors, in the order of "
            "named_modules().",
            points=2,
            keys=("names", "numbers/*"),
            roundings=0,
            cases=(SEVERAL, MERGED, LATER, FROZEN),
        ),
        Property(
            "the_adapter_alone",
            "What belongs to the adapter is said by the kind of module, not by a name or a flag: other modules may "
            "have an A, and a frozen adapter is one too.",
            keys=("names", "numbers/*"),
            roundings=0,
            cases=(LIKE, FROZEN, NONE),
            needs=("numbers",),
        ),
        Property(
            "each_module_once",
            "A module at two places comes once, under the first of its names. Two modules that share a factor both "
            "have their two keys.",
            points=2,
            keys=("names", "numbers/*"),
            roundings=0,
            cases=(TWICE, TIED),
            needs=("numbers",),
        ),
        Property(
            "the_model_itself",
            'The model has the name "": its keys are "A" and "B", without a dot, as in state_dict().',
            keys=("names", "numbers/*"),
            roundings=0,
            cases=(ROOT,),
            needs=("numbers",),
        ),
        Property(
            "copies",
            "Training goes on after the call. What was returned must not change with the model, nor the model with it, "
            "nor one tensor with another: each has memory of its own.",
            points=2,
            keys=("after the model changed/*", "after each was changed/*", "in the model then/*"),
            roundings=2,
            cases=(SEVERAL, TIED, FROZEN),
            needs=("numbers",),
        ),
        Property(
            "ready_for_a_file",
            "Each tensor is on the CPU, is contiguous, needs no gradient, and keeps no bytes alive but its own.",
            keys=("form/*", "bytes per byte/*"),
            roundings=0,
            cases=(SEVERAL,),
            needs=("numbers",),
        ),
        Property(
            "same_dtype",
            "Each copy has the dtype of its factor, whatever that of the base.",
            holds=_dtypes,
            cases=(SEVERAL, "in bfloat16", DOUBLE, COARSE),
            needs=("numbers",),
        ),
        Property(
            "every_digit",
            "A copy has all digits of its factor: in float64, and where the base is in half precision.",
            keys=("numbers/*",),
            roundings=0,
            cases=(DOUBLE, COARSE),
            needs=("numbers",),
        ),
        Property(
            "model_as_it_was",
            "The model goes on training: its parameters are the same ones, hold the same numbers, and still require "
            "gradients where they did, in the memory where they were. What is merged stays merged, and each module is "
            "in its mode.",
            keys=("model/*", "left/*"),
            roundings=0,
            cases=(SEVERAL, FROZEN, MERGED, "transposed tensors"),
            needs=("numbers",),
        ),
    ),
    hints=(
        "Which modules hold an adapter? How do you know one when you see it?",
        "Walk through named_modules() and ask isinstance(module, Adapted). What does `.detach()` share with the "
        "factor, and what does `.cpu()` do for a tensor that is on the CPU already?",
        "A new contiguous tensor of the factor's shape and dtype, into which the detached factor is copied.",
    ),
    forms=(
        in_dtype(torch.bfloat16, "A", "B"),
        strided("A", "B"),
        transposed("A", "B"),
        offset("A", "B"),
    ),
    promises={
        "for each module of the kind `Adapted`": ("numbers", LATER),
        "and nothing else": ("the_adapter_alone", NONE),
        "whether they train or not, merged or not": (FROZEN, MERGED),
        "may be of this kind itself: its names are A and B": ("the_model_itself",),
        "comes once, by the first of its names": ("each_module_once",),
        "both have both of their keys": (TIED,),
        "on the CPU, contiguous, without a gradient": ("ready_for_a_file", "transposed tensors"),
        "in memory of its own, of no more bytes than it needs": (
            "copies",
            "ready_for_a_file",
            "pieces of a longer tensor",
        ),
        "in any floating dtype, which is kept": ("same_dtype", "every_digit"),
        "The model is not changed": ("model_as_it_was",),
    },
)
