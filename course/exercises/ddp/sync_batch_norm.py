"""`sync_batch_norm(comm, x, eps)`: batch norm over the samples of all ranks, and its gradient.

Each rank calls backward with a gradient of its own, so that a gradient that leaves out the other ranks' is seen. Where
the mean is a thousand deviations, float32 and float64 keep the mean to about a rounding of its own size: that much is
allowed there, and E[x^2] - E[x]^2 is wrong by a thousand times as much. In float16 the gradients are those of a scaled
loss: a sum of them is beyond 65,504.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

USUAL = ("4 ranks", "5 ranks", "3 ranks, sequences", "2 ranks, deviations below eps", "one rank")
FAR = ("mean far above the deviation", "mean far above the deviation, float64")
FEW = ("a rank without samples, float64", "one sample in all", "one rank, one sample")
HALF, TWICE = ("float16", "float16, sequences"), "two layers, and then backward"


def cases(rng: torch.Generator) -> list[Case]:
    """Shards of any size, around means that differ from rank to rank."""

    def case(
        name: str,
        counts: list[int],
        *shape: int,
        mean: float = 1.0,
        deviation: float = 1.0,
        eps: float = 0.1,
        dtype: torch.dtype = torch.float32,
        slopes: tuple[float, float] = (0.5, 1.0),
    ) -> Case:
        """shape: of one sample; slopes: mean and deviation of dy."""

        def shard(rank: int, count: int) -> Tensor:
            spread = deviation * (1 + 0.5 * rank) * normal(rng, count, *shape, dtype=torch.float64)
            return (mean + deviation * rank + spread).to(dtype)

        xs = [shard(rank, count) for rank, count in enumerate(counts)]
        slope, spread = slopes
        dys = [(slope + spread * normal(rng, count, *shape, dtype=torch.float64)).to(dtype) for count in counts]
        inputs: Any = {"xs": xs, "dys": dys, "eps": eps, "twice": name == TWICE}
        return Case(name=name, inputs=inputs, hard=name in (*FAR, *HALF, TWICE))

    half: Any = {"dtype": torch.float16, "slopes": (9_000.0, 2_000.0)}
    four, five, sequences, small, alone = USUAL
    far, farther = FAR
    in_half, long_in_half = HALF
    empty, single, alone_with_it = FEW
    return [
        case(four, [6, 3, 8, 5], 4),
        case(five, [3, 1, 4, 1, 5], 3, mean=0.0, deviation=1e-4, eps=1e-8),
        case(sequences, [2, 1, 3], 3, 5),
        case(small, [4, 7], 3, mean=0.0, deviation=0.02, eps=0.04),
        case(alone, [6], 3, 5),
        case(far, [16, 9, 12], 8, mean=1_000.0, eps=1e-5),
        case(farther, [16, 9, 12], 8, mean=1_000.0, eps=1e-5, dtype=torch.float64),
        case(in_half, [12, 5, 9], 8, mean=700.0, deviation=4.0, eps=1e-3, **half),
        case(long_in_half, [12, 0, 9], 4, 2, mean=700.0, deviation=4.0, eps=1e-3, **half),
        case(empty, [4, 0, 3], 3, 2, dtype=torch.float64),
        case(single, [0, 1], 3),
        case(alone_with_it, [1], 3),
        case(TWICE, [3, 5], 2, mean=0.0),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its samples, and the gradient of its own loss."""
    pairs = zip(inputs["xs"], inputs["dys"], strict=True)
    return [{"x": x, "dy": dy, "eps": inputs["eps"], "twice": inputs["twice"]} for x, dy in pairs]


def probe(answer: Answer, comm: Any, inputs: Inputs) -> Observation:
    """Once forward, once backward; or twice forward, with other samples, and then twice backward."""
    xs = [inputs["x"].requires_grad_()]
    if inputs["twice"]:
        xs.append((3 * xs[0].detach() + 1).requires_grad_())
    ys = [answer(comm, x, inputs["eps"]) for x in xs]
    for y in ys:
        y.backward(inputs["dy"])
    more = {"second": xs[1].grad} if inputs["twice"] else {}
    return observe({"y": ys[0], "grad": xs[0].grad, **more})


def _twice(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether no rank took part in more than two collectives."""
    calls = [each for name, each in got.items() if name.startswith("calls/")]
    most = max(int(sum(each[rank] for each in calls)) for rank in range(len(inputs["xs"])))  # type: ignore[index,misc]
    return f"{most} collectives in one forward and backward" if most > 2 else None


def _of_its_dtype(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether y has the dtype of x on each rank. The reference, performed in float64, is not asked."""
    for rank, x in enumerate(inputs["xs"]):
        y = got[f"{rank}/y"]
        if isinstance(y, Tensor) and y.dtype != x.dtype:
            return f"y in {y.dtype}, where x is in {x.dtype}"
    return None


EXERCISE = Exercise(
    id="ddp.sync_batch_norm",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce", "all_gather"),
    properties=(
        Property(
            "value",
            "Mean and variance are those of one batch with the samples of all ranks. A rank with more samples counts "
            "for more, and how far the ranks' means are apart is part of the variance, which is divided by the number "
            "of samples.",
            points=3,
            keys=("*/y",),
            cases=USUAL,
        ),
        Property(
            "gradient",
            "x.grad is the gradient of the sum of all ranks' losses. Every x moves the mean and the variance, and with "
            "them the y of all ranks: what their losses lose by it must be added up over the ranks.",
            points=3,
            keys=("*/grad",),
            cases=USUAL,
            needs=("value",),
        ),
        Property(
            "far_from_zero",
            "A mean a thousand times the deviation costs three digits, and E[x^2] - E[x]^2 costs six. Square what is "
            "left after a mean is subtracted, on each rank and between them.",
            points=2,
            keys=("*/y", "*/grad"),
            roundings=4096,
            cases=FAR,
            needs=("value",),
        ),
        Property(
            "few_samples",
            "A rank may have no samples: it takes part in both collectives, in the dtype of the others, and counts for "
            "nothing. The mean of nothing is nan, and 0 times nan is nan. One sample in all has the variance 0.",
            keys=("*/y", "*/grad"),
            cases=FEW,
            needs=("value",),
        ),
        Property(
            "half_precision",
            "In half precision what is computed of many samples, and what travels, is in float32.",
            keys=("*/y",),
            roundings=4,
            cases=HALF,
            needs=("value",),
        ),
        Property(
            "half_precision_gradient",
            "In backward the same holds: the sum of many dy in half precision is soon beyond 65,504.",
            keys=("*/grad",),
            roundings=4,
            cases=HALF,
            needs=("gradient", "half_precision"),
        ),
        Property(
            "each_layer_for_itself",
            "A network has several such layers, and all of them go forward before the first goes backward. What "
            "backward needs of its own forward belongs into ctx, not where the next call finds it.",
            keys=("*/grad", "*/second"),
            cases=(TWICE,),
            needs=("gradient",),
        ),
        Property("dtype", "y has the dtype of x.", holds=_of_its_dtype, cases=(*USUAL, *HALF, *FEW), needs=("value",)),
        Property(
            "two_collectives",
            "One collective in forward and one in backward are enough: put what a rank has to say into one tensor.",
            points=2,
            evidence="ledger",
            holds=_twice,  # beside no values: those of usual cases are needed, and others may be wrong by rounding
            cases=(*USUAL, *HALF, *FAR),
            needs=("value", "gradient"),
        ),
    ),
    hints=(
        "Two ranks have the means 0 and 10, and the variance 1 each. Is the variance of all samples 1? What must a "
        "rank tell the others besides its mean and its variance?",
        "Let each rank send its count, its mean and its sum of squared distances from that mean. To move such a sum to "
        "another centre, add the count times the squared distance between the centres. What does backward's formula "
        "sum over the batch?",
        "Write a torch.autograd.Function. Forward: pack the three into one tensor, gather it, merge. Backward: of dy "
        "and of dy times y it needs the sums over all samples of all ranks; pack these two and all-reduce them. Or "
        "write a Function for the gathering alone, and leave the rest to autograd.",
    ),
    keeps=("x",),
    promises={
        "P = `comm.size`": ("one rank", "5 ranks"),
        "(n, C) or (n, C, L)": ("3 ranks, sequences", "4 ranks"),
        "the rest of the shape and the dtype are": (*HALF, *FAR, "3 ranks, sequences"),
        "float16, float32 or float64": (*HALF, *FAR),
        "n differs from rank to rank and may be 0 on some": ("value", "few_samples"),
        "added to the variance, above 0": ("2 ranks, deviations below eps", "5 ranks"),
        "in the dtype of x": ("dtype",),
        "biased variance": ("value",),
        "x.grad becomes the gradient of the sum of all ranks' losses": ("gradient",),
        "may be called again before": ("each_layer_for_itself",),
        "one collective in forward and one in backward": ("two_collectives",),
        "where the mean is a thousand times the deviation, no less exact than a mean in that dtype can be": FAR,
        "is at least in float32": ("half_precision", "half_precision_gradient"),
        "x is not changed": ("arguments_unchanged",),
    },
)
