"""Wrong ways to write `optimizer_bytes`: what Adafactor keeps of tensors of every number of dimensions."""

from __future__ import annotations

import math

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.optimizer_bytes_parts import (
    MOMENTS,
    Shape,
    counted,
    factored,
    numel,
)


def vectors_as_columns(shape: Shape) -> int:
    """(n,) as (n, 1): n rows and a column."""
    return shape[0] + 1 if len(shape) == 1 else factored(shape)


def vectors_as_one_mean(shape: Shape) -> int:
    """One mean for a whole vector."""
    return 1 if len(shape) == 1 else factored(shape)


def matrices_only(shape: Shape) -> int:
    """More than 2 dimensions are kept in full."""
    return factored(shape) if len(shape) == 2 else numel(shape)


def leading_folded(shape: Shape) -> int:
    """All dimensions but the last are rows of one matrix."""
    return math.prod(shape[:-1]) + shape[-1] if len(shape) > 1 else numel(shape)


def trailing_folded(shape: Shape) -> int:
    """All dimensions but the first are columns of one matrix."""
    return shape[0] + math.prod(shape[1:]) if len(shape) > 1 else numel(shape)


def a_mean_for_each_size(shape: Shape) -> int:
    """The sum of the sizes, as if each dimension were a factor."""
    return sum(shape) if len(shape) > 1 else numel(shape)


def last_two_once(shape: Shape) -> int:
    """The leading dimensions are forgotten."""
    return shape[-2] + shape[-1] if len(shape) > 1 else numel(shape)


def first_two_once(shape: Shape) -> int:
    """The first two sizes, and the trailing dimensions are forgotten."""
    return shape[0] + shape[1] if len(shape) > 1 else numel(shape)


def first_two_factored(shape: Shape) -> int:
    """The first two dimensions are taken for the matrix."""
    return math.prod(shape[2:]) * (shape[0] + shape[1]) if len(shape) > 1 else numel(shape)


def rows_only(shape: Shape) -> int:
    """A mean for each row."""
    return math.prod(shape[:-1]) if len(shape) > 1 else numel(shape)


def columns_only(shape: Shape) -> int:
    """A mean for each column."""
    return math.prod(shape[:-2]) * shape[-1] if len(shape) > 1 else numel(shape)


def no_number_alone(shape: Shape) -> int:
    """A tensor of shape () counts as nothing."""
    return math.prod(shape) if shape else 0


def nothing_alone(shape: Shape) -> int:
    """The same, for Adafactor."""
    return factored(shape) if shape else 0


MISCONCEPTIONS = (
    Misconception(
        name="factored_in_full",
        witnesses=(counted(factors=numel),),
        hint="You count Adafactor's second moment in full, r c numbers for a matrix (r, c). It never exists in full: "
        "what is kept are its row means and column means, r + c numbers.",
    ),
    Misconception(
        name="rows_or_columns_only",
        witnesses=(counted(factors=rows_only), counted(factors=columns_only)),
        hint="You count one of Adafactor's two factors. The estimate is the product of a column vector of r row means "
        "and a row vector of c column means: both are kept.",
    ),
    Misconception(
        name="vectors_factored",
        witnesses=(counted(factors=vectors_as_columns), counted(factors=vectors_as_one_mean)),
        hint="You factor vectors. A vector has no second dimension to take means over: with fewer than 2 dimensions "
        "Adafactor keeps the second moment in full.",
    ),
    Misconception(
        name="matrices_only",
        witnesses=(counted(factors=matrices_only),),
        hint="You factor tensors of 2 dimensions and keep those of 3 and 4 in full. torch factors them all: over the "
        "last two dimensions, once for each index in front of them.",
    ),
    Misconception(
        name="folded_into_one_matrix",
        witnesses=(counted(factors=leading_folded), counted(factors=trailing_folded)),
        hint="You fold a tensor of more than 2 dimensions into one matrix. torch does not: it keeps a mean over the "
        "last dimension, (..., r, 1), and one over the last but one, (..., 1, c).",
    ),
    Misconception(
        name="leading_dimensions_forgotten",
        witnesses=(
            counted(factors=a_mean_for_each_size),
            counted(factors=last_two_once),
            counted(factors=first_two_once),
        ),
        hint="Right for a matrix; a tensor (n, r, c) is n matrices, and each has its own means: n (r + c) numbers.",
    ),
    Misconception(
        name="first_two_factored",
        witnesses=(counted(factors=first_two_factored),),
        hint="You take the first two dimensions for the matrix. torch's Adafactor takes the last two. For a "
        "convolution, whose last two are the kernel's 3 x 3, that saves only a third.",
    ),
    Misconception(
        name="adafactor_with_momentum",
        witnesses=(counted(moments={**MOMENTS, "adafactor": 1}),),
        hint="You count an average of gradients for Adafactor. The paper has it as an option, which gives away most of "
        "what is saved; torch's Adafactor keeps none.",
    ),
    Misconception(
        name="single_numbers_forgotten",
        witnesses=(counted(size=no_number_alone, factors=nothing_alone), counted(factors=nothing_alone)),
        hint="A tensor of shape () holds one number: the product of no sizes is 1.",
    ),
)
