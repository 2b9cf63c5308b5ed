"""Right and wrong ways to write `mend_the_workers`."""

from __future__ import annotations

from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.ddp.mend_the_workers import mend_the_workers


def in_other_lines() -> dict[str, tuple[int, str]]:
    """The loss itself is reduced; every weight is updated, by 0 where nobody has used it; no wait in the loop."""
    return {
        "stops": (6, 'comm.all_reduce(loss, op="mean")'),
        "branches": (7, "used = True"),
        "waits": (8, "        pass"),
    }


def by_gathering() -> dict[str, tuple[int, str]]:
    """Losses are gathered; a name that is set late; the oldest all-reduce is waited for."""
    gather = "box = [mean.clone() for _ in range(comm.size)]; comm.all_gather(box, mean)"
    return {
        "stops": (6, f"{gather}; loss = torch.stack(box).mean()"),
        "branches": (8, 'comm.all_reduce(g, "mean"); used = g.count_nonzero()'),
        "waits": (8, "works[0].wait()"),
    }


RIGHT = (right(in_other_lines), right(by_gathering, independent="all_gather"))

runs = partial(edited, mend_the_workers)
STOPS, BRANCHES, WAITS = '(7, "if mean < enough:")', '(9, "if g.any():")', '(8, "works[-2].wait()")'


def stops(number: int, line: str) -> tuple[str, str]:
    """An edit: another line for `stops`."""
    return STOPS, repr((number, line))


def branches(number: int, line: str) -> tuple[str, str]:
    """For `branches`."""
    return BRANCHES, repr((number, line))


def waits(number: int, line: str) -> tuple[str, str]:
    """For `waits`."""
    return WAITS, repr((number, line))


WRONG = (
    wrong(
        "counted_from_0",
        "Your lines are right, and each number is one too small: lines are counted from 1, as they are printed.",
        runs(("(7,", "(6,"), ("(9,", "(8,"), ('(8, "w', '(7, "w')),
    ),
    wrong(
        "never_stops",
        "`stops` does not hang any more because nobody leaves its loop: it takes all fifty steps. It must end as "
        "soon as the mean of the losses is below `enough`.",
        runs(stops(7, "if False:")),
        runs(stops(8, "    pass")),
    ),
    wrong(
        "asks_the_worst_rank",
        "`stops` goes on until every rank's own loss is below `enough`. All agree on that, too, but asked for is the "
        "mean of the losses.",
        runs(stops(6, 'comm.all_reduce(loss, "max")')),
    ),
    wrong(
        "asks_the_best_rank",
        "`stops` ends as soon as one rank's own loss is below `enough`. All agree on that, too, but asked for is the "
        "mean of the losses.",
        runs(stops(6, 'comm.all_reduce(loss, "min")')),
    ),
    wrong(
        "sum_of_losses",
        "`stops` compares the sum of the losses with `enough`: an all-reduce adds unless you ask for the mean.",
        runs(stops(6, "comm.all_reduce(loss)")),
    ),
    wrong(
        "asks_rank_0",
        "`stops` ends when rank 0's loss is small enough. All agree on that, too, but asked for is the mean of the "
        "losses.",
        runs(stops(6, "comm.broadcast(loss, 0)")),
    ),
    wrong(
        "still_its_own_loss",
        "A rank of `stops` still leaves the loop by its own loss, and the others wait for it. An all-reduce writes "
        "into the tensor that it is given: which name holds the mean?",
        runs(stops(5, "mean = loss + 0")),
        runs(stops(7, "if mean < enough and loss < enough:")),
        runs(stops(8, "    comm.barrier(); break")),
    ),
    wrong(
        "reduces_only_what_it_uses",
        "A rank of `branches` joins only the all-reduces of gradients that it has itself, and the others wait for it. "
        "Every rank must join every all-reduce: with zeros, where it has nothing to add.",
        runs(branches(8, 'used and comm.all_reduce(g, "mean")')),
        runs(branches(7, "used = bool(g.any()) or comm.rank == 0")),
    ),
    wrong(
        "updates_with_the_sum",
        "`branches` steps by the sum of the gradients. Leave the mean as it is.",
        runs(branches(8, "comm.all_reduce(g); used = g.any()")),
    ),
    wrong(
        "updates_one_branch",
        "A rank of `branches` moves only the weight of the branch that it has taken itself. It has the mean "
        "gradient of all of them.",
        runs(branches(9, "if w is weights[branch]:")),
    ),
    wrong(
        "skips_some_gradients",
        "`branches` skips an update whose gradient is not 0: single entries may be 0 and a sum may cancel, and a small "
        "gradient is one, too. Only where all entries are 0 is there nothing to do.",
        runs(branches(9, "if g.all():")),
        runs(branches(9, "if g[0] != 0:")),
        runs(branches(9, "if g.sum() != 0:")),
        runs(branches(9, "if g.norm() > 1e-3:")),
        runs(branches(9, "if not torch.allclose(g, torch.zeros_like(g)):")),
        runs(branches(9, "if g.max() > 0:")),
        runs(branches(9, "if (g < 0).any():")),
    ),
    wrong(
        "own_gradient",
        "Each rank of `branches` steps by its own gradient: what is reduced is a copy.",
        runs(branches(8, 'comm.all_reduce(g.clone(), "mean")')),
    ),
    wrong(
        "waits_for_the_newest",
        "`waits` still waits in its loop for what it has only just begun, if not every time. Wait for the one before, "
        "or only after the loop.",
        runs(waits(7, "if len(works) > 2:")),
        runs(waits(8, "    for work in works: work.wait()")),
        runs(waits(6, 'works.append(comm.all_reduce(g, "mean", async_op=True)); works[-1].wait()')),
        runs(waits(6, 'comm.all_reduce(g, "mean")')),
    ),
    wrong(
        "computes_everything_first",
        "`waits` computes all gradients before it begins the first all-reduce, so that none travels while another "
        "gradient is computed. Begin each as soon as its gradient is there.",
        runs(waits(4, "for g in list(backward(weights, step)):")),
    ),
    wrong(
        "gradient_of_the_rank",
        "The weights of `waits` are no longer those of its first version: the gradients are not the mean of all ranks' "
        "when they are used.",
        runs(waits(6, "pass")),
        runs(waits(5, "grads.append(g.clone())")),
    ),
)
