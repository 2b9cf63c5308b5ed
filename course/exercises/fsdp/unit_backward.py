"""`unit_backward(comm, shard, shapes, saved, dy)`: one unit backward, with gathered parameters and scattered gradients.

What forward saved is given, as are the shards; a stack of units goes backward, and its shards of gradients stay. Each
unit has a dy of its own, so that a wrong dx spoils no other unit's gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.cluster import Comm
from course.errors import WrongOutput
from course.exercises.fsdp import units
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs

USUAL, UNEVEN, ONE, DOUBLE = "2 ranks", "3 ranks, which do not divide, float64", "one rank", "4 ranks, float64"
FEW, DEEP = "5 ranks, fewer numbers than fill them", "a deep stack"
STAYS = 5.6  # units: more than anybody copies for one of them, less than six leave behind


def cases(rng: torch.Generator) -> list[Case]:
    """Stacks of units of different sizes, and one whose memory is measured."""
    return [
        units.case(rng, USUAL, 2, [(4, 3), (2, 3)]),
        units.case(rng, UNEVEN, 3, [(5, 4), (4, 4)], dtype=torch.float64),  # 40 and 32 numbers
        units.case(rng, ONE, 1, [(3, 2), (2, 2)], batch=1),
        units.case(rng, DOUBLE, 4, [(6, 4), (3, 4), (2, 4)], dtype=torch.float64),
        units.case(rng, FEW, 5, [(1, 3), (2, 3)], positive=True),  # 6 numbers in shards of 2
        units.deep(rng, DEEP),
    ]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """The stack backward: every dx, and the shards of gradients."""
    shards, shapes = units.shards_of(inputs, comm.size, comm.rank), units.shapes_of(inputs)
    saved = _forward(inputs)
    dxs: list[Any] = []
    gradients: list[Tensor] = []
    dtypes, writes = {"dx": True, "dshard": True}, 0
    for number in reversed(range(len(shards))):
        dy, before = inputs["dy"].roll(number, 1), units.marks(shards[number : number + 1])
        one = outputs(answer(comm, shards[number], shapes[number], saved[number], dy), "dx", "dshard")
        dxs.append(_tensor("dx", one["dx"], dy.shape).clone())
        gradients.append(_tensor("dshard", one["dshard"], shards[number].shape))
        dtypes = {name: same and one[name].dtype == dy.dtype for name, same in dtypes.items()}
        writes += units.marks(shards[number : number + 1]) != before
    units.room(inputs, 3)  # what a call may hold
    pieces: list[Any] = [
        _parts(units.piece(inputs, number, each, comm.size, comm.rank), shape[0].numel(), comm.rank * len(each))
        for number, shape, each in zip(reversed(range(len(shards))), reversed(shapes), gradients, strict=True)
    ]
    return observe({"dx": dxs, "dshard": pieces, "dtypes": {**dtypes}, "writes": writes})


def _parts(shard: Tensor, n: int, start: int) -> dict[str, Tensor]:
    """What of a shard that begins at this element belongs to a, to b and to neither, without what is empty."""
    cuts = [min(max(edge - start, 0), len(shard)) for edge in (0, n, 2 * n, start + len(shard))]
    parts = {name: shard[low:high] for name, low, high in zip("ab0", cuts, cuts[1:], strict=False)}
    return {name: part for name, part in parts.items() if len(part)}


def _forward(inputs: Inputs) -> list[dict[str, Tensor]]:
    """What the units save, computed without their copies."""
    x, saved = inputs["x"], []
    for number, (a, b) in enumerate(zip(inputs["a"], inputs["b"], strict=True)):
        t = torch.tanh(x @ a.T)
        saved.append({"x": x, "t": units.columns(inputs, number, t)})
        x = x + t @ b
    return saved


def _tensor(name: str, value: object, shape: torch.Size) -> Tensor:
    """Raises WrongOutput where it is none of this shape."""
    if not isinstance(value, Tensor) or value.shape != shape:
        came = f"one of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r:.60}"
        raise WrongOutput(f"{name} must be a tensor of shape {tuple(shape)}, got {came}")
    return value


EXERCISE = Exercise(
    id="fsdp.unit_backward",
    cases=cases,
    probe=probe,
    split=units.split,
    verbs=("all_gather", "reduce_scatter", "all_reduce", "broadcast", "gather", "scatter", "reduce"),
    properties=(
        Property(
            "dx",
            "Two ways lead from y to x: x itself, and through b, the tanh (whose derivative is 1 - t * t) and a. All "
            "is in the dtype of the shard.",
            points=2,
            keys=("*/dx/*", "*/dtypes/dx"),
            cases=(USUAL, UNEVEN, ONE, DOUBLE),
        ),
        Property(
            "da",
            "The gradient of a comes first in the flat gradient. It needs dy, b, the derivative of the tanh, and x. "
            "Rank r gets part r of the mean over ranks, in a tensor of its own: the shard keeps its parameters.",
            points=2,
            keys=("*/dshard/*/a", "*/dtypes/dshard", "*/writes"),
            cases=(USUAL, ONE, DOUBLE),
        ),
        Property(
            "db",
            "The gradient of b follows that of a. It needs t and dy alone. Rank r gets part r of the mean over ranks.",
            keys=("*/dshard/*/b",),
            cases=(USUAL, ONE, DOUBLE),
        ),
        Property(
            "padding",
            "Where the ranks do not divide the number of elements, the flat gradient is longer than a and b, with "
            "zeros at the end, and every rank's part has the shape of its shard.",
            keys=("*/dshard/*",),
            cases=(UNEVEN, FEW),
            needs=("da", "db"),
        ),
        Property(
            "one_of_each",
            "One all_gather brings the parameters, and one reduce_scatter the gradients.",
            evidence="ledger",
            holds=units.calls("all_gather", "reduce_scatter"),
            beside=("*/dshard/*",),
            cases=(USUAL, DOUBLE),
            needs=("da", "db"),
        ),
        Property(
            "bytes",
            "A rank needs the mean of its own part of the gradient, and not of all: a reduce_scatter sends half of "
            "what an all_reduce does.",
            points=2,
            evidence="ledger",
            holds=units.traffic(2),
            beside=("*/dshard/*",),
            shows="bytes_sent",
            cases=(USUAL, DOUBLE),
            needs=("da", "db"),
        ),
        Property(
            "freed",
            "Full parameters or full gradients of several units are alive. What you return is kept until the "
            "optimizer's step: a shard that is a view of the full gradient keeps all of it.",
            points=2,
            evidence="ledger",
            holds=units.memory(STAYS, shards=2, sent=2),
            beside=("*/dshard/*",),
            shows="live_bytes",
            roundings=units.SUM,
            cases=(DEEP,),
            needs=("da", "db"),
        ),
        Property(
            "memory",
            "More is alive at once than one unit's full parameters, its full gradients and one copy of either. What "
            "cat makes is a copy, what pad makes of it another, even if it adds nothing, and what you keep between "
            "calls is alive, too: delete what was used.",
            evidence="ledger",
            holds=units.memory(3.25, shards=2, sent=2),
            beside=("*/dshard/*",),
            shows="live_bytes",
            roundings=units.SUM,
            cases=(DEEP,),
            needs=("da", "db"),
        ),
    ),
    hints=(
        "The gradients of a and b: which tensors does each need, and which of them is not in saved? What does a rank "
        "do with the gradient of numbers that it does not hold?",
        "With dt = (dy b') * (1 - t * t): db = t' dy, da = dt' x, and dx has two terms. Write da and db into views "
        "of a flat tensor like the full parameters.",
        "Gather as in forward. Make zeros of P * m numbers for the gradients, fill the places of a and b, let go of "
        "the parameters, reduce_scatter with the mean into a tensor like the shard.",
    ),
    promises={
        "rank `comm.rank` of P = `comm.size`": (ONE, USUAL, DOUBLE),
        "two times (h, d)": ("dx",),
        "zeros at the end where P does not divide their number": ("padding",),
        "float32 or float64": (USUAL, DOUBLE),
        "P may be larger than what is left for the last ranks": (FEW,),
        "as forward left it": ("dx", "da", "db"),
        "the gradient of this rank's own loss": ("dx",),
        "the mean over all ranks of their flat gradients": ("da", "db"),
        "zeros where the shard has its padding": ("padding",),
        "both in the dtype of shard": ("dx", "da"),
        "The shard is not changed": ("da",),
        "one all_gather and one reduce_scatter": ("one_of_each", "bytes"),
        "never more than one unit's full parameters, its full gradients and one copy of either": ("memory",),
        "nothing full is left after the call": ("freed",),
    },
    measured=(DEEP,),
    seconds=20.0,
)
