"""References of unit 01, beside what its exercises judge: functions without curvature, and sizes of 0."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vjp
from torch.nn.functional import linear

from course.reference.computational_graphs.hvp import hvp
from course.reference.computational_graphs.linear_vjp import linear_vjp

F32, F64 = torch.float32, torch.float64
SLOPES = torch.tensor([[3.0, -1.0]], dtype=F64, requires_grad=True)
FLAT = {
    "a sum": lambda x: x.sum(),
    "a product with a constant": lambda x: (SLOPES.detach() * x).sum(),
    "a product with a parameter, which has a graph": lambda x: (SLOPES * x).sum(),
    "a constant": lambda x: torch.tensor(3.0),
    "a parameter": lambda x: SLOPES.sum(),
    "a function of x detached": lambda x: x.detach().square().sum(),
}


@pytest.mark.parametrize("f", FLAT.values(), ids=FLAT)
@pytest.mark.parametrize(("dtype", "marked"), [(F64, False), (F64, True), (F32, False)])
def test_the_hessian_of_a_function_without_curvature_times_v_is_zeros_as_in_torch_func(f, dtype, marked):
    x, v = (torch.ones(1, 2, dtype=dtype, requires_grad=marked) for _ in range(2))
    ours, (theirs,) = hvp(f, x, v), vjp(grad(f), x)[1](v)  # H is symmetric
    torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=0)
    assert (ours.shape, ours.dtype, ours.requires_grad, ours.count_nonzero()) == (x.shape, dtype, False, 0)


def test_a_number_without_influence_has_a_row_of_zeros():
    x, v = torch.tensor([2.0, 5.0], dtype=F64), torch.ones(2, dtype=F64)
    assert hvp(lambda x: x[0] ** 3 + x[1], x, v).tolist() == [12.0, 0.0]


@pytest.mark.parametrize("batch", [(), (0,), (3,), (2, 0), (0, 2)])
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 5), (0, 5), (4, 0), (0, 0)])
def test_the_vjp_of_a_linear_layer_of_any_size_is_that_of_torchs(batch, inputs, outputs):
    x, w = torch.ones(*batch, inputs, dtype=F64), torch.ones(outputs, inputs, dtype=F64)
    dout = torch.ones(*batch, outputs, dtype=F64)
    _, theirs = vjp(linear, x, w, torch.ones(outputs, dtype=F64))
    torch.testing.assert_close(linear_vjp(dout, x, w), theirs(dout))
