"""Keep the input of every layer: n evaluations, n activations."""

from __future__ import annotations

from typing import Any


def backward_keep_all(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """(y, dx) of a chain of layers. Each layer is evaluated once."""
    inputs = []
    for layer in chain:
        inputs.append(x)
        x = layer.forward(x)
    for layer in reversed(chain):
        dy = layer.backward(inputs.pop(), dy)  # the last input first
    return x, dy
