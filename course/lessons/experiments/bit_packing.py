"""Codes of any number of bits, one after the other in bytes, as a file has them.

codes --packed_bits--> uint8 --unpacked_bits--> the same codes
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def packed_bits(codes: Tensor, bits: int) -> Tensor:
    """Signed codes of this many bits each, from 1 to 8, as bytes; the last byte is filled up with zeros."""
    raised = (codes.flatten().numpy().astype(np.int16) + 2 ** (bits - 1)).astype(np.uint8)
    return torch.from_numpy(np.packbits(np.unpackbits(raised[:, None], axis=1)[:, -bits:]))


def unpacked_bits(packed: Tensor, bits: int, count: int) -> Tensor:
    """The codes of `packed_bits`, int8 (count,)."""
    rows = np.unpackbits(packed.numpy())[: count * bits].reshape(count, bits)
    values = rows @ (1 << np.arange(bits - 1, -1, -1))
    return torch.from_numpy((values - 2 ** (bits - 1)).astype(np.int8))
