"""Other right ways to write `gradient_noise_scale`."""

from __future__ import annotations

import torch
from torch import Tensor

from autograder.bank import Alternative

Estimates = tuple[float, float, float]


def solves_two_equations(small: Tensor, large: Tensor, b_small: int, b_large: int) -> Estimates:
    """|G|^2 + S / b for each batch size: a linear system in two unknowns."""
    if b_small >= b_large:
        raise ValueError("b_small must be less than b_large")
    system = torch.tensor([[1, 1 / b_small], [1, 1 / b_large]], dtype=torch.float64)
    right = torch.stack([rows.double().norm(dim=1).pow(2).mean() for rows in (small, large)])
    squared_gradient, noise = torch.linalg.solve(system, right).tolist()
    if squared_gradient <= 0:
        raise ValueError("take more draws")
    return noise, squared_gradient, noise / squared_gradient


def noise_first_in_plain_numbers(small: Tensor, large: Tensor, b_small: int, b_large: int) -> Estimates:
    """S from the difference, and then |G|^2 as what the noise leaves of the large batch's norm."""
    if not b_small < b_large:
        raise ValueError("the large batches must be larger")
    norms = [[sum(x * x for x in row) for row in rows.tolist()] for rows in (small, large)]
    mean_small, mean_large = (sum(each) / len(each) for each in norms)
    noise = (mean_small - mean_large) * b_small * b_large / (b_large - b_small)
    squared_gradient = mean_large - noise / b_large
    if squared_gradient <= 1e-12:
        raise ValueError("the gradient is lost in the noise")
    return noise, squared_gradient, noise / squared_gradient


def tensors_in_the_inputs_dtype(small: Tensor, large: Tensor, b_small: int, b_large: int) -> Estimates:
    """Stays in the dtype that came, with one matrix product per size; `float` at the end."""
    if b_large <= b_small:
        raise ValueError("b_small must be less than b_large")
    mean_small, mean_large = ((rows @ rows.mT).trace() / rows.shape[0] for rows in (small, large))
    squared_gradient = mean_large * b_large / (b_large - b_small) - mean_small * b_small / (b_large - b_small)
    noise = (mean_small - mean_large) / (1 / b_small - 1 / b_large)
    if not squared_gradient > 0:
        raise ValueError("larger batches are needed")
    return float(noise), float(squared_gradient), float(noise / squared_gradient)


ALTERNATIVES = (
    Alternative(name="solves_two_equations", answer=solves_two_equations),
    Alternative(name="noise_first_in_plain_numbers", answer=noise_first_in_plain_numbers),
    Alternative(name="tensors_in_the_inputs_dtype", answer=tensors_in_the_inputs_dtype),
)
