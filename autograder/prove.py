"""The proof of the grader: every right answer passes, every wrong one is caught and named.

For each exercise and seed: the reference and every alternative get full marks and no diagnosis; the stub scores 0;
every witness of every misconception fails a property and is diagnosed as itself; garbage earns no point and no
diagnosis. Over all seeds, every property is broken by at least one misconception.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autograder import bank as banks
from autograder.bank import Bank
from course.exercise import PUBLIC_SEED, Answer, Case, Observation
from course.judge import judge
from course.perform import perform_all
from course.tree import Leaf, map_leaves, plain
from course.verdict import Suspect, Verdict


@dataclass(kw_only=True)
class Proof:
    """What the proof of one exercise found.

    confusion  (misconception, diagnosis or "none") -> how often, over seeds and witnesses
    misses     one sentence per thing that must hold and does not
    broken     properties that some misconception broke
    """

    exercise: str
    points: int
    alternatives: int
    misconceptions: int
    runs: int = 0
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    misses: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """One seed: its cases with everything recorded on them."""

    bank: Bank
    seed: int
    cases: tuple[Case, ...]
    references: tuple[Observation, ...]
    suspects: tuple[Suspect, ...]

    def verdict(self, answer: Answer) -> Verdict:
        seen = perform_all(self.bank.exercise, answer, self.cases)
        return judge(self.bank.exercise, self.cases, seen, self.references, self.suspects)


def prove(bank: Bank, seeds: Sequence[int]) -> Proof:
    """Prove one exercise on these seeds; the public seed should be among them."""
    proof = Proof(
        exercise=bank.exercise.id,
        points=bank.exercise.points,
        alternatives=len(bank.alternatives),
        misconceptions=len(bank.misconceptions),
    )
    for seed in seeds:
        trial = _trial(bank, seed)
        _right_answers(trial, proof)
        _stub_and_garbage(trial, proof)
        _wrong_answers(trial, proof)
    _demands(bank, proof)
    return proof


def seeds(count: int, rng: torch.Generator) -> list[int]:
    """The public seed, and fresh ones up to `count` in all."""
    fresh = torch.randint(2**40, (max(count - 1, 0),), generator=rng).tolist()
    return [PUBLIC_SEED, *fresh]


def _trial(bank: Bank, seed: int) -> _Trial:
    cases = tuple(bank.exercise.draw(seed))
    return _Trial(
        bank=bank,
        seed=seed,
        cases=cases,
        references=banks.references(bank, cases),
        suspects=banks.suspects(bank, cases),
    )


def _right_answers(trial: _Trial, proof: Proof) -> None:
    answers = [("the reference", trial.bank.reference)]
    answers += [(f"alternative {each.name}", each.answer) for each in trial.bank.alternatives]
    for name, answer in answers:
        verdict = trial.verdict(answer)
        proof.runs += 1
        if verdict.points != verdict.possible:
            failed = ", ".join(each.property for each in verdict.findings if not each.held)
            proof.misses.append(f"seed {trial.seed}: {name} must get full marks, but fails {failed}")
        if verdict.diagnosis:
            proof.misses.append(f"seed {trial.seed}: {name} is diagnosed as {verdict.diagnosis.name}")


def _stub_and_garbage(trial: _Trial, proof: Proof) -> None:
    for name, answer in [("the stub", stub(trial.bank)), *garbage(trial.bank, trial.seed)]:
        verdict = trial.verdict(answer)
        proof.runs += 1
        if verdict.points:
            held = ", ".join(each.property for each in verdict.findings if each.held)
            proof.misses.append(f"seed {trial.seed}: {name} must earn nothing, but holds {held}")
        if verdict.diagnosis:
            proof.misses.append(f"seed {trial.seed}: {name} is diagnosed as {verdict.diagnosis.name}")
        if name == "the stub" and verdict.attempted:
            proof.misses.append(f"seed {trial.seed}: the stub must count as not attempted")


def _wrong_answers(trial: _Trial, proof: Proof) -> None:
    for wrong in trial.bank.misconceptions:
        for number, witness in enumerate(wrong.witnesses, start=1):
            verdict = trial.verdict(witness)
            proof.runs += 1
            named = verdict.diagnosis.name if verdict.diagnosis else "none"
            proof.confusion[wrong.name, named] += 1
            proof.broken |= {each.property for each in verdict.findings if not each.held and not each.blocked_by}
            label = f"seed {trial.seed}: misconception {wrong.name} (witness {number})"
            if verdict.points == verdict.possible:
                proof.misses.append(f"{label} gets full marks")
            elif named not in (wrong.name, *wrong.same_as):
                proof.misses.append(f"{label} is diagnosed as {named}")


def _demands(bank: Bank, proof: Proof) -> None:
    """What must hold of the bank as a whole."""
    if len(bank.alternatives) < 2:
        proof.misses.append(f"at least two alternatives must be given, got {len(bank.alternatives)}")
    for wrong in bank.misconceptions:
        if not wrong.witnesses:
            proof.misses.append(f"misconception {wrong.name} must have at least one witness")
    for each in bank.exercise.properties:
        if each.name not in proof.broken:
            proof.misses.append(f"property {each.name} is broken by no misconception")


# --- answers that nobody means ---------------------------------------------------------------------


def stub(bank: Bank) -> Answer:
    """What the student finds: everything raises NotImplementedError with the exercise's id."""

    def unwritten(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(bank.exercise.id)

    if not isinstance(bank.reference, type):
        return unwritten
    return type(
        bank.reference.__name__, bank.reference.__bases__, {name: staticmethod(unwritten) for name in _methods(bank)}
    )


def _methods(bank: Bank) -> list[str]:
    return [name for name, value in vars(bank.reference).items() if callable(getattr(value, "__func__", value))]


def garbage(bank: Bank, seed: int) -> Iterator[tuple[str, Answer]]:
    """Zeros and random numbers in the form of the right output, and each argument handed back."""
    rng = torch.Generator().manual_seed(seed)

    def noise(leaf: Leaf) -> Leaf:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return torch.randn(leaf.shape, generator=rng).to(leaf.dtype)
        return float(torch.randn((), generator=rng)) if isinstance(leaf, float) else leaf

    def zero(leaf: Leaf) -> Leaf:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return torch.zeros_like(leaf)
        return 0.0 if isinstance(leaf, float) else leaf

    if isinstance(bank.reference, type):
        yield from _garbage_classes(noise, zero)
        return
    yield "zeros", _like(bank.reference, zero)
    yield "noise", _like(bank.reference, noise)
    yield "nothing", lambda *args, **kwargs: None
    for position in range(3):
        yield f"argument {position} returned", _returns_argument(position)


def _like(reference: Answer, change: Callable[[Leaf], Leaf]) -> Answer:
    """The reference's output with every floating point leaf changed; where it returns nothing, nothing is done."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        copied, named = copy.deepcopy((args, kwargs))  # whatever the reference does to its arguments is undone
        result = reference(*copied, **named) if _returns(reference) else None
        made = map_leaves(change, plain(result))
        return tuple(made) if isinstance(result, tuple) and isinstance(made, list) else made

    return answer


def _returns(reference: Answer) -> bool:
    """A reference annotated `-> None` works in place: calling it would be the right answer."""
    return getattr(reference, "__annotations__", {}).get("return") not in (None, "None")


def _returns_argument(position: int) -> Answer:
    def answer(*args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        return values[position] if position < len(values) else None

    return answer


def _garbage_classes(noise: Callable[[Leaf], Leaf], zero: Callable[[Leaf], Leaf]) -> Iterator[tuple[str, Answer]]:
    """Autograd functions that return zeros, noise or their input, forward and backward."""

    def made(change: Callable[[Leaf], Leaf]) -> Answer:
        def forward(ctx: Any, x: Tensor) -> Leaf:
            return change(x)

        def backward(ctx: Any, dy: Tensor) -> Leaf:
            return change(dy)

        body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        return type("Garbage", (torch.autograd.Function,), body)

    yield "zeros", made(zero)
    yield "noise", made(noise)
    yield "input returned", made(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)
