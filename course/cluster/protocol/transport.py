"""What a transport is asked to run, and what it gives back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from course.cluster.account.ledger import Ledger
from course.errors import BadArgument

SECONDS = 60.0
MAX_PROCESSES = 128  # ranks that are processes of one machine


@dataclass(frozen=True, kw_only=True)
class Program:
    """`function(comm, *inputs[rank])` on every rank.

    seconds  of real time that the whole run may take; None: SECONDS where ranks are simulated or brokered, else no end
    verbs    that communicators offer; None: all
    """

    function: Callable[..., Any]
    ranks: int
    inputs: Sequence[Sequence[Any]]
    seconds: float | None
    verbs: Collection[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the ranks returned, by rank, and the account of the run."""

    values: list[Any]
    ledger: Ledger

    def __repr__(self) -> str:
        return f"<Run: {self.ledger!r}>"


class Transport(Protocol):
    """Something that runs ranks."""

    def run(self, program: Program) -> Run:
        """Run a program to its end. Raises RanksFailed where it breaks; nothing of it goes on then."""


def check_processes(program: Program) -> None:
    """Raises BadArgument where there are more ranks than one machine should have processes for."""
    if program.ranks > MAX_PROCESSES:
        raise BadArgument(
            f"ranks that are processes must be at most {MAX_PROCESSES}, got {program.ranks}; "
            'use transport="simulated" for more'
        )


def copied(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Inputs of a rank's own: tensors and modules in them are copied, and a leaf that wants a gradient stays one."""
    return tuple(map(_in_tree, inputs))


def _in_tree(given: Any) -> Any:
    """Lists, tuples and dicts of plain data are gone through here: torch's own way through a tree takes four times as
    long, and knows all other kinds.
    """
    kind = type(given)
    if kind is list or kind is tuple:
        return kind(map(_in_tree, given))
    if kind is dict:
        return {key: _in_tree(value) for key, value in given.items()}
    if kind in (bool, int, float, str):
        return given
    if kind is Tensor:
        return _copied(given)
    return tree_map_only((Tensor, nn.Module), _copied, given)


def _copied(given: Tensor | nn.Module) -> Tensor | nn.Module:
    if isinstance(given, nn.Module):  # deepcopy would copy the mode that FakeTensors belong to, and so part them
        held = (each for each in (*given.parameters(), *given.buffers()) if isinstance(each, FakeTensor))
        return copy.deepcopy(given, {id(each): _copied(each) for each in held})
    found = given.detach().clone().requires_grad_(given.requires_grad)
    return nn.Parameter(found, given.requires_grad) if isinstance(given, nn.Parameter) else found
