"""`stochastic_round(x, u)`: float32 to bfloat16, up as often as x lies near to its upper neighbour.

The draws u are a grid, 0 to (K - 1) / K, in another order for each number. Which of them round up is up to the answer;
how many is not. So of each number is observed: the least and the greatest value that came back, how often the greatest
did, and whether anything else did. Cases hold bit patterns, because references run in float64 where they can.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, every_form, observe
from course.performing.forms import LAYOUTS, put
from course.performing.refusals import all_refused, other_shapes, refused

GRID, FULL_GRID = 256, 65_536
MATRIX = (3, 2)
ONE, LAST, LARGEST = 127, 254, 0x7F7F_0000  # exponents of 1 and of the largest numbers; bits of the largest bfloat16
EXACT = [0x0000, 0x8000, 0x3F80, 0xBF81, 0x7F7F, 0xFF7F, 0x0080, 0x0081, 0x0001, 0x8001, 0x8002, 0x4049]
ENDLESS = [0x7F80_0000, 0xFF80_0000, 0x7F80_0001, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FC0_0000, 0xFF80_0001]  # inf, and nan


def cases(rng: torch.Generator) -> list[Case]:
    """Numbers between 1 and 2, then all the others; every case has even and odd lower neighbours.

    No share is near to a half, where rounding to nearest with noise could pass, and all are odd numbers of 256ths: a
    coarser draw has another share.
    """

    def drawn(low: int, high: int, count: int) -> Tensor:
        return torch.randint(low, high, (count,), generator=rng)

    def low_bits(count: int) -> Tensor:
        """A share in 65,536ths, below a half and above it."""
        return (2 * drawn(8, 56, count) + 1 + 128 * (torch.arange(count) // 2 % 2)) * 256

    def kept(count: int) -> Tensor:
        """Seven bits, even and odd in turns, that lie between two powers of two with both their neighbours."""
        return 2 * drawn(1, 62, count) + torch.arange(count) % 2

    def numbers(exponents: Tensor, negative: Tensor | int = 0, mantissas: Tensor | None = None) -> Tensor:
        count = len(exponents)
        mantissas = kept(count) if mantissas is None else mantissas
        return negative * 2**31 + exponents * 2**23 + mantissas * 2**16 + low_bits(count)

    def case(name: str, bits: Tensor, **more: Any) -> Case:
        inputs: dict[str, Any] = {
            "bits": bits.to(torch.int32),
            "grid": GRID,
            "late": False,
            "lies": "",
            "one_by_one": False,
            "first": False,
        }
        return Case(name=name, inputs=inputs | more)

    ones, signs = torch.full((6,), ONE), torch.arange(8) // 4
    ends = torch.tensor([127, 0, 127, 0, 127, 0, 127, 0])
    fine = numbers(drawn(60, 190, 2), torch.tensor([0, 1])) + 4 * drawn(0, 50, 2) + 1
    exact = torch.tensor(EXACT) * 2**16
    return [
        case("between 1 and 2", numbers(ones, mantissas=torch.cat([kept(5), torch.tensor([121])])), first=True),
        case("numbers of all sizes", numbers(torch.tensor([5, 60, 100, 150, 200, 250]) + drawn(0, 4, 6))),
        case("negative numbers", numbers(drawn(110, 140, 6), 1)),
        case("65,536 draws", fine, grid=FULL_GRID),
        case("beside powers of two", numbers(drawn(100, 150, 8), signs, ends)),
        case("numbers of bfloat16", exact),
        case("numbers of bfloat16, u near 1", exact, late=True),
        case("subnormal numbers", numbers(0 * signs, signs, torch.tensor([0, 1, 2, 65, 0, 1, 126, 127]))),
        case("beyond the largest number", LARGEST + torch.tensor([0, 1, 0, 1]) * 2**31 + low_bits(4)),
        case("inf and nan", torch.tensor(ENDLESS)),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Each number with every draw of the grid: in one call, or in as many calls as there are pairs."""
    bits, count = inputs["bits"], inputs["grid"]
    x = bits.view(torch.float32).expand(count, -1).clone()
    u = _draws(count, len(bits)) + (1 / count - 2.0**-24 if inputs["late"] else 0.0)
    if inputs["lies"]:
        x, u = cast(Tensor, LAYOUTS[inputs["lies"]](x)), cast(Tensor, LAYOUTS["strided"](u))
    if inputs["one_by_one"] and len(bits):
        pairs = zip(x.flatten(), u.flatten(), strict=True)
        found = [_checked(answer(one, draw), one) for one, draw in pairs]
        rounded, dtypes = torch.stack(found).view(x.shape), sorted({str(each.dtype) for each in found})
    else:
        rounded = _checked(answer(x, u), x)
        dtypes = [str(rounded.dtype)]
    seen = {**_summary(rounded), "dtype": ", ".join(dtypes), "left": _left(x, u)}
    if inputs["first"]:
        order = 77 * torch.arange(count) % count
        again = _checked(answer(x[order].flip(1), u[order].flip(1)), x)
        seen["again"] = (again != rounded[order].flip(1)).sum(0)
        seen["refused"] = _refusals(answer)
    return observe(seen)


def _draws(count: int, numbers: int) -> Tensor:
    """0 to (count - 1) / count in each of so many columns, in another order in each; count is a power of two."""
    orders = 77 * torch.arange(count)[:, None] + 31 * torch.arange(numbers)
    return (orders % count) / count


def _checked(returned: object, x: Tensor) -> Tensor:
    if not isinstance(returned, Tensor) or returned.shape != x.shape:
        came = f"shape {tuple(returned.shape)}" if isinstance(returned, Tensor) else type(returned).__name__
        raise WrongOutput(f"must return a tensor of x's shape {tuple(x.shape)}, got {came}")
    return returned.detach()


def _summary(rounded: Tensor) -> dict[str, Any]:
    """Of the results for all draws (draws, numbers): what is the same in whichever order the draws come."""
    values = rounded.double()
    lower, upper = values.amin(0), values.amax(0)
    others = (values != lower) & (values != upper) & ~values.isnan()
    return {
        "lower": lower,
        "upper": upper,
        "others": others.sum(0),
        "share": (values > lower).double().mean(0),
        "negative": (values.signbit() & ~values.isnan()).double().mean(0),
    }


def _left(x: Tensor, u: Tensor) -> dict[str, Tensor]:
    """The least and the greatest bits of each number, and of its draws, as the calls left them."""
    parts = {"x": x.detach().view(torch.int32), "u": u.detach().view(torch.int32)}
    return {name: torch.stack([each.amin(0), each.amax(0)]) for name, each in parts.items()}


def _refusals(answer: Answer) -> dict[str, Any]:
    x, u = torch.ones(MATRIX), torch.zeros(MATRIX)
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int32)
    shapes = {
        f"u of shape {shape} for {MATRIX}": partial(answer, x, torch.zeros(shape)) for shape in other_shapes(MATRIX)
    }
    return refused({**shapes, **{f"x in {dtype}": partial(answer, x.to(dtype), u) for dtype in dtypes}})


WHERE = ("lower", "upper", "others")
exactly = partial(Property, roundings=0)
NEIGHBOURS, SHARE = "both_neighbours_and_nothing_else", "the_share_that_rounds_up"
LATE, VIEWS = "draws just below k / 256", "views that are not contiguous"
GRADIENT, SINGLE, EMPTY = "x requires a gradient", "one number, of shape ()", "no numbers"

EXERCISE = Exercise(
    id="mixed_precision.stochastic_round",
    cases=cases,
    probe=probe,
    properties=(
        exactly(
            NEIGHBOURS,
            "With some draws x becomes the next bfloat16 below it, with the others the next above it, and nothing "
            "else. The two are one gap apart, and the gap grows with x: 2^-7 between 1 and 2, 2^-6 between 2 and 4.",
            keys=WHERE,
            cases=("between 1 and 2", "numbers of all sizes"),
        ),
        exactly(
            SHARE,
            "Each number has its own draw. Of the draws 0, 1/256, ..., 255/256, the share (x - lower) / (upper - "
            "lower) gives the upper neighbour, exactly: a quarter of them for x a quarter of the way up.",
            points=2,
            keys=("share",),
            cases=("between 1 and 2", "numbers of all sizes"),
            needs=(NEIGHBOURS,),
        ),
        exactly(
            "each_number_by_its_own_draw",
            "Called again with the same pairs of x and u in another order, the function did not return the same "
            "numbers in that order. Each number is rounded by its own entry of u: draw no others, and do not sort or "
            "mix them.",
            keys=("again",),
            cases=("between 1 and 2",),
            needs=(NEIGHBOURS,),
        ),
        exactly(
            "negative_numbers",
            "Lower and upper are meant by value, or turn both round and round by magnitude; but do not mix the two. "
            "trunc goes towards 0, floor towards -inf.",
            keys=(*WHERE, "share"),
            cases=("negative numbers",),
            needs=(NEIGHBOURS,),
        ),
        exactly(
            "every_draw_counts",
            "With 65,536 draws each share is a whole number of them. A few draws too many or too few are a bias that "
            "many updates add up: `u < share` and `u >= 1 - share` have none, `u <= share` has one draw.",
            keys=(*WHERE, "share"),
            cases=("65,536 draws",),
            needs=(SHARE,),
        ),
        exactly(
            "beside_powers_of_two",
            "Just below a power of two the gap is half the one above it. It is that of the interval in which x lies, "
            "not of what x is rounded to.",
            keys=(*WHERE, "share"),
            cases=("beside powers of two",),
            needs=(NEIGHBOURS,),
        ),
        exactly(
            "what_bfloat16_holds_stays",
            "A number that bfloat16 holds has the share 0: no draw may move it, neither 0 nor the largest below 1. "
            "That is so for 0 too, and -0.0 keeps its sign.",
            keys=(*WHERE, "negative"),
            cases=("numbers of bfloat16", "numbers of bfloat16, u near 1"),
            needs=(NEIGHBOURS,),
        ),
        exactly(
            "subnormal_numbers",
            "Below 2^-126 all gaps are equal, 2^-133. Nearer to 0 than that, 0 is one of the neighbours.",
            keys=(*WHERE, "share"),
            cases=("subnormal numbers",),
            needs=(NEIGHBOURS,),
        ),
        exactly(
            "beyond_the_largest_number",
            "Between the largest bfloat16 and 2^128 the share counts as if 2^128 were a number; what is rounded up to "
            "it becomes inf. In float32, upper - lower is inf there.",
            keys=(*WHERE, "share"),
            cases=("beyond the largest number",),
            needs=(NEIGHBOURS,),
        ),
        exactly(
            "inf_and_nan_stay",
            "inf, -inf and nan stay what they are. A nan may have its one bit among those that are cut off, and "
            "becomes inf; or all bits may be ones, and a carry goes through to the sign. Put them back at the end.",
            keys=(*WHERE, "negative"),
            cases=("inf and nan",),
            needs=(NEIGHBOURS,),
        ),
        Property(
            "in_bfloat16",
            "The numbers are right, but not in a tensor of dtype torch.bfloat16: end with .to(torch.bfloat16).",
            keys=("dtype",),
            cases=("between 1 and 2",),
            needs=(NEIGHBOURS,),
        ),
        Property(
            "refusals",
            "Raise a ValueError where x is not float32, and where u has not the shape of x: one draw for a whole row "
            "would broadcast without a word.",
            holds=all_refused,
            cases=("between 1 and 2",),
            needs=(NEIGHBOURS,),
        ),
        exactly(
            "x_and_u_unchanged",
            "x or u was changed. `.view(torch.int32)` is a look at the same memory: what adds to it in place (+=, "
            "add_) adds to x.",
            keys=("left/*",),
            needs=(NEIGHBOURS,),
        ),
        every_form(needs=(NEIGHBOURS,), keys=(*WHERE, "share", "dtype", "left/*"), roundings=0),
    ),
    hints=(
        "How far above its lower neighbour does x lie, in gaps? For which share of the draws is u less than that?",
        "One way: the gap as a power of two, then floor and ceil of x / gap. Another: a bfloat16 is the upper 16 bits "
        "of a float32, so look at the lower 16 through x.view(torch.int32).",
        "Refuse. The bits with their lower 16 cut off are the neighbour towards 0; 65,536 more are the other one. "
        "What was cut off, over 65,536, is the share that takes the second. Choose by u, look at the bits as float32 "
        "again, and put inf and nan back.",
    ),
    forms=(
        put(LATE, late=True, of="negative numbers"),
        put(VIEWS, lies="strided"),
        put(GRADIENT, lies="leaf"),
        put(SINGLE, one_by_one=True, grid=8, bits=torch.tensor([0x3F81_4000], dtype=torch.int32)),
        put(EMPTY, bits=torch.empty(0, dtype=torch.int32)),
    ),
    promises={
        "any shape, () and empty ones too": (SINGLE, EMPTY),
        "views too": (VIEWS,),
        "it may require a gradient": (GRADIENT,),
        "x and u are not changed": ("x_and_u_unchanged",),
        "the draw of each number, and all the randomness there is": (SHARE, "each_number_by_its_own_draw"),
        "bfloat16 of x's shape": ("in_bfloat16",),
        "stays, whatever its draw, -0.0 with its sign": ("what_bfloat16_holds_stays",),
        "exactly so many give the upper one that the mean of the K results is x": (
            SHARE,
            "negative_numbers",
            "every_draw_counts",
        ),
        "one from each K-th part of [0, 1)": (SHARE, LATE, "numbers of bfloat16, u near 1"),
        "the upper neighbour is inf, and counts as 2^128 in the mean": ("beyond_the_largest_number",),
        "Subnormal numbers are rounded like all others": ("subnormal_numbers",),
        "inf and nan stay, whatever the bits of a nan": ("inf_and_nan_stay",),
        "an x that is not float32": ("refusals",),
        "a u of another shape than x": ("refusals",),
    },
)
