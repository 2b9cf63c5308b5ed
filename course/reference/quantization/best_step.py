"""The symmetric grid that serves a normal number best, by its error in closed form and a search in thirds."""

from __future__ import annotations

import math


def best_step(bits: int) -> float:
    """The step of the grid -(2**(bits - 1) - 1), ..., 2**(bits - 1) - 1 with the least mean squared error for N(0, 1).

    The error has one minimum in [0.01, 3]. Table of steps: Max, "Quantizing for minimum distortion", 1960.
    """
    top = 2 ** (bits - 1) - 1

    def moments(t: float) -> tuple[float, float, float]:  # integrals of p, x p and x^2 p from t on
        p = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
        q = math.erfc(t / math.sqrt(2)) / 2
        return q, p, q + t * p

    def error(step: float) -> float:  # of the positive half
        total = 0.0
        for k in range(top + 1):
            a, b = max(k - 0.5, 0) * step, (k + 0.5) * step if k < top else 40.0
            q, p, s = (one - other for one, other in zip(moments(a), moments(b), strict=True))
            total += s - 2 * k * step * p + (k * step) ** 2 * q
        return total

    low, high = 0.01, 3.0
    for _ in range(60):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if error(a) < error(b) else (a, high)
    return (low + high) / 2
