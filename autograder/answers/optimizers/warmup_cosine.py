"""Right and wrong ways to write `warmup_cosine`."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.optimizers.warmup_cosine import warmup_cosine


def _refuse(step: int, peak: float, warmup: int, total: int, floor: float) -> None:
    if min(step, peak, warmup, floor) < 0 or total <= warmup:
        raise ValueError("step, peak, warmup and floor must be at least 0, and total greater than warmup")


def numpys_window(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """All rates in one table; the descent is the falling half of a Hann window."""
    _refuse(step, peak, warmup, total, floor)
    way = total - warmup
    descent = floor + (peak - floor) * np.hanning(2 * way + 1)[way:]
    return float([*np.linspace(0, peak, warmup, endpoint=False), *descent][min(step, total)])


def three_stretches(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """What is past the end is asked first."""
    _refuse(step, peak, warmup, total, floor)
    if step >= total:
        return floor
    if step < warmup:
        return step * (peak / warmup)
    t = (step - warmup) / (total - warmup)
    return floor + (peak - floor) * (1 + math.cos(math.pi * t)) / 2


def a_fraction_on_the_way_up(step: int, *, peak: float, warmup: int, total: int, floor: float = 0) -> float | Fraction:
    """A number of another kind, while it is a share of the peak."""
    _refuse(step, peak, warmup, total, floor)
    if step < warmup:
        return Fraction(peak) * step / warmup
    return three_stretches(step, peak=peak, warmup=warmup, total=total, floor=floor)


def squared_cosine_in_float32(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """(1 + cos x) / 2 = cos(x / 2)^2, in torch's default dtype; the line holds at the joint too."""
    _refuse(step, peak, warmup, total, floor)
    if warmup and step <= warmup:
        return peak * (step / warmup)
    t = torch.tensor((step - warmup) / (total - warmup)).clamp(max=1.0)
    share = torch.cos(torch.pi / 2 * t).square()
    return (share * peak + (1 - share) * floor).item()


RIGHT = (
    right(numpys_window, independent="numpy's Hann window and linspace"),
    right(three_stretches),
    right(a_fraction_on_the_way_up),
    right(squared_cosine_in_float32),
)

limited = partial(edited, warmup_cosine)  # t is at most 1
ending = partial(edited, three_stretches)  # the floor from step `total` on
ending_late = partial(edited, ending(("step >= total", "step > total")))  # the floor after step `total`
STYLES = limited, ending, ending_late

UP = "peak * step / warmup"
T = "(step - warmup) / (total - warmup)"
T_LIMITED = f"min(1.0, {T})"
ANGLE = "math.pi * t"
REFUSED = "at_least_zero(step=step, peak=peak, warmup=warmup, floor=floor)"
FALL = f"(1 + math.cos({ANGLE})) / 2"
STRETCHED = f"floor + (peak - floor) * {FALL}"
TOO_MUCH = ("peak <= 0", "warmup <= 0", "total <= warmup + 1", "floor > peak", "floor == peak")
ANGLES = ("2 * math.pi * t", "math.pi / 2 * t", "t", "180 * t")

WRONG = (
    wrong(
        "off_by_one",
        "Your way up, or your way down, is one step early or late. Steps count from 0: step 0 has rate 0, step "
        "`warmup` has the whole peak, step `total` has arrived. So the shares are step / warmup and (step - warmup) / "
        "(total - warmup), without a 1. (Some libraries start at 1 / warmup, so that the first step moves something; "
        "here the ends are as stated.)",
        limited(("    if step < warmup", "    step += 1\n    if step < warmup")),
        limited((UP, "peak * (step + 1) / warmup")),
        limited((UP, "peak * (step + 1) / (warmup + 1)")),
        limited((UP, "peak * step / (warmup - 1)")),
        limited((T, "(step - warmup) / (total - warmup - 1)")),
        limited((T, "(step - warmup + 1) / (total - warmup)")),
    ),
    wrong(
        "jumps_at_the_joint",
        "Your cosine starts at step 0, so at step `warmup`, where the line has reached the peak, part of the "
        "descent is over already: the rate jumps there, or never gets to the peak if you multiply the two. First the "
        "line alone, then the cosine alone, whose steps count from its own start: step - warmup.",
        limited((T, "step / total")),
        limited((T_LIMITED, "step / total")),
        limited((T, "step / (total - warmup)")),
        limited(
            (f"if step < warmup:\n        return {UP}", "up = min(1.0, step / warmup) if warmup else 1.0"),
            (T, "step / total"),
            (FALL, f"up * {FALL}"),
        ),
    ),
    wrong(
        "descent_too_long",
        "Your descent starts where it should, but takes `total` steps. The warm-up has used up `warmup` of them: "
        "total - warmup are left, and at step `total` the rate must have arrived.",
        *(style((T, "(step - warmup) / total")) for style in STYLES),
        limited((T_LIMITED, "(step - warmup) / total")),
    ),
    wrong(
        "another_period",
        "Your cosine goes through another angle than it should. cos falls from 1 to -1 over *half* a period: an "
        "angle of pi, in radians. With 2 pi the rate comes back to the peak, with less than pi it stops half-way, and "
        "cos from 0 to pi / 2 is level at one end only. math.cos takes no degrees: half a turn is math.pi, not 180.",
        *(style((ANGLE, angle)) for style in STYLES for angle in ANGLES),
        *(style((FALL, "math.cos(math.pi / 2 * t)")) for style in STYLES),
    ),
    wrong(
        "cosine_not_raised_and_halved",
        "The cosine runs from 1 to -1. A share of the peak runs from 1 to 0: add the cosine to 1, then halve the "
        "sum, (1 + cos(pi t)) / 2. Without the 1 the rate turns negative, without the half it starts at twice the "
        "peak, and with a minus it rises.",
        *(style((FALL, "math.cos(math.pi * t)")) for style in STYLES),
        *(style((FALL, "(1 + math.cos(math.pi * t))")) for style in STYLES),
        *(style((FALL, "(1 + math.cos(math.pi * t) / 2)")) for style in STYLES),
        *(style((FALL, "(1 - math.cos(math.pi * t)) / 2")) for style in STYLES),
    ),
    wrong(
        "straight_down",
        "Your way down is a straight line. The share of the peak is (1 + cos(pi t)) / 2: a curve that is level at "
        "both ends and steepest in the middle.",
        limited((FALL, "(1 - t)")),
    ),
    wrong(
        "rises_again",
        "Past the end your rate rises again. A cosine does not stop at its lowest point: limit t to 1 before you "
        "put it into the cosine, or return the floor from step `total` on.",
        limited((T_LIMITED, T)),
    ),
    wrong(
        "restarts",
        "At the end your schedule starts anew at the peak: that is what `%` does. Warm restarts exist, but here "
        "the rate arrives at the floor at step `total` and stays: limit t to 1.",
        limited((T_LIMITED, "(step - warmup) % (total - warmup) / (total - warmup)")),
    ),
    wrong(
        "warm_up_of_no_steps",
        "With warmup = 0 you divide by 0, or, with max(1, warmup), warm up for one step all the same. Only a step "
        "*below* warmup is on the way up, so none is then, and step 0 has the whole peak: ask `step < warmup` first, "
        "and divide inside that branch.",
        limited(("step < warmup", "step <= warmup")),
        limited(("    if step < warmup", "    warmup = max(1, warmup)\n    if step < warmup")),
    ),
    wrong(
        "floor_ignored",
        "Your rate goes to 0 where it should go to the floor. All of the descent lies between the two: floor + "
        "(peak - floor) times a share that falls from 1 to 0. Past the end the rate stays at the floor; if you return "
        "the floor only there, it jumps.",
        limited((STRETCHED, f"peak * {FALL}")),
        ending((STRETCHED, f"peak * {FALL}")),
        ending_late(("return floor\n", "return 0.0\n")),
    ),
    wrong(
        "floor_added",
        "You add the floor to the whole curve, so the highest rate is peak + floor. What is scaled by the cosine "
        "is only what lies between the two, peak - floor.",
        limited(("(peak - floor)", "peak")),
        limited(("(peak - floor)", "peak"), (UP, f"floor + {UP}")),
    ),
    wrong(
        "cut_off_at_the_floor",
        "`max(floor, ...)` cuts a curve off where it would pass below the floor, so that the rate stands still "
        "early, or never starts at 0. The descent is to be stretched, not cut: floor + (peak - floor) times a share. "
        "The way up starts at 0.",
        limited((STRETCHED, f"max(floor, peak * {FALL})")),
        limited((STRETCHED, f"max(floor, peak * {FALL})"), (UP, f"max(floor, {UP})")),
        limited((UP, f"max(floor, {UP})")),
    ),
    wrong(
        "warm_up_from_the_floor",
        "Your warm-up starts at the floor. The floor belongs to the descent; the way up is a share of the peak "
        "and starts at 0.",
        limited((UP, "floor + (peak - floor) * step / warmup")),
    ),
    wrong(
        "floor_as_a_share_of_the_peak",
        "You take the floor for a share of the peak, and none where the peak is 0. A floor may lie above it.",
        limited((STRETCHED, f"peak * (floor / peak + (1 - floor / peak) * {FALL}) if peak else 0.0")),
        limited((STRETCHED, f"{STRETCHED} if peak else 0.0")),
    ),
    wrong(
        "refuses_too_little",
        "Your rates are right, but not everything that makes no sense is refused with a ValueError: a negative "
        "step, peak, warmup or floor, and a total that is not greater than warmup. An `assert` raises another "
        "exception, and is skipped under `python -O`.",
        ending(("    _refuse(step, peak, warmup, total, floor)\n", "")),
        fails=("refuses_what_makes_no_sense",),
    ),
    wrong(
        "refuses_too_much",
        "You refuse something that makes sense: 0 is not negative, so a peak, a warmup and a floor of 0 are allowed "
        "(compare with `< 0`, not `<= 0`), as is a total of warmup + 1, and a floor that is as high as the peak or "
        "higher. Only what the docstring names is refused.",
        *(limited((REFUSED, f"{REFUSED}\n    if {wrong}:\n        raise ValueError(peak)")) for wrong in TOO_MUCH),
    ),
)
