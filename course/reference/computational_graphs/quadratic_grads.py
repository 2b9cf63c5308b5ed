"""A polynomial of two variables, differentiated by hand."""

from __future__ import annotations


def quadratic_grads(a: float, b: float, c: float, x: float, y: float) -> tuple[float, float, float]:
    """Value, derivative by x and derivative by y of f(x, y) = a x^2 + b x y + c y^2, as three floats."""
    value = a * x**2 + b * x * y + c * y**2
    dx = 2 * a * x + b * y
    dy = b * x + 2 * c * y
    return value, dx, dy
