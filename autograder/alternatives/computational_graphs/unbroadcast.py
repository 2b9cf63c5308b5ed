"""Other right ways to write `unbroadcast`."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from autograder.bank import Alternative

Shape = tuple[int, ...]


def one_sum_and_reshape(grad: Tensor, shape: Shape) -> Tensor:
    """All dimensions in one sum that keeps them, then a reshape that drops the leading ones."""
    padded = (1,) * (grad.dim() - len(shape)) + tuple(shape)
    dims = [i for i, size in enumerate(padded) if size == 1]
    return (grad.sum(dim=dims, keepdim=True) if dims else grad).reshape(shape)


def numpy_in_float64(grad: Tensor, shape: Shape) -> Tensor:
    """Float64 inside; last dimension first."""
    array = grad.numpy().astype("float64")
    for back in range(1, array.ndim + 1):
        if back > len(shape) or shape[-back] == 1:
            array = array.sum(axis=-back, keepdims=True)
    return torch.from_numpy(array.reshape(shape)).to(grad.dtype)


def adds_each_number(grad: Tensor, shape: Shape) -> Tensor:
    """Finds for each number of `grad` the one that it was copied from, and adds in place on a new tensor."""
    total = torch.zeros(shape, dtype=grad.dtype)
    extra = grad.dim() - len(shape)
    for index in itertools.product(*(range(size) for size in grad.shape)):
        source = tuple(0 if size == 1 else i for i, size in zip(index[extra:], shape, strict=True))
        total[source] += grad[index]
    return total


def einsum(grad: Tensor, shape: Shape) -> Tensor:
    """Names the dimensions that are kept; einsum sums over all others."""
    extra = grad.dim() - len(shape)
    kept = [extra + i for i, size in enumerate(shape) if size != 1]
    return torch.einsum(grad, list(range(grad.dim())), kept).reshape(shape)


ALTERNATIVES = (
    Alternative(name="one_sum_and_reshape", answer=one_sum_and_reshape),
    Alternative(name="numpy_in_float64", answer=numpy_in_float64),
    Alternative(name="adds_each_number", answer=adds_each_number),
    Alternative(name="einsum", answer=einsum),
)
