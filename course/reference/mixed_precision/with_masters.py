"""Any optimizer's step through float32 master copies, AdamW's for instance.

half grads --float32--> step on the masters --round to nearest--> half params
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Step: TypeAlias = Callable[[list[Tensor], list[Tensor | None]], object]


@torch.no_grad()
def with_masters(params: Sequence[Tensor], grads: Sequence[Tensor | None], masters: list[Tensor], step: Step) -> None:
    """One step on the masters, in place; then the parameters are their roundings.

    params   float16 or bfloat16, of any shapes and devices
    grads    one per parameter, in its dtype or wider, without a loss scale; they stay as they are. None: the parameter
             is not stepped, and is written anew from its master
    masters  float32, one per parameter, from `master_copies`
    step     changes its first argument by its second, both float32. Master-weight AdamW is
             functools.partial(adamw_step, state=state, lr=lr) with course/reference/optimizers' adamw_step, whose
             moments are float32 then
    In bfloat16 the gap at 1 is 2^-7, below it 2^-8: an update of up to 2^-9 moves no weight of 1, however often.
    Source: Micikevicius et al., Mixed Precision Training (arXiv:1710.03740), section 3.1.
    """
    step(masters, [None if g is None else g.float() for g in grads])
    for param, master in zip(params, masters, strict=True):
        param.copy_(master)
