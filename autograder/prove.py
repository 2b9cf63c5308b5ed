"""The proof of the grader: every right answer passes, every wrong one is caught and named.

For each exercise and seed: the reference, every alternative and the lesson's worked solution get full marks and no
diagnosis; the stub scores 0; every witness of every misconception fails a property and is diagnosed as itself; garbage
earns no point and no diagnosis. Right answers are right too where several hard forms come together, drawn by chance.
Over all seeds, every property is broken by at least one misconception, and a witness breaks the same ones on every
seed: a draw must not decide the grade.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch

from autograder import bank as banks
from autograder import edits, recording
from autograder.bank import Alternative, Bank, Misconception
from autograder.garbage import garbage, stub
from autograder.recording import Recorded
from autograder.release import authored, worked
from autograder.undisturbed import files_in_memory, undisturbed
from course.errors import DeclarationError
from course.judging.judge import judge
from course.judging.sheet import Record
from course.judging.verdict import Verdict
from course.performing import forms
from course.performing.exercise import EVERY_FORM, PUBLIC_SEED, Answer, Observation
from course.performing.perform import perform_all
from course.syllabus import find_unit

COMPOSED = 4  # cases in several hard forms at once, on each seed
NEAR = 0.5  # of what is allowed: a right answer that is as far off may be too far off on another seed


@dataclass(kw_only=True)
class Proof:
    """What the proof of one exercise found.

    confusion  (misconception, diagnosis or "none") -> how often, over seeds and witnesses
    misses     one sentence per thing that must hold and does not, with the seeds on which it does not
    near       one sentence per property that a right answer holds, and nearly does not on some seed
    broken     properties that some misconception broke
    """

    exercise: str
    points: int
    alternatives: int
    misconceptions: int
    runs: int = 0
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    misses: list[str] = field(default_factory=list)
    near: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)


@dataclass(kw_only=True)
class _OfSeed:
    """What one seed showed.

    cases    names of those that were drawn
    fates    the properties that each witness failed, by (misconception, its number)
    shown    the first of them, and the case that showed it, by (misconception, its number)
    nearest  by property: how far off a right answer was, in parts of what is allowed, and where
    """

    seed: int
    cases: frozenset[str]
    runs: int = 0
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    misses: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    fates: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    shown: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    nearest: dict[str, tuple[float, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """One seed: its cases with everything recorded on them; `again` as in Recorded."""

    bank: Bank
    seed: int
    record: Record
    again: Mapping[str, Sequence[Sequence[Observation]]]

    def begun(self) -> _OfSeed:
        """Nothing was shown yet."""
        return _OfSeed(seed=self.seed, cases=frozenset(case.name for case in self.record.cases))

    def verdict(self, answer: Answer) -> Verdict:
        return self.judged(perform_all(self.bank.exercise, answer, self.record.cases, clock="cpu"))

    def judged(self, seen: Sequence[Observation]) -> Verdict:
        return judge(self.bank.exercise, self.record.cases, seen, self.record.references, self.record.suspects)

    def verdicts(self, wrong: Misconception) -> list[Verdict]:
        """Of each witness; what it showed once more while it was recorded is judged, where it was recorded."""
        again = self.again.get(wrong.name)
        return list(map(self.judged, again)) if again else list(map(self.verdict, wrong.witnesses))


def prove(bank: Bank, seeds: Sequence[int], *, public: Recorded | None = None, quick: bool = False) -> Proof:
    """Prove one exercise on these seeds; the public seed should be among them.

    public  what was recorded of the public seed, perhaps on another machine; recorded here if left out
    quick   whether on all seeds but the first garbage is left out, and a misconception need only be caught, which its
            first witness mostly is in the case that showed it on the first: that takes a quarter of the time
    """
    parts: list[_OfSeed] = []
    for seed in seeds:
        parts.append(_prove_briefly(bank, seed, parts[0]) if quick and parts else _prove_seed(bank, seed, public))
    return _together(bank, parts)


def prove_all(
    names: Sequence[str], seeds: Sequence[int], *, root: Path, jobs: int, right: bool = False
) -> Iterator[Proof]:
    """Prove these exercises (ids or entry names), shared by `jobs` processes; each proof comes when it and those before
    it have ended.

    root   the checkout, whose lessons hold the worked solutions
    right  only that right answers get full marks: on thousands of seeds, one may be found on which roundings decide
    """
    prove_one = _right_in_worker if right else _prove_in_worker
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        parts = [[pool.submit(prove_one, name, seed, root) for seed in seeds] for name in names]
        for name, row in zip(names, parts, strict=True):
            yield _together(with_worked(banks.load(name), root), [part.result() for part in row], right=right)


def with_worked(bank: Bank, root: Path) -> Bank:
    """The bank with the lesson's worked solution among its right answers."""
    lesson, name = find_unit(bank.exercise.unit).notebook, bank.exercise.id
    answer = _solutions(root, lesson).get(name)
    if answer is None:
        raise DeclarationError(f"{name} must have a worked solution: write its exercise cell in solutions/{lesson}.py")
    return dataclasses.replace(bank, alternatives=(*bank.alternatives, Alternative(name="worked", answer=answer)))


@functools.cache
def _solutions(root: Path, lesson: str) -> dict[str, Answer]:
    return worked.solutions(authored.read(root / "solutions" / f"{lesson}.py", root))


def _prove_in_worker(name: str, seed: int, root: Path) -> _OfSeed:
    with undisturbed(), files_in_memory():
        part = _prove_seed(with_worked(banks.load(name), root), seed)
    gc.collect()
    return part


def _right_in_worker(name: str, seed: int, root: Path) -> _OfSeed:
    with undisturbed(), files_in_memory():
        _, part = _prove_right(with_worked(banks.load(name), root), seed)
    gc.collect()
    return part


def _prove_seed(bank: Bank, seed: int, public: Recorded | None = None) -> _OfSeed:
    known = public if public and seed == PUBLIC_SEED else recording.recorded(bank, seed)
    trial = _Trial(bank=bank, seed=seed, record=known.record, again=known.again)
    part = trial.begun()
    _right_answers(trial, part)
    _right_answers_in_several_forms(trial, part)
    _stub_and_garbage(trial, part)
    _wrong_answers(trial, part)
    return part


def _prove_briefly(bank: Bank, seed: int, first: _OfSeed) -> _OfSeed:
    trial, part = _prove_right(bank, seed)
    exercise, cases = bank.exercise, {case.name: case for case in trial.record.cases}

    def performed(answer: Answer, names: Iterable[str]) -> dict[str, Observation]:
        return dict(
            zip(names, perform_all(exercise, answer, [cases[name] for name in names], clock="cpu"), strict=True)
        )

    right = performed(bank.reference, cases)
    for wrong in bank.misconceptions:
        if wrong.by_chance or (wrong.name, 1) not in first.shown:
            continue
        failed, shown_in = first.shown[wrong.name, 1]
        for names in ([shown_in], cases):  # a draw may choose the case that shows it, where there is one on every seed
            seen = right | performed(wrong.witnesses[0], names)
            part.runs += 1
            if not next(each for each in trial.judged([*seen.values()]).findings if each.property == failed).held:
                break
        else:
            part.misses.append(f"misconception {wrong.name} must fail {failed}, as on the first seed")
    return part


def _prove_right(bank: Bank, seed: int) -> tuple[_Trial, _OfSeed]:
    """That right answers are right: no misconception is recorded for it."""
    cases = tuple(bank.exercise.draw(seed))
    known = Record(cases=cases, references=recording.references(bank, cases), suspects=())
    trial = _Trial(bank=bank, seed=seed, record=known, again={})
    part = trial.begun()
    _right_answers(trial, part)
    _right_answers_in_several_forms(trial, part)
    return trial, part


def _together(bank: Bank, parts: Sequence[_OfSeed], *, right: bool = False) -> Proof:
    """What all seeds showed, and what must hold over them."""
    proof = Proof(
        exercise=bank.exercise.id,
        points=bank.exercise.points,
        alternatives=len(bank.alternatives),
        misconceptions=len(bank.misconceptions),
        runs=sum(part.runs for part in parts),
        confusion=sum((part.confusion for part in parts), Counter()),
        broken={name for part in parts for name in part.broken},
    )
    seeds_of: dict[str, list[int]] = {}
    for part in parts:
        for miss in part.misses:
            seeds_of.setdefault(miss, []).append(part.seed)
    proof.misses += [f"seed {', '.join(map(str, found))}: {miss}" for miss, found in seeds_of.items()]
    proof.near += _near(parts)
    if not right:
        proof.misses += _decided_by_a_draw(bank, parts)
        proof.misses += _demands(bank, proof, parts[0].cases if parts else frozenset())
    return proof


def seeds(count: int, rng: torch.Generator) -> list[int]:
    """The public seed, and fresh ones up to `count` in all."""
    fresh = torch.randint(2**40, (max(count - 1, 0),), generator=rng).tolist()
    return [PUBLIC_SEED, *fresh]


def _all_right(bank: Bank) -> list[tuple[str, Answer]]:
    return [("the reference", bank.reference)] + [
        (f"alternative {each.name}", each.answer) for each in bank.alternatives
    ]


def _right_answers(trial: _Trial, part: _OfSeed) -> None:
    for name, answer in _all_right(trial.bank):
        verdict = trial.verdict(answer)
        part.runs += 1
        if verdict.points != verdict.possible:
            failed = ", ".join(each.property for each in verdict.findings if not each.held)
            part.misses.append(f"{name} must get full marks, but fails {failed}")
        if verdict.diagnosis:
            part.misses.append(f"{name} is diagnosed as {verdict.diagnosis.name}")
        for each in verdict.findings:
            if each.held and each.error and each.tolerance:
                far = each.error / each.tolerance, f"seed {part.seed}: {name}, {each.case}"
                part.nearest[each.property] = max(far, part.nearest.get(each.property, far))


def _right_answers_in_several_forms(trial: _Trial, part: _OfSeed) -> None:
    """Where forms that each hold alone come together; they are drawn, because there are too many ways."""
    exercise = trial.bank.exercise
    cases = forms.together(exercise, trial.record.cases, trial.seed, COMPOSED)
    if not cases:
        return
    judged = next(each for each in exercise.properties if each.name == EVERY_FORM)
    alone = dataclasses.replace(judged, cases=tuple(case.name for case in cases), needs=())
    only = dataclasses.replace(exercise, properties=(alone,), keeps=())
    references = recording.references(trial.bank, cases)
    for name, answer in _all_right(trial.bank):
        (finding,) = judge(only, cases, perform_all(only, answer, cases, clock="cpu"), references).findings
        part.runs += 1
        if not finding.held:
            part.misses.append(f"{name} must be right where several forms meet, but not: {finding.case}")


def _stub_and_garbage(trial: _Trial, part: _OfSeed) -> None:
    for name, answer in [("the stub", stub(trial.bank)), *garbage(trial.bank, trial.seed)]:
        verdict = trial.verdict(answer)
        part.runs += 1
        if verdict.points:
            held = ", ".join(each.property for each in verdict.findings if each.held)
            part.misses.append(f"{name} must earn nothing, but holds {held}")
        if verdict.diagnosis:
            part.misses.append(f"{name} is diagnosed as {verdict.diagnosis.name}")
        if name == "the stub" and verdict.attempted:
            part.misses.append("the stub must count as not attempted")


def _wrong_answers(trial: _Trial, part: _OfSeed) -> None:
    for wrong in trial.bank.misconceptions:
        for number, (witness, verdict) in enumerate(zip(wrong.witnesses, trial.verdicts(wrong), strict=True), start=1):
            part.runs += 1
            named = verdict.diagnosis.name if verdict.diagnosis else "none"
            part.confusion[wrong.name, named] += 1
            part.broken |= {each.property for each in verdict.findings if not each.held and not each.blocked_by}
            failed = [each for each in verdict.findings if not each.held]
            part.fates[wrong.name, number] = frozenset(each.property for each in failed)
            if failed:
                part.shown[wrong.name, number] = failed[0].property, failed[0].case
            label = f"misconception {wrong.name} (witness {number}{_slip(witness)})"
            if verdict.points == verdict.possible:
                part.misses.append(f"{label} gets full marks; draw a case, or add a property, that shows it")
            elif named not in (wrong.name, *wrong.same_as):
                alike = "; if nothing can tell them apart, declare same_as" if named != "none" else ""
                part.misses.append(f"{label} is diagnosed as {named}{alike}")


def _slip(witness: Answer) -> str:
    """What the edits of a witness changed, on one line."""
    return "".join(f"; {line}" for line in edits.slip(witness).splitlines())


def _near(parts: Sequence[_OfSeed]) -> Iterator[str]:
    """The properties that roundings may decide on one of many more seeds."""
    nearest: dict[str, tuple[float, str]] = {}
    for part in parts:
        for name, far in part.nearest.items():
            nearest[name] = max(far, nearest.get(name, far))
    for name, (parts_of_it, where) in nearest.items():
        if parts_of_it > NEAR:
            yield f"{where} is off by {parts_of_it:.2f} of what {name} allows"


def _decided_by_a_draw(bank: Bank, parts: Sequence[_OfSeed]) -> Iterator[str]:
    """The witnesses that fail other properties on another seed, unless they are declared to."""
    by_chance = {each.name for each in bank.misconceptions if each.by_chance}
    for wrong, number in parts[0].fates if parts else ():
        fates = {part.fates[wrong, number] for part in parts if (wrong, number) in part.fates}
        sometimes = sorted(frozenset.union(*fates) - frozenset.intersection(*fates))
        if sometimes and wrong not in by_chance:
            yield (
                f"misconception {wrong} (witness {number}) must fail the same properties on every seed, but fails "
                f"{', '.join(sometimes)} on some only; draw cases that always show it, or declare by_chance"
            )


def _demands(bank: Bank, proof: Proof, drawn: frozenset[str]) -> Iterator[str]:
    """What must hold of the bank as a whole."""
    if not any(each.independent for each in bank.alternatives):
        yield "one right answer must be independent: the library's own call, numpy or a closed form"
    properties = bank.exercise.properties
    yield from (
        f"property {each.name} is broken by no misconception; add a wrong answer that fails it"
        for each in properties
        if each.name not in proof.broken
    )
    if strange := sorted({*bank.exercise.measured, *(name for each in properties for name in each.cases)} - drawn):
        yield f"properties and `measured` must speak of cases that are drawn, got {', '.join(strange)}"
