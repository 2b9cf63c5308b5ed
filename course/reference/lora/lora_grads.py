"""Gradients of an adapter's two factors.

y = x (W + scale B A)'        dB = scale dy' (x A')        dA = scale (dy B)' x        summed over all rows
"""

from __future__ import annotations

from torch import Tensor


def lora_grads(x: Tensor, dy: Tensor, A: Tensor, B: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The gradients (dA, dB) of a scalar whose gradient with respect to `y = x @ (W + scale * B @ A).T` is `dy`.

    x (..., n), dy (..., m), A (r, n), B (m, r), all of one floating dtype; any number of leading dimensions, also none;
    sizes may be 0. Returns dA (r, n) and dB (m, r) in that dtype. Of N rows it costs 4 N r (m + n) FLOPs, and makes
    nothing larger than these and two matrices (N, r).
    Source: Hu et al., LoRA (arXiv:2106.09685), section 4.1 for y; the rest is the chain rule.
    """
    rows = x.shape[:-1].numel()  # reshape cannot work out a -1 beside a 0
    x, dy = x.reshape(rows, A.shape[1]), dy.reshape(rows, B.shape[0])
    dB = scale * dy.T @ (x @ A.T)
    dA = scale * (dy @ B).T @ x
    return dA, dB
