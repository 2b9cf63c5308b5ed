"""The gradient noise scale: how many examples a batch holds when its noise is as large as the gradient.

mean |G_small|^2 = |G|^2 + S / b        mean |G_large|^2 = |G|^2 + S / B        two equations, two unknowns: |G|^2 and S
"""

from __future__ import annotations

from torch import Tensor

from course.errors import BadArgument


def gradient_noise_scale(small: Tensor, large: Tensor, b_small: int, b_large: int) -> tuple[float, float, float]:
    """The noise S, the squared gradient |G|^2, and their ratio, the simple noise scale in examples.

    small, large  (draws, d): each row the mean gradient of a batch of `b_small`, or `b_large`, examples; the two may
                  hold different numbers of draws
    S is the trace of the covariance of one example's gradient. S and |G|^2 are unbiased; their ratio is not.
    From few draws S may come out negative; it is returned as it is, because an estimate that is cut off at 0 is biased.
    Raises BadArgument where b_small is not from 1 up to below b_large, and where the estimate of |G|^2 is not positive.
    Source: McCandlish et al., An Empirical Model of Large-Batch Training (arXiv:1812.06162), appendix A.1.
    """
    if not 1 <= b_small < b_large:
        raise BadArgument(f"b_small must be at least 1 and less than b_large, got {b_small} and {b_large}")
    mean_small, mean_large = _mean_squared_norm(small), _mean_squared_norm(large)
    squared_gradient = (b_large * mean_large - b_small * mean_small) / (b_large - b_small)  # S cancels
    noise = (mean_small - mean_large) / (1 / b_small - 1 / b_large)  # |G|^2 cancels
    if not squared_gradient > 0:
        raise BadArgument(
            f"the estimate of |G|^2 must be positive, got {squared_gradient:.3g}: take more draws or larger batches"
        )
    return noise, squared_gradient, noise / squared_gradient


def _mean_squared_norm(gradients: Tensor) -> float:
    """The squared norm of each row, averaged over the rows; in float64, because two of them will be subtracted."""
    return float(gradients.double().square().sum(dim=1).mean())
