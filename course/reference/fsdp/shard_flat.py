"""The piece of a model that one rank keeps.

    parameters  --one after the other-->  n elements  --zeros at the end-->  size * m  --cut-->  m for each rank

FSDP's FlatParameter (Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel",
arXiv:2304.11277, section 3.2.1): padded at the end to a multiple of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def shard_flat(params: Sequence[Tensor], size: int, rank: int) -> Tensor:
    """(ceil(n / size),), this rank's elements of all parameters, tied ones once; zeros behind the last of them."""
    flat = torch.cat([each.detach().flatten() for each in dict.fromkeys(params)])
    m = -(-flat.numel() // size)
    piece = flat[rank * m : (rank + 1) * m]
    shard = flat.new_zeros(m)
    shard[: len(piece)] = piece
    return shard
