"""`overlapped_backward(comm, loss, buckets)`: the mean of gradients over ranks, reduced while backward goes on.

The layers are ours: their backward says `comm.compute(seconds)`, so that the virtual clock shows what overlaps; a stem
below them, without parameters, takes longer than all reductions. All but one case are in float64, in which the
reference's ledger is that of the same bytes, and both go through the same backward pass, number by number: in float32
it may lose more than the roundings that are usually allowed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from course.cluster import Comm
from course.meter import hooks_called
from course.performing.draws import normal
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    arguments_unchanged,
    observe,
)
from course.performing.schedules import about_as_long, same_seconds

WIDTH = 4
ONE, TIED, AFTERWARDS = "one rank, and a layer that it does not use", "a tied layer", "backward without it, afterwards"
EVEN, UNEVEN = "4 ranks, equal layers", "2 ranks, layers of two in a bucket"
ON_ONE, NOWHERE = "layers that some ranks do not use", "a layer that nobody uses, in float32"
STEM, HELD, TURNED = "backward goes on below", "the first bucket is complete last", "transposed weights"
SINGLE = "one bucket, and backward goes on below"
USUAL = ("2 ranks", "3 ranks, buckets of many sizes", TIED, EVEN, UNEVEN)
THROUGH = 256  # roundings of three layers forward and backward, where gradients may be a tenth of their terms


def cases(rng: torch.Generator) -> list[Case]:
    """Which layers each rank uses, in which order; parameter 2 * i is the matrix of layer i, 2 * i + 1 its gain.

    Where some ranks do not use all, one does: it makes no call that is made for something unused.
    """

    def case(
        name: str,
        uses: list[list[int]],
        buckets: list[list[int]],
        seconds: list[float],
        stem: float = 0.0,
        **more: Any,
    ) -> Case:
        layers, dtype = len(seconds), torch.float32 if name == NOWHERE else torch.float64
        inputs: dict[str, Any] = {
            "xs": [normal(rng, 2, WIDTH, dtype=dtype) for _ in uses],
            "weights": [normal(rng, WIDTH, WIDTH, dtype=dtype) / 2 for _ in range(layers)],
            "gains": [normal(rng, WIDTH, dtype=dtype) for _ in range(layers)],
            "uses": uses,
            "buckets": buckets,
            "seconds": seconds,
            "stem": stem,
            "turned": name == TURNED,
            "alone": name == AFTERWARDS,
        }
        return Case(name=name, inputs=inputs, **more)

    def layerwise(*layers: int) -> list[list[int]]:
        return [[2 * layer + 1, 2 * layer] for layer in layers]

    quick = 1e-5
    pairs = [[11, 10, 9, 8], [7, 6, 5, 4], [3, 2, 1, 0]]
    halves = [[7, 6, 5, 4], [3, 2], [1, 0]]
    return [
        case("2 ranks", [[0, 1, 2]] * 2, layerwise(2, 1, 0), [quick] * 3),
        case("3 ranks, buckets of many sizes", [[0, 1, 2]] * 3, [[5], [2, 4, 3], [1], [0]], [quick] * 3),
        case(TIED, [[0, 1, 0, 2]] * 2, layerwise(2, 1, 0), [quick] * 3),
        case(ONE, [[0, 1]], layerwise(2, 1, 0), [quick] * 3),
        case(EVEN, [[0, 1, 2, 3]] * 4, layerwise(3, 2, 1, 0), [8e-5] * 4),
        case(UNEVEN, [[0, 1, 2, 3, 4, 5]] * 2, pairs, [4e-5] * 2 + [1e-6] * 4),
        case(STEM, [[0, 1, 2, 3]] * 2, layerwise(3, 2, 1, 0), [1e-6] * 4, stem=1e-4),
        case(HELD, [[0, 1, 2, 3]] * 2, layerwise(0, 1, 2, 3), [1e-6] * 4, stem=1e-4),
        case(SINGLE, [[0, 1]] * 2, [[3, 2, 1, 0]], [1e-6] * 2, stem=1e-4),
        case(TURNED, [[0, 1, 2]] * 2, [[4, 5], [3, 2], [0, 1]], [quick] * 3),
        case(ON_ONE, [[0, 2, 3], [0, 1, 2, 3], [0, 1, 3]], halves, [quick] * 4),
        case(NOWHERE, [[0, 2]] * 2, layerwise(2, 1, 0), [quick] * 3),
        case(AFTERWARDS, [[0, 1, 2]] * 2, layerwise(3, 2, 1, 0), [quick] * 4, hard=True),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its x and the layers that it uses; the parameters are those of all."""
    shared = {name: inputs[name] for name in ("weights", "gains", "buckets", "seconds", "stem", "turned", "alone")}
    return [{**shared, "x": x, "uses": uses} for x, uses in zip(inputs["xs"], inputs["uses"], strict=True)]


class Backward(torch.autograd.Function):
    """The identity, whose backward takes virtual seconds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm, seconds: float) -> Tensor:
        """x itself."""
        ctx.comm, ctx.seconds = comm, seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *dy: Tensor) -> tuple[Tensor, None, None]:
        """dy itself, later."""
        ctx.comm.compute(ctx.seconds, "backward")
        return dy[0], None, None


def probe(answer: Answer, comm: Comm, inputs: Inputs) -> Observation:
    """One call, and the gradients after it; or those of a plain backward after that, and how many hooks are left."""
    weights = [each.t().contiguous().t() for each in inputs["weights"]] if inputs["turned"] else inputs["weights"]
    params = [Parameter(each) for pair in zip(weights, inputs["gains"], strict=True) for each in pair]
    given = [p.detach().clone() for p in params]
    buckets = [[params[number] for number in bucket] for bucket in inputs["buckets"]]

    def loss(x: Tensor) -> Tensor:
        if inputs["stem"]:
            x = cast(Tensor, Backward.apply(x.requires_grad_(), comm, inputs["stem"]))  # type: ignore[no-untyped-call]
        for layer in inputs["uses"]:
            weight, gain = params[2 * layer : 2 * layer + 2]
            x = cast(Tensor, Backward.apply(torch.sin(x @ weight) * gain, comm, inputs["seconds"][layer]))  # type: ignore[no-untyped-call]
        return x.square().mean()

    answer(comm, loss(inputs["x"]), buckets)
    numbers = {p: number for number, p in enumerate(params)}
    inputs["buckets"] = [[numbers[p] for p in bucket] for bucket in buckets]  # which may not be changed
    if not inputs["alone"]:
        return observe({"gradients": [p.grad for p in params]})
    for p, value in zip(params, given, strict=True):
        p.data, p.grad = value, None
    left = sum(len(p._post_accumulate_grad_hooks or ()) + len(p._backward_hooks or ()) for p in params)
    left += hooks_called(loss(2 * inputs["x"]))
    return observe({"alone": [p.grad for p in params], "hooks": left})


def _other_bytes(got: Values, expected: Values) -> str | None:
    """Whether ranks send something else than the gradients, or more in one call than a bucket; here a call of a few
    bytes takes as long as one of all.
    """
    (sent, ours), (largest, most) = (
        tuple(cast(Tensor, each[name]) for each in (got, expected)) for name in ("bytes_sent", "largest")
    )
    if not torch.equal(sent, ours):
        return f"ranks send {sent.tolist()} bytes, where gradients have {ours.tolist()}"
    if (largest > most).any():
        return f"ranks send {largest.tolist()} bytes in one call, where a bucket has {most.tolist()} at most"
    return None


def _one_for_each(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: every rank calls all_reduce once for each bucket."""
    if other := _other_bytes(got, expected):
        return other
    calls, buckets = cast(Tensor, got.get("calls/all_reduce", torch.zeros(1))), len(inputs["buckets"])
    others = [f"rank {rank} called all_reduce {count} times" for rank, count in enumerate(calls) if count != buckets]
    return f"{others[0]} for {buckets} buckets" if others else None


def _early(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: on every rank the first reduction begins before its layers are through."""
    if other := _other_bytes(got, expected):
        return other
    began, over = (cast(Tensor, got[name]) for name in ("began/all_reduce", "computed_at"))
    late = (began >= over).nonzero().flatten().tolist()
    return f"rank {late[0]} began to reduce when its backward was over" if late else None


def _near(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: it takes about as long as ours."""
    return _other_bytes(got, expected) or about_as_long(got, expected)


def _once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the layers went backward once."""
    if same_seconds(got, expected):
        return None
    took, ours = (float(cast(Tensor, each["computed"]).max()) for each in (got, expected))
    return f"{took * 1e6:.0f} microseconds of backward, where one has {ours * 1e6:.0f}"


EXERCISE = Exercise(
    id="ddp.overlapped_backward",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce",),
    properties=(
        Property(
            "means",
            "After the call every parameter's .grad is the mean over ranks of what backward gives on each. A bucket "
            "may begin when the last of its gradients is there, and be read when it was waited for.",
            points=3,
            keys=("*/gradients/*",),
            cases=USUAL,
        ),
        Property(
            "unused_parameters",
            "A parameter that this rank has not used gets no gradient and calls no hook. It counts as zeros of its own "
            "dtype, and all ranks must begin the same buckets in the same order all the same: that of the list.",
            points=2,
            keys=("*/gradients/*",),
            roundings=THROUGH,
            cases=(ON_ONE, NOWHERE, ONE),
            needs=("means",),
        ),
        Property(
            "any_strides",
            "The gradient of a transposed parameter is transposed, too. It has no view in one dimension: view(-1) "
            "raises, and what reshape(-1) and flatten() return is a copy, which you may read, but not write to.",
            keys=("*/gradients/*",),
            cases=(TURNED,),
            needs=("means",),
        ),
        Property(
            "one_reduction_for_each_bucket",
            "One all_reduce for each bucket: put its gradients one after the other into one tensor (torch.cat).",
            points=2,
            evidence="ledger",
            holds=_one_for_each,
            beside=("*/gradients/*",),
            cases=USUAL,
            needs=("means",),
        ),
        Property(
            "begins_during_backward",
            "The first bucket can travel while the layers before it are still at work. Begin it in the hook that "
            "brings its last gradient.",
            evidence="ledger",
            holds=_early,
            beside=("*/gradients/*",),
            cases=(EVEN, UNEVEN),
            needs=("means",),
        ),
        Property(
            "overlapped",
            "Backward or a link is idle where both could work. In a hook nothing may be waited for (async_op=True): "
            "wait for all buckets when backward is over.",
            points=2,
            evidence="ledger",
            holds=_near,
            beside=("*/gradients/*",),
            shows="makespan",
            cases=(EVEN, UNEVEN),
            needs=("means",),
        ),
        Property(
            "as_soon_as_complete",
            "A bucket that could begin waits. One gradient may be the last that several buckets waited for, and "
            "backward may go on after the last gradient of all, to what else the loss depends on. So a single bucket "
            "can begin during backward, too.",
            points=2,
            evidence="ledger",
            holds=_near,
            beside=("*/gradients/*",),
            shows="makespan",
            cases=(STEM, HELD, SINGLE),
            needs=("means",),
        ),
        Property(
            "one_backward",
            "Backward goes through the layers more than once. Hooks tell what is complete during the one backward.",
            evidence="ledger",
            holds=_once,
            beside=("*/gradients/*",),
            cases=(EVEN, UNEVEN),
            needs=("means",),
        ),
        Property(
            "hooks_removed",
            "What a hook's registration returns has remove(). One that is left reduces at the next backward, which the "
            "other ranks may not expect, and in the next call there are two.",
            keys=("*/alone/*", "*/hooks"),
            roundings=THROUGH,
            cases=(AFTERWARDS,),
            needs=("means",),
        ),
        dataclasses.replace(arguments_unchanged(needs=("means",)), cases=USUAL),
    ),
    hints=(
        "Who knows when the last gradient of a bucket is there? And who, when a parameter is not used at all?",
        "A hook on each parameter counts down what its bucket still misses. Begin buckets while the next one in the "
        "list misses nothing; what has not begun when backward is over begins then.",
        "To begin a bucket: torch.cat of the flat gradients (zeros for None), all_reduce with async_op=True, and keep "
        "tensor and work. At the end remove the hooks, begin the rest, and for each bucket wait, split, and set .grad.",
    ),
    keeps=("weights", "gains", "buckets"),
    promises={
        "rank `comm.rank` of P = `comm.size`": (ONE, "2 ranks", EVEN),
        "this rank's loss": ("means",),
        "lists of parameters of one dtype, each in one bucket, which all require a gradient and have none yet": (
            "means",
            NOWHERE,
        ),
        "it may depend on other things, too": (STEM, HELD, SINGLE),
        "may be of any strides": ("any_strides",),
        "in the order in which they are to be reduced": ("unused_parameters", "3 ranks, buckets of many sizes"),
        "may be used several times, or not at all on some ranks or on all": (TIED, ON_ONE, NOWHERE, ONE),
        "the mean over all ranks": ("means",),
        "a rank that did not use it counts with zeros": ("unused_parameters",),
        "one all_reduce for each bucket": ("one_reduction_for_each_bucket",),
        "begins during backward, as soon as its gradients are complete and the buckets before it have begun": (
            "begins_during_backward",
            "overlapped",
            "as_soon_as_complete",
        ),
        "one backward": ("one_backward",),
        "No hook is left": ("hooks_removed",),
        "no list is changed": ("arguments_unchanged",),
    },
)
