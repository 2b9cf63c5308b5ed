"""What an optimizer keeps in memory beside parameters and gradients.

moments (in the state's dtype) + float32 scales (one a block) + float32 master copy (of parameters below 4 bytes)
    + step counters (4 bytes a tensor)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from course.errors import BadArgument

NO_STEPS = {"sgd": 0, "momentum": 1, "muon": 1}  # moments of a parameter's shape, by names that count no steps
COUNT_STEPS = {"adagrad": 1, "rmsprop": 1, "adadelta": 2, "adam": 2, "adamw": 2}
FULL_MOMENTS = NO_STEPS | COUNT_STEPS
NAMES = (*FULL_MOMENTS, "adafactor")
MASTER = torch.float32
COUNTER = torch.float32
SCALE = torch.float32


def optimizer_bytes(
    shapes: Sequence[tuple[int, ...]],
    name: str,
    dtypes: dict[str, torch.dtype],
    block: int | None = None,
) -> int:
    """Bytes that the optimizer `name` keeps beside parameters and gradients, as measured on torch.optim after a step.

    shapes  of the parameters; () is one number
    name    "sgd", "momentum", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "adafactor" or "muon"
    dtypes  {"param": ..., "state": ...}
    block   None, or the numbers of a moment that share a scale, their largest absolute value
    Moments are kept in dtypes["state"]. Parameters of fewer than 4 bytes a number have a master copy in float32.
    torch.optim keeps a "step" for each tensor but in SGD and Muon: a tensor of shape (), in float32 whatever the
    parameters' dtype (where torch's default dtype is not float64). Adam and AdamW are counted without amsgrad, RMSprop
    without momentum and not centered: each is one moment more.
    Tensors of all sizes have blocks; bitsandbytes (`min_8bit_size`) leaves those under 4,096 numbers in float32.
    Raises BadArgument on an unknown name, and, as torch.optim.Muon does, on a shape for Muon that is not 2-D.
    Sources: torch 2.13; Adafactor: Shazeer and Stern (arXiv:1804.04235), algorithms 4 (matrices) and 5 (vectors);
    blocks: Dettmers et al. (arXiv:2110.02861), section 2.1, where they have 2,048 numbers.
    """
    if name not in NAMES:
        raise BadArgument(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    total = 0
    for shape in shapes:
        if name == "muon" and len(shape) != 2:
            raise BadArgument(f"muon must be given matrices only, got the shape {tuple(shape)}")
        moments = _moments(shape, name)
        total += sum(moments) * dtypes["state"].itemsize
        if block is not None:
            total += sum(math.ceil(numbers / block) for numbers in moments) * SCALE.itemsize
        if dtypes["param"].itemsize < MASTER.itemsize:
            total += math.prod(shape) * MASTER.itemsize
        if name not in NO_STEPS:
            total += COUNTER.itemsize
    return total


def _moments(shape: tuple[int, ...], name: str) -> list[int]:
    """How many numbers each moment of one parameter holds.

    Adafactor, from 2 dimensions on: the mean over the last one, (..., r, 1), and over the last but one, (..., 1, c).
    """
    if name == "adafactor" and len(shape) > 1:
        return [math.prod(shape[:-1]), math.prod(shape[:-2]) * shape[-1]]
    return [math.prod(shape)] * FULL_MOMENTS.get(name, 1)
