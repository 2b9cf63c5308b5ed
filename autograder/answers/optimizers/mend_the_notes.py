"""Right and wrong ways to write `mend_the_notes`."""

from __future__ import annotations

from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.optimizers.mend_the_notes import mend_the_notes


def by_torchs_own_words() -> dict[str, tuple[int, str]]:
    """The moving averages as interpolations, the step as out-of-place operations, the groups by Tensor.split."""
    return {
        "adam": (5, "        m, v = torch.lerp(m, g, 1 - beta1), v.lerp(g.square(), 1 - beta2)"),
        "adam_in_place": (11, "p.sub_(torch.div(m_hat, torch.sqrt(v_hat).add_(eps)).mul_(lr))"),
        "accumulate": (4, "for i in range(len(batches.split(k))):  # the last part may be smaller"),
    }


def in_other_words() -> dict[str, tuple[int, str]]:
    """Two statements on a line; the corrections moved to rate and eps; the group's index from its first batch."""
    return {
        "adam": (5, "m += (1 - beta1) * (g - m); v += (1 - beta2) * (g * g - v)"),
        "adam_in_place": (
            11,
            "c = (1 - power2) ** 0.5; p.addcdiv_(m, v.sqrt() + eps * c, value=-lr * c / (1 - power1))",
        ),
        "accumulate": (4, "for i in (first // k for first in range(0, len(batches), k)):"),
    }


RIGHT = (right(by_torchs_own_words, independent="torch.lerp and Tensor.split"), right(in_other_words))

notes = partial(edited, mend_the_notes)

AVERAGES = '(5, "m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2")'
STEP = '(11, "p.addcdiv_(m_hat, v_hat.sqrt() + eps, value=-lr)")'
LOOP = "range((len(batches) + k - 1) // k)"

WRONG = (
    wrong(
        "counted_from_0",
        "Your lines are right, and each number is one too small: lines are counted from 1, as they are printed.",
        notes(("(5,", "(4,"), ("(11,", "(10,"), ('(4, "for', '(3, "for')),
    ),
    wrong(
        "one_sign_of_two",
        "In `adam` you changed one minus of two. Both moments are moving averages, and both add what is new: with the "
        "minus in v its root is nan, with the minus in m every step goes uphill.",
        notes(("+ (1 - beta2)", "- (1 - beta2)")),
        notes(("+ (1 - beta1)", "- (1 - beta1)")),
    ),
    wrong(
        "another_average",
        "What you wrote for m and v in `adam` is not the moving average: the old value has the weight beta, the new "
        "one 1 - beta, and nothing else is added.",
        notes(("+ (1 - beta1) * g", "+ g")),
        notes(("beta1 * m + (1 - beta1) * g", "(1 - beta1) * m + beta1 * g")),
        notes(("beta2 * v + (1 - beta2) * g**2", "(1 - beta2) * v + beta2 * g**2")),
    ),
    wrong(
        "symptom_hidden",
        "No nan comes out of `adam` any more, but v is as negative as before, and m points uphill. abs, clamp and "
        "nan_to_num hide where the fault shows; mend the line where the number becomes wrong.",
        notes((AVERAGES, '(8, "direction = m_hat / (v_hat.abs().sqrt() + eps)")')),
        notes((AVERAGES, '(8, "direction = m_hat / (v_hat.clamp(min=0).sqrt() + eps)")')),
        notes((AVERAGES, '(8, "direction = (m_hat / (v_hat.sqrt() + eps)).nan_to_num()")')),
        notes((AVERAGES, '(7, "v_hat = (v / (1 - beta2**t)).abs()")')),
        notes(("beta2 * v + (1 - beta2) * g**2", "abs(beta2 * v - (1 - beta2) * g**2)")),
    ),
    wrong(
        "signs_turned_later",
        "Your programs do the right thing, but in at least one you mended a line that was right. In `adam` two wrong "
        "signs can be turned round again where they are used; m and v are still not the averages that they are "
        "named after. Mend the line in which they are computed.",
        notes((AVERAGES, '(8, "direction = -m_hat / ((-v_hat).sqrt() + eps)")')),
        fails=("only_the_faulty_lines",),
    ),
    wrong(
        "one_correction_of_two",
        "In `adam_in_place` only one of the two moments that the step uses is corrected. Both began at zero.",
        notes((STEP, STEP.replace("v_hat", "v"))),
        notes((STEP, STEP.replace("m_hat", "m"))),
    ),
    wrong(
        "eps_in_another_place",
        "The step of `adam_in_place` uses both corrected moments, but eps stands in another place: it is added to the "
        "root of the corrected v.",
        notes(("v_hat.sqrt() + eps", "(v_hat + eps).sqrt()")),
        notes(("v_hat.sqrt() + eps", "v_hat.sqrt()")),
    ),
    wrong(
        "moments_overwritten",
        "You correct the moments of `adam_in_place` themselves. m and v go on into the next step, and are corrected "
        "there once more. The corrected values have names of their own, which the step should read.",
        notes((STEP, '(9, "m_hat = m.div_(1 - power1)")')),
        notes((STEP, '(10, "v_hat = v.div_(1 - power2)")')),
        notes((STEP, '(9, "m_hat = m.div_(1 - power1); v.div_(1 - power2)")')),
    ),
    wrong(
        "uphill_or_rescaled",
        "The step of `adam_in_place` uses the right moments, but does not go lr times their quotient downhill.",
        notes(("value=-lr", "value=lr")),
        notes(("value=-lr", "value=-1.0")),
    ),
    wrong(
        "one_group_too_many",
        "Where the batches come out even you take one group more in `accumulate`. It is empty: a step on no gradient "
        "at all. Round the number of groups up.",
        notes((LOOP, "range(len(batches) // k + 1)")),
        notes((LOOP, "range(round(len(batches) / k + 0.5))")),
    ),
    wrong(
        "only_at_least_one_group",
        "`accumulate` takes a step when there are fewer batches than k, but with more it still drops the rest.",
        notes((LOOP, "range(max(1, len(batches) // k))")),
    ),
    wrong(
        "counts_batches",
        "In `accumulate`, i counts groups: the next line multiplies it by k. With a range over batches most of the "
        "slices are wrong or empty.",
        notes((LOOP, "range(0, len(batches), k)")),
        notes((LOOP, "range(len(batches))")),
    ),
    wrong(
        "rounds_to_the_nearest",
        "You round the number of groups in `accumulate` to the nearest whole number, so that a remainder of less than "
        "half a group is dropped all the same. Round up.",
        notes((LOOP, "range(round(len(batches) / k))")),
    ),
    wrong(
        "drops_a_single_batch",
        "`accumulate` takes no step on the rest where that is a single batch: 9 batches in groups of 4 make three "
        "groups, the last of them with one. Round the number of groups up.",
        notes((LOOP, "range((len(batches) + k - 2) // k)")),
        notes((LOOP, "range(len(batches) // k + (len(batches) % k > 1))")),
    ),
    wrong(
        "still_drops_the_rest",
        "`accumulate` still takes no step on the batches that are left over: the loop over groups ends before them, "
        "whatever the lines in it do. Round its number of groups up.",
        notes((f'(4, "for i in {LOOP}:")', '(5, "group = batches[i * k :][:k]")')),
        notes((LOOP, "range(0, len(batches) // k)")),
        notes((f'(4, "for i in {LOOP}:")', '(8, "g += (p - batch.mean(dim=0)) / k")')),
    ),
    wrong(
        "all_in_the_last_group",
        "You put what is left over into the last full group of `accumulate`. It is a group of "
        "its own, with a step of its own and a mean over its own batches.",
        notes(
            (
                f'(4, "for i in {LOOP}:")',
                '(5, "group = batches[i * k :] if i == len(batches) // k - 1 else batches[i * k : (i + 1) * k]")',
            )
        ),
    ),
)
