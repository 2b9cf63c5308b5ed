"""A linear layer in int8: a step for each row of the weight, made once, and one for each row of an input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from course.lessons.int8 import int8_product

LARGEST = 127  # code; -128 is left out, so that codes are as many on both sides of 0


class Int8Linear(nn.Module):
    """y = x W' + bias with W (m, n) and x in int8 codes, their products added in int32.

    Kept: codes (m, n) int8, step (m, 1) float32, and the bias. A row of zeros has the step 1.
    Source: row-wise (vector-wise) steps: Dettmers et al., arXiv 2208.07339, section 2.1.
    """

    codes: Tensor
    step: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        codes, step = by_rows(weight.detach())
        self.register_buffer("codes", codes)
        self.register_buffer("step", step)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) -> y (..., m), in x's dtype."""
        codes, step = by_rows(x.reshape(x.shape[:-1].numel(), x.shape[-1]))
        y = int8_product(codes, self.codes.T) * step * self.step.T  # float32: float16 ends at 65,504
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype).reshape(*x.shape[:-1], len(self.codes))


def by_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, int8, and the step of each row, float32 (rows, 1)."""
    rows = rows.float()
    step = rows.abs().amax(1, keepdim=True) / LARGEST
    step = torch.where(step > 0, step, 1.0)
    return (rows / step).round().to(torch.int8), step
