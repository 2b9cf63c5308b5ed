"""Right and wrong ways to write `mend_the_runs`."""

from __future__ import annotations

from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.mend_the_runs import mend_the_runs


def by_torchs_own_words() -> dict[str, tuple[int, str]]:
    """The limit by torch.renorm on the unscaled gradient; the counter as a product; a cast in every step."""
    return {
        "clipped": (8, "        g = torch.renorm((g / scale)[None], p=2, dim=0, maxnorm=max_norm)[0] * scale"),
        "growing": (11, "        good = (good + 1) * finite"),
        "cached": (4, "        if True:"),
    }


def in_other_lines() -> dict[str, tuple[int, str]]:
    """The same cures elsewhere: all in the line that unscales, the counter with the scale, the cast after the step."""
    return {
        "clipped": (9, "g = w16.grad.float() / scale; g = g * torch.clamp(max_norm / torch.linalg.norm(g), max=1.0)"),
        "growing": (
            12,
            "scale, good = (scale * (2 if good % interval == 0 else 1), good) if finite else (scale / 2, 0)",
        ),
        "cached": (10, "w = w - lr * g; casts.pop('w')"),
    }


RIGHT = (right(by_torchs_own_words, independent="torch.renorm"), right(in_other_lines))

runs = partial(edited, mend_the_runs)

LIMIT = '(8, "g = g * (max_norm * scale / g.norm()).clamp(max=1)")'
COUNT = '(11, "good = good + 1 if finite else 0")'
DROP = '(9, "casts.clear()")'

WRONG = (
    wrong(
        "counted_from_0",
        "Your lines are right, and each number is one too small: lines are counted from 1, as they are printed.",
        runs(("(8,", "(7,"), ("(11,", "(10,"), ("(9,", "(8,")),
    ),
    wrong(
        "never_clipped",
        "`clipped` does not clip any more: the gradient may be of any length. Keep the limit, and compare it with the "
        "true gradient, or a limit times the scale with the scaled one.",
        runs((LIMIT, '(8, "pass")')),
        runs((LIMIT, '(8, "g = g.clone()")')),
    ),
    wrong(
        "scale_written_down",
        "In `clipped` the scale of the example is written down as a number. Other runs have other scales: use `scale`.",
        runs(("max_norm * scale / g.norm()", "max_norm * 1024 / g.norm()")),
    ),
    wrong(
        "nan_without_a_gradient",
        "Where a batch fits exactly, its gradient in `clipped` is 0, and so is the norm by which you divide it: 0 / 0 "
        "is nan. Divide the limit by the norm, which may be inf, and make the factor at most 1.",
        runs(
            (
                "g * (max_norm * scale / g.norm()).clamp(max=1)",
                "g / g.norm() * g.norm().clamp(max=max_norm * scale)",
            )
        ),
        runs(("(max_norm * scale / g.norm()).clamp(max=1)", "g.norm().clamp(max=max_norm * scale) / g.norm()")),
    ),
    wrong(
        "norm_in_half",
        "In `clipped` you take a norm in half precision. It may be beyond 65504 where no number of the gradient "
        "is, and then the step is 0: take the norm of g, which is float32.",
        runs(("g.norm()", "w16.grad.norm()")),
        runs(("max_norm * scale / g.norm()", "max_norm / (w16.grad / scale).norm().float()")),
    ),
    wrong(
        "limit_divided",
        "The gradient in that line of `clipped` is the true one times the scale. You make the limit smaller by the "
        "scale, where it must be larger.",
        runs(("max_norm * scale / g.norm()", "max_norm / scale / g.norm()")),
    ),
    wrong(
        "unscaled_twice",
        "The gradient of `clipped` is divided by the scale in two lines now: a step is as tiny as before.",
        runs((LIMIT, '(7, "g = w16.grad.float() / scale")')),
        runs((LIMIT, '(8, "g = g / scale; g = g * (max_norm / g.norm()).clamp(max=1)")')),
    ),
    wrong(
        "never_unscaled",
        "You took the division by the scale out of `clipped`. Its log looks healthy, because nearly every scaled "
        "gradient is cut down to max_norm; one that is truly shorter must not be stretched to that length.",
        runs((LIMIT, '(9, "pass")')),
        runs((LIMIT, '(10, "w = w - lr * scale * g")')),
        runs((LIMIT, '(9, "g = g * 1.0")')),
    ),
    wrong(
        "always_max_norm",
        "In `clipped` a gradient that is shorter than max_norm is stretched to that length. The factor is at most 1.",
        runs(("(max_norm * scale / g.norm()).clamp(max=1)", "max_norm * scale / g.norm()")),
        runs(("clamp(max=1)", "clamp(min=1)")),
    ),
    wrong(
        "clipped_by_element",
        "You limit each element of the gradient of `clipped`. The limit is one of its norm: all elements get the same "
        "factor, and the direction stays.",
        runs(("g * (max_norm * scale / g.norm()).clamp(max=1)", "g.clamp(-max_norm * scale, max_norm * scale)")),
    ),
    wrong(
        "good_steps_in_all",
        "`growing` does not count a skipped step any more, but goes on counting after it where it was. The scale "
        "doubles after good steps in a row: begin again at 0.",
        runs((COUNT, '(11, "good = good + 1 if finite else good")')),
        runs((COUNT, '(11, "good = good + finite")')),
    ),
    wrong(
        "begins_again_at_1",
        "After a skipped step `growing` begins to count at 1, as if it had been a good one.",
        runs(("if finite else 0", "if finite else 1")),
    ),
    wrong(
        "nan_is_good",
        "`growing` begins to count again after inf, and not after nan, which comes where inf is subtracted from inf: "
        "`finite` knows both.",
        runs((COUNT, '(11, "good = 0 if g.norm() == math.inf else good + 1")')),
        runs((COUNT, '(11, "good = 0 if g.isinf().any() else good + 1")')),
    ),
    wrong(
        "never_grows",
        "The counter of `growing` never comes to the interval: after an overflow the scale stays small for ever.",
        runs((COUNT, '(11, "good = good + 1 if not finite else 0")')),
        runs((COUNT, '(12, "scale = scale / 2 if not finite else scale")')),
    ),
    wrong(
        "still_grows_too_soon",
        "`growing` still counts skipped steps as good ones: look at the counter, not only at what is done with it.",
        runs((COUNT, '(12, "scale = scale / 2 if not finite else scale * 2 if good == interval else scale")')),
        runs(
            (COUNT, '(12, "scale = scale / 2 if not finite else scale * 2 if good >= interval else scale")'),
        ),
        runs((COUNT, '(2, "log, good = [], -1")')),
    ),
    wrong(
        "skipped_step_taken",
        "In `growing` inf goes into the weights, or is made a number and stepped by. A step with inf or nan in its "
        "gradient is skipped; that line was right.",
        runs((COUNT, '(9, "w = w - lr * g.nan_to_num()")')),
        runs((COUNT, '(9, "w = w - lr * g")')),
    ),
    wrong(
        "one_step_behind",
        "You make the new cast of `cached` before the step changes the weights: the next pass uses the ones of the "
        "pass before. Throw the cast away, and let the next pass make its own.",
        runs((DROP, "(9, \"casts['w'] = w.half().requires_grad_()\")")),
    ),
    wrong(
        "only_the_gradient_dropped",
        "`cached` still uses the cast that it made first. That its gradient is set to None is right, and not enough.",
        runs((DROP, "(9, \"casts['w'].grad.zero_()\")")),
        runs((DROP, '(10, "w -= lr * g")')),
        runs((DROP, "(5, \"casts['w'] = w.clone().half().requires_grad_()\")")),
    ),
    wrong(
        "trained_in_half",
        "You update the cast of `cached` itself and make the weights from it. Weights in half precision lose small "
        "updates: they stay in float32, and each pass casts them.",
        runs((DROP, "(10, \"casts['w'].data -= lr * g; w = casts['w'].detach().float()\")")),
    ),
)
