"""Right and wrong ways to write `first_overflow`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.first_overflow import first_overflow


def torchs_own(amaxes: Sequence[float], init_scale: float, growth_interval: int) -> int | None:
    """torch's scaler and torch's float16, step by step."""
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=growth_interval)
    param = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([param])
    for step, amax in enumerate(amaxes, start=1):
        scaled = scaler.scale(torch.tensor(amax, dtype=torch.float32))
        param.grad = scaled.to(torch.float16).float()
        if param.grad.isinf():
            return step
        scaler.step(optimizer)
        scaler.update()
    return None


def simulated(amaxes: Sequence[float], init_scale: float, growth_interval: int) -> int | None:
    """A scale and a count that change after each good step."""
    scale, good = init_scale, 0
    for step in range(1, len(amaxes) + 1):
        if amaxes[step - 1] * scale >= 65520:
            return step
        good += 1
        if good == growth_interval:
            scale, good = scale * 2, 0
    return None


def cast(amaxes: Sequence[float], init_scale: float, growth_interval: int) -> int | None:
    """torch's float16 decides."""
    for step, amax in enumerate(amaxes):
        scale = init_scale * 2.0 ** (step // growth_interval)
        if torch.tensor(float(amax) * scale).half().isinf():
            return step + 1
    return None


RIGHT = (right(torchs_own, independent="torch.amp.GradScaler and float16"), right(simulated), right(cast))

formula = partial(edited, first_overflow)
loop = partial(edited, simulated)
narrow = partial(edited, cast)

POWER = "(good // growth_interval)"
SCALED = "amax * init_scale * 2.0 ** (good // growth_interval)"
OVER = f"{SCALED} >= OVERFLOWS"

WRONG = (
    wrong(
        "over_65504",
        "You take everything above 65,504 for an overflow, or 65,504 itself. What lies below the middle between it and "
        "65,536 is rounded to 65,504, and fits.",
        loop((">= 65520", "> 65504")),
        loop((">= 65520", ">= 65504")),
        formula((OVER, f"{SCALED} > 65504")),
    ),
    wrong(
        "tie_fits",
        "Your limit is a little too high: 65,520 lies in the middle between 65,504 and 65,536, and a tie goes to the "
        "even neighbour, which float16 does not have. It overflows.",
        loop((">= 65520", "> 65520")),
        loop((">= 65520", ">= 65536")),
        loop((">= 65520", "> 65536")),
    ),
    wrong(
        "another_limit",
        "Your limit is not exactly 65,520, the middle between the largest float16 number, (2 - 2^-10) 2^15 = 65,504, "
        "and 65,536. Whatever lies below it is rounded to 65,504; it itself and what lies above become inf.",
        loop((">= 65520", ">= 57344")),
        loop((">= 65520", ">= 32768")),
    ),
    wrong(
        "limit_beside_65520",
        "Your limit is close to 65,520, and must be it: the middle between the largest float16 number, "
        "65,504, and 65,536: whatever lies below it fits, it and what lies above do not.",
        loop((">= 65520", "> 65519.99")),
        loop((">= 65520", ">= 65519")),
        fails=("where_float16_ends",),
    ),
    wrong(
        "rounded_before_the_product",
        "You round the gradient, or the scale, to float16 before you multiply. Many gradients are too small for "
        "float16, or too large, which is what the scale is for: multiply first, and then look at what float16 makes "
        "of it.",
        narrow(("float(amax)", "float(torch.tensor(amax).half())")),
        narrow(("torch.tensor(float(amax) * scale).half()", "torch.tensor(amax).half() * scale")),
        narrow(("torch.tensor(float(amax) * scale).half()", "torch.tensor(amax).half() * torch.tensor(scale).half()")),
    ),
    wrong(
        "counts_from_0",
        "Your steps are counted from 0. The first step is step 1.",
        formula(("return good + 1", "return good")),
        loop(("return step", "return step - 1")),
    ),
    wrong(
        "a_step_later",
        "You return the step after the one that overflows, or the number of steps that were left.",
        loop(("return step", "return step + 1")),
        formula(("return good + 1", "return len(amaxes) - good")),
    ),
    wrong(
        "grows_a_step_early",
        "Your scale doubles for the step that makes growth_interval good steps full. It doubles after it, in update, "
        "and acts on the next.",
        formula((POWER, "((good + 1) // growth_interval)")),
        loop(("if good == growth_interval", "if good == growth_interval - 1 or growth_interval == 1")),
    ),
    wrong(
        "grows_a_step_late",
        "Your scale doubles one step too late: step growth_interval + 1 has the doubled scale.",
        formula((POWER, "(max(good - 1, 0) // growth_interval)")),
        loop(("if good == growth_interval", "if good > growth_interval")),
        formula((POWER, "(good // (growth_interval + 1))")),
    ),
    wrong(
        "never_grows",
        "Your scale stays at init_scale. It doubles after each growth_interval good steps in a row.",
        formula((f" * 2.0 ** {POWER}", "")),
        loop(("scale, good = scale * 2, 0", "good = 0")),
    ),
    wrong(
        "grows_once",
        "Your scale doubles once. It doubles again after the next growth_interval good steps.",
        formula((POWER, "(good >= growth_interval)")),
        loop(("scale, good = scale * 2, 0", "scale = scale * 2")),
    ),
    wrong(
        "growth_ends",
        "Your scale stops growing at some size. It doubles as long as steps are good; what ends that is an overflow.",
        loop(("scale, good = scale * 2, 0", "scale, good = scale * 2 if scale < 2.0**24 else scale, 0")),
        loop(("scale, good = scale * 2, 0", "scale, good = min(scale * 2, 65536), 0")),
    ),
    wrong(
        "grows_by_steps",
        "Your scale does not double: it grows by init_scale. After k growths it is 2^k init_scale.",
        formula((f"2.0 ** {POWER}", "(1 + good // growth_interval)")),
    ),
    wrong(
        "zeros_do_not_count",
        "A step with gradients of 0 is a good step too: nothing is inf. Let it count towards the next growth.",
        loop(("good += 1", "good += amaxes[step - 1] > 0")),
        fails=("zeros",),
    ),
    wrong(
        "last_of_them",
        "You return the last step that would overflow, or where the largest of all gradients is. The first skip is "
        "asked for.",
        formula(
            ("return good + 1", "found = good + 1"),
            ("return None", "return found"),
            ("for good", "found = None\n    for good"),
        ),
        formula(
            (
                "for good, amax in enumerate(amaxes):",
                "for good, amax in sorted(enumerate(amaxes), key=lambda each: -each[1])[:1]:",
            )
        ),
    ),
    wrong(
        "a_number_for_none",
        "Where no step overflows the answer is None, not a number; also where there are no steps.",
        loop(("return None", "return 0")),
        loop(("return None", "return -1")),
        loop(("return None", "return len(amaxes)")),
        loop(("return None", "return len(amaxes) + 1")),
        loop(("scale, good = init_scale, 0", "scale, good = init_scale, 0 * max(amaxes)")),
        fails=("none",),
    ),
)
