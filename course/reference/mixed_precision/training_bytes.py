"""What a recipe of mixed precision keeps for each parameter when a step of Adam begins.

states  = parameters + gradients, copy by copy + float32 master copy + two moments + float32 scales (one a block)
passing = what autocast casts: there from the forward pass that makes it until backward has used it
"""

from __future__ import annotations

import math
from typing import TypedDict

import torch

MASTER = torch.float32
SCALE = torch.float32


class Recipe(TypedDict):
    """In which dtypes a training run keeps what.

    param     of the parameters
    grads     of each copy of the gradients that is kept until the step; empty where backward uses and frees each
    rounding  of a step: "nearest" or "stochastic"
    moments   of both moments
    block     None, or the numbers of a moment that share a scale
    autocast  None, or the dtype to which it casts
    """

    param: torch.dtype
    grads: tuple[torch.dtype, ...]
    rounding: str
    moments: torch.dtype
    block: int | None
    autocast: torch.dtype | None


def training_bytes(n: int, recipe: Recipe) -> tuple[int, int]:
    """Bytes of the states of n parameters, and of the cast copies that are there while a pass runs.

    Only parameters that are narrower than float32 and rounded to nearest need a master copy: float32 takes small steps
    itself, and stochastic rounding takes them on average. All parameters count as one tensor, so that only one block
    of each moment may be smaller; step counters (4 bytes a tensor) and activations are not counted. Autocast's copies
    count as if every parameter went into a product; torch casts those that do, and keeps casts of float32 leaves only.
    Sources: Rajbhandari et al. (arXiv:1910.02054), section 3.1: 16 bytes; Megatron Core's distributed optimizer
    (https://docs.nvidia.com/megatron-core): 20, 18 and 16 bytes; Dettmers et al. (arXiv:2110.02861), section 2.1.
    """
    param, moment = recipe["param"].itemsize, recipe["moments"].itemsize
    grads = sum(dtype.itemsize for dtype in recipe["grads"])
    needs_master = param < MASTER.itemsize and recipe["rounding"] == "nearest"
    master = MASTER.itemsize if needs_master else 0
    states = n * (param + grads + master + 2 * moment)
    if recipe["block"] is not None:
        states += 2 * math.ceil(n / recipe["block"]) * SCALE.itemsize
    cast = recipe["autocast"]
    passing = 0 if cast is None or cast == recipe["param"] else n * cast.itemsize
    return states, passing
