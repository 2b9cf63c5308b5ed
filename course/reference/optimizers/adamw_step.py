"""Adam with decoupled weight decay.

grad --> m, v (running means of g and g^2) --divide by 1 - beta^t--> m_hat, v_hat --m_hat / (sqrt(v_hat) + eps)--> param
param --times 1 - lr wd--> param                                                       the decay meets no moment
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course.reference.optimizers.demands import at_least_zero, below_one, same_shapes


@torch.no_grad()
def adamw_step(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[dict[str, Tensor]],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    amsgrad: bool = False,
) -> None:
    """One step, in place, with the arithmetic of `torch.optim.AdamW`; without weight decay that of Adam.

    params, grads  tensors of any shapes, floating dtypes and devices, in pairs of one shape and dtype; grads stay as
                   they are. Where a gradient is None, the parameter, its moments and its age stay as they are too.
                   Parameters may require a gradient: nothing is recorded.
    state          one dict per parameter, empty before its first gradient, then `m` and `v` like the parameter and
                   `step`, its age in steps: a float32 number on the CPU, so that no device must be waited for; with
                   amsgrad also `v_max`
    eps            in float16 the default is rounded to 0, as in torch: where v is 0 the step is then nan
    amsgrad        whether the step divides by the root of the largest v so far, so that no rate grows again
    Cost           two tensors kept per parameter, with amsgrad three; one made on the way.
    Raises BadArgument, before anything is changed, for lr, eps or weight_decay below 0, betas outside [0, 1), and
    shapes that differ.

    Source: Kingma and Ba (arXiv:1412.6980), Algorithm 1; Loshchilov and Hutter (arXiv:1711.05101), Algorithm 2. There
    the decay is multiplied by the schedule only; here, as in torch, by the whole rate. AMSGrad: Reddi, Kale and Kumar
    (arXiv:1904.09237), Algorithm 2, which has no corrections; here, as in torch, the largest v is corrected.
    """
    beta1, beta2 = betas
    at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay)
    below_one(beta1=beta1, beta2=beta2)
    same_shapes(params, grads)
    for param, grad, kept in zip(params, grads, state, strict=True):
        if grad is None:
            continue
        if not kept:
            kept.update(step=torch.zeros(()), m=torch.zeros_like(param), v=torch.zeros_like(param))
        m, v = kept["m"], kept["v"]
        kept["step"] += 1
        t = int(kept["step"])
        param.mul_(1 - lr * weight_decay)  # p <- p - lr wd p
        m.lerp_(grad, 1 - beta1)  # m <- beta1 m + (1 - beta1) g
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)  # v <- beta2 v + (1 - beta2) g^2
        if amsgrad:
            if "v_max" not in kept:
                kept["v_max"] = torch.zeros_like(v)
            v = torch.maximum(kept["v_max"], v, out=kept["v_max"])  # v_max <- max(v_max, v)
        root = v.sqrt().div_(math.sqrt(1 - beta2**t))  # sqrt(v_hat), v_hat = v / (1 - beta2^t)
        param.addcdiv_(m, root.add_(eps), value=-lr / (1 - beta1**t))  # p <- p - lr m_hat / (sqrt(v_hat) + eps)
