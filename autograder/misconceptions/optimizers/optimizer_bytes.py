"""Wrong ways to write `optimizer_bytes`: moments, master copy and step counters; then Adafactor's shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence

import torch

from autograder.bank import Misconception
from course.performing.exercise import Answer

Shape = tuple[int, ...]
Dtypes = Mapping[str, torch.dtype]
Bytes = Callable[[Dtypes], int]  # of one number
MOMENTS = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adamw": 2, "muon": 1, "adafactor": 0}
COUNT_STEPS = ("adagrad", "rmsprop", "adamw", "adafactor")


def numel(shape: Shape) -> int:
    """How many numbers a tensor holds."""
    return math.prod(shape)


def factored(shape: Shape) -> int:
    """How many numbers Adafactor keeps."""
    return math.prod(shape[:-2]) * (shape[-2] + shape[-1]) if len(shape) > 1 else math.prod(shape)


def state_bytes(dtypes: Dtypes) -> int:
    """Of a number in the state."""
    return dtypes["state"].itemsize


def param_bytes(dtypes: Dtypes) -> int:
    """Of a number in the parameters."""
    return dtypes["param"].itemsize


def four(dtypes: Dtypes) -> int:
    """Of a number in float32."""
    return 4


def nothing(dtypes: Dtypes) -> int:
    """Of a number that is not there."""
    return 0


def master(dtypes: Dtypes) -> int:
    """Of a number in the master copy."""
    return 4 if param_bytes(dtypes) < 4 else 0


def counted(
    *,
    moments: Mapping[str, int] = MOMENTS,
    factors: Callable[[Shape], int] = factored,
    moment: Bytes = state_bytes,
    copy: Bytes = master,
    copied: Container[str] = tuple(MOMENTS),
    counter: Bytes = four,
    count_steps: Container[str] = COUNT_STEPS,
    of_each: bool = True,
    beside: Bytes = nothing,
) -> Answer:
    """The right count but for what is given; it refuses nothing.

    moments, factors     numbers kept: times the size of a tensor, and Adafactor's
    moment, copy, beside bytes of a number in the moments, in the master copy, and in something else that is counted
    copied               the optimizers that have a master copy
    counter, count_steps bytes of a step counter, and who has one: of each tensor, or one in all
    """

    def answer(shapes: Sequence[Shape], name: str, dtypes: Dtypes) -> int:
        each = moments.get(name, 0) * moment(dtypes) + beside(dtypes) + (copy(dtypes) if name in copied else 0)
        total = sum(numel(shape) for shape in shapes) * each
        if name == "adafactor":
            total += sum(factors(shape) for shape in shapes) * moment(dtypes)
        counters = len(shapes) if of_each else 1
        return total + (counters * counter(dtypes) if name in count_steps else 0)

    return answer


def vectors_as_columns(shape: Shape) -> int:
    """(n,) as (n, 1): n rows and a column."""
    return shape[0] + 1 if len(shape) == 1 else factored(shape)


def matrices_only(shape: Shape) -> int:
    """More than 2 dimensions are kept in full."""
    return factored(shape) if len(shape) == 2 else numel(shape)


def leading_folded(shape: Shape) -> int:
    """All dimensions but the last are rows of one matrix."""
    return math.prod(shape[:-1]) + shape[-1] if len(shape) > 1 else numel(shape)


def trailing_folded(shape: Shape) -> int:
    """All dimensions but the first are columns of one matrix."""
    return shape[0] + math.prod(shape[1:]) if len(shape) > 1 else numel(shape)


def last_two_once(shape: Shape) -> int:
    """The leading dimensions are forgotten."""
    return shape[-2] + shape[-1] if len(shape) > 1 else numel(shape)


def first_two_factored(shape: Shape) -> int:
    """The first two dimensions are taken for the matrix."""
    return math.prod(shape[2:]) * (shape[0] + shape[1]) if len(shape) > 1 else numel(shape)


MISCONCEPTIONS = (
    Misconception(
        name="master_copy_forgotten",
        witnesses=(counted(copy=nothing),),
        hint="The master copy is missing. Parameters of 2 bytes are too coarse to add small steps to, so a copy in "
        "float32 takes them: 4 bytes for each number, as much as parameters and gradients in bfloat16 together.",
    ),
    Misconception(
        name="another_master_copy",
        witnesses=(
            counted(copy=four),
            counted(copy=lambda dtypes: 4 if param_bytes(dtypes) != 4 else 0),
            counted(copy=lambda dtypes: state_bytes(dtypes) if param_bytes(dtypes) < 4 else 0),
            counted(copy=lambda dtypes: 4 if state_bytes(dtypes) < 4 else 0),
            counted(copy=lambda dtypes: 4 if min(param_bytes(dtypes), state_bytes(dtypes)) < 4 else 0),
            counted(copy=lambda dtypes: 4 if max(param_bytes(dtypes), state_bytes(dtypes)) < 4 else 0),
            counted(copy=lambda dtypes: 4 if param_bytes(dtypes) < state_bytes(dtypes) else 0),
            counted(copy=lambda dtypes: 4 if param_bytes(dtypes) != state_bytes(dtypes) else 0),
            counted(copied=tuple(name for name in MOMENTS if name != "sgd")),
        ),
        hint="Whether there is a master copy depends on the parameters alone: those of fewer than 4 bytes a number "
        "have one, with every optimizer (the steps of plain SGD are as small as those of others); float32 and float64 "
        "take small steps themselves. And it is in float32, 4 bytes a number, whatever the state is.",
    ),
    Misconception(
        name="step_counters_forgotten",
        witnesses=(counted(count_steps=()),),
        hint="The step counters are missing: 4 bytes for each tensor with Adagrad, RMSprop, AdamW and Adafactor. It is "
        "little, but what is measured contains it.",
    ),
    Misconception(
        name="other_step_counters",
        witnesses=(
            counted(counter=state_bytes),
            counted(counter=lambda dtypes: 8),
            counted(of_each=False),
            counted(count_steps=tuple(MOMENTS)),
            counted(count_steps=(*COUNT_STEPS, "momentum", "muon")),
            counted(count_steps=("adamw",)),
            counted(count_steps=("adamw", "adafactor")),
        ),
        hint="A step counter is one float32, 4 bytes, whatever the dtypes of state and parameters, and each tensor has "
        "its own, because tensors without a gradient in a step do not age. torch.optim keeps it in Adagrad, RMSprop, "
        "AdamW and Adafactor, not only where the formula contains t. SGD, with momentum too, and Muon have none.",
    ),
    Misconception(
        name="another_number_of_moments",
        witnesses=(
            counted(moments={**MOMENTS, "momentum": 2}),
            counted(moments={**MOMENTS, "sgd": 1}),
            counted(moments={**MOMENTS, "adagrad": 2, "rmsprop": 2}),
            counted(moments={**MOMENTS, "muon": 2}),
            counted(moments={**MOMENTS, "adamw": 1}),
            counted(moments={**MOMENTS, "adafactor": 1}),
        ),
        hint="Plain SGD keeps no moment. Momentum and Muon keep the average of gradients, Adagrad and RMSprop the sum "
        "or average of squares: one each. AdamW keeps both. Adafactor keeps the squares only, and factored: an average "
        "of gradients, which its paper has as an option, would give away most of what is saved.",
    ),
    Misconception(
        name="moments_in_another_dtype",
        witnesses=(counted(moment=param_bytes), counted(moment=four)),
        hint='The moments have a dtype of their own, dtypes["state"]: neither that of the parameters nor always '
        "float32.",
    ),
    Misconception(
        name="counts_what_is_not_its_own",
        witnesses=(counted(beside=param_bytes), counted(beside=lambda dtypes: 2 * param_bytes(dtypes))),
        hint="You count parameters or gradients, too. They are there with every optimizer; asked is what this one "
        "keeps beside them.",
    ),
    Misconception(
        name="factored_in_full",
        witnesses=(counted(factors=numel),),
        hint="You count Adafactor's second moment in full, r c numbers for a matrix (r, c). It never exists in full: "
        "what is kept are its row means and column means, r + c numbers.",
    ),
    Misconception(
        name="vectors_factored",
        witnesses=(counted(factors=vectors_as_columns),),
        hint="You factor vectors. A vector has no second dimension to take means over: with fewer than 2 dimensions "
        "Adafactor keeps the second moment in full.",
    ),
    Misconception(
        name="other_matrices_factored",
        witnesses=(
            counted(factors=matrices_only),
            counted(factors=leading_folded),
            counted(factors=trailing_folded),
            counted(factors=last_two_once),
            counted(factors=first_two_factored),
            counted(factors=lambda shape: min(factored(shape), numel(shape))),
        ),
        hint="You are right for a matrix. Of a tensor with more dimensions torch factors the last two, once for each "
        "index in front of them: n (r + c) numbers for (n, r, c). It is not kept in full, not folded into one matrix, "
        "and it is the last two dimensions even of a convolution, where they are the kernel's 3 x 3; and of one that "
        "is 1 x 1, where nothing is saved and twice as much is kept.",
    ),
    Misconception(
        name="not_refused",
        witnesses=(counted(),),
        fails=("refusals",),
        hint="Your numbers are right, but something that does not exist gets a number too: an optimizer of another "
        "name, or Muon on a tensor that is not a matrix. Both raise ValueError, as torch.optim.Muon does.",
    ),
)
