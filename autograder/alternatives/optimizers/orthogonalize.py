"""Other right ways to write `orthogonalize`."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Alternative


def never_transposes(g: Tensor, steps: int = 5) -> Tensor:
    """The Gram matrix always stands on the left: the same matrix, for more work where g is tall."""
    if g.ndim != 2 or steps < 0:
        raise ValueError("g must be a matrix, and steps at least 0")
    x: Tensor = g / (g.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
    return x


def gram_on_the_right(g: Tensor, steps: int = 5) -> Tensor:
    """X^T X, multiplied from the right; powers of the Gram matrix in Horner's form."""
    if g.ndim != 2 or steps < 0:
        raise ValueError("g must be a matrix, and steps at least 0")
    x = g / torch.sqrt((g * g).sum()).clamp(min=1e-7)
    one = torch.eye(g.shape[1], dtype=g.dtype)
    for _ in range(steps):
        gram = x.mT @ x
        x = x @ (3.4445 * one + gram @ (-4.7750 * one + 2.0315 * gram))
    return x


def in_float64_and_in_place(g: Tensor, steps: int = 5) -> Tensor:
    """Finer inside; transposes what is wide; counts down on a copy that is overwritten."""
    if len(g.shape) != 2 or steps < 0:
        raise ValueError("g must be a matrix, and steps at least 0")
    wide = g.shape[1] > g.shape[0]
    x = (g.mT if wide else g).to(torch.float64, copy=True)
    x /= max(x.pow(2).sum().item() ** 0.5, 1e-7)
    while steps:
        gram = x.mT @ x
        x.copy_(3.4445 * x + x @ (2.0315 * (gram @ gram) - 4.7750 * gram))
        steps -= 1
    return (x.mT if wide else x).to(g.dtype)


def recursive(g: Tensor, steps: int = 5) -> Tensor:
    """One step fewer, and one more step on its result; odd powers X, X X^T X, X X^T X X^T X from left to right."""
    if g.dim() != 2 or steps < 0:
        raise ValueError("g must be a matrix, and steps at least 0")
    if steps == 0:
        norm = torch.linalg.vector_norm(g)
        return g / norm if norm > 1e-7 else g / 1e-7
    x = recursive(g, steps - 1)
    cubed = x @ x.T @ x
    return 3.4445 * x - 4.7750 * cubed + 2.0315 * (cubed @ x.T @ x)


ALTERNATIVES = (
    Alternative(name="never_transposes", answer=never_transposes),
    Alternative(name="gram_on_the_right", answer=gram_on_the_right),
    Alternative(name="in_float64_and_in_place", answer=in_float64_and_in_place),
    Alternative(name="recursive", answer=recursive),
)
