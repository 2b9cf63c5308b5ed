"""The reference `factored_second_moment`: exact on rank one, in place, equal to what torch.optim.Adafactor keeps."""

from __future__ import annotations

import pytest
import torch

from course.errors import BadArgument
from course.reference.optimizers.factored_second_moment import factored_second_moment


def gradients(count: int, *shape: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=rng, dtype=dtype) for _ in range(count)]


def test_on_rank_one_squares_it_is_the_full_moving_average():
    shape = torch.outer(torch.tensor([1.0, 2.0, 0.5]), torch.tensor([3.0, 1.0])).double()
    rows, cols, full = torch.zeros(3).double(), torch.zeros(2).double(), torch.zeros(3, 2).double()
    for size in (1.0, -2.0, 0.5):
        estimate = factored_second_moment(size * shape, rows, cols, 0.9)
        full = 0.9 * full + 0.1 * (size * shape) ** 2
        torch.testing.assert_close(estimate, full)


def test_the_row_and_column_means_are_those_of_the_full_moving_average():
    rows, cols, full = torch.zeros(4).double(), torch.zeros(3).double(), torch.zeros(4, 3).double()
    for g in gradients(5, 4, 3):
        estimate = factored_second_moment(g, rows, cols, 0.9)
        full = 0.9 * full + 0.1 * g**2
    torch.testing.assert_close((estimate.mean(1), estimate.mean(0)), (full.mean(1), full.mean(0)))
    torch.testing.assert_close((rows, cols), (full.mean(1), full.mean(0)))


def test_rows_and_cols_are_what_torch_keeps():
    parameter = torch.nn.Parameter(torch.ones(4, 3, dtype=torch.float64))
    theirs = torch.optim.Adafactor([parameter])
    rows, cols = torch.zeros(4).double(), torch.zeros(3).double()
    for t, g in enumerate(gradients(20, 4, 3), start=1):
        parameter.grad = g
        theirs.step()
        factored_second_moment(g, rows, cols, 1 - t**-0.8)
    kept = theirs.state[parameter]
    torch.testing.assert_close((rows, cols), (kept["row_var"].flatten(), kept["col_var"].flatten()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_estimate_has_the_dtype_of_g_and_g_stays(dtype):
    (g,) = gradients(1, 2, 3, dtype=dtype)
    before = g.clone()
    assert factored_second_moment(g, g.new_zeros(2), g.new_zeros(3), 0.0).dtype == dtype
    assert torch.equal(g, before)


@pytest.mark.parametrize("beta2", [1.0, -0.1, float("nan")])
def test_a_beta2_outside_of_0_to_1_is_refused_before_anything_changes(beta2):
    rows, cols = torch.ones(2), torch.ones(3)
    with pytest.raises(BadArgument, match=r"beta2 must lie in \[0, 1\)"):
        factored_second_moment(torch.full((2, 3), 5.0), rows, cols, beta2)
    assert rows.tolist() + cols.tolist() == [1.0] * 5


@pytest.mark.parametrize(("rows", "cols"), [((3,), (2,)), ((1,), (3,)), ((2, 1), (1, 3))])
def test_rows_and_cols_of_another_length_are_refused(rows, cols):
    with pytest.raises(BadArgument, match=r"for each row and column of g \(2, 3\), got"):
        factored_second_moment(torch.ones(2, 3), torch.ones(rows), torch.ones(cols), 0.9)
