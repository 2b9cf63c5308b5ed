"""The price of adapters in numbers.

W (m, n)   ->   B (m, r)  and  A (r, n):   m r + r n = r (m + n)
"""

from __future__ import annotations

from collections.abc import Mapping


def lora_parameters(shapes: Mapping[str, tuple[int, int]], r: int) -> int:
    """Numbers in the adapters of all these matrices: Hu et al. (arXiv 2106.09685), section 4.1."""
    return r * sum(m + n for m, n in shapes.values())
