"""Judging: the trusted half. Pure, fast and total; it never imports or runs an answer.

    cases, observations, references --judge--> Verdict

Any observation, however odd, gives a verdict and never an exception: what cannot be read does not hold.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from course.errors import CourseError
from course.judging.diagnosis import Suspects, diagnose
from course.judging.verdict import Diagnosis, Finding, Verdict, Witness
from course.performing.compare import EPS, Comparison, Measured, as_numbers, case_dtype, described, measure
from course.performing.exercise import (
    AFTER,
    REFUSED,
    Case,
    Exercise,
    Failure,
    Observation,
    Property,
    Source,
)
from course.tree import Leaf, places, readable

ALL_SOURCES: frozenset[Source] = frozenset({"claimed", "tick", "broker", "kernel"})

AT_LEAST, TIMES = 10_000, 4  # numbers of a tensor that is read, and times those of the largest that was asked for
MOST_DIMS = 8

BROKE = "the case broke first,"

SHOWN, SAID = 100, 2_000  # characters of a value's name, and of what a property says: either may be a student's

# How bad a comparison is, and what puts it in words: only the worst of a property is told.
Weighed: TypeAlias = tuple[tuple[bool, float], Callable[[], Comparison]]


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """One case with what was seen and what should have been seen.

    measured  what was compared before, by key, roundings and kind of evidence: several properties ask for one value
    """

    case: Case
    got: Observation
    expected: Observation
    dtype: torch.dtype
    measured: dict[tuple[str, int, bool], Measured] = field(default_factory=dict, init=False)


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

    observations  one per case, in order, from nobody to trust: missing ones count as empty, further ones are ignored
    references    the reference's observations, one per case, computed in float64
    suspects      the misconceptions to look for, or a function that computes them: called only where a property failed
    sources       ledger sources that may earn points here; a notebook trusts all, a grader not what is claimed

    Raises CourseError for another number of references: what is ours and missing must not pass for what was not asked.
    """
    if len(references) != len(cases):
        raise CourseError(
            f"each of the {len(cases)} cases of {exercise.id} must have its reference, got {len(references)}: "
            "draw and record them together"
        )
    padded = [*observations[: len(cases)], *[Observation()] * (len(cases) - len(observations))]
    runs = [
        _Judged(case=case, got=_readable(got, expected), expected=expected, dtype=case_dtype(dict(case.inputs)))
        for case, got, expected in zip(cases, padded, references, strict=True)
    ]
    failure, failure_case = _first_failure(runs)
    if _not_written(exercise, runs):
        return _verdict(exercise, _unattempted(exercise), runs, attempted=False)
    findings = _findings(exercise.properties, runs, sources)
    failed = frozenset(finding.property for finding in findings if not finding.held)
    diagnosis = None
    if failed:
        pairs = [(run.got, run.dtype) for run in runs]
        as_costly = functools.partial(_as_costly, exercise, runs, findings)
        hard = [case.hard for case in cases]
        earned = any(finding.points for finding in findings)  # what holds nothing shows too little to tell slips apart
        diagnosis = diagnose(pairs, failed, suspects, as_costly, references if earned else (), hard)
    return _verdict(exercise, findings, runs, diagnosis=diagnosis, failure=failure, failure_case=failure_case)


def _readable(got: Observation, expected: Observation) -> Observation:
    """The same without tensors that are much larger than any that was asked for: a property looks at each number, or
    makes a list of each row.
    """
    sizes = [value.numel() for value in expected.values.values() if isinstance(value, Tensor)]
    most = AT_LEAST + TIMES * max(sizes, default=0)
    values, ledger = ({**leaves, **_too_large(leaves, most)} for leaves in (got.values, got.ledger))
    return dataclasses.replace(got, values=values, ledger=ledger)


def _too_large(leaves: Mapping[str, Leaf], most: int) -> dict[str, Leaf]:
    """Words in the place of tensors of more than so many numbers or rows."""
    tensors = {key: value for key, value in leaves.items() if isinstance(value, Tensor)}
    large = {key: value for key, value in tensors.items() if value.dim() > MOST_DIMS or places(value.shape) > most}
    return {key: f"<tensor of shape {tuple(value.shape)}: larger than any asked for>" for key, value in large.items()}


def _as_costly(exercise: Exercise, runs: Sequence[_Judged], findings: Sequence[Finding], witness: Witness) -> bool:
    """Whether the witness, judged by what was counted when it was recorded, breaks just the costs that were broken."""
    costs = {finding.property: finding.held for finding in findings if finding.evidence == "ledger"}
    if not costs:
        return True
    shown = [dataclasses.replace(run, got=seen) for run, seen in zip(runs, witness.observations, strict=True)]
    theirs = _findings(_needed(exercise.properties, costs), shown, ALL_SOURCES)
    return all(costs.get(finding.property, finding.held) == finding.held for finding in theirs)


def _needed(properties: Sequence[Property], names: Iterable[str]) -> list[Property]:
    """Those of these names, and what they need, in their order."""
    needed = set(names)
    for each in reversed(properties):
        if each.name in needed:
            needed.update(each.needs)
    return [each for each in properties if each.name in needed]


def _verdict(
    exercise: Exercise,
    findings: tuple[Finding, ...],
    runs: Sequence[_Judged],
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


def _first_failure(runs: Sequence[_Judged]) -> tuple[Failure | None, str]:
    """The first failure that the reference does not show too."""
    for run in runs:
        if run.got.error is not None and run.expected.error is None:
            return run.got.error, run.case.name
    return None, ""


def _not_written(exercise: Exercise, runs: Sequence[_Judged]) -> bool:
    """Whether every run ended in the stub's own NotImplementedError."""
    errors = [run.got.error for run in runs]
    return bool(errors) and all(
        error is not None and error.type == "NotImplementedError" and _own_words(error) in (exercise.id, "")
        for error in errors
    )


def _own_words(error: Failure) -> str:
    """What was raised; of a rank without `rank 0 raised NotImplementedError: ` and the line behind it."""
    if error.rank is None:
        return error.message
    return error.message.removeprefix(f"rank {error.rank} raised {error.type}: ").partition(" (")[0]


def _unattempted(exercise: Exercise) -> tuple[Finding, ...]:
    return tuple(
        Finding(property=each.name, held=False, points=0, possible=each.points, evidence=each.evidence)
        for each in exercise.properties
    )


# --- properties ------------------------------------------------------------------------------------


def _findings(
    properties: Sequence[Property], runs: Sequence[_Judged], sources: frozenset[Source]
) -> tuple[Finding, ...]:
    findings: dict[str, Finding] = {}
    for each in properties:
        blocker = next((name for name in each.needs if not findings[name].held), "")
        findings[each.name] = _finding(each, runs, blocker, sources)
    return tuple(findings.values())


def _finding(each: Property, runs: Sequence[_Judged], blocker: str, sources: frozenset[Source]) -> Finding:
    """The property over all of its cases; the worst comparison is the one that is told."""
    compared = [
        (run, comparison)
        for run in runs
        if (run.case.name in each.cases if each.cases else each.hard or not run.case.hard)
        for comparison in _comparisons(each, run, sources)
    ]
    run, (badness, tell) = max(compared, key=lambda pair: pair[1][0], default=(None, _told(_NOTHING)))
    held, worst = not badness[0] and not blocker, tell()
    return Finding(
        property=each.name,
        held=held,
        points=each.points if held else 0,
        possible=each.points,
        got=worst.got,
        expected=worst.expected,
        error=None if math.isnan(worst.error) else worst.error,
        tolerance=worst.tolerance,
        case=run.case.name if run else "",
        where=worst.where,
        hint=each.hint,
        remark=worst.remark,
        blocked_by=blocker,
        evidence=each.evidence,
        measured=_measured(each, run) if run else None,
    )


def _measured(each: Property, run: _Judged) -> tuple[float, float] | None:
    """The cost that the property shows, ours last; None where it shows none, or there is no number."""
    costs = [as_numbers(seen.ledger.get(each.shows)) for seen in (run.got, run.expected)]
    one = [cost is not None and cost.numel() == 1 and not cost.is_complex() for cost in costs]
    got, expected = [
        float(cost) if real and cost is not None else math.nan for cost, real in zip(costs, one, strict=True)
    ]
    return (got, expected) if math.isfinite(got) and math.isfinite(expected) else None


def _missing(expected: str, got: str = "nothing") -> Comparison:
    return Comparison(held=False, error=math.inf, tolerance=0.0, got=got, expected=expected)


_NOTHING = _missing("a case that speaks of it")


def _badness(found: Measured | Comparison) -> tuple[bool, float]:
    """Orders comparisons from good to bad: failures first, then by error in units of its tolerance."""
    if math.isnan(found.error):
        return (not found.held, math.inf)
    return (not found.held, found.error / max(found.tolerance, 5e-324))


def _told(comparison: Comparison) -> Weighed:
    return _badness(comparison), lambda: comparison


def _comparisons(each: Property, run: _Judged, sources: frozenset[Source]) -> Iterable[Weighed]:
    """Everything that this property compares in one case."""
    got, expected = _evidence(each, run.got, sources), _evidence(each, run.expected, ALL_SOURCES)
    in_half = EPS.get(run.dtype, 0.0) > EPS[torch.float32]
    roundings = min(each.roundings, each.in_half) if in_half else each.roundings
    beside = _compared(each.beside, run.got.values, run.expected.values, run, roundings) if each.beside else []
    if each.holds is not None:
        return [*beside, _told(_stated(each, run, got, expected))]
    return [*beside, *_compared(each.keys, got, expected, run, roundings)]


def _compared(
    patterns: tuple[str, ...], got: dict[str, Leaf], expected: dict[str, Leaf], run: _Judged, roundings: int
) -> list[Weighed]:
    """A comparison for each expected value that a pattern names, and for what it names and nobody expects."""
    keys = [key for key in expected if any(_names(pattern, key) for pattern in patterns)]
    if not keys:
        return [_told(_missing(f"a value named {' or '.join(patterns)}"))]
    more = (key for key in got if key not in expected and any(_names(pattern, key) for pattern in patterns))
    surplus = [_told(_missing(f"nothing at {readable(key, SHOWN)}", "a value")) for key in itertools.islice(more, 1)]
    return [*(_compare_key(key, got, expected, run, roundings) for key in keys), *surplus]


def _names(pattern: str, key: str) -> bool:
    """Whether the pattern names this value; `*` alone names no argument and nothing that was refused."""
    return _is_named(pattern, key) if len(key) <= SHOWN else _is_named.__wrapped__(pattern, key)


@functools.lru_cache(maxsize=10_000)  # of short names: a student may return any, and they stay for the whole batch
def _is_named(pattern: str, key: str) -> bool:
    return fnmatch.fnmatchcase(key, pattern) and not (pattern == "*" and key.startswith((AFTER, REFUSED)))


def _evidence(each: Property, seen: Observation, sources: frozenset[Source]) -> dict[str, Leaf]:
    if each.evidence == "value":
        return seen.values
    counted = [*sources]  # a list: an odd source may not even be hashable
    return {key: value for key, value in seen.ledger.items() if seen.sources.get(key) in counted}


def _stated(each: Property, run: _Judged, got: dict[str, Leaf], expected: dict[str, Leaf]) -> Comparison:
    """The property's own predicate; one that cannot read the observation does not hold."""
    assert each.holds is not None
    try:
        wrong = each.holds(run.case.inputs, got, expected)
    except Exception:
        failed = run.got.error
        wrong = f"{BROKE} with {failed.type}: {failed.message}" if failed else "a value that cannot be read"
    return Comparison(
        held=wrong is None,
        error=math.nan,
        tolerance=0.0,
        got="as stated" if wrong is None else readable(wrong, SAID),  # it may quote what a student returned
        expected=each.name.replace("_", " "),
    )


def _compare_key(key: str, got: dict[str, Leaf], expected: dict[str, Leaf], run: _Judged, roundings: int) -> Weighed:
    if key not in got:
        failed = run.got.error
        return _told(_missing(f"a value for {key}", f"{failed.type}" if failed else "nothing"))
    asked = (key, roundings, got is run.got.values)
    found = run.measured.get(asked)
    if found is None:
        found = run.measured[asked] = measure(got[key], expected[key], run.dtype, roundings=roundings)

    def tell() -> Comparison:
        comparison = described(found, got[key], expected[key])
        return dataclasses.replace(comparison, where=f"{key}{comparison.where}")

    return _badness(found), tell
