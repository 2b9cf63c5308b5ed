"""Keep what enters each segment, and recompute one segment at a time.

forward:   x_0 --segment--> x_s --segment--> x_2s ... --last segment, all inputs kept--> y
backward:  the last segment; then for each other one: checkpoint --all but its last layer--> inputs, and back
"""

from __future__ import annotations

from typing import Any


def backward_checkpointed(chain: tuple[Any, ...], x: Any, dy: Any, every: int) -> tuple[Any, Any]:
    """(y, dx) of a chain of layers. Segments have `every` layers, the last one perhaps fewer."""
    *segments, last = [chain[start : start + every] for start in range(0, len(chain), every)]
    checkpoints = []
    for segment in segments:
        checkpoints.append(x)
        for layer in segment:
            x = layer.forward(x)
    inputs = []
    for layer in last:
        inputs.append(x)
        x = layer.forward(x)
    for layer in reversed(last):
        dy = layer.backward(inputs.pop(), dy)
    for segment in reversed(segments):
        inputs = [checkpoints.pop()]
        for layer in segment[:-1]:  # the output of the last one is the next checkpoint, whose segment is done
            inputs.append(layer.forward(inputs[-1]))
        for layer in reversed(segment):
            dy = layer.backward(inputs.pop(), dy)
    return x, dy
