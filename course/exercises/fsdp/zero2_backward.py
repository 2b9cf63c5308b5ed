"""`zero2_backward(comm, loss, buckets)`: backward, in which a bucket of gradients is scattered and freed when complete.

The model is a stack of the residual blocks of `units`, whole on every rank: parameter 2 * i is a of block i, 2 * i + 1
its b. A rank may leave out blocks, or use one twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from course.cluster import Comm
from course.errors import WrongOutput
from course.exercises.fsdp import units
from course.meter import hooks_called
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

USUAL, UNEVEN, ONE, TIED = "2 ranks", "4 ranks, which do not divide", "one rank", "a tied layer"
ON_ONE, NOWHERE, AFTERWARDS = "layers that some ranks do not use", "a layer that nobody uses", "backward, afterwards"
DEEP, FEW = "a deep stack", "5 ranks, fewer numbers than fill them"
VALUES = ("*/shards/*",)
UNLIKE = [(4, 3), (2, 3), (3, 3), (1, 3)]  # parameters of one bucket differ in size, and those of the last are vectors
LAYERS = 6  # of the deep stack
TOGETHER = 2  # layers in a bucket of the deep stack, so that a bucket is more than the layer at work
ONE_BUCKET, PILED = 4.15, 5.8  # units: less than all gradients in rows, and than those in .grad and a copy of a bucket


def cases(rng: torch.Generator) -> list[Case]:
    """Which layers each rank uses, in which order, and the buckets as lists of parameters."""

    def case(name: str, uses: list[list[int]], buckets: list[list[int]], shape: Any = (4, 3), **more: Any) -> Case:
        shapes = shape if isinstance(shape, list) else [shape] * (1 + max(map(max, buckets)) // 2)
        return _with(units.case(rng, name, len(uses), shapes, **more), uses, buckets)

    layerwise = [[5, 4], [3, 2], [1, 0]]
    deep, backwards = units.deep(rng, DEEP, LAYERS), [*reversed(range(2 * LAYERS))]
    return [
        case(USUAL, [[0, 1, 2]] * 2, layerwise),
        case(UNEVEN, [[0, 1, 2]] * 4, [[5], [2, 4, 3], [1, 0]], (5, 2), dtype=torch.float64),
        case(FEW, [[0, 1]] * 5, [[3], [2, 1, 0]], (2, 1), positive=True),
        case(ONE, [[0, 1]], layerwise),  # which leaves one out
        case(TIED, [[0, 1, 0, 2]] * 2, layerwise),
        case(ON_ONE, [[0, 2, 3], [0, 1, 2], [0, 1, 2, 3]], [[7, 6, 5, 4], [3, 2], [1, 0]], UNLIKE, dtype=torch.float64),
        case(NOWHERE, [[0, 2]] * 2, layerwise),
        case(AFTERWARDS, [[0, 1, 2]] * 2, [[7, 6], *layerwise]),
        _with(
            deep,
            [[*range(LAYERS)]] * len(deep.inputs["x"]),  # type: ignore[arg-type]
            [backwards[at : at + 2 * TOGETHER] for at in range(0, len(backwards), 2 * TOGETHER)],
        ),
    ]


def _with(case: Case, uses: Any, buckets: Any) -> Case:
    case.inputs.update(uses=uses, buckets=buckets)
    return case


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its x and the layers that it uses; the parameters are those of all."""
    parts = zip(units.split(inputs), inputs["uses"], strict=True)
    shared = {"buckets": inputs["buckets"], "outside": "outside" in inputs}
    return [{**part, **shared, "uses": uses} for part, uses in parts]


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """One call: its shards, and what it leaves behind."""
    copies = inputs["copies"]
    params: list[Parameter] = []
    for number, shapes in enumerate(units.shapes_of(inputs)):
        a, b = (inputs["x"].new_empty(shape) for shape in shapes)
        units.fill(inputs, number, a, b)
        params += [Parameter(each[0] if len(each) == 1 else each) for each in (a, b)]

    there: list[int] = []  # how many gradients are in .grad when backward comes to the first layer used

    def look(gradient: Tensor) -> None:
        there.append(sum(p.grad is not None for p in params))

    passes: list[None] = []  # one for each time that backward begins with the last layer used

    def loss(watched: bool) -> Tensor:
        x = inputs["x"]
        for place, layer in enumerate(inputs["uses"]):
            a, b = (each.view(-1, x.shape[1]) for each in params[2 * layer : 2 * layer + 2])
            x = x + torch.tanh(x @ a.T) @ b
            if copies > 1 and place == 0:
                x.register_hook(look)
        if watched:
            x.register_hook(lambda gradient: passes.append(None))
        total: Tensor = (x * inputs["dy"]).sum()
        return total

    buckets = [[params[number] for number in bucket] for bucket in inputs["buckets"]]
    with units.filled(inputs["outside"]):
        shards = answer(comm, loss(watched=True), buckets)
    pieces: Any = _mixed(inputs, comm, shards) if copies > 1 else shards
    left = [p.grad is not None for p in params]
    hooks = sum(len(p._post_accumulate_grad_hooks or ()) + len(p._backward_hooks or ()) for p in params)
    hooks = hooks or (hooks_called(loss(watched=False)) if copies == 1 else 0)
    late = {"late": max(there, default=0) > max(map(len, inputs["buckets"]))} if copies > 1 else {}
    alike = all(isinstance(each, Tensor) and each.dtype == params[0].dtype for each in shards)
    left_over: Any = {"grads": sum(left), "hooks": hooks}
    return observe({"shards": pieces, "alike": alike, "passes": len(passes), "left": left_over, **late})


def _mixed(inputs: Inputs, comm: Comm, shards: Any) -> list[Tensor]:
    """What the shards of large buckets are mixed to: of each rank they are one parameter. Raises WrongOutput."""
    shape, own = units.shapes_of(inputs)[0][0], [bucket[comm.rank] for bucket in inputs["buckets"]]
    if [getattr(each, "shape", None) for each in shards] != [(shape.numel(),)] * len(own):
        raise WrongOutput(f"must return {len(own)} shards of shape {(shape.numel(),)}, got {shards!r:.60}")
    return [
        units.mixed(inputs, number // 2, each.view(shape), shared=number % 2 == 0)
        for number, each in zip(own, shards, strict=True)
    ]


def _buckets(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no rank sends more than one reduce-scatter of each bucket does."""
    ranks, sent = len(inputs["x"]), got["bytes_sent"]
    each = inputs["a"][0].numel()
    sizes = [-(-each * len(bucket) // ranks) for bucket in inputs["buckets"]]
    most = (ranks - 1) * sum(sizes) * inputs["a"][0].itemsize
    assert isinstance(sent, Tensor)
    rank = int(sent.argmax())
    return None if sent[rank] <= most else f"rank {rank} sent {int(sent[rank])} bytes, where {most} are enough"


def _calls(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: every rank calls reduce_scatter once for each bucket."""
    made, count = got.get("calls/reduce_scatter"), len(inputs["buckets"])
    most = int(made.max()) if isinstance(made, Tensor) else 0
    return None if most == count else f"{most} calls of reduce_scatter for {count} buckets"


def _held(full: float) -> units.Holds:
    """What `Property.holds` takes: besides all parameters, their shards of gradients and so many buckets."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        return units.memory(full + len(inputs["a"]), shards=1, sent=1)(inputs, got, expected)

    return holds


EXERCISE = Exercise(
    id="fsdp.zero2_backward",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("reduce_scatter", "all_reduce", "reduce", "all_gather"),
    properties=(
        Property(
            "shards",
            "Rank r gets part r of the mean over ranks of each bucket's gradients, one after the other as they stand "
            "in the bucket. A bucket is complete when the last of its gradients is there, whichever that is: in "
            ".grad, where a hook of register_hook does not find it yet.",
            keys=VALUES,
            cases=(USUAL, TIED),
        ),
        Property(
            "one_rank",
            "On one rank a bucket's shard is all of its gradients, one after the other as they stand in the bucket.",
            keys=VALUES,
            cases=(ONE,),
        ),
        Property(
            "scattered_afterwards",
            "Where the first bucket is never complete, none can be scattered during backward. When it is over all "
            "are, in the order of the list.",
            keys=VALUES,
            cases=(AFTERWARDS,),
        ),
        Property(
            "padding",
            "Where the ranks do not divide a bucket's elements, zeros follow at the end, so that all parts are "
            "alike, in the dtype of the parameters.",
            keys=(*VALUES, "*/alike"),
            cases=(UNEVEN, FEW),
        ),
        Property(
            "unused_parameters",
            "A parameter that this rank has not used gets no gradient and calls no hook. It counts as zeros, and all "
            "ranks must begin the same buckets in the same order all the same: that of the list.",
            points=2,
            keys=VALUES,
            cases=(ON_ONE, NOWHERE),
            needs=("shards",),
        ),
        Property(
            "nothing_left",
            "After the call no parameter has a .grad, and none has a hook: what was scattered is freed, and the next "
            "backward begins anew.",
            keys=("*/left/*",),
            cases=(USUAL, AFTERWARDS, ONE, NOWHERE),
            needs=("shards",),
        ),
        Property(
            "one_pass",
            "Backward goes through the layers more than once. Where each bucket has a pass of its own, the gradients "
            "of the last layers are computed in all of them: call loss.backward() once, and let hooks do the rest.",
            keys=("*/passes",),
            cases=(USUAL, UNEVEN, DEEP),
            needs=("shards",),
        ),
        Property(
            "one_of_each",
            "One reduce_scatter takes all gradients of a bucket, one after the other in one tensor.",
            evidence="ledger",
            holds=_calls,
            beside=VALUES,
            cases=(USUAL, UNEVEN),
            needs=("shards",),
        ),
        Property(
            "bytes",
            "A rank needs the mean of its own part of a bucket, and not of all of it.",
            points=2,
            evidence="ledger",
            holds=_buckets,
            beside=VALUES,
            shows="bytes_sent",
            cases=(USUAL, UNEVEN),
            needs=("shards",),
        ),
        Property(
            "let_go",
            "Backward is at the first layer, and gradients of several buckets are still in .grad. Scatter a bucket "
            "in the hook that brings its last gradient, and set .grad to None there.",
            keys=("*/late", *VALUES),
            roundings=2 * LAYERS * units.SUM,  # there and back
            cases=(DEEP,),
            needs=("shards",),
        ),
        Property(
            "few_buckets",
            "Full gradients of most buckets are alive at once: in .grad, or in tensors that were scattered and that "
            "something still leads to. A Work holds its tensors, too.",
            evidence="ledger",
            holds=_held(PILED),
            beside=VALUES,
            shows="live_bytes",
            roundings=2 * LAYERS * units.SUM,  # there and back
            cases=(DEEP,),
            needs=("shards",),
        ),
        Property(
            "memory",
            "More is alive at once than the full gradients of one bucket, a copy of them, and those that the layer "
            "at work has just made. Wait for a bucket before you put the next one together.",
            evidence="ledger",
            holds=_held(ONE_BUCKET),
            beside=VALUES,
            shows="live_bytes",
            roundings=2 * LAYERS * units.SUM,  # there and back
            cases=(DEEP,),
            needs=("shards",),
        ),
    ),
    hints=(
        "Who knows that the last gradient of a bucket is there? And what of it is still needed a moment later?",
        "As with buckets that are all-reduced: a hook on each parameter counts down what its bucket misses, and "
        "buckets begin in the order of the list. What is new is what becomes of .grad.",
        "To scatter a bucket: room of P * m zeros, gradients copied in one after the other and set to None, "
        "reduce_scatter with the mean into m numbers. At the end remove the hooks, and scatter what is left.",
    ),
    promises={
        "rank `comm.rank` of P = `comm.size`": (ONE, USUAL, DEEP),
        "this rank's loss": ("shards",),
        "of any shapes, all of one dtype, float32 or float64": (USUAL, UNEVEN, ON_ONE),
        "and each contiguous and in one bucket, which all require a gradient and have none yet": ("shards",),
        "in the order in which they are to be scattered": ("unused_parameters", "scattered_afterwards", UNEVEN),
        "may be used several times, or not at all on some ranks or on all": (TIED, ON_ONE, NOWHERE),
        "of their dtype": ("shards", "padding"),
        "part r of the mean over all ranks": ("shards", "one_rank"),
        "with zeros at the end where P does not divide its elements": ("padding",),
        "a rank that did not use it counts with zeros": ("unused_parameters",),
        "one backward pass": ("one_pass",),
        "one reduce_scatter for each bucket": ("one_of_each", "bytes"),
        "scattered over the ranks and freed when it is complete": ("let_go",),
        "the full gradients of one bucket, and a copy of them": ("memory", "few_buckets"),
        "no `.grad` and no hook is left": ("nothing_left",),
        "The graph of loss may stay or go": ("shards", "memory"),
    },
    measured=(DEEP,),
    seconds=20.0,
)
