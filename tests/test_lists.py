"""computational_graphs/lists.py: numbers of any kind are read, and lists of them; nothing else is."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from course.errors import WrongOutput
from course.exercises.computational_graphs.lists import number, numbers


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5],
        (1, Fraction(5, 2)),
        [Decimal("1"), np.float32(2.5)],
        [torch.tensor(1.0), torch.tensor(2.5)],
        np.array([1.0, 2.5], dtype=np.float32),
        np.array([Fraction(1), Fraction(5, 2)]),
        torch.tensor([1.0, 2.5]),
    ],
)
def test_a_list_of_any_kind_of_numbers_becomes_one_tensor(values):
    read = numbers(values, "dw")
    assert (read.dtype, read.tolist()) == (torch.float64, [1.0, 2.5])


def test_no_numbers_are_a_tensor_without_entries():
    assert numbers([], "dw").shape == (0,)


def test_arrays_keep_their_shape():
    assert numbers(np.ones((2, 1)), "dw").shape == (2, 1)


def test_one_number_stays_one_number():
    assert (numbers(2.5, "dw"), numbers(np.float64(2.5), "dw"), numbers(2, "dw")) == (2.5, 2.5, 2)


@pytest.mark.parametrize("value", [np.float32(0.1), np.array(0.1, dtype=np.float32), torch.tensor(0.1)])
def test_a_number_in_float32_is_read_in_float64(value):
    assert np.asarray(number(value)).dtype == np.float64
    assert float(number(value)) == float(value)


def test_a_zero_that_is_negative_is_read_as_zero():
    read = [number(-0.0), *numbers([-0.0], "dw").tolist(), *numbers(np.array([-0.0]), "dw").tolist()]
    assert [str(each) for each in read] == ["0.0", "0.0", "0.0"]


@pytest.mark.parametrize(
    ("values", "came"),
    [
        (map(float, [1]), "got map"),
        ((x for x in [1.0]), "got generator"),
        ({"dw": 1.0}, "got dict"),
        ("12", "got str"),
        (None, "got NoneType"),
        (["1"], "got one that holds str"),
        ([[1.0]], "got one that holds list"),
    ],
)
def test_everything_else_is_refused_by_name(values, came):
    with pytest.raises(WrongOutput, match=f"^dw must be a list of numbers, {came}$"):
        numbers(values, "dw")


def test_fractions_and_decimals_are_numbers():
    assert (number(Fraction(1, 4)), number(Decimal("0.25")), number("1/4")) == (0.25, 0.25, "1/4")
