"""Wrong ways to write `unbroadcast`."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Misconception
from course.reference.computational_graphs.unbroadcast import unbroadcast as right

Shape = tuple[int, ...]


def _extra(grad: Tensor, shape: Shape) -> int:
    return grad.dim() - len(shape)


def _sum_leading(grad: Tensor, shape: Shape) -> Tensor:
    for _ in range(_extra(grad, shape)):
        grad = grad.sum(dim=0)
    return grad


def _sum_ones(grad: Tensor, shape: Shape, *, keepdim: bool = True) -> Tensor:
    """Sums over the dimensions of size 1 in `shape`, aligned at the last dimension."""
    dims = [i - len(shape) for i, size in enumerate(shape) if size == 1]
    return grad.sum(dim=dims, keepdim=keepdim) if dims else grad


def sums_trailing_dimensions(grad: Tensor, shape: Shape) -> Tensor:
    """Takes the missing dimensions for the last ones."""
    for _ in range(_extra(grad, shape)):
        grad = grad.sum(dim=-1)
    return _sum_ones(grad, shape) if grad.dim() == len(shape) else grad


def aligned_at_the_front(grad: Tensor, shape: Shape) -> Tensor:
    """Compares sizes from the front: what is left over at the end is summed."""
    for i, size in enumerate(shape):
        if size == 1:
            grad = grad.sum(dim=i, keepdim=True)
    for _ in range(_extra(grad, shape)):
        grad = grad.sum(dim=-1)
    return grad


def keeps_leading_dimensions(grad: Tensor, shape: Shape) -> Tensor:
    """keepdim=True in both sums."""
    if _extra(grad, shape):
        grad = grad.sum(dim=list(range(_extra(grad, shape))), keepdim=True)
    return _sum_ones(grad, shape)


def drops_size_one(grad: Tensor, shape: Shape) -> Tensor:
    """keepdim=False in both sums."""
    return _sum_ones(_sum_leading(grad, shape), shape, keepdim=False)


def drops_size_one_in_a_loop(grad: Tensor, shape: Shape) -> Tensor:
    """The same in a loop, in which every sum moves the dimensions behind it."""
    grad = _sum_leading(grad, shape)
    for i, size in enumerate(shape):
        if size == 1:
            grad = grad.sum(dim=i)
    return grad


def drops_where_sizes_differ(grad: Tensor, shape: Shape) -> Tensor:
    """One sum without keepdim, over leading dimensions and over those whose sizes differ."""
    extra = _extra(grad, shape)
    dims = [*range(extra), *(extra + i for i, size in enumerate(shape) if size != grad.shape[extra + i])]
    return grad.sum(dim=dims) if dims else grad.clone()


def moving_index(grad: Tensor, shape: Shape) -> Tensor:
    """Counts on, while the dimensions move up."""
    for i in range(_extra(grad, shape)):
        grad = grad.sum(dim=i)
    return _sum_ones(grad, shape)


def sums_everything(grad: Tensor, shape: Shape) -> Tensor:
    """The total in every place."""
    return grad.sum().expand(shape)


def empty_sum(grad: Tensor, shape: Shape) -> Tensor:
    """Right, but where no dimension is to be summed, sum(dim=[]) sums over all."""
    padded = (1,) * _extra(grad, shape) + tuple(shape)
    total = grad.sum(dim=[i for i, size in enumerate(padded) if size == 1], keepdim=True)
    return total if total.dim() == len(shape) else total.reshape(total.shape[_extra(grad, shape) :])


def empty_leading_sum(grad: Tensor, shape: Shape) -> Tensor:
    """The same, in the sum over the leading dimensions alone."""
    total = grad.sum(dim=tuple(range(_extra(grad, shape))))
    for i, size in enumerate(shape):
        if size == 1:
            total = total.sum(dim=i, keepdim=True)
    return total


def empty_sum_then_reshape(grad: Tensor, shape: Shape) -> Tensor:
    """The same; the reshape fails."""
    padded = (1,) * _extra(grad, shape) + tuple(shape)
    return grad.sum(dim=[i for i, size in enumerate(padded) if size == 1], keepdim=True).reshape(shape)


def empty_sum_where_sizes_differ(grad: Tensor, shape: Shape) -> Tensor:
    """The same, over the dimensions whose sizes differ."""
    extra = _extra(grad, shape)
    dims = [*range(extra), *(extra + i for i, size in enumerate(shape) if size != grad.shape[extra + i])]
    return grad.sum(dim=dims, keepdim=True).reshape(shape)


def mean_for_sum(grad: Tensor, shape: Shape) -> Tensor:
    """Averages what must be added."""
    for _ in range(_extra(grad, shape)):
        grad = grad.mean(dim=0)
    for i, size in enumerate(shape):
        if size == 1:
            grad = grad.mean(dim=i, keepdim=True)
    return grad


def first_for_sum(grad: Tensor, shape: Shape) -> Tensor:
    """Takes one of the copies."""
    grad = grad[(0,) * _extra(grad, shape)]
    for i, size in enumerate(shape):
        if size == 1:
            grad = grad.narrow(i, 0, 1)
    return grad


def only_leading(grad: Tensor, shape: Shape) -> Tensor:
    """Dimensions of size 1 stay as they are."""
    return _sum_leading(grad, shape)


def only_size_one(grad: Tensor, shape: Shape) -> Tensor:
    """Dimensions that the operand lacks stay as they are."""
    return _sum_ones(grad, shape)


def in_float64(grad: Tensor, shape: Shape) -> Tensor:
    """Sums in float64, for the sake of its digits, and returns that."""
    return right(grad.double(), shape)


def into_zeros(grad: Tensor, shape: Shape) -> Tensor:
    """Writes the sums into a new tensor of torch's default dtype."""
    total = torch.zeros(shape)
    total[...] = right(grad, shape)
    return total


MISCONCEPTIONS = (
    Misconception(
        name="wrong_axis",
        witnesses=(sums_trailing_dimensions, aligned_at_the_front),
        hint="You sum over dimensions at the end. Broadcasting aligns shapes at their last dimensions and "
        "adds new ones in front, so these are the first of `grad`. With a square matrix the shape does not "
        "tell: look at numbers.",
    ),
    Misconception(
        name="wrong_keepdim",
        witnesses=(keeps_leading_dimensions, drops_size_one, drops_size_one_in_a_loop, drops_where_sizes_differ),
        hint="The shape of your result is not the operand's. It never had the leading dimensions: sum over them "
        "without keepdim, so that they vanish. It has its dimensions of size 1: sum over those with keepdim=True. "
        "Without it, each sum also moves the dimensions behind it, and a loop's next index points elsewhere.",
    ),
    Misconception(
        name="empty_sum",
        witnesses=(empty_sum, empty_leading_sum, empty_sum_then_reshape, empty_sum_where_sizes_differ),
        hint="Where no dimension is to be summed you call `sum` with an empty tuple or list of dimensions, "
        "and torch then sums over all of them. Leave the call out when there is nothing to sum.",
    ),
    Misconception(
        name="mean_for_sum",
        witnesses=(mean_for_sum,),
        hint="The operand's number was used in many places, and a change of it changes the loss through all "
        "of them: the contributions add up. Their mean is not the gradient.",
    ),
    Misconception(
        name="first_for_sum",
        witnesses=(first_for_sum,),
        hint="The operand's number was used in many places, and a change of it changes the loss through all "
        "of them: the contributions add up. You take one of them, the first.",
    ),
    Misconception(
        name="moving_index",
        witnesses=(moving_index,),
        hint="After a sum over dimension 0 the next leading dimension is number 0. Your index counts on, and so skips "
        "every other one: always sum over dimension 0, or over all leading ones in one call.",
    ),
    Misconception(
        name="sums_everything",
        witnesses=(sums_everything,),
        hint="You add up all of `grad` and copy the total. Each number of the operand gets what came to its own copies "
        "only: sum over the dimensions that were broadcast, and leave the others alone.",
    ),
    Misconception(
        name="only_leading",
        witnesses=(only_leading,),
        hint="You sum over the dimensions that the operand lacks, but not over those where it has size 1. "
        "Its one number met the whole dimension there: sum over it too, and keep it as size 1.",
    ),
    Misconception(
        name="only_size_one",
        witnesses=(only_size_one,),
        hint="You sum over dimensions of size 1, but not over those that the operand lacks. Broadcasting "
        "adds these in front: sum over the first grad.dim() - len(shape) dimensions, and let them vanish.",
    ),
    Misconception(
        name="wrong_dtype",
        witnesses=(in_float64, into_zeros),
        fails=("dtype_of_grad",),
        hint="The numbers are right, but their dtype is not that of `grad`. You may sum in a finer one, but convert "
        "the result back; a new tensor is float32 unless you name its dtype.",
    ),
)
