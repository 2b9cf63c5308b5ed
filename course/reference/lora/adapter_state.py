"""What a file of an adapter holds: two small matrices for each adapted layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course.lessons.adapted import Adapted


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all factors by name, on the CPU, contiguous, each in memory of its own."""
    state: dict[str, Tensor] = {}
    for path, module in model.named_modules():
        if isinstance(module, Adapted):
            for name, factor in (("A", module.A), ("B", module.B)):
                copy = torch.empty(factor.shape, dtype=factor.dtype)
                state[f"{path}.{name}".removeprefix(".")] = copy.copy_(factor.detach())
    return state
