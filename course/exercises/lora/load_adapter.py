"""`load_adapter(model, state)`: the numbers of a file into the factors that are there, all of them or none.

After the call the tensors of the state are changed, and the factors in the model must not be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.lora.adapted_models import PATHS, alternate_modes, built, drawn, factors, modules_of
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.forms import at_once, in_dtype, leaves, strided, transposed

SEVERAL, ORDER, ROOT, TWICE, LIKE, FROZEN, LATER = (
    "several layers",
    "a state in another order",
    "the model itself is adapted",
    "a layer at two places",
    "other parameters called A and B",
    "an adapter that is frozen",
    "a class derived from Adapted",
)
MISSING, UNEXPECTED, SHAPE, BROADCAST, TURNED, FLAT = (
    "a key is missing",
    "a key is unexpected",
    "another r",
    "a shape that broadcasts",
    "a transposed factor",
    "as many numbers in another shape",
)
MERGED, MANY, EMPTY, BASE, SECOND = (
    "a merged layer",
    "all of this at once",
    "an empty state",
    "the state of a whole model",
    "the second name of a layer at two places",
)
TIED, NOTHING, DOUBLE, COARSE, WHOLE = (
    "two adapters share a factor",
    "no adapter and an empty state",
    "all in float64",
    "factors finer than the rest of the model",
    "the model itself is merged",
)
USUAL = (SEVERAL, ORDER, ROOT, TWICE, LIKE, FROZEN, LATER)
ONE_SLIP, SHAPES = (MISSING, UNEXPECTED, EMPTY, BASE, SECOND), (SHAPE, BROADCAST, TURNED, FLAT)
WRONG = (*ONE_SLIP, *SHAPES, MERGED, MANY)


def cases(rng: torch.Generator) -> list[Case]:
    """States that fit, and such that do not, each in its own way."""

    def model(name: str, *paths: str, **others: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """A model, and a state that fits it."""
        inputs = drawn(rng, *paths, **others)
        pairs = [(each, inputs[each][at]) for at in range(len(paths)) for each in ("A", "B")]
        names = [f"{path}.{each}".removeprefix(".") for path in paths for each in ("A", "B")]
        state = {whole: normal(rng, *old.shape) for whole, (_, old) in zip(names, pairs, strict=True)}
        return inputs, state

    def case(name: str, made: tuple[dict[str, Any], dict[str, Tensor]], *wrong: str) -> Case:
        inputs, state = made
        values = {"names": list(state), "values": list(state.values()), "wrong": list(wrong)}
        return Case(name=name, inputs=inputs | values)

    def slip(name: str, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], *wrong: str, **more: Any) -> Case:
        inputs, state = model(name, *PATHS[:3], **more)
        return case(name, (inputs, change(state)), *wrong)

    first, second, last = PATHS[:3]
    one, other = f"{second}.A", f"{last}.B"

    def without(*names: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
        return lambda state: {name: each for name, each in state.items() if name not in names}

    def shaped(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
        return lambda state: {**state, name: change(state[name]).contiguous()}

    strange, r = "layers.7.q.A", 5

    def all_at_once(state: dict[str, Tensor]) -> dict[str, Tensor]:
        b = shaped(f"{last}.B", lambda each: normal(rng, len(each), r))(state)
        return without(f"{last}.A")({strange: torch.ones(2, 6), **b, "layers.7.q.B": torch.ones(6, 2)})

    shared, shares = model(TIED, *PATHS[:2])
    shared["A"][1], shared["B"][1] = shared["A"][0].clone(), shared["B"][0] + 1
    shares |= {f"{second}.A": shares[f"{first}.A"].clone(), f"{second}.B": shares[f"{first}.B"] - 1}
    exact, digits = model(DOUBLE, *PATHS[:2])
    exact |= {name: [each.double() for each in exact[name]] for name in "AB"}
    inputs, state = model(ORDER, *PATHS)
    ordered = {name: state[name] for name in sorted(state, key=lambda name: (name[::-1], name))}
    weight = {f"{first}.base.weight": torch.ones(8, 6), "embed.weight": torch.ones(3, 4)}
    return [
        case(SEVERAL, model(SEVERAL, *PATHS)),
        case(ORDER, (inputs, ordered)),
        case(ROOT, model(ROOT, "")),
        case(TWICE, model(TWICE, *PATHS[:3], copies=[["again", PATHS[1]]])),
        case(LIKE, model(LIKE, *PATHS[:2], like=["scan.A", "body.scan.B"])),
        case(FROZEN, model(FROZEN, *PATHS[:3], frozen=[PATHS[1]])),
        case(LATER, model(LATER, *PATHS[:2], later=[PATHS[1]])),
        case(TIED, (shared | {"tied": [[second, first]]}, shares)),
        case(NOTHING, model(NOTHING, like=["scan.A"])),
        case(DOUBLE, (exact, {name: each.double() + 2.0**-40 for name, each in digits.items()})),
        case(COARSE, model(COARSE, *PATHS[:2], bases="bfloat16", coarse=[PATHS[0]])),
        slip(MISSING, without(other), other),
        slip(UNEXPECTED, lambda state: {**state, strange: torch.ones(2, 6)}, strange),
        slip(SHAPE, shaped(one, lambda each: torch.cat([each, each])), one),
        slip(BROADCAST, shaped(one, lambda each: each[:1]), one),
        slip(TURNED, shaped(other, lambda each: each.t()), other),
        slip(FLAT, shaped(other, lambda each: each.flatten()), other),
        slip(MERGED, lambda state: state, second, merged=[second]),
        case(WHOLE, model(WHOLE, "", merged=[""]), ""),
        slip(
            MANY,
            all_at_once,
            *(strange, "layers.7.q.B", f"{last}.A", f"{last}.B", second),
            merged=[second],
        ),
        slip(EMPTY, lambda state: {}, *(f"{path}.{each}" for path in PATHS[:3] for each in "AB")),
        slip(BASE, lambda state: {**state, **weight}, *weight),
        slip(
            SECOND,
            lambda state: {**state, "again.A": state[f"{second}.A"] + 1, "again.B": state[f"{second}.B"] + 1},
            *("again.A", "again.B"),
            copies=[["again", second]],
        ),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """What the factors hold after the call, and after the state has changed; or what was raised."""
    model = built(inputs)
    alternate_modes(model)
    there = factors(model, inputs)
    flags = {name: (id(p), p.data_ptr(), p.stride(), p.requires_grad) for name, p in there.items()}
    state = dict(zip(inputs["names"], inputs["values"], strict=True))
    given = {name: each.detach().clone() for name, each in state.items()}
    handed, asks = dict(state), {name: each.requires_grad for name, each in state.items()}
    said = _said(lambda: answer(model, handed))
    now = factors(model, inputs)
    if said or inputs["wrong"]:
        left: dict[str, Any] = {name: each.detach().clone() for name, each in now.items()}
        left["place"] = {name: _place(p, flags[name]) for name, p in now.items()}
        left["modules"] = modules_of(model)
        named = _named(said, inputs["wrong"], inputs["names"])
        kind = "ValueError" if said else "nothing"
        return observe({"error": {"kind": kind, "named": named, "left": left}})
    values: dict[str, Any] = {
        "loaded": {name: each.detach().clone() for name, each in now.items()},
        "place": {name: _place(p, flags[name]) for name, p in now.items()},
        "frozen": {name: "trains" if p.requires_grad else "frozen" for name, p in now.items()},
        "state": {name: each.detach().clone() for name, each in handed.items()},
        "names": f"{len(handed)}: {', '.join(map(str, handed))}",
        "asks": "as before" if asks == {name: each.requires_grad for name, each in handed.items()} else "otherwise",
    }
    with torch.no_grad():
        for each in state.values():
            each.fill_(0.5)
    values["after the state changed"] = {name: each.detach().clone() for name, each in now.items()}
    values["given"] = given
    return observe(values)


def _said(call: Callable[[], object]) -> str:
    """What a ValueError says, "" where none was raised."""
    try:
        call()
    except ValueError as error:
        return str(error) or "a ValueError that says nothing"
    return ""


def _named(said: str, wrong: list[str], names: list[str]) -> str:
    """Which keys and layers that are wrong a message leaves out, and which does it name that are right."""
    missing = [name for name in wrong if name not in said]
    right = [name for name in names if name in said and not any(name.startswith(each) for each in wrong)]
    if missing:
        return f"{', '.join(missing)} not named"
    return f"names {', '.join(right)}, which nothing is wrong with" if right else "all that is wrong is named"


def _place(p: nn.Parameter, before: tuple[int, int, tuple[int, ...], bool]) -> str:
    if id(p) != before[0]:
        return "another parameter"
    return "the same memory" if (p.data_ptr(), p.stride()) == before[1:3] else "the same parameter in other memory"


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether each factor has the dtype that it had. The reference, performed in float64, is not asked."""
    for path, *pair in zip(inputs["paths"], inputs["A"], inputs["B"], strict=True):
        for name, factor in zip("AB", pair, strict=True):
            found = got[f"loaded/{path}.{name}" if path else f"loaded/{name}"]
            if isinstance(found, Tensor) and found.dtype != factor.dtype:
                return f"{path}.{name} in {found.dtype}, where it was in {factor.dtype}"
    return None


HALF_MODEL, HALF_STATE = "a model in bfloat16", "a state in float16"
EXERCISE = Exercise(
    id="lora.load_adapter",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "loaded",
            "Each factor holds the numbers that stand under its name, whatever the order of the state.",
            points=3,
            keys=("loaded/*",),
            roundings=0,
            cases=USUAL,
        ),
        Property(
            "in_place",
            "An optimizer holds the parameters, and others may hold their memory: copy the numbers into what is there. "
            "Whether a parameter trains is not for this function to change.",
            points=2,
            keys=("place/*", "frozen/*"),
            cases=(SEVERAL, FROZEN, "views that are not contiguous"),
            needs=("loaded",),
        ),
        Property(
            "no_shared_memory",
            "The caller may change the tensors of the state later, or load them into another model: the factors must "
            "not change with them.",
            keys=("after the state changed/*",),
            roundings=0,
            cases=USUAL,
            needs=("loaded",),
        ),
        Property(
            "state_as_it_was",
            "The state is the caller's: no key is taken out of it, and no tensor in it changed, nor whether one "
            "requires a gradient.",
            keys=("state/*", "names", "asks"),
            roundings=0,
            cases=(*USUAL, "tensors that require a gradient"),
            needs=("loaded",),
        ),
        Property(
            "a_shared_factor",
            "Two layers may share a factor, and the state has a key for each: look factors up in the modules. "
            "named_parameters() has a shared one once.",
            keys=("loaded/*", "place/*"),
            roundings=0,
            cases=(TIED,),
            needs=("loaded",),
        ),
        Property(
            "nothing_to_load",
            "An empty state fits a model without adapters: nothing is wrong, and nothing is raised.",
            keys=("names",),
            cases=(NOTHING,),
            needs=("loaded",),
        ),
        Property(
            "every_digit",
            "The numbers go from the state's dtype into the factor's, and through no other: not float32 where both are "
            "in float64, nor the dtype of the base or of another factor.",
            keys=("loaded/*",),
            roundings=0,
            cases=(DOUBLE, COARSE),
            needs=("loaded",),
        ),
        Property(
            "dtype_stays",
            "A factor keeps its dtype: numbers in another one are cast.",
            holds=_dtypes,
            cases=(SEVERAL, HALF_MODEL, HALF_STATE),
            needs=("loaded",),
        ),
        Property(
            "refuses_other_names",
            "A key that is missing, or that no factor has, means that the file belongs to another model: raise a "
            "ValueError.",
            points=2,
            keys=("error/kind",),
            cases=ONE_SLIP,
            needs=("loaded",),
        ),
        Property(
            "refuses_other_shapes",
            "Each shape must be the factor's own: copy_ would fill it with a smaller one by broadcasting.",
            points=2,
            keys=("error/kind",),
            cases=SHAPES,
            needs=("loaded",),
        ),
        Property(
            "refuses_merged_layers",
            "The weight of a merged layer holds the old adapter: with new factors, unmerging would take off what was "
            "never added.",
            keys=("error/kind",),
            cases=(MERGED, WHOLE),
            needs=("loaded",),
        ),
        Property(
            "names_all",
            "The message names every key that is missing, unexpected or of another shape, and every merged layer, and "
            "no key that is right: who reads it should need one look.",
            points=2,
            keys=("error/named",),
            cases=WRONG,
            needs=("loaded",),
        ),
        Property(
            "all_or_nothing",
            "After a refusal all factors hold what they held, and the model is in the mode that it was in. Look at "
            "everything first, and copy when all is sure.",
            points=2,
            keys=("error/kind", "error/left/*"),
            roundings=0,
            cases=WRONG,
            needs=("loaded",),
        ),
    ),
    hints=(
        "What could be wrong with a file, and what must be true of the model when you raise an error?",
        "Make a dict of the factors by name first, as adapter_state names them. Compare its keys with the state's in "
        "both directions, then shapes, and collect all that does not fit.",
        "If anything was collected, raise one ValueError with all of it. Else, under torch.no_grad(), "
        "factor.copy_(state[name]) for each.",
    ),
    forms=(
        in_dtype(torch.bfloat16, "A", "B", name=HALF_MODEL),
        in_dtype(torch.float16, "values", name=HALF_STATE),
        leaves("values"),
        strided("A", "B"),
        at_once("transposed tensors in the state", transposed("values")),
    ),
    promises={
        "named as adapter_state names them": ("loaded", ROOT, TWICE, "a_shared_factor", SECOND),
        "one tensor for each factor of each `Adapted` in the model": ("a_shared_factor", "nothing_to_load"),
        "with the numbers of the state": ("loaded", "every_digit"),
        "in any order": (ORDER,),
        "may be in another floating dtype than the factor, or require a gradient": (
            "dtype_stays",
            "tensors that require a gradient",
        ),
        "the same parameters, in the same memory and dtype, training or frozen as before": (
            "in_place",
            "dtype_stays",
        ),
        "later changes of the state do not reach the model": ("no_shared_memory",),
        "The state is not changed": ("state_as_it_was",),
        "a key that is missing": ("refuses_other_names",),
        "one that no factor has": ("refuses_other_names",),
        "a tensor of another shape than its factor": ("refuses_other_shapes",),
        "a layer that is merged": ("refuses_merged_layers",),
        "names all such keys and layers, and no key that is right": ("names_all",),
        "nothing in the model has changed": ("all_or_nothing",),
    },
)
