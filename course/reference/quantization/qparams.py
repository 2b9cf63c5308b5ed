"""Step and zero point of a tensor's affine grid: [min(x, 0), max(x, 0)] has 2**bits codes, and 0 is one of them."""

from __future__ import annotations

import torch
from torch import Tensor


def qparams(x: Tensor, bits: int, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """(step, zero) of x; shapes (), or 1 everywhere but at `dim`; step in float32 at least, zero in int32.

    Where all numbers are 0, step is 1. Source: Jacob et al., arXiv 1712.05877, section 2.1.
    """
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    dims = [each for each in range(x.dim()) if dim is None or each != dim % x.dim()]
    low = wide.amin(dims, keepdim=dim is not None).clamp(max=0) if dims else wide.clamp(max=0)
    high = wide.amax(dims, keepdim=dim is not None).clamp(min=0) if dims else wide.clamp(min=0)
    step = (high - low) / (2**bits - 1)
    step = torch.where(step > 0, step, 1.0)
    return step, (-(2 ** (bits - 1)) - (low / step).round()).to(torch.int32)
