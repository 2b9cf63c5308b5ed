"""Small models from plain data, which every rank builds for itself.

    parts, a tensor for each  --built-->  nn.Module, nested as the names say: "body.0.weight"

parts are dicts with a name and a kind:

    parameter, frozen    a parameter, which requires a gradient or does not
    transposed           a parameter that is the transpose of the tensor, in the tensor's memory
    numbers              parameters of the shape (), in a module of that name: as many as its tensor has numbers
    buffer, cache        a buffer, which the state_dict holds or leaves out
    turned               a buffer that is the transpose of the tensor, in the tensor's memory
    tied, shared         the parameter, or the buffer, that `of` names, under another name; its tensor is not looked at
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course.performing.exercise import Inputs

TRAINED = ("parameter", "transposed", "numbers")
PARAMETERS = (*TRAINED, "frozen")

Parts = Sequence[Mapping[str, Any]]


def part(name: str, kind: str = "parameter", of: str = "") -> dict[str, Any]:
    """One part, as plain data."""
    return {"name": name, "kind": kind, "of": of}


def built(parts: Parts, values: Sequence[Tensor]) -> nn.Module:
    """The model, whose tensors are these."""
    model = nn.Module()
    for each, value in zip(parts, values, strict=True):
        path, _, name = each["name"].rpartition(".")
        module, kind = _inner(model, path), each["kind"]
        if kind == "tied":
            module.register_parameter(name, model.get_parameter(each["of"]))
        elif kind == "shared":
            module.register_buffer(name, model.get_buffer(each["of"]), persistent=False)
        elif kind == "numbers":
            row = _inner(model, each["name"])
            for at, number in enumerate(value):
                row.register_parameter(str(at), nn.Parameter(number.clone()))
        elif kind in PARAMETERS:
            data = value.t() if kind == "transposed" else value
            module.register_parameter(name, nn.Parameter(data, requires_grad=kind in TRAINED))
        else:
            module.register_buffer(name, value.t() if kind == "turned" else value, persistent=kind != "cache")
    return model


def gradients(parts: Parts, model: nn.Module) -> dict[str, Tensor | None]:
    """By the names of parameters; those of `numbers` stand in one tensor, or none where one of them is missing."""
    found = {name: each.grad for name, each in model.named_parameters()}
    for name in (each["name"] for each in parts if each["kind"] == "numbers"):
        row = [found.pop(f"{name}.{at}") for at in range(len(list(model.get_submodule(name).parameters())))]
        there = [each for each in row if each is not None]
        found[name] = torch.stack(there) if len(there) == len(row) else None
    return found


def dtypes(model: nn.Module) -> dict[str, set[torch.dtype]]:
    """Of each parameter by name, and of its gradient: one, as long as both have the same."""
    return {
        name: {each.dtype, (each if each.grad is None else each.grad).dtype} for name, each in model.named_parameters()
    }


def _inner(model: nn.Module, path: str) -> nn.Module:
    """The module of that path, made where it is not there yet."""
    for name in filter(None, path.split(".")):
        if name not in dict(model.named_children()):
            model.add_module(name, nn.Module())
        model = model.get_submodule(name)
    return model


def nbytes(*kinds: str) -> Callable[[Inputs], int]:
    """Of a rank's tensors of these kinds, tied ones once, in a case whose `values` has a list for each rank."""

    def of(inputs: Inputs) -> int:
        pairs = zip(inputs["parts"], inputs["values"][0], strict=True)
        return sum(value.nbytes for each, value in pairs if each["kind"] in kinds)

    return of
