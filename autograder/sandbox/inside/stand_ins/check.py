"""Stands in for the course's checks where a submission is only shown: nothing is judged or remembered here."""

from __future__ import annotations

__all__ = ["check", "hint", "progress", "solved"]


def check(*answer: object) -> None:
    """Answers are judged elsewhere."""
    print("Answers are judged by the grader: see the table below each check cell.")


def hint(*answer: object, step: int | None = None) -> None:
    """Hints are for those who still write."""
    print("Hints are not shown here.")


def progress() -> None:
    """Progress is kept on the student's machine."""
    print("Progress is kept on your own machine, and not shown here.")


def solved(*answer: object) -> bool:
    """No: what a lesson shows only with a right answer would cost seconds."""
    print("What this lesson shows once an answer is right is not shown here.")
    return False
