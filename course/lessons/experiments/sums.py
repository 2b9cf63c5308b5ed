"""How far sums in few digits are off, for ever more numbers; and numbers on which the compensated sum is farthest off.

plain     ((x1 + x2) + x3) + x4             error up to (n - 1) u sum |x|
by pairs  (x1 + x2) + (x3 + x4)             (log2 n) u

uniform numbers, 32 columns --each sum, in dtype--> error over sum |x|, in the worst column, beside its bound
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

COUNTS = tuple(2**k for k in range(2, 14))
COLUMNS = 32
Sum = Callable[[Tensor, torch.dtype], Tensor]
Bound = Callable[[int, float], float]


def plain_sum(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum over the first dimension, each addition rounded to `dtype`: an error of at most (n - 1) u sum |x|.

    Source: Higham, section 4.2; without terms of order u^2: Rump (BIT 52, 2012).
    """
    s = xs.new_zeros(xs.shape[1:], dtype=dtype)
    for x in xs.to(dtype):
        s = s + x
    return s


def pairwise_sum(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The same sum by neighbours, then by neighbours of the sums, and so on: an error of at most
    L u / (1 - L u) sum |x|, L = log2 n rounded up.

    Source: Higham, section 4.2, equation (4.6).
    """
    terms = xs.to(dtype)
    if len(terms) == 0:
        return plain_sum(terms, dtype)
    while len(terms) > 1:
        even = len(terms) // 2 * 2
        terms = torch.cat([terms[0:even:2] + terms[1:even:2], terms[even:]])  # an odd one out goes up as it is
    return terms[0]


def plain_bound(n: int, u: float) -> float:
    """nan where it is above 1 and says nothing."""
    return (n - 1) * u if (n - 1) * u <= 1 else math.nan


def pairwise_bound(n: int, u: float) -> float:
    """L u / (1 - L u), L = log2 n rounded up."""
    levels = math.ceil(math.log2(n))
    return levels * u / (1 - levels * u)


PLAIN: dict[str, tuple[Sum, Bound]] = {
    "one after the other": (plain_sum, plain_bound),
    "by pairs": (pairwise_sum, pairwise_bound),
}


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Of one format: for each sum its errors and its bounds over sum |x|, one for each of `counts`.

    u       the unit roundoff of the format
    bounds  nan where there is none
    """

    u: float
    counts: tuple[int, ...]
    errors: dict[str, list[float]]
    bounds: dict[str, list[float]]


def errors(dtype: torch.dtype, methods: Mapping[str, tuple[Sum, Bound]], counts: tuple[int, ...] = COUNTS) -> Errors:
    """Sums of uniform numbers between 0 and 1, drawn with a fixed seed; takes a second for three of them.

    methods  by name: a sum, and its bound as a function of n and u, nan where it has none
    """
    xs = torch.rand(max(counts), COLUMNS, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact = xs.double().cumsum(0)  # without error in float64, which has five times the digits
    u = torch.finfo(dtype).eps / 2

    def off(total: Sum, n: int) -> float:
        return float(((total(xs[:n], dtype).double() - exact[n - 1]).abs() / exact[n - 1]).max())

    return Errors(
        u=u,
        counts=counts,
        errors={name: [off(total, n) for n in counts] for name, (total, _) in methods.items()},
        bounds={name: [bound(n, u) for n in counts] for name, (_, bound) in methods.items()},
    )


def hard_input(n: int, u: Fraction, doublings: int) -> list[Fraction]:
    """n numbers whose compensated sum is far off. Each tie goes to the even neighbour, and that is always down.

    u s is lost in s, and comes with the next number s, where it is lost for good; s has doubled. At the end u s is
    lost and kept in mind, and each u^2 s after it is lost in that. Of three numbers the second may lose all of the
    first, which is a little below u.
    """
    if n == 3:
        return [u - u * u, 1 + 2 * u, Fraction(1)]
    xs, s = [Fraction(1)], Fraction(1)
    for _ in range(doublings):
        xs += [u * s, s]
        s *= 2
    return [*xs, u * s, *[u * u * s] * (n - 2 - 2 * doublings)] if n > 1 else xs


@functools.lru_cache(maxsize=100)  # every answer is judged on the same few
def hardest(n: int, u: Fraction) -> int:
    """With how many doublings the error of `hard_input` is greatest."""
    return max(range(max(n // 2, 1)), key=lambda doublings: _share(n, u, doublings))


def reached(n: int, u: float) -> Fraction:
    """The error on the hardest of these inputs, over its sum of magnitudes."""
    exact = Fraction(u)
    return _share(n, exact, hardest(n, exact))


def _share(n: int, u: Fraction, doublings: int) -> Fraction:
    """The sum s of `hard_input` is a power of two, and all else is lost."""
    if n == 1:
        return Fraction(0)
    if n == 3:
        return (3 * u - u * u) / (2 + 3 * u - u * u)
    s = Fraction(2) ** doublings
    error = u * (2 * s - 1) + (n - 2 - 2 * doublings) * u * u * s
    return error / (s + error)


def worst_case(total: Sum, dtype: torch.dtype, n: int) -> float:
    """The error of a compensated sum on n numbers that were chosen for Kahan's, in u sum |x|."""
    u = Fraction(torch.finfo(dtype).eps) / 2
    xs = hard_input(n, u, hardest(n, u))
    computed = Fraction(total(torch.tensor([float(x) for x in xs], dtype=torch.float64), dtype).item())
    return float(abs(computed - sum(xs)) / sum(xs) / u)
