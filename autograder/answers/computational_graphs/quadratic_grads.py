"""Right and wrong ways to write `quadratic_grads`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyder, polyval2d

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.computational_graphs.quadratic_grads import quadratic_grads


def numpys_polynomials(a: float, b: float, c: float, x: float, y: float) -> list[Any]:
    """Entry i, j belongs to x^i y^j; a list of numpy's numbers."""
    f = np.array([[0, 0, c], [0, b, 0], [a, 0, 0]])
    return [polyval2d(x, y, f), polyval2d(x, y, polyder(f, axis=0)), polyval2d(x, y, polyder(f, axis=1))]


def arrays_of_no_dimension(a: float, b: float, c: float, x: float, y: float) -> tuple[Any, Any, Any]:
    """Factored, in arrays of shape ()."""
    p, q = np.array(x), np.array(y)
    return np.asarray(p * (a * p + b * q) + c * q * q), np.asarray((a + a) * p + b * q), np.asarray(b * p + (c + c) * q)


def complex_step(a: float, b: float, c: float, x: float, y: float) -> tuple[float, float, float]:
    """A step so small that its square is lost, along the imaginary axis, where nothing is subtracted."""

    def f(x: complex, y: complex) -> complex:
        return a * x * x + b * x * y + c * y * y

    step = 2.0**-100
    return f(x, y).real, f(x + step * 1j, y).imag / step, f(x, y + step * 1j).imag / step


RIGHT = (
    right(numpys_polynomials, independent="numpy.polynomial"),
    right(arrays_of_no_dimension),
    right(complex_step),
)


def forward_difference(a: float, b: float, c: float, x: float, y: float) -> tuple[float, float, float]:
    """The change of the value over a small step."""

    def f(x: float, y: float) -> float:
        return a * x**2 + b * x * y + c * y**2

    return f(x, y), (f(x + 1e-6, y) - f(x, y)) / 1e-6, (f(x, y + 1e-6) - f(x, y)) / 1e-6


by_hand = partial(edited, quadratic_grads)

BY_X, BY_Y = "+ b * y", "b * x +"  # what b x y gives
DX, DY = "dx = 2 * a * x + b * y", "dy = b * x + 2 * c * y"
TIMES_X, TIMES_Y = "2 * a * x**2 + b * x * y", "b * x * y + 2 * c * y**2"

WRONG = (
    wrong(
        "cross_term_dropped",
        "b x y depends on x and on y, so both partials have a part from it: hold y, and b y is the factor of x.",
        by_hand((BY_X, ""), (BY_Y, "")),
        by_hand((BY_X, ""), (BY_Y, ""), ("+ b * x * y", "")),
        by_hand((BY_X, "")),
        by_hand((BY_Y, "")),
    ),
    wrong(
        "factor_two_forgotten",
        "The derivative of x^2 is 2 x: the power comes down as a factor, and one less stays above. Written as x * x, "
        "x is used twice, and each use contributes x.",
        by_hand(("2 * a", "a"), ("2 * c", "c")),
        by_hand(("2 * a", "a")),
        by_hand(("2 * c", "c")),
    ),
    wrong(
        "cross_term_wrong",
        "The derivative of b x y by x is b y: x itself is gone, and the other factor stays. By y it is b x.",
        by_hand((BY_X, "+ b * x"), (BY_Y, "b * y +")),
        by_hand((BY_X, "+ b * x * y"), (BY_Y, "b * x * y +")),
        by_hand((BY_X, "+ b"), (BY_Y, "b +")),
        by_hand((BY_X, "+ b * x")),
        by_hand((BY_Y, "b * y +")),
    ),
    wrong(
        "roles_kept",
        "Your derivative by x is right, and the one by y is its copy: a became c, but x and y kept their places. "
        "By y it is y that varies, and both terms change: c y^2 gives 2 c y, b x y gives b x.",
        by_hand(("b * x + 2 * c * y", "2 * c * x + b * y")),
    ),
    wrong(
        "partials_swapped",
        "All three numbers are right, but in another order: return (value, derivative by x, derivative by y).",
        by_hand(("value, dx, dy", "value, dy, dx")),
    ),
    wrong(
        "divides_by_a_coordinate",
        "Your derivatives are right wherever you may divide by x or y, but a coordinate may be 0, or so small that "
        "what you divide by it is all rounding. Differentiate each term by itself: then nothing needs to be divided.",
        by_hand((DX, f"dx = ({TIMES_X}) / x")),
        by_hand((DX, f"dx = ({TIMES_X}) / x if x else 0.0")),
        by_hand((DX, f"dx = ({TIMES_X}) / x"), (DY, f"dy = ({TIMES_Y}) / y")),
        by_hand((DX, f"dx = ({TIMES_X}) / x if x else 0.0"), (DY, f"dy = ({TIMES_Y}) / y if y else 0.0")),
        by_hand((DY, "dy = (2 * value - x * dx) / y if y else b * x")),
    ),
    wrong(
        "near_not_exact",
        "Your derivatives are near the right ones, and not exact: the difference of two values over a small step is "
        "like that, and so is a number that was rounded or a factor that is slightly off. Differentiate by hand, term "
        "by term, and return what the two formulas give.",
        forward_difference,
        by_hand(("value, dx, dy", "value, round(dx, 3), round(dy, 3)")),
        fails=("exact_to_rounding", "every_form"),
    ),
)
