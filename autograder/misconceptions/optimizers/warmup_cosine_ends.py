"""Wrong ways to write `warmup_cosine`: past the end, without a warm-up, with a floor, and what is not refused."""

from __future__ import annotations

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.warmup_cosine_parts import both, descent, falls, line, schedule
from course.exercise import Answer
from course.reference.optimizers.warmup_cosine import warmup_cosine as right


def refuses_the_past(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """A step after the last one is an error."""
    if step > total:
        raise ValueError(f"step must be at most {total}, got {step}")
    return float(schedule()(step, peak=peak, warmup=warmup, total=total, floor=floor))


def back_to_the_peak(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The branch for steps past the end hands the peak back."""
    return peak if step > total else float(schedule()(step, peak=peak, warmup=warmup, total=total, floor=floor))


def nothing_past_the_end(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """0 after the last step, whatever the floor."""
    return 0.0 if step > total else float(schedule()(step, peak=peak, warmup=warmup, total=total, floor=floor))


def nothing_from_the_end_on(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same, from the last step on."""
    return 0.0 if step >= total else float(schedule()(step, peak=peak, warmup=warmup, total=total, floor=floor))


def divides_at_once(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The way up is computed before it is asked whether there is one."""
    up = peak * step / warmup
    return up if step < warmup else floor + (peak - floor) * descent(step, warmup, total)


def divides_up_to_the_joint(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """`<=` takes the joint for the way up: the same value, unless warmup is 0."""
    return peak * step / warmup if step <= warmup else floor + (peak - floor) * descent(step, warmup, total)


def warms_up_for_one_step(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """max(1, warmup) prevents the division by 0, and brings a warm-up of one step."""
    warmup = max(1, warmup)
    return float(schedule()(step, peak=peak, warmup=warmup, total=total, floor=floor))


def line_of_one_step(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same in the line alone, which has the joint too."""
    if step <= warmup:
        return peak * step / max(1, warmup)
    return floor + (peak - floor) * descent(step, warmup, total)


def no_floor(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The descent leads to 0."""
    return float(schedule()(step, peak=peak, warmup=warmup, total=total))


def floor_at_the_end_only(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same, and a jump to the floor at the last step."""
    return floor if step >= total else float(schedule()(step, peak=peak, warmup=warmup, total=total))


def floor_past_the_end_only(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same, and a jump to the floor after the last step."""
    return floor if step > total else float(schedule()(step, peak=peak, warmup=warmup, total=total))


def floor_added(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """On the descent the floor comes on top."""
    return peak * line(step, warmup) if step < warmup else floor + peak * descent(step, warmup, total)


def floor_added_everywhere(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same on the way up."""
    return floor + float(schedule()(step, peak=peak, warmup=warmup, total=total))


def cut_off_at_the_floor(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The descent to 0, but never below the floor."""
    rate = float(schedule()(step, peak=peak, warmup=warmup, total=total))
    return rate if step < warmup else max(floor, rate)


def cut_off_everywhere(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The same on the way up."""
    return max(floor, float(schedule()(step, peak=peak, warmup=warmup, total=total)))


def up_from_the_floor(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The line starts at the floor."""
    share = line(step, warmup) if step < warmup else descent(step, warmup, total)
    return floor + (peak - floor) * share


def never_below_on_the_way_up(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The line starts at 0, but is cut off at the floor."""
    return max(floor, right(step, peak=peak, warmup=warmup, total=total, floor=floor))


def floor_as_a_share(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """`floor` is taken for a share of the peak."""
    return float(schedule()(step, peak=peak, warmup=warmup, total=total, floor=floor * peak))


def refuses_some(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The negative rate alone."""
    if peak < 0:
        raise ValueError(f"peak must be at least 0, got {peak}")
    return float(schedule()(step, peak=peak, warmup=warmup, total=total, floor=floor))


def asserts(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """An assertion, which raises another exception and vanishes under `python -O`."""
    assert min(step, peak, warmup, floor) >= 0
    assert total > warmup
    return right(step, peak=peak, warmup=warmup, total=total, floor=floor)


def as_a_library_has_it(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """No floor, and a cosine that goes on."""
    down = falls((step - warmup) / (total - warmup))
    return peak * line(step, warmup) if step < warmup else peak * down


def ends_without_return(last: int) -> Answer:
    """The last branch asks `step < total` or `step <= total`, and nothing stands behind it."""

    def answer(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> object:
        if step < total + last:
            return schedule()(step, peak=peak, warmup=warmup, total=total, floor=floor)
        return None

    return answer


MISCONCEPTIONS = (
    Misconception(
        name="rises_again",
        witnesses=both(
            schedule(down=lambda step, warmup, total: falls((step - warmup) / (total - warmup))),
            back_to_the_peak,
            as_a_library_has_it,
        ),
        hint="Past the end your rate rises again. A cosine does not stop at its lowest point: limit t to 1 before you "
        "put it into the cosine, or return the floor from step `total` on.",
    ),
    Misconception(
        name="restarts",
        witnesses=both(
            schedule(down=lambda step, warmup, total: falls((step - warmup) % (total - warmup) / (total - warmup))),
            schedule(
                down=lambda step, warmup, total: falls(
                    (step - warmup) % (total - warmup + 1) / (total - warmup),
                )
            ),
        ),
        hint="At the end your schedule starts anew at the peak: that is what `%` does. Warm restarts exist, but here "
        "the rate arrives at the floor at step `total` and stays: limit t to 1.",
    ),
    Misconception(
        name="refuses_steps_past_the_end",
        witnesses=both(refuses_the_past),
        hint="A step after `total` is no mistake: training often goes on a little, and the rate then stays at the "
        "floor. Return that in place of raising an error.",
    ),
    Misconception(
        name="ends_without_return",
        witnesses=both(ends_without_return(0), ends_without_return(1)),
        hint="For some steps your function returns nothing: it runs past its last branch, and then Python returns "
        "None. Step `total` and all after it have a rate too, the floor.",
    ),
    Misconception(
        name="zero_past_the_end",
        witnesses=both(nothing_past_the_end, nothing_from_the_end_on),
        hint="Past the end you return 0. The descent ends at `floor`, which is 0 by default only: the rate stays "
        "there.",
    ),
    Misconception(
        name="divides_by_zero",
        witnesses=both(divides_at_once, divides_up_to_the_joint),
        hint="With warmup = 0 you divide by 0. Only a step *below* warmup is on the way up, so none is then: ask "
        "`step < warmup` first, and divide inside that branch.",
    ),
    Misconception(
        name="warms_up_all_the_same",
        witnesses=both(warms_up_for_one_step, line_of_one_step),
        hint="With warmup = 0 your first step has the rate 0, as if there were a warm-up of one step: that comes of "
        "max(1, warmup). Without a warm-up step 0 has the whole peak. Ask `step < warmup` first, and no division by 0 "
        "can happen.",
    ),
    Misconception(
        name="floor_ignored",
        witnesses=both(no_floor, floor_at_the_end_only, floor_past_the_end_only),
        hint="Your descent leads to 0 and not to the floor; if you return the floor at the end alone, the rate jumps "
        "there. All of the descent lies between the two: floor + (peak - floor) times a share that falls from 1 to 0.",
    ),
    Misconception(
        name="floor_added",
        witnesses=both(floor_added, floor_added_everywhere),
        hint="You add the floor to the whole curve, so the highest rate is peak + floor. What is scaled by the cosine "
        "is only what lies between the two, peak - floor.",
    ),
    Misconception(
        name="cut_off_at_the_floor",
        witnesses=both(cut_off_at_the_floor, cut_off_everywhere, never_below_on_the_way_up),
        hint="`max(floor, ...)` cuts a curve off where it would pass below the floor, so that the rate stands still "
        "early, or never starts at 0. The descent is to be stretched, not cut: floor + (peak - floor) times a share. "
        "The way up starts at 0.",
    ),
    Misconception(
        name="warm_up_from_the_floor",
        witnesses=both(up_from_the_floor),
        hint="Your warm-up starts at the floor. The floor belongs to the descent; the way up is a share of the peak "
        "and starts at 0.",
    ),
    Misconception(
        name="floor_as_a_share",
        witnesses=both(floor_as_a_share),
        hint="You take `floor` for a share of the peak. Some libraries do that; here it is a rate itself, in the same "
        "unit as `peak`.",
    ),
    Misconception(
        name="refuses_too_little",
        witnesses=(schedule(), refuses_some, asserts),
        fails=("refuses_what_makes_no_sense",),
        hint="Your rates are right, but not everything that makes no sense is refused with a ValueError: a negative "
        "step, peak, warmup or floor, and a total that is not greater than warmup. An `assert` raises another "
        "exception, and is skipped under `python -O`.",
    ),
)
