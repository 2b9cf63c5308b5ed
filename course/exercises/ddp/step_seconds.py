"""`step_seconds(backward, sizes, buckets, ...)`: how long backward takes with reductions beside it.

tests/test_step_seconds.py runs such steps on simulated ranks: the numbers are those of the virtual clock.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs

ONE_BUCKET, ONE_RANK, MANY = "one bucket", "one rank", "4,096 ranks"
HIDDEN, SLOWER, MIDDLE = "a fast network", "a slow network", "a large bucket in the middle"
FORWARD, APART = "buckets in forward order", "layers that are far apart"
FROZEN = "layers in no bucket"
MILLISECOND, BANDWIDTH = 1e-3, 1e10


def cases(rng: torch.Generator) -> list[Case]:
    """Layers of 1 to 2 ms; reductions are short or long beside them, so that the same takes the time on every seed."""

    def case(name: str, buckets: list[list[int]], layers: int, share: float, ranks: int = 0, **more: Any) -> Case:
        """share: of a millisecond, which the bytes of a bucket take."""
        ranks = ranks or integer(rng, 4, 9)
        steps = max(1, 2 * (ranks - 1))
        bucketed = {layer: len(bucket) for bucket in buckets for layer in bucket}
        message = [share * MILLISECOND * BANDWIDTH / steps / bucketed.get(layer, 1) for layer in range(layers)]
        inputs: dict[str, Any] = {
            "backward": [MILLISECOND * integer(rng, 1000, 2000) / 1000 for _ in range(layers)],
            "sizes": [ranks * int(each * integer(rng, 800, 1000) / 1000) for each in message],
            "buckets": buckets,
            "ranks": ranks,
            "latency": integer(rng, 50, 100) / 1000 * share * MILLISECOND / steps,
            "bandwidth": BANDWIDTH,
            **more,
        }
        return Case(name=name, inputs=inputs)

    each = [[4], [3], [2], [1], [0]]
    middle = case(MIDDLE, each, 5, 0.2)
    cast(list[int], middle.inputs["sizes"])[2] *= 40
    return [
        case(ONE_BUCKET, [[3, 2, 1, 0]], 4, 2.0),
        case(MANY, [[3, 2], [1, 0]], 4, 2.0, ranks=4096),
        case(ONE_RANK, [[2, 1], [0]], 3, 0.5, ranks=1),
        case(HIDDEN, each, 5, 0.5),
        case(SLOWER, each, 5, 4.0),
        middle,
        case("no latency", [[5, 4], [3, 2], [1, 0]], 6, 4.0, latency=0.0),
        case(FORWARD, [[0], [1, 2], [3]], 4, 1.5),
        case(APART, [[1, 5], [4, 3], [0, 2]], 6, 1.0),
        case(FROZEN, [[5, 4], [2]], 6, 0.1),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call."""
    rest = {name: inputs[name] for name in ("ranks", "latency", "bandwidth")}
    result = answer(inputs["backward"], inputs["sizes"], inputs["buckets"], **rest)
    return observe(outputs(result, "seconds", "bytes"))


EXERCISE = Exercise(
    id="ddp.step_seconds",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "one_bucket",
            "A bucket of all layers is complete when backward is over. Its all-reduce is P - 1 messages that add and "
            "P - 1 that pass on what is complete, each with its own latency, and each of one chunk.",
            points=2,
            keys=("seconds",),
            cases=(ONE_BUCKET, ONE_RANK),
        ),
        Property(
            "overlap",
            "Draw two rows, backward and the network. A reduction begins when two things are over: the layers of its "
            "bucket, and the reduction before it. Backward waits for nothing. Any bucket may be "
            "the one that all wait for.",
            points=3,
            keys=("seconds",),
            roundings=4 * 4096,  # who adds up the messages one by one rounds as often
            cases=(HIDDEN, SLOWER, MIDDLE, MANY, "no latency"),
        ),
        Property(
            "order_of_the_buckets",
            "A bucket is complete with the last of its layers that backward comes to, and the buckets begin in the "
            "order of the list, also where a later one is complete earlier.",
            points=2,
            keys=("seconds",),
            cases=(FORWARD, APART),
        ),
        Property(
            "layers_in_no_bucket",
            "Backward goes through a layer whose gradient is not reduced, too, and may be the last to end.",
            keys=("seconds",),
            cases=(FROZEN,),
        ),
        Property(
            "bytes",
            "What one rank sends: in each message one of the P chunks of a bucket. What no bucket holds is not sent.",
            points=2,
            keys=("bytes",),
        ),
    ),
    hints=(
        "What must be over before a reduction begins? And before the step ends?",
        "Add up when backward has been through each layer, from the last one to the first. The largest of these times "
        "in a bucket says when it is complete.",
        "Go through the buckets with one number, when the network is free: the larger of it and the bucket's time, "
        "plus the reduction. At the end compare it with the end of backward.",
    ),
    promises={
        "seconds that backward takes for each layer": ("overlap", FROZEN),
        "from the last to the first": ("overlap",),
        "bytes of each layer's gradient": ("bytes",),
        "each layer in one bucket at most": ("layers_in_no_bucket", "bytes"),
        "P, at least 1": (ONE_RANK, MANY),
        "at least 0": ("no latency",),
        "bytes per second": ("one_bucket",),
        "when backward has passed all of its layers": ("order_of_the_buckets",),
        "in the order of the list, one after another": ("order_of_the_buckets", "overlap"),
        "2 (P - 1) messages, one after another, each of 1/P of its bytes": (
            "one_bucket",
            MANY,
        ),
        "from the beginning of backward until it and all reductions are over": ("overlap", "layers_in_no_bucket"),
        "the bytes that one rank sends": ("bytes",),
    },
)
