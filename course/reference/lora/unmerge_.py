"""The way back from a merged adapter: W becomes W - scale B A."""

from __future__ import annotations

import torch

from course.lessons.adapted import Adapted


@torch.no_grad()
def unmerge_(layer: Adapted) -> None:
    """Takes scale B A off base's weight (m, n), in its memory; does nothing where it is not merged.

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
