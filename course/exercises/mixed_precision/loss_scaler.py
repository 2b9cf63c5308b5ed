"""`LossScaler`: a factor for the loss, and the rule by which it is found.

true gradients --times what scale() multiplied a loss by--> scaled, some inf or nan --unscale_, clip, step, update-->

All numbers but those of one case lie on a grid on which scaling, clipping and the steps are exact: they are judged bit
for bit. The gradients of a step are scaled by the derivative of what `scale` returned, as backward would do it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Form, Inputs, Observation, Property, Values, observe
from course.performing.exercise import every_form as form_property
from course.performing.forms import cut, put, strided
from course.performing.refusals import all_refused, refused, refused_in_time
from course.tree import Tree

STEPS = 6
SHAPES: tuple[tuple[int, ...], ...] = ((3, 2), (4,), ())
RATE = 0.125  # of the steps: exact, as everything here
USUAL = {"init_scale": 2.0**16, "growth_interval": 3}
OTHERS = {"init_scale": 1001.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 2}
LARGEST = torch.finfo(torch.float32).max
TINY = 2.0**-90  # the docstring promises a factor above 2^-100
NONSENSE: dict[str, dict[str, Any]] = {
    "an init_scale of 0": {"init_scale": 0.0},
    "a negative init_scale": {"init_scale": -2.0},
    "a growth_factor of 1": {"growth_factor": 1.0},
    "a growth_factor below 1": {"growth_factor": 0.5},
    "a backoff_factor of 0": {"backoff_factor": 0.0},
    "a backoff_factor of 1": {"backoff_factor": 1.0},
    "a growth_interval of 0": {"growth_interval": 0},
}
TURNS = {  # what was called in this step -> what is then refused
    "step before unscale_": ("", "step"),
    "update before unscale_": ("", "update"),
    "a second unscale_": ("unscale_", "others"),
    "an unscale_ after the step": ("unscale_ step", "others"),
    "a second step": ("unscale_ step", "step"),
    "a second step after a skip": ("overflow step", "step"),
    "step after update": ("unscale_ step update", "step"),
    "a second update": ("unscale_ step update", "update"),
    "a float16 gradient": ("", "halves"),
    "a float16 gradient before another": ("", "early"),
    "a float16 gradient without numbers": ("", "empty"),
}
ASKED, LEFT_OUT, BETWEEN_TWO = "what is refused", "numbers left out", "a factor between two of bfloat16"
FACTOR, BETWEEN = "log2 of factor", "log2 of factor between updates"
IGNORED = (torch.tensor(0.5), False, None, 0.0)  # what the optimizer's step returns, in turns


def cases(rng: torch.Generator) -> list[Case]:
    """Scripts of steps: which gradients are not finite, and how; which are missing; with which numbers."""

    def grid(*shape: int) -> Tensor:
        """Odd multiples of 1/16 below 8: never 0."""
        return (2 * torch.randint(-64, 64, shape, generator=rng) + 1) / 16

    def case(name: str, bad: dict[int, tuple[int, float]] | None = None, *, steps: int = STEPS, **others: Any) -> Case:
        inputs: dict[str, Any] = {
            "options": USUAL,
            "params": [grid(*shape) for shape in SHAPES],
            "grads": [grid(STEPS, *shape) for shape in SHAPES],
            "bad": [[*(bad or {}).get(step, ())] for step in range(steps)],
            "missing": [-1] * steps,
            "losses": grid(steps),
            "loss_dtype": "float32",
            "clip": 0.0,
            "twins": 1,
            "asks_for_refusals": name == ASKED,
        }
        return Case(name=name, inputs=inputs | others)

    seldom = {"init_scale": 2.0**16, "growth_interval": 100}
    smaller, twice = seldom | {"init_scale": 2.0**15}, seldom | {"growth_interval": 2}
    always = {"growth_interval": 1}
    inf, nan = math.inf, math.nan
    kinds = {1: (0, inf), 2: (1, -inf), 3: (2, nan), 5: (1, nan)}
    huge = (7 + grid(STEPS, *SHAPES[1]).abs() / 8) * 2.0**124  # finite, scaled by 1, and their sums are not
    large, tiny = [grid(STEPS, *SHAPES[0]), huge, grid(STEPS)], [grid(STEPS, *shape) / 2**20 for shape in SHAPES]
    alone, deep = seldom | {"init_scale": 1.0}, {"init_scale": TINY} | always
    return [
        case("no inf", steps=3, options=seldom),
        case("inf and nan here and there", kinds, options=seldom),
        case("growth"),
        case("an inf in each third step", {1: (0, nan), 4: (2, inf)}),
        case("clipped between", {1: (0, inf)}, steps=4, clip=0.5, options=seldom),
        case("missing gradients", {1: (2, inf)}, steps=4, missing=[0, 1, 2, -1], options=seldom),
        case("huge numbers", steps=2, grads=large, options=alone),
        case("a scale below 1", {t: (t % 3, inf) for t in (0, 1, 3)}, steps=5, options=deep),
        case("the end of float32", {2: (2, nan)}, steps=5, grads=tiny, options={"init_scale": 2.0**126} | always),
        case("the largest float32 itself", steps=2, grads=tiny, options={"init_scale": LARGEST / 2} | always),
        case("other numbers", {2: (0, inf)}, steps=5, options=OTHERS),
        Case(name=LEFT_OUT, inputs={"looks": [0, 1_999, 1]}),
        Case(
            name=BETWEEN_TWO, inputs={"divided": torch.arange(1, 256).bfloat16(), "by": 259.0 + 2 * integer(rng, 0, 12)}
        ),
        case("a float16 loss", losses=4 + grid(2).abs(), options=smaller, loss_dtype="float16"),
        case(
            "a tiny float16 loss", losses=grid(2) / 2**20, options=seldom | {"init_scale": 0.125}, loss_dtype="float16"
        ),
        case("two scalers in turns", {0: (0, inf), 1: (1, nan)}, steps=4, twins=2, options=twice),
        case(ASKED, {1: (0, inf)}, steps=2),
    ]


class _Run:
    """One scaler with its model. Each part of a step is a call of its own, so that two can take turns."""

    def __init__(self, answer: Answer, inputs: Inputs, twin: int) -> None:
        self.inputs, self.scaler = inputs, answer(**inputs["options"])
        self.params = [each.clone() for each in inputs["params"]]
        self.grads = [each.clone() if twin else each for each in inputs["grads"]]
        self.bad = inputs["bad"][::-1] if twin else inputs["bad"]
        self.calls = 0
        self.seen: dict[str, list[Any]] = {
            name: [] for name in ("product", "loss", "grads", BETWEEN, FACTOR, "stepped", "returned", "params")
        }

    def scale(self, t: int) -> None:
        """What comes of a loss; and the gradients of this step, scaled by what the loss was multiplied by."""
        dtype = getattr(torch, self.inputs["loss_dtype"])
        loss = self.inputs["losses"][t].detach().to(dtype).requires_grad_()
        self._note(BETWEEN)
        given = loss * 1
        product = self.scaler.scale(given)
        (by,) = torch.autograd.grad(product, loss)
        self.seen["product"].append(product.detach().double().clone())
        self.seen["loss"].append(given.detach().double().clone())
        with torch.no_grad():
            self.held = [each[t].mul_(by.to(each.dtype)) for each in self.grads]
            for which, value in [self.bad[t]] if self.bad[t] else []:
                spoilt = self.held[int(which)]
                spoilt[tuple(t % length for length in spoilt.shape)] = value  # the first, the last or one between

    def unscale_(self, t: int) -> None:
        """In a list that is the answer's own; a missing gradient is None."""
        missing = self.inputs["missing"][t]
        self.there = [None if at == missing else each.view_as(each) for at, each in enumerate(self.held)]
        self.scaler.unscale_(list(self.there))
        self._note(BETWEEN)
        if not self.bad[t]:  # nobody reads the others
            self.seen["grads"].append([each.clone() for each in self.held])
        if self.inputs["clip"]:
            for each in self.held:
                each.clamp_(-self.inputs["clip"], self.inputs["clip"])

    def step(self, t: int) -> None:
        """Which must happen once, or not at all; what the optimizer's step returns is of no interest."""
        before = self.calls
        returned = self.scaler.step(self.take)
        self._note(BETWEEN)
        said = returned.item() if isinstance(returned, Tensor) and returned.numel() == 1 else returned
        kind = isinstance(said, bool) or type(said).__name__ == "bool_"
        self.seen["returned"].append(str(bool(said)) if kind else type(said).__name__)
        self.seen["stepped"].append(self.calls - before)
        self.seen["params"].append([each.clone() for each in self.params])

    def take(self) -> object:
        """A step of SGD with what the gradients hold at that time."""
        self.calls += 1
        for param, seen, grad in zip(self.params, self.there, self.held, strict=True):
            if seen is not None:
                param.sub_(RATE * grad)
        return IGNORED[self.calls % len(IGNORED) - 1]

    def update(self, t: int) -> None:
        """The only call that may change the factor."""
        self.scaler.update()
        self._note(FACTOR)

    def _note(self, name: str) -> None:
        self.seen[name].append(_log2_of_factor(self.scaler))

    def values(self) -> dict[str, Any]:
        """All that was seen."""
        stacked = {name: list(map(torch.stack, zip(*self.seen[name], strict=True))) for name in ("grads", "params")}
        return {**self.seen, **stacked}


def _log2_of_factor(scaler: Any) -> float:
    factor = float(scaler.factor)
    return math.log2(factor) if 0 < factor < math.inf else factor


def _after_good_steps(answer: Answer, looks: list[int]) -> list[Tree]:
    """The factor of a scaler without arguments, each time after so many more steps with one gradient."""
    scaler = answer()
    factors: list[Tree] = []
    for steps in looks:
        for _ in range(steps):
            scaler.unscale_([torch.ones(())])
            scaler.step(lambda: None)
            scaler.update()
        factors.append(_log2_of_factor(scaler))
    return factors


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """All steps of a script; two scalers take turns, call by call, the second with the script backwards."""
    if "by" in inputs:
        divided = inputs["divided"].clone()
        answer(init_scale=inputs["by"]).unscale_([divided])
        return observe({"divided": divided})
    if "looks" in inputs:
        return observe({"0": {FACTOR: _after_good_steps(answer, inputs["looks"])}})
    runs = [_Run(answer, inputs, twin) for twin in range(inputs["twins"])]
    for t in range(len(inputs["losses"])):
        for part in (_Run.scale, _Run.unscale_, _Run.step, _Run.update):
            for run in runs:
                part(run, t)
    seen: dict[str, Any] = {str(at): run.values() for at, run in enumerate(runs)}
    if inputs["asks_for_refusals"]:
        seen["refused"] = _refusals(answer)
    return observe(seen)


def _refusals(answer: Answer) -> dict[str, Any]:
    """What each call raised that makes no sense, or comes out of turn; and what the calls left behind."""
    calls = {words: functools.partial(answer, **numbers) for words, numbers in NONSENSE.items()}
    left: dict[str, str] = {}
    calls |= {words: functools.partial(_out_of_turn, answer, words, left) for words in TURNS}
    raised = refused({words: _as_value_error(call) for words, call in calls.items()})
    return {**raised, "left": left}


def _out_of_turn(answer: Answer, words: str, left: dict[str, str]) -> None:
    """One step up to the call that is refused, that call, and the rest of the step, or a whole one after update."""
    scaler, taken = answer(init_scale=8.0, growth_interval=2), [0]
    given = {
        "unscale_": [torch.full((2,), 24.0)],
        "overflow": [torch.tensor([24.0, math.inf])],
        "others": [torch.tensor([24.0, math.inf])],
        "halves": [torch.full((2,), 24.0), torch.full((2,), 24.0, dtype=torch.float16)],
        "early": [torch.full((2,), 24.0, dtype=torch.float16), torch.full((2,), 24.0)],
        "empty": [torch.full((2,), 24.0), torch.zeros(0, dtype=torch.float16)],
    }

    def step() -> None:
        taken[0] += 1

    parts: dict[str, Callable[[], object]] = {
        **{name: functools.partial(_unscale, scaler, grads) for name, grads in given.items()},
        "step": lambda: scaler.step(step),
        "update": lambda: scaler.update(),
    }
    before, late = TURNS[words]
    done = before.replace("overflow", "unscale_").split()
    for part in before.split():
        parts[part]()
    left[words] = "nothing was refused"
    try:
        parts[late]()
    except Exception:
        left[words] = "a call after it was refused too"
        for part in ("unscale_", "step", "update"):
            if part not in done or "update" in done:
                parts[part]()
        values = [each for name, grads in given.items() if name != "overflow" for g in grads for each in g.tolist()]
        left[words] = f"{values}, {taken[0]} steps, factor {float(scaler.factor):g}"
        raise


def _unscale(scaler: Any, grads: list[Tensor]) -> None:
    scaler.unscale_([*grads])


def _as_value_error(call: Callable[[], object]) -> Callable[[], object]:
    """The call, with the other error that the docstring allows."""

    def called() -> object:
        try:
            return call()
        except NotImplementedError:
            raise
        except RuntimeError as error:
            raise ValueError(str(error)) from None

    return called


def _taken(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: one call where the gradients are finite, none elsewhere."""
    calls, wanted = (cast(Tensor, each["0/stepped"]).tolist() for each in (got, expected))
    steps = [t for t in range(len(wanted)) if calls[t] != wanted[t]]
    wrong = [f"{calls[t]} in step {t + 1} instead of {wanted[t]}" for t in steps]
    return f"calls of the optimizer's step: {', '.join(wrong)}" if wrong else None


def _quotients(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: a quotient of bfloat16 is at most 1.25 of its roundings off: 1 for 1 / factor."""
    found, right = (cast(Tensor, each["divided"]).double() for each in (got, expected))
    off = float(((found - right) / right).abs().max()) * 2**8
    return None if off <= 1.25 else f"{off:.3g} roundings of bfloat16 off, after a division by {inputs['by']:g}"


def _by_15(case: Case) -> Case:
    """Odd gradients below 1/2, which bfloat16 holds also when they are multiplied by 15, and a factor of 15.

    So the quotients are exact, and also what a product with 1/15 in float32 is rounded to. 1/15 is rounded so badly in
    bfloat16 that most products with it are not.
    """
    few = [(each * 16).remainder(8).div(16).to(torch.bfloat16) for each in cast(list[Tensor], case.inputs["grads"])]
    options = {**cast(dict[str, Any], case.inputs["options"]), "init_scale": 15.0}
    changed: dict[str, Any] = {"grads": few, "options": options}
    return dataclasses.replace(case, inputs={**case.inputs, **changed})


VIEWS = strided("grads", of="clipped between")
BFLOAT = Form(name="bfloat16 gradients", change=_by_15, of="clipped between")
NO_NUMBERS = cut("a gradient without numbers", **{"grads/1": (1, 0), "params/1": (0, 0)}, of="no inf")
HALF_LOSS = put("a bfloat16 loss", loss_dtype="bfloat16", of="no inf")
WHOLE = put(
    "whole numbers",
    options={"init_scale": 2**16, "growth_factor": 2, "growth_interval": 3},
    of="an inf in each third step",
)
bits = functools.partial(Property, roundings=0)

EXERCISE = Exercise(
    id="mixed_precision.LossScaler",
    cases=cases,
    probe=probe,
    properties=(
        bits(
            "scaled_loss",
            "scale returns the loss times the factor, still connected to the loss: a number taken out of a tensor, or "
            "a detached one, has no way back.",
            keys=("*/product",),
            cases=("no inf",),
        ),
        bits(
            "loss_as_it_was",
            "scale returns a new tensor: the caller goes on with the loss, and prints it.",
            keys=("*/loss",),
            cases=("no inf", "a float16 loss"),
            needs=("scaled_loss",),
        ),
        bits(
            "unscaled_in_place",
            "After unscale_ the very tensors that were handed in hold the gradients divided by the factor, once: the "
            "optimizer and the clipping read them there. `g = g / factor` makes a new tensor.",
            points=2,
            keys=("*/grads/*",),
            cases=("no inf",),
            needs=("scaled_loss",),
        ),
        bits(
            "clipped_after_unscaling",
            "The caller clips between unscale_ and step: the gradients must be unscaled by then, and must not be "
            "divided again by step.",
            keys=("*/params/*", "*/grads/*"),
            cases=("clipped between",),
            needs=("scaled_loss",),
        ),
        Property(
            "skips_where_not_finite",
            "inf, -inf and nan, anywhere in any of the gradients: one of them is enough to leave the step out, and "
            "without one it is taken, exactly once.",
            points=2,
            holds=_taken,
            cases=("inf and nan here and there", "an inf in each third step", "no inf"),
            needs=("scaled_loss",),
        ),
        bits(
            "nothing_moves_on_a_skip",
            "After a skipped step all parameters have the bits that they had before it, and after others they are "
            "where the unscaled gradients led.",
            keys=("*/params/*",),
            cases=("inf and nan here and there",),
            needs=("scaled_loss",),
        ),
        Property(
            "says_whether",
            "step returns True where it called the optimizer's step, and False where it did not, whatever that step "
            "itself returns.",
            keys=("*/returned/*",),
            cases=("no inf", "inf and nan here and there"),
        ),
        Property(
            "large_is_not_infinite",
            "Here all numbers are finite, before and after the division, but their sum, or the sum of their squares, "
            "is not in float32. Look at the numbers themselves.",
            keys=("*/stepped", f"*/{FACTOR}"),
            cases=("huge numbers",),
            needs=("skips_where_not_finite",),
        ),
        bits(
            "backs_off",
            "The update after a skipped step multiplies the factor by backoff_factor, each time, also below 1.",
            keys=(f"*/{FACTOR}",),
            cases=("inf and nan here and there", "a scale below 1"),
        ),
        bits(
            "grows_in_time",
            "The factor grows in the update that makes growth_interval good steps in a row, not one earlier or later; "
            "then the count begins anew.",
            points=2,
            keys=(f"*/{FACTOR}",),
            cases=("growth",),
        ),
        bits(
            "a_skip_starts_the_count_anew",
            "Good steps count only in a row: one inf, and it takes growth_interval good steps again.",
            keys=(f"*/{FACTOR}",),
            cases=("an inf in each third step",),
        ),
        bits(
            "only_update_changes_the_factor",
            "The factor must be the same in scale and in unscale_ of one step. Only update may change it.",
            keys=(f"*/{BETWEEN}",),
            cases=("inf and nan here and there", "growth"),
        ),
        bits(
            "the_end_of_float32",
            "A growth beyond the largest float32 number is left out, and one to that very number is not. Python's "
            "numbers go on to 2^1024.",
            keys=(f"*/{FACTOR}",),
            cases=("the end of float32", "the largest float32 itself"),
        ),
        Property(
            "numbers_of_the_caller",
            "growth_factor and backoff_factor need not be 2 and 1/2, and the factor need not be a power of two. Where "
            "the caller names no number, those of the signature hold.",
            keys=(f"*/{FACTOR}", "*/grads/*"),
            roundings=4,
            cases=("other numbers", LEFT_OUT),
        ),
        bits(
            "float16_loss",
            "A float16 loss times 2^15 is beyond 65,504, where float16 ends, and a tiny one times 1/8 loses its last "
            "digits: form the product in float32.",
            keys=("*/product",),
            cases=("a float16 loss", "a tiny float16 loss"),
            needs=("scaled_loss",),
        ),
        bits(
            "missing_gradients",
            "A parameter without a gradient has None in the list: leave it out, and look at all the others.",
            keys=("*/stepped", "*/params/*", f"*/{FACTOR}"),
            cases=("missing gradients",),
            needs=("unscaled_in_place",),
        ),
        bits(
            "each_on_its_own",
            "Two scalers know nothing of each other: what an object remembers belongs into self, not into the class or "
            "a global.",
            keys=(f"*/{FACTOR}", "*/stepped", f"*/{BETWEEN}"),
            cases=("two scalers in turns",),
        ),
        Property(
            "refusals",
            "Raise a ValueError or a RuntimeError for each call that the docstring refuses. It takes two notes: "
            "whether this step's gradients were unscaled, and whether the step was taken.",
            points=2,
            holds=all_refused,
            cases=(ASKED,),
            needs=("scaled_loss",),
        ),
        refused_in_time(ASKED),
        Property(
            "divided_by_the_factor_itself",
            "The factor may be a number that bfloat16 does not hold. Made a tensor of a gradient's dtype it is another "
            "one, and all gradients of the step are off by the same: divide by the number, or multiply in float32.",
            holds=_quotients,
            cases=(BETWEEN_TWO,),
            needs=("unscaled_in_place",),
        ),
        form_property(needs=("unscaled_in_place",), keys=("*/grads/*", "*/params/*", f"*/{FACTOR}"), roundings=0),
    ),
    hints=(
        "What must a scaler remember from one call to the next, and what from one step to the next?",
        "Five things: the factor, the number of good steps in a row, whether this step's gradients were all finite "
        "(None before unscale_), whether step was called, and the numbers of the constructor. update clears two.",
        "unscale_: refuse, note whether all numbers of all gradients are finite, divide with an operation that ends in "
        "an underscore. step: refuse, call or not, return the note. update: refuse; on a skip shrink the factor and "
        "set the count to 0, else add 1 to it, and at growth_interval grow and set it to 0.",
    ),
    forms=(VIEWS, BFLOAT, NO_NUMBERS, HALF_LOSS, WHOLE),
    promises={
        "the first loss scale, above 0": ("refusals", "a scale below 1", "whole numbers", LEFT_OUT),
        "what it is multiplied by to grow, above 1": ("numbers_of_the_caller",),
        "what it is multiplied by after a skipped step, between 0 and 1": ("numbers_of_the_caller",),
        "how many good steps in a row make it grow, an int, at least 1": ("grows_in_time", "a scale below 1", LEFT_OUT),
        "It changes in update only": ("only_update_changes_the_factor",),
        "beyond the largest float32 number is left out": ("the_end_of_float32",),
        "Each scaler has its own": ("each_on_its_own",),
        "connected with the loss": ("scaled_loss",),
        "The loss is not changed": ("loss_as_it_was",),
        "in float32, bfloat16 or float16": ("scaled_loss", "a bfloat16 loss", "float16_loss"),
        "the product of a float16 loss is formed in float32": ("float16_loss",),
        "or multiplies them by 1 / factor in float32": (
            *("numbers_of_the_caller", "bfloat16 gradients", "divided_by_the_factor_itself"),
        ),
        "in the memory of the": ("unscaled_in_place",),
        "in float32 or bfloat16": ("unscaled_in_place", "bfloat16 gradients"),
        "of any shapes (also without numbers), views too": (
            "a gradient without numbers",
            "views that are not contiguous",
        ),
        "None for parameters without a gradient": ("missing_gradients",),
        "they may hold anything": ("inf and nan here and there",),
        "if all gradients were finite, however large": ("large_is_not_infinite",),
        "any number in them was inf, -inf or nan": ("skips_where_not_finite", "nothing_moves_on_a_skip"),
        "True if it called it, else False, whatever step()": ("says_whether",),
        "multiplies factor by backoff_factor, also below 1": ("backs_off",),
        "the count of good steps is 0 again": ("grows_in_time", "a_skip_starts_the_count_anew"),
        "before anything is changed": ("refused_before_any_change",),
        "a number of the constructor that is outside of its range (none is nan)": ("refusals",),
        "a float16 gradient (divided, it would be lost after all), also without numbers": ("refusals",),
        "step before unscale_": ("refusals",),
        "a second unscale_ before update": ("refusals",),
        "a second step, also after a skip": ("refusals",),
        "update before unscale_": ("refusals",),
    },
    removes=("torch.amp", "torch.cuda.amp"),
)
