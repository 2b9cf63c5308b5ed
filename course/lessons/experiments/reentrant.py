"""What torch's two kinds of checkpoint can do: each wish is tried with both.

The reentrant kind runs forward without recording, and starts a backward inside of the backward. The other kind records
the first run, and hooks on saved tensors stand in its graph where the tensors would be.
Source: the notes of torch.utils.checkpoint.checkpoint (PyTorch 2.13).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Checkpoint = Callable[..., Any]


def tried() -> dict[str, tuple[str, str]]:
    """For each wish what came of it with the reentrant kind, and with the other: "yes", "no" or an error."""
    from torch.utils.checkpoint import checkpoint  # it takes a second to import

    def kind(reentrant: bool) -> Checkpoint:
        return lambda fn, *args, **named: checkpoint(fn, *args, use_reentrant=reentrant, **named)

    return {wish: (_outcome(attempt, kind(True)), _outcome(attempt, kind(False))) for wish, attempt in WISHES.items()}


def table(found: dict[str, tuple[str, str]]) -> str:
    """A line for each wish."""
    width = max(map(len, found))
    lines = [f"{wish:{width}}  {one:16}{other}" for wish, (one, other) in found.items()]
    return "\n".join([f"{'':{width}}  {'reentrant':16}not reentrant", *lines])


def _outcome(attempt: Callable[[Checkpoint], Tensor | None], kind: Checkpoint) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that gradients will be None
        try:
            grad = attempt(kind)
        except (RuntimeError, ValueError, TypeError) as error:
            return type(error).__name__
    return "no" if grad is None else "yes"


def _leaf() -> Tensor:
    return torch.ones(3, requires_grad=True)


def _parameter_alone(kind: Checkpoint) -> Tensor | None:
    w = _leaf()
    y = kind(lambda x: (x * w).sin(), torch.ones(3))
    if y.requires_grad:
        torch.autograd.backward(y.sum())
    return w.grad


def _by_grad(kind: Checkpoint) -> Tensor | None:
    x = _leaf()
    return torch.autograd.grad(kind(torch.sin, x).sum(), x)[0]


def _by_name(kind: Checkpoint) -> Tensor | None:
    x = _leaf()
    torch.autograd.backward(kind(lambda x, power: x.sin() ** power, x, power=2).sum())
    return x.grad


def _in_a_dict(kind: Checkpoint) -> Tensor | None:
    x = _leaf()
    y = kind(lambda given: given["x"].sin(), {"x": x})
    if y.requires_grad:
        torch.autograd.backward(y.sum())
    return x.grad


def _stops_early(kind: Checkpoint) -> Tensor | None:
    """The gradient where the second run has not reached the end of the function."""
    x, ends = _leaf(), []

    def layer(x: Tensor) -> Tensor:
        y = x.sin() + 1
        ends.append(y)
        return y

    torch.autograd.backward(kind(layer, x).sum())
    return x.grad if len(ends) == 1 else None


WISHES: dict[str, Callable[[Checkpoint], Tensor | None]] = {
    "only a parameter requires a gradient": _parameter_alone,
    "torch.autograd.grad": _by_grad,
    "a keyword argument": _by_name,
    "a tensor in a dict": _in_a_dict,
    "stops where no more is needed": _stops_early,
}
