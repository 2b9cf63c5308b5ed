"""Words that the page and the terminal share."""

from __future__ import annotations

from autograder import bank, edits
from autograder.engine.results import ClassResult, ExerciseResult, StudentResult
from course.errors import CourseError

LONGEST = 120  # characters of a reason in a cell of the page, and of what an exception says anywhere


def number(value: float) -> str:
    """Points without needless zeros: `7`, `7.5`."""
    return f"{round(value, 2):g}"


def spaced(name: str) -> str:
    """The name of a property or misconception as words."""
    return name.replace("_", " ")


def slip(exercise: str, misconception: str) -> str:
    """The lines of a right answer that the misconception's first edit takes out (-) and puts in (+); "" without one."""
    try:
        known = bank.load(exercise).misconceptions
    except CourseError:  # of an older release
        return ""
    witnesses = [witness for each in known if each.name == misconception for witness in each.witnesses]
    return next(filter(None, map(edits.slip, witnesses)), "")


def reason(result: ExerciseResult) -> str:
    """Why points are missing, in a few words; "" where none are."""
    verdict = result.verdict
    if verdict is None:
        return "no verdict"
    if not verdict.attempted:
        return "not attempted"
    if verdict.points == verdict.possible:
        return ""
    if verdict.diagnosis:
        return spaced(verdict.diagnosis.name)
    if verdict.failure:
        said = f": {verdict.failure.message}" if verdict.failure.message else ""
        return f"{verdict.failure.type}{said}"[:LONGEST]
    return "fails " + ", ".join(spaced(each.property) for each in verdict.findings if not each.held)


def reasons(student: StudentResult) -> list[str]:
    """One line per exercise that lost points; those not attempted share a line."""
    lines = [
        f"{each.name} {number(each.score)}/{each.possible}: {reason(each)}"
        for each in student.exercises
        if reason(each) not in ("", "not attempted")
    ]
    empty = [each.name for each in student.exercises if reason(each) == "not attempted" and not each.bonus]
    if not lines and len(empty) == len([each for each in student.exercises if not each.bonus]):
        empty = ["nothing was written"] if not student.problem else []
    elif empty:
        empty = [f"not attempted: {', '.join(empty)}"]
    return lines + empty


def remarks(student: StudentResult) -> list[str]:
    """What a teacher should know beyond points: files that could not be read, repairs, penalties, open reviews."""
    lines = []
    if student.failed:
        lines.append(f"Not graded: {student.failed}")
    if student.problem:
        lines.append(f"Graded as untouched: {student.problem}.")
    lines += student.repairs
    if student.late_penalty:
        lines.append(f"Late: {number(student.late_penalty)} points were taken off.")
    by_hand = [each.name for each in student.exercises if each.manual]
    if by_hand:
        lines.append(f"Scored by hand: {', '.join(by_hand)}.")
    if student.needs_review:
        lines.append("Waits for a review in formgrader.")
    return lines


def summary(result: ClassResult) -> str:
    """The class in one sentence."""
    scores = sorted(student.score for student in result.students)
    if not scores:
        return "Nobody has handed in."
    middle = len(scores) // 2
    median = scores[middle] if len(scores) % 2 else (scores[middle - 1] + scores[middle]) / 2
    first = result.students[0]
    bonus = sum(each.possible for each in first.exercises if each.bonus)
    reach = f"{number(first.max_score)} points to reach" + (f" and {bonus} of bonus" if bonus else "")
    plural = "s" if len(scores) > 1 else ""
    return (
        f"{len(scores)} submission{plural}, {reach}; median {number(median)}, "
        f"mean {number(sum(scores) / len(scores))}, from {number(scores[0])} to {number(scores[-1])}."
    )
