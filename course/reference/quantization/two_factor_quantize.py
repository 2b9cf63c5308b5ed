"""A weight as two factors, each with a small codebook.

w --kashin_split--> u, v --k-means, each by itself--> codes and codebook of u, codes and codebook of v
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.reference.quantization.kashin_split import kashin_split

STEPS, ROUNDS = 30, 50


def two_factor_quantize(w: Tensor, q: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes uint8 (m, n) and codebook (2**bits,) of u, then of v, so that w is about u + v q'.

    2 bits for each weight and two codebooks in all. Source: Merkulov et al., arXiv 2404.09737, section 4.
    """
    u, v = kashin_split(w, q, STEPS)
    return *clustered(u, bits), *clustered(v, bits)


def clustered(x: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes like x and codebook (2**bits,), by k-means from the quantiles on (Lloyd, Least squares quantization, 1982).

    The entries nearest to a value lie between the middles to its neighbours, so that a sorted search finds them.
    """
    count = 2**bits
    values = x.flatten()
    places = (torch.arange(count, dtype=x.dtype, device=x.device) + 0.5) / count
    book = torch.quantile(values, places)
    for _ in range(ROUNDS):
        codes = _nearest(values, book)
        held = torch.bincount(codes, minlength=count)
        sums = torch.zeros_like(book).index_add_(0, codes, values)
        book = torch.where(held > 0, sums / held.clamp(min=1), book)
    return _nearest(values, book).to(torch.uint8).reshape(x.shape), book


def _nearest(values: Tensor, book: Tensor) -> Tensor:
    """The code of the nearest value for each; the book is sorted, and stays so while values move to means."""
    return torch.bucketize(values, (book[1:] + book[:-1]) / 2)
