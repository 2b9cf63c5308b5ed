"""AdamW whose two moments are kept in 8 bits: taken out, updated, used, and rounded again.

codes, scales --value * scale--> m, v --gradient--> m, v --step--> param
                                        \\--nearest value of m / scale--> codes, scales
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.lessons.dynamic_code import SIGNED, UNSIGNED


@torch.no_grad()
def adam8_step(
    param: Tensor,
    grad: Tensor,
    state: dict[str, Any],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    block: int = 256,
) -> None:
    """One step, in place, for one parameter in float32.

    state  {} at first; then step, an int, and m and v as pairs of codes (numel,) uint8 and scales (blocks,) float32
    The step uses the moments before they are rounded, as the paper's section 2 does.
    Source: Dettmers et al., arXiv 2110.02861, section 2; the decay is that of torch.optim.AdamW.
    """
    beta1, beta2 = betas
    t = state["step"] = state.get("step", 0) + 1
    g = grad.flatten()
    m = beta1 * _taken(state, "m", SIGNED, block, g) + (1 - beta1) * g
    v = beta2 * _taken(state, "v", UNSIGNED, block, g) + (1 - beta2) * g.square()
    param.mul_(1 - lr * weight_decay)
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    param.sub_((lr * m_hat / (v_hat.sqrt() + eps)).reshape(param.shape))
    state["m"], state["v"] = _coded(m, SIGNED, block), _coded(v, UNSIGNED, block)


def _taken(state: dict[str, Any], name: str, values: Tensor, block: int, like: Tensor) -> Tensor:
    """The moment, float32; zeros before the first step."""
    if name not in state:
        return torch.zeros_like(like)
    codes, scales = state[name]
    numbers: Tensor = values[codes.int()] * scales.repeat_interleave(block)[: len(like)]
    return numbers


def _coded(numbers: Tensor, values: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The code of the value nearest to number / scale, and the scale of each block, its largest magnitude."""
    blocks = torch.nn.functional.pad(numbers, (0, -len(numbers) % block)).reshape(-1, block)
    scales = blocks.abs().amax(1)
    units = blocks / torch.where(scales > 0, scales, 1.0)[:, None]
    codes = torch.bucketize(units, (values[1:] + values[:-1]) / 2)
    return codes.flatten()[: len(numbers)].to(torch.uint8), scales
