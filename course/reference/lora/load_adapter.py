"""The numbers of a file into the factors that are there: look at everything, then copy everything."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from course.lessons.adapted import Adapted


def load_adapter(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copies the state, as adapter_state makes it, into the model's adapters; a ValueError where it does not fit."""
    factors: dict[str, nn.Parameter] = {}
    wrong: list[str] = []
    for path, module in model.named_modules():
        if isinstance(module, Adapted):
            prefix = f"{path}." if path else ""
            factors |= {f"{prefix}A": module.A, f"{prefix}B": module.B}
            if module.merged:
                wrong.append(f"{path or 'the model'} is merged: unmerge it first")
    wrong += [f"{name} is missing" for name in factors if name not in state]
    wrong += [f"{name} is unexpected" for name in state if name not in factors]
    wrong += [
        f"{name} must have the shape {tuple(factor.shape)}, got {tuple(state[name].shape)}"
        for name, factor in factors.items()
        if name in state and state[name].shape != factor.shape
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    with torch.no_grad():
        for name, factor in factors.items():
            factor.copy_(state[name])
