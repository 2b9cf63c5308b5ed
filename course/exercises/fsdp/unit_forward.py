"""`unit_forward(comm, shard, shapes, x)`: one unit forward, whose full parameters live only as long as they are used.

A stack of units goes forward, and everything that the answer returned stays, as until backward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.cluster import Comm
from course.errors import WrongOutput
from course.exercises.fsdp import units
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs

USUAL, UNEVEN, ONE, DOUBLE = "2 ranks", "3 ranks, which do not divide", "one rank", "4 ranks, float64"
FEW, DEEP = "5 ranks, fewer numbers than fill them", "a deep stack"
STAYS = 4.5  # units: more than anybody copies for one of them, less than six leave behind


def cases(rng: torch.Generator) -> list[Case]:
    """Stacks of units of different sizes, and one whose memory is measured."""
    return [
        units.case(rng, USUAL, 2, [(4, 3), (2, 3)]),
        units.case(rng, UNEVEN, 3, [(5, 4), (4, 4)]),  # 40 and 32 numbers
        units.case(rng, ONE, 1, [(3, 2), (2, 2)], batch=1),
        units.case(rng, DOUBLE, 4, [(6, 4), (3, 4), (2, 4)], dtype=torch.float64),
        units.case(rng, FEW, 5, [(1, 3), (2, 3)]),  # 6 numbers in shards of 2
        units.deep(rng, DEEP),
    ]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """The stack forward: every y, and what is saved."""
    shards, x = units.shards_of(inputs, comm.size, comm.rank), inputs["x"]
    writes, dtypes = 0, {"y": True, "saved": True}
    ys: list[Any] = []
    saved: list[dict[str, Tensor]] = []
    names: set[str] = set()
    for shard, shapes in zip(shards, units.shapes_of(inputs), strict=True):
        given, before = (x, shard), units.marks((x, shard))
        one = outputs(answer(comm, shard, shapes, x), "y", "saved")
        writes += units.marks(given) != before
        saved.append(_checked(one["saved"]))
        names |= {str(name) for name in one["saved"]}
        x = _matrix("y", one["y"])
        dtypes["y"] &= x.dtype == shard.dtype
        dtypes["saved"] &= all(saved[-1][name].dtype == shard.dtype for name in ("x", "t"))
        ys.append(x.clone())
    units.room(inputs, 2)  # what a call may hold
    pieces: list[Any] = [{"x": each["x"], "t": _hidden(inputs, number, each["t"])} for number, each in enumerate(saved)]
    graph = x.requires_grad or any(getattr(each, "requires_grad", False) for one in saved for each in one.values())
    seen: dict[str, Any] = {"y": ys, "saved": pieces, "names": " ".join(sorted(names)), "dtypes": {**dtypes}}
    return observe({**seen, "writes": writes, "graph": graph})


def _checked(saved: object) -> dict[str, Tensor]:
    """What is saved. Raises WrongOutput where it is no dict with matrices x and t."""
    if not isinstance(saved, dict) or not {"x", "t"} <= saved.keys():
        raise WrongOutput(f'saved must be a dict with "x" and "t", got {saved!r:.60}')
    for name in ("x", "t"):
        _matrix(f'saved["{name}"]', saved[name])
    return saved


def _hidden(inputs: Inputs, number: int, t: Tensor) -> Tensor:
    """What is observed of a unit's tanh: all, or a large one mixed. Raises WrongOutput where that has another shape."""
    if inputs["copies"] == 1:
        return t
    shape = len(inputs["x"]), inputs["copies"] * len(inputs["a"][number])
    if t.shape != shape:
        raise WrongOutput(f'saved["t"] must be a tensor of shape {shape}, got one of shape {tuple(t.shape)}')
    return units.mixed(inputs, number, t.T, shared=False).T


def _matrix(name: str, value: object) -> Tensor:
    """What should be a matrix. Raises WrongOutput where it is none."""
    if not isinstance(value, Tensor) or value.dim() != 2:
        raise WrongOutput(f"{name} must be a matrix with a row for each sample, got {value!r:.60}")
    return value


EXERCISE = Exercise(
    id="fsdp.unit_forward",
    cases=cases,
    probe=probe,
    split=units.split,
    verbs=("all_gather", "all_reduce", "broadcast", "gather", "scatter"),
    properties=(
        Property(
            "values",
            "y = x + tanh(x a') b, in the dtype of the shard. In the gathered shards a comes first, row by row, then "
            "b, and then perhaps zeros.",
            points=2,
            keys=("*/y/*", "*/dtypes/y"),
            cases=(USUAL, ONE, DOUBLE),
        ),
        Property(
            "padding",
            "Where the ranks do not divide the number of elements, the shards end with zeros that belong to no "
            "tensor: count from the beginning.",
            keys=("*/y/*",),
            cases=(UNEVEN, FEW),
        ),
        Property(
            "saved",
            'Backward asks for "x", as it was given, and for "t", the tanh: parameters and these give all gradients.',
            keys=("*/saved/*", "*/dtypes/saved"),
            cases=(USUAL, DOUBLE),
        ),
        Property(
            "nothing_else_saved",
            'What is saved stays until backward, for each unit: "x" and "t", and no third entry, of what they or '
            "another gathering will give again.",
            keys=("*/names", "*/saved/*"),
            cases=(USUAL, DOUBLE),
            needs=("saved",),
        ),
        Property(
            "unchanged",
            "x is the y of the unit before, and the shard belongs to the optimizer: a new tensor for y.",
            keys=("*/writes",),
            cases=(USUAL, DOUBLE),
            needs=("values",),
        ),
        Property(
            "one_gather",
            "One all_gather of the whole shard brings all tensors of the unit at once.",
            evidence="ledger",
            holds=units.calls("all_gather"),
            beside=("*/y/*",),
            cases=(USUAL, DOUBLE),
            needs=("values",),
        ),
        Property(
            "bytes",
            "Every rank sends its shard to all others, and nothing else: P - 1 times the bytes of a shard.",
            evidence="ledger",
            holds=units.traffic(1),
            beside=("*/y/*",),
            shows="bytes_sent",
            cases=(USUAL, DOUBLE),
            needs=("values",),
        ),
        Property(
            "no_graph",
            "What you return requires a gradient: a graph of autograd is behind it, and keeps all that it needs.",
            keys=("*/graph",),
            cases=(USUAL, DOUBLE, DEEP),
            needs=("values",),
        ),
        Property(
            "freed",
            "Full parameters of several units are alive. Nothing that outlives the call may lead to them: no entry "
            "of saved, no view, no global, and no graph of autograd.",
            points=2,
            evidence="ledger",
            holds=units.memory(STAYS, shards=1, sent=1),
            beside=("*/y/*", "*/saved/*"),
            shows="live_bytes",
            roundings=units.DEEP * units.SUM,  # each unit hands its own on
            cases=(DEEP,),
            needs=("values", "saved"),
        ),
        Property(
            "memory",
            "More is alive at once than the full parameters of one unit and one copy of them. A list of parts, what "
            "cat makes of it, and each clone are all as large as the unit, as is a room that you keep between calls.",
            evidence="ledger",
            holds=units.memory(2.3, shards=1, sent=1),
            beside=("*/y/*", "*/saved/*"),
            shows="live_bytes",
            roundings=units.DEEP * units.SUM,  # each unit hands its own on
            cases=(DEEP,),
            needs=("values", "saved"),
        ),
    ),
    hints=(
        "How long are the full parameters needed? And which tensors will backward need, of which it can get some "
        "again from the other ranks?",
        "all_gather_single fills one tensor of P * m numbers, in the order of ranks. Views of it are a and b; a view "
        "that you return keeps all of it alive.",
        "Make room, gather, take the two views, compute t and y, return y with x and t. The room goes with the last "
        "name that leads to it, when the function returns.",
    ),
    promises={
        "rank `comm.rank` of P = `comm.size`": (ONE, USUAL, DOUBLE),
        "two times (h, d)": ("values",),
        "in the dtype of shard, as are y, x and t; as many samples on every rank": ("values", USUAL, DOUBLE, ONE),
        "this rank's part of the unit's flat parameters": ("values",),
        "with zeros at the end where P does not divide their number": ("padding",),
        "a and b, one after the other": ("values",),
        "float32 or float64": (USUAL, DOUBLE),
        "P may be larger than what is left for the last ranks": (FEW,),
        "the unit's output": ("values",),
        'a dict of what backward will need, "x" and "t"': ("saved",),
        "one all_gather of the shard": ("one_gather", "bytes"),
        "neither y nor what is saved requires a gradient": ("no_graph",),
        "and of nothing else": ("nothing_else_saved",),
        "never more than one unit's full parameters and one copy of them": ("memory",),
        "nothing full is left after the call": ("freed",),
        "Neither x nor shard is changed": ("unchanged",),
    },
    measured=(DEEP,),
    seconds=20.0,
)
