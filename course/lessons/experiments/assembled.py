"""A program put together from a student's answers, and from torch's own parts where an answer is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Named = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a program is put together from.

    torchs  name of an exercise -> what does the same with torch
    names   of all exercises that take part, in the order in which they are told
    whence  whose the others are
    """

    torchs: Named
    names: Sequence[str]
    whence: str = "PyTorch's"

    def passed(self, written: Mapping[str, Any], solved: Callable[[Any], bool]) -> dict[str, Callable[..., Any]]:
        """Your answers that pass their checks, by name; `written` holds all that a notebook has defined."""
        found = {name: written[name] for name in self.names if written.get(name) is not None}
        return {name: answer for name, answer in found.items() if solved(answer)}

    def with_yours(self, yours: Named) -> dict[str, Callable[..., Any]]:
        """All by name: yours where it is there, torch's otherwise."""
        return {**self.torchs, **yours}

    def whose(self, yours: Named) -> str:
        """One line: `yours: adamw_step; PyTorch's: clip_grad_norm_, warmup_cosine`."""
        owners = {each: "yours" if each in yours else self.whence for each in self.names}
        groups = {owner: [each for each in self.names if owners[each] == owner] for owner in ("yours", self.whence)}
        return "; ".join(f"{owner}: {', '.join(names)}" for owner, names in groups.items() if names)


def having(grads: Sequence[Tensor]) -> list[Tensor]:
    """Parameters that have these gradients: what torch's functions want in place of the gradients themselves."""
    holders: list[Tensor] = [nn.Parameter(torch.empty_like(grad)) for grad in grads]
    for holder, grad in zip(holders, grads, strict=True):
        holder.grad = grad
    return holders
