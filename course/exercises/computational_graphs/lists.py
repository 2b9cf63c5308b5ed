"""Numbers that answers return, and lists of them, read in one way whatever kind they are of."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.errors import WrongOutput


def number(value: Any) -> Any:
    """A number of any real kind in float64, with -0.0 as 0.0; an integer and everything else as it came.

    In float64, so that one which came in float32 is not allowed its roundings.
    """
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().to(torch.float64) + 0.0
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value.astype(np.float64) + 0.0
    return float(value) + 0.0 if isinstance(value, (float, np.floating, Fraction, Decimal)) else value


def numbers(values: Any, name: str) -> Any:
    """A sequence of any kind of numbers as one tensor in float64, -0.0 as 0.0; one number as `number` reads it.

    Arrays and tensors keep their shape. Raises WrongOutput, which calls the values `name`, on everything else: an
    iterator is no list, because it can be read only once.
    """
    if isinstance(values, (int, float, np.number, Fraction, Decimal)):
        return number(values)
    if isinstance(values, (Tensor, np.ndarray)) and values.dtype != object:
        return torch.as_tensor(values).detach().to(torch.float64) + 0.0
    if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, (str, bytes)):
        raise WrongOutput(f"{name} must be a list of numbers, got {type(values).__name__}")
    return torch.tensor([_entry(each, name) for each in values], dtype=torch.float64) + 0.0


def _entry(value: Any, name: str) -> float:
    """One number of a list: a tensor of shape () too, but no text."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass
    raise WrongOutput(f"{name} must be a list of numbers, got one that holds {type(value).__name__}")
