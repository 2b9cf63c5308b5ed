"""Linear layers with a packed weight, 8 or 4 bits, and adapters that are trained beside them.

nn.Linear --from_linear--> Int8Linear, Int4Linear, NF4Linear --x--> y: a tile of the float weight at a time
NF4Linear --LoRA4--> base's y + scale * (x A') B': gradients reach A, B and x; the base has none and needs none

words
    tile    TILE rows of the weight, unpacked to floats for one product and then forgotten
    packed  two codes a byte, the first in the low nibble
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from course.errors import BadArgument
from course.lessons.nf4 import NF4
from course.reference.quantization.int8linear import Int8Linear
from course.reference.quantization.nf4_quantize import nf4_quantize

__all__ = ["Int4Linear", "Int8Linear", "LoRA4", "NF4Linear"]
TILE = 64


class _Packed(nn.Module):
    """What both layers of 4 bits share: packed codes and a scale for each block of a row.

    weight  (m, n), where block divides n and n is even: no block or byte belongs to two rows
    Kept: packed (m, n / 2) uint8, scales (m, n / block) in scale_dtype, and the bias. Raises BadArgument otherwise.
    """

    packed: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, block: int, scale_dtype: torch.dtype) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        if block < 1 or self.in_features % block or self.in_features % 2:
            raise BadArgument(f"block must divide an even number of columns, got {block} and {self.in_features}")
        codes, scales = self._codes(weight.detach().float(), block, scale_dtype)
        self.block = block
        self.register_buffer("packed", codes[:, ::2] | codes[:, 1::2] << 4)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    @classmethod
    def from_linear(cls, linear: nn.Linear, **how: Any) -> Any:
        """The layer that replaces this one."""
        return cls(linear.weight, linear.bias, **how)

    def _codes(self, weight: Tensor, block: int, scale_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Codes from 0 to 15, uint8 (m, n), and scales (m, n / block)."""
        raise NotImplementedError

    def _values(self) -> Tensor:
        """What each of the 16 codes stands for, over the scale; float32."""
        raise NotImplementedError

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """These rows of the weight in floats, (stop - start, n)."""
        packed = self.packed[start:stop]
        codes = torch.stack([packed & 15, packed >> 4], 2).reshape(len(packed), -1, self.block)
        values = self._values()[codes.int()] * self.scales[start:stop].float()[:, :, None]
        return values.reshape(len(packed), -1).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) -> y (..., m) in x's dtype; backward gives x its gradient, and unpacks tiles again."""
        y: Tensor = _Tiles.apply(x, self)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias.to(y.dtype)


class _Tiles(torch.autograd.Function):
    """y = x W', a tile of W after the other; dx = dy W likewise. No tile is kept for backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: _Packed) -> Tensor:
        ctx.layer = layer
        y = x.new_empty(*x.shape[:-1], layer.out_features)
        for start in range(0, layer.out_features, TILE):
            stop = min(start + TILE, layer.out_features)
            y[..., start:stop] = x @ layer.rows(start, stop, x.dtype).T
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        layer, (dy,) = ctx.layer, grads
        dx = dy.new_zeros(*dy.shape[:-1], layer.in_features)
        for start in range(0, layer.out_features, TILE):
            stop = min(start + TILE, layer.out_features)
            dx += dy[..., start:stop] @ layer.rows(start, stop, dy.dtype)
        return dx, None


class Int4Linear(_Packed):
    """Weights in steps of their block: codes from -7 to 7, kept 8 higher; a scale is the block's largest |w| over 7."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, block: int = 64, scale_dtype: torch.dtype = torch.float16
    ) -> None:
        super().__init__(weight, bias, block, scale_dtype)

    def _codes(self, weight: Tensor, block: int, scale_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        blocks = weight.reshape(len(weight), -1, block)
        scales = (blocks.abs().amax(2) / 7).to(scale_dtype)
        steps = torch.where(scales > 0, scales.float(), 1.0)  # as they are kept: rounded scales round codes, too
        codes = (blocks / steps[:, :, None]).round().clamp(-7, 7) + 8
        return codes.to(torch.uint8).reshape(weight.shape), scales

    def _values(self) -> Tensor:
        return torch.arange(-8.0, 8.0, device=self.packed.device)


class NF4Linear(_Packed):
    """Weights as NF4's values times the largest |w| of their block (arXiv 2305.14314, without double quantization)."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, block: int = 64, scale_dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(weight, bias, block, scale_dtype)

    def _codes(self, weight: Tensor, block: int, scale_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        codes, scales = nf4_quantize(weight, block)
        return codes, scales.reshape(len(weight), -1).to(scale_dtype)

    def _values(self) -> Tensor:
        return torch.tensor(NF4, device=self.packed.device)


class LoRA4(nn.Module):
    """An adapter beside a packed layer: y = base(x) + alpha / r (x A') B', with A normal and B zero (QLoRA)."""

    def __init__(self, base: Int4Linear | NF4Linear, r: int, alpha: float, rng: torch.Generator | None = None) -> None:
        super().__init__()
        if r < 1 or not 0 < alpha < math.inf:
            raise BadArgument(f"r must be at least 1 and alpha above 0 and finite, got {r} and {alpha}")
        self.base, self.scale = base.requires_grad_(False), alpha / r
        drawn = torch.randn(r, base.in_features, generator=rng) / math.sqrt(base.in_features)
        self.A = nn.Parameter(drawn.to(base.packed.device))
        self.B = nn.Parameter(torch.zeros(base.out_features, r, device=base.packed.device))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        y: Tensor = self.base(x)
        return y + self.scale * (x @ self.A.T @ self.B.T)
