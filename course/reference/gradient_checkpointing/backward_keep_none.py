"""Keep the input of the chain alone: n (n + 1) / 2 evaluations, 2 activations."""

from __future__ import annotations

from typing import Any


def backward_keep_none(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """(y, dx) of a chain of layers. The input of layer i is recomputed from x by i evaluations."""
    y = x
    for layer in chain:
        y = layer.forward(y)
    for i in reversed(range(len(chain))):
        at = x
        for layer in chain[:i]:
            at = layer.forward(at)
        dy = chain[i].backward(at, dy)
    return y, dy
