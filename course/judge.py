"""Judging: the trusted half. Pure, fast and total; it never imports or runs an answer.

    cases, observations, references --judge--> Verdict

Any observation, however odd, gives a verdict and never an exception: what cannot be read does not hold.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from course.compare import EPS, Comparison, as_numbers, case_dtype, compare
from course.exercise import (
    Case,
    Diagnosis,
    Exercise,
    Failure,
    Finding,
    Observation,
    Property,
    Source,
    Suspect,
    Verdict,
    Witness,
)
from course.tree import Leaf

ALL_SOURCES: frozenset[Source] = frozenset({"claimed", "tick", "broker", "kernel"})
WITNESS_ROUNDINGS = 128  # a misconception is recognised a little more broadly than a right answer is accepted
BROADEST = 1 / 32  # but by this share of its size at most: 128 roundings of bfloat16 would be all of it
SHARPEST = 1e-3  # a witness's sensitivity counts up to this share of its size: a kink must not blur everything

Suspects = Sequence[Suspect] | Callable[[], Iterable[Suspect]]


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One case with what was seen and what should have been seen."""

    case: Case
    got: Observation
    expected: Observation
    dtype: torch.dtype


def judge(
    exercise: Exercise,
    cases: Sequence[Case],
    observations: Sequence[Observation],
    references: Sequence[Observation],
    suspects: Suspects = (),
    *,
    sources: frozenset[Source] = ALL_SOURCES,
) -> Verdict:
    """The verdict on one answer.

    observations  one per case, in order; missing ones count as empty
    references    the reference's observations, computed in float64
    suspects      the misconceptions to look for, or a function that computes them: called only where a property failed
    sources       ledger sources that may earn points here; a notebook trusts all, a grader not what is claimed
    """
    padded = [*observations, *[Observation()] * (len(cases) - len(observations))]
    runs = [
        _Run(case=case, got=got, expected=expected, dtype=case_dtype(dict(case.inputs)))
        for case, got, expected in zip(cases, padded, references, strict=False)
    ]
    failure, failure_case = _first_failure(runs)
    if _not_written(exercise, runs):
        return _verdict(exercise, _unattempted(exercise), runs, attempted=False)
    findings = _findings(exercise, runs, sources)
    failed = frozenset(finding.property for finding in findings if not finding.held)
    diagnosis = _diagnose(runs, failed, suspects) if failed else None
    return _verdict(exercise, findings, runs, diagnosis=diagnosis, failure=failure, failure_case=failure_case)


def _verdict(
    exercise: Exercise,
    findings: tuple[Finding, ...],
    runs: Sequence[_Run],
    *,
    attempted: bool = True,
    diagnosis: Diagnosis | None = None,
    failure: Failure | None = None,
    failure_case: str = "",
) -> Verdict:
    return Verdict(
        exercise=exercise.id,
        points=sum(finding.points for finding in findings),
        possible=exercise.points,
        findings=findings,
        attempted=attempted,
        diagnosis=diagnosis,
        failure=failure,
        failure_case=failure_case,
        printed=next((run.got.printed for run in runs if run.got.printed), ""),
    )


def _first_failure(runs: Sequence[_Run]) -> tuple[Failure | None, str]:
    """The first failure that the reference does not show too."""
    for run in runs:
        if run.got.error is not None and run.expected.error is None:
            return run.got.error, run.case.name
    return None, ""


def _not_written(exercise: Exercise, runs: Sequence[_Run]) -> bool:
    """Whether every run ended in the stub's own NotImplementedError."""
    errors = [run.got.error for run in runs]
    return bool(errors) and all(
        error is not None and error.type == "NotImplementedError" and error.message in (exercise.id, "")
        for error in errors
    )


def _unattempted(exercise: Exercise) -> tuple[Finding, ...]:
    return tuple(
        Finding(property=each.name, held=False, points=0, possible=each.points, evidence=each.evidence)
        for each in exercise.properties
    )


# --- properties ------------------------------------------------------------------------------------


def _findings(exercise: Exercise, runs: Sequence[_Run], sources: frozenset[Source]) -> tuple[Finding, ...]:
    findings: dict[str, Finding] = {}
    for each in exercise.properties:
        blocker = next((name for name in each.needs if not findings[name].held), "")
        findings[each.name] = _finding(each, runs, blocker, sources)
    return tuple(findings.values())


def _finding(each: Property, runs: Sequence[_Run], blocker: str, sources: frozenset[Source]) -> Finding:
    """The property over all of its cases; the worst comparison is the one that is told."""
    compared = [
        (run.case.name, comparison)
        for run in runs
        if not each.cases or run.case.name in each.cases
        for comparison in _comparisons(each, run, sources)
    ]
    worst_case, worst = max(compared, key=lambda pair: _badness(pair[1]), default=("", _NOTHING))
    held = worst.held and not blocker
    return Finding(
        property=each.name,
        held=held,
        points=each.points if held else 0,
        possible=each.points,
        got=worst.got,
        expected=worst.expected,
        error=None if math.isnan(worst.error) else worst.error,
        tolerance=worst.tolerance,
        case=worst_case,
        where=worst.where,
        hint=each.hint,
        blocked_by=blocker,
        evidence=each.evidence,
    )


def _missing(expected: str, got: str = "nothing") -> Comparison:
    return Comparison(held=False, error=math.inf, tolerance=0.0, got=got, expected=expected)


_NOTHING = _missing("a case that speaks of it")


def _badness(comparison: Comparison) -> tuple[bool, float]:
    """Orders comparisons from good to bad: failures first, then by error in units of its tolerance."""
    if math.isnan(comparison.error):
        return (not comparison.held, math.inf)
    return (not comparison.held, comparison.error / max(comparison.tolerance, 5e-324))


def _comparisons(each: Property, run: _Run, sources: frozenset[Source]) -> Iterable[Comparison]:
    """Everything that this property compares in one case."""
    got, expected = _evidence(each, run.got, sources), _evidence(each, run.expected, ALL_SOURCES)
    if each.holds is not None:
        return [_stated(each, run, got, expected)]
    keys = [key for key in expected if any(fnmatch.fnmatchcase(key, pattern) for pattern in each.keys)]
    if not keys:
        return [_missing(f"a value named {' or '.join(each.keys)}")]
    return [_compare_key(key, got, expected, run, each.roundings) for key in keys]


def _evidence(each: Property, seen: Observation, sources: frozenset[Source]) -> dict[str, Leaf]:
    if each.evidence == "value":
        return seen.values
    counted = [*sources]  # a list: an odd source may not even be hashable
    return {key: value for key, value in seen.ledger.items() if seen.sources.get(key) in counted}


def _stated(each: Property, run: _Run, got: dict[str, Leaf], expected: dict[str, Leaf]) -> Comparison:
    """The property's own predicate; one that cannot read the observation does not hold."""
    assert each.holds is not None
    try:
        wrong = each.holds(run.case.inputs, got, expected)
    except Exception:
        failed = run.got.error
        wrong = f"{failed.type}: {failed.message}" if failed else "a value that cannot be read"
    return Comparison(
        held=wrong is None,
        error=math.nan,
        tolerance=0.0,
        got="as stated" if wrong is None else wrong,
        expected=each.name.replace("_", " "),
    )


def _compare_key(key: str, got: dict[str, Leaf], expected: dict[str, Leaf], run: _Run, roundings: int) -> Comparison:
    if key not in got:
        failed = run.got.error
        return _missing(f"a value for {key}", f"{failed.type}" if failed else "nothing")
    found = compare(got[key], expected[key], run.dtype, roundings=roundings)
    return Comparison(
        held=found.held,
        error=found.error,
        tolerance=found.tolerance,
        got=found.got,
        expected=found.expected,
        where=f"{key}{found.where}",
    )


# --- diagnosis -------------------------------------------------------------------------------------


def _diagnose(runs: Sequence[_Run], failed: frozenset[str], suspects: Suspects) -> Diagnosis | None:
    """The first misconception that explains everything that was seen."""
    for suspect in suspects() if callable(suspects) else suspects:
        by_pattern = bool(suspect.fails) and suspect.fails == failed
        if by_pattern or any(_matches(runs, witness) for witness in suspect.witnesses):
            return Diagnosis(name=suspect.name, hint=suspect.hint)
    return None


def _matches(runs: Sequence[_Run], witness: Witness) -> bool:
    """Whether every value in every case is what the witness showed.

    One that broke in every case shows nothing but its failures: there their messages must agree too.
    """
    if len(witness.observations) != len(runs):
        return False
    if all(seen.error for seen in witness.observations) and not all(map(_says_the_same, runs, witness.observations)):
        return False
    return all(
        _matches_run(run, seen, free, sensitivity)
        for run, seen, free, sensitivity in zip(
            runs, witness.observations, witness.free, witness.sensitivity, strict=True
        )
    )


def _says_the_same(run: _Run, seen: Observation) -> bool:
    """Whether both failures have one message, apart from the numbers in it."""
    got, expected = (re.sub(r"\d+", "0", each.message if each else "") for each in (run.got.error, seen.error))
    return got == expected


def _matches_run(run: _Run, seen: Observation, free: frozenset[str], sensitivity: dict[str, float]) -> bool:
    if (run.got.error and run.got.error.type) != (seen.error and seen.error.type):
        return False
    for label, got, expected in (
        ("", run.got.values, seen.values),
        ("ledger/", run.got.ledger, seen.ledger),
    ):
        if got.keys() != expected.keys():
            return False
        for key in expected:
            blur = sensitivity.get(label + key, 0.0)
            if label + key not in free and not _same(got[key], expected[key], run.dtype, blur):
                return False
    return True


def _same(got: Leaf, expected: Leaf, dtype: torch.dtype, blur: float) -> bool:
    """Equal within the blur, or not finite somewhere in both: where an overflow lands is a matter of style."""
    a, b = as_numbers(got), as_numbers(expected)
    if a is None or b is None:
        return compare(got, expected, dtype, roundings=0).held
    finite = torch.isfinite(b)
    if not bool(finite.all()):
        return a.shape == b.shape and not bool(torch.isfinite(a).all())
    scale = float(b.abs().max()) if b.numel() else 0.0
    roundings = max(1, min(WITNESS_ROUNDINGS, int(BROADEST / EPS[dtype])))
    limited = min(blur, SHARPEST * scale / roundings)
    return compare(got, expected, dtype, roundings=roundings, sensitivity=limited).held
