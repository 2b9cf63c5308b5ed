"""Wrong ways to write `hinge_backward`."""

from __future__ import annotations

from autograder.bank import Misconception

Partials = tuple[list[float], list[float], float, float, float]


def _z(w: list[float], x: list[float], b: float) -> float:
    return sum(wi * xi for wi, xi in zip(w, x, strict=True)) + b


def _through(dz: float, w: list[float], x: list[float]) -> Partials:
    """The right partials behind a given dz."""
    return [dz * xi for xi in x], [dz * wi for wi in w], dz, 1.0, dz


def passes_gradient_when_off(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """max(0, z) is treated as z."""
    return _through(-1.0, w, x)


def branch_from_the_loss(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """Asks whether the loss is positive, not whether z is."""
    loss = y - max(0.0, _z(w, x, b))
    return _through(-1.0 if loss > 0 else 0.0, w, x)


def kink_is_one(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """`>=` in place of `>`."""
    return _through(-1.0 if _z(w, x, b) >= 0 else 0.0, w, x)


def kink_is_half(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """The mean of both sides at the kink."""
    z = _z(w, x, b)
    return _through(-0.5 if z == 0 else -1.0 if z > 0 else 0.0, w, x)


def minus_lost(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """The derivative of max(0, z) in place of that of the loss."""
    return _through(1.0 if _z(w, x, b) > 0 else 0.0, w, x)


def minus_lost_in_dz(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """The same, in dz alone."""
    on = 1.0 if _z(w, x, b) > 0 else 0.0
    return (*_through(-on, w, x)[:4], on)


def sign_of_y(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """dy is -1, as if y were taken away."""
    dw, dx, db, _, dz = _through(-1.0 if _z(w, x, b) > 0 else 0.0, w, x)
    return dw, dx, db, -1.0, dz


def bias_forgotten(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """z is w.x alone."""
    return _through(-1.0 if _z(w, x, 0.0) > 0 else 0.0, w, x)


def branches_exchanged(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """On where the hinge is off, and off where it is on."""
    return _through(0.0 if _z(w, x, b) > 0 else -1.0, w, x)


def value_for_slope(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """The hinge's value in place of its derivative."""
    return _through(-max(0.0, _z(w, x, b)), w, x)


def plain_db(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """db is the derivative of z, not of the loss."""
    dw, dx, _, dy, dz = _through(-1.0 if _z(w, x, b) > 0 else 0.0, w, x)
    return dw, dx, 1.0, dy, dz


def plain_db_with_minus(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """The same with the sign of the loss, and without the branch."""
    dw, dx, _, dy, dz = _through(-1.0 if _z(w, x, b) > 0 else 0.0, w, x)
    return dw, dx, -1.0, dy, dz


def y_and_z_swapped(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """Returns dz before dy."""
    dw, dx, db, dy, dz = _through(-1.0 if _z(w, x, b) > 0 else 0.0, w, x)
    return dw, dx, db, dz, dy


def empty_lists(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """Nothing is appended where nothing flows."""
    return _through(-1.0, w, x) if _z(w, x, b) > 0 else ([], [], 0.0, 1.0, 0.0)


def one_zero_for_a_list(w: list[float], x: list[float], b: float, y: float) -> tuple[object, ...]:
    """One 0 in place of a list."""
    return _through(-1.0, w, x) if _z(w, x, b) > 0 else (0.0, 0.0, 0.0, 1.0, 0.0)


def swaps_w_and_x(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """dw is built from w, dx from x."""
    return _through(-1.0 if _z(w, x, b) > 0 else 0.0, x, w)


MISCONCEPTIONS = (
    Misconception(
        name="passes_gradient_when_off",
        witnesses=(passes_gradient_when_off,),
        hint="Your gradient flows whatever z is. Where z < 0 the hinge returns 0, and still does when z "
        "moves a little: the derivative of max(0, z) is 0 there, and it multiplies everything behind it.",
    ),
    Misconception(
        name="branch_from_the_loss",
        witnesses=(branch_from_the_loss,),
        hint="You choose the branch by the sign of the loss. The hinge looks at z: keep z from the forward "
        "pass, and ask whether z > 0.",
    ),
    Misconception(
        name="kink_is_one",
        witnesses=(kink_is_one,),
        hint="Right on both sides of the kink. At z = 0 exactly a convention decides, and this course takes "
        "torch's: the derivative of max(0, z) is 0 there. Write `z > 0`.",
    ),
    Misconception(
        name="kink_is_half",
        witnesses=(kink_is_half,),
        hint="Right on both sides of the kink. At z = 0 exactly a convention decides; yours is the mean of both "
        "sides, and this course takes torch's: the derivative of max(0, z) is 0 there. Write `z > 0`.",
    ),
    Misconception(
        name="bias_forgotten",
        witnesses=(bias_forgotten,),
        hint="You choose the branch without b. The hinge is on where z = w.x + b is positive, and b can decide that.",
    ),
    Misconception(
        name="branches_exchanged",
        witnesses=(branches_exchanged,),
        hint="Your two branches are exchanged: the gradient flows where z > 0, and nothing does elsewhere.",
    ),
    Misconception(
        name="value_for_slope",
        witnesses=(value_for_slope,),
        hint="You pass on the value of max(0, z). Backward it is the slope that counts: 1 where z > 0, however large "
        "z is, and else 0.",
    ),
    Misconception(
        name="db_without_dz",
        witnesses=(plain_db, plain_db_with_minus),
        hint="db goes through z as dw and dx do. z moves by 1 for each unit of b, so db is dz times 1: -1 where the "
        "hinge is on, and 0 where it is off.",
    ),
    Misconception(
        name="dy_and_dz_swapped",
        witnesses=(y_and_z_swapped,),
        hint="All five are right, but in another order: return (dw, dx, db, dy, dz).",
    ),
    Misconception(
        name="no_zeros",
        witnesses=(empty_lists, one_zero_for_a_list),
        hint="Where nothing flows, dw and dx are still lists, as long as w and x: one zero for each number.",
    ),
    Misconception(
        name="minus_lost",
        witnesses=(minus_lost, minus_lost_in_dz),
        hint="dz is the derivative of the loss by z, not that of max(0, z) alone. The loss is y minus "
        "max(0, z), so the last step multiplies by -1, and this factor reaches z and everything behind it.",
    ),
    Misconception(
        name="sign_of_y",
        witnesses=(sign_of_y,),
        hint="The minus belongs to max(0, z). y itself is added: when y grows by 1, so does the loss, and dy is +1.",
    ),
    Misconception(
        name="swaps_w_and_x",
        witnesses=(swaps_w_and_x,),
        hint="The derivative of w_i x_i by w_i is x_i, the other factor: dw is built from x, and dx from w.",
    ),
)
