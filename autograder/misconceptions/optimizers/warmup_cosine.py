"""Wrong ways to write `warmup_cosine`: the two curves here, the ends, the floor and the refusals beside it."""

from __future__ import annotations

import math

from autograder.bank import Misconception
from autograder.misconceptions.optimizers import warmup_cosine_ends
from autograder.misconceptions.optimizers.warmup_cosine_parts import both, falls, over, schedule


def counts_from_one(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """The next step's rate, everywhere."""
    return float(schedule()(step + 1, peak=peak, warmup=warmup, total=total, floor=floor))


def line_times_cosine(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """Both factors at every step; the cosine runs from step 0."""
    up = min(1.0, step / warmup) if warmup else 1.0
    return floor + (peak - floor) * up * falls(min(1.0, step / total))


def no_way_up(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """One cosine from step 0 on."""
    return floor + (peak - floor) * falls(min(1.0, step / total))


MISCONCEPTIONS = (
    *warmup_cosine_ends.MISCONCEPTIONS,
    Misconception(
        name="warm_up_off_by_one",
        witnesses=both(
            counts_from_one,
            schedule(up=lambda step, warmup: (step + 1) / warmup),
            schedule(up=lambda step, warmup: (step + 1) / (warmup + 1)),
            schedule(up=lambda step, warmup: step / (warmup - 1)),
            schedule(up=lambda step, warmup: max(step, 1) / warmup),
        ),
        hint="Your way up is one step early or late. Steps count from 0: step 0 has rate 0, and step `warmup`, the "
        "first that is no longer on the way up, has the whole peak. So the share at a step is step / warmup, without "
        "a 1. (Some libraries start at 1 / warmup, so that the first step moves something; here the ends are as "
        "stated.)",
    ),
    Misconception(
        name="descent_off_by_one",
        witnesses=both(
            schedule(down=lambda step, warmup, total: falls(over(step, warmup, total - 1))),
            schedule(down=lambda step, warmup, total: falls(over(step + 1, warmup, total))),
            schedule(down=lambda step, warmup, total: falls(min(1.0, (step - warmup) / (total - warmup + 1)))),
        ),
        hint="Your way down is one step early or late. It starts with the whole peak at step `warmup`, where t = 0, "
        "and reaches its end at step `total`, where t = 1: (step - warmup) / (total - warmup), without a 1.",
    ),
    Misconception(
        name="jumps_at_the_joint",
        witnesses=both(
            schedule(down=lambda step, warmup, total: falls(min(1.0, step / total))),
            schedule(down=lambda step, warmup, total: falls(step / total)),
            schedule(down=lambda step, warmup, total: falls(min(1.0, step / (total - warmup)))),
            schedule(down=lambda step, warmup, total: falls(step / (total - warmup))),
        ),
        hint="Your cosine starts at step 0, so at step `warmup`, where the line has reached the peak, part of the "
        "descent is over already and the rate jumps. Count the descent's steps from its own start: step - warmup.",
    ),
    Misconception(
        name="descent_too_long",
        witnesses=both(
            schedule(down=lambda step, warmup, total: falls(min(1.0, (step - warmup) / total))),
            schedule(down=lambda step, warmup, total: falls((step - warmup) / total)),
        ),
        hint="Your descent starts where it should, but takes `total` steps. The warm-up has used up `warmup` of them: "
        "total - warmup are left, and at step `total` the rate must have arrived.",
    ),
    Misconception(
        name="line_times_cosine",
        witnesses=both(line_times_cosine),
        hint="You multiply the line with a cosine that runs from step 0, so the peak is never reached. The two curves "
        "follow each other: first the line alone, then, with steps counted anew, the cosine alone.",
    ),
    Misconception(
        name="no_way_up",
        witnesses=both(no_way_up, schedule(up=lambda step, warmup: 1.0)),
        hint="Your first steps have a large rate, and the warm-up is there to prevent that. Below `warmup` the rate is "
        "the share step / warmup of the peak.",
    ),
    Misconception(
        name="another_period",
        witnesses=both(
            schedule(down=lambda step, warmup, total: falls(2 * over(step, warmup, total))),
            schedule(down=lambda step, warmup, total: falls(2 * (step - warmup) / (total - warmup))),
            schedule(down=lambda step, warmup, total: falls(over(step, warmup, total) / 2)),
            schedule(down=lambda step, warmup, total: falls(over(step, warmup, total) / math.pi)),
            schedule(down=lambda step, warmup, total: falls(over(step, warmup, total) * 180 / math.pi)),
        ),
        hint="Your cosine goes through another angle than it should. cos falls from 1 to -1 over *half* a period: an "
        "angle of pi, in radians. With 2 pi the rate comes back to the peak, with less than pi it stops half-way.",
    ),
    Misconception(
        name="quarter_of_a_cosine",
        witnesses=both(
            schedule(down=lambda step, warmup, total: math.cos(math.pi / 2 * over(step, warmup, total))),
            schedule(down=lambda step, warmup, total: math.cos(math.pi / 2 * (step - warmup) / (total - warmup))),
            schedule(down=lambda step, warmup, total: 1 - math.sin(math.pi / 2 * over(step, warmup, total))),
        ),
        hint="Your curve has the right ends and another shape: a quarter of a period, which is level at one end only. "
        "Asked for is half a period, (1 + cos(pi t)) / 2, level at both ends.",
    ),
    Misconception(
        name="cosine_not_raised_and_halved",
        witnesses=both(
            schedule(down=lambda step, warmup, total: math.cos(math.pi * over(step, warmup, total))),
            schedule(down=lambda step, warmup, total: math.cos(math.pi * over(step, warmup, total)) / 2),
            schedule(down=lambda step, warmup, total: 1 + math.cos(math.pi * over(step, warmup, total))),
            schedule(down=lambda step, warmup, total: 1 + math.cos(math.pi * over(step, warmup, total)) / 2),
        ),
        hint="The cosine runs from 1 to -1. A share of the peak runs from 1 to 0: add 1, then halve the sum, "
        "(1 + cos(pi t)) / 2. Without the 1 the rate turns negative, without the half it starts at twice the peak.",
    ),
    Misconception(
        name="upside_down",
        witnesses=both(
            schedule(down=lambda step, warmup, total: 1 - falls(over(step, warmup, total))),
            schedule(down=lambda step, warmup, total: (1 + math.sin(math.pi * over(step, warmup, total))) / 2),
        ),
        hint="After the warm-up your rate goes up. (1 - cos) / 2 and a sine begin low; (1 + cos(pi t)) / 2 begins at "
        "1 and ends at 0.",
    ),
    Misconception(
        name="straight_down",
        witnesses=both(
            schedule(down=lambda step, warmup, total: 1 - over(step, warmup, total)),
            schedule(down=lambda step, warmup, total: 1 - (step - warmup) / (total - warmup)),
        ),
        hint="Your descent is a straight line. Its ends are right, its shape is not: put the share that is over "
        "through (1 + cos(pi t)) / 2, which is level at both ends and steep in the middle.",
    ),
    Misconception(
        name="whole_numbers",
        witnesses=both(
            schedule(up=lambda step, warmup: step // warmup),
            schedule(down=lambda step, warmup, total: falls(min(1, (step - warmup) // (total - warmup)))),
        ),
        hint="`//` throws the fraction away, and a share of the way is nothing but a fraction: your rate stands still "
        "and then jumps. Divide with `/`.",
    ),
)
