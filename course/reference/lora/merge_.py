"""An adapter that costs nothing any more: W becomes W + scale B A."""

from __future__ import annotations

from typing import Any

import torch


@torch.no_grad()
def merge_(layer: Any) -> None:
    """Adds scale B A into the weight (m, n) of `layer.base`, a LoRALinear or its like; once merged, does nothing.

    Computed in float32 or finer and rounded once, so that outputs stay the same up to a rounding of the weight. Costs
    2 m n r FLOPs, and three tensors of (m, n) for a moment.
    Source: Hu et al., LoRA (arXiv:2106.09685), section 4.1, "No Additional Inference Latency".
    """
    if layer.merged:
        return
    weight = layer.base.weight
    finer = torch.promote_types(weight.dtype, torch.float32)
    product = layer.B.to(finer) @ layer.A.to(finer)
    weight.copy_(weight.to(finer) + layer.scale * product)
    layer.merged = True
