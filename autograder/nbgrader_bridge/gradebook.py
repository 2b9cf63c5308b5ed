"""nbgrader's gradebook: the assignment, scores and comments go in; what counts comes out.

A check cell holds the score, the answer cell before it the comment. A bonus check cell has a maximum of 0 points:
what it earns counts in full and raises no maximum. `auto_score` and `auto_comment` are ours and are always replaced;
`manual_score`, `extra_credit` and `manual_comment` belong to people and are never touched.
"""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, MissingEntry, SubmittedAssignment, SubmittedNotebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import SaveCells
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from autograder.engine.cells import Release, verbatim
from autograder.engine.grade import Graded
from autograder.engine.record import read_file
from autograder.engine.results import ExerciseResult, StudentResult, brief
from autograder.nbgrader_bridge.locks import is_locked
from course import exercises
from course.errors import CourseError
from course.judging.verdict import Verdict
from course.notebook.report import to_text

WIDTH = 96  # characters of a line of a comment
COMMENT = 30_000  # bytes of a comment before its lines are folded: more than what honest answers bring about


def release_path(directory: CourseDirectory, assignment: str, notebook: str) -> Path:
    """Where the release copy of a notebook lies."""
    folder = Path(directory.format_path(directory.release_directory, ".", assignment))
    return folder / f"{notebook}.ipynb"


def graded_folder(directory: CourseDirectory, assignment: str, student: str) -> Path:
    """Where the graded notebook of this student lies."""
    return Path(directory.format_path(directory.autograded_directory, student, assignment))


def feedback_folder(directory: CourseDirectory, assignment: str, student: str) -> Path:
    """Where this student's feedback page lies."""
    return Path(directory.format_path(directory.feedback_directory, student, assignment))


def open_gradebook(directory: CourseDirectory) -> Gradebook:
    """The gradebook of this folder, made if there is none. Use as a context manager.

    Raises CourseError where it is none or cannot be opened, OperationalError where it is locked.
    """
    try:
        return Gradebook(directory.db_url, directory.course_id)
    except DBAPIError as error:
        if is_locked(error):
            raise
        place, said = make_url(directory.db_url).render_as_string(hide_password=True), str(error.orig).strip()
        raise CourseError(
            f"the gradebook {place} must be a database that can be opened, but: {said.partition(chr(10))[0]}; "
            "put the file right or away, or set c.CourseDirectory.db_url anew"
        ) from None
    except (ArgumentError, ImportError) as error:
        raise CourseError(
            f"c.CourseDirectory.db_url must be the address of a database whose driver is installed, but: {error}; "
            "set it anew"
        ) from None


# --- in ---------------------------------------------------------------------------------------------


def register(directory: CourseDirectory, assignment: str, release: Release) -> None:
    """Record the release's cells and maxima with nbgrader's own SaveCells.

    Raises CourseError where cells came or went since the first submission was graded, which nbgrader cannot follow.
    """
    notebook = copy.deepcopy(release.notebook)
    for cell, node in zip(release.cells, notebook.cells, strict=True):
        if cell.role == "check":
            node.metadata.nbgrader["points"] = maximum(cell.exercise)
    with open_gradebook(directory) as gradebook:
        gradebook.update_or_create_assignment(assignment)
    names = {"notebook": release.name, "assignment": assignment, "db_url": directory.db_url}
    try:
        SaveCells().preprocess(notebook, {"nbgrader": names})
    except RuntimeError as error:
        raise CourseError(
            f"the release of {assignment} must keep the graded cells under which submissions were recorded, but: "
            f"{error}; grade it under another assignment name, or remove it with `nbgrader db assignment remove`"
        ) from None


def maximum(exercise: str) -> int:
    """What an exercise adds to the assignment's maximum: its points, or 0 for a bonus."""
    declared = exercises.load(exercise)
    return 0 if declared.entry.bonus else declared.points


def save(gradebook: Gradebook, assignment: str, release: Release, graded: Graded) -> None:
    """Replace automatic scores and comments of one submission, which must be recorded already."""
    submission = gradebook.find_submission_notebook(release.name, assignment, graded.student)
    grades, comments = _by_cell(submission.grades, submission), _by_cell(submission.comments, submission)
    verdicts = {verdict.exercise: verdict for verdict in graded.verdicts}
    for cell in release.cells:
        if cell.role == "check":
            grade = grades[cell.grade_id]
            grade.auto_score = None if graded.failed else verdicts[cell.exercise].points
            # As nbgrader does: a person looks again where a person has decided before.
            grade.needs_manual_grade = bool(graded.failed) or grade.manual_score is not None
        elif cell.role == "answer" and cell.exercise in verdicts:
            comments[cell.grade_id].auto_comment = comment_on(graded, verdicts[cell.exercise])
    gradebook.db.commit()


def _by_cell(found: Iterable[Any], submission: SubmittedNotebook) -> dict[str, Any]:
    """Grades or comments by the name of their cell. All cells come in one query, not one for each name."""
    notebook = submission.notebook
    cells = {cell.id: cell.name for cell in [*notebook.grade_cells, *notebook.solution_cells, *notebook.task_cells]}
    return {cells[each.cell_id]: each for each in found}


def forget(gradebook: Gradebook, assignment: str, notebook: str, student: str) -> None:
    """Clear automatic scores, comments and the late penalty of one submission; what people gave stays."""
    submission = gradebook.find_submission_notebook(notebook, assignment, student)
    for grade in submission.grades:
        grade.auto_score, grade.needs_manual_grade = None, True
    for comment in submission.comments:
        comment.auto_comment = None
    submission.late_submission_penalty = None
    gradebook.db.commit()


def comment_on(graded: Graded, verdict: Verdict) -> str:
    """The verdict as text that a feedback page shows letter by letter, because it may hold a student's words."""
    if graded.failed:
        text = f"Not graded: {graded.failed}"
    else:
        first = [f"The submitted file could not be read: {graded.problem}."] if graded.problem else []
        lines = to_text(verdict).splitlines()
        text = "\n".join([*first, *(lines[:1] if verdict.points == verdict.possible else lines)])
    return verbatim("\n".join(_folded(line) for line in _cut(text).splitlines()))


def _cut(text: str) -> str:
    """As much of a text as a comment holds."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= COMMENT else f"{data[:COMMENT].decode(errors='ignore')}\n[the rest was left out]"


def _folded(line: str) -> str:
    """A long line as several with the same indentation, of half a line at most: feedback pages do not fold them."""
    margin = line[: len(line) - len(line.lstrip())][: WIDTH // 2]
    return textwrap.fill(line, WIDTH, subsequent_indent=margin, drop_whitespace=True, break_on_hyphens=False)


# --- out --------------------------------------------------------------------------------------------


def student_results(directory: CourseDirectory, assignment: str, release: Release) -> list[tuple[StudentResult, str]]:
    """Every recorded submission with the description of its runner, by student id. One at a time is in memory."""
    with open_gradebook(directory) as gradebook:
        try:
            students = sorted(each.student.id for each in gradebook.find_assignment(assignment).submissions)
        except MissingEntry:
            return []
        found = []
        for student in students:
            gradebook.db.expunge_all()
            found.append(_result(directory, gradebook.find_submission(assignment, student), release))
    return found


def _result(directory: CourseDirectory, submission: SubmittedAssignment, release: Release) -> tuple[StudentResult, str]:
    student, assignment = submission.student.id, submission.assignment.name
    graded = read_file(student, graded_folder(directory, assignment, student) / f"{release.name}.ipynb")
    penalty = submission.late_submission_penalty or 0.0
    result = StudentResult(
        student=student,
        score=max(0.0, submission.score - penalty),
        max_score=submission.max_score,
        late_penalty=penalty,
        needs_review=submission.needs_manual_grade,
        exercises=_exercise_results(submission, release, graded),
        repairs=graded.repairs if graded else (),
        problem=graded.problem if graded else "",
        failed=graded.failed if graded else "the graded notebook is missing or damaged: grade again",
        seed=graded.seed if graded else None,
        seconds=graded.seconds if graded else 0.0,
    )
    return result, graded.runner if graded else ""


def _exercise_results(
    submission: SubmittedAssignment, release: Release, graded: Graded | None
) -> tuple[ExerciseResult, ...]:
    """One result per exercise of the release: the gradebook's score beside the engine's verdict."""
    verdicts = {verdict.exercise: brief(verdict) for verdict in graded.verdicts} if graded else {}
    names = {cell.grade_id: cell.exercise for cell in release.cells if cell.role == "check"}
    by_cell = {name: grade for each in submission.notebooks for name, grade in _by_cell(each.grades, each).items()}
    grades = {names[name]: grade for name, grade in by_cell.items() if name in names}
    return tuple(
        ExerciseResult(
            exercise=exercise.id,
            score=grades[exercise.id].score,
            possible=exercise.points,
            bonus=exercise.entry.bonus,
            manual=grades[exercise.id].manual_score is not None or bool(grades[exercise.id].extra_credit),
            verdict=verdicts.get(exercise.id),
        )
        for exercise in release.exercises
        if exercise.id in grades
    )
