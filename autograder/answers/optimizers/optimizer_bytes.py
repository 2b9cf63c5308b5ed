"""Right and wrong ways to write `optimizer_bytes`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch._dynamo  # the first optimizer loads it, which takes seconds: not in an answer's time
from torch import Tensor, optim

from autograder.bank import right, wrong
from autograder.edits import edited

Shape = tuple[int, ...]
Dtypes = dict[str, torch.dtype]

OPTIMIZERS: dict[str, Callable[[list[Tensor]], optim.Optimizer]] = {
    "sgd": optim.SGD,
    "momentum": partial(optim.SGD, momentum=0.9),
    "adagrad": optim.Adagrad,
    "rmsprop": optim.RMSprop,
    "adamw": optim.AdamW,
    "adafactor": optim.Adafactor,
    "muon": optim.Muon,
}
MOMENTS = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adamw": 2, "adafactor": 1, "muon": 1}
COUNT_STEPS = ("adagrad", "rmsprop", "adamw", "adafactor")


def measured_after_a_step(shapes: list[Shape], name: str, dtypes: Dtypes, block: int | None = None) -> int:
    """torch's own optimizer, which wants at least one tensor, takes a step in float32, and its state is weighed."""
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown name {name}")
    if not shapes:
        return 0
    params = [torch.zeros(shape, requires_grad=True) for shape in shapes]
    optimizer = OPTIMIZERS[name](params)
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step()
    kept = [(key, each) for state in optimizer.state.values() for key, each in state.items() if each is not None]
    weighed = [each if key == "step" else each.to(dtypes["state"]) for key, each in kept]
    moments = [each for key, each in kept if key != "step"]
    scales = [part.abs().max() for each in moments for part in each.flatten().split(block)] if block else []
    master = params if dtypes["param"].itemsize < 4 else []
    return sum(each.nbytes for each in [*weighed, *scales, *master])


def four_sums(shapes: list[Shape], name: str, dtypes: Dtypes, block: int | None = None) -> int:
    """Each part over all shapes."""
    _refuse(shapes, name)
    state, param = dtypes["state"].itemsize, dtypes["param"].itemsize
    sizes = [size for shape in shapes for size in kept(shape, name)]
    moments = sum(sizes) * state
    scales = sum(4 * math.ceil(size / block) for size in sizes) if block else 0
    master = 4 * sum(math.prod(shape) for shape in shapes) if param < 4 else 0
    counters = 4 * len(shapes) if name in COUNT_STEPS else 0
    return moments + scales + master + counters


def _refuse(shapes: list[Shape], name: str) -> None:
    if name not in MOMENTS or (name == "muon" and any(len(shape) != 2 for shape in shapes)):
        raise ValueError(f"no such optimizer, or no matrices: {name}, {shapes}")


def kept(shape: Shape, name: str) -> list[int]:
    """How many numbers each moment of one parameter holds."""
    if name == "adafactor" and len(shape) > 1:
        *stack, r, c = shape
        return [math.prod(stack) * r, math.prod(stack) * c]
    return MOMENTS[name] * [math.prod(shape)]


def in_bits(shapes: list[Shape], name: str, dtypes: Dtypes, block: int | None = None) -> float:
    """One sum, in bits: the division at the end makes a float of it."""
    _refuse(shapes, name)
    state, param = (torch.finfo(dtypes[key]).bits for key in ("state", "param"))
    copy, counter = 32 * (param < 32), 32 * (name in COUNT_STEPS)
    bits = sum(copy * torch.Size(shape).numel() + counter for shape in shapes)
    for size in (each for shape in shapes for each in kept(shape, name)):
        bits += state * size + (32 * -(-size // block) if block else 0)
    return bits / 8


RIGHT = (
    right(measured_after_a_step, independent="torch.optim"),
    right(four_sums),
    right(in_bits),
)

sums = partial(edited, four_sums)

STEPS = '("adagrad", "rmsprop", "adamw", "adafactor")'
ALL_STEPS = '("sgd", "momentum", "muon", "adagrad", "rmsprop", "adamw", "adafactor")'
FACTORED = "[math.prod(stack) * r, math.prod(stack) * c]"
NUMBERS = "sum(math.prod(shape) for shape in shapes)"
BLOCKS = "math.ceil(size / block)"
OF_SIZES = "sum(4 * math.ceil(size / block) for size in sizes)"

WRONG = (
    wrong(
        "master_copy_forgotten",
        "The master copy is missing. Parameters of 2 bytes are too coarse to add small steps to, so a copy in "
        "float32 takes them: 4 bytes for each number, as much as parameters and gradients in bfloat16 together.",
        sums((" + master", "")),
    ),
    wrong(
        "another_master_copy",
        "Whether there is a master copy depends on the parameters alone: those of fewer than 4 bytes a number "
        "have one, with every optimizer (the steps of plain SGD are as small as those of others); float32 and float64 "
        "take small steps themselves. And it is in float32, 4 bytes a number, whatever the state is.",
        sums((" if param < 4 else 0", "")),
        sums(("param < 4", "param != 4")),
        sums(("param < 4", "state < 4")),
        sums(("param < 4", "min(param, state) < 4")),
        sums(("param < 4", "max(param, state) < 4")),
        sums(("param < 4", "param < state")),
        sums(("param < 4", "param != state")),
        sums(("param < 4", 'param < 4 and name != "sgd"')),
        sums(("param < 4", "param < 4 or block")),
        sums(("4 * sum", "state * sum")),
    ),
    wrong(
        "step_counters_forgotten",
        "The step counters are missing: 4 bytes for each tensor with Adagrad, RMSprop, AdamW and Adafactor. It is "
        "little, but what is measured contains it.",
        sums((" + counters", "")),
    ),
    wrong(
        "other_step_counters",
        "A step counter is one float32, 4 bytes, whatever the dtypes of state and parameters, and each tensor has "
        "its own, because tensors without a gradient in a step do not age. torch.optim keeps it in Adagrad, RMSprop, "
        "AdamW and Adafactor, not only where the formula contains t. SGD, with momentum too, and Muon have none.",
        sums(("4 * len", "state * len")),
        sums(("4 * len", "8 * len")),
        sums(("4 * len(shapes)", "4")),
        sums((STEPS, ALL_STEPS)),
        sums((STEPS, ALL_STEPS.replace('"sgd", ', ""))),
        sums((STEPS, '("adamw",)')),
        sums((STEPS, '("adamw", "adafactor")')),
    ),
    wrong(
        "another_number_of_moments",
        "Plain SGD keeps no moment. Momentum and Muon keep the average of gradients, Adagrad and RMSprop the sum "
        "or average of squares: one each. AdamW keeps both. Adafactor keeps the squares only, and factored: an average "
        "of gradients, which its paper has as an option, would give away most of what is saved.",
        sums(('"momentum": 1', '"momentum": 2')),
        sums(('"sgd": 0', '"sgd": 1')),
        sums(('"adagrad": 1, "rmsprop": 1', '"adagrad": 2, "rmsprop": 2')),
        sums(('"muon": 1', '"muon": 2')),
        sums(('"adamw": 2', '"adamw": 1')),
        sums(('"adafactor": 1', '"adafactor": 2'), (FACTORED, f"{FACTORED} + [math.prod(shape)]")),
    ),
    wrong(
        "moments_in_another_dtype",
        'The moments have a dtype of their own, dtypes["state"]: neither that of the parameters nor always float32.',
        sums((" * state", " * param")),
        sums((" * state", " * 4")),
    ),
    wrong(
        "counts_what_is_not_its_own",
        "You count parameters or gradients, too. They are there with every optimizer; count only what this one "
        "keeps beside them.",
        sums(("return moments", f"return param * {NUMBERS} + moments")),
        sums(("return moments", f"return 2 * param * {NUMBERS} + moments")),
    ),
    wrong(
        "factored_in_full",
        "You count Adafactor's second moment in full, r c numbers for a matrix (r, c). It never exists in full: "
        "what is kept are its row means and column means, r + c numbers.",
        sums((FACTORED, "[math.prod(shape)]")),
    ),
    wrong(
        "vectors_factored",
        "You factor vectors. A vector has no second dimension to take means over: with fewer than 2 dimensions "
        "Adafactor keeps the second moment in full.",
        sums(("len(shape) > 1", "len(shape) > 0"), ("r, c = shape", "r, c = shape if len(shape) > 1 else (*shape, 1)")),
    ),
    wrong(
        "other_matrices_factored",
        "You are right for a matrix. Of a tensor with more dimensions torch factors the last two, once for each "
        "index in front of them: n (r + c) numbers for (n, r, c). It is not kept in full, not folded into one matrix, "
        "and it is the last two dimensions even of a convolution, where they are the kernel's 3 x 3; and of one that "
        "is 1 x 1, where nothing is saved and twice as much is kept.",
        sums(("len(shape) > 1", "len(shape) == 2")),
        sums((FACTORED, "[math.prod(stack) * r, c]")),
        sums((FACTORED, "[shape[0], math.prod(shape[1:])]")),
        sums((FACTORED, "[r, c]")),
        sums(("*stack, r, c = shape", "r, c, *stack = shape")),
        sums((FACTORED, f"min({FACTORED}, [math.prod(shape)], key=sum)")),
    ),
    wrong(
        "scales_forgotten",
        "The scales are missing. With a block each moment also keeps a float32 for each of its blocks: numbers that "
        "were divided by it and rounded to a byte cannot be read without it. With blocks of 1 each number has its own.",
        sums((" + scales", "")),
        sums(("if block else 0", "if block and block > 1 else 0")),
    ),
    wrong(
        "blocks_rounded_otherwise",
        "The number of blocks is numbers / block, rounded up: what is left over at the end of a moment is a block too, "
        "and so is a moment smaller than a block. Where nothing is left over, no block is added.",
        sums((BLOCKS, "(size // block)")),
        sums((BLOCKS, "max(1, size // block)")),
        sums((BLOCKS, "(size // block + 1)")),
        sums((BLOCKS, "(size / block)")),
        sums((BLOCKS, "round(size / block)")),
    ),
    wrong(
        "blocks_across_moments",
        "Your blocks reach from one moment into the next. Each moment of each tensor is cut by itself, so round up "
        "before you add: for every tensor, for both moments of AdamW, for Adafactor's row means and its column means.",
        sums((OF_SIZES, "4 * math.ceil(sum(sizes) / block)")),
        sums((OF_SIZES, OF_SIZES.replace("sizes", "(sum(kept(shape, name)) for shape in shapes)"))),
        sums((OF_SIZES, f"4 * MOMENTS[name] * math.ceil({NUMBERS} / block)")),
    ),
    wrong(
        "scales_of_one_moment",
        "You count scales once for each parameter. What has blocks are the moments: AdamW has two of them, each with "
        "scales of its own, SGD none, and Adafactor's are its row means and its column means, not the whole matrix.",
        sums((OF_SIZES, OF_SIZES.replace("sizes", "(math.prod(shape) for shape in shapes)"))),
        sums((OF_SIZES, OF_SIZES.replace("sizes", "(math.prod(shape) for shape in shapes if MOMENTS[name])"))),
        sums((OF_SIZES, OF_SIZES.replace("sizes", "(kept(shape, name)[0] for shape in shapes if MOMENTS[name])"))),
    ),
    wrong(
        "scales_in_another_dtype",
        "A scale is a float32, 4 bytes, whatever the dtypes of moments and parameters. It serves a whole block, so its "
        "bytes hardly count, and its digits serve every number of the block.",
        sums((f"4 * {BLOCKS}", f"state * {BLOCKS}")),
        sums((f"4 * {BLOCKS}", f"param * {BLOCKS}")),
    ),
    wrong(
        "not_refused",
        "Your numbers are right, but not all that makes no sense is refused with a ValueError: an optimizer of another "
        "name, with shapes or without, and Muon on a tensor that is not a matrix, wherever it stands among others. A "
        "number comes back, or another exception, as from a dict that lacks the name.",
        sums(("    _refuse(shapes, name)\n", "")),
        fails=("refusals",),
    ),
)
