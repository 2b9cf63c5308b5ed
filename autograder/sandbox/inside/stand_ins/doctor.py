"""Stands in for the course's doctor where a submission is only shown."""

from __future__ import annotations


def examine() -> list[str]:
    """One sentence: this is not the student's machine."""
    return ["The doctor examines your own machine, and is not asked here."]


def to_text(checks: list[str]) -> str:
    """The sentence."""
    return "\n".join(checks)
