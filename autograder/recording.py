"""Recording a bank on cases: what the reference shows, and what each misconception does.

bank, cases --references--> observations in float64
bank, cases --suspects--> witnesses in the cases' own dtypes, with what varies by chance and what roundings do
bank, seed  --recorded--> both, and what each witness shows when it is performed again
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autograder.bank import Bank, Misconception
from course.errors import DeclarationError
from course.judging import sheet
from course.judging.sheet import Record
from course.judging.verdict import Suspect, Witness
from course.performing.compare import EPS, as_numbers, measure
from course.performing.exercise import PUBLIC_SEED, Answer, Case, Exercise, Observation
from course.performing.perform import array_words, converted, in_float64, in_turn, own_state, perform, stops
from course.performing.warm import warm_all
from course.tree import Leaf, flatten, map_leaves

TWO_SEEDS = (11, 12)  # global random states under which a misconception is performed
WAYS = 4  # to move the inputs of a sheet, which goes to other processors: one way may miss what another one shows


def references(bank: Bank, cases: Sequence[Case]) -> tuple[Observation, ...]:
    """The reference's observations in float64. Raises DeclarationError where the reference itself breaks."""
    seen = tuple(perform(bank.exercise, bank.reference, in_float64(case), clock="cpu") for case in cases)
    for case, observation in zip(cases, seen, strict=True):
        if observation.error is not None:
            raise DeclarationError(
                f"{bank.exercise.id}: the reference must run on case `{case.name}`, but raised "
                f"{observation.error.type}: {observation.error.message}"
            )
    return seen


def suspects(bank: Bank, cases: Sequence[Case]) -> tuple[Suspect, ...]:
    """Every misconception with its witnesses recorded on these cases."""
    return tuple(_suspect(bank.exercise, each, cases)[0] for each in bank.misconceptions)


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A record, and by misconception what each of its witnesses showed when it was performed again."""

    record: Record
    again: dict[str, list[list[Observation]]]

    def beside(self, committed: Record) -> Recorded:
        """The committed record, and what was performed here; nothing of it where a processor drew another last bit."""
        same = _packed_cases(self.record) == _packed_cases(committed)
        return Recorded(record=committed, again=self.again if same else {})


def _packed_cases(record: Record) -> bytes:
    return sheet.write("cases", {"all": dataclasses.replace(record, references=(), suspects=())})


def recorded(bank: Bank, seed: int = PUBLIC_SEED, *, moved: int = 1) -> Recorded:
    """The bank on the cases that this seed draws.

    moved  in how many ways cases are moved, on which witnesses are performed as well; without any, nothing is known of
           their sensitivity, and it takes little more than half the time that it does with one
    """
    cases = tuple(bank.exercise.draw(seed))
    pairs = [(each.name, *_suspect(bank.exercise, each, cases, moved=moved)) for each in bank.misconceptions]
    known = Record(cases=cases, references=references(bank, cases), suspects=tuple(suspect for _, suspect, _ in pairs))
    return Recorded(record=known, again={name: again for name, _, again in pairs})


def as_sensitive(fresh: Record, committed: Record) -> Record:
    """The fresh record, recorded without moved cases, with what is known of the committed one's sensitivity.

    What shows the same is as sensitive, and to find that out again would take as long as to record all the rest.
    """
    known = {each.name: each.witnesses for each in committed.suspects}
    return dataclasses.replace(
        fresh,
        suspects=tuple(
            dataclasses.replace(each, witnesses=tuple(map(_as_sensitive, each.witnesses, known[each.name])))
            if len(known.get(each.name, ())) == len(each.witnesses)
            else each
            for each in fresh.suspects
        ),
    )


def _as_sensitive(fresh: Witness, committed: Witness) -> Witness:
    if len(fresh.observations) != len(committed.observations):
        return fresh
    free = tuple(a | b for a, b in zip(fresh.free, committed.free, strict=True))
    return dataclasses.replace(fresh, free=free, sensitivity=committed.sensitivity)


def record(bank: Bank, seed: int = PUBLIC_SEED) -> Record:
    """What the answer sheet holds of this exercise."""
    return recorded(bank, seed, moved=WAYS).record


def _suspect(
    exercise: Exercise, misconception: Misconception, cases: Sequence[Case], *, moved: int = 1
) -> tuple[Suspect, list[list[Observation]]]:
    """A misconception with its witnesses, and what each showed when it was performed again.

    Nothing is recorded of one that is recognised by what it fails.
    """
    warm_all()
    performed = [] if misconception.fails else misconception.witnesses
    rounding = EPS[misconception.rounds_to]
    apart = [[_if_moved(case, rounding, way) for case in cases] for way in range(moved if performed else 0)]
    runs = [_witness(exercise, wrong, cases, apart) for wrong in performed]
    suspect = Suspect(
        name=misconception.name,
        hint=misconception.hint,
        witnesses=tuple(witness for witness, _ in runs),
        fails=frozenset(misconception.fails),
        same_as=frozenset(misconception.same_as),
    )
    return suspect, [again for _, again in runs]


def _witness(
    exercise: Exercise, wrong: Answer, cases: Sequence[Case], moved: Sequence[Sequence[Case | None]]
) -> tuple[Witness, list[Observation]]:
    """A wrong answer on these cases in their own dtype, with its free keys, and its sensitivity to moved ones, the
    largest of all ways; and what it showed under another random state.

    What must show the same is not performed once more: a case in which no random number was drawn, or none moves.
    """
    draws: list[list[bool]] = []
    first = _seeded(_watched(exercise, draws), wrong, cases, TWO_SEEDS[0], before=lambda: draws.append([]))
    drawn = [case if at < len(draws) and any(draws[at]) else None for at, case in enumerate(cases)]
    second = _seeded(exercise, wrong, _or_known(drawn, first), TWO_SEEDS[1])
    others = [_seeded(exercise, wrong, _or_known(way, first), TWO_SEEDS[0]) for way in moved]
    spreads = [_largest(_spread(a, other[at]) for other in others) for at, a in enumerate(first)]
    witness = Witness(
        observations=tuple(first),
        free=tuple(_differing(a, b) | _drowned(a, by) for a, b, by in zip(first, second, spreads, strict=True)),
        sensitivity=tuple(spreads),
    )
    return witness, second


def _or_known(cases: Sequence[Case | None], known: Sequence[Observation]) -> list[Case | Observation]:
    """The cases, and what is known of those that are left out."""
    return [seen if case is None else case for case, seen in zip(cases, known, strict=True)]


def _watched(exercise: Exercise, draws: list[list[bool]]) -> Exercise:
    """The exercise, which notes of each rank of a case whether a random number was drawn from a global generator.

    Of a rank that breaks nobody knows: it may be broken off in the middle of another one's turn.
    """

    def probe(*given: Any) -> Observation:
        before, broke = _random_state(), exercise.split is not None
        try:
            seen = exercise.probe(*given)
            broke = False
            return seen
        finally:
            draws[-1].append(broke or _random_state() != before)

    return dataclasses.replace(exercise, probe=probe)


def _random_state() -> tuple[object, ...]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), array_words()


def _seeded(
    exercise: Exercise,
    wrong: Answer,
    cases: Sequence[Case | Observation],
    seed: int,
    before: Callable[[], object] = lambda: None,
) -> list[Observation]:
    """What is seen under this random state; of some cases it is known already. `before` is called before each other."""

    def observe(case: Case | Observation) -> Observation:
        if isinstance(case, Observation):
            return case
        before()
        return _without_lines(perform(exercise, wrong, case, clock="cpu"))

    with own_state():
        for seed_one in (torch.default_generator.manual_seed, random.seed, np.random.seed):
            seed_one(seed)
        return in_turn(cases, observe, stops)


def _without_lines(seen: Observation) -> Observation:
    """The same, without the lines of code at which it failed: sheets go to students."""
    return dataclasses.replace(seen, error=seen.error and dataclasses.replace(seen.error, where=()))


def _if_moved(case: Case, rounding: float, way: int) -> Case | None:
    """The moved case; None where it has no floating value."""
    values = [*flatten(dict(case.inputs)).values(), *flatten(dict(case.hidden)).values()]
    floating = any(isinstance(each, float) or (isinstance(each, Tensor) and each.dtype in EPS) for each in values)
    return _moved(case, rounding, way) if floating else None


def _moved(case: Case, rounding: float, way: int = 0) -> Case:
    """The case with every floating value, hidden ones too, one rounding away: up and down in turns, or as `way` draws.

    A tensor's numbers move by one rounding of their own dtype, or by `rounding` where that is more.
    """

    rng = torch.Generator().manual_seed(way)

    def down(count: int) -> Tensor:
        return torch.randint(2, (count,), generator=rng) if way else torch.arange(count) % 2

    def move(leaf: Leaf) -> Leaf:
        if isinstance(leaf, Tensor) and leaf.dtype in EPS:
            turns = (1 - 2 * down(leaf.numel())).double().reshape(leaf.shape)
            return (leaf.double() * (1 + turns * max(EPS[leaf.dtype], rounding))).to(leaf.dtype)
        return leaf * (1 + EPS[torch.float64]) if isinstance(leaf, float) else leaf

    return converted(case, lambda tree: map_leaves(move, tree))


def _leaves(seen: Observation) -> dict[str, Leaf]:
    return {**seen.values, **{f"ledger/{key}": value for key, value in seen.ledger.items()}}


def _differing(a: Observation, b: Observation) -> frozenset[str]:
    """Keys whose values two random states change."""
    one, two = _leaves(a), _leaves(b)
    return frozenset(key for key in one.keys() & two.keys() if _distance(one[key], two[key]) != 0)


def _spread(a: Observation, b: Observation) -> dict[str, float]:
    """By key, the largest finite change between two observations; keys that do not change are left out."""
    one, two = _leaves(a), _leaves(b)
    spread = {key: _distance(one[key], two[key]) for key in one.keys() & two.keys()}
    return {key: value for key, value in sorted(spread.items()) if value > 0 and math.isfinite(value)}


def _largest(spreads: Iterable[dict[str, float]]) -> dict[str, float]:
    """By key, in order."""
    found: dict[str, float] = {}
    for spread in spreads:
        found |= {key: max(value, found.get(key, 0.0)) for key, value in spread.items()}
    return dict(sorted(found.items()))


def _drowned(seen: Observation, spread: dict[str, float]) -> frozenset[str]:
    """Keys whose values are no larger than what roundings do to them: even the sign is another processor's choice."""
    leaves = _leaves(seen)
    return frozenset(key for key, blur in spread.items() if _size(leaves[key]) <= blur)


def _size(leaf: Leaf) -> float:
    """The largest magnitude; inf where there are no numbers."""
    numbers = as_numbers(leaf)
    return math.inf if numbers is None or not numbers.numel() else float(numbers.abs().max())


def _distance(a: Leaf, b: Leaf) -> float:
    """The largest difference: 0 where equal (nan equals nan), inf where the two cannot be compared."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b):
        return 0.0  # as most are, and soon said
    return measure(a, b, torch.float64, roundings=0).error
