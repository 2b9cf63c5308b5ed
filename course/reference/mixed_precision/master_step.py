"""A float32 master copy of half-precision parameters: it takes the updates that they would round away.

gradients --float32--> masters -= lr gradient --round to nearest--> half-precision parameters
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def master_copies(params: Sequence[Tensor]) -> list[Tensor]:
    """float32 copies, one per parameter, that no graph records: 4 bytes a number more."""
    return [param.detach().to(torch.float32, copy=True) for param in params]


@torch.no_grad()
def master_step(p16: Sequence[Tensor], p32: Sequence[Tensor], g16: Sequence[Tensor], lr: float) -> None:
    """One plain step: the masters lose lr times the gradient, in place; then the parameters are their roundings.

    p16  float16 or bfloat16, of any shapes and devices; they may require a gradient
    p32  their masters, float32, from `master_copies`
    g16  their gradients, or any other directions, in half precision or float32, without a loss scale. They stay as
         they are
    lr   at least 0
    In bfloat16 the gap at 1 is 2^-7, below it 2^-8: an update of up to 2^-9 moves no weight of 1, however often.
    Source: Micikevicius et al., Mixed Precision Training (arXiv:1710.03740), section 3.1.
    """
    for param, master, grad in zip(p16, p32, g16, strict=True):
        master -= lr * grad.float()  # in half precision the product would lose digits, or vanish
        param.copy_(master)
