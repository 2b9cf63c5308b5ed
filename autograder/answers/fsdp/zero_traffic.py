"""Right and wrong ways to write `zero_traffic`."""

from __future__ import annotations

import math
from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.fsdp.zero_traffic import zero_traffic


def played(n: int, size: int, stage: int, micro_batches: int, keeps_full: bool) -> int:
    """A step is played: what is not there is gathered, what may not stay is scattered."""
    sent, full = 0, stage < 3
    turn = (size - 1) * math.ceil(n / size)
    for _ in range(micro_batches):
        for each in ("forward", "backward"):
            if not full:
                sent += turn
                full = each == "forward" and keeps_full
        full = stage < 3
        if stage >= 2:
            sent += turn
    if stage < 2:
        sent += turn
    return sent + turn if stage < 3 else sent


def by_table(n: int, size: int, stage: int, micro_batches: int, keeps_full: bool) -> float:
    """Factors by stage, in floats: the share (P - 1) / P of the padded length."""
    turns = [2, 2, 1 + micro_batches, (3 - keeps_full) * micro_batches][stage]
    padded = n + -n % size
    return round(turns * padded * (1 - 1 / size))


RIGHT = (right(played, independent="a step that is played"), right(by_table))

edit = partial(edited, zero_traffic)
LAST = "return turns * (size - 1) * -(-n // size)"


def last(new: str) -> Answer:
    """Another last line."""
    return edit((LAST, f"return {new}"))


WRONG = (
    wrong(
        "one_turn_for_an_all_reduce",
        "An all-reduce goes around the ring twice: a reduce-scatter, and an all-gather. It sends twice as much as "
        "either.",
        edit(("turns = 2\n", "turns = 1\n")),
        edit(("turns = 2\n", "turns = 1 if stage == 0 else 2\n")),
    ),
    wrong(
        "stage_1_sends_more",
        "Stage 1 does not all-reduce and then gather. A rank needs the sum of its own shard alone, so a "
        "reduce-scatter is enough, and the all-gather of parameters makes up for the other half.",
        edit(("turns = 2\n", "turns = 2 + stage\n")),
        edit(("turns = 2\n", "turns = 2 + stage\n"), ("micro_batches + 1\n", "2 * micro_batches + 1\n")),
    ),
    wrong(
        "gathers_forgotten",
        "After the update each rank has new parameters of its own shard alone: stage 2 gathers all of them, once a "
        "step.",
        edit(("micro_batches + 1\n", "micro_batches\n")),
    ),
    wrong(
        "one_gather_in_stage_3",
        "In stage 3 parameters are freed after forward, and backward needs them: they are gathered twice for each "
        "micro-batch, unless they are kept.",
        edit(("1 if keeps_full else 2", "1")),
    ),
    wrong(
        "update_gathered_in_stage_3",
        "In stage 3 nothing is gathered after the update: the next forward gathers what it needs.",
        edit(("micro_batches * (gathers + 1)", "micro_batches * (gathers + 1) + 1")),
    ),
    wrong(
        "kept_is_never_freed",
        "What is kept over forward is freed after backward. The next micro-batch gathers it again.",
        edit(
            ("micro_batches * (gathers + 1)", "micro_batches * (gathers + 1) if not keeps_full else micro_batches + 1")
        ),
    ),
    wrong(
        "keeping_ignored",
        "Where full parameters are kept over forward, backward gathers nothing.",
        edit(("1 if keeps_full else 2", "2")),
    ),
    wrong(
        "keeping_the_wrong_way_round",
        "You take `keeps_full` the wrong way round. What is kept over forward is not gathered again for backward; what "
        "is freed is.",
        edit(("1 if keeps_full else 2", "2 if keeps_full else 1")),
    ),
    wrong(
        "keeping_saves_a_reduce_scatter",
        "`keeps_full` speaks of the parameters in stage 3 alone. Gradients are still sharded, and stages 0 to 2 hold "
        "all parameters anyway.",
        edit(("turns = micro_batches + 1", "turns = 2 if keeps_full else micro_batches + 1")),
        edit(("1 if keeps_full else 2", "0 if keeps_full else 2")),
    ),
    wrong(
        "scattered_once",
        "You reduce gradients once a step in stages 2 and 3. No rank has room for full gradients there, so those of "
        "each micro-batch are scattered when they are there.",
        edit(("micro_batches + 1\n", "2\n"), ("micro_batches * (gathers + 1)", "micro_batches * gathers + 1")),
        edit(("micro_batches + 1\n", "2\n")),
        edit(("micro_batches * (gathers + 1)", "micro_batches * gathers + 1")),
    ),
    wrong(
        "gathered_once",
        "In stage 3 every micro-batch gathers for itself: after its backward pass nothing full is left.",
        edit(("micro_batches * (gathers + 1)", "micro_batches + gathers")),
    ),
    wrong(
        "reduced_for_each_micro_batch",
        "Stages 0 and 1 hold full gradients, and can add up those of all micro-batches: they are reduced once a step.",
        edit(("turns = 2\n", "turns = 2 * micro_batches\n")),
        edit(("turns = 2\n", "turns = (1 + stage == 1) * micro_batches + 1\n")),
    ),
    wrong(
        "gathered_for_each_micro_batch",
        "Parameters change once a step, so stage 2 gathers them once.",
        edit(("micro_batches + 1\n", "2 * micro_batches\n")),
    ),
    wrong(
        "micro_batches_ignored",
        "You count a step of one micro-batch. In stages 2 and 3 each of them sends.",
        edit(("micro_batches + 1\n", "2\n"), ("micro_batches * (gathers + 1)", "gathers + 1")),
    ),
    wrong(
        "p_chunks",
        "A turn around the ring is P - 1 chunks: nobody sends its last one to itself.",
        last("turns * size * -(-n // size)"),
        last("turns * n"),
    ),
    wrong(
        "rounded_down",
        "Chunks are equally long, so n / P is rounded up, and what is padded is sent like the rest.",
        last("turns * (size - 1) * (n // size)"),
        last("turns * (size - 1) * n / size"),
        last("-int(-turns * (size - 1) * n // size)"),
    ),
    wrong(
        "of_all_ranks",
        "Asked for is what one rank sends, in elements: not bytes, not what all of them send together, nor what it "
        "sends and receives.",
        last("turns * (size - 1) * -(-n // size) * size"),
        last("2 * turns * (size - 1) * -(-n // size)"),
    ),
)
