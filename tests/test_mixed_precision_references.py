"""References of unit mixed_precision: what torch does, bit for bit where it can be; and bounds where torch has none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course.errors import BadArgument
from course.lessons.experiments.sums import pairwise_sum, plain_sum
from course.reference.mixed_precision.compensated_sum import compensated_sum
from course.reference.mixed_precision.loss_scaler import LossScaler, OutOfTurn
from course.reference.mixed_precision.master_step import master_copies, master_step
from course.reference.mixed_precision.round_to import round_to
from course.reference.mixed_precision.scaled_fp8_matmul import quantize, scaled_fp8_matmul
from course.reference.mixed_precision.stochastic_round import stochastic_round
from course.reference.mixed_precision.with_masters import with_masters
from course.reference.optimizers.adamw_step import adamw_step

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
    rounded = stochastic_round(x.expand_as(u), u, dtype)
    assert rounded.dtype == dtype
    assert bool(((rounded == lower) | (rounded == upper)).all())
    share = torch.where(upper > lower, (x.double() - lower) / (upper.double() - lower), 0.0)
    assert torch.equal((rounded > lower).sum(0), (share * k).ceil().long())  # u = 0, 1 / k, ... below the share


@HALVES
@pytest.mark.parametrize("k", [3, 10, 1000])
def test_on_any_grid_the_share_is_right_but_for_one(dtype, k):
    x = drawn_between(dtype, 200)
    lower, upper = neighbours(x, dtype)
    ups = (stochastic_round(x.expand(k, -1), (torch.arange(k) / k)[:, None].expand(k, 200), dtype) > lower).sum(0)
    exact = torch.where(upper > lower, (x.double() - lower) / (upper.double() - lower), 0.0) * k
    assert bool(((ups == exact.floor()) | (ups == exact.ceil())).all())


@HALVES
def test_what_the_dtype_holds_stays_whatever_is_drawn(dtype):
    x = every(dtype)
    for u in (0.0, 0.5, 1 - 2**-24):
        assert same_bits(stochastic_round(x, torch.full_like(x, u), dtype), x.to(dtype))


def test_between_the_largest_value_and_the_next_power_of_two_a_share_becomes_inf_and_from_there_on_all():
    x = torch.tensor([65504 + 8.0, -65504 - 8.0, 65536.0, -1e9]).expand(4, 4)
    rounded = stochastic_round(x, (torch.arange(4) / 4)[:, None].expand(4, 4), F16)
    largest, inf = 65504.0, torch.inf
    assert rounded.T.tolist() == [[inf, *[largest] * 3], [*[-largest] * 3, -inf], [inf] * 4, [-inf] * 4]


def test_below_the_smallest_subnormal_zero_is_the_one_neighbour():
    x, u = 2.0**-24 * torch.tensor([0.25, -0.25]).expand(4, 2), (torch.arange(4) / 4)[:, None].expand(4, 2)
    assert (stochastic_round(x, u, F16).T * 2.0**24).tolist() == [[1, 0, 0, 0], [0, 0, 0, -1]]


def test_the_mean_of_many_draws_is_the_number():
    x, u = torch.full((100_000,), 1 + 2.0**-10), torch.rand(100_000, generator=seeded(0))
    mean = stochastic_round(x, u, BF16).double().mean().item()  # nearest would be 1: an eighth of a gap is lost
    assert mean == pytest.approx(1 + 2.0**-10, abs=5 * 2.0**-7 * math.sqrt(7 / 64 / 100_000))


@pytest.mark.parametrize("dtype", [F32, E5M2])
def test_another_target_is_refused(dtype):
    with pytest.raises(BadArgument, match=f"dtype must be torch.bfloat16 or torch.float16, got {dtype}"):
        stochastic_round(torch.ones(2), torch.ones(2), dtype)


def test_one_draw_for_all_numbers_is_refused():
    with pytest.raises(BadArgument, match=r"u must have the shape \(2,\) of x, got \(1,\)"):
        stochastic_round(torch.ones(2), torch.zeros(1))


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


# --- LossScaler ---------------------------------------------------------------------------------------

STEPS = 200
SHAPES = ((4, 3), (5,), ())
SCALERS = [
    {},
    {"growth_interval": 3},
    {"init_scale": 2.0**126, "growth_interval": 1},  # to where float32 ends
    {"init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 2},
]
SCRIPTS = {  # where in 200 steps a gradient is not finite
    "never": set(),
    "always": set(range(STEPS)),
    "just before it grows": set(range(2, STEPS, 3)),
    "first, as a new scale is found": set(range(20)),
    "now and then": set(torch.randperm(STEPS, generator=seeded(0))[:40].tolist()),
}


def normal(seed: int, dtype: torch.dtype = F32, device: str = "cpu") -> list[Tensor]:
    rng = seeded(seed)
    return [torch.randn(shape, generator=rng).to(device, dtype) for shape in SHAPES]


def scaled_gradients(t: int, scale: float, broken: bool, device: str) -> list[Tensor]:
    """Those of step t times a scale; where broken, one number of one of them is inf, -inf or nan."""
    grads = [g * scale for g in normal(t + 1, device=device)]
    if broken:
        grads[t % 3].view(-1)[-1] = (torch.inf, -torch.inf, torch.nan)[t // 3 % 3]
    return grads


def trained(scaler, unscale_, step, get_scale, script: set[int], device: str) -> Iterator[tuple[float, list[Tensor]]]:
    """After each step the new scale and the parameters, by SGD with momentum."""
    params = [torch.nn.Parameter(each) for each in normal(0, device=device)]
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9)
    for t in range(STEPS):
        scaler.scale(torch.ones((), device=device))  # torch's makes its scale here
        for param, grad in zip(params, scaled_gradients(t, get_scale(), t in script, device), strict=True):
            param.grad = grad
        unscale_(optimizer, params)
        step(optimizer)
        scaler.update()
        yield get_scale(), [param.detach().clone() for param in params]


@ON_EACH_DEVICE
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("options", SCALERS)
def test_200_steps_have_the_scales_skips_and_parameters_of_torchs_scaler(options, script, device):
    ours, theirs = LossScaler(**options), torch.amp.GradScaler(device, **options)
    taken = []
    a = trained(
        ours,
        lambda optimizer, params: ours.unscale_([each.grad for each in params]),
        lambda optimizer: taken.append(ours.step(optimizer.step)),
        lambda: ours.factor.item(),
        SCRIPTS[script],
        device,
    )
    b = trained(
        theirs,
        lambda optimizer, params: theirs.unscale_(optimizer),
        theirs.step,
        lambda: theirs.get_scale(),
        SCRIPTS[script],
        device,
    )
    # torch multiplies by 1 / scale, rounded to float32; we divide. For powers of two that is the same.
    close = partial(torch.allclose, rtol=STEPS * 2.0**-22, atol=STEPS * 2.0**-22)
    numbers = [float(value) for name, value in options.items() if name != "growth_interval"]
    same = same_bits if all(math.log2(number).is_integer() for number in numbers) else close
    before = normal(0, device=device)
    for t, ((scale, params), (wanted, theirs_after)) in enumerate(zip(a, b, strict=True)):
        assert scale == wanted, t
        assert all(map(same, params, theirs_after)), t
        assert all(map(same_bits, params, before)) != taken[t], t  # bit-unchanged where it is skipped, and only there
        before = params
    assert SCRIPTS[script] <= {t for t, each in enumerate(taken) if not each}


def test_a_gradient_too_small_for_float16_arrives():
    scaler, w = LossScaler(), torch.ones((), requires_grad=True)
    (w.half().float() * 1e-9).backward()
    assert w.grad == 0
    scaler.scale(w.half().float() * 1e-9).backward()
    scaler.unscale_([w.grad])
    assert w.grad.item() == pytest.approx(1e-9, rel=2**-11)


def test_a_float16_loss_does_not_overflow():
    scaled = LossScaler().scale(torch.tensor(2.0, dtype=F16))
    assert (scaled.dtype, scaled.item()) == (F32, 2.0**17)


def test_one_inf_anywhere_skips_all_and_a_missing_gradient_is_none():
    scaler, steps = LossScaler(), []
    scaler.unscale_([torch.ones(2), None, torch.tensor([[1.0, torch.inf]])])
    assert not scaler.step(lambda: steps.append(1))
    scaler.update()
    scaler.unscale_([torch.ones(2), None])
    assert scaler.step(lambda: steps.append(2))
    assert steps == [2]


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ("unscale_ unscale_", "unscale_ must be called once between two updates, got a second call"),
        ("unscale_ step unscale_", "unscale_ must be called once"),
        ("step", "step must be called once after unscale_ .* got no call of unscale_"),
        ("unscale_ step step", "step must be called once .* got a second call"),
        ("update", "update must follow unscale_"),
        ("unscale_ step update step", "got no call of unscale_"),
        ("unscale_ update update", "update must follow unscale_"),
    ],
)
def test_a_call_out_of_turn_is_refused_as_a_runtime_error_and_changes_nothing(calls, words):
    scaler, grad, steps = LossScaler(), torch.ones(2), []
    act = {
        "unscale_": lambda: scaler.unscale_([grad]),
        "step": lambda: scaler.step(lambda: steps.append(1)),
        "update": scaler.update,
    }
    *before, last = calls.split()
    for call in before:
        act[call]()
    seen = (grad.tolist(), len(steps), scaler.factor.item())
    with pytest.raises(OutOfTurn, match=words) as error:
        act[last]()
    assert isinstance(error.value, RuntimeError)
    assert (grad.tolist(), len(steps), scaler.factor.item()) == seen


def test_float16_gradients_are_refused_as_torch_refuses_them_before_anything_changes():
    scaler, grads = LossScaler(), [torch.ones(2), torch.ones(2, dtype=F16)]
    with pytest.raises(BadArgument, match="wider than float16 to be unscaled"):
        scaler.unscale_(grads)
    assert [each.tolist() for each in grads] == [[1.0, 1.0], [1.0, 1.0]]
    scaler.unscale_(grads[:1])


@pytest.mark.parametrize(
    "options", [{"init_scale": 0.0}, {"growth_factor": 1.0}, {"backoff_factor": 1.0}, {"growth_interval": 0}]
)
def test_numbers_that_find_no_scale_are_refused(options):
    with pytest.raises(BadArgument, match=f"{next(iter(options))} "):
        LossScaler(**options)


# --- master_step --------------------------------------------------------------------------------------


@ON_EACH_DEVICE
@HALVES
def test_a_thousand_updates_below_half_a_gap_move_the_master_and_in_the_end_the_parameter(dtype, device):
    alone, param = (torch.ones(3, dtype=dtype, device=device) for _ in range(2))
    masters, grad = master_copies([param]), torch.full((3,), 0.5, dtype=dtype, device=device)
    for t in range(1, 1001):
        alone -= 2.0**-14 * grad
        master_step([param], masters, [grad], 2.0**-14)
        assert t > 4 or (bool((masters[0] < 1).all()) and bool((param == 1).all()))
    assert alone.tolist() == [1.0] * 3
    assert masters[0].tolist() == [1 - 1000 * 2.0**-15] * 3
    assert param.tolist() == masters[0].to(dtype).tolist()
    assert bool((param < 1).all())
    assert grad.tolist() == [0.5] * 3


@ON_EACH_DEVICE
@HALVES
def test_200_steps_are_those_of_torchs_sgd_on_the_copy_cast_after_each(dtype, device):
    params = [torch.nn.Parameter(each) for each in normal(0, dtype, device)]
    masters = master_copies(params)
    theirs = [torch.nn.Parameter(each.detach().float()) for each in params]
    optimizer = torch.optim.SGD(theirs, lr=0.01)
    for t in range(STEPS):
        grads = normal(t + 1, dtype if t % 2 else F32, device)
        master_step(params, masters, grads, 0.01)
        for param, grad in zip(theirs, grads, strict=True):
            param.grad = grad.float()
        optimizer.step()
        torch.testing.assert_close(masters, [each.detach() for each in theirs])
        assert all(same_bits(param.detach(), master.to(dtype)) for param, master in zip(params, masters, strict=True))


@ON_EACH_DEVICE
@HALVES
def test_200_steps_through_masters_are_those_of_torchs_adamw_on_the_copy_cast_after_each(dtype, device):
    params = [torch.nn.Parameter(each) for each in normal(0, dtype, device)]
    masters = master_copies(params)
    theirs = [torch.nn.Parameter(each.detach().float()) for each in params]
    optimizer = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.1)
    step = partial(adamw_step, state=[{} for _ in params], lr=0.01, weight_decay=0.1)
    for t in range(STEPS):
        grads = [None if t % 4 == i else g for i, g in enumerate(normal(t + 1, dtype, device))]
        with_masters(params, grads, masters, step)
        for param, grad in zip(theirs, grads, strict=True):
            param.grad = None if grad is None else grad.float()
        optimizer.step()
        torch.testing.assert_close(masters, [each.detach() for each in theirs])
        assert all(same_bits(param.detach(), master.to(dtype)) for param, master in zip(params, masters, strict=True))


def test_master_copies_are_copies_and_no_leaves_of_a_graph():
    params = [torch.nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (F16, BF16, F32)]
    masters = master_copies(params)
    assert [(each.dtype, each.requires_grad) for each in masters] == [(F32, False)] * 3
    masters[2].zero_()
    assert params[2].tolist() == [1.0, 1.0]


def test_a_skipped_step_leaves_parameters_and_masters_as_they_are():
    params = normal(0, F16)
    masters, scaler = master_copies(params), LossScaler()
    grads = [g.float() for g in normal(1, F16)]
    grads[1][0] = torch.inf
    scaler.unscale_(grads)
    assert not scaler.step(partial(master_step, params, masters, grads, 0.01))
    assert all(map(same_bits, params, normal(0, F16)))
    assert all(map(same_bits, masters, master_copies(params)))


# --- products in 8 bits -------------------------------------------------------------------------------

BLOCKS = pytest.mark.parametrize("block", [None, 128, 32])
PRODUCT = ((5, 300), (300, 7))  # 300 is no multiple of a block


def factors(seed: int = 0, spread: float = 1.0, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Two matrices, whose numbers are of sizes that differ by some powers of e."""
    rng = seeded(seed)
    a, b = (torch.randn(shape, generator=rng) * (spread * torch.randn(shape, generator=rng)).exp() for shape in PRODUCT)
    return a.to(device), b.to(device)


def largest_error(x: Tensor, dtype: torch.dtype, block: int | None) -> Tensor:
    """By how much each number of x may be off after `quantize`, float64 of x's shape: half a gap of the format.

    The scale, the quotient and the clamp add three roundings of float32 at most.
    """
    q, scale = quantize(x, dtype, block=block)
    kept = torch.finfo(dtype)
    of_each = scale.double().expand_as(q).flatten(1)[:, : x.shape[1]]
    return (kept.eps / 2 + 3 * 2**-24) * x.double().abs() + kept.smallest_normal * kept.eps / 2 * of_each


def product_and_bound(a, b, dtypes, block) -> tuple[Tensor, Tensor]:
    """a @ b in float64, and by how much a product in 8 bits may be off, sums of k + 3 roundings in float32 included."""
    da, db = largest_error(a, dtypes[0], block), largest_error(b.T, dtypes[1], block).T
    a, b = a.double(), b.double()
    quantized = da @ b.abs() + a.abs() @ db + da @ db  # |a' b' - a b|, where |a' - a| is at most da
    added = (a.shape[1] + 3) * 2**-24 * ((a.abs() + da) @ (b.abs() + db))
    return a @ b, quantized + added


@ON_EACH_DEVICE
@BLOCKS
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_each_number_is_off_by_at_most_half_a_gap(dtype, block, device):
    x, _ = factors(spread=3.0, device=device)
    q, scale = quantize(x, dtype, block=block)
    assert (q.dtype, scale.dtype) == (dtype, F32)
    assert scale.shape == ((1, 1, 1) if block is None else (5, -(-300 // block), 1))
    near = (q.double() * scale).flatten(1)
    assert not bool((near[:, :300] - x).abs().gt(largest_error(x, dtype, block)).any())
    assert not bool(near[:, 300:].any())
    assert q.float().abs().max() == torch.finfo(dtype).max  # all of the range is used


@ON_EACH_DEVICE
@BLOCKS
@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2)])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_a_product_is_within_the_bound_of_its_roundings(dtypes, block, spread, device):
    for seed in range(5):
        a, b = factors(seed, spread, device)
        exact, bound = product_and_bound(a, b, dtypes, block)
        found = scaled_fp8_matmul(a, b, None, formats=dtypes, block=block)
        assert (found.dtype, found.shape) == (F32, (5, 7))
        assert bool(((found - exact).abs() <= bound).all())


@ON_EACH_DEVICE
@pytest.mark.parametrize("rowwise", [False, True])
@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E5M2, E4M3)])
def test_it_is_the_product_of_torchs_own_kernel(dtypes, rowwise, device):
    k = 256
    a, b = (torch.randn(shape, generator=seeded(0)).to(device) for shape in ((32, k), (k, 48)))
    block = k if rowwise else None
    (q_a, scale_a), (q_b, scale_b) = quantize(a, dtypes[0], block=block), quantize(b.T, dtypes[1], block=block)
    scales = (scale_a[:, 0], scale_b[:, 0].T) if rowwise else (scale_a.squeeze(), scale_b.squeeze())
    try:
        theirs = torch._scaled_mm(q_a[:, 0], q_b[:, 0].T, *scales, out_dtype=F32)
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"no torch._scaled_mm for this on {device}: {str(error).splitlines()[0]}")
    magnitudes = (q_a.double() * scale_a)[:, 0].abs() @ (q_b.double() * scale_b)[:, 0].abs().T
    # A CPU adds in float32; Hopper's tensor cores keep some 14 bits of a sum (DeepSeek-V3, section 3.5.2).
    added = 2 * (k + 3) * 2**-24 if device == "cpu" else 2**-13
    ours = scaled_fp8_matmul(a, b, None, formats=dtypes, block=block)
    assert bool(((ours - theirs).abs() <= added * magnitudes).all())


def test_one_outlier_costs_a_tensor_its_small_numbers_and_a_block_scale_only_its_own_block():
    a = torch.ones(1, 256)
    a[0, 0] = 1e6
    b = torch.cat([torch.zeros(128, 1), torch.ones(128, 1)])
    assert scaled_fp8_matmul(a, b, None).item() == 0
    assert scaled_fp8_matmul(a, b, None, block=128).item() == pytest.approx(128)


def test_delayed_scaling_takes_the_maximum_of_the_last_steps():
    history, one = [], torch.ones(1, 1)
    sizes = [1.0, 4.0, 2.0, 8.0, *[1.0] * 16, 1.0]
    taken = [scaled_fp8_matmul(torch.tensor([[-size]]), one, (history, [])).item() for size in sizes]
    assert taken == pytest.approx([-1.0, -1.0, -2.0, -4.0, *[-1.0] * 17])
    assert history == [1.0] * 16


@pytest.mark.parametrize(("dtype", "largest"), [(E4M3, 448.0), (E5M2, 57344.0)])
def test_what_has_grown_beyond_the_history_is_clipped_and_nan_is_not_hidden(dtype, largest):
    x = torch.tensor([[3.0, -1e9, torch.inf, torch.nan]])
    q, scale = quantize(x, dtype, amax=4.0)
    assert (q.float() * scale)[0, 0, 1:3].tolist() == [-4.0, 4.0]
    assert (q.float()[0, 0, 1], q[0, 0, 3].float().isnan()) == (-largest, True)


@BLOCKS
def test_zeros_stay_zeros_and_numbers_at_the_ends_of_float32_keep_theirs(block):
    assert not bool(scaled_fp8_matmul(torch.zeros(2, 3), torch.ones(3, 2), None, block=block).any())
    for size in (1e-30, 1e30):
        x = torch.full((2, 3), size)
        assert scaled_fp8_matmul(x, torch.eye(3), None, block=block).tolist() == [pytest.approx([size] * 3)] * 2


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((3,), (3, 2)), ((2, 3), (3,))])
def test_what_cannot_be_multiplied_is_refused(shapes):
    with pytest.raises(BadArgument, match=r"a must be \(m, k\) and b \(k, n\), got"):
        scaled_fp8_matmul(*(torch.ones(shape) for shape in shapes), None)


@pytest.mark.parametrize(("block", "scales"), [(0, None), (2, ([], []))])
def test_blocks_below_1_and_blocks_with_a_history_are_refused(block, scales):
    with pytest.raises(BadArgument, match="block must be at least 1, and with it scales must be None"):
        scaled_fp8_matmul(torch.ones(2, 2), torch.ones(2, 2), scales, block=block)
