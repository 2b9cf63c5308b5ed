"""References of unit mixed_precision: what torch does, bit for bit where it can be; and bounds where torch has none."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course.errors import BadArgument
from course.reference.mixed_precision.rounding import round_to

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
