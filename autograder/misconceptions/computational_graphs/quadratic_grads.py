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


def both_variables_gone(a: float, b: float, c: float, x: float, y: float) -> Three:
    """Of b x y only b is left."""
    return _value(a, b, c, x, y), 2 * a * x + b, b + 2 * c * y


def wrong_factor_left_by_y(a: float, b: float, c: float, x: float, y: float) -> Three:
    """The derivative by x is right, and its cross term stands in the other one too."""
    return _value(a, b, c, x, y), 2 * a * x + b * y, b * y + 2 * c * y


def roles_kept(a: float, b: float, c: float, x: float, y: float) -> Three:
    """dy is dx with another letter in front."""
    return _value(a, b, c, x, y), 2 * a * x + b * y, 2 * c * x + b * y


def forward_difference(a: float, b: float, c: float, x: float, y: float) -> Three:
    """The change of the value over a small step."""
    step = 1e-6
    here = _value(a, b, c, x, y)
    return here, (_value(a, b, c, x + step, y) - here) / step, (_value(a, b, c, x, y + step) - here) / step


def central_difference(a: float, b: float, c: float, x: float, y: float) -> Three:
    """The same on both sides."""
    step = 1e-5
    dx = (_value(a, b, c, x + step, y) - _value(a, b, c, x - step, y)) / (2 * step)
    dy = (_value(a, b, c, x, y + step) - _value(a, b, c, x, y - step)) / (2 * step)
    return _value(a, b, c, x, y), dx, dy


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
        witnesses=(factor_two_forgotten,),
        hint="The derivative of x^2 is 2 x: the power comes down as a factor, and one less stays above. "
        "Written as x * x, x is used twice, and each use contributes x.",
    ),
    Misconception(
        name="power_kept",
        witnesses=(power_kept,),
        hint="The 2 came down as a factor, but the power above stayed 2: the derivative of x^2 is 2 x, with one less "
        "above.",
    ),
    Misconception(
        name="cross_term_wrong",
        witnesses=(wrong_factor_left, cross_term_undifferentiated, both_variables_gone, wrong_factor_left_by_y),
        hint="The derivative of b x y by x is b y: x itself is gone, and the other factor stays. By y it is b x.",
    ),
    Misconception(
        name="roles_kept",
        witnesses=(roles_kept,),
        hint="Your derivative by x is right, and the one by y is its copy: a became c, but x and y kept their places. "
        "By y it is y that varies, and both terms change: c y^2 gives 2 c y, b x y gives b x.",
    ),
    Misconception(
        name="finite_difference",
        witnesses=(forward_difference, central_difference),
        fails=("exact_to_rounding",),
        hint="Your derivatives are near, not exact: the difference of two values over a small step does that. "
        "Differentiate by hand, term by term, and write the two formulas down.",
    ),
    Misconception(
        name="partials_swapped",
        witnesses=(partials_swapped,),
        hint="All three numbers are right, but in another order: return (value, derivative by x, derivative by y).",
    ),
)
