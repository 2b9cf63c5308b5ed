"""The verdict on an answer to an exercise, as a notebook gives it: on simulated ranks, by the bank's reference."""

from __future__ import annotations

from autograder import bank as banks
from autograder import recording
from course.judging.judge import judge
from course.judging.verdict import Verdict
from course.performing.exercise import Answer
from course.performing.perform import perform_all


def verdict(name: str, answer: Answer) -> Verdict:
    """On fresh cases; on the processors' clock, so that no other process costs it anything."""
    bank = banks.load(name)
    cases = bank.exercise.draw(0)
    seen = perform_all(bank.exercise, answer, cases, clock="cpu")
    return judge(bank.exercise, cases, seen, recording.references(bank, cases))


def lost(name: str, answer: Answer) -> set[str]:
    """The properties that did not hold."""
    return {each.property for each in verdict(name, answer).findings if not each.held}
