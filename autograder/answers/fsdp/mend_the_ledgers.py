"""Right and wrong ways to write `mend_the_ledgers`."""

from __future__ import annotations

from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.fsdp.mend_the_ledgers import mend_the_ledgers


def in_other_words() -> dict[str, tuple[int, str]]:
    """The chunk is cast, not the whole; the last unit goes with its name; numbers of Python."""
    return {
        "masters": (4, "mine.append(w.chunk(comm.size)[comm.rank].double())"),
        "units": (4, "full = [gather(shard)]"),
        "losses": (6, "        found.append(loss.item())"),
    }


def nothing_recorded() -> dict[str, tuple[int, str]]:
    """A copy into new memory; an empty list; nothing that needs a gradient."""
    return {
        "masters": (4, "mine.append(torch.empty(len(w) // comm.size).double().copy_(w.chunk(comm.size)[comm.rank]))"),
        "units": (5, "x = full.pop(0).mul_(x).tanh_()"),
        "losses": (5, "loss = (gain.detach() * w - x).square().mean()"),
    }


def one_more_held() -> dict[str, tuple[int, str]]:
    """What was made last is held until there is another: a whole in float64, a unit, the graph of a loss."""
    return {
        "masters": (4, "whole = w.double(); mine.append(whole.chunk(comm.size)[comm.rank].clone())"),
        "units": (2, "import collections; full = collections.deque(maxlen=2)"),
        "losses": (6, "found = [each.detach() for each in found] + [loss]"),
    }


RIGHT = (
    right(in_other_words),
    right(one_more_held),
    right(nothing_recorded, independent="copies into memory of its own, and operations in place"),
)

runs = partial(edited, mend_the_ledgers)
MASTERS = '(4, "mine.append(w.double().chunk(comm.size)[comm.rank].clone())")'
UNITS, LOSSES = '(5, "x = torch.tanh(full.pop() * x)")', '(6, "found.append(loss.detach())")'


def masters(number: int, line: str) -> Answer:
    """Another line for `masters`."""
    return runs((MASTERS, repr((number, line))))


def units(number: int, line: str) -> Answer:
    """For `units`."""
    return runs((UNITS, repr((number, line))))


def losses(number: int, line: str) -> Answer:
    """For `losses`."""
    return runs((LOSSES, repr((number, line))))


WRONG = (
    wrong(
        "counted_from_0",
        "Your lines are right, and each number is one too small: lines are counted from 1, as they are printed.",
        runs(("(4,", "(3,"), ("(5,", "(4,"), ("(6,", "(5,")),
    ),
    wrong(
        "still_a_view",
        "What `masters` appends still shares the memory of all of `w.double()`: a chunk, a slice, `detach` and "
        "`contiguous` of what is contiguous already are views, and a view keeps the whole. It takes a copy.",
        masters(4, "mine.append(w.double().chunk(comm.size)[comm.rank].contiguous())"),
        masters(4, "mine.append(w.double().chunk(comm.size)[comm.rank].detach())"),
        masters(4, "mine.append(w.double().view(comm.size, -1)[comm.rank])"),
        masters(4, "mine.append(w.double().clone().chunk(comm.size)[comm.rank])"),
        masters(4, "m = w.double().chunk(comm.size)[comm.rank]; mine.append(m if len(mine) % 2 else m.clone())"),
    ),
    wrong(
        "no_master_copy",
        "`masters` no longer has a master copy in float64: it steps in float32, and small steps are lost.",
        masters(4, "mine.append(w.chunk(comm.size)[comm.rank])"),
        masters(4, "mine.append(w.chunk(comm.size)[comm.rank].clone())"),
        masters(4, "mine.append(w.float().chunk(comm.size)[comm.rank].clone())"),
    ),
    wrong(
        "shard_of_another_rank",
        "Every rank of `masters` now has the same shard. Its own is the one with its rank's number.",
        masters(4, "mine.append(w.double().chunk(comm.size)[0].clone())"),
    ),
    wrong(
        "freed_at_the_end",
        "`units` still holds more than two full units at once, if not all until the last one has computed. Free each "
        "before the next one is gathered, or when it is there.",
        units(6, "del full"),
        units(5, "x = torch.tanh(full[-1] * x); del shard"),
        units(4, "w = gather(shard); full.append(w); del w"),
        units(2, "import collections; full = collections.deque(maxlen=3)"),
    ),
    wrong(
        "frees_the_wrong_one",
        "`units` computes with another unit than the one it has just gathered.",
        units(5, "x = torch.tanh(full[0] * x)"),
        units(4, "full = full or [gather(shard)]"),
    ),
    wrong(
        "never_gathers",
        "`units` must compute with full units: each rank uses its own shard alone, again and again.",
        units(4, "full = [shard.repeat(comm.size)]"),
    ),
    wrong(
        "graph_kept",
        "What `losses` appends still has a graph, in which the product with `gain` saved all of `w`. A copy of a loss, "
        "or another name to delete, changes nothing: detach the number.",
        losses(6, "found.append(loss.clone())"),
        losses(7, "del w, loss"),
        losses(5, "loss = (gain * w.detach() - x).square().mean()"),
        losses(6, "found.append(loss + 0)"),
        losses(6, "found.append(loss.detach() if found else loss)"),
    ),
    wrong(
        "losses_lost",
        "`losses` must return the loss of every batch.",
        losses(6, "found = [loss.detach()]"),
    ),
)
