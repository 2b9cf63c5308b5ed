"""Formats bit by bit, sums in two digits, and the two widgets that show them."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
import torch

from course.lessons.experiments.formats import FORMATS, exact, ranges
from course.lessons.experiments.two_digits import TERMS, running_sum, stalls_at
from course.lessons.widgets import bits, two_digits
from course.lessons.widgets.bits import Explorer, Shown
from course.reference.mixed_precision.round_to import round_to

EVERY = pytest.mark.parametrize("name", FORMATS)


def show(name: str, number: float) -> Shown:
    return Shown(format=FORMATS[name], code=FORMATS[name].code(number))


@EVERY
def test_bits_mean_the_number_that_ieee_754_says(name):
    form = FORMATS[name]
    for code in torch.randint(2**form.bits, (100,), generator=torch.Generator().manual_seed(0)).tolist():
        sign, exponent, mantissa = form.fields(code)
        if form.kind(code) not in ("inf", "nan"):
            size = (bool(exponent) + mantissa / 2**form.mantissa) * 2.0 ** (max(exponent, 1) - form.bias)
            assert form.value(code) == (-1) ** sign * size
            assert form.code(form.value(code)) == code


def test_a_number_gets_the_bits_that_rounding_gives_in_tf32_too():
    x = torch.randint(-(2**31), 2**31, (100,), generator=torch.Generator().manual_seed(0)).int().view(torch.float32)
    tf32, rounded = FORMATS["tf32"], round_to(x, 8, 10)
    ours = torch.tensor([tf32.value(tf32.code(each)) for each in x.tolist()])
    assert torch.equal(ours.nan_to_num(0.5), rounded.nan_to_num(0.5))
    assert math.isnan(tf32.value(tf32.code(math.nan)))


@pytest.mark.parametrize(
    ("name", "number", "kind", "above", "below"),
    [
        ("fp16", 65504.0, "normal", math.inf, 65472.0),
        ("fp16", 2.0**-24, "subnormal", 2.0**-23, 0.0),
        ("e4m3", 448.0, "normal", None, 416.0),
        ("e5m2", 0.0, "zero", 2.0**-16, None),
        ("bf16", math.inf, "inf", None, torch.finfo(torch.bfloat16).max),
        ("e4m3", math.nan, "nan", None, None),
    ],
)
def test_each_number_has_its_class_and_its_neighbours(name, number, kind, above, below):
    form, code = FORMATS[name], FORMATS[name].code(number)
    assert (form.kind(code), form.next(code), form.previous(code)) == (kind, above, below)


def test_the_exact_value_has_all_digits_and_the_table_all_formats_that_torch_has():
    assert exact(show("fp16", 0.1).value) == "0.0999755859375"
    assert float(exact(2.0**-149)) == 2.0**-149
    assert len(exact(2.0**-149)) > 100
    assert [line.split()[0] for line in ranges().splitlines()] == ["format", "fp32", "bf16", "fp16", "e5m2", "e4m3"]


def test_the_explorer_says_what_other_formats_make_of_a_number():
    off = {name: words for name, _, words in bits.roundings(show("fp32", 65520.0))}
    assert (off["fp16"], off["e5m2"], off["e4m3"], off["tf32"]) == (
        "overflow",
        "overflow",
        "saturates",
        "0.00024 of it",
    )
    assert "underflow" in bits.page(show("bf16", 1e-30))
    assert "held exactly by fp32, tf32." in bits.sentence(show("fp16", 0.1))


def test_the_explorers_first_frame_is_a_tenth_and_a_click_flips_a_bit():
    explorer = Explorer("fp16", 0.1)
    assert "".join(each.description for each in explorer.buttons) == "0010111001100110"
    explorer.buttons[0].click()
    assert "-0.0999755859375" in explorer.text.value
    explorer.name.value = "e5m2"
    assert len(explorer.buttons) == 8
    assert explorer.shown == show("e5m2", 0.1)
    explorer.number.value = "a tenth"  # no number: the bits stay
    assert explorer.shown == show("e5m2", 0.1)
    assert len(bits.bits().children) == 3


def test_a_thousand_ones_sum_to_a_hundred_and_three_terms_of_three_point_three_to_nine_point_nine():
    ones = running_sum(TERMS["1 + 1 + 1 + …"], 1000)
    assert (ones[-1].kept, stalls_at(ones)) == (100, 101)
    assert running_sum(Decimal("3.3"), 3)[-1].kept == Decimal("9.9")
    assert stalls_at(ones[:100]) is None


def test_two_digits_says_where_the_sum_stalls():
    ones = running_sum(Decimal(1), 200)
    assert two_digits.additions(ones)[-1] == "term 200: 100 + 1 = 101 → 100"
    assert two_digits.sentence(ones).endswith("since term 101 each sum is rounded back to 100.")
    controls, picture, words = two_digits.two_digits(count=200).children
    assert picture.value.startswith("<img")
    controls.children[1].value = 3
    assert "After 3 terms the machine has 3; the exact sum is 3." in words.value
