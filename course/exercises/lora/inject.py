"""`inject(model, pattern, wrap)`: adapters at the linear layers whose names match, and nothing else that trains.

A model is a list of modules and parameters by path. What stands at a path afterwards is seen as a text: the module that
stood there before, or the adapter of which layer; of each parameter it is seen whether it trains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course.errors import WrongOutput
from course.exercises.lora.adapted_models import LaterAdapted, alternate_modes, modules_of
from course.lessons.adapted import Adapted
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

FLAT, DEEP, LISTS, SOME, EITHER = (
    "two layers in one module",
    "layers within layers",
    "lists, dicts and sequences",
    "names that begin or end alike",
    "one of two names",
)
EVERY, DERIVED, FROZEN = "every name matches", "a class derived from nn.Linear", "a model that is frozen"
BASES, AGAIN_HERE = "layers called base", "a layer under two names of one module"
TWICE, LATER, BLOCK = "a layer at two places", "its second name matches", "a block at two places"
TIED, HEAD, AGAIN, LIKE = (
    "two layers with one weight",
    "a head tied to the embedding",
    "a second call",
    "other parameters called A and B",
)
NOTHING, ROOT, WHOLE, ADAPTED, RAISES = (
    "no name matches",
    "the model is an nn.Linear",
    "the model is adapted itself",
    "all is adapted already",
    "wrap raises an error",
)
USUAL, SHARED, REFUSED = (
    (FLAT, DEEP, LISTS, EVERY, FROZEN),
    (TWICE, LATER, BLOCK, AGAIN_HERE),
    (NOTHING, ROOT, WHOLE, ADAPTED, RAISES),
)
R = 2


class DerivedLinear(nn.Linear):
    """A kind of nn.Linear."""


MAKERS: dict[str, Callable[..., nn.Module]] = {
    "list": nn.ModuleList,
    "dict": nn.ModuleDict,
    "sequence": nn.Sequential,
    "linear": nn.Linear,
    "derived": DerivedLinear,
    "unbiased": lambda n, m: nn.Linear(n, m, bias=False),
    "norm": nn.LayerNorm,
    "embedding": nn.Embedding,
    "adapted": lambda n, m: Adapted(nn.Linear(n, m), torch.ones(R, n), torch.zeros(m, R), 0.5),
    "later": lambda n, m: LaterAdapted(nn.Linear(n, m), torch.ones(R, n), torch.zeros(m, R), 0.5),
}


def cases(rng: torch.Generator) -> list[Case]:
    """Each a model in the order in which it was made: (path, kind, sizes), or (path, "= another path").

    What is frozen beforehand is said by a pattern for the names of parameters.
    """

    def some() -> int:
        return integer(rng, 3, 9)

    def layer(path: str, kind: str = "linear") -> list[Any]:
        return [path, kind, some(), some()]

    def norm(path: str) -> list[Any]:
        return [path, "norm", some()]

    def case(name: str, pattern: str, *parts: list[Any], **others: Any) -> Case:
        inputs: dict[str, Any] = {"parts": list(parts), "pattern": pattern, "before": "", "raises_at": 0}
        return Case(name=name, inputs=inputs | {"frozen": ""} | others)

    def block(path: str) -> list[list[Any]]:
        return [layer(f"{path}.attn.q"), layer(f"{path}.attn.k", "unbiased"), norm(f"{path}.norm"), layer(f"{path}.up")]

    blocks = [*block("layers.0"), *block("layers.1")]
    embedding = ["embed", "embedding", some(), some()]
    ears = [layer("ears.left"), layer("ears.both"), ["copy", "= ears.both"], layer("ears.right")]
    twins = [layer("one"), norm("norm"), layer("other")]
    return [
        case(FLAT, "first|second", embedding, layer("first"), norm("norm"), layer("second", "unbiased"), layer("last")),
        case(DEEP, r".*attn\.[qk]", embedding, ["scale", some()], ["layers", "list"], *blocks, layer("head")),
        case(
            LISTS,
            r"(mlp|heads|stack)\..*",
            *(["mlp", "sequence"], layer("mlp.0"), norm("mlp.1"), layer("mlp.2"), layer("last")),
            *(["heads", "dict"], layer("heads.b"), layer("heads.a"), ["stack", "list"], layer("stack.0")),
            *(["stack.1", "sequence"], layer("stack.1.0"), norm("stack.1.1")),
        ),
        case(SOME, r"mlp\.up", layer("mlp.up"), layer("mlp.up_gate"), layer("old.mlp.up"), layer("mlp.down")),
        case(EITHER, r"mlp\.up|mlp\.down", layer("mlp.up_gate"), layer("mlp.up"), layer("mlp.down"), layer("x.mlp.up")),
        case(EVERY, ".*", embedding, layer("first"), norm("norm"), *block("body"), ["offset", some()]),
        case(DERIVED, "a|b", layer("a", "derived"), norm("norm"), layer("b"), layer("c", "derived")),
        case(FROZEN, ".*q", *block("one"), norm("norm"), frozen=".*"),
        case(
            BASES,
            r".*base.*",
            *(layer("base"), norm("norm"), *block("body.base"), layer("body.base.base"), layer("up")),
            *(layer("old.base", "later"), ["old.base.more", "sequence"], layer("old.base.more.0")),
        ),
        case(TWICE, ".*both|.*left|copy", *ears),
        case(LATER, "copy|ears.right", *ears),
        case(AGAIN_HERE, r"pair\.one", layer("pair.one"), ["pair.other", "= pair.one"], norm("norm"), layer("last")),
        case(BLOCK, r"second\..*q|.*up", *block("first"), norm("norm"), ["second", "= first"]),
        case(TIED, "one|other", *twins, ["other.weight", "= one.weight"]),
        case(HEAD, "head|up", embedding, layer("up"), layer("head", "unbiased"), ["head.weight", "= embed.weight"]),
        case(AGAIN, ".*", *block("body"), layer("body.attn.q_gate"), norm("norm"), layer("head"), before=".*q"),
        case(LIKE, ".*proj", ["scan.A", some()], ["scan.B", some()], layer("scan.proj"), ["lora_scale", some()]),
        case(NOTHING, "layer.*|norm", layer("first"), norm("norm"), layer("body.layer_2"), ["offset", some()]),
        case(ROOT, ".*", ["", "linear", some(), some()]),
        case(WHOLE, ".*", ["", "adapted", some(), some()]),
        case(ADAPTED, ".*q(.base)?", *block("body"), norm("norm"), before=".*q"),
        case(RAISES, ".*", *block("body"), norm("norm"), layer("head"), raises_at=3, frozen=r".*k\..*|norm.*"),
    ]


def built(inputs: Inputs) -> nn.Module:
    """The model; its numbers are of no interest."""
    model = nn.Module()
    for path, kind, *sizes in inputs["parts"]:
        if not path:
            return MAKERS[kind](*sizes)
        parent, _, name = path.rpartition(".")
        inside = _inner(model, parent)
        if kind in MAKERS:
            inside.add_module(name, MAKERS[kind](*sizes))
        elif isinstance(kind, str) and name == "weight":
            setattr(inside, name, model.get_parameter(kind.removeprefix("= ")))
        elif isinstance(kind, str):
            inside.add_module(name, model.get_submodule(kind.removeprefix("= ")))
        else:
            inside.register_parameter(name, nn.Parameter(torch.zeros(kind)))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = re.fullmatch(inputs["frozen"], name) is None
    return model


def _inner(model: nn.Module, path: str) -> nn.Module:
    """The module of that path, made where it is not there yet."""
    for name in (each for each in path.split(".") if each):
        if name not in dict(model.named_children()):
            model.add_module(name, nn.Module())
        model = model.get_submodule(name)
    return model


class _Wraps:
    """What is handed in as `wrap`; it writes down what it was called with, and raises at the call that is to."""

    def __init__(self, raises_at: int = 0) -> None:
        self.made: list[Adapted] = []
        self.raises_at = raises_at

    def __call__(self, linear: nn.Linear) -> Adapted:
        if len(self.made) + 1 == self.raises_at:
            raise OverflowError("no more adapters")
        m, n = linear.weight.shape
        self.made.append(Adapted(linear, torch.ones(R, n), torch.zeros(m, R), 0.5))
        return self.made[-1]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call, perhaps after an earlier one, and what it leaves behind."""
    model, wrap = built(inputs), _Wraps(inputs["raises_at"])
    if inputs["before"]:
        answer(model, inputs["before"], _Wraps())
    alternate_modes(model)
    modules = dict(model.named_modules(remove_duplicate=False))
    parameters = dict(model.named_parameters())
    found: list[Any] = []
    raised = _raised(lambda: found.append(answer(model, inputs["pattern"], wrap)), inputs["pattern"])
    left: Any = {"stands": _stands(model, modules, wrap), "trains": _trains(parameters)}
    if raised:
        left["modules"] = modules_of(model)
        return observe({"refused": {"call": raised, "left": left}})
    (names,) = found
    if not isinstance(names, (list, tuple)):
        raise WrongOutput(f"must return a list of names, got {type(names).__name__}")
    first = {id(module): name for name, module in reversed(modules.items())}
    numbers = sum(p.numel() for p in model.parameters() if p.requires_grad)
    calls = [first.get(id(each.base), "a module that is not in the model") for each in wrap.made]
    values: dict[str, Any] = {
        "names": _text([str(each) for each in names]),
        "calls": _text(calls),
        "stands": left["stands"],
        "frozen": left["trains"],
        "adapters": {name: _trains({"A": each.A, "B": each.B}) for name, each in zip(calls, wrap.made, strict=True)},
        "numbers": torch.tensor(float(numbers)),
    }
    return observe(values)


def _raised(call: Callable[[], object], pattern: str) -> str:
    """What was raised, "" for nothing, and whether a ValueError names the pattern."""
    try:
        call()
    except ValueError as error:
        return f"a ValueError that {'names' if pattern in str(error) else 'does not name'} the pattern"
    except OverflowError:
        return "the error of wrap"
    return ""


def _text(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names)}"


def _stands(model: nn.Module, modules: dict[str, nn.Module], wrap: _Wraps) -> dict[str, str]:
    """What stands now at each path at which there was a module."""
    first = {id(module): name for name, module in reversed(modules.items())}
    now = dict(model.named_modules(remove_duplicate=False))
    adapters = {id(each): first.get(id(each.base), "?") for each in wrap.made}
    return {
        path or "the model": "what stood there"
        if now.get(path) is module
        else f"the adapter of {adapters[id(now[path])]}"
        if path in now and id(now[path]) in adapters
        else "nothing"
        if path not in now
        else f"{type(now[path]).__name__}, which wrap did not return"
        for path, module in modules.items()
    }


def _trains(parameters: dict[str, nn.Parameter]) -> dict[str, str]:
    return {name: "trains" if p.requires_grad else "frozen" for name, p in parameters.items()}


EXERCISE = Exercise(
    id="lora.inject",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "replaced",
            "At the place of each layer whose name matches stands what wrap returned for it, in modules inside of "
            "modules, lists and dicts as well; every other module stands where it stood.",
            points=3,
            keys=("stands/*",),
            cases=USUAL,
        ),
        Property(
            "names",
            "The names are those of named_modules() before the call, in its order.",
            keys=("names",),
            cases=USUAL,
        ),
        Property(
            "whole_name",
            "The pattern is a regular expression that must match a name as a whole, from its first letter to its last, "
            "whatever stands in it.",
            points=2,
            keys=("stands/*", "names"),
            cases=(SOME, EITHER),
            needs=("replaced",),
        ),
        Property(
            "derived_too",
            "A class derived from nn.Linear is a linear layer, too.",
            keys=("stands/*", "names"),
            cases=(DERIVED,),
            needs=("replaced",),
        ),
        Property(
            "adapters_alone_train",
            "After the call A and B of the new adapters train, and no other number of the model: no bias, norm, "
            "embedding or layer that does not match.",
            points=3,
            keys=("frozen/*", "adapters/*", "numbers"),
            cases=(*USUAL, LIKE),
            needs=("replaced",),
        ),
        Property(
            "one_adapter_at_two_places",
            "named_modules() shows a module that stands at two places only once. It matches if any of its names does, "
            "is wrapped once, and both places get the same adapter.",
            points=2,
            keys=("stands/*", "names", "calls"),
            cases=SHARED,
            needs=("replaced",),
        ),
        Property(
            "tied_weights",
            "Two layers may hold the same weight. They are two modules, each with an adapter of its own, and the "
            "weight is frozen for whoever holds it.",
            keys=("stands/*", "names", "frozen/*", "adapters/*"),
            cases=(TIED, HEAD),
            needs=("replaced",),
        ),
        Property(
            "order_of_calls",
            "wrap draws random numbers: it is called once for each layer, in the model's order.",
            keys=("calls",),
            cases=USUAL,
            needs=("replaced",),
        ),
        Property(
            "adapted_once",
            "In a second call some layers are adapted already. The layer inside such an adapter is no layer of the "
            "model's own any more: it is not wrapped again, and the earlier adapter is frozen with the rest.",
            points=2,
            keys=("stands/*", "names", "frozen/*", "adapters/*", "numbers"),
            cases=(AGAIN,),
            needs=("replaced",),
        ),
        Property(
            "by_kind_and_not_by_name",
            "A layer belongs to an adapter where it lies inside an `Adapted`, of a derived class too, at any depth, "
            "not where it is called base: any module may be.",
            keys=("stands/*", "names"),
            cases=(BASES,),
            needs=("replaced",),
        ),
        Property(
            "refusals",
            "Where no layer matches, a ValueError names the pattern: a misspelt one would else train nothing. An error "
            "of wrap is the caller's.",
            keys=("refused/call",),
            cases=REFUSED,
            needs=("replaced",),
        ),
        Property(
            "refused_before_any_change",
            "After an error the model must be what it was, its mode too, and what was frozen still frozen: look for "
            "the layers first, make all adapters next, and change the model last.",
            points=2,
            keys=("refused/left/*",),
            cases=REFUSED,
            needs=("replaced",),
        ),
    ),
    hints=(
        "What happens to a loop over named_modules() when the model changes under it? And which names does it leave "
        "out?",
        "Collect the layers with all their names first, from named_modules(remove_duplicate=False). Then make the "
        "adapters, then freeze, then put them in.",
        "A dict from layer to names, in the order found, without what lies in an `Adapted`. Keep those of which any "
        "name has a re.fullmatch. A name without its last part leads to the parent (get_submodule), and setattr on it "
        "puts the adapter in, in lists and dicts too.",
    ),
    promises={
        "or of a class derived from it, at any depth": ("replaced", "derived_too"),
        "one of whose names the pattern matches as a whole": ("whole_name", LATER),
        "called once for each of them, in the order of named_modules()": ("order_of_calls", TWICE),
        "A and B of the new adapters train": ("adapters_alone_train",),
        "every other parameter of the model is frozen, adapters of an earlier call too": (
            "adapters_alone_train",
            "adapted_once",
            FROZEN,
        ),
        "stands at all of them afterwards": ("one_adapter_at_two_places",),
        "Two layers that hold one weight are two layers": ("tied_weights",),
        "A linear layer inside of an `Adapted` matches no pattern": (
            "adapted_once",
            ADAPTED,
            WHOLE,
            "by_kind_and_not_by_name",
        ),
        "nor does the model itself": (ROOT,),
        "each by the first of its names": ("one_adapter_at_two_places", "names"),
        "a pattern that matches no layer": ("refusals",),
        "The message names the pattern": ("refusals",),
        "An error of `wrap` is passed on": (RAISES,),
        "In both cases the model is what it was": ("refused_before_any_change",),
    },
)
