"""Wrong ways to write `warmup_cosine`: the two curves, then the end, a warm-up of 0 and the floor."""

from __future__ import annotations

import math
from collections.abc import Callable

from autograder.bank import Misconception
from course.exercise import Answer
from course.reference.optimizers.warmup_cosine import warmup_cosine as right

Up = Callable[[int, int], float]  # (step, warmup) -> share of the peak
Down = Callable[[int, int, int], float]  # (step, warmup, total) -> share of what lies between floor and peak


def over(step: int, warmup: int, total: int) -> float:
    """The share of the descent that is over, at most 1."""
    return min(1.0, (step - warmup) / (total - warmup))


def falls(t: float) -> float:
    """Half a period of the cosine, from 1 at t = 0 to 0 at t = 1."""
    return (1 + math.cos(math.pi * t)) / 2


def line(step: int, warmup: int) -> float:
    """The right way up."""
    return step / warmup


def descent(step: int, warmup: int, total: int) -> float:
    """The right way down."""
    return falls(over(step, warmup, total))


def schedule(up: Up = line, down: Down = descent) -> Answer:
    """The way up below `warmup`, then the way down from peak to floor; refuses nothing."""

    def answer(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
        if step < warmup:
            return peak * up(step, warmup)
        return floor + (peak - floor) * down(step, warmup, total)

    return answer


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


def no_floor(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The descent leads to 0, and the rate stays there."""
    return right(step, peak=peak, warmup=warmup, total=total)


def floor_at_the_end_only(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same, and a jump to the floor at the last step."""
    return floor if step >= total else right(step, peak=peak, warmup=warmup, total=total)


def zero_past_the_end(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """0 after the last step, whatever the floor."""
    return 0.0 if step > total else right(step, peak=peak, warmup=warmup, total=total, floor=floor)


def floor_added(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """On the descent the floor comes on top."""
    return peak * line(step, warmup) if step < warmup else floor + peak * descent(step, warmup, total)


def floor_added_everywhere(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same on the way up."""
    return floor + right(step, peak=peak, warmup=warmup, total=total)


def cut_off_at_the_floor(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The descent to 0, but never below the floor."""
    rate = right(step, peak=peak, warmup=warmup, total=total)
    return rate if step < warmup else max(floor, rate)


def cut_off_everywhere(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same on the way up."""
    return max(floor, right(step, peak=peak, warmup=warmup, total=total))


def up_from_the_floor(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The line starts at the floor."""
    share = line(step, warmup) if step < warmup else descent(step, warmup, total)
    return floor + (peak - floor) * share


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
            schedule(down=lambda step, warmup, total: falls(min(1.0, (step - warmup) / total))),
            schedule(down=lambda step, warmup, total: falls((step - warmup) / total)),
        ),
        hint="Your descent starts where it should, but takes `total` steps. The warm-up has used up `warmup` of them: "
        "total - warmup are left, and at step `total` the rate must have arrived.",
    ),
    Misconception(
        name="another_period",
        witnesses=(
            schedule(down=lambda step, warmup, total: falls(2 * over(step, warmup, total))),
            schedule(down=lambda step, warmup, total: falls(over(step, warmup, total) / 2)),
            schedule(down=lambda step, warmup, total: falls(over(step, warmup, total) / math.pi)),
            schedule(down=lambda step, warmup, total: math.cos(math.pi / 2 * over(step, warmup, total))),
        ),
        hint="Your cosine goes through another angle than it should. cos falls from 1 to -1 over *half* a period: an "
        "angle of pi, in radians. With 2 pi the rate comes back to the peak, with less than pi it stops half-way, and "
        "cos from 0 to pi / 2 is level at one end only.",
    ),
    Misconception(
        name="cosine_not_raised_and_halved",
        witnesses=(
            schedule(down=lambda step, warmup, total: math.cos(math.pi * over(step, warmup, total))),
            schedule(down=lambda step, warmup, total: 1 + math.cos(math.pi * over(step, warmup, total))),
            schedule(down=lambda step, warmup, total: 1 + math.cos(math.pi * over(step, warmup, total)) / 2),
            schedule(down=lambda step, warmup, total: 1 - falls(over(step, warmup, total))),
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
    Misconception(
        name="floor_ignored",
        witnesses=(no_floor, floor_at_the_end_only, zero_past_the_end),
        hint="Your rate goes to 0 where it should go to the floor. All of the descent lies between the two: floor + "
        "(peak - floor) times a share that falls from 1 to 0. Past the end the rate stays at the floor; if you return "
        "the floor only there, it jumps.",
    ),
    Misconception(
        name="floor_added",
        witnesses=(floor_added, floor_added_everywhere),
        hint="You add the floor to the whole curve, so the highest rate is peak + floor. What is scaled by the cosine "
        "is only what lies between the two, peak - floor.",
    ),
    Misconception(
        name="cut_off_at_the_floor",
        witnesses=(cut_off_at_the_floor, cut_off_everywhere),
        hint="`max(floor, ...)` cuts a curve off where it would pass below the floor, so that the rate stands still "
        "early, or never starts at 0. The descent is to be stretched, not cut: floor + (peak - floor) times a share. "
        "The way up starts at 0.",
    ),
    Misconception(
        name="warm_up_from_the_floor",
        witnesses=(up_from_the_floor,),
        hint="Your warm-up starts at the floor. The floor belongs to the descent; the way up is a share of the peak "
        "and starts at 0.",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(schedule(), asserts),
        fails=("refuses_what_makes_no_sense",),
        hint="Your rates are right, but not everything that makes no sense is refused with a ValueError: a negative "
        "step, peak, warmup or floor, and a total that is not greater than warmup. An `assert` raises another "
        "exception, and is skipped under `python -O`.",
    ),
)
