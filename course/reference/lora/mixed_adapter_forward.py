"""Several adapters in one pass: the base for all rows, then each adapter for the rows that ask for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def mixed_adapter_forward(
    x: Tensor, ids: Tensor, linear: nn.Linear, adapters: Sequence[tuple[Tensor, Tensor, float]]
) -> Tensor:
    """x (batch, time, n) to (batch, time, m); ids int64 (batch,), -1 for none; adapters (A (r, n), B (m, r), scale).

    A token costs 2 m n FLOPs of the base and 2 r (m + n) of its adapter. Raises ValueError for an id of no adapter.
    Source: one group of rows for each adapter, as in Punica's kernels, Chen et al., arXiv 2310.18547, section 4.
    """
    if ((ids < -1) | (ids >= len(adapters))).any():
        raise ValueError(f"ids must lie from -1 to {len(adapters) - 1}, got {ids.tolist()}")
    y: Tensor = linear(x)
    for number, (A, B, scale) in enumerate(adapters):
        rows = torch.nonzero(ids == number)[:, 0]
        y[rows] += scale * (x[rows] @ A.T @ B.T)
    return y
