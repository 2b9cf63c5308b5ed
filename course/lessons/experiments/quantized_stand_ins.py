"""What stands in for answers of lesson 08, written otherwise than its exercises ask for."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from course.lessons.nf4 import NF4


def affine(x: Tensor, bits: int, dim: int | None = None) -> tuple[Tensor, Tensor]:
    """Step and zero point of the smallest range that holds x and 0, for all of x or for each index of `dim`."""
    others = [each for each in range(x.dim()) if each != dim]
    least = torch.amin(x, others, keepdim=dim is not None).clamp(max=0.0)
    span = torch.amax(x, others, keepdim=dim is not None).clamp(min=0.0) - least
    step = span.div(2**bits - 1).masked_fill(span == 0, 1.0)
    return step, least.div(step).neg().round().sub(2 ** (bits - 1)).to(torch.int32)


def coded(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """The nearest codes in the range."""
    return x.div(step).round().add(zero).clamp(-(1 << bits - 1), (1 << bits - 1) - 1).to(torch.int8)


def meant(codes: Tensor, step: Tensor, zero: Tensor) -> Tensor:
    """What codes stand for."""
    return codes.to(step.dtype).sub(zero).mul(step)


def normal_step(bits: int) -> float:
    """The step that serves normal numbers best, by trying 4,000 of them on 2 ** 15 evenly likely numbers."""
    x = torch.special.ndtri((torch.arange(2**15, dtype=torch.float64) + 0.5) / 2**15)
    top, tried = 2 ** (bits - 1) - 1, torch.linspace(0.02, 1.6, 4_000, dtype=torch.float64)
    errors = [float((x - x.div(each).round().clamp(-top, top) * each).square().mean()) for each in tried]
    return float(tried[int(np.argmin(errors))])


def nibbles(codes: Tensor) -> Tensor:
    """Two codes in a byte, the first one low."""
    low, high = np.resize(np.append(codes.flatten().numpy(), np.int8(0)), (codes.numel() + 1) // 2 * 2).reshape(-1, 2).T
    return torch.from_numpy((low & 15 | (high & 15) << 4).astype(np.uint8))


def from_nibbles(packed: Tensor, count: int) -> Tensor:
    """The codes that `nibbles` packed."""
    both = torch.stack([packed.remainder(16), packed.div(16, rounding_mode="floor")], dim=-1).ravel()[:count]
    return both.to(torch.int8).add(8).remainder(16).sub(8)


def nearest_nf4(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The nearest of NF4's values for each number, in blocks that divide x."""
    parts = x.detach().reshape(-1, block)
    scales = torch.linalg.vector_norm(parts, torch.inf, dim=1)
    units = parts.div(scales.clamp(min=1e-30).unsqueeze(1)).unsqueeze(2)
    return torch.argmin((units - torch.tensor(NF4)).square(), dim=2).to(torch.uint8).view_as(x), scales


def fed_forward(w: Tensor, hessian: Tensor, step: Tensor, bits: int, damp: float) -> Tensor:
    """Column by column, each column's error made good by those that are left (arXiv 2210.17323, section 3)."""
    top, rest = 2 ** (bits - 1) - 1, w.double()
    ridge = torch.full((len(hessian),), float(damp * hessian.diagonal().mean()), dtype=torch.float64)
    inverse, columns = (hessian.double() + ridge.diag()).inverse(), []
    while rest.shape[1]:
        first = rest[:, 0] / step[:, 0]
        columns.append(first.round().clamp(-top, top))
        error = (first - columns[-1]) * step[:, 0] / inverse[0, 0]
        rest = (rest - torch.outer(error, inverse[0]))[:, 1:]
        inverse = (inverse - torch.outer(inverse[0], inverse[0]) / inverse[0, 0])[1:, 1:]
    return torch.stack(columns, 1).to(torch.int8)


def halves(w: Tensor, q: Tensor, steps: int = 30) -> list[Tensor]:
    """u and v of w = u + v q', by `steps` sign vectors (arXiv 2404.09737), where rows have the basis q."""
    found, left = [torch.zeros_like(w), torch.zeros_like(w)], w
    for _ in range(steps):
        seen = (left, torch.einsum("ij,jk->ik", left, q))
        which = int(seen[1].norm(p=1) > seen[0].norm(p=1))
        piece = torch.copysign(seen[which].abs().mean(), seen[which])
        found[which] += piece
        left = left - (torch.einsum("ik,jk->ij", piece, q) if which else piece)
    return found


def two_codebooks(w: Tensor, q: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The two factors of w, each by a codebook that Lloyd's steps have moved."""
    (one, its), (other, others) = (_clustered(each, 2**bits) for each in halves(w, q))
    return one, its, other, others


def _clustered(factor: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Codes and values of a codebook that begins at quantiles."""
    spread = torch.arange(1, 2 * count, 2, dtype=factor.dtype).div(2 * count)
    values = torch.quantile(factor.ravel(), spread)
    for _ in range(50):
        near = torch.bucketize(factor, values.unfold(0, 2, 1).mean(1))
        sums = torch.zeros_like(values).index_add_(0, near.ravel(), factor.ravel())
        sizes = torch.bincount(near.ravel(), minlength=count)
        values = torch.where(sizes > 0, sums / sizes.clamp(min=1), values)
    return torch.bucketize(factor, values.unfold(0, 2, 1).mean(1)).to(torch.uint8), values


def straight_through(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """The nearest values of the grid; the gradient of a number that is cut off is 0, of any other that of the value."""
    least = (-(2 ** (bits - 1)) - zero) * step
    inside = torch.minimum(torch.maximum(x, least), least + (2**bits - 1) * step)
    return inside + (meant(coded(x, step, zero, bits), step, zero) - inside).detach()


class IntegerLinear(nn.Module):
    """A linear layer on codes from -127 to 127, with a step for each row of the weight and of the input."""

    codes: Tensor
    step: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        for name, each in zip(("codes", "step"), per_row(weight.detach()), strict=True):
            self.register_buffer(name, each)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        codes, step = per_row(x)
        sums = torch.einsum("...n,mn->...m", codes.double(), self.codes.double())  # exact: below 2 ** 53
        y = sums.float() * step * self.step.flatten()
        return y if self.bias is None else y + self.bias


def per_row(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and a step for each row of x (..., n)."""
    step = torch.linalg.vector_norm(x, torch.inf, dim=-1, keepdim=True).div(127)
    step = step.masked_fill(step == 0, 1.0)
    return x.div(step).round().to(torch.int8), step


def parted(x: Tensor, w: Tensor, threshold: float) -> Tensor:
    """Columns of x with an outlier in full precision, all others in 8 bits."""
    far = torch.linalg.vector_norm(x, torch.inf, dim=0) >= threshold
    kept = ~far
    near = IntegerLinear(w[:, kept])(x[:, kept]) if bool(kept.any()) else 0.0
    return near + torch.einsum("kn,mn->km", x[:, far], w[:, far])
