"""Right and wrong ways to write `sharded_scaler_step`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.fsdp.sharded_scaler_step import sharded_scaler_step


def counted_by_numpy(
    comm: Comm, grads: list[Tensor], step: Callable[[], object], scale: float, good_steps: int, interval: int
) -> tuple[float, int]:
    """numpy counts the numbers that are not finite; the flags of all ranks are gathered."""
    count = sum(int((~np.isfinite(each.double().numpy())).sum()) for each in grads)
    counts = torch.zeros(comm.size, dtype=torch.int64)
    comm.all_gather([*counts.chunk(comm.size)], torch.tensor([count]))
    if counts.any():
        return scale * 0.5, 0
    for each in grads:
        each.copy_(each / scale)
    step()
    grown, rest = divmod(good_steps + 1, interval)
    return scale * 2**grown, rest


def unscaled_first(
    comm: Comm, grads: list[Tensor], step: Callable[[], object], scale: float, good_steps: int, interval: int
) -> tuple[float, int]:
    """As GradScaler does: first all are unscaled, then it is asked whether they are finite on all ranks (a minimum)."""
    fine = torch.ones(1)
    for each in grads:
        each.mul_(1 / scale)
        fine *= each.isfinite().all().float()
    comm.all_reduce(fine, "min")
    good = bool(fine)
    if good:
        step()
        good_steps += 1
    else:
        scale, good_steps = scale / 2, 0
    if good_steps >= interval:
        scale, good_steps = scale * 2, 0
    return scale, good_steps


RIGHT = (
    right(counted_by_numpy, independent="numpy.isfinite, gathered counts"),
    right(unscaled_first),
)


def gathers_everything(
    comm: Comm, grads: list[Tensor], step: Callable[[], object], scale: float, good_steps: int, interval: int
) -> tuple[float, int]:
    """Every rank looks at the gradients of every other."""
    every: list[list[Tensor]] = [[] for _ in range(comm.size)]
    comm.all_gather_object(every, grads)
    if not all(bool(each.isfinite().all()) for theirs in every for each in theirs):
        return scale / 2, 0
    for each in grads:
        each.div_(scale)
    step()
    return (scale * 2, 0) if good_steps + 1 == interval else (scale, good_steps + 1)


edit = partial(edited, sharded_scaler_step)
FINITE = "not bool(grad.isfinite().all())"
FLAG = f"float(any({FINITE} for grad in grads))"
REDUCED = 'comm.all_reduce(broken, "max")'
SKIPPED, SKIP = "    if broken.item():\n", "return scale / 2, 0"
DIVIDED, STEP = "    for grad in grads:\n        grad.div_(scale)\n", "    step()\n"
LAST = "return (scale * 2, 0) if good_steps + 1 == interval else (scale, good_steps + 1)"
IN_INT64 = ("torch.tensor(float(", "torch.tensor(int(")
OWN = f"own = broken.clone()\n    {REDUCED}"

WRONG = (
    wrong(
        "each_rank_decides_alone",
        "Each rank looks at its own shards only: where one has an inf it skips, the others step, and their parameters "
        "no longer belong together. Agree first, with an all_reduce of the flag.",
        edit((REDUCED, "pass")),
    ),
    wrong(
        "rank_0_decides",
        "Only what rank 0 found counts. An inf may lie in any rank's shards: take the maximum of all flags.",
        edit((REDUCED, "comm.broadcast(broken, 0)")),
    ),
    wrong(
        "only_if_all_ranks_have_one",
        "You skip only where every rank has an inf or nan: that is the minimum of the flags (or, of flags that say "
        "finite, the maximum). One rank is enough.",
        edit((REDUCED, 'comm.all_reduce(broken, "min")')),
        edit((REDUCED, 'comm.all_reduce(broken, "product")')),
    ),
    wrong(
        "scale_of_its_own",
        "All ranks skip together, but only those that found the inf halve their scale (or begin to count anew). The "
        "next losses are multiplied by different numbers, and their gradients are added all the same.",
        edit((REDUCED, OWN), (SKIP, "return (scale / 2 if own.item() else scale), 0")),
        edit((REDUCED, OWN), (SKIP, "return (scale / 2, 0) if own.item() else (scale, good_steps)")),
    ),
    wrong(
        "keeps_the_scale_on_a_skip",
        "After a skip you keep the scale: the next step will overflow again, and so on for ever. Halve it.",
        edit((SKIP, "return scale, 0")),
    ),
    wrong(
        "keeps_the_scale_within_bounds",
        "You keep the scale in a range: by max, min or clamp, or because // and int know nothing between 0 and 1. It "
        "is a float that is halved at every skip, below 1 too, and doubled at every growth.",
        edit((SKIP, "return max(scale / 2, 1.0), 0")),
        edit((SKIP, "return scale // 2, 0")),
        edit((SKIP, "return int(scale / 2) or 1, 0")),
        edit((LAST, LAST.replace("(scale * 2, 0)", "(min(scale * 2, 2.0**24), 0)"))),
        edit((LAST, LAST.replace("(scale * 2, 0)", "(min(scale * 2, 2.0**16), 0)"))),
    ),
    wrong(
        "steps_with_zeros",
        "In place of a skip you call step() with zeros (or with what is finite). Momentum and weight decay move the "
        "parameters then too. Do not call it.",
        edit((SKIP, "[each.zero_() for each in grads]; step(); return scale / 2, 0")),
        edit((SKIP, "[each.div_(scale).nan_to_num_(0, 0, 0) for each in grads]; step(); return scale / 2, 0")),
    ),
    wrong(
        "steps_before_it_asks",
        "You call step() before it is known whether all is finite: an inf is in the parameters then, for good.",
        edit((SKIP, "[each.div_(scale) for each in grads]; step(); return scale / 2, 0")),
    ),
    wrong(
        "steps_with_scaled_gradients",
        "step() sees gradients that are still multiplied by the scale. Divide before you call it, and divide the very "
        "tensors in grads, in place (div_): `g / scale` makes new ones, which step() does not read.",
        edit((DIVIDED, ""), (STEP, f"{STEP}{DIVIDED}")),
        edit((DIVIDED, "")),
        edit(("grad.div_(scale)", "grad = grad / scale")),
        edit((DIVIDED, "    grads = [grad / scale for grad in grads]\n"), IN_INT64),
    ),
    wrong(
        "multiplies_by_the_scale",
        "The loss was multiplied by the scale, so the gradients must be divided by it. You multiply once more.",
        edit(("grad.div_(scale)", "grad.mul_(scale)")),
    ),
    wrong(
        "divides_by_the_ranks_too",
        "You divide by the number of ranks as well. The shards are pieces of one gradient that is reduced already.",
        edit(("grad.div_(scale)", "grad.div_(scale * comm.size)")),
    ),
    wrong(
        "looks_at_a_part",
        "You look at the first tensor alone, or at the first number of each. An inf may stand anywhere.",
        edit(("for grad in grads))", "for grad in grads[:1]))")),
        edit(("for grad in grads))", "for grad in [each for each in grads if each.numel()][:1]))")),
        edit(("for grad in grads))", "for grad in grads[-1:]))")),
        edit((FINITE, "not bool(grad.flatten()[:1].isfinite().all())")),
    ),
    wrong(
        "infinities_missed",
        "You look for nan, and an infinity goes through on all ranks, into the parameters. isfinite is false for nan, "
        "inf and -inf.",
        edit((FINITE, "bool(grad.isnan().any())")),
        edit((FINITE, "bool(grad.isnan().any())"), IN_INT64),
    ),
    wrong(
        "nan_missed",
        "You look for infinities, and a nan goes through: a comparison with nan is false, and Python's max loses it. "
        "isfinite is false for both.",
        edit((FINITE, "bool(grad.isinf().any())")),
        edit((FLAG, 'float(max([0.0, *(float(x) for g in grads for x in g.abs().flatten())]) == float("inf"))')),
    ),
    wrong(
        "minus_inf_missed",
        "-inf goes through: you ask for inf alone.",
        edit((FINITE, 'bool((grad.isnan() | (grad == float("inf"))).any())')),
    ),
    wrong(
        "infinities_cancel",
        "You add up numbers over the ranks and ask whether the sum is infinite: inf on one rank and -inf on another "
        "add up to nan. Ask each number first, and let the flags travel.",
        edit((FLAG, "float(sum(float(g.double().sum()) for g in grads))"), (SKIPPED, "    if broken.isinf():\n")),
        edit(
            (FLAG, "float(sum(float(g.double().sum()) for g in grads))"),
            (REDUCED, "comm.all_reduce(broken)"),
            (SKIPPED, "    if broken.isinf():\n"),
        ),
    ),
    wrong(
        "sum_overflows",
        "You ask whether a sum or a norm is finite. It may overflow where each number is finite, and then good steps "
        "are skipped.",
        edit((FINITE, "not bool(grad.sum().isfinite())")),
        edit((FINITE, "not bool(grad.norm().isfinite())")),
        fails=("finite_is_finite",),
    ),
    wrong(
        "needs_numbers",
        "A rank without shards, or with a tensor without numbers, breaks or leaves before the call that the others "
        "wait for.",
        edit((FINITE, "not bool(grad.abs().max().isfinite())")),
        edit(("    broken =", "    if not grads:\n        return scale, good_steps + 1\n    broken =")),
        edit((FLAG, "float(not bool(torch.cat([g.flatten() for g in grads]).isfinite().all()))")),
    ),
    wrong(
        "no_step_without_shards",
        "A rank that holds no numbers does not call step(). In a good step all ranks do: an optimizer counts its "
        "steps, and may talk to the other ranks.",
        edit((STEP, "    if grads:\n        step()\n")),
        edit((STEP, "    if sum(grad.numel() for grad in grads):\n        step()\n")),
    ),
    wrong(
        "skip_keeps_the_count",
        "good_steps counts good steps in a row: after a skip it is 0.",
        edit((SKIP, "return scale / 2, good_steps")),
    ),
    wrong(
        "counts_on_after_growth",
        "After a growth the count begins at 0 again.",
        edit((LAST, "return (scale * 2 if good_steps + 1 == interval else scale), good_steps + 1")),
    ),
    wrong(
        "grows_at_another_step",
        "The scale is doubled when `interval` good steps are reached: not one step later or earlier.",
        edit((LAST, LAST.replace("good_steps + 1 ==", "good_steps =="))),
        edit((LAST, LAST.replace("good_steps + 1 ==", "good_steps + 2 =="))),
    ),
    wrong(
        "never_grows",
        "The scale only ever falls: after `interval` good steps in a row it is doubled.",
        edit((LAST, "return scale, good_steps + 1")),
    ),
    wrong(
        "gathers_everything",
        "Every rank gets the gradients of all others. One flag from each is enough.",
        gathers_everything,
        fails=("one_small_all_reduce",),
    ),
)
