"""`sharded_scaler_step(comm, grads, step, scale, good_steps, interval)`: one step under a loss scale, over shards.

All numbers but the huge ones lie on a grid on which scaling and the steps are exact.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from course.exercises.fsdp.small_talk import few_words
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs
from course.performing.forms import laid_out

STEPS = 7
RATE = 0.125  # of the steps: exact, as everything here
SMALL = 100  # bytes from each rank in a step
GOOD, ONE, INF = "no inf", "one rank: inf, nan and -inf", "an inf on one rank"
NAN, BOTH = "nan and -inf", "infinities that cancel"
GROWTH, EACH, HUGE = "growth", "growth at each step", "finite, and their sum is not"
NONE, BFLOAT, VIEWS = "ranks without shards", "bfloat16", "views that are not contiguous"


def cases(rng: torch.Generator) -> list[Case]:
    """Scripts of steps: which numbers of which rank's gradients are not finite, and how."""

    def grid(*shape: int) -> Tensor:
        """Odd multiples of 1/16 below 8: never 0."""
        return (2 * torch.randint(-64, 64, shape, generator=rng) + 1) / 16

    def case(
        name: str,
        bad: dict[tuple[int, int], float] | None = None,
        *,
        ranks: int = 3,
        shapes: list[list[tuple[int, ...]]] | None = None,
        grads: list[list[Tensor]] | None = None,
        interval: int = 100,
        scale: float = 0.0,
        lies: str = "offset",
    ) -> Case:
        """bad: what stands in the gradients of (step, rank)."""
        shapes = shapes or [[(4,), (3,)]] * ranks
        inputs: dict[str, Any] = {
            "params": [[grid(*shape) for shape in mine] for mine in shapes],
            "grads": grads or [[grid(STEPS, *shape) for shape in mine] for mine in shapes],
            "bad": [[(bad or {}).get((t, rank), 0.0) for t in range(STEPS)] for rank in range(len(shapes))],
            "scale": scale or 2.0 ** int(torch.randint(8, 14, (), generator=rng)),
            "interval": interval,
            "lies": lies,
        }
        return Case(name=name, inputs=inputs)

    inf, nan = math.inf, math.nan
    huge = [(6 + normal(rng, STEPS, 4).abs().clamp(max=1)) * 2.0**115 for _ in range(2)]  # 0.8 of the largest, scaled
    few = [[(grid(STEPS, 4) * 16).remainder(8).div(16).bfloat16()] for _ in range(2)]
    return [
        case(GOOD, scale=2.0**17),  # float16 has no such number
        case(ONE, {(1, 0): inf, (3, 0): nan, (4, 0): -inf}, ranks=1),
        case(INF, {(0, 0): inf, (2, 2): inf, (3, 1): inf}, scale=2.0),
        case(NAN, {(0, 2): nan, (1, 1): -inf, (3, 0): nan, (3, 1): nan}),
        case(BOTH, {(1, 0): inf, (1, 1): -inf, (1, 2): nan, (3, 0): -inf, (3, 2): inf}),
        case(GROWTH, interval=2, ranks=5),
        case(EACH, interval=1, ranks=2, scale=2.0**22),
        case(HUGE, shapes=[[(4,), (4,)]] * 2, grads=[[each, each.bfloat16()] for each in huge], scale=2.0**10),
        case(NONE, {(1, 2): inf, (3, 3): inf}, shapes=[[], [(0,)], [(3,)], [(2, 2), ()]]),
        case(BFLOAT, {(2, 1): inf}, shapes=[[(4,)]] * 2, grads=few),
        case(VIEWS, {(1, 1): inf}, shapes=[[(2, 3), (4,)]] * 2, lies="strided"),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its shards and its script."""
    parts = zip(inputs["params"], inputs["grads"], inputs["bad"], strict=True)
    same = {name: inputs[name] for name in ("scale", "interval", "lies")}
    return [{"params": params, "grads": grads, "bad": bad, **same} for params, grads, bad in parts]


def probe(answer: Answer, comm: object, inputs: Inputs) -> Observation:
    """Steps one after the other, with what was returned. The optimizer's step decays too, so that one with zeros shows.

    What the script says is the first number of the first shard that has one; in every other step the last of the last.
    """
    params = [each.clone() for each in inputs["params"]]
    scale, good_steps, calls = inputs["scale"], 0, 0
    seen: dict[str, list[Any]] = {name: [] for name in ("scale", "good_steps", "calls", "params")}
    for t, bad in enumerate(inputs["bad"]):
        scaled = [(each[t].double() * float(scale)).to(each.dtype) for each in inputs["grads"]]
        grads: Any = laid_out({"grads": scaled}, {"grads": inputs["lies"]})["grads"]
        memory = [each.detach() for each in grads]
        place = -(t % 2)
        for each in [each for each in memory if bad and each.numel()][place:][:1]:
            each[(place,) * each.dim()] = bad

        def step(memory: list[Tensor] = memory) -> None:
            nonlocal calls
            calls += 1
            for param, grad in zip(params, memory, strict=True):
                param.mul_(0.5).sub_(RATE * grad.to(param.dtype))

        given = [view.detach() for view in grads]
        result = outputs(answer(comm, given, step, scale, good_steps, inputs["interval"]), "scale", "good_steps")
        scale, good_steps = float(result["scale"]), int(result["good_steps"])
        seen["scale"].append(int(scale) if scale.is_integer() else scale)  # whole numbers are compared exactly
        seen["good_steps"].append(good_steps)
        seen["calls"].append(calls)
        seen["params"].append([each.clone() for each in params])
    by_step = {**seen, "params": [torch.stack(each) for each in zip(*seen["params"], strict=True)]}
    return observe({f"{name}_by_step": each for name, each in by_step.items()})


EXERCISE = Exercise(
    id="fsdp.sharded_scaler_step",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce", "all_gather", "broadcast"),
    properties=(
        Property(
            "steps_with_the_true_gradient",
            "When step() is called, the very tensors in grads hold the gradients divided by the scale, once.",
            points=2,
            keys=("*/params_by_step/*",),
            cases=(GOOD,),
        ),
        Property(
            "every_kind",
            "nan and -inf count as well as inf. A comparison with nan is false, and a maximum may lose it: ask each "
            "number isfinite.",
            cases=(ONE,),
            needs=("steps_with_the_true_gradient",),
        ),
        Property(
            "all_skip_or_all_step",
            "An inf on any rank skips the step on all of them: step() is called on none, and no parameter moves. A "
            "rank that steps alone has another model from then on.",
            points=3,
            keys=("*/calls_by_step", "*/params_by_step/*"),
            cases=(INF,),
            needs=("steps_with_the_true_gradient",),
        ),
        Property(
            "one_scale_for_all",
            "After a skip the scale is half of what it was, also below 1, and good_steps is 0, on every rank: each "
            "multiplies its own loss by the scale, and the gradients are added.",
            points=2,
            keys=("*/scale_by_step", "*/good_steps_by_step"),
            cases=(INF,),
        ),
        Property(
            "every_kind_on_any_rank",
            "A nan, an inf or a -inf on any rank skips the step on all. inf - inf is nan, and a sum or a maximum over "
            "the ranks may lose what it is made of: let the answer to isfinite travel, and nothing else.",
            cases=(NAN, BOTH),
            needs=("all_skip_or_all_step", "one_scale_for_all"),
        ),
        Property(
            "growth",
            "good_steps counts good steps in a row: it is 0 after a growth, and when it reaches `interval` the scale "
            "is doubled.",
            points=2,
            keys=("*/scale_by_step", "*/good_steps_by_step"),
            cases=(GROWTH, EACH, GOOD),
        ),
        Property(
            "finite_is_finite",
            "Finite numbers whose sum or norm overflows are no reason to skip: ask each number.",
            cases=(HUGE,),
            needs=("steps_with_the_true_gradient", "every_kind"),
        ),
        Property(
            "any_shards",
            "A rank may hold no shard, or one without numbers, and makes the same calls as the others, step() among "
            "them. Shards may be in bfloat16, and views.",
            points=2,
            cases=(NONE, BFLOAT, VIEWS),
            needs=("all_skip_or_all_step", "one_scale_for_all"),
        ),
        Property(
            "one_small_all_reduce",
            "The ranks need to know one thing of each other: whether all is finite. That is one number in one call.",
            evidence="ledger",
            holds=few_words(calls=STEPS, nbytes=SMALL * STEPS),
            beside=("*/calls_by_step", "*/scale_by_step"),
            shows="bytes_sent",
            cases=(GROWTH, INF),
            needs=("all_skip_or_all_step", "one_scale_for_all", "growth"),
        ),
    ),
    hints=(
        "Rank 2 finds an inf and rank 0 does not. What must rank 0 learn before it does anything, and what would "
        "happen if it did not?",
        "First decide, together: a flag, and one all_reduce. Which operation makes of the flags one that is set where "
        "any is? Everything after that is the same on all ranks.",
        "The flag from isfinite; all_reduce the maximum; where it is set return half the scale and 0. Else divide in "
        "place, call step, and count: at `interval` double the scale and begin at 0.",
    ),
    promises={
        "on any number of ranks": (ONE, GROWTH, NONE),
        "of any shapes, () and (0,) too": (NONE,),
        "in float32 or bfloat16, also views": (BFLOAT, VIEWS, GOOD),
        "The list may be empty": (NONE,),
        "differ from rank to rank": (NONE,),
        "It reads the very tensors in grads": ("steps_with_the_true_gradient",),
        "a power of 2, below 1 too, the same on all ranks": ("one_scale_for_all",),
        "how many good steps in a row came before this one": ("growth",),
        "at least 1": (EACH,),
        "in place": ("steps_with_the_true_gradient",),
        "No number was inf, -inf or nan on any rank": (
            "every_kind",
            "every_kind_on_any_rank",
            "finite_is_finite",
        ),
        "also on one without shards": ("any_shards",),
        "Else step is not called on any rank, and the scale is halved": ("all_skip_or_all_step", "one_scale_for_all"),
        "is doubled after `interval` good steps in a row": ("growth",),
        "0 after a skip and after a growth": ("one_scale_for_all", "growth"),
        "one collective, and at most 100 bytes from each rank": ("one_small_all_reduce",),
    },
)
