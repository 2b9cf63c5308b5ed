"""Right and wrong ways to write `hinge_backward`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.computational_graphs.hinge_backward import hinge_backward

Partials = tuple[list[float], list[float], float, float, float]


def torchs_own(w: list[float], x: list[float], b: float, y: float) -> list[Any]:
    """Autograd; torch too takes 0 at the kink."""
    ws, xs, bias, label = (torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (w, x, b, y))
    z = ws @ xs + bias
    partials = torch.autograd.grad(label - z.relu(), [ws, xs, bias, label, z])
    return [each.tolist() for each in partials]


def numpy_arrays(w: list[float], x: list[float], b: float, y: float) -> list[Any]:
    """Arrays in place of lists; the branch is a factor 0 or 1."""
    ws, xs = np.array(w), np.array(x)
    on = np.heaviside(ws @ xs + b, 0.0)
    return [-on * xs, -on * ws, -on, np.float64(1.0), -on]


def two_branches(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """Each branch returns its own result; whole numbers where they are whole."""
    z = b
    for i in range(len(w)):
        z += w[i] * x[i]
    if z <= 0:
        return [0] * len(w), [0] * len(x), 0, 1, 0
    return [-xi for xi in x], [-wi for wi in w], -1, 1, -1


RIGHT = (right(torchs_own, independent="torch.autograd"), right(numpy_arrays), right(two_branches))

by_hand = partial(edited, hinge_backward)
branches = partial(edited, two_branches)
in_numpy = partial(edited, numpy_arrays)

SLOPE = "-1.0 if z > 0 else 0.0"
RETURNED = "return dw, dx, dz, 1.0, dz"
PRODUCTS = "sum(wi * xi for wi, xi in zip(w, x, strict=True))"
LITERATURES = "dz = -y if 1.0 - y * z > 0 else 0.0", "dy = -z if 1.0 - y * z > 0 else 0.0"

WRONG = (
    wrong(
        "passes_gradient_when_off",
        "Your gradient flows whatever z is. Where z < 0 the hinge returns 0, and still does when z moves a little: the "
        "derivative of max(0, z) is 0 there, and it multiplies everything behind it.",
        by_hand((SLOPE, "-1.0")),
    ),
    wrong(
        "branch_from_the_loss",
        "You choose the branch by the sign of the loss. The hinge looks at z: keep z from the forward pass, and ask "
        "whether z > 0.",
        by_hand(("z > 0", "y - max(0.0, z) > 0")),
    ),
    wrong(
        "kink_is_one",
        "Right on both sides of the kink. At z = 0 exactly a convention decides, and this course takes torch's: the "
        "derivative of max(0, z) is 0 there, neither 1 nor the mean of both sides. Write `z > 0`.",
        by_hand(("z > 0", "z >= 0")),
        by_hand((SLOPE, f"-0.5 if z == 0 else {SLOPE}")),
    ),
    wrong(
        "bias_forgotten",
        "You choose the branch without b. The hinge is on where z = w.x + b is positive, and b can decide that.",
        by_hand((" + b", "")),
    ),
    wrong(
        "part_of_the_products",
        "You choose the branch by a part of z. All products w_i x_i belong to w.x, and the hinge looks at their sum "
        "with b.",
        by_hand((PRODUCTS, "w[0] * x[0]")),
        by_hand((PRODUCTS, "w[-1] * x[-1]")),
    ),
    wrong(
        "threshold_beside_0",
        "Right unless z is very small: 2^-40 is taken for 0 or -2^-26 for more, as happens where z is compared with "
        "another small number than 0, or rounded before, as in float32. `z > 0` decides, however small z is.",
        by_hand(("z > 0", "z > 1e-6")),
        by_hand(("z > 0", "z > -1e-6")),
        by_hand(("z > 0", "z > 1e-300")),
        in_numpy(("ws @ xs + b", "float(np.float32(ws) @ np.float32(xs)) + b")),
        in_numpy(("ws @ xs + b", "np.float32(ws @ xs + b)")),
    ),
    wrong(
        "branches_exchanged",
        "Your two branches are exchanged: the gradient flows where z > 0, and nothing does elsewhere.",
        by_hand(("z > 0", "z <= 0")),
    ),
    wrong(
        "value_for_slope",
        "You pass on the value of max(0, z). Backward it is the slope that counts: 1 where z > 0, however large z is, "
        "and else 0.",
        by_hand((SLOPE, "-max(0.0, z)")),
    ),
    wrong(
        "db_without_dz",
        "db goes through z as dw and dx do. z moves by 1 for each unit of b, so db is dz times 1: -1 where the hinge "
        "is on, and 0 where it is off.",
        by_hand((RETURNED, "return dw, dx, 1.0, 1.0, dz")),
        by_hand((RETURNED, "return dw, dx, -1.0, 1.0, dz")),
    ),
    wrong(
        "dy_and_dz_swapped",
        "All five are right, but in another order: return (dw, dx, db, dy, dz).",
        by_hand((RETURNED, "return dw, dx, dz, dz, 1.0")),
    ),
    wrong(
        "no_zeros",
        "Where nothing flows, dw and dx are still lists, as long as w and x: one zero for each number.",
        branches(("[0] * len(w), [0] * len(x)", "[], []")),
        branches(("[0] * len(w), [0] * len(x)", "0, 0")),
    ),
    wrong(
        "minus_lost",
        "dz is the derivative of the loss by z, not that of max(0, z) alone. The loss is y minus max(0, z), so the "
        "last step multiplies by -1, and this factor reaches z and everything behind it.",
        by_hand(("-1.0 if", "1.0 if")),
        by_hand((RETURNED, "return dw, dx, dz, 1.0, -dz")),
    ),
    wrong(
        "sign_of_y",
        "The minus belongs to max(0, z). y itself is added: when y grows by 1, so does the loss, and dy is +1.",
        by_hand((RETURNED, "return dw, dx, dz, -1.0, dz")),
    ),
    wrong(
        "gates_y",
        "Your dy is 1 where the hinge is on and 0 where it is off. y does not pass through max(0, z): when y grows by "
        "1, the loss does too, on either side.",
        by_hand((RETURNED, "return dw, dx, dz, -dz, dz")),
        by_hand((RETURNED, "return dw, dx, dz, 1.0 if z >= 0 else 0.0, dz")),
        branches(("0, 1, 0", "0, 0, 0")),
    ),
    wrong(
        "the_literatures_hinge",
        "These are the derivatives of max(0, 1 - y z), the hinge loss of the literature. Ours is y - max(0, z): it is "
        "on where z > 0, and y stands in it alone.",
        by_hand(("dz = -1.0 if z > 0 else 0.0", "\n    ".join(LITERATURES)), (RETURNED, "return dw, dx, dz, dy, dz")),
    ),
    wrong(
        "the_hinge_around_the_loss",
        "These are the derivatives of max(0, y - z). In ours, y - max(0, z), the maximum is taken of z alone: z > 0 "
        "decides, and y is outside of it.",
        by_hand(("z > 0", "y - z > 0"), (RETURNED, "return dw, dx, dz, -dz, dz")),
    ),
    wrong(
        "swaps_w_and_x",
        "The derivative of w_i x_i by w_i is x_i, the other factor: dw is built from x, and dx from w.",
        by_hand((RETURNED, "return dx, dw, dz, 1.0, dz")),
    ),
)
