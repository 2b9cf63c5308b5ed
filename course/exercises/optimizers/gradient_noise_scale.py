"""`gradient_noise_scale(small, large, b_small, b_large)`: noise and squared gradient from two batch sizes."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from course.performing.draws import normal
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    call_once,
    every_form,
    observe,
    outputs,
)
from course.performing.forms import at_once, between_calls, offset, strided, transposed
from course.performing.refusals import all_refused, refused

DRAWN = ("as many draws of each", "more small draws", "much noise")
ONE, FINE, UNLUCKY = "one draw of each", "in float64", "noise below 0"
ROUNDINGS = 128  # sums of up to 240 squares, and differences an eighth as large as their terms
EXACT = ("all draws of 1 and 2 from 4", "all draws of 2 and 4 from 3")
EVERY_SIZE = (ONE, "one small draw", "one large draw, of one number")
TINY = {"gradients of 1e-16": 1e-16, "gradients of 1e-25, in float64": 1e-25}


def cases(rng: torch.Generator) -> list[Case]:
    """Draws scaled so that both estimates are known and of ordinary size, S once below 0; and every draw there is.

    In the exact cases a population of n examples is drawn from with replacement in all n**b ways: the mean over the
    draws is then an expectation, with no luck in it. Nowhere is S so small beside |G|^2 that float32 would lose it.
    """

    def case(name: str, small: Tensor, large: Tensor, b_small: int, b_large: int) -> Case:
        return Case(name=name, inputs={"small": small, "large": large, "b_small": b_small, "b_large": b_large})

    def size(least: float) -> float:
        return least * (1 + float(torch.rand((), generator=rng, dtype=torch.float64)))

    def drawn(name: str, draws: tuple[int, int], batches: tuple[int, int], noisy: float = 1.0, d: int = 6) -> Case:
        dtype = torch.float64 if name.endswith(FINE) else torch.float32
        squared_gradient, noise = size(1.0), size(noisy * batches[0])
        small, large = (
            _of_mean_square(normal(rng, n, d, dtype=torch.float64) + 0.5, squared_gradient + noise / b).to(dtype)
            for n, b in zip(draws, batches, strict=True)
        )
        if name == DRAWN[1]:  # else as many of the small ones as there are large ones may have the mean of all
            small = small[small.square().sum(dim=1).argsort()]
        unit = TINY.get(name, 1.0)
        return case(name, unit * small, unit * large, *batches)

    def exact(name: str, n: int, batches: tuple[int, int]) -> Case:
        noise = normal(rng, n, 5, dtype=torch.float64)
        noise = _of_mean_square(noise - noise.mean(dim=0), size(4.0))
        population = noise + _of_mean_square(normal(rng, 1, 5, dtype=torch.float64), size(1.0))
        small, large = (_all_draws(population, b).float() for b in batches)
        return case(name, small, large, *batches)

    return [
        drawn(ONE, (1, 1), (2, 10)),
        drawn(DRAWN[0], (12, 12), (4, 32)),
        drawn(DRAWN[1], (24, 6), (8, 32)),
        drawn(DRAWN[2], (40, 40), (1, 16), noisy=8.0),
        drawn(FINE, (7, 7), (3, 64)),
        drawn(UNLUCKY, (5, 5), (2, 12), noisy=-0.4),
        *(drawn(name, (8, 8), (4, 24)) for name in TINY),
        drawn(EVERY_SIZE[1], (1, 5), (2, 16)),
        drawn(EVERY_SIZE[2], (6, 1), (3, 16), d=1),
        exact(EXACT[0], 4, (1, 2)),
        exact(EXACT[1], 3, (2, 4)),
    ]


def _of_mean_square(rows: Tensor, wanted: float) -> Tensor:
    """The rows, scaled together so that their squared norms have this mean."""
    return rows * (wanted / rows.square().sum(dim=1).mean()).sqrt()


def _all_draws(population: Tensor, b: int) -> Tensor:
    """(n**b, d): the mean of every batch of b examples that can be drawn with replacement."""
    indices = torch.tensor(list(itertools.product(range(len(population)), repeat=b)))
    return population[indices].mean(dim=1)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call, and in one case some that make no sense; the draws handed to those are copies.

    A tensor of one number is read as that: else one in float32 would be judged by float32's digits everywhere.
    """
    small, large, b_small, b_large = (inputs[name] for name in ("small", "large", "b_small", "b_large"))
    found = outputs(call_once(answer, inputs, small, large, b_small, b_large), "noise", "squared_gradient", "ratio")
    result = {key: each.item() if isinstance(each, Tensor) and not each.dim() else each for key, each in found.items()}
    if len(small) > 1 or len(large) > 1:
        return observe(result)
    one, other = small.clone(), large.clone()
    root = (0.999 * b_small * one.square().sum() / (b_large * other.square().sum())).sqrt()
    nonsense = {
        "batches of equal size": lambda: answer(one, 2 * one, b_small, b_small),
        "small batches that are larger": lambda: answer(one, other, b_large, b_small),
        "small batches that are larger by 1": lambda: answer(one, other, b_small + 1, b_small),
        "a |G|^2 below 0": lambda: answer(one, other * 0, b_small, b_large),
        "a |G|^2 just below 0": lambda: answer(one, other * root, b_small, b_large),
        "a |G|^2 of 0": lambda: answer(one * 0, other * 0, b_small, b_large),
    }
    return observe({**result, "refused": {**refused(nonsense)}})


EXERCISE = Exercise(
    id="optimizers.gradient_noise_scale",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "squared_gradient",
            "A squared norm of either batch size is |G|^2 plus noise. Weight the two so that S / b and S / B "
            "cancel, and divide by what is left in front of |G|^2: B - b.",
            points=2,
            keys=("squared_gradient",),
            roundings=ROUNDINGS,
            cases=DRAWN,
        ),
        Property(
            "noise",
            "In the difference of the two mean squared norms |G|^2 cancels, and S (1/b - 1/B) is left. In one "
            "case it is negative, by chance of the draws: it is an estimate, and is returned as it is.",
            keys=("noise",),
            roundings=ROUNDINGS,
            cases=(*DRAWN, UNLUCKY),
        ),
        Property(
            "ratio_of_the_means",
            "One S and one |G|^2 from all draws, and then one division. A single draw's |G|^2 may be near 0 or "
            "below it, and its ratio anything.",
            points=2,
            keys=("ratio",),
            roundings=ROUNDINGS,
            cases=(*DRAWN, UNLUCKY),
        ),
        Property(
            "every_number_of_draws",
            "With one draw of a size the mean is over one squared norm: there is no variance over draws to be had, and "
            "the formulas need none. With one number in each gradient its square is the squared norm. Keep both "
            "dimensions, whatever their lengths.",
            cases=EVERY_SIZE,
            roundings=ROUNDINGS,
        ),
        Property(
            "every_scale",
            "Gradients of 1e-16 have squared norms of 1e-32, float64 holds smaller ones, and their noise scale is as "
            "good as any. Compare |G|^2 with 0 itself, and add nothing to it.",
            cases=tuple(TINY),
            roundings=ROUNDINGS,
        ),
        Property(
            "right_on_average",
            "Over every batch that can be drawn, the means are expectations: S must be the trace of the "
            "covariance of one example's gradient, and |G|^2 the squared norm of the full gradient, without a bias.",
            keys=("noise", "squared_gradient"),
            cases=EXACT,
            roundings=ROUNDINGS,
        ),
        Property(
            "digits_of_float64",
            "Draws in float64 give estimates with its digits. `torch.tensor` of Python numbers makes float32, "
            "which keeps seven of them.",
            cases=(FINE,),
            roundings=ROUNDINGS,
        ),
        Property(
            "refuses_what_makes_no_sense",
            "Raise a ValueError where b_small is not less than b_large, and where the estimate of |G|^2 is 0 or "
            "less: a sentence that says to take more draws or larger batches.",
            holds=all_refused,
            cases=(ONE,),
            needs=("squared_gradient",),
        ),
        every_form(needs=("squared_gradient",), roundings=ROUNDINGS),
    ),
    hints=(
        "The gradient of a batch is the full gradient plus noise, and the noise of b examples has the variance S / b. "
        "What is the mean of its squared norm?",
        "Two batch sizes give two equations in two unknowns, |G|^2 and S. Put the mean over the draws of the squared "
        "norms in, and solve.",
        "Square, sum over the d numbers of a row, mean over the rows: one number for each size. Then B times one minus "
        "b times the other, over B - b; and their difference over 1/b - 1/B. Look at the sign before you divide.",
    ),
    keeps=("small", "large"),
    forms=(
        at_once("views that are not contiguous", strided("small"), transposed("large"), of=DRAWN[0]),
        at_once(
            "pieces of a longer tensor, between two other calls",
            offset("small", "large"),
            between_calls("small", "large"),
            of=DRAWN[1],
        ),
    ),
    promises={
        "n draws, each row the mean gradient": ("squared_gradient",),
        "both in float32 or both in float64": (
            "squared_gradient",
            "digits_of_float64",
            "one large draw, of one number",
        ),
        "m and n may differ, and may be 1": ("more small draws", "every_number_of_draws"),
        "(S, |G|^2, S / |G|^2), three numbers": ("squared_gradient", "noise", "ratio_of_the_means"),
        "*before* anything is subtracted or divided": ("ratio_of_the_means", "right_on_average"),
        "S may come out negative, and is returned as it is": (UNLUCKY,),
        "Draws in float64 are computed in float64": ("digits_of_float64",),
        "b_small that is not less than b_large": ("refuses_what_makes_no_sense", EXACT[0]),
        "an estimate of |G|^2 that is 0 or negative": ("refuses_what_makes_no_sense",),
        "however small it is, as long as the dtype of the draws holds their squares": ("every_scale",),
        "The draws are not changed": ("arguments_unchanged",),
    },
)
