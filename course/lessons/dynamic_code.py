"""256 values for a state in 8 bits: leading bits give the power of ten, the rest a fraction of it.

SIGNED    float32, sorted, from -1 to 1, 0 among them: for the mean of gradients
UNSIGNED  float32, sorted, from 0 to 1: for the mean of their squares, with one bit more for the fraction

Source: 8-bit optimizers, Dettmers et al., arXiv 2110.02861, sections 1.3 (dynamic tree quantization) and 2.2. The
values are those of bitsandbytes (`create_dynamic_map`): -1 is not among the signed ones, so that 256 are enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

POWERS = 7  # 1 to 10^-6


def _dynamic(signed: bool) -> Tensor:
    """Midpoints of equal pieces of [0.1, 1], times a power of ten: half as many pieces for each power below."""
    values = [torch.tensor([0.0, 1.0], dtype=torch.float64)]
    for power in range(POWERS):
        pieces = 2 ** (POWERS - 1 - power + (not signed))
        edges = torch.linspace(0.1, 1, pieces + 1, dtype=torch.float64)
        fractions = (edges[1:] + edges[:-1]) / 2 * 10.0**-power
        values += [fractions, -fractions] if signed else [fractions]
    return torch.cat(values).sort().values.float()


SIGNED, UNSIGNED = _dynamic(signed=True), _dynamic(signed=False)
