"""Wrong ways to write `warmup_cosine`: the two curves, then the end, and a warm-up of 0."""

from __future__ import annotations

import math
from collections.abc import Callable

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.warmup_cosine_floor import FLOOR
from autograder.misconceptions.optimizers.warmup_cosine_parts import descent, falls, over, schedule
from course.performing.exercise import Answer
from course.reference.optimizers.warmup_cosine import warmup_cosine as right


def curve(share: Callable[[float], float]) -> tuple[Answer, ...]:
    """Another way down, a function of t, that ends as is usual: the floor from `total` on or after it, or t up to 1."""

    def ending(first: float) -> Answer:
        return schedule(
            down=lambda step, warmup, total: 0.0 if step >= total + first else share(over(step, warmup, total))
        )

    return ending(0), ending(1), ending(math.inf)


def too_long(end: float) -> Answer:
    """A descent of `total` steps, and the floor from `end` steps after `total` on."""

    def down(step: int, warmup: int, total: int) -> float:
        return 0.0 if step >= total + end else falls(min(1.0, (step - warmup) / total))

    return schedule(down=down)


def counts_from_one(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The next step's rate, everywhere."""
    return right(step + 1, peak=peak, warmup=warmup, total=total, floor=floor)


def line_times_cosine(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """Both factors at every step; the cosine runs from step 0."""
    up = min(1.0, step / warmup) if warmup else 1.0
    return floor + (peak - floor) * up * falls(min(1.0, step / total))


def refuses_the_past(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """A step after the last one is an error."""
    if step > total:
        raise ValueError(f"step must be at most {total}, got {step}")
    return right(step, peak=peak, warmup=warmup, total=total, floor=floor)


def divides_at_the_joint(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """`<=` takes the joint for the way up: the same rate, unless warmup is 0."""
    return peak * step / warmup if step <= warmup else floor + (peak - floor) * descent(step, warmup, total)


def warms_up_for_one_step(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """max(1, warmup) prevents the division by 0, and brings a warm-up of one step."""
    return right(step, peak=peak, warmup=max(1, warmup), total=total, floor=floor)


def asserts(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """An assertion, which raises another exception and vanishes under `python -O`."""
    assert min(step, peak, warmup, floor) >= 0
    assert total > warmup
    return right(step, peak=peak, warmup=warmup, total=total, floor=floor)


MISCONCEPTIONS = (
    Misconception(
        name="off_by_one",
        witnesses=(
            counts_from_one,
            schedule(up=lambda step, warmup: (step + 1) / warmup),
            schedule(up=lambda step, warmup: (step + 1) / (warmup + 1)),
            schedule(up=lambda step, warmup: step / (warmup - 1)),
            schedule(down=lambda step, warmup, total: falls(over(step, warmup, total - 1))),
            schedule(down=lambda step, warmup, total: falls(over(step + 1, warmup, total))),
        ),
        hint="Your way up, or your way down, is one step early or late. Steps count from 0: step 0 has rate 0, step "
        "`warmup` has the whole peak, step `total` has arrived. So the shares are step / warmup and (step - warmup) / "
        "(total - warmup), without a 1. (Some libraries start at 1 / warmup, so that the first step moves something; "
        "here the ends are as stated.)",
    ),
    Misconception(
        name="jumps_at_the_joint",
        witnesses=(
            line_times_cosine,
            schedule(down=lambda step, warmup, total: falls(min(1.0, step / total))),
            schedule(down=lambda step, warmup, total: falls(step / total)),
            schedule(down=lambda step, warmup, total: falls(min(1.0, step / (total - warmup)))),
        ),
        hint="Your cosine starts at step 0, so at step `warmup`, where the line has reached the peak, part of the "
        "descent is over already: the rate jumps there, or never gets to the peak if you multiply the two. First the "
        "line alone, then the cosine alone, whose steps count from its own start: step - warmup.",
    ),
    Misconception(
        name="descent_too_long",
        witnesses=(
            *(too_long(end) for end in (0, 1, math.inf)),
            schedule(down=lambda step, warmup, total: falls((step - warmup) / total)),
        ),
        hint="Your descent starts where it should, but takes `total` steps. The warm-up has used up `warmup` of them: "
        "total - warmup are left, and at step `total` the rate must have arrived.",
    ),
    Misconception(
        name="another_period",
        witnesses=(
            *curve(lambda t: falls(2 * t)),
            *curve(lambda t: falls(t / 2)),
            *curve(lambda t: falls(t / math.pi)),
            *curve(lambda t: math.cos(math.pi / 2 * t)),
        ),
        hint="Your cosine goes through another angle than it should. cos falls from 1 to -1 over *half* a period: an "
        "angle of pi, in radians. With 2 pi the rate comes back to the peak, with less than pi it stops half-way, and "
        "cos from 0 to pi / 2 is level at one end only.",
    ),
    Misconception(
        name="cosine_not_raised_and_halved",
        witnesses=(
            *curve(lambda t: math.cos(math.pi * t)),
            *curve(lambda t: 1 + math.cos(math.pi * t)),
            *curve(lambda t: 1 + math.cos(math.pi * t) / 2),
            *curve(lambda t: 1 - falls(t)),
        ),
        hint="The cosine runs from 1 to -1. A share of the peak runs from 1 to 0: add the cosine to 1, then halve the "
        "sum, (1 + cos(pi t)) / 2. Without the 1 the rate turns negative, without the half it starts at twice the "
        "peak, and with a minus it rises.",
    ),
    Misconception(
        name="rises_again",
        witnesses=(schedule(down=lambda step, warmup, total: falls((step - warmup) / (total - warmup))),),
        hint="Past the end your rate rises again. A cosine does not stop at its lowest point: limit t to 1 before you "
        "put it into the cosine, or return the floor from step `total` on.",
    ),
    Misconception(
        name="restarts",
        witnesses=(
            schedule(down=lambda step, warmup, total: falls((step - warmup) % (total - warmup) / (total - warmup))),
        ),
        hint="At the end your schedule starts anew at the peak: that is what `%` does. Warm restarts exist, but here "
        "the rate arrives at the floor at step `total` and stays: limit t to 1.",
    ),
    Misconception(
        name="refuses_steps_past_the_end",
        witnesses=(refuses_the_past,),
        hint="A step after `total` is no mistake: training often goes on a little, and the rate then stays at the "
        "floor. Return that in place of raising an error.",
    ),
    Misconception(
        name="warm_up_of_no_steps",
        witnesses=(divides_at_the_joint, warms_up_for_one_step),
        hint="With warmup = 0 you divide by 0, or, with max(1, warmup), warm up for one step all the same. Only a step "
        "*below* warmup is on the way up, so none is then, and step 0 has the whole peak: ask `step < warmup` first, "
        "and divide inside that branch.",
    ),
    *FLOOR,
    Misconception(
        name="refuses_too_little",
        witnesses=(schedule(), asserts),
        fails=("refuses_what_makes_no_sense",),
        hint="Your rates are right, but not everything that makes no sense is refused with a ValueError: a negative "
        "step, peak, warmup or floor, and a total that is not greater than warmup. An `assert` raises another "
        "exception, and is skipped under `python -O`.",
    ),
)
