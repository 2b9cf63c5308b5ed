"""What goes wrong in `choose_sharding`, as readings of the exercise, by what somebody must look at again.

Questions are drawn until each slip has chosen badly in one of them, and no two of different kinds choose alike in all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from course.exercises.fsdp.shardings import Choice, Question, Reading, Unit, in_units, ring_turn


def _only(looks_at: Callable[[Question, Choice], bool]) -> Reading:
    return Reading(looks_at=looks_at)


def _of_stages(stages: set[int]) -> Reading:
    return _only(lambda question, each: each[0] in stages)


def _with_its_neighbour(counts: list[int], ahead: bool) -> float:
    """With prefetch a third of the three full units: the largest one's gradients, and two in a row."""
    two = max(map(sum, itertools.pairwise(counts)), default=max(counts))
    return (max(counts) + two) / 3 if ahead else max(counts)


def _without_the_rest(layers: Sequence[Sequence[float]], size: int) -> list[Unit]:
    """Only whole units."""
    return in_units(layers[: len(layers) // size * size], size)


KINDS: dict[str, dict[str, Reading]] = {
    "limit_ignored": {
        "no limit": Reading(limit=False),
    },
    "bytes_by_stage": {
        "no states": Reading(held=(2, 2, 0)),
        "states of 8 bytes": Reading(held=(2, 2, 8)),
        "no gradients": Reading(held=(2, 0, 12)),
        "parameters of stage 2 sharded": Reading(sharded=(1, 3, 3)),
        "gradients of stage 1 sharded": Reading(sharded=(2, 2, 3)),
    },
    "full_units_left_out": {
        "no full unit": Reading(full=(0, 0, 0, 0)),
        "no full gradients": Reading(full=(0, 0, 1, 2)),
        "no full gradients in stage 2": Reading(full=(0, 0, 2, 3)),
        "no full gradients in stage 3": Reading(full=(0, 1, 1, 2)),
        "no full parameters": Reading(full=(0, 1, 1, 1)),
        "no full parameters without prefetch": Reading(full=(0, 1, 1, 3)),
        "no second unit": Reading(full=(0, 1, 2, 2)),
    },
    "full_units_too_many": {
        "full parameters in stage 2": Reading(full=(0, 2, 2, 3)),
        "gradients of two units": Reading(full=(0, 1, 2, 4)),
    },
    "not_the_largest_unit": {
        "the first unit": Reading(largest=lambda counts, ahead: counts[0]),
        "the last unit": Reading(largest=lambda counts, ahead: counts[-1]),
        "the mean unit": Reading(largest=lambda counts, ahead: sum(counts) / len(counts)),
        "the largest and its neighbour": Reading(largest=_with_its_neighbour),
    },
    "stages_left_out": {
        "always stage 1": _of_stages({1}),
        "always stage 2": _of_stages({2}),
        "always stage 3": _of_stages({3}),
        "never stage 1": _of_stages({2, 3}),
        "never stage 2": _of_stages({1, 3}),
        "never stage 3": _of_stages({1, 2}),
        "the lowest stage": Reading(first=lambda each: each[0]),
        "gradients of stage 2 whole": Reading(sharded=(1, 1, 3)),
    },
    "sizes_left_out": {
        "the smallest units": _only(lambda question, each: each[1] == min(question["sizes"])),
        "the largest units": _only(lambda question, each: each[1] == max(question["sizes"])),
        "the largest that fit": Reading(first=lambda each: -each[1]),
        "without the first size": _only(lambda question, each: each[1] != question["sizes"][0]),
        "without the last size": _only(lambda question, each: each[1] != question["sizes"][-1]),
        "without the smallest size": _only(lambda question, each: each[1] != min(question["sizes"])),
        "without the largest size": _only(lambda question, each: each[1] != max(question["sizes"])),
    },
    "prefetch_left_out": {
        "always prefetch": _only(lambda question, each: each[2] or each[0] < 3),
        "never prefetch": _only(lambda question, each: not each[2]),
    },
    "latencies_of_a_turn": {
        "no latency": Reading(turn=lambda p, wait, each, size: (p - 1) * size / p * each),
        "one latency": Reading(turn=lambda p, wait, each, size: wait + (p - 1) * size / p * each),
        "latencies alone": Reading(turn=lambda p, wait, each, size: (p - 1) * wait),
        "one message": Reading(turn=lambda p, wait, each, size: wait + size * each),
        "a part of each": Reading(turn=lambda p, wait, each, size: wait + size / p * each),
    },
    "bytes_of_a_turn": {
        "P messages": Reading(turn=lambda p, wait, each, size: p * wait + size * each),
        "whole units in messages": Reading(turn=lambda p, wait, each, size: (p - 1) * (wait + size * each)),
        "a turn of an all-reduce": Reading(turn=lambda p, wait, each, size: 2 * ring_turn(p, wait, each, size)),
        "4 bytes": Reading(turn=lambda p, wait, each, size: ring_turn(p, wait, each, 2 * size)),
        "parameters for bytes": Reading(turn=lambda p, wait, each, size: ring_turn(p, wait, each, size / 2)),
    },
    "gathers_too_early": {
        "prefetch for all": Reading(gather=lambda begin, end, there, over, ahead: begin),
        "all is gathered at once": Reading(gather=lambda begin, end, there, over, ahead: there if ahead else end),
        "no first gather": Reading(begins=False),
    },
    "gathers_left_out": {
        "the last unit is kept": Reading(again=(False, True)),
        "backward gathers nothing": Reading(again=(False, False)),
    },
    "backward_as_forward": {
        "backward as long": Reading(backward=1),
        "layer 0 first": Reading(reversed=False),
    },
    "rest_left_out": {
        "the rest left out": Reading(grouped=_without_the_rest),
    },
    "too_little_hidden": {
        "one network": Reading(gather=lambda begin, end, there, over, ahead: max(over, begin if ahead else end)),
        "backward waits": Reading(waits=True),
        "reduced after backward": Reading(
            reduced=lambda over, end, turn: over + turn, ends=lambda end, over: end + over
        ),
        "nothing hidden": Reading(waits=True, gather=lambda begin, end, there, over, ahead: end),
    },
    "too_much_hidden": {
        "no queue": Reading(reduced=lambda over, end, turn: max(over, end + turn)),
        "the longer of both": Reading(reduced=lambda over, end, turn: over + turn),
        "all is hidden": Reading(ends=lambda end, over: end),
    },
    "one_micro_batch": {
        "one micro-batch": Reading(micro_batches=False),
    },
    "micro_batches_that_reduce": {
        "stage 1 reduces each": Reading(each=(1, 2, 3)),
        "stage 2 reduces the last": Reading(each=(3,)),
        "all reduce the last": Reading(each=()),
    },
    "gathers_after_the_step": {
        "stage 2 gathers for each": Reading(after_each=(2,)),
        "all gather for each": Reading(after_each=(1, 2)),
        "no gather after": Reading(after=()),
        "only stage 2 gathers": Reading(after=(2,)),
        "all gather after": Reading(after=(1, 2, 3)),
        "all units at once": Reading(at_once=True),
    },
}
SLIPS = {name: reading for kind in KINDS.values() for name, reading in kind.items()}
UNIT = {name for kind in ("full_units_left_out", "full_units_too_many", "not_the_largest_unit") for name in KINDS[kind]}
UNFIT = {  # these take what does not fit
    "always prefetch",
    "no limit",
    *UNIT,
    *KINDS["bytes_by_stage"],
    *KINDS["rest_left_out"],
} - {*KINDS["full_units_too_many"]}
