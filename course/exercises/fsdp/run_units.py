"""`run_units(comm, shards, forward, backward, x, dy, prefetch)`: the schedule of a step through sharded units.

The units are the residual blocks of `units`; their forward and backward are ours, and say how long they take. Each of
them needs room besides: so that both passes have the same peak, forward takes as much as backward's gradients do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import torch
from torch import Tensor

from course.cluster import Comm, Link
from course.errors import WrongOutput
from course.exercises.fsdp import units
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe, outputs
from course.performing.schedules import about_as_long, same_seconds

USUAL, LATE = "2 ranks, units of unlike sizes", "4 ranks, equal units"
UNEVEN = "3 ranks, which do not divide, and prefetch"
ONE, ALONE = "one rank", "5 ranks, one unit, and prefetch"
EVEN, UNLIKE = "4 ranks, equal units, and prefetch", "3 ranks of unlike speed, and prefetch"
DEEP, DEEP_AHEAD = "a deep stack", "a deep stack, and prefetch"
GIVEN = ("*/y", "*/dx", "*/dshards/*")
LINK = Link()  # between any two ranks
RANKS = 4  # of the deep stack: so many that the shards of all gradients are no more than one unit
VALUES = (USUAL, UNEVEN, ONE, ALONE, LATE, EVEN, UNLIKE)


def cases(rng: torch.Generator) -> list[Case]:
    """Stacks of units, the seconds of their forward on each rank, and whether to gather early."""

    def case(
        name: str, ranks: int, shapes: list[tuple[int, int]], prefetch: bool, seconds: Any = 1e-5, **more: Any
    ) -> Case:
        return _with(units.case(rng, name, ranks, shapes, **more), prefetch, seconds)

    double, slow = torch.float64, [6e-5, 3e-5, 4e-5]
    deep = [(units.ROWS, units.WIDTH)] * 4
    return [
        case(USUAL, 2, [(4, 3), (2, 3), (3, 3)], False),
        case(UNEVEN, 3, [(5, 4), (4, 4), (2, 4)], True),
        case(ONE, 1, [(3, 2), (2, 2)], False, batch=1),
        case(ALONE, 5, [(1, 3)], True, positive=True),  # 6 numbers in shards of 2
        case(LATE, 4, [(4, 4)] * 6, False, 4e-5, dtype=double),
        case(EVEN, 4, [(4, 4)] * 6, True, 4e-5, dtype=double),
        case(UNLIKE, 3, [(4, 2), (2, 2), (3, 2), (1, 2), (5, 2)], True, slow, dtype=double),
        case(DEEP, RANKS, deep, False, batch=units.BATCH, dtype=double, copies=(units.FEW, units.MANY)),
        # an all-gather takes 0.66 ms where memory is measured
        case(DEEP_AHEAD, RANKS, deep, True, 1e-3, batch=units.BATCH, dtype=double, copies=(units.FEW, units.MANY)),
    ]


def _with(case: Case, prefetch: bool, seconds: Any) -> Case:
    ranks = len(cast(list[Tensor], case.inputs["x"]))
    by_rank = seconds if isinstance(seconds, list) else [seconds] * ranks
    return dataclasses.replace(case, inputs={**case.inputs, "prefetch": prefetch, "seconds": by_rank})


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its x and dy and how fast it is, and of all units what they are made of."""
    parts = zip(units.split(inputs), inputs["seconds"], strict=True)
    shared = {"prefetch": inputs["prefetch"], "outside": "outside" in inputs}
    return [{**part, **shared, "seconds": seconds} for part, seconds in parts]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """One step: y, dx and the shards of gradients."""
    shards, shapes = units.shards_of(inputs, comm.size, comm.rank), units.shapes_of(inputs)
    given, before = [*shards], units.marks(shards)
    prefetch, seconds = inputs["prefetch"], inputs["seconds"]

    def parameters(number: int, full: Tensor) -> list[Tensor]:
        _tensor("full", full, torch.Size((comm.size * len(shards[number]),)))
        a, b = shapes[number]
        return [full[: a.numel()].view(a), full[a.numel() : a.numel() + b.numel()].view(b)]

    def forward(number: int, full: Tensor, x: Tensor) -> Tensor:
        a, b = parameters(number, full)
        room = full.repeat(1 + prefetch)
        comm.compute(seconds, "forward")
        y = x + torch.tanh(x @ a.T) @ b
        del room
        return y

    def backward(number: int, full: Tensor, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        a, b = parameters(number, full)
        dfull = torch.zeros_like(full)
        da, db = parameters(number, dfull)
        comm.compute(2 * seconds, "backward")
        t = torch.tanh(x @ a.T)
        down = (dy @ b.T) * (1 - t * t)
        torch.mm(down.T, x, out=da)
        torch.mm(t.T, dy, out=db)
        return dy + down @ a, dfull

    with units.filled(inputs["outside"]):
        result = answer(comm, given, forward, backward, inputs["x"], inputs["dy"], prefetch)
    one = outputs(result, "y", "dx", "dshards")
    dshards = one["dshards"]
    if not isinstance(dshards, (list, tuple)) or len(dshards) != len(shards):
        raise WrongOutput(f"dshards must be a list of {len(shards)} tensors, got {dshards!r:.60}")
    own = [
        _tensor("a shard of gradients", *each) for each in zip(dshards, (each.shape for each in shards), strict=True)
    ]
    pieces: list[Any] = [units.piece(inputs, number, each, comm.size, comm.rank) for number, each in enumerate(own)]
    kept = {
        "dtype": all(each.dtype == shards[0].dtype for each in own),
        "shards": [*map(id, given)] == [*map(id, shards)] and units.marks(shards) == before,
    }
    return observe({"y": one["y"], "dx": one["dx"], "dshards": pieces, "kept": {**kept}})


def _tensor(name: str, value: object, shape: torch.Size) -> Tensor:
    """Raises WrongOutput where it is none of this shape."""
    if not isinstance(value, Tensor) or value.shape != shape:
        came = f"one of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r:.60}"
        raise WrongOutput(f"{name} must be a tensor of shape {tuple(shape)}, got {came}")
    return value


def _collectives(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: two all-gathers and one reduce-scatter of each unit at most, and nothing else."""
    count = len(inputs["a"])
    for key in (key for key in got if key.startswith("calls/")):
        verb, most = key.removeprefix("calls/"), {"calls/all_gather": 2 * count, "calls/reduce_scatter": count}
        made = int(cast(Tensor, got[key]).max())
        if made > most.get(key, 0):
            return f"{made} calls of {verb} for {count} units, where {most.get(key, 0)} are enough"
    return units.traffic(3)(inputs, got, expected)


def _other_seconds(got: Values, expected: Values) -> str | None:
    return None if same_seconds(got, expected) else "units do not compute for as long as they must"


def _other_work(inputs: Inputs, got: Values, expected: Values, in_one: int) -> str | None:
    """Whether units compute for other times than ours, or more than so many of them travel in one call, which takes no
    longer than one here.
    """
    if other := _other_seconds(got, expected):
        return other
    ranks, largest = len(inputs["x"]), int(cast(Tensor, got["largest"]).max())
    most = in_one * max((ranks - 1) * -(-2 * a.numel() // ranks) * a.itemsize for a in inputs["a"])
    return f"{largest} bytes are sent in one call, where {most} are enough" if largest > most else None


def _near(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: it takes about as long as ours."""
    return _other_work(inputs, got, expected, in_one=1) or about_as_long(got, expected)


def _apart(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: for each of its collectives a rank waits as long as ours, which overlaps none. The
    all_reduce of a unit sends as much as all_gathers of two.
    """
    if other := _other_work(inputs, got, expected, in_one=2):
        return other
    took, ours = _wait(got), _wait(expected)
    return (
        None
        if took >= 0.95 * ours
        else f"{took * 1e6:.0f} microseconds of waiting for each, where ours has {ours * 1e6:.0f}"
    )


def _held(full: float, ahead: int) -> units.Holds:
    """What `Property.holds` takes: so many units are full at most, and of what is on its way so many of each verb.

    What nobody has written yet takes no memory: the kernel does not see a tensor whose all-gather has only begun.
    """
    within = units.memory(full, shards=2, sent=2)

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        if too_much := within(inputs, got, expected):
            return too_much
        if ahead and (waits := _waits(inputs, got, expected)):
            return waits
        for key in (key for key in got if key.startswith("open/")):
            verb, most = key.removeprefix("open/"), int(cast(Tensor, got[key]).max())
            if most > ahead:
                return f"{most} calls of {verb} are on their way while a unit computes, where {ahead} may be"
        return None

    return holds


def _waits(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether nearly half of what must travel is waited for, where each unit computes for longer than one travels: who
    gathers ahead in one pass alone waits for half, who waits for each reduce-scatter for less, by half a unit of four.
    The all-gather of something else is no unit's.
    """
    if other := _other_seconds(got, expected):
        return other
    ranks, count = len(inputs["x"]), len(inputs["a"])
    part = units.unit_bytes(inputs, "peak_bytes" in got) / ranks
    travels = float(cast(Tensor, got["bytes_sent"]).max()) / ((ranks - 1) * part)  # as often as one unit
    waited = cast(float, got["makespan"]) - 3 * count * max(inputs["seconds"])
    beside = min(travels, 3 * count) - waited / ((ranks - 1) * (LINK.latency + part / LINK.bandwidth))
    if beside > 1.625 * count and cast(Tensor, got.get("open/all_gather", torch.zeros(1))).any():
        return None
    return "all-gathers are waited for that could have travelled while the unit before computed"


def _wait(values: Values) -> float:
    """Seconds that nobody computes, for each collective."""
    made = sum(int(cast(Tensor, values[key]).max()) for key in values if key.startswith("calls/"))
    return (cast(float, values["makespan"]) - float(cast(Tensor, values["computed"]).max())) / max(made, 1)


EXERCISE = Exercise(
    id="fsdp.run_units",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_gather", "reduce_scatter", "all_reduce"),
    properties=(
        Property(
            "forward",
            "Unit i takes what unit i - 1 gave, with its own full parameters, which are there when their all-gather "
            "was waited for.",
            keys=("*/y",),
            cases=VALUES,
        ),
        Property(
            "dx",
            "Backward goes from the last unit to the first. Each takes the x that its forward had, and the dx of the "
            "unit after it.",
            points=2,
            keys=("*/dx",),
            cases=VALUES,
            needs=("forward",),
        ),
        Property(
            "dshards",
            "For each unit, in the order of the shards, this rank's part of the mean over ranks of dfull: one "
            "reduce_scatter, which has been waited for when you return. It goes into a tensor like the shard, which "
            "keeps its parameters.",
            points=2,
            keys=("*/dshards/*", "*/kept/*"),
            cases=VALUES,
            needs=("dx",),
        ),
        Property(
            "collectives",
            "A unit is gathered for forward and once more for backward, and its gradients are scattered. Nothing "
            "else is sent.",
            evidence="ledger",
            holds=_collectives,
            beside=GIVEN,
            shows="bytes_sent",
            cases=(USUAL, UNEVEN, EVEN),
            needs=("dshards",),
        ),
        Property(
            "overlapped",
            "With prefetch, units and links could work at the same time, and one waits for the other. Begin the "
            "next all-gather before this unit computes, in both passes, and wait for a reduce-scatter when the unit "
            "after it has computed.",
            points=3,
            evidence="ledger",
            holds=_near,
            beside=GIVEN,
            shows="makespan",
            cases=(EVEN, UNLIKE),
            needs=("dshards",),
        ),
        Property(
            "one_after_another",
            "Without prefetch something still travels while a unit computes. Then an all-gather begins when its "
            "unit is needed, and is waited for at once, and so is a reduce-scatter.",
            evidence="ledger",
            holds=_apart,
            beside=GIVEN,
            shows="makespan",
            cases=(LATE,),
            needs=("dshards",),
        ),
        Property(
            "one_unit_held",
            "Without prefetch, more than one unit's full parameters and one's full gradients are alive. A name "
            "holds its tensor until it means another one, or is deleted: so it does while the next unit is gathered.",
            points=2,
            evidence="ledger",
            holds=_held(2.25, ahead=0),
            beside=GIVEN,
            shows="live_bytes",
            roundings=2 * units.DEEP * units.SUM,  # there and back
            cases=(DEEP,),
            needs=("dshards",),
        ),
        Property(
            "two_units_held",
            "With prefetch, more than two units' full parameters and two's full gradients are alive, or units are not "
            "gathered while others compute. A Work holds its tensors, too: let go of it when it was waited for.",
            points=2,
            evidence="ledger",
            holds=_held(4.25, ahead=1),
            beside=GIVEN,
            shows="live_bytes",
            roundings=2 * units.DEEP * units.SUM,  # there and back
            cases=(DEEP_AHEAD,),
            needs=("dshards",),
        ),
    ),
    hints=(
        "Write down what must be whole at each moment: while unit 3 computes forward, and while it computes "
        "backward. What of it is on its way?",
        "Both passes are one list of visits, 0 to n - 1 and back. A visit waits for its parameters, computes, and "
        "lets go of them. With prefetch the all-gather of the next visit begins before this one waits.",
        "Keep the x of each unit in a list. After backward of a unit wait for the reduce-scatter of the one before, "
        "then begin this one's. Delete what is full, and works, when they are no longer needed; wait for the last "
        "at the end.",
    ),
    promises={
        "rank `comm.rank` of P = `comm.size`": (ONE, USUAL, EVEN),
        "this rank's part of the unit's flat parameters": ("forward",),
        "zeros at the end where P does not divide": (UNEVEN, ALONE),
        "n units, at least one": (ALONE,),
        "may be of one or of unlike sizes": (USUAL, UNEVEN, EVEN),
        "in the order of the ranks": ("forward",),
        "from the x that its forward had": ("dx",),
        "ranks may be of unlike speed": (UNLIKE,),
        "the input of unit 0, and the gradient of what the last unit gives": ("forward", "dx"),
        "a unit is gathered when it is needed, and waited for": ("one_after_another",),
        "begins before this one computes": ("overlapped",),
        "this rank's part of the mean over ranks of dfull": ("dshards",),
        "in the dtype of the shards, which are not changed": ("dshards",),
        "two all_gathers and one reduce_scatter": ("collectives",),
        "may be kept between the passes, or gathered again": ("collectives",),
        "of one unit have, with prefetch of two": ("one_unit_held", "two_units_held"),
        "within 10%": ("overlapped",),
    },
    measured=(DEEP, DEEP_AHEAD),
    seconds=20.0,
)
