"""Which misconceptions a wrong answer may come from, with as little running of wrong answers as can be.

    misconceptions --one telling case--> those that show there what the answer showed --all cases--> suspects

Most show something else in the first case that went wrong, and are not run on the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from autograder import recording
from autograder.bank import Bank
from course.judging.diagnosis import Seen, could_explain, looks_right
from course.judging.verdict import Suspect
from course.performing.compare import case_dtype
from course.performing.exercise import Case, Observation
from course.performing.perform import stops


def suspected(
    bank: Bank, cases: Sequence[Case], seen: Sequence[Observation], references: Sequence[Observation]
) -> Iterator[Suspect]:
    """The bank's suspects that the telling case leaves, one at a time: the judge stops at the first that matches."""
    runs = [(each, case_dtype(dict(case.inputs))) for each, case in zip(seen, cases, strict=True)]
    wrong = [number for number, run in enumerate(runs) if not looks_right(run, references[number])]
    # Where later cases were not run, a witness must be run on all, to stop where it stops.
    telling = None if any(stops(each.error) for each in seen) else next(iter(wrong), 0)
    for each in bank.misconceptions:
        alone = dataclasses.replace(bank, misconceptions=(each,))
        if telling is None or each.fails or _possible(alone, cases[telling], runs[telling]):
            yield from recording.suspects(alone, cases)


def _possible(bank: Bank, case: Case, run: Seen) -> bool:
    """Whether the misconception of `bank` may show this in the case."""
    return any(could_explain(run, each) for suspect in recording.suspects(bank, [case]) for each in suspect.witnesses)
