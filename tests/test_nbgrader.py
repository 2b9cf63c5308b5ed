"""The round trip through nbgrader: gradebook, export, feedback and formgrader tell the same story as the engine."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.utils import compute_checksum, determine_grade
from plain_nbgrader import (
    autograde,
    checked_out,
    environment,
    gradebook,
    graded_notebook,
    nbgrader,
    page,
)
from small_class import (
    ASSIGNMENT,
    CROSS_TERM_DROPPED,
    NAMES,
    POINTS,
    RIGHT,
    find,
    hand_in,
    marked,
    notebook,
    publish,
    stub,
)

from autograder.engine import grade as engine
from autograder.nbgrader_bridge import export, exporters, feedback, grade, results
from autograder.nbgrader_bridge.config import course_directory
from autograder.sandbox import RunnerError, open_runner
from course.errors import CourseError

FULL = sum(POINTS.values())
TOP = FULL - POINTS["hvp"]  # the bonus raises no maximum
MEAN = 'def quadratic_grads(*args):\n    raise ValueError("<script>alert(1)</script>")'


def with_script():
    """A submission that tries to run a script in the browser of whoever looks at it."""
    book = notebook({"quadratic_grads": MEAN})
    book.cells.append(nbformat.v4.new_markdown_cell("<script>alert(1)</script>"))
    book.cells.append(nbformat.v4.new_raw_cell("<img src=x onerror=alert(1)>"))
    book.cells.append(nbformat.v4.new_code_cell("from matplotlib import pyplot\n\npyplot.plot([1, 2])"))
    return book


STUDENTS = {
    "right": lambda: notebook(RIGHT),
    "wrong": lambda: notebook({**RIGHT, "quadratic_grads": CROSS_TERM_DROPPED}),
    "untouched": notebook,
    "broken": lambda: b'{"cells":',
    "empty": lambda: None,
    "script": with_script,
}


@pytest.fixture(scope="session")
def runner(warm):
    """Where students' code runs."""
    return warm


@pytest.fixture
def root(tmp_path):
    """A folder in which the lesson was released; the gradebook is empty."""
    publish(tmp_path / "build", gradebook=True)
    return tmp_path / "build"


@pytest.fixture(scope="module")
def graded(tmp_path_factory, runner):
    """A class that was graded, exported and given feedback: its folder and the result."""
    root = tmp_path_factory.mktemp("class") / "build"
    publish(root)
    for student, make in STUDENTS.items():
        hand_in(root, student, make())
    result = grade(root, ASSIGNMENT, runner=runner)
    export(root, ASSIGNMENT, root / "grades.csv")
    feedback(root, ASSIGNMENT)
    return root, result


def scores(result) -> dict[str, float]:
    """Score by student."""
    return {each.student: each.score for each in result.students}


def student(result, name: str):
    """One student of a result."""
    return next(each for each in result.students if each.student == name)


# --- the same numbers everywhere --------------------------------------------------------------------------------


def test_every_submission_ends_with_a_score_or_a_reason(graded):
    _, result = graded
    lost = student(result, "wrong").exercises[0]
    expected = {
        "right": FULL,
        "wrong": FULL - lost.possible + lost.score,
        "untouched": 0,
        "broken": 0,
        "empty": 0,
        "script": 0,
    }
    assert scores(result) == expected
    assert student(result, "broken").problem == "the file is not valid JSON (line 1)"
    assert student(result, "empty").problem == f"the file must be called {ASSIGNMENT}.ipynb, found no notebook"
    assert not any(each.failed for each in result.students)


def test_the_result_says_that_nothing_was_sandboxed(graded):
    root, result = graded
    assert "not sandboxed" in result.runner
    assert "not sandboxed" in (root / "grading.log").read_text()


def test_the_export_has_the_same_scores(graded):
    root, result = graded
    rows = list(csv.DictReader((root / "grades.csv").read_text().splitlines()))
    assert {row["student_id"]: float(row["score"]) for row in rows} == scores(result)
    assert {float(row["max_score"]) for row in rows} == {float(TOP)}


def test_the_feedback_pages_have_the_same_scores(graded):
    root, result = graded
    for each in result.students:
        assert f"(Score: {each.score} / {float(TOP)})" in page(root, each.student)


def test_formgrader_has_the_same_scores(graded):
    root, result = graded
    directory, config = course_directory(root)
    found = NbGraderAPI(directory, config=config).get_submissions(ASSIGNMENT)
    assert {each["student"]: each["score"] for each in found} == scores(result)
    assert {each["autograded"] for each in found} == {True}


def test_a_check_cells_output_is_the_score_that_nbgrader_would_read(graded):
    root, result = graded
    cell = find(graded_notebook(root, "wrong"), "check-quadratic_grads")
    assert determine_grade(cell)[0] == student(result, "wrong").exercises[0].score


def test_results_can_be_read_again_without_grading(graded):
    root, result = graded
    assert results(root, ASSIGNMENT) == result


def test_a_bonus_counts_in_full_and_raises_no_maximum(graded):
    _, result = graded
    right = student(result, "right")
    assert (right.score, right.max_score) == (FULL, TOP)
    assert [each.bonus for each in right.exercises] == [False, False, True]


# --- what students and teachers read ------------------------------------------------------------------------------


def test_the_comment_below_an_answer_is_the_verdict(graded):
    root, _ = graded
    with gradebook(root) as book:
        comment = book.find_comment("quadratic_grads", ASSIGNMENT, ASSIGNMENT, "wrong").comment
    assert "Diagnosis: cross term dropped." in comment
    assert all(line.startswith("    ") and len(line) <= 100 for line in comment.splitlines() if line)


def test_the_feedback_page_names_the_misconception(graded):
    root, _ = graded
    assert "<b>Diagnosis: cross term dropped.</b>" in page(root, "wrong")


def test_the_reason_for_an_unreadable_file_reaches_the_student(graded):
    root, _ = graded
    assert "the file is not valid JSON (line 1)" in page(root, "broken")


def test_nothing_that_a_student_wrote_is_live_on_the_feedback_page(graded):
    root, _ = graded
    assert "<script>alert" not in page(root, "script")
    assert "<img src=x" not in page(root, "script")
    assert "&lt;script&gt;alert" in page(root, "script")


def test_the_seed_is_recorded_and_is_not_in_what_students_get(graded):
    root, result = graded
    for each in result.students:
        assert graded_notebook(root, each.student).metadata.hpml.grading.seed == str(each.seed)
        assert str(each.seed) not in page(root, each.student)


# --- grading again --------------------------------------------------------------------------------------------------


def test_a_new_submission_replaces_the_old_score(root, runner):
    hand_in(root, "ann", notebook(RIGHT))
    assert scores(grade(root, ASSIGNMENT, runner=runner)) == {"ann": FULL}
    hand_in(root, "ann", b"broken")
    assert scores(grade(root, ASSIGNMENT, runner=runner)) == {"ann": 0}


def test_scores_and_comments_given_by_hand_are_kept(root, runner):
    hand_in(root, "ann", notebook())
    grade(root, ASSIGNMENT, runner=runner)
    place = (ASSIGNMENT, ASSIGNMENT, "ann")
    with gradebook(root) as book:
        book.find_grade("check_quadratic_grads", *place).manual_score = 3.0
        book.find_grade("check_hinge_backward", *place).extra_credit = 1.0
        book.find_comment("hvp", *place).manual_comment = "See me."
        book.db.commit()
    hand_in(root, "ann", notebook({"hinge_backward": RIGHT["hinge_backward"]}))
    ann = student(grade(root, ASSIGNMENT, runner=runner), "ann")
    assert [each.score for each in ann.exercises] == [3.0, POINTS["hinge_backward"] + 1.0, 0.0]
    assert [each.manual for each in ann.exercises] == [True, True, False]
    assert ann.needs_review
    with gradebook(root) as book:
        assert book.find_comment("hvp", *place).comment == "See me."


def test_only_the_students_asked_for_are_graded(root, runner):
    hand_in(root, "ann", notebook(RIGHT))
    hand_in(root, "bob", notebook(RIGHT))
    assert scores(grade(root, ASSIGNMENT, students=["bob"], runner=runner)) == {"bob": FULL}


def test_one_seed_for_all_gives_all_the_same_cases(root, runner):
    for name in ("ann", "bob"):
        hand_in(root, name, notebook({"quadratic_grads": CROSS_TERM_DROPPED}))
    ann, bob = grade(root, ASSIGNMENT, seed=7, runner=runner).students
    assert ann.exercises == bob.exercises
    assert (ann.seed, bob.seed) == (7, 7)


def test_a_late_submission_pays_what_nbgraders_plugin_says(root, runner):
    hand_in(root, "ann", notebook(RIGHT), stamp="2026-01-02 00:00:00 UTC")
    grade(root, ASSIGNMENT, runner=runner)
    with gradebook(root) as book:
        book.update_or_create_assignment(ASSIGNMENT, duedate="2026-01-01 00:00:00 UTC")
    (root.parent / "nbgrader_config.py").write_text("get_config().LateSubmissionPlugin.penalty_method = 'zero'")
    ann = student(grade(root, ASSIGNMENT, runner=runner), "ann")
    assert (ann.score, ann.late_penalty) == (0, FULL)


# --- nothing stops the batch ------------------------------------------------------------------------------------------


def test_a_submission_that_breaks_the_grading_stops_nobody_and_keeps_no_old_score(root, runner, monkeypatch):
    for name in ("ann", "bob", "cid"):
        hand_in(root, name, notebook(RIGHT))
    grade(root, ASSIGNMENT, runner=runner)
    sanitize = engine.sanitize

    def breaks(submission, release):
        if submission.student == "bob":
            raise ZeroDivisionError("a slip of ours")
        return sanitize(submission, release)

    monkeypatch.setattr(engine, "sanitize", breaks)
    result = grade(root, ASSIGNMENT, runner=runner)
    assert scores(result) == {"ann": FULL, "bob": 0, "cid": FULL}
    assert student(result, "bob").failed == "ZeroDivisionError: a slip of ours"
    assert student(result, "bob").needs_review


def test_a_time_stamp_that_is_none_costs_no_points(root, runner):
    hand_in(root, "ann", notebook(RIGHT), stamp="yesterday")
    hand_in(root, "bob", notebook(RIGHT))
    result = grade(root, ASSIGNMENT, runner=runner)
    assert scores(result) == {"ann": FULL, "bob": FULL}
    assert "No time could be read from timestamp.txt" in student(result, "ann").repairs[0]


def test_files_beside_the_notebook_stop_nobody_and_only_the_exchanges_are_passed_on(root, runner):
    hand_in(root, "ann", notebook(RIGHT), stamp="2026-01-01 00:00:00 UTC")
    folder = root / "submitted" / "ann" / ASSIGNMENT
    (folder / "submission_secret.txt").write_text("0123456789abcdef")
    (folder / "stolen.db").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    (folder / "other.ipynb").write_text("{")
    assert scores(grade(root, ASSIGNMENT, runner=runner)) == {"ann": FULL}
    kept = sorted(path.name for path in (root / "autograded" / "ann" / ASSIGNMENT).iterdir())
    assert kept == [f"{ASSIGNMENT}.ipynb", "submission_secret.txt", "timestamp.txt"]


def test_a_runner_that_cannot_run_anything_stops_the_batch(root, monkeypatch):
    def nothing(*args):
        raise RunnerError("nothing runs here")

    hand_in(root, "ann", notebook(RIGHT))
    with open_runner(trusted=True) as broken:
        monkeypatch.setattr(broken, "session", nothing)
        monkeypatch.setattr(broken, "display", nothing)
        with pytest.raises(RunnerError):
            grade(root, ASSIGNMENT, runner=broken)


def test_there_must_be_something_to_grade(root, runner):
    with pytest.raises(CourseError, match="there are none"):
        grade(root, ASSIGNMENT, runner=runner)
    hand_in(root, "ann", notebook(RIGHT))
    with pytest.raises(CourseError, match="bob must have handed in"):
        grade(root, ASSIGNMENT, students=["bob"], runner=runner)
    with pytest.raises(CourseError, match="a student without a name must have handed in"):
        grade(root, ASSIGNMENT, students=[""], runner=runner)
    with pytest.raises(CourseError, match="build it first"):
        grade(root, "00_start_here", runner=runner)


# --- plain nbgrader commands ------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """A course that has nobody yet."""
    return checked_out(tmp_path)


@pytest.fixture(scope="module")
def autograded(tmp_path_factory):
    """A course in which `nbgrader autograde` has graded some, and what it said."""
    folder = checked_out(tmp_path_factory.mktemp("course"))
    for name in ("right", "wrong", "broken", "script"):
        hand_in(folder / "build", name, STUDENTS[name]())
    return folder, nbgrader(folder, "autograde", ASSIGNMENT)


@pytest.mark.slow
@pytest.mark.sandbox
def test_plain_nbgrader_gives_the_same_grades(autograded, graded):
    folder, said = autograded
    assert "sandboxed: bubblewrap" in said
    found = scores(results(folder / "build", ASSIGNMENT))
    assert found == {name: scores(graded[1])[name] for name in ("right", "wrong", "broken", "script")}


@pytest.mark.soak
@pytest.mark.sandbox
def test_its_other_commands_tell_the_same(autograded):
    checkout, _ = autograded
    root = checkout / "build"
    nbgrader(checkout, "generate_feedback", ASSIGNMENT)
    assert "Diagnosis: cross term dropped" in page(root, "wrong")
    nbgrader(checkout, "export")
    rows = list(csv.DictReader((checkout / "grades.csv").read_text().splitlines()))
    assert {row["student_id"]: float(row["score"]) for row in rows} == scores(results(root, ASSIGNMENT))
    assert {row["max_score"] for row in rows} == {str(float(TOP))}


@pytest.mark.soak
@pytest.mark.sandbox
def test_a_run_that_is_killed_is_taken_up_by_the_next(checkout, runner, monkeypatch):
    root, names = checkout / "build", [f"s{number}" for number in range(5)]
    for name in names:
        hand_in(root, name, notebook(RIGHT))
    command = [sys.executable, "-m", "nbgrader", "autograde", ASSIGNMENT]
    with open(os.devnull, "wb") as nowhere:
        run = subprocess.Popen(command, cwd=checkout, env=environment(), stdout=nowhere, stderr=nowhere)
    wait_for(root / "autograded" / "s1")
    run.kill()
    run.wait()
    assert not (root / "autograded" / "s4").exists()
    monkeypatch.setattr(runner, "close", lambda: None)
    monkeypatch.setattr(exporters, "open_runner", lambda **trust: runner)
    autograde(root)
    assert scores(results(root, ASSIGNMENT)) == dict.fromkeys(names, FULL)


def wait_for(path: Path) -> None:
    """Until it exists, a minute at most."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.005)


@pytest.mark.sandbox
def test_nbgraders_generate_assignment_writes_our_stubs(root):
    folder = root / "source" / ASSIGNMENT
    folder.mkdir(parents=True)
    nbformat.write(notebook(write=marked), folder / f"{ASSIGNMENT}.ipynb")
    shutil.rmtree(root / "release")
    hand_in(root, "ann", notebook())
    grade(root, ASSIGNMENT)
    made = nbformat.read(root / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb", as_version=4)
    for name in NAMES:
        assert find(made, f"answer-{name}").source.endswith(stub(name).split("\n")[-1])
        check = find(made, f"check-{name}")
        assert check.metadata.nbgrader.checksum == compute_checksum(check)
