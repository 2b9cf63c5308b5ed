"""`wrap_policy(model, min_params, blocks)`: which parameters are gathered together.

A model is a list of modules and parameters by path. A unit is seen as a text, of how many parameters and which, in the
order of `named_parameters()`; of each parameter it is seen in which unit it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from course.errors import WrongOutput
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

STACK, DEEP, EXACT = "a stack of layers", "units within units", "just large enough"
BLOCKS, SMALL, LISTS = "blocks", "blocks that are too small", "lists of layers"
TIED, INNER, SHARED, FROZEN, EMPTY = (
    "tied to the head",
    "tied inside of a module",
    "a module at two places",
    "frozen parameters",
    "parameters without elements",
)
ROOT, ALL = "all below the limit", "nothing left for the root"
DEEPER, MODEL, DICT = "a block within a block", "the model is a block", "the model is a dict"
BETWEEN = "tied between two blocks"
PLAIN = (STACK, DEEP, ROOT)


class Block(nn.Module):
    """What is not to be split."""


class LateBlock(Block):
    """A kind of block."""


class Expert(nn.Module):
    """What is not to be split either, and no block."""


KINDS: dict[str, type[nn.Module]] = {
    "module": nn.Module,
    "block": Block,
    "late block": LateBlock,
    "expert": Expert,
    "list": nn.ModuleList,
    "dict": nn.ModuleDict,
    "sequential": nn.Sequential,
}


def cases(rng: torch.Generator) -> list[Case]:
    """Each a model in the order in which it was made: (path, elements), (path, kind) or (path, "= another path").

    The path of the model itself is "". Blocks are of these kinds; where there are none, the argument is left out.
    """

    def some(low: int, high: int) -> int:
        return integer(rng, low, high)

    def layer(path: str, low: int = 4, high: int = 8) -> list[tuple[str, Any]]:
        """A weight of at least 10 * low elements, and a bias."""
        return [(f"{path}.weight", 10 * some(low, high)), (f"{path}.bias", some(1, 5))]

    def case(
        name: str, least: int, *parts: tuple[str, Any], frozen: tuple[str, ...] = (), blocks: tuple[str, ...] = ()
    ) -> Case:
        inputs: dict[str, Any] = {"parts": [list(each) for each in parts], "least": least, "frozen": list(frozen)}
        return Case(name=name, inputs={**inputs, "blocks": list(blocks)})

    def block(path: str, kind: str = "block", low: int = 4) -> list[tuple[str, Any]]:
        norm = f"{path}.norm.weight", some(2, 6)
        return [(path, kind), *layer(f"{path}.attn", low), norm, *layer(f"{path}.mlp.up", low)]

    embed = ("embed.weight", 10 * some(6, 9))
    nested = [
        *layer("encoder.first"),
        ("encoder.norm.weight", some(2, 6)),
        ("encoder.scale", 1),
        ("decoder.inner", "sequential"),
        *layer("decoder.inner.first", 1, 3),
        *layer("decoder.inner.second", 2, 3),
        ("decoder.norm.weight", some(2, 6)),
        ("offset", some(1, 4)),
        *layer("head"),
    ]
    half = 2 * some(5, 10)
    listed = [(f"layers.{k}.weight", some(12, 18)) for k in range(4)]
    named = [(f"heads.{k}.weight", some(low, low + 4)) for k, low in (("a", 21), ("b", 21), ("c", 41))]
    return [
        case(STACK, 40, *layer("first"), *layer("second"), ("norm.weight", some(2, 6)), *layer("third")),
        case(DEEP, 30, *nested),
        case(EXACT, 2 * half, ("a.weight", half), ("a.bias", half), ("b.weight", 2 * half - 1), ("c.weight", 3)),
        case(ROOT, 1_000, *layer("first"), *layer("second")),
        case(ALL, 1, *layer("first"), *layer("second")),
        case(
            BLOCKS,
            40,
            embed,
            ("layers", "list"),
            *block("layers.0"),
            *block("layers.1", "late block"),
            *layer("head"),
            blocks=("expert", "block"),
        ),
        case(
            SMALL,
            200,
            embed,
            ("body", "module"),
            *block("body.0", low=5),  # less than 200 alone, and more than 200 together
            *block("body.1", low=5),
            *layer("head", 21, 25),
            blocks=("block",),
        ),
        case(DEEPER, 40, *block("outer"), *block("outer.within", "expert"), *layer("head"), blocks=("block", "expert")),
        case(
            BETWEEN,
            40,
            ("layers", "list"),
            *block("layers.0"),
            *block("layers.1"),
            ("layers.1.mlp.gate", "= layers.0.mlp.up"),
            *layer("head"),
            blocks=("block",),
        ),
        case(MODEL, 40, ("", "block"), *layer("first"), *layer("second"), blocks=("block",)),
        case(LISTS, 40, ("layers", "list"), *listed, ("heads", "dict"), *named, *layer("last")),
        case(
            TIED,
            40,
            embed,
            *layer("body.first"),
            *layer("body.second"),
            ("embed_back.weight", "= embed.weight"),  # its name begins as the other's does
            ("embed_back.bias", 45),
            ("scale", 2),
        ),
        case(
            INNER,
            40,
            ("ear.a.weight", 50),
            ("ear.a.bias", 3),
            ("ear.b.weight", "= ear.a.weight"),
            *layer("ear.c"),
            ("ear.scale", 5),
            ("eye.a.weight", some(21, 39)),  # enough only for who counts it twice
            ("eye.b.weight", "= eye.a.weight"),
            ("nose.weight", some(41, 60)),
            ("nose.bias", "= nose.weight"),
            ("mouth.a.weight", 50),
            ("mouth.b.weight", "= mouth.a.weight"),
            ("tongue.weight", "= mouth.a.weight"),
            ("brow.left.a.weight", 25),  # too few for a unit of its own, and enough with what lies further out
            ("brow.left.b.weight", "= brow.left.a.weight"),
            ("brow.weight", 20),
            *layer("head"),
            ("scale", 2),
        ),
        case(
            SHARED,
            40,
            *layer("ears.left"),
            *layer("ears.both"),
            ("ears.copy.both", "= ears.both"),
            *layer("ears.right"),
            ("ears.scale", 5),
            *layer("lips.one"),
            ("lips.two", "= lips.one"),
            ("lips.scale", 5),
            *layer("head"),
            ("scale", 2),
        ),
        case(FROZEN, 40, *layer("first"), *layer("second"), ("scale", 2), frozen=("first.weight", "second.bias")),
        case(EMPTY, 40, *layer("first"), ("second.weight", 0), ("third.weight", 0), ("third.scale", 41)),
        case(DICT, 40, ("", "dict"), *layer("first"), *layer("second", 1, 2)),
    ]


def built(inputs: Inputs) -> nn.Module:
    """The model, of parameters that hold nothing."""
    model = KINDS[dict(inputs["parts"]).get("", "module")]()
    modules = {path.rpartition(".")[0] for path, _ in inputs["parts"]}
    for path, what in inputs["parts"]:
        if what in KINDS:
            _inner(model, path, KINDS[what])
            continue
        shared = str(what).removeprefix("= ")
        if shared in modules:
            parent, _, name = path.rpartition(".")
            _inner(model, parent).add_module(name, model.get_submodule(shared))
            continue
        module, name = _inner(model, path.rpartition(".")[0]), path.rpartition(".")[2]
        tied = isinstance(what, str)
        made = nn.Parameter(torch.zeros(_shape(0 if tied else int(what))), requires_grad=path not in inputs["frozen"])
        module.register_parameter(name, model.get_parameter(shared) if tied else made)
        module.register_buffer(f"{name}_mean", torch.zeros(500))  # buffers are no parameters
    return model


def _shape(elements: int) -> tuple[int, ...]:
    """A matrix where that can be: its rows are not its elements."""
    return (elements,) if elements % 2 else (elements // 2, 2)


def _inner(model: nn.Module, path: str, kind: type[nn.Module] = nn.Module) -> nn.Module:
    """The module of that path, made where it is not there yet, the last one of this kind."""
    names = [each for each in path.split(".") if each]
    for at, name in enumerate(names, start=1):
        if name not in dict(model.named_children()):
            model.add_module(name, kind() if at == len(names) else nn.Module())
        model = model.get_submodule(name)
    return model


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The units, each sorted, as they were returned and in an order that no answer chooses."""
    model = built(inputs)
    names = [each for each, _ in model.named_parameters()]
    blocks = tuple(KINDS[kind] for kind in inputs["blocks"])
    found = answer(model, inputs["least"], blocks) if blocks else answer(model, inputs["least"])
    if not isinstance(found, (list, tuple)) or not all(isinstance(unit, (list, tuple)) for unit in found):
        raise WrongOutput(f"must return a list of lists of names, got {type(found).__name__}")
    units = [[str(name) for name in unit] for unit in found]
    flat = [name for unit in units for name in unit]
    texts = [_text(unit, names) for unit in units]
    of_each = {name: text for unit, text in zip(units, texts, strict=True) for name in unit}
    values: dict[str, Any] = {
        "how_often": {name: flat.count(name) for name in names},
        "other_names": " ".join(sorted({*flat} - {*names})) or "none",
        "unit_of": {name: of_each.get(name, "none") for name in names},
        "units": len(units),
        "order": {f"unit {place}": text for place, text in enumerate(texts)},
    }
    return observe(values)


def _text(unit: list[str], names: list[str]) -> str:
    """Their number first: what is shown of a text may end before all of it was said."""
    known = {name: place for place, name in enumerate(names)}
    ordered = sorted(unit, key=lambda name: (known.get(name, len(names)), name))
    return f"{len(unit)}: {' '.join(ordered)}"


EXERCISE = Exercise(
    id="fsdp.wrap_policy",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "each_once",
            "Every parameter is in one unit, under the name that named_parameters() gives it; frozen ones and those "
            "without elements too. What is left in the end belongs to the root.",
            points=2,
            keys=("how_often/*", "other_names"),
        ),
        Property(
            "units",
            "A module becomes a unit when the parameters in it that are in no unit yet have at least min_params "
            "elements together. Ask the modules in it first.",
            points=3,
            keys=("unit_of/*", "units"),
            cases=(STACK, DEEP, ROOT, ALL),
            needs=("each_once",),
        ),
        Property(
            "just_enough",
            "Exactly min_params elements are enough. Count elements, not parameters.",
            keys=("unit_of/*", "units"),
            cases=(EXACT, EMPTY),
            needs=("each_once",),
        ),
        Property(
            "blocks_whole",
            "Nothing in a block becomes a unit, be it the model itself: the block does, if it is large enough, or an "
            "outer module. Blocks may be of several classes; one that is derived from a block's is a block's, too.",
            points=2,
            keys=("unit_of/*", "units"),
            cases=(BLOCKS, SMALL, DEEPER, MODEL),
            needs=("each_once",),
        ),
        Property(
            "tied_where_both_see_them",
            "A tied parameter waits for the innermost module that has all of its uses in it: in an inner unit, be it a "
            "block, it would be freed while the other use still needs it.",
            points=2,
            keys=("unit_of/*", "units"),
            cases=(TIED, INNER, SHARED, BETWEEN),
            needs=("each_once",),
        ),
        Property(
            "no_lists",
            "nn.ModuleList and nn.ModuleDict have no forward, so that nothing would ever gather such a unit. Modules "
            "in them may become units; what these leave over waits for an outer module, or is the root's, be that a "
            "dict itself.",
            keys=("unit_of/*", "units"),
            cases=(LISTS, DICT),
            needs=("each_once",),
        ),
        Property(
            "frozen_too",
            "A frozen parameter needs memory as any other does. It counts, and goes with its module.",
            keys=("unit_of/*", "units"),
            cases=(FROZEN,),
            needs=("each_once",),
        ),
        Property(
            "order",
            "Units come in the order in which they are found: modules before the one that they are in, siblings in the "
            "order of named_children(), the root's unit last.",
            points=2,
            keys=("order/*",),
            cases=(*PLAIN, BLOCKS),
            needs=("units", "blocks_whole"),
        ),
    ),
    hints=(
        "Which module knows that its children have left something over? When can it know that?",
        "Write a function that does the children of a module first, and then asks what of module.parameters() is still "
        "in no unit. For a block it leaves the children alone.",
        "Collect for each parameter all its names with named_parameters(remove_duplicate=False). A module has all uses "
        "of it if all names begin with the module's own name and a dot. Keep a dict of what is still free; whatever is "
        "left after all modules is the last unit.",
    ),
    promises={
        "at least min_params elements": ("units", "just_enough"),
        "elements, at least 1": (ALL,),
        "the modules in it come first": ("units", "order"),
        "in the order of named_children()": ("order",),
        "of these classes or derived from them": ("blocks_whole",),
        "no module in it becomes a unit": ("blocks_whole",),
        "nn.ModuleList and nn.ModuleDict become none": ("no_lists",),
        "waits for the innermost module in which all of them are": ("tied_where_both_see_them",),
        "Frozen parameters count as all others; buffers do not": ("frozen_too", "units"),
        "The parameters that are left are the last unit, the root's, however few they are": (
            "each_once",
            "order",
            DICT,
        ),
        "where none is left there is no such unit": (ALL,),
        "in any order inside of a unit": ("each_once",),
        "as model.named_parameters() has them": ("each_once", "tied_where_both_see_them"),
    },
)
