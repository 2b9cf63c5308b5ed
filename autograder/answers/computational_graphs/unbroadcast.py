"""Right and wrong ways to write `unbroadcast`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.exercises.computational_graphs.tensors import DIGITS, EVERY_DIGIT
from course.reference.computational_graphs.unbroadcast import unbroadcast

Shape = tuple[int, ...]


def torchs_own(grad: Tensor, shape: Shape) -> Tensor:
    """Broadcasts something of that shape, and lets autograd go back."""
    operand = torch.zeros(shape, dtype=grad.dtype, requires_grad=True)
    (summed,) = torch.autograd.grad(operand.expand(grad.shape), operand, grad.clone())
    return summed


def one_sum_and_reshape(grad: Tensor, shape: Shape) -> Tensor:
    """All dimensions in one sum that keeps them, then a reshape that drops the leading ones."""
    padded = (1,) * (grad.dim() - len(shape)) + tuple(shape)
    dims = [i for i, size in enumerate(padded) if size == 1]
    return (grad.sum(dim=dims, keepdim=True) if dims else grad).reshape(shape)


def numpy_in_float64(grad: Tensor, shape: Shape) -> Tensor:
    """Float64 inside; last dimension first."""
    array = grad.double().numpy()
    for back in range(1, array.ndim + 1):
        if back > len(shape) or shape[-back] == 1:
            array = array.sum(axis=-back, keepdims=True)
    return torch.from_numpy(array.reshape(shape)).to(grad.dtype)


RIGHT = (right(torchs_own, independent="torch.autograd"), right(one_sum_and_reshape), right(numpy_in_float64))

in_loops = partial(edited, unbroadcast)
in_one_sum = partial(edited, one_sum_and_reshape)
in_numpy = partial(edited, numpy_in_float64)

LEADING = "    for _ in range(grad.dim() - len(shape)):\n        total = total.sum(dim=0)\n"
SUM_OVER_ONE = "        if size == 1:\n            total = total.sum(dim=i, keepdim=True)\n"
SIZE_ONE = f"    for i, size in enumerate(shape):\n{SUM_OVER_ONE}"
AT_THE_END = "    while total.dim() > len(shape):\n        total = total.sum(dim=-1)\n"
FOLDED = (
    "    lead = grad.dim() - len(shape)\n    total = total.view(grad.shape[:lead].numel(), *grad.shape[lead:]).sum(0)\n"
)
NO_RESHAPE = (".reshape(shape)", "")
NO_KEEPDIM = (", keepdim=True", "")
WHERE_SIZES_DIFFER = ("size == 1", "size != grad.shape[i]")
MEAN_OF_LEADING, MEAN_OF_SIZE_ONE = ("sum(dim=0", "mean(dim=0"), ("sum(dim=i", "mean(dim=i")
ONE_BY_ONE_LEADING = ("total.sum(dim=0)", "sum(total.unbind(0), total.sum(dim=0) * 0)")
ONE_BY_ONE = ("total.sum(dim=i, keepdim=True)", "sum(total.unbind(i), total.sum(dim=i) * 0).unsqueeze(i)")
WITHOUT_ASKING = (" if dims else grad", "")


def sums_everything(grad: Tensor, shape: Shape) -> Tensor:
    """The total in every place."""
    return grad.sum().expand(shape)


WRONG = (
    wrong(
        "wrong_axis",
        "You sum over dimensions at the end. Broadcasting aligns shapes at their last dimensions and adds new ones in "
        "front, so these are the first of `grad`. With a square matrix the shape does not tell: look at numbers.",
        in_loops(("dim=0", "dim=-1")),
        in_loops((LEADING, ""), (SIZE_ONE, SIZE_ONE + AT_THE_END)),
    ),
    wrong(
        "keeps_the_leading_dimensions",
        "Your result has the right numbers and too many dimensions, each new one of size 1. The operand never had the "
        "leading dimensions: they must vanish, so sum over them without keepdim, or reshape at the end.",
        in_one_sum(NO_RESHAPE),
    ),
    wrong(
        "drops_dimensions_of_size_1",
        "Your result has the right numbers, but lacks dimensions of size 1 that the operand has. `sum` drops each "
        "dimension that it sums unless keepdim=True; `squeeze()` drops every one of size 1.",
        in_one_sum(NO_KEEPDIM, NO_RESHAPE),
        in_one_sum((".reshape(shape)", ".squeeze()")),
        in_one_sum(NO_KEEPDIM, NO_RESHAPE, WHERE_SIZES_DIFFER),
    ),
    wrong(
        "loses_a_dimension_in_the_loop",
        "Your loop sums over a dimension of size 1 without keepdim=True. The operand has that dimension; and without "
        "it the dimensions behind move up, so that the loop's next index points elsewhere.",
        in_loops(NO_KEEPDIM),
    ),
    wrong(
        "one_leading_dimension_only",
        "Right where `grad` has one dimension more than the operand, and wrong where it has two: one leading dimension "
        "is summed, the others stay. Sum as long as there is one too many (`while`, not `if`).",
        in_loops((LEADING, "    if total.dim() > len(shape):\n        total = total.sum(dim=0)\n")),
        in_loops(
            (LEADING, ""), (SIZE_ONE, SIZE_ONE + "    if total.dim() > len(shape):\n        total = total.sum(0)\n")
        ),
    ),
    wrong(
        "empty_sum",
        "Where no dimension is to be summed you call `sum` with an empty tuple or list of dimensions, and torch then "
        "sums over all of them. Leave the call out when there is nothing to sum.",
        in_one_sum(WITHOUT_ASKING),
        in_one_sum(WITHOUT_ASKING, WHERE_SIZES_DIFFER),
        in_one_sum(WITHOUT_ASKING, (".reshape(shape)", "[(0,) * (grad.dim() - len(shape))]")),
        in_loops((LEADING, "    total = total.sum(dim=tuple(range(grad.dim() - len(shape))))\n")),
    ),
    wrong(
        "mean_for_sum",
        "The operand's number was used in many places, and a change of it changes the loss through all of them: the "
        "contributions add up. Their mean is not the gradient.",
        in_loops(MEAN_OF_LEADING, MEAN_OF_SIZE_ONE),
        in_loops(MEAN_OF_LEADING),
        in_loops(MEAN_OF_SIZE_ONE),
    ),
    wrong(
        "first_for_sum",
        "The operand's number was used in many places, and a change of it changes the loss through all of them: the "
        "contributions add up. You take one of them, the first.",
        in_loops(("total.sum(dim=0)", "total[0]"), ("sum(dim=i, keepdim=True)", "narrow(i, 0, 1)")),
    ),
    wrong(
        "moving_index",
        "After a sum over dimension 0 the next leading dimension is number 0. Your index counts on, and so skips every "
        "other one: always sum over dimension 0, or over all leading ones in one call.",
        in_loops(("for _ in", "for i in"), ("dim=0", "dim=i")),
    ),
    wrong(
        "sums_everything",
        "You add up all of `grad` and copy the total. Each number of the operand gets what came to its own copies "
        "only: sum over the dimensions that were broadcast, and leave the others alone.",
        sums_everything,
    ),
    wrong(
        "only_leading",
        "You sum over the dimensions that the operand lacks, but not over those where it has size 1. Its one number "
        "met the whole dimension there: sum over it too, and keep it as size 1.",
        in_loops((SIZE_ONE, "")),
    ),
    wrong(
        "only_size_one",
        "You sum over dimensions of size 1, but not over those that the operand lacks. Broadcasting adds these in "
        "front: sum over the first grad.dim() - len(shape) dimensions, and let them vanish.",
        in_loops((LEADING, "")),
        in_loops((LEADING, ""), ("dim=i", "dim=i - len(shape)")),
    ),
    wrong(
        "view_of_scattered_numbers",
        "Right for a tensor whose numbers lie in a row, and an exception for one where they do not: a transpose, or a "
        "slice of a wider tensor. `view` cannot fold those; `reshape` copies where it must.",
        in_loops(("grad.clone()", "grad"), (LEADING, FOLDED)),
    ),
    wrong(
        "wrong_dtype",
        "The numbers are right, but your result is not a tensor in the dtype of `grad`. You may sum in a finer dtype, "
        "but convert the result back; a new tensor is float32 unless you name its dtype, and `.item()` makes a Python "
        "number.",
        in_numpy((".to(grad.dtype)", "")),
        in_numpy((".to(grad.dtype)", ".float()")),
        in_loops(("return total", "return total if shape else total.item()")),
        fails=("dtype_of_grad",),
    ),
    wrong(
        "digits_lost_in_float64",
        DIGITS,
        in_loops(("grad.clone()", "grad.float()"), ("return total", "return total.to(grad.dtype)")),
        fails=(EVERY_DIGIT,),
    ),
    wrong(
        "added_up_in_half_precision",
        "You add numbers one by one in the dtype of `grad`. In bfloat16, 256 + 1 is 256, and in float16, 2048 + 1 is "
        "2048: a sum of many numbers stands still there. torch's sum adds up in float32, NumPy's does not; where you "
        "add yourself, convert first, and back at the end.",
        in_loops(ONE_BY_ONE_LEADING),
        in_loops(ONE_BY_ONE),
        in_numpy(("grad.double()", "(grad.float() if grad.dtype == torch.bfloat16 else grad)")),  # NumPy has float16
    ),
)
