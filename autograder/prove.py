"""The proof of the grader: every right answer passes, every wrong one is caught and named.

For each exercise and seed: the reference, every alternative and the lesson's worked solution get full marks and no
diagnosis; the stub scores 0; every witness of every misconception fails a property and is diagnosed as itself; garbage
earns no point and no diagnosis. Over all seeds, every property is broken by at least one misconception.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch

from autograder import bank as banks
from autograder import edits, recording
from autograder.bank import Alternative, Bank
from autograder.garbage import garbage, stub
from autograder.release import authored, worked
from autograder.undisturbed import undisturbed
from course.judging.judge import judge
from course.judging.sheet import Record
from course.judging.verdict import Verdict
from course.performing.exercise import PUBLIC_SEED, Answer
from course.performing.perform import perform_all
from course.syllabus import find_unit


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
    record: Record

    def verdict(self, answer: Answer) -> Verdict:
        seen = perform_all(self.bank.exercise, answer, self.record.cases, clock="cpu")
        return judge(self.bank.exercise, self.record.cases, seen, self.record.references, self.record.suspects)


def prove(bank: Bank, seeds: Sequence[int], *, sheet: Record | None = None) -> Proof:
    """Prove one exercise on these seeds; the public seed should be among them.

    sheet  what was recorded of the public seed, perhaps on another machine; recorded here if left out
    """
    return _together(bank, [_prove_seed(bank, seed, sheet) for seed in seeds])


def prove_all(names: Sequence[str], seeds: Sequence[int], *, root: Path, jobs: int) -> list[Proof]:
    """Prove these exercises (ids or entry names), shared by `jobs` processes; the proofs come in their order.

    root  the checkout, whose lessons hold the worked solutions
    """
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        parts = [[pool.submit(_prove_in_worker, name, seed, root) for seed in seeds] for name in names]
        return [
            _together(with_worked(banks.load(name), root), [part.result() for part in row])
            for name, row in zip(names, parts, strict=True)
        ]


def with_worked(bank: Bank, root: Path) -> Bank:
    """The bank with the lesson's worked solution among its right answers."""
    answer = _solutions(root, find_unit(bank.exercise.unit).notebook)[bank.exercise.id]
    return dataclasses.replace(bank, alternatives=(*bank.alternatives, Alternative(name="worked", answer=answer)))


@functools.cache
def _solutions(root: Path, lesson: str) -> dict[str, Answer]:
    return worked.solutions(authored.read(root / "solutions" / f"{lesson}.py", root))


def _prove_in_worker(name: str, seed: int, root: Path) -> Proof:
    with undisturbed():
        proof = _prove_seed(with_worked(banks.load(name), root), seed)
    gc.collect()
    return proof


def _prove_seed(bank: Bank, seed: int, sheet: Record | None = None) -> Proof:
    record = sheet if sheet and seed == PUBLIC_SEED else recording.record(bank, seed)
    trial, proof = _Trial(bank=bank, seed=seed, record=record), _empty(bank)
    _right_answers(trial, proof)
    _stub_and_garbage(trial, proof)
    _wrong_answers(trial, proof)
    return proof


def _empty(bank: Bank) -> Proof:
    return Proof(
        exercise=bank.exercise.id,
        points=bank.exercise.points,
        alternatives=len(bank.alternatives),
        misconceptions=len(bank.misconceptions),
    )


def _together(bank: Bank, parts: Sequence[Proof]) -> Proof:
    """What all seeds showed, and what must hold over them."""
    proof = _empty(bank)
    for part in parts:
        proof.runs += part.runs
        proof.confusion += part.confusion
        proof.misses += part.misses
        proof.broken |= part.broken
    _demands(bank, proof)
    return proof


def seeds(count: int, rng: torch.Generator) -> list[int]:
    """The public seed, and fresh ones up to `count` in all."""
    fresh = torch.randint(2**40, (max(count - 1, 0),), generator=rng).tolist()
    return [PUBLIC_SEED, *fresh]


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
            label = f"seed {trial.seed}: misconception {wrong.name} (witness {number}{_slip(witness)})"
            if verdict.points == verdict.possible:
                proof.misses.append(f"{label} gets full marks")
            elif named not in (wrong.name, *wrong.same_as):
                proof.misses.append(f"{label} is diagnosed as {named}")


def _slip(witness: Answer) -> str:
    """What the edits of a witness changed, on one line."""
    return "".join(f"; {line}" for line in edits.slip(witness).splitlines())


def _demands(bank: Bank, proof: Proof) -> None:
    """What must hold of the bank as a whole."""
    if not any(each.independent for each in bank.alternatives):
        proof.misses.append("one right answer must be independent: the library's own call, numpy or a closed form")
    for each in bank.exercise.properties:
        if each.name not in proof.broken:
            proof.misses.append(f"property {each.name} is broken by no misconception")
