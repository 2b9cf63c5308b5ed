"""Plain `nbgrader autograde` with our three steps in it behaves as nbgrader's users know it."""

from __future__ import annotations

import gc
import logging

import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.converters.base import NbGraderException
from nbgrader.plugins import BasePlugin
from nbgrader.utils import determine_grade
from plain_nbgrader import (
    autograde,
    formgrader_page,
    gradebook,
    graded_notebook,
    graded_path,
    make_feedback,
    open_course,
    page,
    recorded,
    score,
    seed,
)
from small_class import ASSIGNMENT, CROSS_TERM_DROPPED, POINTS, RIGHT, find, hand_in, notebook, without
from traitlets.config import Config

from autograder.engine import grade as engine
from autograder.engine.journal import Journal
from autograder.nbgrader_bridge import exporters
from autograder.nbgrader_bridge.config import course_directory
from autograder.nbgrader_bridge.folders import JOURNALS
from autograder.sandbox import RunnerError

FULL = sum(POINTS.values())
EARLY, LATE = "2026-01-01 00:00:00 UTC", "2026-01-02 00:00:00 UTC"


@pytest.fixture(autouse=True)
def opened(warm, monkeypatch):
    """How often nbgrader asked for a runner; it gets the warm one, which it cannot close."""
    asked = []
    monkeypatch.setattr(warm, "close", lambda: asked.append("closed"))
    monkeypatch.setattr(exporters, "open_runner", lambda **trust: asked.append(trust) or warm)
    return asked


@pytest.fixture
def root(tmp_path):
    """A folder in which the lesson was released."""
    return open_course(tmp_path / "build")


# --- the three steps ----------------------------------------------------------------------------------------------


def test_sanitize_logs_its_repairs_and_keeps_them_in_the_notebook(root, caplog):
    hand_in(root, "ann", without(notebook(RIGHT), "check-hvp"))
    autograde(root)
    repair = "The check cell of `hvp` was missing; it was put back."
    assert f"ann: {repair}" in caplog.messages
    assert graded_notebook(root, "ann").metadata.hpml.grading.repairs == [repair]


def test_the_display_run_shows_what_the_students_cells_print(root):
    handed_in = notebook(RIGHT)
    hand_in(root, "bob", handed_in)
    find(handed_in, "demo").source = "print('mine')"
    hand_in(root, "ann", handed_in)
    autograde(root)
    (shown,) = find(graded_notebook(root, "ann"), "demo").outputs
    assert (shown.output_type, shown.text) == ("stream", "mine\n")
    assert find(graded_notebook(root, "bob"), "demo").outputs == []


def test_the_display_run_can_be_left_out(root):
    handed_in = notebook(RIGHT)
    find(handed_in, "demo").source = "print('mine')"
    hand_in(root, "ann", handed_in)
    changes = Config()
    changes.SandboxedExecute.enabled = False
    autograde(root, changes=changes)
    assert find(graded_notebook(root, "ann"), "demo").outputs == []
    assert score(root, "ann") == FULL


def test_a_grade_cell_holds_one_result_that_nbgrader_reads_as_the_points(root):
    hand_in(root, "ann", notebook({**RIGHT, "quadratic_grads": CROSS_TERM_DROPPED}))
    autograde(root)
    cell = find(graded_notebook(root, "ann"), "check-quadratic_grads")
    (output,) = cell.outputs
    with gradebook(root) as book:
        grade = book.find_grade("check_quadratic_grads", ASSIGNMENT, ASSIGNMENT, "ann")
        assert determine_grade(cell)[0] == grade.auto_score == float(output.data["text/plain"])
    assert output.output_type == "execute_result"


def test_a_run_opens_one_runner_for_all_and_closes_it(root, opened):
    hand_in(root, "ann", notebook(RIGHT))
    hand_in(root, "bob", notebook(RIGHT))
    autograde(root)
    gc.collect()  # exporter and converter hold one another
    assert opened == [{"trusted": False}, "closed"]


def test_one_seed_for_all_can_be_configured(root):
    hand_in(root, "ann", notebook(RIGHT))
    changes = Config()
    changes.GradingExporter.seed = 7
    autograde(root, changes=changes)
    assert seed(root, "ann") == 7


def refuse(*args, **kwargs):
    """What open_runner and runners do where there is no sandbox."""
    raise RunnerError("bubblewrap must be installed")


@pytest.mark.parametrize("starts", [True, False])
def test_without_a_sandbox_nothing_is_touched(root, warm, monkeypatch, caplog, starts):
    hand_in(root, "ann", notebook(RIGHT))
    autograde(root)
    monkeypatch.setattr(*((warm, "display") if starts else (exporters, "open_runner")), refuse)
    with pytest.raises(NbGraderException, match="bubblewrap must be installed"):
        autograde(root, force=True)
    assert "--GradingExporter.trust_submissions=True" in caplog.text
    assert score(root, "ann") == FULL
    assert graded_path(root, "ann").exists()


def test_while_a_batch_runs_nothing_is_touched(root, warm, caplog):
    hand_in(root, "ann", notebook(RIGHT))
    autograde(root)
    with Journal(root / JOURNALS / f"{ASSIGNMENT}.jsonl"), pytest.raises(NbGraderException, match="another does now"):
        autograde(root, force=True)
    assert "wait for its end" in caplog.text
    assert score(root, "ann") == FULL
    autograde(root, force=True)


def test_trust_has_to_be_given_by_name(root, opened):
    hand_in(root, "ann", notebook(RIGHT))
    changes = Config()
    changes.GradingExporter.trust_submissions = True
    autograde(root, changes=changes)
    assert opened[0] == {"trusted": True}


# --- once, again, by force ------------------------------------------------------------------------------------------


def test_a_second_run_grades_nothing_again(root):
    hand_in(root, "ann", notebook(RIGHT), stamp=EARLY)
    autograde(root)
    first = seed(root, "ann")
    autograde(root)
    assert seed(root, "ann") == first


def test_force_grades_again(root):
    hand_in(root, "ann", notebook(RIGHT))
    autograde(root)
    first = seed(root, "ann")
    autograde(root, force=True)
    assert seed(root, "ann") != first


def test_only_the_student_asked_for_is_graded(root):
    hand_in(root, "ann", notebook(RIGHT))
    hand_in(root, "bob", notebook(RIGHT))
    autograde(root, student="bob")
    assert graded_path(root, "bob").exists()
    assert not graded_path(root, "ann").exists()


def test_a_newer_submission_replaces_a_better_one(root):
    hand_in(root, "ann", notebook(RIGHT), stamp=EARLY)
    autograde(root)
    hand_in(root, "ann", notebook({"hvp": RIGHT["hvp"]}), stamp=LATE)
    autograde(root)
    assert score(root, "ann") == POINTS["hvp"]


def test_an_unreadable_resubmission_leaves_no_stale_score(root):
    hand_in(root, "ann", notebook(RIGHT), stamp=EARLY)
    autograde(root)
    hand_in(root, "ann", b"{", stamp=LATE)
    autograde(root)
    assert score(root, "ann") == 0
    with gradebook(root) as book:
        comment = book.find_comment("hvp", ASSIGNMENT, ASSIGNMENT, "ann").comment
    assert "The submitted file could not be read: the file is not valid JSON (line 1)." in " ".join(comment.split())


def test_a_grading_that_breaks_leaves_no_stale_score_and_stops_nobody(root, monkeypatch):
    for name in ("ann", "bob"):
        hand_in(root, name, notebook(RIGHT))
    autograde(root)
    verdicts = engine.verdicts

    def breaks(sanitized, *args, **kwargs):
        if sanitized.student == "ann":
            raise ZeroDivisionError("a slip of ours")
        return verdicts(sanitized, *args, **kwargs)

    monkeypatch.setattr(engine, "verdicts", breaks)
    with pytest.raises(NbGraderException):
        autograde(root, force=True)
    assert (score(root, "ann"), score(root, "bob")) == (0, FULL)
    with gradebook(root) as book:
        assert recorded(book, "ann").needs_manual_grade
        assert not recorded(book, "bob").needs_manual_grade


@pytest.mark.parametrize(
    "left", [None, b"", b"[" * 200_000, b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}']
)
def test_what_a_killed_run_left_behind_is_graded_by_the_next(root, left):
    hand_in(root, "ann", notebook(RIGHT), stamp=EARLY)
    path = graded_path(root, "ann")
    path.parent.mkdir(parents=True)
    (path.parent / "timestamp.txt").write_text(EARLY)
    if left is not None:
        path.write_bytes(left)
        path.chmod(0o444)
    autograde(root)
    assert score(root, "ann") == FULL
    assert find(graded_notebook(root, "ann"), "check-hvp").outputs


# --- what people give -------------------------------------------------------------------------------------------------


def test_scores_and_comments_given_by_hand_survive_a_regrade(root):
    hand_in(root, "ann", notebook())
    autograde(root)
    place = (ASSIGNMENT, ASSIGNMENT, "ann")
    with gradebook(root) as book:
        book.find_grade("check_hvp", *place).manual_score = 3.0
        book.find_comment("hvp", *place).manual_comment = "See me."
        book.db.commit()
    hand_in(root, "ann", notebook(RIGHT))
    autograde(root, force=True)
    with gradebook(root) as book:
        grade = book.find_grade("check_hvp", *place)
        assert (grade.score, grade.auto_score, grade.needs_manual_grade) == (3.0, POINTS["hvp"], True)
        assert book.find_comment("hvp", *place).comment == "See me."


def test_extra_credit_survives_a_regrade_and_counts(root):
    hand_in(root, "ann", notebook())
    autograde(root)
    with gradebook(root) as book:
        book.find_grade("check_hvp", ASSIGNMENT, ASSIGNMENT, "ann").extra_credit = 2.0
        book.db.commit()
    autograde(root, force=True)
    assert score(root, "ann") == 2.0


class OnePointADay(BasePlugin):
    """A late penalty as an instructor writes it."""

    def late_submission_penalty(self, student_id, score, total_seconds_late):
        """One point for each day."""
        return total_seconds_late / 86_400


def test_a_late_submission_pays_what_the_instructors_plugin_says(root):
    hand_in(root, "ann", notebook(RIGHT), stamp=LATE)
    autograde(root)
    with gradebook(root) as book:
        book.update_or_create_assignment(ASSIGNMENT, duedate=EARLY)
    changes = Config()
    changes.AssignLatePenalties.plugin_class = OnePointADay
    autograde(root, force=True, changes=changes)
    make_feedback(root)
    with gradebook(root) as book:
        assert recorded(book, "ann").late_submission_penalty == 1.0
    assert f"(Score: {FULL - 1.0} /" in page(root, "ann")


# --- formgrader -------------------------------------------------------------------------------------------------------


def test_formgraders_button_grades_again(root):
    hand_in(root, "ann", notebook(RIGHT))
    autograde(root)
    first = seed(root, "ann")
    directory, config = course_directory(root)
    directory.log = logging.getLogger("formgrader")
    answer = NbGraderAPI(directory, config=config, log=directory.log).autograde(ASSIGNMENT, "ann")
    assert answer["success"], answer
    assert seed(root, "ann") != first
    assert directory.ignore != ["*", ".*"]  # formgrader's own view of the folders stays as it was


def test_formgrader_lists_what_needs_a_person(root):
    hand_in(root, "ann", notebook(RIGHT))
    autograde(root)
    with gradebook(root) as book:
        book.find_grade("check_hvp", ASSIGNMENT, ASSIGNMENT, "ann").manual_score = 1.0
        book.db.commit()
    autograde(root, force=True)
    directory, config = course_directory(root)
    (found,) = NbGraderAPI(directory, config=config).get_submissions(ASSIGNMENT)
    assert (found["autograded"], found["needs_manual_grade"]) == (True, True)
    assert found["score"] == FULL - POINTS["hvp"] + 1.0


def test_formgrader_and_feedback_show_verdicts_and_outputs(root):
    handed_in = notebook({**RIGHT, "quadratic_grads": CROSS_TERM_DROPPED})
    find(handed_in, "demo").source = "print('shown')"
    hand_in(root, "ann", handed_in)
    autograde(root)
    make_feedback(root)
    for shown in (page(root, "ann"), formgrader_page(root, "ann")):
        assert "<b>Diagnosis: cross term dropped.</b>" in shown
        assert "shown\n" in shown
