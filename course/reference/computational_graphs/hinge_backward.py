"""The hinge, differentiated by hand.

w, x, b --> z = w.x + b --> max(0, z) --> loss = y - max(0, z)
dw, dx, db <-- dz = -1 where z > 0, else 0 <-- dloss = 1 --> dy
"""

from __future__ import annotations

Partials = tuple[list[float], list[float], float, float, float]


def hinge_backward(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """The derivatives (dw, dx, db, dy, dz) of y - max(0, w.x + b).

    w and x are lists of n floats, and so are dw and dx. The derivative of max(0, z) at z = 0 is 0, as in torch.
    """
    z = sum(wi * xi for wi, xi in zip(w, x, strict=True)) + b
    dz = -1.0 if z > 0 else 0.0
    dw = [dz * xi for xi in x]
    dx = [dz * wi for wi in w]
    return dw, dx, dz, 1.0, dz
