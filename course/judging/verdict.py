"""What the judge is given beside observations, and what it says.

Witness, Suspect     recorded misconceptions
Finding, Diagnosis   parts of a Verdict
"""

from __future__ import annotations

from dataclasses import dataclass

from course.performing.exercise import Failure, Observation


@dataclass(frozen=True, kw_only=True)
class Witness:
    """A recorded implementation: what was observed per case, which keys vary by chance, and how sharp each value is.

    free         keys that two random states change: compared by nobody
    sensitivity  by case and key: how far the value moves when every input moves by one rounding
    """

    observations: tuple[Observation, ...]
    free: tuple[frozenset[str], ...]
    sensitivity: tuple[dict[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A misconception as a sheet holds it: a name, the paragraph that cures it, and how it is recognised.

    fails   instead of witnesses: recognised where exactly these properties fail
    """

    name: str
    hint: str
    witnesses: tuple[Witness, ...] = ()
    fails: frozenset[str] = frozenset()
    same_as: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the judge says of one property."""

    property: str
    held: bool
    points: int
    possible: int
    got: str = ""
    expected: str = ""
    error: float | None = None
    tolerance: float | None = None
    case: str = ""
    where: str = ""
    hint: str = ""
    remark: str = ""
    blocked_by: str = ""
    evidence: str = "value"
    measured: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The misconception whose observation the answer's equals."""

    name: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The judgement of one answer."""

    exercise: str
    points: int
    possible: int
    findings: tuple[Finding, ...]
    attempted: bool = True
    diagnosis: Diagnosis | None = None
    failure: Failure | None = None
    failure_case: str = ""
    printed: str = ""
