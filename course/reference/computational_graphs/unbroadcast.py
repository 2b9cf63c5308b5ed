"""The backward of broadcasting: what was copied forward is summed backward.

operand (4, 1) --broadcast--> (2, 4, 3)      grad (2, 4, 3) --sum 0--> (4, 3) --sum 1, kept--> (4, 1)
"""

from __future__ import annotations

from torch import Tensor


def unbroadcast(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sums `grad`, which has the shape of a broadcast result, back to the `shape` of the operand.

    grad   any shape to which `shape` broadcasts; it is not changed
    shape  shape of the operand; () for a number
    Returns a new tensor of `shape` in grad's dtype.
    Broadcasting aligns shapes at their last dimensions (numpy and torch: "Broadcasting semantics").
    """
    total = grad.clone()  # where nothing is summed, the caller must not get its own tensor back
    for _ in range(grad.dim() - len(shape)):
        total = total.sum(dim=0)
    for i, size in enumerate(shape):
        if size == 1:
            total = total.sum(dim=i, keepdim=True)
    return total
