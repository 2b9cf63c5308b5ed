"""Bytes and seconds by stage, size of units and prefetch, and as they seem to somebody who has misread the exercise.

    question --times--> {choice: seconds, of those that fit} --misled(question, slip)--> how much longer a slip makes it

The slips stand in `sharding_slips.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Question: TypeAlias = dict[str, Any]  # "layers", "cluster", "sizes"
Choice: TypeAlias = tuple[int, int, bool]  # stage, layers in a unit, prefetch
Times: TypeAlias = dict[Choice, float]
Unit: TypeAlias = tuple[float, int]  # seconds, parameters
ALIKE = 1 + 1e-9  # times whose order is a matter of rounding


def ring_turn(ranks: int, latency: float, per_byte: float, size: float) -> float:
    return (ranks - 1) * (latency + size / ranks * per_byte)


def in_units(layers: Sequence[Sequence[float]], size: int) -> list[Unit]:
    groups = [layers[first : first + size] for first in range(0, len(layers), size)]
    return [(sum(seconds for seconds, _ in part), sum(int(count) for _, count in part)) for part in groups]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What somebody has read in the exercise: as it stands there, but for what a slip changes.

    held       bytes of a parameter, of its gradient and of its states
    sharded    of these, by stage, how many of the last ones are sharded
    full       full units of gradients and of parameters, by stage 1, 2, 3, and 3 with prefetch
    largest    parameters of the unit that counts; prefetch
    turn       seconds of a gather or reduce-scatter
    gather     when it begins: the unit before has begun, ended, been gathered; reduce-scatters are over; prefetch
    begins     whether the first gather takes time
    again      whether backward gathers the last unit, and the others
    reduced    when a reduce-scatter is over: that before is over, backward has ended, its seconds
    waits      whether backward waits for it
    ends       a micro-batch: units have ended, reduce-scatters are over
    each       stages that reduce in every micro-batch
    after      stages that gather after the step
    after_each stages that gather after the other micro-batches, too
    at_once    whether they gather all units in one turn
    micro_batches, limit  whether they count
    looks_at   at which choices
    first      of those that fit, what is taken whatever the time: where this is lowest
    """

    held: tuple[int, int, int] = (2, 2, 12)
    sharded: tuple[int, int, int] = (1, 2, 3)
    full: tuple[int, int, int, int] = (0, 1, 2, 3)
    largest: Callable[[list[int], bool], float] = lambda counts, ahead: max(counts)
    grouped: Callable[[Sequence[Sequence[float]], int], list[Unit]] = in_units
    turn: Callable[[int, float, float, float], float] = ring_turn
    backward: float = 2
    gather: Callable[[float, float, float, float, bool], float] = lambda begin, end, there, over, ahead: (
        begin if ahead else end
    )
    begins: bool = True
    again: tuple[bool, bool] = (True, True)
    reversed: bool = True
    reduced: Callable[[float, float, float], float] = lambda over, end, turn: max(over, end) + turn
    waits: bool = False
    ends: Callable[[float, float], float] = max
    each: tuple[int, ...] = (2, 3)
    after: tuple[int, ...] = (1, 2)
    after_each: tuple[int, ...] = ()
    at_once: bool = False
    micro_batches: bool = True
    limit: bool = True
    looks_at: Callable[[Question, Choice], bool] = lambda question, choice: True
    first: Callable[[Choice], float] = lambda choice: 0


RIGHT = Reading()


def choices(question: Question) -> list[Choice]:
    """All of them; stages 1 and 2 without prefetch, which changes nothing there."""
    kinds = ((1, False), (2, False), (3, False), (3, True))
    return [(stage, size, ahead) for size in question["sizes"] for stage, ahead in kinds]


def holds(question: Question, reading: Reading = RIGHT) -> dict[Choice, float]:
    """Bytes of a rank, for each choice."""
    return _holds(question, reading, _units(question, reading))


def _holds(question: Question, reading: Reading, units: dict[int, list[Unit]]) -> dict[Choice, float]:
    found = {}
    n, ranks = sum(count for _, count in question["layers"]), question["cluster"]["ranks"]
    for stage, size, ahead in choices(question):
        counts = [count for _, count in units[size]]
        split = 3 - reading.sharded[stage - 1]
        unit = 2 * reading.full[stage - 1 + (stage == 3 and ahead)] * reading.largest(counts, ahead)
        each = sum(reading.held[:split]) + sum(reading.held[split:]) / ranks
        found[stage, size, ahead] = float(n * each + unit)
    return found


def _units(question: Question, reading: Reading) -> dict[int, list[Unit]]:
    return {size: reading.grouped(question["layers"], size) for size in question["sizes"]}


def _takes(question: Question, choice: Choice, reading: Reading, units: list[Unit]) -> float:
    """Seconds of a step."""
    stage, _, ahead = choice
    cluster = question["cluster"]
    delay, bandwidth = cluster["link"]
    turns = [reading.turn(cluster["ranks"], delay, 1 / bandwidth, 2 * count) for _, count in units]
    way = [(seconds, turn) for (seconds, _), turn in zip(units, turns, strict=True)]

    def micro_batch(reduces: bool) -> float:
        there, over, begin, end = 0.0, 0.0, 0.0, 0.0
        back = [*reversed(way)] if reading.reversed else way
        for place, (seconds, turn) in enumerate([*way, *back]):
            is_back = place >= len(way)
            gathers = stage == 3 and (not is_back or reading.again[place > len(way)])
            if gathers and (place or reading.begins):
                there = reading.gather(begin, end, there, over, ahead) + turn
                begin = max(end, there)
            else:
                begin = end
            end = begin + (reading.backward if is_back else 1) * seconds
            if is_back and reduces:
                over = reading.reduced(over, end, turn)
                end = max(end, over) if reading.waits else end
        return reading.ends(end, over)

    others = cluster["micro_batches"] - 1 if reading.micro_batches else 0
    all_units = 2 * sum(count for _, count in units)
    turns = [reading.turn(cluster["ranks"], delay, 1 / bandwidth, all_units)] if reading.at_once else turns
    gathers = sum(turns) * ((stage in reading.after) + others * (stage in reading.after_each))
    last = micro_batch(True)
    return others * (last if stage in reading.each else micro_batch(False)) + last + gathers


def times(question: Question, reading: Reading = RIGHT) -> Times:
    """Seconds of each choice that fits, and of all where none seems to."""
    limit = question["cluster"]["limit"] if reading.limit else math.inf
    units = _units(question, reading)
    held = _holds(question, reading, units)
    every = [each for each in choices(question) if reading.looks_at(question, each)]
    fitting = [each for each in every if held[each] <= limit] or every
    lowest = min(map(reading.first, fitting))
    first = [each for each in fitting if reading.first(each) == lowest]
    return {each: _takes(question, each, reading, units[each[1]]) for each in first}


def best(found: Times) -> Choice:
    """The fastest."""
    return min(found, key=lambda each: found[each])


def alike(question: Question, reading: Reading) -> list[Choice]:
    """What seems best to who reads so: several may. The lowest stage first, without prefetch."""
    seems = times(question, reading)
    least = min(seems.values())
    return sorted(
        (each for each, seconds in seems.items() if seconds <= ALIKE * least), key=lambda each: (each[0], each[2])
    )


def misled(question: Question, took: Times, reading: Reading) -> tuple[float, float]:
    """How many times the best that takes which seems best to who reads so: at least, and the first of `alike`. What
    does not fit takes infinitely long.
    """
    chosen = [took.get(each, math.inf) / min(took.values()) for each in alike(question, reading)]
    return min(chosen), chosen[0]
