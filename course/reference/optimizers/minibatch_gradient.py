"""The gradient of a random mini-batch, right on average whatever the probabilities.

examples --drawn with probabilities p--> indices --weights 1 / (n p_i), mean--> estimate of the mean gradient
"""

from __future__ import annotations

from torch import Tensor


def minibatch_gradient(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """An unbiased estimate of `grads.mean(0)` from the examples that were drawn.

    grads (n, d), one gradient for each example; probs (n,), what each example is drawn with, in the dtype of grads;
    indices (b,) int64, drawn with replacement. Returns (d,) in the dtype of grads. What was never drawn is not read,
    so a probability may be 0. Averaged over all draws, each as often as it comes, the estimate is the mean gradient if
    every probability is above 0; an example of probability 0 is never seen, and its share is missing.
    Source: Zhao and Zhang (arXiv 1401.2753), section 3, for a batch of one; a batch is the mean of b such estimates.
    """
    weights = 1 / (len(probs) * probs[indices])  # 1 / (n p_i): often drawn, little weight; 1 if all are equal
    return (weights[:, None] * grads[indices]).mean(dim=0)
