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
        witnesses=(kink_is_one, kink_is_half),
        hint="Right on both sides of the kink. At z = 0 exactly a convention decides, and this course takes "
        "torch's: the derivative of max(0, z) is 0 there. Write `z > 0`.",
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
