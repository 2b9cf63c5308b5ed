"""Wrong ways to write `warmup_cosine`: what becomes of the floor."""

from __future__ import annotations

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.warmup_cosine_parts import descent, line
from course.reference.optimizers.warmup_cosine import warmup_cosine as right


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


def cut_off_on_the_way_up(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The right descent; the line is never below the floor."""
    return max(floor, right(step, peak=peak, warmup=warmup, total=total, floor=floor))


def up_from_the_floor(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The line starts at the floor."""
    share = line(step, warmup) if step < warmup else descent(step, warmup, total)
    return floor + (peak - floor) * share


FLOOR = (
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
        witnesses=(cut_off_at_the_floor, cut_off_everywhere, cut_off_on_the_way_up),
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
)
