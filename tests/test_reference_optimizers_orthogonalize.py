"""The reference `orthogonalize`: bit for bit what torch.optim.Muon computes, and where its singular values land."""

from __future__ import annotations

import pytest
import torch
from torch.optim import _muon

from course.errors import BadArgument
from course.exercises.optimizers.orthogonalize import HIGHEST, LOWEST
from course.reference.optimizers.orthogonalize import A, B, C, orthogonalize

SHAPES = [(4, 9), (9, 4), (5, 5), (1, 3)]


def matrix(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_in_bfloat16_it_is_bit_for_bit_torchs(shape, steps):
    g = matrix(*shape, dtype=torch.bfloat16)
    theirs = _muon._zeropower_via_newtonschulz(g, (A, B, C), steps, 1e-7)
    assert torch.equal(orthogonalize(g, steps), theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_polynomial_is_applied_to_the_singular_values_and_the_vectors_stay(shape):
    left, values, right = torch.linalg.svd(matrix(*shape), full_matrices=False)
    values = values / values.norm()
    for _ in range(5):
        values = A * values + B * values**3 + C * values**5
    torch.testing.assert_close(orthogonalize(matrix(*shape)), left * values @ right)


def test_singular_values_from_1_percent_of_the_norm_land_in_the_band():
    values = torch.linspace(0.01, 1, 50_001, dtype=torch.float64)
    for _ in range(5):
        values = A * values + B * values**3 + C * values**5
    assert (values.min().item(), values.max().item()) == pytest.approx((0.6818, 1.1344), abs=1e-4)
    assert LOWEST < values.min() < values.max() < HIGHEST


@pytest.mark.parametrize("scale", [1e-4, 1e4, 1e12])
def test_the_scale_does_not_matter(scale):
    torch.testing.assert_close(orthogonalize(scale * matrix(3, 5)), orthogonalize(matrix(3, 5)))


def test_zeros_stay_zeros():
    assert torch.equal(orthogonalize(torch.zeros(3, 2)), torch.zeros(3, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_result_has_the_shape_and_dtype_of_g_and_g_stays(dtype):
    g = matrix(6, 2, dtype=dtype)
    before = g.clone()
    assert (orthogonalize(g).shape, orthogonalize(g).dtype) == (g.shape, dtype)
    assert torch.equal(g, before)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), ()])
def test_what_is_no_matrix_is_refused(shape):
    with pytest.raises(BadArgument, match="g must be a matrix, got the shape"):
        orthogonalize(torch.ones(shape))


def test_negative_steps_are_refused():
    with pytest.raises(BadArgument, match="steps must be at least 0, got -1"):
        orthogonalize(torch.ones(2, 2), -1)
