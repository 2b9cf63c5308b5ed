"""Which misconceptions a wrong answer may come from, with as little running of wrong answers as can be.

    misconceptions --a few telling cases--> those that show there what the answer showed --all cases--> suspects

Most show something else in the first cases that went wrong, and are not run on the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autograder import recording
from autograder.bank import Bank, Misconception
from course.judging.diagnosis import Seen, could_explain, looks_right, shows_a_slip
from course.judging.verdict import Suspect
from course.performing.compare import case_dtype
from course.performing.exercise import Case, Observation
from course.performing.perform import stops

TELLING = 3  # cases: where there are two slips, each may show in another


@dataclass(frozen=True, kw_only=True)
class Known:
    """What an exercise shows on the cases of a seed, whoever is graded.

    recorded  misconceptions, on a case of this number or on all: computed when first asked for
    """

    bank: Bank
    cases: tuple[Case, ...]
    references: tuple[Observation, ...]
    recorded: dict[tuple[str, int | None], tuple[Suspect, ...]] = field(default_factory=dict)

    def suspects(self, misconception: Misconception, at: int | None = None) -> tuple[Suspect, ...]:
        """The misconception on case `at`, or on all."""
        asked = misconception.name, at
        if asked not in self.recorded:
            alone = dataclasses.replace(self.bank, misconceptions=(misconception,))
            self.recorded[asked] = recording.suspects(alone, self.cases if at is None else self.cases[at : at + 1])
        return self.recorded[asked]


def suspected(known: Known, seen: Sequence[Observation]) -> Iterator[Suspect]:
    """The bank's suspects that telling cases leave, one at a time: the judge stops at the first that matches."""
    runs = [(each, case_dtype(dict(case.inputs))) for each, case in zip(seen, known.cases, strict=True)]
    wrong = [number for number, run in enumerate(runs) if not looks_right(run, known.references[number])]
    stopped = any(stops(each.error) for each in seen)  # after it no case was run, and nothing tells there
    telling = [(at, runs[at]) for at in wrong[: 1 if stopped else TELLING] or [0]]
    for each in known.bank.misconceptions:
        if each.fails or any(_possible(known, each, *case) for case in telling):
            yield from known.suspects(each)


def _possible(known: Known, misconception: Misconception, at: int, run: Seen) -> bool:
    """Whether the misconception may show this in case `at`."""
    witnesses = [witness for suspect in known.suspects(misconception, at) for witness in suspect.witnesses]
    return any(could_explain(run, each) or shows_a_slip(run, each, known.references[at]) for each in witnesses)
