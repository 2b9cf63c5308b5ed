"""References of unit mixed_precision: what torch does, bit for bit where it can be; and bounds where torch has none."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course.errors import BadArgument
from course.reference.mixed_precision.rounding import round_to
from course.reference.mixed_precision.stochastic import stochastic_round
from course.reference.mixed_precision.summation import compensated_sum, pairwise_sum, plain_sum

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]
    ),
]
ON_EACH_DEVICE = pytest.mark.parametrize("device", DEVICES)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same_bits(ours: Tensor, theirs: Tensor) -> bool:
    """Equal in dtype and every bit, but for the payload of nan."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[ours.element_size()]
    return ours.dtype == theirs.dtype and bool(
        ((ours.view(bits) == theirs.view(bits)) | (ours.isnan() & theirs.isnan())).all()
    )


# --- round_to -----------------------------------------------------------------------------------------

FORMATS = {F16: (5, 10), BF16: (8, 7), E5M2: (5, 2)}


def every(dtype: torch.dtype) -> Tensor:
    """Every bit pattern of a dtype, as float32."""
    width = dtype.itemsize
    patterns = torch.arange(2 ** (8 * width), dtype=torch.int64).to({1: torch.uint8, 2: torch.int16}[width])
    return patterns.view(dtype).float()


def around(values: Tensor) -> Tensor:
    """The values, the midpoints between neighbours, and the neighbours of all these in float32."""
    ordered = values[values.isfinite()].double().unique()
    midpoints = ((ordered[1:] + ordered[:-1]) / 2).float()  # exact: one digit more
    beyond = torch.tensor([ordered[-1] + (ordered[-1] - ordered[-2]) / 2]).float()
    exact = torch.cat([values, midpoints, beyond, -beyond])
    return torch.cat([exact, *(exact.nextafter(torch.tensor(side)) for side in (-torch.inf, torch.inf))])


def random_patterns(count: int) -> Tensor:
    return torch.randint(-(2**31), 2**31, (count,), generator=seeded(0)).to(torch.int32).view(F32)


@ON_EACH_DEVICE
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_bit_is_that_of_torchs_cast(dtype, device):
    x = torch.cat([around(every(dtype)), every(F16), every(BF16), random_patterns(1_000_000)]).to(device)
    assert same_bits(round_to(x, *FORMATS[dtype]), x.to(dtype).float())


def test_up_to_240_e4m3_is_rounded_alike_and_beyond_it_saturates_where_this_is_inf():
    x = torch.cat([around(every(E4M3)), random_patterns(1_000_000)])
    ours, theirs = round_to(x, 4, 3), x.to(E4M3).float()
    inside = ours.isfinite()
    assert ours[inside].abs().max() == 240
    assert same_bits(ours[inside], theirs[inside])
    beyond = torch.tensor([248.0, 448.0, 1e9, torch.inf])
    assert round_to(beyond, 4, 3).tolist() == [torch.inf] * 4
    assert beyond.to(E4M3).tolist() == [256.0, 448.0, 448.0, 448.0]


def test_with_the_bits_of_float32_nothing_is_rounded():
    x = random_patterns(100_000)
    assert same_bits(round_to(x, 8, 23), x)


@given(exponent_bits=st.integers(2, 8), mantissa_bits=st.integers(1, 23), seed=st.integers(0, 2**31))
def test_a_rounded_number_stays_and_order_and_sign_are_kept(exponent_bits, mantissa_bits, seed):
    x = torch.randn(50, generator=seeded(seed)).mul(3).exp().sort().values
    once = round_to(x, exponent_bits, mantissa_bits)
    assert same_bits(round_to(once, exponent_bits, mantissa_bits), once)
    assert bool((once[1:] >= once[:-1]).all())
    assert same_bits(round_to(-x, exponent_bits, mantissa_bits), -once)


def test_views_and_parameters_are_rounded_and_no_graph_is_recorded():
    x = torch.nn.Parameter(torch.tensor([[1.001, 2.0], [3.0, 4.003]]))
    assert round_to(x.T[:1], 8, 7).tolist() == [[1.0, 3.0]]
    assert not round_to(x, 8, 7).requires_grad


@pytest.mark.parametrize("bits", [(1, 3), (9, 3), (5, 0), (5, 24)])
def test_bits_that_float32_cannot_hold_are_refused(bits):
    with pytest.raises(BadArgument, match=rf"from 2 to 8 and .* from 1 to 23, got {bits[0]} and {bits[1]}"):
        round_to(torch.ones(2), *bits)


@pytest.mark.parametrize("dtype", [F16, torch.float64, torch.int32])
def test_what_is_not_float32_is_refused(dtype):
    with pytest.raises(BadArgument, match=f"x must be float32, got {dtype}"):
        round_to(torch.ones(2, dtype=dtype), 5, 2)


# --- stochastic_round ---------------------------------------------------------------------------------

HALVES = pytest.mark.parametrize("dtype", [F16, BF16])


def neighbours(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The largest value of dtype that is at most x, and the smallest that is at least x, as float32."""
    values = every(dtype)
    values = values[~values.isnan()].unique()
    below = torch.searchsorted(values, x, right=True) - 1
    return values[below], values[torch.searchsorted(values, x)]


def drawn_between(dtype: torch.dtype, count: int) -> Tensor:
    """Numbers of both signs and all sizes that dtype has, subnormals included."""
    x = random_patterns(20 * count)
    finite = torch.finfo(dtype)
    return x[(x.abs() <= finite.max) & (x.abs() >= finite.smallest_normal * finite.eps)][:count]


@ON_EACH_DEVICE
@HALVES
def test_exactly_the_right_share_of_a_grid_rounds_up_and_the_others_down(dtype, device):
    k, x = 64, drawn_between(dtype, 2_000).to(device)
    lower, upper = (each.to(device) for each in neighbours(x.cpu(), dtype))
    u = torch.arange(k, device=device)[:, None].expand(k, len(x)) / k
    rounded = stochastic_round(x.expand_as(u), dtype, u)
    assert rounded.dtype == dtype
    assert bool(((rounded == lower) | (rounded == upper)).all())
    share = torch.where(upper > lower, (x.double() - lower) / (upper.double() - lower), 0.0)
    assert torch.equal((rounded > lower).sum(0), (share * k).ceil().long())  # u = 0, 1 / k, ... below the share


@HALVES
@pytest.mark.parametrize("k", [3, 10, 1000])
def test_on_any_grid_the_share_is_right_but_for_one(dtype, k):
    x = drawn_between(dtype, 200)
    lower, upper = neighbours(x, dtype)
    ups = (stochastic_round(x.expand(k, -1), dtype, (torch.arange(k) / k)[:, None].expand(k, 200)) > lower).sum(0)
    exact = torch.where(upper > lower, (x.double() - lower) / (upper.double() - lower), 0.0) * k
    assert bool(((ups == exact.floor()) | (ups == exact.ceil())).all())


@HALVES
def test_what_the_dtype_holds_stays_whatever_is_drawn(dtype):
    x = every(dtype)
    for u in (0.0, 0.5, 1 - 2**-24):
        assert same_bits(stochastic_round(x, dtype, torch.full_like(x, u)), x.to(dtype))


def test_between_the_largest_value_and_the_next_power_of_two_a_share_becomes_inf_and_from_there_on_all():
    x = torch.tensor([65504 + 8.0, -65504 - 8.0, 65536.0, -1e9]).expand(4, 4)
    rounded = stochastic_round(x, F16, (torch.arange(4) / 4)[:, None].expand(4, 4))
    largest, inf = 65504.0, torch.inf
    assert rounded.T.tolist() == [[inf, *[largest] * 3], [*[-largest] * 3, -inf], [inf] * 4, [-inf] * 4]


def test_below_the_smallest_subnormal_zero_is_the_one_neighbour():
    x, u = 2.0**-24 * torch.tensor([0.25, -0.25]).expand(4, 2), (torch.arange(4) / 4)[:, None].expand(4, 2)
    assert (stochastic_round(x, F16, u).T * 2.0**24).tolist() == [[1, 0, 0, 0], [0, 0, 0, -1]]


def test_the_mean_of_many_draws_is_the_number():
    x, u = torch.full((100_000,), 1 + 2.0**-10), torch.rand(100_000, generator=seeded(0))
    mean = stochastic_round(x, BF16, u).double().mean().item()  # nearest would be 1: an eighth of a gap is lost
    assert mean == pytest.approx(1 + 2.0**-10, abs=5 * 2.0**-7 * math.sqrt(7 / 64 / 100_000))


@pytest.mark.parametrize("dtype", [F32, E5M2])
def test_another_target_is_refused(dtype):
    with pytest.raises(BadArgument, match=f"dtype must be torch.bfloat16 or torch.float16, got {dtype}"):
        stochastic_round(torch.ones(2), dtype, torch.ones(2))


def test_one_draw_for_all_numbers_is_refused():
    with pytest.raises(BadArgument, match=r"u must have the shape \(2,\) of x, got \(1,\)"):
        stochastic_round(torch.ones(2), BF16, torch.zeros(1))


# --- sums ---------------------------------------------------------------------------------------------

DTYPES = pytest.mark.parametrize("dtype", [F16, BF16, F32])


def kahan_bound(n: int, u: Fraction) -> Fraction:
    """Of the error over the sum of magnitudes.

    With S the largest |s|: each |lost| is at most u S, each y off by u (|x| + |lost|), so S (1 - u) is at most
    (1 + u) sum |x| + n u^2 S; and s is off by its own `lost` and by what all y are off.
    """
    return u * (1 + (1 + n * u) * (1 + u) / (1 - u - n * u * u))


BOUNDS = {
    compensated_sum: kahan_bound,
    plain_sum: lambda n, u: (n - 1) * u,
    pairwise_sum: lambda n, u: math.ceil(math.log2(n)) * u / (1 - math.ceil(math.log2(n)) * u),
}
SUMS = pytest.mark.parametrize("sum_", BOUNDS)


def unit_roundoff(dtype: torch.dtype) -> Fraction:
    return Fraction(torch.finfo(dtype).eps) / 2


def error_and_magnitude(sum_, xs: Tensor, dtype: torch.dtype) -> tuple[Fraction, Fraction]:
    """|computed - exact| and sum |x|, exactly; xs (n,), of values of dtype."""
    terms = [Fraction(x) for x in xs.tolist()]
    return abs(Fraction(sum_(xs, dtype).item()) - sum(terms)), sum(map(abs, terms))


def series(kind: str, n: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """n numbers whose sum stays in dtype's range."""
    rng = seeded(seed)
    drawn = {
        "ones": lambda: torch.ones(n),
        "thirds": lambda: torch.full((n,), 1 / 3),
        "normal": lambda: torch.randn(n, generator=rng),
        "uniform": lambda: torch.rand(n, generator=rng),
        "of all sizes": lambda: torch.randn(n, generator=rng) * 2.0 ** torch.randint(-12, 3, (n,), generator=rng),
        "growing": lambda: 2.0 ** (torch.arange(n) % 20 - 14) * (1 + torch.rand(n, generator=rng)),
        "cancelling": lambda: torch.cat([(x := torch.randn(n // 2, generator=rng)), -x.flip(0), x[: n % 2]]),
        "subnormal": lambda: torch.randn(n, generator=rng) * 8 * torch.finfo(dtype).smallest_normal * 2.0**-5,
    }[kind]()
    return drawn.to(dtype)


KINDS = ["ones", "thirds", "normal", "uniform", "of all sizes", "growing", "cancelling", "subnormal"]


@SUMS
@DTYPES
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_is_within_the_bound(sum_, dtype, kind):
    for n in (1, 2, 3, 100, 1999):
        error, magnitude = error_and_magnitude(sum_, series(kind, n, dtype), dtype)
        assert error <= BOUNDS[sum_](n, unit_roundoff(dtype)) * magnitude, n


@SUMS
@DTYPES
@given(data=st.data())
def test_the_error_of_any_sum_is_within_the_bound(sum_, dtype, data):
    numbers = st.floats(-100, 100, width=16 if dtype == F16 else 32)
    xs = torch.tensor(data.draw(st.lists(numbers, min_size=1, max_size=200)), dtype=dtype)
    error, magnitude = error_and_magnitude(sum_, xs, dtype)
    assert error <= BOUNDS[sum_](len(xs), unit_roundoff(dtype)) * magnitude


def test_a_thousand_ones_in_bfloat16():
    ones = torch.ones(1000)
    assert [each(ones, BF16).item() for each in BOUNDS] == [1000.0, 256.0, 1000.0]


def test_only_compensation_keeps_the_bound_of_compensation():
    xs = series("thirds", 1999, BF16)
    bound = kahan_bound(1999, unit_roundoff(BF16))
    kept = [error <= bound * magnitude for error, magnitude in (error_and_magnitude(each, xs, BF16) for each in BOUNDS)]
    assert kept == [True, False, True]


@ON_EACH_DEVICE
@SUMS
def test_many_sums_at_once_are_those_one_by_one(sum_, device):
    xs = torch.randn(33, 2, 3, generator=seeded(0)).to(device)
    together = sum_(xs, F16)
    assert (together.dtype, together.shape) == (F16, (2, 3))
    assert together.flatten().tolist() == [sum_(xs[:, i, j], F16).item() for i in range(2) for j in range(3)]


@SUMS
def test_the_sum_of_nothing_is_0(sum_):
    assert sum_(torch.ones(0, 2), F16).tolist() == [0.0, 0.0]


@ON_EACH_DEVICE
@HALVES
def test_torch_adds_two_halves_with_one_rounding(dtype, device):
    rng = seeded(0)
    a, b = (torch.randn(2**16, generator=rng) * 2.0 ** torch.randint(-15, 12, (2**16,), generator=rng) for _ in "ab")
    a, b = a.to(device, dtype), b.to(device, dtype)
    total, exact = a + b, a.double() + b.double()
    for way in (-torch.inf, torch.inf):
        other = total.cpu().nextafter(torch.tensor(way, dtype=dtype)).to(device)
        assert bool(((total - exact).abs() <= (other - exact).abs()).all())
