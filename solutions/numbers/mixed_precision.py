"""Numbers that the prose of lesson 03 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

import math
from functools import cache
from statistics import mean

import torch

from course.exercises.mixed_precision import small_block
from course.exercises.mixed_precision.compensated_sum import LEVELS
from course.lessons.experiments import (
    cpu_autocast,
    eight_bits,
    formats,
    gradient_range,
    half_runs,
    loss_scaling,
    sums,
    which_bits,
)
from course.lessons.experiments import tiny_updates as tiny
from course.lessons.experiments.problems import gpt_problem
from course.lessons.experiments.roofline import A100, product
from course.lessons.experiments.two_digits import KEEP_TWO, TERMS, running_sum
from course.lessons.widgets.two_digits import plain
from course.reference.mixed_precision.compensated_bound import compensated_bound
from course.reference.mixed_precision.compensated_sum import compensated_sum

torch.set_num_threads(1)

GIVEN = {
    "100": "a number that a machine of two digits has",
    "7.2": "another",
    "101": "one that it does not have",
    "3.3": "the term of a sum in a question",
    "754": "the number of the IEEE standard of floating-point arithmetic",
    "128": "how many numbers share a scale, in a question",
    "16": "the bits of float16 and bfloat16",
}

# --- bits ------------------------------------------------------------------------------------------------


third = KEEP_TWO.divide(1, 3)
u_ratio = torch.finfo(torch.bfloat16).eps / torch.finfo(torch.float16).eps


def kept(terms: str, count: int) -> str:
    """What a machine with two digits has after so many terms."""
    return plain(running_sum(TERMS[terms], count)[-1].kept)


# --- adding many numbers ---------------------------------------------------------------------------------


FORMATS = formats.dtypes("fp16", "bf16")
LONG = 2**LEVELS  # numbers in the case in which pairs fail


def stalled(name: str) -> float:
    """Where a sum of ones ends."""
    return sums.plain_sum(torch.ones(5_000), FORMATS[name]).item()


def hard_sum() -> float:
    """The error of the compensated sum on 500 numbers that were chosen for it, in fp16, in u sum |x|."""
    return sums.worst_case(compensated_sum, torch.float16, 500)


def hard_bound() -> float:
    """The bound of 500 numbers in fp16, in u."""
    return compensated_bound(500, 2**-11) * 2**11


@cache
def sum_errors(name: str) -> sums.Errors:
    """What the figure of the sums shows of a format."""
    return sums.errors(FORMATS[name], {**sums.PLAIN, "compensated": (compensated_sum, compensated_bound)})


def worst(method: str) -> float:
    """The largest error in both formats, in u sum |x|."""
    return max(max(found.errors[method]) / found.u for found in map(sum_errors, FORMATS))


# --- rounding by chance ----------------------------------------------------------------------------------


MANY = 10_000  # runs whose mean is told


@cache
def mean_end() -> float:
    """Where the weight ends with stochastic rounding, on average over MANY runs."""
    return float(tiny.by_draws(runs=MANY)[-1].mean())


# --- gradients below the range ---------------------------------------------------------------------------


scaling = loss_scaling.recorded().data
INTERVAL = torch.amp.GradScaler("cpu").get_growth_interval()
EXAMPLES = loss_scaling.BATCH * loss_scaling.PARTS  # in a step


def lost(kind: str, power: int = 0, name: str = "fp16") -> float:
    """Percent of the tiny GPT's gradients that are rounded to 0 with a scale of 2^power."""
    return 100 * gradient_range.shares(kind, 2.0**power, name).lost


def subnormal(kind: str, power: int = 0, name: str = "fp16") -> float:
    """Percent that keep fewer bits."""
    return 100 * gradient_range.shares(kind, 2.0**power, name).subnormal


# --- operators, and the three programs -------------------------------------------------------------------


def cpu_differing() -> list[str]:
    """Operators of CUDA's HIGH that a CPU runs in half precision."""
    return [f"`{row.name}`" for row in cpu_autocast.rows() if row.differs]


def cpu_names() -> str:
    """They as a list in a sentence."""
    return f"{', '.join(cpu_differing()[:-1])} and {cpu_differing()[-1]}"


@cache
def faulty_log(name: str) -> half_runs.Log:
    """The log of one faulty program, as the lesson shows it."""
    return half_runs.run(name, **half_runs.example(name))


def faulty_steps() -> int:
    """Steps of each of the three programs."""
    return len(faulty_log("clipped").loss)


def true_norm() -> float:
    """Norm of the first gradient."""
    return faulty_log("cached").norm[0]


def clipped_norm() -> str:
    """The norm that `clipped` logs in every step."""
    (value,) = {f"{each:.6f}" for each in faulty_log("clipped").norm}
    return value


def setting(name: str, words: str) -> float:
    """A setting with which the lesson runs a faulty program."""
    return float(half_runs.example(name)[words])


def too_soon() -> int:
    """Good steps of `growing` after the outlier until its scale is what it was."""
    log = faulty_log("growing")
    skipped = log.norm.index(float("inf"))
    return log.scale.index(log.scale[skipped], skipped + 1) - skipped - 1


# --- bytes and seconds -----------------------------------------------------------------------------------


def first_side() -> int:
    """The least n from which on a bf16 product of n x n matrices is limited by arithmetic on an A100."""
    side = math.ceil(3 * A100.ridge("bf16"))
    assert product(side - 1).intensity("bf16") < A100.ridge("bf16") <= product(side).intensity("bf16")
    return side


# --- eight bits, and the choice --------------------------------------------------------------------------


@cache
def hidden_tensors() -> dict[str, torch.Tensor]:
    """Activations and gradients of a hidden layer."""
    return eight_bits.tensors()


def zeros_percent(tensor: str, form: str) -> float:
    """The share of its numbers that become 0."""
    return 100 * eight_bits.kept(hidden_tensors()[tensor], form)[0]


def off_percent(tensor: str, form: str) -> float:
    """The median error of a number."""
    return 100 * eight_bits.kept(hidden_tensors()[tensor], form)[1]


def outlier_percent(size: float, way: str) -> float:
    """The error of the rows without the outlier."""
    return 100 * eight_bits.error_at(size)[way]


@cache
def sharp_block() -> small_block.Block:
    """The block of the cell."""
    return small_block.block(torch.Generator().manual_seed(0), 12, sharp=8.0, hidden=2.0**15)


def added(form: str) -> float:
    """The sum of what each operator alone costs."""
    return sum(losses[form] for losses in small_block.alone(sharp_block()).values())


def at_once(form: str) -> float:
    """What all of them cost together."""
    drawn = sharp_block()
    names = small_block.ORDER
    return small_block.error(drawn(dict.fromkeys(names, "float32")), drawn(dict.fromkeys(names, form)))


# --- what may be dropped ---------------------------------------------------------------------------------


dropped = which_bits.recorded().data
TOKENS = gpt_problem().batch(torch.Generator().manual_seed(0))[0].numel()  # in a batch
HARMLESS = (
    "fp16",
    "bf16",
    "fp8",
    "fp16, no loss scale",
    "fp16, sums in fp16",
    "bf16, sums in bf16",
    "bf16, moments in bf16",
    "fp8, no scales",
)


def cost(recipe: str, whole: str = "fp32") -> float:
    """How much a recipe's mean loss lies above that of the whole one, in nats."""
    return dropped.row(recipe).mean - dropped.row(whole).mean


def harmless_within() -> float:
    """The largest such difference, up or down, of the recipes that did no harm."""
    return max(abs(cost(recipe)) for recipe in HARMLESS)


def share(recipe: str) -> float:
    """The share of gradients that are 0, near the end."""
    return mean(dropped.row(recipe).zeros)


def skipped(recipe: str) -> float:
    """How many steps were skipped, mean of the seeds."""
    return mean(dropped.row(recipe).skipped)


def still(recipe: str) -> float:
    """The share of weights that a step near the end leaves as they were."""
    return mean(dropped.row(recipe).still)


def paired_at_high() -> tuple[float, float]:
    """At the high rate, what bf16 loses without a master copy with one seed, in nats: the least and the most."""
    without, whole = (dropped.row(name, which_bits.HIGH_PEAK) for name in ("bf16, no master copy", "bf16"))
    lost = [float(a or 0) - float(b or 0) for a, b in zip(without.losses, whole.losses, strict=True)]
    return min(lost), max(lost)
