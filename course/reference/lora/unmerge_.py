"""The way back from a merged adapter: W becomes W - scale B A."""

from __future__ import annotations

from typing import Any

import torch


@torch.no_grad()
def unmerge_(layer: Any) -> None:
    """Takes scale B A off the weight (m, n) of `layer.base`, a LoRALinear or its like; not merged, does nothing.

    What the rounding of the sum lost stays lost: the weight is what it was before, up to one rounding of the merged one
    and one of its own. Source: Hu et al., LoRA (arXiv:2106.09685), section 4.1.
    """
    if not layer.merged:
        return
    weight = layer.base.weight
    finer = torch.promote_types(weight.dtype, torch.float32)
    product = layer.B.to(finer) @ layer.A.to(finer)
    weight.copy_(weight.to(finer) - layer.scale * product)
    layer.merged = False
