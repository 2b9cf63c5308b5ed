"""Softmax cross-entropy and its gradient in one pass.

logits --minus the row's maximum, minus log sum exp--> log p --pick targets, mean--> loss
                                                       log p --exp, minus one-hot, / N--> dlogits
"""

from __future__ import annotations

import torch
from torch import Tensor


def softmax_cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over the batch of -log softmax(logits)[target], and its gradient with respect to the logits.

    logits (N, C) floating, targets (N,) int64 in [0, C). Returns loss () and dlogits (N, C) in the dtype of logits,
    finite wherever the logits are: exp only sees numbers that are not positive, and its sum is at least 1.
    Source: Goodfellow, Bengio and Courville, Deep Learning (2016), sections 4.1 and 6.2.2.3.
    """
    rows = torch.arange(len(targets))
    shifted = logits - logits.amax(dim=1, keepdim=True)
    log_p = shifted - shifted.exp().sum(dim=1, keepdim=True).log()
    loss = -log_p[rows, targets].mean()
    dlogits = log_p.exp()  # p - onehot(target), divided by N because the loss is a mean
    dlogits[rows, targets] -= 1.0
    return loss, dlogits / len(targets)
