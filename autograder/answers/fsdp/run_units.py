"""Right and wrong ways to write `run_units`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm, Work
from course.reference.fsdp.run_units import run_units

Shards = Sequence[Tensor]
Forward = Callable[[int, Tensor, Any], Any]
Backward = Callable[[int, Tensor, Any, Any], tuple[Any, Tensor]]
Result = tuple[Any, Any, list[Tensor]]


def last_unit_stays(
    comm: Comm, shards: Shards, forward: Forward, backward: Backward, x: Any, dy: Any, prefetch: bool
) -> Result:
    """Two passes, and the last unit is kept between them; room for gradients is made when they come."""
    begun: dict[int, tuple[Tensor, Work]] = {}
    saved, dshards = [], {}
    travels: list[Work] = []

    def begin(i: int) -> None:
        if i in range(len(shards)) and i not in begun:
            full = torch.empty(comm.size * shards[i].numel(), dtype=shards[i].dtype)
            begun[i] = full, comm.all_gather([*full.view(comm.size, -1).unbind()], shards[i], async_op=True)

    def whole(i: int, follows: int) -> Tensor:
        begin(i)
        if prefetch:
            begin(follows)
        begun[i][1].wait()
        return begun[i][0]

    for i in range(len(shards)):
        saved.append(x)
        x = forward(i, whole(i, i + 1), x)
        if i + 1 < len(shards):
            del begun[i]
    for i in range(len(shards) - 1, -1, -1):
        dy, dfull = backward(i, whole(i, i - 1), saved.pop(), dy)
        del begun[i]
        if travels:
            travels.pop().wait()
        dshards[i] = torch.empty_like(shards[i])
        travels.append(comm.reduce_scatter(dshards[i], [*dfull.chunk(comm.size)], "avg", async_op=True))
        if not prefetch:
            travels.pop().wait()
        del dfull
    for work in travels:
        work.wait()
    return x, dy, [dshards[i] for i in range(len(shards))]


def recursive(
    comm: Comm, shards: Shards, forward: Forward, backward: Backward, x: Any, dy: Any, prefetch: bool
) -> Result:
    """A unit calls the one after it: what it saved lies on the stack, and memory is given back by its storage."""
    dshards = [shard / comm.size for shard in shards]
    travels: list[tuple[Tensor, Work]] = []
    ahead: list[tuple[Tensor, Work]] = []

    def gather(i: int) -> tuple[Tensor, Work]:
        full = shards[i].new_empty(comm.size, len(shards[i]))
        return full.view(-1), comm.all_gather_single(full.view(-1), shards[i], async_op=True)

    def take(i: int, follows: int | None) -> Tensor:
        full, work = ahead.pop() if ahead else gather(i)
        if prefetch and follows is not None:
            ahead.append(gather(follows))
        work.wait()
        return full

    def land() -> None:
        while travels:
            full, work = travels.pop()
            work.wait()
            full.untyped_storage().resize_(0)

    def visit(i: int, x: Any, dy: Any) -> tuple[Any, Any]:
        last = i == len(shards) - 1
        full = take(i, i if last else i + 1)
        y = forward(i, full, x)
        full.untyped_storage().resize_(0)
        y, dy = (y, dy) if last else visit(i + 1, y, dy)
        full = take(i, i - 1 if i else None)
        dx, dfull = backward(i, full, x, dy)
        full.untyped_storage().resize_(0)
        land()
        travels.append((dfull, comm.reduce_scatter_single(dshards[i], dfull, async_op=True)))
        if not prefetch:
            land()
        return y, dx

    y, dx = visit(0, x, dy)
    land()
    return y, dx, [each / comm.size for each in dshards]


RIGHT = (right(last_unit_stays), right(recursive, independent="recursion, and storages of no bytes"))


def all_gathered_first(
    comm: Comm, shards: Shards, forward: Forward, backward: Backward, x: Any, dy: Any, prefetch: bool
) -> Result:
    """All units are gathered, and stay."""
    fulls = [shard.new_empty(comm.size * len(shard)) for shard in shards]
    works = [comm.all_gather_single(full, shard, async_op=True) for full, shard in zip(fulls, shards, strict=True)]
    xs, dshards, travels = [x], [torch.empty_like(shard) for shard in shards], []
    for i, work in enumerate(works):
        work.wait()
        xs.append(forward(i, fulls[i], xs[i]))
    for i in reversed(range(len(shards))):
        dy, dfull = backward(i, fulls[i], xs[i], dy)
        travels.append(comm.reduce_scatter_single(dshards[i], dfull, "mean", async_op=True))
    for work in travels:
        work.wait()
    return xs[-1], dy, dshards


edit = partial(edited, run_units)
GATHER = "ahead.append((full, comm.all_gather_single(full, shard, async_op=True)))"
AHEAD = "len(ahead) <= prefetch"
TAKE = "full, work = ahead.pop(0)"
MADE = "full = shard.new_empty(comm.size * len(shard))"
SCATTER = 'leaving = comm.reduce_scatter_single(dshards[i], dfull, "mean", async_op=prefetch)'
LAND = "            if leaving:\n                leaving.wait()\n            leaving ="
END = "    if leaving:\n        leaving.wait()\n    return"
LET_GO = "            del dfull"
WAIT = "        work.wait()\n"
COMPUTED = "        del full, work"
BEGUN = "ahead: list[tuple[Tensor, Work]] = []"
HELD = ("one_unit_held", "two_units_held")
SENT = 'works.append(comm.reduce_scatter_single(dshards[j], gradient, "mean", async_op=True))'
LEFT = ("async_op=prefetch)", "async_op=True)")
REDUCED = 'comm.all_reduce(dfull, "mean")\n            dshards[i] = dfull.view(comm.size, -1)[comm.rank]'

WRONG = (
    wrong(
        "all_gathered_first",
        "Without prefetch, too, your all-gathers begin long before their units compute, and more units are full than "
        "may be, with prefetch and without. If you gather all of them first, every rank holds the whole model, as "
        "if nothing were sharded.",
        all_gathered_first,
        fails=("one_after_another", *HELD),
    ),
    wrong(
        "everything_stays",
        "More full parameters or gradients are alive than may be, with prefetch and without: copies, or those of "
        "units that have computed. A list leads to these, of tensors that you save for backward, or of works, which "
        "hold their tensors when they were waited for, too. Save the x of a unit; gather its parameters again.",
        edit((BEGUN, f"{BEGUN}\n    works = []"), (COMPUTED, f"        works.append(work)\n{COMPUTED}")),
        edit((BEGUN, f"{BEGUN}\n    fulls = []"), (COMPUTED, f"        fulls.append(full)\n{COMPUTED}")),
        edit(
            (BEGUN, f"{BEGUN}\n    fulls = []"),
            (
                COMPUTED,
                f"        fulls.append(full)\n        if place >= n - 2:\n            fulls.clear()\n{COMPUTED}",
            ),
        ),
        edit(("forward(i, full, xs[i])", "forward(i, full.clone(), xs[i])")),
        edit((BEGUN, f"{BEGUN}\n    kept = []"), (LET_GO, f"            kept.append(dfull)\n{LET_GO}")),
        edit(
            (BEGUN, f"{BEGUN}\n    fulls = []"),
            ("place + len(ahead) < len(visits)", "place + len(ahead) < n"),
            (f"        {TAKE}\n{WAIT}", ""),
            (
                "            xs.append",
                f"            {TAKE}\n            work.wait()\n            fulls.append(full)\n            xs.append",
            ),
            ("backward(i, full, ", "backward(i, fulls[i], "),
            (COMPUTED, "        full = work = None"),
        ),
        fails=HELD,
    ),
    wrong(
        "too_many_on_their_way",
        "With prefetch more is alive than the full parameters and full gradients of two units: all-gathers of "
        "several have begun, reduce-scatters of several have not been waited for, or something full was copied. One "
        "of each on its way is enough to hide the travel of all.",
        edit((AHEAD, "len(ahead) < (len(visits) if prefetch else 1)")),
        edit((AHEAD, "len(ahead) <= 2 * prefetch")),
        edit(
            (AHEAD, "len(ahead) <= 2 * prefetch"),
            (BEGUN, f"import numpy as np\n\n    {BEGUN}"),
            (MADE, "full = torch.from_numpy(np.empty(comm.size * len(shard), shard.numpy().dtype))"),
        ),
        edit((AHEAD, "len(ahead) <= (n - 1 if place == 0 and prefetch else prefetch)")),
        edit((AHEAD, "len(ahead) <= (2 if place < n - 2 else 1) * prefetch")),
        edit(
            (BEGUN, f"{BEGUN}\n    travels = []"),
            (LAND, "            leaving ="),
            (LET_GO, f"            travels.append(leaving)\n{LET_GO}"),
            (END, "    for leaving in travels:\n        if leaving:\n            leaving.wait()\n    return"),
        ),
        fails=("two_units_held",),
    ),
    wrong(
        "one_too_many_held",
        "Without prefetch, more is alive than the full parameters and full gradients of the unit at work. A full "
        "gradient may still be there when the next unit computes: it was not waited for, or a name or its Work holds "
        "it. Or what was gathered is there twice, as cat and clone make it.",
        edit((LET_GO, "            pass")),
        edit(LEFT),
        edit(LEFT, (LET_GO, f"            if not prefetch:\n                leaving.wait()\n{LET_GO}")),
        edit(("forward(i, full, xs[i])", "forward(i, full if prefetch else full.clone(), xs[i])")),
        fails=("one_unit_held",),
    ),
    wrong(
        "prefetch_anyway",
        "Without prefetch, too, your next all-gather begins before this unit computes. Who says prefetch=False has "
        "no room for a second unit.",
        edit((AHEAD, "len(ahead) <= 1"), LEFT),
        edit((AHEAD, "len(ahead) <= 1")),
        edit((AHEAD, "len(ahead) <= (prefetch or place >= n)")),
        fails=("one_after_another", "one_unit_held"),
    ),
    wrong(
        "waits_for_it",
        "With prefetch, a reduce-scatter of yours travels while nobody computes. Begin it with async_op, and wait for "
        "it when the unit after it has computed.",
        edit(("async_op=prefetch)", "async_op=False)")),
        edit((LET_GO, f"            if leaving:\n                leaving.wait()\n{LET_GO}")),
        fails=("overlapped",),
    ),
    wrong(
        "nothing_ahead",
        "With prefetch no all-gather travels while a unit computes, in one of the passes or in both. Begin that of the "
        "next unit before this one computes, and wait for it after that.",
        edit((AHEAD, "len(ahead) <= (prefetch and place < n)")),
        edit((AHEAD, "len(ahead) <= (prefetch and place >= n)")),
        edit((AHEAD, "len(ahead) < 1"), ("async_op=prefetch)", "async_op=False)")),
        edit((AHEAD, "len(ahead) < 1")),
        edit((GATHER, f"{GATHER}\n            ahead[-1][1].wait()")),
        fails=("overlapped", "two_units_held"),
    ),
    wrong(
        "forward_direction_in_backward",
        "In backward you gather unit i + 1 ahead, which has just been there. After unit i comes unit i - 1.",
        edited(last_unit_stays, ("whole(i, i - 1)", "whole(i, i + 1)")),
    ),
    wrong(
        "parameters_of_the_next",
        "A unit computes with the parameters that were gathered ahead, which belong to the next one.",
        edit((TAKE, "full, work = ahead.pop()")),
    ),
    wrong(
        "not_waited_for",
        "A unit computes with what is still on its way. Call wait() of its all-gather first.",
        edit(
            (WAIT, ""),
            (COMPUTED, f"{WAIT}{COMPUTED}"),
            (MADE, "full = shard.new_zeros(comm.size * len(shard))"),
        ),
    ),
    wrong(
        "last_one_not_waited_for",
        "The reduce-scatter of unit 0 may still be on its way when you return. Wait for it after the last unit.",
        edit((END, "    return")),
    ),
    wrong(
        "y_for_x",
        "Backward of unit i gets its y, or the x of another unit. It needs the x that forward of unit i had.",
        edit(("backward(i, full, xs[i], dy)", "backward(i, full, xs[i + 1], dy)")),
        edit(("backward(i, full, xs[i], dy)", "backward(i, full, xs[0], dy)")),
        edit(("backward(i, full, xs[i], dy)", "backward(i, full, xs[-1], dy)")),
    ),
    wrong(
        "dy_not_passed_on",
        "Every unit gets the gradient of the last y. What backward of a unit returns as dx is the dy of the unit "
        "before.",
        edit(("dy, dfull = backward", "dx, dfull = backward"), ("return xs[-1], dy", "return xs[-1], dx")),
    ),
    wrong(
        "written_into_the_shards",
        "The gradients come into the shards themselves, over the parameters that the optimizer is to change. Make "
        "tensors like the shards for them.",
        edit(("[torch.empty_like(shard) for shard in shards]", "[*shards]")),
        edit(("[torch.empty_like(shard) for shard in shards]", "[shard.data for shard in shards]")),
    ),
    wrong(
        "in_float32",
        "Your shards of gradients are in float32, whatever the shards have: make tensors like them.",
        edit(("return xs[-1], dy, dshards", "return xs[-1], dy, [each.float() for each in dshards]")),
        rounds_to=torch.float32,
    ),
    wrong(
        "sum_for_mean",
        "Your gradients are sums over the ranks. Divide by their number, or say so to reduce_scatter.",
        edit((', "mean"', "")),
    ),
    wrong(
        "in_the_order_of_backward",
        "Your shards of gradients stand in the order in which backward makes them, the last unit first. Give them "
        "in the order of the units.",
        edit(("dy, dshards", "dy, dshards[::-1]")),
    ),
    wrong(
        "all_reduce_then_slice",
        "You send more than two all-gathers and a reduce-scatter of each unit, or by other calls, and it takes "
        "longer. An all_reduce gives every rank the whole mean, of which it keeps a part: twice the bytes of a "
        "reduce_scatter.",
        edit((SCATTER, f"{REDUCED}.clone()")),
        fails=("collectives", "overlapped", "two_units_held"),
    ),
    wrong(
        "view_of_the_gradient",
        "The shards that you return are views, and keep the full gradients of all units behind them alive. And an "
        "all_reduce sends twice what a reduce_scatter does. Let reduce_scatter write into a tensor like the shard.",
        edit((SCATTER, REDUCED)),
        fails=("collectives", "overlapped", *HELD),
    ),
    wrong(
        "whichever_has_come",
        "What you begin depends on whether something has come, which it has on one rank and on another has not. All "
        "ranks must call the same collectives in the same order: ask what place a unit has, not is_completed().",
        edit(
            (BEGUN, f"{BEGUN}\n    works, late = [], []"),
            (
                f"{LAND}{SCATTER.removeprefix('leaving =')}",
                "            late.append((i, dfull))\n"
                "            if not works or works[-1].is_completed():\n"
                "                for j, gradient in late:\n"
                f"                    {SENT}\n"
                "                    if not prefetch:\n"
                "                        works.pop().wait()\n"
                "                late, gradient = [], None",
            ),
            (
                END,
                f"    for j, gradient in late:\n        {SENT}\n"
                "    for work in works:\n        work.wait()\n    return",
            ),
        ),
    ),
)
