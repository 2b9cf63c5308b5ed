"""`minibatch_gradient(grads, probs, indices)`: an estimate of the mean gradient that is right on average."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.performing.draws import near_one, signs
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    call_once,
    in_the_dtype_of,
    observe,
)
from course.performing.forms import between_calls, cut, in_dtype, put, strided

RARE = 1e-16  # the least probability: below every epsilon that is beside one, or bounds one


def cases(rng: torch.Generator) -> list[Case]:
    """Single draws: with equal and unequal probabilities, with repeated indices, with an example that is never drawn,
    one that is almost never drawn, in float64. And two in which every draw of three, or of two, examples is tried.

    Gradients have a size from 1/2 to 3/2 and a sign for each column, so that no sum cancels; probabilities are wide
    apart, so that a weight shows.
    """

    def case(name: str, probs: Tensor, indices: Tensor, *, draws: int = 0) -> Case:
        grads = near_one(rng, signs(rng, 3), len(probs), 3, dtype=probs.dtype)
        inputs: dict[str, Any] = {"grads": grads, "probs": probs, "indices": indices, "draws": draws}
        return Case(name=name, inputs=inputs)

    def unequal(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """In random order, from the smallest to four and more times that."""
        sizes = torch.arange(1, count + 1) + 0.5 * torch.rand(count, generator=rng, dtype=torch.float64)
        return (sizes / sizes.sum())[torch.randperm(count, generator=rng)].to(dtype)

    some = torch.randperm(6, generator=rng)
    never = torch.cat([unequal(5), torch.zeros(1)])[some]
    drawn = never.nonzero().flatten()
    twice = torch.randperm(5, generator=rng)
    rare, others = unequal(5), torch.randperm(5, generator=rng)
    rare[others[0]] = RARE
    none = torch.zeros(0, dtype=torch.int64)
    return [
        case("equal probabilities", torch.full((8,), 1 / 8), torch.randperm(8, generator=rng)[:3]),
        case(
            "unequal probabilities", unequal(6), torch.cat([torch.tensor([5, 4]), torch.randperm(4, generator=rng)[:2]])
        ),
        case("in float64", unequal(5, torch.float64), torch.randperm(5, generator=rng)[:3]),
        case("repeated indices", unequal(5), twice[[0, 1, 0, 0, 2, 1]]),
        case("an example of probability 0", never, drawn[torch.randperm(5, generator=rng)[:4]]),
        case("a rare example", rare / rare.sum(), others[[1, 0, 2]]),
        case("every draw of 3 of 3", unequal(3), none, draws=3),
        case("every draw of 2 of 4", unequal(4, torch.float64), none, draws=2),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The gradient of one draw, or the expectation over all of them."""
    grads, probs, indices = inputs["grads"], inputs["probs"], inputs["indices"]
    if not inputs["draws"]:
        return observe({"gradient": call_once(answer, inputs, grads, probs, indices)})
    expectation = found = torch.zeros((), dtype=torch.float64)
    for draw in itertools.product(range(len(probs)), repeat=inputs["draws"]):
        indices = torch.tensor(draw)
        found = answer(grads.clone(), probs.clone(), indices.clone())
        if not isinstance(found, Tensor):
            raise WrongOutput(f"must return a tensor of shape (d,), got {type(found).__name__}: is there a `return`?")
        expectation = expectation + probs[indices].double().prod() * found.double()  # how often this draw comes
    return observe({"expectation": expectation.to(found.dtype)})


ONE_DRAW = ("equal probabilities", "unequal probabilities", "in float64", "repeated indices")

EXERCISE = Exercise(
    id="optimizers.minibatch_gradient",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "equal_probabilities",
            "With p_i = 1/n every weight 1 / (n p_i) is 1, and what is left is the mean of the b gradients that "
            "were drawn: their sum over b.",
            cases=("equal probabilities",),
        ),
        Property(
            "unequal_probabilities",
            "The gradient of a drawn example i has the weight 1 / (n p_i), with n the number of all examples. "
            "Divide the weighted sum by b, the number of draws, and by nothing else.",
            points=2,
            cases=("unequal probabilities", "in float64"),
        ),
        Property(
            "repeated_indices",
            "An example that was drawn three times counts three times, and b counts all draws.",
            cases=("repeated indices",),
            needs=("equal_probabilities",),
        ),
        Property(
            "right_on_average",
            "Take every possible draw, weigh the estimate by the probability of that draw, and add up: the mean "
            "gradient must come out, to the last digit. Check it by hand for b = 1: the sum of p_i times your "
            "estimate.",
            points=2,
            cases=("every draw of 3 of 3", "every draw of 2 of 4"),
            needs=("unequal_probabilities",),
        ),
        Property(
            "an_example_never_drawn",
            "An example of probability 0 is never drawn, but 1 / 0 is infinite and infinity times 0 is nan. Take "
            "the probabilities of the drawn examples first, and divide by those only.",
            cases=("an example of probability 0",),
            needs=("unequal_probabilities",),
        ),
        Property(
            "a_rare_example",
            f"An example of a probability near {RARE:g} was drawn. However rarely that happens, its weight must be "
            "1 / (n p_i): with a smaller one its share would be missing from the mean.",
            cases=("a rare example",),
            needs=("unequal_probabilities",),
        ),
        Property(
            "dtype_of_the_gradients",
            "The estimate has the dtype of `grads`: float64 where that is, and not otherwise.",
            holds=in_the_dtype_of("grads", "gradient"),
            cases=(*ONE_DRAW, "in float16", "in bfloat16", "one draw", "one number in each gradient", "one example"),
            needs=("equal_probabilities",),
        ),
    ),
    hints=(
        "An example is drawn twice as often as another. How much should each of its appearances count, so that both "
        "have the same say in the long run?",
        "Write the expectation for b = 1: the sum over i of p_i times w_i times g_i. Which w_i makes that the mean, "
        "the sum of g_i / n?",
        "Pick rows of grads and entries of probs with the same indices, so that both have length b; turn the "
        "probabilities into weights; broadcast them over the columns; take the mean over the rows.",
    ),
    keeps=("grads", "probs", "indices"),
    forms=(
        in_dtype(torch.float16, "grads", "probs", of="unequal probabilities"),
        in_dtype(torch.bfloat16, "grads", "probs", of="unequal probabilities"),
        strided("grads", "probs", "indices", of="in float64"),
        cut("one number in each gradient", grads=(1, 1), of="in float64"),
        between_calls("grads", of="in float64"),
        cut("one draw", indices=(0, 1), of="in float64"),
        put(
            "one example",
            grads=torch.tensor([[0.5, -0.75, 1.25]], dtype=torch.float64),
            probs=torch.ones(1, dtype=torch.float64),
            indices=torch.zeros(3, dtype=torch.int64),
            of="in float64",
        ),
    ),
    promises={
        "(n, d), floating": ("in float16", "in float64", "one number in each gradient", "one example"),
        "the probability of each example": ("unequal_probabilities", "a_rare_example"),
        "in the dtype of grads. It may be 0": ("in float16", "an_example_never_drawn"),
        "(b,), int64, b at least 1": ("one draw",),
        "some may repeat": ("repeated_indices",),
        "(d,), in the dtype of grads": ("one number in each gradient", "dtype_of_the_gradients"),
        "the mean over the b draws of w_i g_i": ("equal_probabilities", "unequal_probabilities", "one draw"),
        "the expectation over all possible draws is the mean gradient": ("right_on_average",),
        "its share is missing": ("an_example_never_drawn",),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
    },
    seconds=2.0,
)
