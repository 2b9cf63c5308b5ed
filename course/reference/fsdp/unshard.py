"""A unit's full tensors, for as long as they are needed.

    shard of each rank  --all_gather-->  the row  --without its padding, split, view-->  full tensors, no copy

FSDP (Y. Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", arXiv:2304.11277,
section 3.2.3): the original parameters are views into the unsharded flat parameter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from course.cluster import Comm


def unshard(comm: Comm, shard: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Tensors of these shapes, views of one row: (P - 1) shards sent by each rank, and a row of P shards held."""
    row = shard.new_empty(comm.size * len(shard))
    comm.all_gather_single(row, shard)
    sizes = [math.prod(shape) for shape in shapes]
    pieces = torch.split(row[: sum(sizes)], sizes)
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
