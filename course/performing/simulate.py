"""An exercise with several ranks as one with none: its probe runs them all on simulated ranks, in one process.

inputs --split--> inputs of each rank --probe, on every rank--> observations --merged--> one observation
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from course.cluster import Comm, Simulated, run_ranks
from course.cluster.account.ledger import Ledger, costs
from course.performing.exercise import AFTER, REFUSED, Answer, Exercise, Inputs, Observation, Source
from course.performing.oracle import with_costs
from course.tree import Leaf, Tree, flatten, plain

KEPT = AFTER.rstrip("/")
SPARE_SECONDS = 2.0  # on top of the limit of all ranks together, which tells who was waiting for whom


def on_simulated_ranks(exercise: Exercise, *, memory: bool = False) -> Callable[[Answer, Inputs], Observation]:
    """The probe of an exercise with ranks, called as probe(answer, inputs) with the inputs of a whole case.

    memory  whether to count the bytes of tensors that each rank holds
    """
    split = exercise.split
    assert split is not None

    def probe(answer: Answer, inputs: Inputs) -> Observation:
        def rank(comm: Comm, mine: Inputs) -> Observation:
            left = after(exercise, mine)
            seen: Observation = exercise.probe(answer, comm, mine)
            return dataclasses.replace(seen, values={**seen.values, **left()})

        parts = [(part,) for part in split(inputs)]
        transport = Simulated(memory=memory)
        run = run_ranks(
            rank, len(parts), transport=transport, inputs=parts, seconds=exercise.seconds, verbs=exercise.verbs
        )
        return merged(run.values, run.ledger, "claimed")

    return probe


def merged(seen: Sequence[Observation], ledger: Ledger, source: Source) -> Observation:
    """What the ranks saw as one observation, rank 0's values under `0/`, with the cost of the run."""
    values = {_of_rank(rank, key): value for rank, each in enumerate(seen) for key, value in each.values.items()}
    return with_costs(Observation(values=values), costs(ledger), source)


def _of_rank(rank: int, key: str) -> str:
    """`0/y`; but `after/0/x` and `refused/0/...`, because their beginning has a meaning."""
    for beginning in (AFTER, REFUSED):
        if key.startswith(beginning):
            return f"{beginning}{rank}/{key.removeprefix(beginning)}"
    return f"{rank}/{key}"


def after(exercise: Exercise, inputs: Mapping[str, object]) -> Callable[[], dict[str, Leaf]]:
    """What gives, once the run is over, the inputs that may not change, as it left them.

    Where a tensor requires a gradient now, or has one, and did not before, one entry more says so. Of ranks none does:
    their probes take gradients themselves.
    """

    def kept() -> Any:
        return {name: inputs[name] for name in exercise.keeps if name in inputs}

    before = [(path, leaf, _marks(leaf)) for path, leaf in _tensors(kept(), KEPT)] if exercise.split is None else []

    def left() -> dict[str, Leaf]:
        noted = {f"{path} ({now} now)": True for path, leaf, then in before if (now := _marks(leaf)) != then}
        found = kept()
        return {**flatten(plain(found), KEPT), **noted} if found else {}

    return left


def _tensors(tree: Tree, path: str) -> Iterator[tuple[str, Tensor]]:
    """Of a tree that nobody else has had yet; each itself, where `flatten` would stack those of shape ()."""
    if isinstance(tree, Tensor):
        yield path, tree
    for key, each in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from _tensors(each, f"{path}/{key}")


def _marks(tensor: Tensor) -> str:
    """What autograd has noted on it, whatever class an answer has given it."""
    noted: Any = Tensor
    with torch._C.DisableTorchFunctionSubclass():
        requires, is_leaf = noted.requires_grad.__get__(tensor), noted.is_leaf.__get__(tensor)
        has_one = is_leaf and noted.grad.__get__(tensor) is not None
    return f"requires {'a' if requires else 'no'} gradient and has {'one' if has_one else 'none'}"
