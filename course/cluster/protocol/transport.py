"""What a transport is asked to run, and what it gives back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map

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
    """Inputs of a rank's own: all that can be copied is, and a leaf that wants a gradient stays one.

    What the inputs hold twice is one thing in the copies, too: an optimizer steps the copy of the model beside it. What
    cannot be copied (a lock, an open file) is the caller's own.
    """
    memo: dict[int, Any] = {}
    return tuple(_in_tree(each, memo) for each in inputs)


def _in_tree(given: Any, memo: dict[int, Any]) -> Any:
    """Lists, tuples and dicts of plain data are gone through here: torch's own way through a tree takes four times as
    long, and knows all other kinds.

    memo  copies by the id of what they are copies of, as `copy.deepcopy` has them
    """
    kind = type(given)
    if kind in (bool, int, float, str):
        return given
    if id(given) in memo:
        return memo[id(given)]
    if kind is list:
        memo[id(given)] = found = list[Any]()  # before it is filled: it may hold itself
        found += (_in_tree(each, memo) for each in given)
        return found
    if kind is dict:
        memo[id(given)] = named = dict[Any, Any]()
        named.update((key, _in_tree(value, memo)) for key, value in given.items())
        return named
    if kind is tuple:
        return tuple(_in_tree(each, memo) for each in given)
    return tree_map(lambda leaf: _leaf(leaf, memo), given)


def _leaf(given: Any, memo: dict[int, Any]) -> Any:
    if id(given) not in memo:
        memo[id(given)] = _copied(given, memo)
    return memo[id(given)]


def _copied(given: Any, memo: dict[int, Any]) -> Any:
    if isinstance(given, Tensor):
        found = given.detach().clone().requires_grad_(given.requires_grad)
        return nn.Parameter(found, given.requires_grad) if isinstance(given, nn.Parameter) else found
    for each in _held(given):  # deepcopy knows no results of a graph, and would copy the mode of FakeTensors
        _leaf(each, memo)
    if isinstance(given, nn.Module):
        return copy.deepcopy(given, memo)
    attempt = memo.copy()
    try:
        found = copy.deepcopy(given, attempt)
    except Exception:  # whatever its class raises that cannot be copied
        return given
    memo.setdefault(id(memo), []).extend(attempt.pop(id(attempt), ()))  # what must live as long as its id is in there
    memo.update(attempt)
    return found


def _held(given: Any) -> list[Tensor]:
    """Tensors in a module, an optimizer or any other object that deepcopy should not copy by itself."""
    if isinstance(given, nn.Module):
        return [each for each in (*given.parameters(), *given.buffers()) if isinstance(each, FakeTensor)]
    if isinstance(given, torch.optim.Optimizer):
        return [each for group in given.param_groups for each in group["params"]]
    return [each for each in getattr(given, "__dict__", {}).values() if isinstance(each, Tensor)]
