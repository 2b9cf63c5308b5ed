"""Numbers that the prose of lesson 02 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from functools import cache
from statistics import mean, median

import torch

from course.lessons.data import digits_split
from course.lessons.data.cities import cities  # noqa: F401 (for the prose)
from course.lessons.experiments import (
    ablation,
    batch_rates,
    critical_batch,
    factored,
    gradient_free,
    logistic,
    map_starts,
    minima,
    noise_scale,
    noise_seeds,
    search,
    which_optimizer,
)
from course.lessons.experiments.ablation import decay_ratio, tenfold  # noqa: F401 (for the prose)
from course.lessons.experiments.problems import digits_problem, gpt_problem
from course.lessons.experiments.race import RATES, STEPS, run  # noqa: F401 (RATES and STEPS stand in the prose)
from course.lessons.experiments.terms import without_correction  # noqa: F401 (for the prose)

torch.set_num_threads(1)

DIGITS = len(digits_split()[0].labels)
DIGITS_NAME, GPT_NAME = "digits MLP", "character GPT"
DIGITS_STEPS, GPT_STEPS = (
    inspect.signature(each).parameters["steps"].default for each in (digits_problem, gpt_problem)
)
SEEDS = 1000  # of the noise scale that is estimated from two batch sizes
BETA1, BETA2 = 0.9, 0.999

# Of the ablation of Adam's terms.
scheduled = ablation.recorded().data.of("terms", "warm-up, descent")
decayed = ablation.recorded().data.of("decay", "warm-up, descent")

GIVEN = {
    "72": "how many examples fit, in a question",
    "45": "degrees by which the ravine is turned",
    "0.99": "a momentum for the comparison with 0.9",
}


def fewest_most(values: Sequence[float], word: str = "to", spec: str = ".0f") -> str:
    """The least and the greatest value, with a word between them."""
    return f"{min(values):{spec}} {word} {max(values):{spec}}"


# --- sections 1 to 3 ---------------------------------------------------------------------------------


def crossings(name: str) -> int:
    """How often a path in the ravine goes from one side of the floor to the other, at the rate 0.01."""
    sides = run("ravine", name, lr=0.01).points[:, 1].sign()
    return int((sides[1:] * sides[:-1] < 0).sum())


def best_momentum() -> float:
    """The momentum with which "momentum" ends lowest in the ravine at the rate 0.01, of a grid of hundredths."""

    def end(momentum: float) -> float:
        return float(run("ravine", "momentum", lr=0.01, momentum=momentum).values[-1])

    return min((share / 100 for share in range(70, 96)), key=end)


@cache
def ends() -> minima.Ends:
    """Where gradient descent ends on the line with two minima."""
    return minima.ends()


def in_narrow_valley() -> float:
    """The share of starts that the narrow minimum keeps at the smallest rate."""
    return ends().narrow[0]


def narrow_keeps_all_up_to() -> float:
    """The largest rate of the grid at which it still keeps all of them."""
    shares = zip(ends().step_sizes, ends().narrow, strict=True)
    return max(rate for rate, share in shares if share == in_narrow_valley())


def significant(value: float, digits: int = 2) -> float:
    """The value to a number of significant digits."""
    return float(f"{value:.{digits}g}")


def steps_by_factor(factor: float) -> float:
    """How many steps with this factor shrink an error by ten digits, to three digits."""
    return significant(-10 * math.log(10) / math.log(factor), 3)


def plain_steps(condition: float) -> float:
    """Ten digits with the best rate of gradient descent."""
    return steps_by_factor((condition - 1) / (condition + 1))


def momentum_steps(condition: float) -> float:
    """Ten digits with the best rate and the best momentum."""
    return steps_by_factor((condition**0.5 - 1) / (condition**0.5 + 1))


# --- sections 4 to 7 ---------------------------------------------------------------------------------


@cache
def floors() -> logistic.Comparison:
    """SGD and the full gradient on logistic regression."""
    return logistic.compare()


def floor_over_estimate(divisor: int) -> float:
    """The measured floor over the estimate, at the rate 1 / (divisor L)."""
    place = logistic.DIVISORS.index(divisor)
    return floors().floors[place] / floors().estimates[place]


def bound_over_floor(place: int) -> float:
    """The proven bound over the measured floor, to two digits; the places go from the largest rate to the smallest."""
    return significant(floors().bounds[place] / floors().floors[place])


def row(name: str, problem: str = GPT_NAME) -> which_optimizer.Row:
    """A row of the recorded table."""
    return which_optimizer.recorded().data.row(problem, name)


def tried(name: str) -> list[float]:
    """The mean losses of the seeds that chose the rate on the GPT, above the least, by rate, the smallest first."""
    least = which_optimizer.recorded().data.least[GPT_NAME]
    return [loss - least for loss in row(name).tried.values() if loss is not None]


def uncorrected(step: int) -> float:
    """Adam's step without corrections, in rates, after so many equal gradients."""
    return float((1 - BETA1**step) / (1 - BETA2**step) ** 0.5)


def uncorrected_until(factor: float) -> int:
    """The steps until it is within this factor of one rate, to two digits."""
    return int(significant(max(step for step in range(1, 10_000) if uncorrected(step) > factor)))


# --- section 8 ---------------------------------------------------------------------------------------


@cache
def starts() -> map_starts.Measured:
    """How many starts are stuck, recorded."""
    return map_starts.recorded().data


@cache
def searches(seeds: int = 3) -> list[dict[str, gradient_free.Row]]:
    """The map with gradients and without, for several seeds."""
    return [gradient_free.compare(seed) for seed in range(seeds)]


def times_more(what: str) -> list[float]:
    """How many times as many "steps" or "evaluations" as gradient descent the other methods take, for all seeds."""
    counts = [[getattr(row, what) for row in rows.values()] for rows in searches()]
    return [other / first for first, *others in counts for other in others]


# --- sections 11 and 12 ------------------------------------------------------------------------------


@cache
def runs(rule: str = "sgd") -> critical_batch.Steps:
    """The recorded steps to the target, of SGD or Adam."""
    return critical_batch.recorded().data.runs if rule == "sgd" else batch_rates.recorded().data.adam


@cache
def steps(batch: int, rule: str = "sgd") -> float:
    """The mean steps to the target with the best rate."""
    return critical_batch.best(runs(rule))[runs(rule).batch_sizes.index(batch)].steps


@cache
def critical(rule: str = "sgd") -> float:
    """The critical batch size."""
    return batch_rates.critical(runs(rule))


def worst_fit() -> float:
    """By how much the hyperbola is off where it fits worst."""
    return max(abs(critical_batch.fit(runs()).steps(size) / steps(size) - 1) for size in runs().batch_sizes)


@cache
def spread(name: str, seeds: int = SEEDS) -> dict[str, float]:
    """Quantiles of the noise scale over many seeds, "first" or "after" averaging."""
    return noise_scale.spread([getattr(_averages(seed), name) for seed in range(seeds)])


def nine_of_ten(name: str) -> str:
    """Between which results nine of ten seeds lie."""
    return fewest_most([spread(name)["5%"], spread(name)["95%"]], "and", ",.0f")


def farthest(name: str) -> str:
    """The result that lies farthest out."""
    return f"{max(spread(name).values(), key=abs):,.0f}"


@cache
def _averages(seed: int) -> noise_scale.Averages:
    return noise_scale.averages(seed)


def noise_by_rate() -> list[list[float]]:
    """The mean noise scale of each run, for the best rate and for half of it."""
    return noise_seeds.recorded().data.means


@cache
def rates(rule: str) -> dict[int, float]:
    """The best rate by batch size."""
    return dict(zip(runs(rule).batch_sizes, batch_rates.best_rates(runs(rule)), strict=True))


def growth(rule: str, small: int, large: int) -> float:
    """By which factor the best rate grows from one batch size to another."""
    return rates(rule)[large] / rates(rule)[small]


def decays() -> batch_rates.Decays:
    """The recorded weight decays."""
    return batch_rates.recorded().data.decays


def best_decays() -> list[float]:
    """The best decay for each batch size."""
    return [batch_rates.minimum(decays().decays, losses) for losses in decays().held_out]


# --- section 13 --------------------------------------------------------------------------------------


@cache
def studies() -> search.Measured:
    """The recorded studies."""
    return search.recorded().data


def reached(sampler: str) -> float:
    """Where the median study stands in the end."""
    return median(min(losses) for losses in studies().losses[sampler])


def random_losses() -> list[float]:
    """The losses of all random trials."""
    return [loss for losses in studies().losses["random"] for loss in losses]


def draws_for(loss: float) -> int:
    """How many random draws it takes to be this low with a chance of one half, by all of the recorded ones."""
    share = sum(each <= loss for each in random_losses()) / len(random_losses())
    return math.ceil(math.log(0.5) / math.log(1 - share))


# --- sections 14 to 17 -------------------------------------------------------------------------------


@cache
def factors() -> factored.Comparison:
    """Adafactor's estimate beside the exact second moment."""
    return factored.compare()


def parameters(problem: str) -> int:
    """How many the model of a problem has."""
    return which_optimizer.recorded().data.parameters[problem]


def loss(name: str, problem: str = GPT_NAME) -> float:
    """The mean loss over the seeds, above the least."""
    return mean(row(name, problem).losses)


def next_best(name: str, problem: str = GPT_NAME) -> float:
    """The least loss of the other optimizers."""
    names = {each.optimizer for each in which_optimizer.recorded().data.rows} - {name}
    return min(loss(each, problem) for each in names)


def in_muons_time(problem: str = GPT_NAME) -> which_optimizer.Row:
    """Adam with as many steps as fit into Muon's time."""
    return next(each for each in which_optimizer.recorded().data.same_time if each.problem == problem)


def capped() -> int:
    """In how many steps Adafactor's rate on the GPT, by the schedule of all, lies above its own cap."""
    rate = row("Adafactor").rate
    scheduled = [rate * which_optimizer._share(step, GPT_STEPS) for step in range(GPT_STEPS)]
    return sum(each > (step + 1) ** -0.5 for step, each in enumerate(scheduled))
