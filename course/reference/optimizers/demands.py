"""What every optimizer demands of its numbers, before it changes anything."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from course.errors import BadArgument


def at_least_zero(**numbers: float) -> None:
    """Each number, by its name, must be 0 or more. Raises BadArgument."""
    for name, number in numbers.items():
        if not number >= 0:  # so that nan is refused too
            raise BadArgument(f"{name} must be at least 0, got {number}")


def below_one(**numbers: float) -> None:
    """Each number, by its name, must lie in [0, 1): at 1 an average never moves. Raises BadArgument."""
    for name, number in numbers.items():
        if not 0 <= number < 1:
            raise BadArgument(f"{name} must lie in [0, 1), got {number}")


def same_shapes(params: Sequence[Tensor], grads: Sequence[Tensor | None]) -> None:
    """Each gradient must have the shape of its parameter; None stands for no gradient. Raises BadArgument."""
    if len(params) != len(grads):
        raise BadArgument(f"there must be one gradient for each parameter, got {len(grads)} for {len(params)}")
    for number, (param, grad) in enumerate(zip(params, grads, strict=True)):
        if grad is not None and grad.shape != param.shape:
            raise BadArgument(
                f"gradient {number} must have the shape {tuple(param.shape)} of its parameter, got {tuple(grad.shape)}"
            )
