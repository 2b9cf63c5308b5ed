"""NF4: blocks of numbers, each divided by its largest magnitude and rounded to one of 16 quantiles of a normal law."""

from __future__ import annotations

import torch
from torch import Tensor

from course.lessons.nf4 import NF4


def nf4_quantize(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Codes, uint8 in the shape of x, and scales, float32, one for each block of x in row-major order.

    A block of zeros has scale 0 and the code 7, of value 0. The last block may be shorter.
    Source: QLoRA, Dettmers et al., arXiv 2305.14314, section 3 and Appendix E.
    """
    flat = x.detach().flatten().float()
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % block)).reshape(-1, block)
    scales = blocks.abs().amax(1)
    units = blocks / torch.where(scales > 0, scales, 1.0)[:, None]
    values = torch.tensor(NF4, device=x.device)
    codes = torch.bucketize(units, (values[1:] + values[:-1]) / 2)  # which of the 15 midpoints lie below
    return codes.flatten()[: len(flat)].reshape(x.shape).to(torch.uint8), scales
