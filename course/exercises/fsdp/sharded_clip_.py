"""`sharded_clip_(comm, grads, max_norm)`: gradients that lie in shards on several ranks, shortened together."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from course.exercises.fsdp.small_talk import few_words
from course.performing.compare import EPS, measure
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.forms import laid_out

ABOVE, FIVE, ONE = "3 ranks", "5 ranks, large shards", "one rank"
NO_LIMIT = "no limit"
BELOW, ZERO, TINY = "below the limit", "all zero", "tiny, and just below the limit"
UNEVEN, NONE, VIEWS = "a rank without shards, three dtypes", "no shards at all", "views that are not contiguous"
HALF, MANY, DOUBLE = "float16, squares beyond 65,504", "bfloat16, many numbers", "float64"
INF, NAN = "an infinity on one rank", "a nan on one rank"
HALF_ROUNDINGS = 4  # of the factor and the product; more of them in half precision would allow anything
WIDE = 1 / 16  # of a rounding of half precision, that norm and factor may be off: each rounded to it is off by more
SMALL = 100  # bytes: an all-reduce of a few numbers on any number of ranks


def cases(rng: torch.Generator) -> list[Case]:
    """Shards above the limit and below it, of several shapes and dtypes, none on some ranks, and with inf or nan.

    Ranks have norms of different sizes, so that a mean, a maximum or a sum of them is none of all.
    """

    def draw(*shapes: tuple[int, ...], size: float = 1.0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [(size * normal(rng, *shape, dtype=torch.float64)).to(dtype) for shape in shapes]

    def norm(shards: list[list[Tensor]]) -> float:
        return math.sqrt(sum(float(each.double().square().sum()) for mine in shards for each in mine))

    def case(name: str, shards: list[list[Tensor]], times: float, lies: str = "offset") -> Case:
        """max_norm is so many times the norm of all shards; where that makes no sense, as many."""
        whole = norm(shards)
        limit = times * whole if 0 < whole < math.inf else times
        inputs: dict[str, Any] = {"shards": shards, "max_norm": limit, "lies": lies}
        return Case(name=name, inputs=inputs)

    def share() -> float:
        return 0.2 + 0.3 * float(torch.rand((), generator=rng))

    def spoilt(value: float) -> list[list[Tensor]]:
        shards = [draw((4,), (3,)), draw((4,), (3,)), draw((4,), (3,))]
        shards[1][0][2] = value
        return shards

    usual = [draw((4,), (3,)), draw((4,), (3,), size=2.0), draw((4,), (3,), size=0.5)]
    large = [draw((300,), (41,), size=1.0 + rank / 2) for rank in range(5)]
    uneven = [
        [*draw((5,), dtype=torch.float16), *draw((2, 3), (0,)), 3 + draw(())[0].abs()],  # the () counts
        [],
        [*(3 + each.abs() for each in draw((4,), dtype=torch.float64)), *draw((3,))],
    ]

    def rounded(number: float, dtype: torch.dtype) -> float:
        return float(torch.tensor(number, dtype=torch.float64).to(dtype))

    def half(name: str, dtype: torch.dtype, count: int, middle: float, size: float) -> Case:
        """A shard on each of two ranks, drawn until norms or a factor that were rounded to its dtype show, and the
        roundings of the shards themselves do not.
        """
        while True:
            shards = [(middle + size * normal(rng, count, dtype=torch.float64)).to(dtype) for _ in range(2)]
            whole, times = norm([shards]), share()
            off = [
                math.hypot(*(rounded(norm([[each]]), dtype) for each in shards)) / whole,
                rounded(whole, dtype) / whole,
            ]
            right = [each.double() * times for each in shards]
            less = [each.double() * rounded(times, dtype) for each in shards]
            off += [_factor(each.to(dtype), true) for each, true in zip(less, right, strict=True)]
            own = [_factor(true.to(dtype), true) for true in right]
            limit = WIDE * EPS[dtype]
            if min(abs(each - 1) for each in off) > 2 * limit and max(abs(each - 1) for each in own) < limit / 2:
                return case(name, [[each] for each in shards], times)

    return [
        case(ABOVE, usual, share()),
        case(FIVE, large, share()),
        case(ONE, [draw((4,), (3,))], share()),
        case(BELOW, [draw((4,), (3,)), draw((4,), (3,), size=2.0)], 1.1),
        case(NO_LIMIT, [draw((4,), (3,)), draw((4,), (3,))], math.inf),
        case(ZERO, [[torch.zeros(4)], [torch.zeros(4)]], 1.0),
        case(TINY, [draw((4,), size=2e-7), draw((4,), size=4e-7)], 1.1),
        case(UNEVEN, uneven, share()),
        case(NONE, [[], []], 1.0),
        case(VIEWS, [draw((2, 3), (4,)), draw((2, 3), (4,), size=2.0)], share(), lies="strided"),
        half(HALF, torch.float16, 400, 0, 400),
        half(MANY, torch.bfloat16, 4000, 1, 0.125),
        case(INF, spoilt(-math.inf), 1.0),
        case(NAN, spoilt(math.nan), 1.0),
        case(DOUBLE, [draw((5,), size=8.0, dtype=torch.float64), draw((5,), size=8.0, dtype=torch.float64)], share()),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its shards."""
    return [{"grads": mine, "max_norm": inputs["max_norm"], "lies": inputs["lies"]} for mine in inputs["shards"]]


def probe(answer: Answer, comm: object, inputs: Inputs) -> Observation:
    """What is returned, and what the memory of the shards holds afterwards."""
    grads: Any = laid_out({"grads": inputs["grads"]}, {"grads": inputs["lies"]})["grads"]
    memory = [each.detach() for each in grads]  # `g.data = ...` would give g another
    norm = answer(comm, list(grads), inputs["max_norm"])
    # float32 would get float32's tolerance
    exact = norm.detach().double() if isinstance(norm, Tensor) else f"a {type(norm).__name__}, and no tensor"
    return observe({"norm": exact, "clipped": [each.clone() for each in memory]})


def _factor(got: Tensor, expected: Tensor) -> float:
    """By how much `got` is longer, over all of its numbers."""
    return float(got.double() @ expected / expected.square().sum())


def _wide(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether shards are right, and neither norm nor factor was rounded to their dtype. The factor is seen over all
    numbers of a shard, whose own roundings have no common direction; of a float64 shard it may be in float32, but is
    one for all.
    """
    for rank, (shard,) in enumerate(inputs["shards"]):
        norm, whole, mine, right = (
            cast(Tensor, seen[f"{rank}/{name}"]) for name in ("norm", "clipped/0") for seen in (got, expected)
        )
        if shard.dtype == torch.float64:
            allowed, ratios = 8 * EPS[torch.float32], mine / shard
            if not float(ratios.max() / ratios.min() - 1) <= 8 * EPS[torch.float64]:
                return f"numbers of rank {rank} that were rounded to something coarser than float64"
        else:
            allowed, found = WIDE * EPS[shard.dtype], measure(mine, right, shard.dtype, roundings=HALF_ROUNDINGS)
            if not found.held:
                return f"numbers of rank {rank} that are off by up to {found.error:.2g}"
        for what, ratio in (("norm", float(norm / whole)), ("factor", _factor(mine, right.double()))):
            if not abs(ratio - 1) <= allowed:
                return f"a {what} that is off by {abs(ratio - 1):.1e} of it: was something rounded on its way?"
    return None


EXERCISE = Exercise(
    id="fsdp.sharded_clip_",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_reduce", "all_gather"),
    properties=(
        Property(
            "norm",
            "The norm is that of one long vector with the shards of all ranks in it, before anything is scaled: the "
            "squares add up over the tensors and over the ranks, and the root comes last. It is returned as a tensor.",
            points=2,
            keys=("*/norm",),
            cases=(ABOVE, FIVE, ONE, VIEWS),
        ),
        Property(
            "clipped",
            "All shards on all ranks are multiplied by the same factor, in place: in the memory of the caller's own "
            "tensors (mul_).",
            points=2,
            keys=("*/clipped/*",),
            cases=(ABOVE, FIVE, ONE, VIEWS),
        ),
        Property(
            "untouched_below_the_limit",
            "Where max_norm / (norm + 1e-6) is above 1, the factor is 1 and no number changes.",
            keys=("*/clipped/*",),
            roundings=0,
            cases=(BELOW, NO_LIMIT),
            needs=("clipped",),
        ),
        Property(
            "any_shards",
            "What a rank calls must not depend on what it holds: one without shards takes part too, and what travels "
            "has one dtype and one shape everywhere.",
            cases=(UNEVEN, NONE),
            roundings=HALF_ROUNDINGS,
            needs=("norm", "clipped"),
        ),
        Property(
            "half_precision",
            "A square in float16 ends at 65,504, and a long sum in bfloat16 soon stands still. Square and add in "
            "float32 or wider, on each rank and between them; norm and factor stay there. Only the shards are rounded, "
            "to their own dtype.",
            holds=_wide,
            cases=(HALF, MANY, DOUBLE),
            needs=("norm", "clipped"),
        ),
        Property(
            "every_digit_of_the_factor",
            "The factor is 1 or max_norm / (norm + 1e-6), whichever is smaller; 1e-6 shows where the norm is small. "
            "What is returned is the norm alone. With a norm of 0 nothing is divided by 0.",
            cases=(TINY, ZERO),
            needs=("norm", "clipped"),
        ),
        Property(
            "not_finite",
            "No special case. An infinite norm gives the factor 0 on all ranks, and 0 * inf is nan; a nan gives the "
            "factor nan. Beware of `if norm > max_norm` and of Python's min: a comparison with nan is false.",
            cases=(INF, NAN),
            needs=("norm", "clipped"),
        ),
        Property(
            "one_small_all_reduce",
            "No rank needs to see another's gradient: one number from each is enough, in one call.",
            points=2,
            evidence="ledger",
            holds=few_words(calls=1, nbytes=SMALL),
            beside=("*/norm", "*/clipped/*"),
            shows="bytes_sent",
            cases=(FIVE, ABOVE),
            needs=("norm", "clipped"),
        ),
    ),
    hints=(
        "Two ranks hold shards of the norms 3 and 4. What is the norm of all? And what would each of them have to say, "
        "so that the sum of what they say is of use?",
        "Add up the squares of everything on this rank, in a wide dtype and in one number, also where there is "
        "nothing to add. Which is the only line in which the ranks talk?",
        "The sum of squares; all_reduce; the root; the factor max_norm / (norm + 1e-6), limited to 1 by a tensor's own "
        "method; multiply each shard in place; return the norm.",
    ),
    promises={
        "on any number of ranks": (ONE, ABOVE, FIVE),
        "of any shapes, () and (0,) too": ("any_shards",),
        "in any floating dtypes": ("any_shards", "half_precision"),
        "also views": (VIEWS,),
        "The list may be empty": ("any_shards",),
        "all of this may differ from rank to rank": ("any_shards",),
        "the same float on all ranks, above 0": (BELOW, ABOVE, NO_LIMIT),
        "before anything is scaled": ("norm",),
        "in place": ("clipped",),
        "the smaller of 1 and max_norm / (norm + 1e-6)": ("every_digit_of_the_factor", "untouched_below_the_limit"),
        "in float32 or wider": ("half_precision",),
        "and shards to their own dtype alone": ("half_precision", DOUBLE),
        "a tensor ()": ("norm",),
        "An infinite norm makes the factor 0, and a nan makes it nan": ("not_finite",),
        "one collective, and at most 100 bytes from each rank": ("one_small_all_reduce",),
    },
)
