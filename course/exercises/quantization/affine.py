"""Numbers on affine grids whose codes nobody can dispute, and how near to them an answer comes in floating point.

code --off_ties--> position, within 0.3 of (code - zero) --times step--> number
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.performing.compare import ALL_DIGITS, DIGITS, EPS, as_numbers, describe, number
from course.performing.exercise import Inputs
from course.tree import Leaf

AWAY = 0.3  # of a step, from the code; ties lie at 0.5
FIRST_STEP, STEPS = 0.01, 0.03  # steps lie between 0.01 and 0.04
CODES = 256.0  # a difference of two codes is less, in size
# Quotients beside a tie, where float32 sees a tie: of each the nearest integer is not the even one.
BESIDE = torch.tensor([k + 0.5 + (1e-10 if k % 2 == 0 else -1e-10) for k in range(-5, 5)], dtype=torch.float64)


def off_ties(rng: torch.Generator, codes: Tensor) -> Tensor:
    """float64: each code, and up to 0.3 more or less."""
    return codes.double() + AWAY * (2 * torch.rand(codes.shape, generator=rng, dtype=torch.float64) - 1)


def steps(rng: torch.Generator, *shape: int) -> Tensor:
    """float32, from 0.01 to 0.04."""
    return (FIRST_STEP + STEPS * torch.rand(shape, generator=rng, dtype=torch.float64)).float()


def zeros(rng: torch.Generator, bits: int, *shape: int) -> Tensor:
    """int32: odd zero points of either sign, below the last code but for 2 bits."""
    drawn = torch.randint(max(2 ** (bits - 2) - 1, 1), shape, generator=rng) * 2 + 1
    return torch.where(torch.rand(shape, generator=rng) < 0.5, -drawn, drawn).int()


def far(step: Tensor) -> Tensor:
    """The same steps, but the first is 1,000 times larger."""
    return torch.cat([1000 * step.flatten()[:1], step.flatten()[1:]]).reshape(step.shape)


def beyond(found: Leaf, exact: Tensor, allowed: Tensor, what: str) -> str | None:
    """A sentence where a number of `found` is farther from `exact` than it is allowed to be; None where none is.

    All three broadcast, but for the shape of what was found, which must be that of `exact`.
    """
    numbers = as_numbers(found)
    if numbers is None or numbers.is_complex() or numbers.shape != exact.shape:
        return f"{what} must have the shape {(*exact.shape,)}, got {describe(found)}"
    error = (numbers - exact).abs()
    bad = ~(error <= allowed)  # nan too
    if not bool(bad.any()):
        return None
    at = int(bad.flatten().int().argmax())
    got, right, most = (float(each.expand(exact.shape).flatten()[at]) for each in (numbers, exact, allowed))
    digits = next((each for each in (DIGITS, 9) if number(got, each) != number(right, each)), ALL_DIGITS)
    room = f", with {most:.2g} allowed for roundings" if most else ""
    return f"{what}: {number(got, digits)} where {number(right, digits)} is right{room}"


def eps_of(inputs: Inputs, name: str) -> float:
    """The spacing of this input's dtype; of float32 where it is coarser."""
    return min(EPS[inputs[name].dtype], EPS[torch.float32])
