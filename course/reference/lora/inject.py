"""Adapters put into a model: find the layers, make the adapters, and change the model last.

model --named_modules--> layers with all their names --wrap--> adapters --freeze, put in--> model
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torch import nn

from course.lessons.adapted import Adapted


def inject(model: nn.Module, pattern: str, wrap: Callable[[nn.Linear], Adapted]) -> list[str]:
    """Replaces each nn.Linear one of whose names the pattern matches by wrap(linear), and freezes all the rest."""
    adapted = {inner for each in model.modules() if isinstance(each, Adapted) for inner in each.modules()}
    places: dict[nn.Linear, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Linear) and module is not model and module not in adapted:
            places.setdefault(module, []).append(name)
    chosen = [linear for linear, names in places.items() if any(re.fullmatch(pattern, name) for name in names)]
    if not chosen:
        raise ValueError(f"the pattern must match the name of a linear layer, got {pattern!r}: see named_modules()")
    adapters = [wrap(linear) for linear in chosen]  # all of them before anything changes: wrap may raise
    for p in model.parameters():
        p.requires_grad_(False)
    for linear, adapter in zip(chosen, adapters, strict=True):
        for name in places[linear]:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, adapter)
    return [places[linear][0] for linear in chosen]
