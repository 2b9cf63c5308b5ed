"""Right and wrong ways to write `choose_sharding`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.fsdp.choose_sharding import choose_sharding

Layers = Sequence[tuple[float, int]]


def longest_ways(layers: Layers, cluster: Mapping[str, Any], sizes: Sequence[int]) -> tuple[int, int, bool]:
    """What fits is sorted by time: running sums, and the longest way through a micro-batch."""
    seconds, counts = np.array(layers).T
    p, m, (alpha, beta) = cluster["ranks"], cluster["micro_batches"], cluster["link"]
    fitting: list[tuple[float, int, int, bool]] = []
    for size in sizes:
        first = np.arange(0, len(seconds), size)
        work, count = np.add.reduceat(seconds, first), np.add.reduceat(counts, first)
        turns = (p - 1) * alpha + 2 * count * (p - 1) / p / beta
        for stage, ahead in ((1, False), (2, False), (3, False), (3, True)):
            if _bytes(counts.sum(), count.max(), p, stage, ahead) > cluster["limit"]:
                continue
            gathers = turns if stage == 3 else 0 * turns
            done = _ends(np.concatenate([work, 2 * work[::-1]]), np.concatenate([gathers, gathers[::-1]]), ahead)
            begun = done[len(work) :]  # each unit's backward, the last unit first
            left = np.cumsum(turns)  # of a unit's reduce-scatter and all after it, by unit
            reduced = max(done[-1], float((begun + left[::-1]).max()))
            total = reduced + (m - 1) * (done[-1] if stage == 1 else reduced) + (turns.sum() if stage < 3 else 0)
            fitting.append((float(total), stage, size, ahead))
    return min(fitting)[1:]


def _bytes(n: float, largest: float, p: int, stage: int, ahead: bool) -> float:
    full = {1: 4 * n, 2: 2 * n + 2 * largest, 3: (6 if ahead else 4) * largest}[stage]
    return full + {1: 12, 2: 14, 3: 16}[stage] * n / p


def _ends(work: Any, gathers: Any, ahead: bool) -> Any:
    """When each unit has computed."""
    if not ahead:
        return np.cumsum(work + gathers)
    takes = np.concatenate([gathers[:1], np.maximum(work[:-1], gathers[1:])])
    return np.cumsum(takes) + work  # a unit begins when the one before is over, and its gather, begun with it


def step_by_step(layers: Layers, cluster: Mapping[str, Any], sizes: Sequence[int]) -> tuple[int, int, bool]:
    """Every micro-batch of every choice that fits, one after the other."""
    p, (alpha, beta), n = cluster["ranks"], cluster["link"], sum(count for _, count in layers)
    found: list[tuple[float, int, int, bool]] = []
    for size in sizes:
        own = [(0.0, 0)] * -(-len(layers) // size)
        for number, (seconds, count) in enumerate(layers):
            own[number // size] = (own[number // size][0] + seconds, own[number // size][1] + count)
        cost = [(p - 1) * alpha + 2 * (p - 1) * count / (p * beta) for _, count in own]
        for stage, ahead in ((1, False), (2, False), (3, False), (3, True)):
            if _bytes(n, max(count for _, count in own), p, stage, ahead) > cluster["limit"]:
                continue
            total = sum(cost) if stage < 3 else 0.0
            for left in range(cluster["micro_batches"], 0, -1):
                now = latest = sent = 0.0
                for times, number in [(1, i) for i in range(len(own))] + [(2, i) for i in range(len(own) - 1, -1, -1)]:
                    if stage == 3:
                        latest = max(now, (latest if ahead else now) + cost[number])
                        now = latest
                    now += times * own[number][0]
                    if times == 2 and (stage > 1 or left == 1):
                        sent = max(sent, now) + cost[number]
                total += max(now, sent)
            found.append((total, stage, size, ahead))
    return min(found)[1:]


RIGHT = (right(longest_ways, independent="NumPy's running sums, and the longest way"), right(step_by_step))

edit = partial(edited, choose_sharding)
PAIRS = "[*product((1, 2, 3), sizes, (False, True))]"
BEST = '(held(*each) > cluster["limit"], step(*each))'
PARTS = "for start in range(0, len(layers), size)]"
LARGEST = "largest = max(count for _, count in units(size))"
COUNTS = "counts = [count for _, count in units(size)]"
TWO = "two = max(map(sum, zip(counts, counts[1:])), default=largest)"
STAGE_1, STAGE_2 = "return float(4 * n + 12 * n / ranks)", "return float(2 * n + 14 * n / ranks + gradients)"
STAGE_3 = "return float(16 * n / ranks + gradients + (4 if ahead else 2) * largest)"
TURN = "(ranks - 1) * (latency + 2 * count / ranks / bandwidth)"
WAY = "[*product([1], own), *product([2], reversed(own))]"
THERE = "(begin if ahead else end) + turn(count) if stage == 3 else end"
ENDS, REDUCED, OVER = "end = begin + times * seconds", "over = max(over, end) + turn(count)", "return max(end, over)"
OTHERS = "others = (often - 1) * micro_batch(stage, size, ahead, stage > 1)"
LAST, GATHERS = "last = micro_batch(stage, size, ahead, True)", "if stage < 3 else 0.0"


def choosing(stages: str = "(1, 2, 3)", sizes: str = "sizes", ahead: str = "(False, True)") -> Answer:
    """Fewer choices."""
    return edit((PAIRS, f"[*product({stages}, {sizes}, {ahead})]"))


def first(rank: str) -> Answer:
    """Of all that fit, the lowest of these."""
    return edit((BEST, BEST.replace(", step", f", {rank}, step")))


def gathered(when: str, *more: tuple[str, str]) -> Answer:
    """Another time at which a gather is over."""
    return edit((THERE, f"{when} if stage == 3 else end"), *more)


def turns(seconds: str) -> Answer:
    """Other seconds of a turn."""
    return edit((TURN, seconds))


WRONG = (
    wrong(
        "limit_ignored",
        "You take the fastest choice, whether it fits or not.",
        edit((BEST, "step(*each)")),
    ),
    wrong(
        "bytes_by_stage",
        "Count again what a rank holds from step to step: of each parameter 2 bytes, 2 of its gradient and 12 of "
        "states. States are sharded from stage 1 on, gradients from stage 2 on, parameters in stage 3; all else is "
        "whole.",
        edit((STAGE_1, STAGE_1.replace("12", "0")), (STAGE_2, STAGE_2.replace("14", "2")), ("16 * n", "4 * n")),
        edit((STAGE_1, STAGE_1.replace("12", "8")), (STAGE_2, STAGE_2.replace("14", "10")), ("16 * n", "12 * n")),
        edit(
            (STAGE_1, STAGE_1.replace("4 * n", "2 * n")), (STAGE_2, STAGE_2.replace("14", "12")), ("16 * n", "14 * n")
        ),
        edit((STAGE_2, STAGE_2.replace("2 * n + 14", "16"))),
        edit((STAGE_1, STAGE_1.replace("4 * n + 12", "2 * n + 14"))),
    ),
    wrong(
        "full_units_left_out",
        "A unit is whole for a while, beside its shards: its gradients in stages 2 and 3, before they are reduced, "
        "and its parameters in stage 3, with prefetch those of the next one, too.",
        edit(("gradients = 2 * largest", "gradients = 0"), (STAGE_3, STAGE_3.replace("(4 if ahead else 2)", "0"))),
        edit(("gradients = 2 * largest", "gradients = 0")),
        edit((STAGE_2, STAGE_2.replace(" + gradients", ""))),
        edit((STAGE_3, STAGE_3.replace(" + gradients", ""))),
        edit((STAGE_3, STAGE_3.replace("(4 if ahead else 2)", "0"))),
        edit((STAGE_3, STAGE_3.replace("(4 if ahead else 2)", "(4 if ahead else 0)"))),
        edit((STAGE_3, STAGE_3.replace("(4 if ahead else 2)", "2"))),
        by_chance=True,  # whether what is chosen fits all the same
    ),
    wrong(
        "full_units_too_many",
        "You count a full unit that is not there. In stage 2 its gradients are full, and its parameters are among "
        "all that stage holds; with prefetch there are two units of parameters, and one of gradients.",
        edit((STAGE_2, STAGE_2.replace("gradients", "2 * gradients"))),
        edit((STAGE_3, STAGE_3.replace("4 if", "6 if"))),
    ),
    wrong(
        "not_the_largest_unit",
        "Units have different numbers of parameters, and the largest must fit: neither the first, nor the last, "
        "nor what they have on average. With prefetch two such units count, not the largest and its neighbour.",
        edit((LARGEST, "largest = units(size)[0][1]")),
        edit((LARGEST, "largest = units(size)[-1][1]")),
        edit((LARGEST, "largest = n / len(units(size))")),
        edit(
            (LARGEST, f"{LARGEST}\n        {COUNTS}\n        {TWO}"),
            (STAGE_3, STAGE_3.replace("(4 if ahead else 2) * largest", "2 * (two if ahead else largest)")),
        ),
        by_chance=True,  # whether what is chosen fits all the same
    ),
    wrong(
        "stages_left_out",
        "Time all three stages: each is the best somewhere. Stage 1 reduces once a step, stage 2 may fit where it "
        "does not, and stage 3 has nothing to gather after the step.",
        choosing(stages="(1,)"),
        choosing(stages="(2,)"),
        choosing(stages="(3,)"),
        first("-each[0]"),
        choosing(stages="(2, 3)"),
        choosing(stages="(1, 3)"),
        choosing(stages="(1, 2)"),
        edit((STAGE_2, STAGE_2.replace("2 * n + 14", "4 * n + 12"))),
        first("each[0]"),
    ),
    wrong(
        "sizes_left_out",
        "Time all sizes: they stand in no order, and each may be the best. Small units pay many latencies; of "
        "large ones the first gather and the last reduce-scatter are long, and hidden behind nothing.",
        choosing(sizes="[min(sizes)]"),
        choosing(sizes="[max(sizes)]"),
        first("-each[1]"),
        choosing(sizes="sizes[1:]"),
        choosing(sizes="sizes[:-1]"),
        choosing(sizes="sorted(sizes)[1:]"),
        choosing(sizes="sorted(sizes)[:-1]"),
    ),
    wrong(
        "prefetch_left_out",
        "Time stage 3 with prefetch and without. It hides a gather behind the unit before, and needs room for a "
        "second unit.",
        choosing(ahead="(True,)"),
        choosing(ahead="(False,)"),
        gathered("end + turn(count)"),
    ),
    wrong(
        "latencies_of_a_turn",
        "A turn is P - 1 messages, one after another. Each has its own latency, and the time of its bytes: count "
        "both P - 1 times.",
        turns("(ranks - 1) * (2 * count / ranks / bandwidth)"),
        turns("latency + (ranks - 1) * (2 * count / ranks / bandwidth)"),
        turns("latency + 2 * count / bandwidth"),
        turns("latency + 2 * count / ranks / bandwidth"),
        turns("(ranks - 1) * latency"),
        by_chance=True,  # how much the drawn links punish it
    ),
    wrong(
        "bytes_of_a_turn",
        "Work out the messages of a turn: P - 1 of them, not P, nor twice as many, which would be an all-reduce. "
        "Each carries 1/P of the unit's parameters, 2 bytes of each, of gradients as well.",
        turns("ranks * (latency + 2 * count / ranks / bandwidth)"),
        turns("(ranks - 1) * (latency + 2 * count / bandwidth)"),
        turns("2 * (ranks - 1) * (latency + 2 * count / ranks / bandwidth)"),
        turns("(ranks - 1) * (latency + 4 * count / ranks / bandwidth)"),
        turns("(ranks - 1) * (latency + count / ranks / bandwidth)"),
    ),
    wrong(
        "gathers_too_early",
        "When does each gather begin? The first at once, and the first unit waits for it. The others when the unit "
        "before ends, or, with prefetch, when it begins to compute: one unit ahead, and no more.",
        gathered("begin + turn(count)"),
        edit(
            ("begin = end = over = 0.0", "begin = end = over = there = 0.0"),
            (THERE, "(there if ahead else end) + turn(count) if stage == 3 else end"),
        ),
        gathered("(begin if ahead else end) + (turn(count) if end else 0.0)"),
    ),
    wrong(
        "gathers_left_out",
        "Count the gathers of a micro-batch in stage 3. Each unit is freed after it has computed, and gathered on "
        "both ways; the last one, too.",
        gathered("(begin if ahead else end) + (turn(count) if times == 1 or (seconds, count) != own[-1] else 0.0)"),
        gathered("(begin if ahead else end) + (turn(count) if times == 1 else 0.0)"),
    ),
    wrong(
        "backward_as_forward",
        "Backward is not forward: it takes twice as long, and begins with the last unit. Nothing hides the "
        "reduce-scatter of the first one.",
        edit((WAY, WAY.replace("[2]", "[1.0]")), ("times == 2", "type(times) is float")),
        edit((WAY, WAY.replace("reversed(own)", "own"))),
    ),
    wrong(
        "rest_left_out",
        "The layers that are too few for a unit are missing. The last unit has them.",
        edit((PARTS, "for start in range(0, len(layers) - size + 1, size)]")),
    ),
    wrong(
        "too_little_hidden",
        "Something waits for a reduce-scatter that need not. It begins when its unit's backward is over, and "
        "backward and gathers go on meanwhile: only the end of the micro-batch waits.",
        gathered("end + turn(count)", (REDUCED, "end += turn(count)")),
        gathered("max(over, begin if ahead else end) + turn(count)"),
        edit((REDUCED, "over = end = end + turn(count)")),
        edit((REDUCED, "over += turn(count)"), (OVER, "return end + over")),
    ),
    wrong(
        "too_much_hidden",
        "Your reduce-scatters are over too early. Each begins when its unit's backward and the one before it is "
        "over, and the micro-batch ends with the last one.",
        edit((REDUCED, "over = max(over, end + turn(count))")),
        edit((REDUCED, "over += turn(count)")),
        edit((OVER, "return end")),
    ),
    wrong(
        "one_micro_batch",
        "You count one micro-batch. A step has several, and what each of them sends decides between the stages.",
        edit((OTHERS, "others = 0.0")),
    ),
    wrong(
        "micro_batches_that_reduce",
        "Which micro-batches reduce? In stage 1 the last alone: each rank has all gradients, and adds them up. In "
        "stages 2 and 3 every one: there is no room to keep them.",
        edit((OTHERS, OTHERS.replace("stage > 1", "True"))),
        edit((OTHERS, OTHERS.replace("stage > 1", "stage > 2"))),
        edit((OTHERS, OTHERS.replace("stage > 1", "False"))),
    ),
    wrong(
        "gathers_after_the_step",
        "What is gathered outside the micro-batches? In stages 1 and 2 all units, one by one, once a step: each rank "
        "steps its own shard alone; in stage 3 nothing: the next forward gathers each unit when it needs it.",
        edit((GATHERS, "* (often if stage == 2 else 1) " + GATHERS)),
        edit((GATHERS, "* often " + GATHERS)),
        edit((GATHERS, "if stage < 1 else 0.0")),
        edit((GATHERS, "if stage == 2 else 0.0")),
        edit((GATHERS, "if stage < 4 else 0.0")),
        edit(("sum(turn(count) for _, count in units(size))", "turn(n)")),
    ),
)
