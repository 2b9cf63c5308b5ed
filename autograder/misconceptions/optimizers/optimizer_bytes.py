"""Wrong ways to write `optimizer_bytes`: moments, master copy and step counters; Adafactor's shapes beside it."""

from __future__ import annotations

from autograder.bank import Misconception
from autograder.misconceptions.optimizers import optimizer_bytes_factored
from autograder.misconceptions.optimizers.optimizer_bytes_parts import (
    COUNT_STEPS,
    MOMENTS,
    Dtypes,
    always,
    counted,
    param_bytes,
    state_bytes,
)


def unless_float32(dtypes: Dtypes) -> int:
    """A copy of everything that is not in float32, of float64 too."""
    return 4 if param_bytes(dtypes) != 4 else 0


def in_the_dtype_of_the_state(dtypes: Dtypes) -> int:
    """A copy like the moments."""
    return state_bytes(dtypes) if param_bytes(dtypes) < 4 else 0


def in_the_dtype_of_the_parameter(dtypes: Dtypes) -> int:
    """A copy like the parameters."""
    return param_bytes(dtypes) if param_bytes(dtypes) < 4 else 0


def parameters_and_gradients(dtypes: Dtypes) -> int:
    """Both in the parameters' dtype."""
    return 2 * param_bytes(dtypes)


WITHOUT_SGD = tuple(name for name in MOMENTS if name != "sgd")
WITH_MOMENTUM = (*COUNT_STEPS, "momentum", "muon")

MISCONCEPTIONS = (
    Misconception(
        name="master_copy_forgotten",
        witnesses=(counted(copy=always(0)),),
        hint="The master copy is missing. Parameters of 2 bytes are too coarse to add small steps to, so a copy in "
        "float32 takes them: 4 bytes for each number, as much as parameters and gradients in bfloat16 together.",
    ),
    Misconception(
        name="master_copy_always",
        witnesses=(counted(copy=always(4)), counted(copy=unless_float32)),
        hint="You count a master copy where there is none: parameters in float32 or float64 take small steps "
        "themselves. Only those of fewer than 4 bytes a number have a copy.",
    ),
    Misconception(
        name="master_copy_in_another_dtype",
        witnesses=(counted(copy=in_the_dtype_of_the_state), counted(copy=in_the_dtype_of_the_parameter)),
        hint="Your master copy is in the dtype of the state or of the parameters. It exists because those may be too "
        "coarse: it is in float32, 4 bytes a number, always.",
    ),
    Misconception(
        name="master_copy_with_moments_only",
        witnesses=(counted(copied=WITHOUT_SGD),),
        hint="Plain SGD has a master copy too. It keeps no moments, but its steps are as small as those of others, and "
        "parameters of 2 bytes would lose them.",
    ),
    Misconception(
        name="step_counters_forgotten",
        witnesses=(counted(count_steps=()),),
        hint="The step counters are missing: 4 bytes for each tensor with Adagrad, RMSprop, AdamW and Adafactor. It is "
        "little, but what is measured contains it.",
    ),
    Misconception(
        name="step_counters_in_another_dtype",
        witnesses=(counted(counter=state_bytes), counted(counter=param_bytes), counted(counter=always(8))),
        hint="A step counter is one float32, 4 bytes, whatever the dtypes of state and parameters: bfloat16 could not "
        "count beyond 256.",
    ),
    Misconception(
        name="one_step_counter_for_all",
        witnesses=(counted(of_each=False),),
        hint="You count one step counter for the whole optimizer. torch keeps one for each tensor, because tensors "
        "without a gradient in a step do not age.",
    ),
    Misconception(
        name="step_counters_everywhere",
        witnesses=(counted(count_steps=tuple(MOMENTS)), counted(count_steps=WITH_MOMENTUM)),
        hint="You count step counters for optimizers that keep none: plain SGD, SGD with momentum and Muon never ask "
        "how old a tensor is.",
    ),
    Misconception(
        name="step_counters_for_few",
        witnesses=(
            counted(count_steps=("adamw",)),
            counted(count_steps=("adamw", "adafactor")),
            counted(count_steps=("adagrad", "rmsprop", "adamw")),
        ),
        hint="Not only those whose formula contains t keep a step counter: torch.optim has one in Adagrad, RMSprop, "
        "AdamW and Adafactor.",
    ),
    Misconception(
        name="one_moment_too_many",
        witnesses=(
            counted(moments={**MOMENTS, "momentum": 2}),
            counted(moments={**MOMENTS, "sgd": 1}),
            counted(moments={**MOMENTS, "sgd": 1, "momentum": 2}),
            counted(moments={**MOMENTS, "adagrad": 2}),
            counted(moments={**MOMENTS, "rmsprop": 2}),
            counted(moments={**MOMENTS, "adagrad": 2, "rmsprop": 2}),
            counted(moments={**MOMENTS, "muon": 2}),
        ),
        hint="You count a moment that is not kept. Plain SGD keeps none; momentum and Muon keep the average of "
        "gradients, Adagrad and RMSprop that of squares: one each. Only AdamW keeps both.",
    ),
    Misconception(
        name="one_moment_for_adamw",
        witnesses=(counted(moments={**MOMENTS, "adamw": 1}),),
        hint="AdamW keeps two moments of the parameter's size: the average of gradients and the average of their "
        "squares.",
    ),
    Misconception(
        name="moments_in_another_dtype",
        witnesses=(counted(moment=param_bytes), counted(moment=always(4))),
        hint='The moments have a dtype of their own, dtypes["state"]: neither that of the parameters nor always '
        "float32.",
    ),
    Misconception(
        name="counts_what_is_not_its_own",
        witnesses=(counted(beside=param_bytes), counted(beside=parameters_and_gradients)),
        hint="You count parameters or gradients, too. They are there with every optimizer; asked is what this one "
        "keeps beside them.",
    ),
    Misconception(
        name="numbers_for_bytes",
        witnesses=(
            counted(moment=always(1), copy=lambda dtypes: 1 if param_bytes(dtypes) < 4 else 0, counter=always(1)),
        ),
        hint="You count numbers. Each takes as many bytes as its dtype says: dtype.itemsize.",
    ),
    Misconception(
        name="adds_up_the_sizes",
        witnesses=(counted(size=sum), counted(size=sum, factors=sum)),
        hint="A tensor of shape (3, 4) holds 12 numbers, the product of its sizes, and not their sum.",
    ),
    Misconception(
        name="not_refused",
        witnesses=(counted(refuses=()), counted(refuses=("name",)), counted(refuses=("muon",))),
        fails=("refusals",),
        hint="Your numbers are right, but something that does not exist gets a number too: an optimizer of another "
        "name, or Muon on a tensor that is not a matrix. Both raise ValueError, as torch.optim.Muon does.",
    ),
    *optimizer_bytes_factored.MISCONCEPTIONS,
)
