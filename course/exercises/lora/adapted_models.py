"""Models with adapted layers, made from a case's paths and factors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from course.lessons.adapted import Adapted
from course.performing.draws import integer, normal
from course.performing.exercise import Inputs

PATHS = ("layers.1.q", "layers.1.v", "layers.0.q", "head.up", "down")  # no name is the beginning of another


class LaterAdapted(Adapted):
    """A kind of `Adapted`."""


def drawn(rng: torch.Generator, *paths: str, **others: Any) -> dict[str, Any]:
    """Inputs for `built`: factors of another r and shape at each path.

    copies   pairs: at the first path stands the module of the second again
    tied     pairs: the adapter at the first path has the factor A of that at the second
    like     paths of parameters and buffers that only have the names of factors
    bases    the dtype of all bases, by its name; that of the factors if left out
    coarse   paths whose factors are in the dtype of the bases; none if left out
    """
    factors: dict[str, list[Tensor]] = {"A": [], "B": []}
    for _ in paths:
        r, n, m = integer(rng, 2, 4), integer(rng, 5, 8), integer(rng, 8, 11)
        factors["A"].append(normal(rng, r, n))
        factors["B"].append(normal(rng, m, r))
    rest: dict[str, Any] = {"copies": [], "tied": [], "like": [], "frozen": [], "merged": [], "later": []}
    return {"paths": list(paths), **factors, **rest, **others}


def built(inputs: Inputs) -> nn.Module:
    """The model, in which the factors are those of the inputs, lying in memory as they do."""
    model = nn.Module()
    for path, a, b in zip(inputs["paths"], inputs["A"], inputs["B"], strict=True):
        (_, n), m = a.shape, len(b)
        kind = LaterAdapted if path in inputs["later"] else Adapted
        dtype = getattr(torch, inputs["bases"]) if "bases" in inputs else a.dtype
        a, b = (each.to(dtype) if path in inputs.get("coarse", ()) else each for each in (a, b))
        made = kind(nn.Linear(n, m, dtype=dtype), a, b, 0.5)
        made.merged = path in inputs["merged"]
        made.requires_grad_(path not in inputs["frozen"])
        nn.Module.requires_grad_(made.base, False)
        if not path:
            return made
        _put(model, path, made)
    for path, other in inputs["copies"]:
        _put(model, path, model.get_submodule(other))
    for path, other in inputs["tied"]:
        model.get_submodule(path).A = model.get_submodule(other).A
    for path in inputs["like"]:
        parent, _, name = path.rpartition(".")
        _put(model, parent, nn.Module())
        model.get_submodule(parent).register_parameter(name, nn.Parameter(torch.ones(3)))
        model.get_submodule(parent).register_buffer("A" if name == "B" else "B", torch.ones(2))
    return model


def factors(model: nn.Module, inputs: Inputs) -> dict[str, nn.Parameter]:
    """The factors of all adapters by name, in the order of the inputs."""
    found = {}
    for path in inputs["paths"]:
        for name in ("A", "B"):
            where = f"{path}.{name}" if path else name
            found[where] = model.get_parameter(where)
    return found


def alternate_modes(model: nn.Module) -> None:
    """Puts every second module in eval mode: neither train() nor eval() leaves all of them as they are."""
    for number, module in enumerate(model.modules()):
        module.training = number % 2 == 0


def modules_of(model: nn.Module) -> dict[str, str]:
    """Of each module, by its path: its mode, how many hooks it has, and which of its own parameters train."""
    return {path or "the model": _described(module) for path, module in model.named_modules()}


def _described(module: nn.Module) -> str:
    hooks = sum(len(each) for name, each in vars(module).items() if name.endswith("_hooks"))
    trains = [name for name, p in module.named_parameters(recurse=False) if p.requires_grad]
    mode = "training" if module.training else "eval"
    return f"in {mode} mode, {hooks} hooks, trains {', '.join(trains) or 'nothing'}"


def _put(model: nn.Module, path: str, made: nn.Module) -> None:
    """Puts a module at that path; on the way stand empty ones."""
    *way, last = path.split(".")
    for name in way:
        if name not in dict(model.named_children()):
            model.add_module(name, nn.Module())
        model = model.get_submodule(name)
    model.add_module(last, made)
