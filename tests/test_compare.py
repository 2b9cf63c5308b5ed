"""course/performing/compare.py: one value against a reference computed in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course.performing.compare import EPS, Comparison, as_numbers, case_dtype, compare, describe, number, tolerance

FLOATS = st.floats(-1e6, 1e6)
ODD = st.sampled_from([math.nan, math.inf, -math.inf])
VECTORS = st.lists(FLOATS, min_size=1, max_size=5).map(lambda values: torch.tensor(values, dtype=torch.float64))
FLOAT_DTYPES = st.sampled_from(sorted(EPS, key=str))
VECTOR = torch.tensor([1.0, 2.0], dtype=torch.float64)
EXACT = torch.linspace(1, 2, 7, dtype=torch.float64).sqrt()
NUMBERS = st.booleans() | st.integers() | st.floats()


def held(got, expected, dtype=torch.float32, roundings=8) -> bool:
    return compare(got, expected, dtype, roundings=roundings).held


# tolerance


def test_tolerance_is_the_number_of_roundings_times_the_spacing_at_that_scale():
    assert tolerance(torch.float32, roundings=4, scale=10.0) == 4 * 2**-23 * 10.0


def test_sensitivity_replaces_the_spacing_where_it_is_larger():
    assert tolerance(torch.float32, roundings=4, scale=10.0, sensitivity=0.5) == 2.0


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float8_e4m3fn])
def test_dtypes_without_a_known_spacing_compare_exactly(dtype):
    assert tolerance(dtype, roundings=100, scale=10.0) == 0


@pytest.mark.parametrize("scale", [math.inf, math.nan, 1.7e308])
def test_tolerance_is_finite_whatever_the_scale(scale):
    assert math.isfinite(tolerance(torch.bfloat16, roundings=20_000, scale=scale))


# values


@given(NUMBERS | VECTORS | st.none() | st.text())
def test_everything_equals_itself(value):
    assert held(value, value, torch.float64, roundings=0)


@given(st.lists(st.floats(1e-4, 6e4), min_size=1, max_size=5), FLOAT_DTYPES)
def test_one_rounding_of_each_value_is_allowed(values, dtype):
    exact = torch.tensor(values, dtype=torch.float64) * torch.tensor([1, -1])[torch.arange(len(values)) % 2]
    assert held(exact.to(dtype), exact, dtype, roundings=1)


@given(VECTORS, st.data(), st.floats(1.01, 1e3))
def test_one_value_beyond_the_tolerance_fails_and_is_told(exact, data, factor):
    at = data.draw(st.integers(0, len(exact) - 1))
    scale = float(exact.abs().max()) + 1
    moved = exact.clone()
    moved[at] += 2 * factor * 8 * EPS[torch.float32] * scale
    found = compare(moved, exact, torch.float32, roundings=8)
    assert (found.held, found.where) == (False, f"[{at}]")
    assert not found.error <= found.tolerance


NORMAL = VECTORS.filter(lambda each: bool(((each == 0) | (each.abs() > 1e-300)).all()))  # others lose digits below it


@given(NORMAL, st.integers(-20, 20), st.floats(-1e-6, 1e-6))
def test_the_verdict_does_not_depend_on_the_unit(exact, exponent, relative):
    got, unit = exact * (1 + relative), 2.0**exponent
    assert held(got, exact) == held(got * unit, exact * unit)


@given(VECTORS, st.data(), st.integers(0, 10**6))
def test_nan_fails_where_the_reference_is_a_number(exact, data, roundings):
    got = exact.clone()
    got[data.draw(st.integers(0, len(exact) - 1))] = math.nan
    assert not held(got, exact, torch.bfloat16, roundings)


@given(ODD, ODD | FLOATS)
def test_what_is_not_finite_must_be_the_same(got, expected):
    assert held(got, expected) == (got == expected or (math.isnan(got) and math.isnan(expected)))


def test_an_error_of_infinity_is_never_within_the_tolerance():
    assert not held(math.nan, 1.7e308, torch.bfloat16, roundings=10**6)


def test_nan_at_one_place_does_not_hide_an_error_at_another():
    got, expected = torch.tensor([math.nan, 1.0]), torch.tensor([math.nan, 2.0])
    assert not held(got, expected)


@pytest.mark.parametrize("one", [2, 2.0, torch.tensor(2.0), torch.tensor(2), torch.tensor(2.0, requires_grad=True)])
@pytest.mark.parametrize("other", [2, 2.0, torch.tensor(2.0, dtype=torch.float64)])
def test_a_number_and_a_tensor_of_shape_zero_are_the_same(one, other):
    assert held(one, other, roundings=0)


@pytest.mark.parametrize("got", [torch.ones(2), torch.ones(1), torch.ones(1, 3), torch.ones(3, 1), 1.0, torch.ones(0)])
def test_shapes_are_not_broadcast(got):
    assert not held(got, torch.ones(3))


def test_empty_tensors_of_one_shape_are_equal():
    assert held(torch.ones(0, 2), torch.zeros(0, 2))


def test_a_complex_value_is_not_a_real_one():
    assert held(torch.tensor([1 + 1j]), torch.tensor([1 + 1j]))
    assert not held(torch.tensor([1 + 0j]), torch.tensor([1.0]))
    assert not held(torch.tensor([1 + 1j]), torch.tensor([1 - 1j]))


@pytest.mark.parametrize(("got", "expected"), [("a", "b"), ("1", 1), (None, 0), (0, None), ("None", None), (None, "")])
def test_texts_and_nothing_compare_exactly(got, expected):
    assert not held(got, expected)


@pytest.mark.parametrize("got", [10**400, 10**5000], ids=["400", "5000"])
def test_a_huge_integer_counts_as_infinite(got):
    assert held(got, math.inf)
    assert held(-got, -math.inf)
    assert not held(got, -math.inf)
    assert not held(got, 1.7e308)


@pytest.mark.parametrize("roundings", [32, 10**6])
@pytest.mark.parametrize("one", [10**9, torch.tensor(10**9), torch.tensor([1, 10**9])])
def test_whole_numbers_compare_exactly_whatever_the_dtype_of_the_case(one, roundings):
    assert held(one, one, torch.bfloat16, roundings)
    assert not held(one + 1, one, torch.bfloat16, roundings)


def test_a_float_may_stand_for_a_whole_number():
    assert held(3.0, 3)
    assert held(torch.tensor(3.0), 3)
    assert not held(torch.tensor(3 + 2**-22), 3)
    assert not held(torch.tensor(2.0**24), 2**24 + 1)


# whose roundings


def test_float32_is_accepted_in_a_float64_case_at_its_own_tolerance():
    exact = torch.tensor([1.0, 1 / 3], dtype=torch.float64)
    assert held(exact.float(), exact, torch.float64)
    assert not held(exact.float().double(), exact, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("coarse", [torch.float16, torch.bfloat16])
def test_a_coarse_answer_does_not_buy_tolerance(coarse, dtype):
    exact = torch.tensor([1.0, 1 / 3], dtype=torch.float64)
    found = compare(exact.to(coarse), exact, dtype, roundings=8)
    assert (found.held, found.tolerance) == (False, 8 * EPS[torch.float32])


@pytest.mark.parametrize("roundings", [2**18, 32 * 2**29, 2**45])
def test_however_many_roundings_are_allowed_zeros_in_float32_are_nothing_like_a_value(roundings):
    exact = torch.tensor([1.0, 1 / 3], dtype=torch.float64)
    found = compare(torch.zeros(2), exact, torch.float64, roundings=roundings)
    assert (found.held, found.tolerance) == (False, max(2**17 * EPS[torch.float32], roundings * EPS[torch.float64]))
    assert compare(exact.float(), exact, torch.float64, roundings=roundings).held


def test_a_finer_answer_keeps_the_tolerance_of_the_case():
    exact = torch.tensor([1 / 3], dtype=torch.float64)
    assert held(exact.half().double(), exact, torch.float16)


@pytest.mark.parametrize(
    ("inputs", "dtype"),
    [
        ({"x": 1.0, "n": [1, 2]}, torch.float64),
        ({"x": torch.ones(1), "y": torch.ones(1).double()}, torch.float32),
        ({"x": [torch.ones(1).half(), torch.ones(1).bfloat16()]}, torch.bfloat16),
        ({"x": torch.ones(1, dtype=torch.int8)}, torch.float64),
    ],
)
def test_a_case_is_as_coarse_as_its_coarsest_input(inputs, dtype):
    assert case_dtype(inputs) == dtype


# totality


def _unreadable() -> dict[str, object]:
    return {
        "meta": torch.ones(3, device="meta"),
        "sparse": torch.eye(3).to_sparse(),
        "bits": torch.empty(3, dtype=torch.bits8),
        "list": [1, 2],
        "dict": {"a": 1},
        "object": object(),
        "complex": 1j,
    }


@pytest.mark.parametrize("name", sorted(_unreadable()))
@pytest.mark.parametrize("expected", [torch.ones(3), 1.0, "text", None])
def test_what_cannot_be_read_equals_nothing(name, expected):
    odd = _unreadable()[name]
    assert as_numbers(odd) is None
    assert not held(odd, expected)
    assert not held(odd, odd)
    assert describe(odd)


@given(NUMBERS | VECTORS | st.text(), NUMBERS | VECTORS | st.none(), FLOAT_DTYPES, st.integers(0, 10**9))
def test_compare_is_total(got, expected, dtype, roundings):
    found = compare(got, expected, dtype, roundings=roundings)
    assert isinstance(found, Comparison)
    assert found.held == (found.error <= found.tolerance)


# words


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (None, "None"),
        ("text", "text"),
        ("x" * 200, "x" * 80),
        (True, "True"),
        (1 / 3, "0.333333"),
        (-0.0001, "-0.0001"),
        (torch.tensor([-0.0, 0.0, -1.0]), "[0, 0, -1]"),
        (1_234_567_890, "1234567890"),
        pytest.param(-(10**400), "about -10^400", id="negative"),
        pytest.param(10**5000, "about 10^4000 or more", id="huge"),
        (torch.tensor(2.5), "2.5"),
        (torch.tensor([1.0, math.nan]), "[1, nan]"),
        (torch.zeros(0), "shape (0,)"),
        (torch.zeros(2, 3), "shape (2, 3)"),
        (torch.tensor([1j]), "[1j]"),
    ],
)
def test_values_are_told_in_a_few_characters(leaf, words):
    assert describe(leaf) == words


def test_a_large_tensor_is_told_by_its_shape_and_worst_value():
    got = torch.zeros(2, 3)
    got[1, 2] = 0.5
    found = compare(got, torch.zeros(2, 3), torch.float32, roundings=1)
    assert (found.got, found.expected, found.where) == ("shape (2, 3), 0.5", "shape (2, 3), 0", "[1, 2]")


def test_a_number_has_six_digits():
    assert (number(1234567.0), number(1e-9), number(2)) == ("1.23457e+06", "1e-09", "2")


@pytest.mark.parametrize(
    ("got", "expected", "words"),
    [
        (0.5251512, 0.5251514, ("0.5251512", "0.5251514")),
        (1.0, 1.0 + 2**-52, ("1", "1.0000000000000002")),
        (VECTOR, VECTOR + 1e-8, ("[1, 2]", "[1.00000001, 2.00000001]")),
        (EXACT, EXACT + 1e-9, None),
    ],
)
def test_numbers_that_differ_are_told_with_the_digits_that_do(got, expected, words):
    found = compare(got, expected, torch.float64, roundings=0)
    assert not found.held
    assert words in (None, (found.got, found.expected))
    assert found.got != found.expected


def test_where_it_holds_six_digits_are_enough():
    assert compare(1.0, 1.0 + 2**-52, torch.float64, roundings=8).expected == "1"


@pytest.mark.parametrize(
    ("got", "dtype", "words"),
    [
        (EXACT.float().double(), torch.float64, "8 digits only: was it computed in float32?"),
        ((EXACT.float() * EXACT.float()).double().sqrt(), torch.float64, "was it computed in float32?"),
        (EXACT.half().double(), torch.float32, "3 digits only: was it computed in float16?"),
        (EXACT.bfloat16(), torch.float32, "digits only: was it computed in bfloat16?"),
    ],
)
def test_what_was_computed_in_a_coarser_dtype_is_asked_about(got, dtype, words):
    assert words in compare(got, EXACT, dtype, roundings=4).remark


@pytest.mark.parametrize("got", [EXACT * 1.0005, EXACT * 1.1, EXACT + 1e-12, EXACT.float().double() * math.nan])
def test_other_differences_are_not_asked_about(got):
    found = compare(got, EXACT, torch.float64, roundings=4)
    assert (found.held, found.remark) == (False, "")


def test_of_whole_numbers_and_zeros_nothing_is_asked():
    assert compare(10**9 + 1, 10**9, torch.float64, roundings=4).remark == ""
    assert compare(1e-7, 0.0, torch.float64, roundings=4).remark == ""
