"""A frozen linear layer with a trainable matrix of rank at most r beside it.

x --base: x W' + bias-----------------------> + --> y
 \\--A: (r, n)--> h --B: (m, r)--> times scale-/
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course.errors import BadArgument


class LoRALinear(nn.Module):
    """y = base(x) + scale (x A') B', scale = alpha / r; base(x) alone while `merged`.

    base   an nn.Linear with weight (m, n), which is kept as it is and frozen
    A, B   parameters (r, n) and (m, r) in the dtype and on the device of base's weight; A drawn from `rng`, normal with
           standard deviation 1 / sqrt(n), B at 0
    merged whether scale B A stands in base's weight at present
    Of N rows the adapter costs 2 N r (m + n) FLOPs. Raises BadArgument for an r below 1 or an alpha not above 0.
    Source: Hu et al., LoRA (arXiv:2106.09685), section 4.1, which draws A "random Gaussian" and leaves its size open.
    """

    def __init__(self, base: nn.Linear, r: int, alpha: float, rng: torch.Generator) -> None:
        if r < 1 or not alpha > 0:
            raise BadArgument(f"r must be at least 1 and alpha above 0, got {r} and {alpha}")
        super().__init__()
        self.base = base.requires_grad_(False)
        m, n = base.weight.shape
        drawn = torch.randn(r, n, generator=rng, device=rng.device, dtype=base.weight.dtype) / n**0.5
        self.A = nn.Parameter(drawn.to(base.weight.device))
        self.B = nn.Parameter(base.weight.new_zeros(m, r))
        self.scale = alpha / r
        self.merged = False

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) -> y (..., m)."""
        y: Tensor = self.base(x)
        return y if self.merged else y + self.scale * (x @ self.A.T @ self.B.T)
