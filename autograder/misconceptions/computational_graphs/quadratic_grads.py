"""Wrong ways to write `quadratic_grads`."""

from __future__ import annotations

from autograder.bank import Misconception

Three = tuple[float, float, float]


def _value(a: float, b: float, c: float, x: float, y: float) -> float:
    return a * x**2 + b * x * y + c * y**2


def cross_term_dropped(a: float, b: float, c: float, x: float, y: float) -> Three:
    """b x y is in the value and in neither partial."""
    return _value(a, b, c, x, y), 2 * a * x, 2 * c * y


def cross_term_dropped_everywhere(a: float, b: float, c: float, x: float, y: float) -> Three:
    """b x y is nowhere."""
    return a * x**2 + c * y**2, 2 * a * x, 2 * c * y


def factor_two_forgotten(a: float, b: float, c: float, x: float, y: float) -> Three:
    """The power comes down as 1."""
    return _value(a, b, c, x, y), a * x + b * y, b * x + c * y


def power_kept(a: float, b: float, c: float, x: float, y: float) -> Three:
    """The 2 comes down, and the power stays 2."""
    return _value(a, b, c, x, y), 2 * a * x**2 + b * y, b * x + 2 * c * y**2


def wrong_factor_left(a: float, b: float, c: float, x: float, y: float) -> Three:
    """Of x y the variable itself is left in place of the other one."""
    return _value(a, b, c, x, y), 2 * a * x + b * x, b * y + 2 * c * y


def cross_term_undifferentiated(a: float, b: float, c: float, x: float, y: float) -> Three:
    """b x y stands in the partials as it is."""
    return _value(a, b, c, x, y), 2 * a * x + b * x * y, b * x * y + 2 * c * y


def partials_swapped(a: float, b: float, c: float, x: float, y: float) -> Three:
    """Returns the derivative by y first."""
    return _value(a, b, c, x, y), b * x + 2 * c * y, 2 * a * x + b * y


MISCONCEPTIONS = (
    Misconception(
        name="cross_term_dropped",
        witnesses=(cross_term_dropped, cross_term_dropped_everywhere),
        hint="b x y depends on x and on y, so both partials have a part from it: hold y, and b y is the factor of x.",
    ),
    Misconception(
        name="factor_two_forgotten",
        witnesses=(factor_two_forgotten, power_kept),
        hint="The derivative of x^2 is 2 x: the power comes down as a factor, and one less stays above. "
        "Written as x * x, x is used twice, and each use contributes x.",
    ),
    Misconception(
        name="cross_term_wrong",
        witnesses=(wrong_factor_left, cross_term_undifferentiated),
        hint="The derivative of b x y by x is b y, the other factor: x itself is gone. By y it is b x.",
    ),
    Misconception(
        name="partials_swapped",
        witnesses=(partials_swapped,),
        hint="All three numbers are right, but in another order: return (value, derivative by x, derivative by y).",
    ),
)
