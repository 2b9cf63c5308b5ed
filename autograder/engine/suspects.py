"""Which misconceptions a wrong answer may come from, with as little running of wrong answers as can be.

    misconceptions --a few telling cases--> those that show there what the answer showed --all cases--> suspects

Most show something else in the first cases that went wrong, and are not run on the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from autograder import recording
from autograder.bank import Bank
from course.judging.diagnosis import Seen, could_explain, looks_right, shows_a_slip
from course.judging.verdict import Suspect
from course.performing.compare import case_dtype
from course.performing.exercise import Case, Observation
from course.performing.perform import stops

TELLING = 3  # cases: where there are two slips, each may show in another


def suspected(
    bank: Bank, cases: Sequence[Case], seen: Sequence[Observation], references: Sequence[Observation]
) -> Iterator[Suspect]:
    """The bank's suspects that telling cases leave, one at a time: the judge stops at the first that matches."""
    runs = [(each, case_dtype(dict(case.inputs))) for each, case in zip(seen, cases, strict=True)]
    wrong = [number for number, run in enumerate(runs) if not looks_right(run, references[number])]
    # Where later cases were not run, a witness must be run on all, to stop where it stops.
    stopped = any(stops(each.error) for each in seen)
    telling = [(cases[at], runs[at], references[at]) for at in wrong[:TELLING] or [0]]
    for each in bank.misconceptions:
        alone = dataclasses.replace(bank, misconceptions=(each,))
        if stopped or each.fails or any(_possible(alone, *case) for case in telling):
            yield from recording.suspects(alone, cases)


def _possible(bank: Bank, case: Case, run: Seen, reference: Observation) -> bool:
    """Whether the misconception of `bank` may show this in the case."""
    recorded = [witness for suspect in recording.suspects(bank, [case]) for witness in suspect.witnesses]
    return any(could_explain(run, each) or shows_a_slip(run, each, reference) for each in recorded)
