"""Grading one submission, and what then stands in the graded notebook."""

from __future__ import annotations

import dataclasses
import time

import nbformat
import pytest
from small_class import CROSS_TERM_DROPPED, POINTS, RIGHT, find, notebook, release, without

from autograder import bank as banks
from autograder import edits, recording
from autograder.engine.cells import code_cells
from autograder.engine.grade import Submission, grade
from autograder.engine.read import read
from autograder.engine.record import read_back, show
from autograder.sandbox import Limits, open_runner
from course import exercises
from course.performing.cells import CodeCell

pytestmark = pytest.mark.sandbox

RELEASE = release()


@pytest.fixture(scope="module")
def runner():
    """One warm process for all tests of this file."""
    with open_runner(Limits(load_seconds=3.0, spare_seconds=0.5)) as opened:
        yield opened


@pytest.fixture
def graded(runner, tmp_path):
    """Grades a notebook, or an answer to quadratic_grads; returns what came out."""

    def run(given, **options):
        book = given if isinstance(given, dict) else notebook({"quadratic_grads": given})
        path = tmp_path / "lesson.ipynb"
        path.write_text(nbformat.writes(book))
        return grade(Submission(student="ann", path=path), RELEASE, runner, **{"display": False, **options})

    return run


# --- grading ---


def points(graded) -> dict[str, int]:
    """Points by exercise name."""
    return {verdict.exercise.partition(".")[2]: verdict.points for verdict in graded.verdicts}


def test_right_answers_get_full_marks(graded):
    assert points(graded(notebook(RIGHT))) == POINTS


def test_a_wrong_answer_is_diagnosed(graded):
    verdict = graded(CROSS_TERM_DROPPED).verdicts[0]
    assert 0 < verdict.points < verdict.possible
    assert verdict.diagnosis.name == "cross_term_dropped"


def test_what_was_not_written_is_not_run(tmp_path, graded, runner, monkeypatch):
    monkeypatch.setattr(runner, "session", lambda *args: pytest.fail("nothing is there to be run"))
    result = graded(notebook())
    assert result.points == 0
    assert not any(verdict.attempted for verdict in result.verdicts)


def test_a_file_that_cannot_be_read_is_graded_as_untouched(tmp_path, runner):
    path = tmp_path / "lesson.ipynb"
    path.write_bytes(b"{")
    result = grade(Submission(student="ann", path=path), RELEASE, runner, display=False)
    assert (result.points, result.problem) == (0, "the file is not valid JSON (line 1)")
    assert result.notebook == notebook()


def test_a_seed_repeats_a_run_and_is_secret_otherwise(graded):
    first = graded(CROSS_TERM_DROPPED)
    assert graded(CROSS_TERM_DROPPED, seed=first.seed).verdicts == first.verdicts
    other = graded(CROSS_TERM_DROPPED)
    assert other.seed != first.seed
    assert other.verdicts != first.verdicts


def test_the_public_answers_learnt_by_heart_earn_nothing(graded):
    exercise = exercises.load("quadratic_grads")
    bank = banks.load("quadratic_grads")
    cases = exercise.draw(20_220)
    known = {
        repr(tuple(case.inputs.values())): tuple(float(value) for value in seen.values.values())
        for case, seen in zip(cases, recording.references(bank, cases), strict=True)
    }
    source = f"KNOWN = {known}\n\ndef quadratic_grads(*args):\n    return KNOWN.get(repr(args), (0.0, 0.0, 0.0))"
    assert graded(source).verdicts[0].points == 0


def test_misconceptions_are_computed_only_where_something_failed(graded, monkeypatch):
    asked = []
    monkeypatch.setattr(recording, "suspects", lambda bank, cases: asked.append(bank.exercise.name) or ())
    graded(notebook({**RIGHT, "quadratic_grads": CROSS_TERM_DROPPED}))
    assert set(asked) == {"quadratic_grads"}


def test_a_process_that_died_is_diagnosed_as_nothing(graded):
    verdict = graded("import os\n\ndef quadratic_grads(*args):\n    os._exit(0)").verdicts[0]
    assert (verdict.points, verdict.failure.type, verdict.diagnosis) == (0, "ProcessDied", None)


def test_an_answer_may_use_another_answer(graded):
    source = (
        "def hinge_backward(w, x, b, y):\n    quadratic_grads(1.0, 1.0, 1.0, 1.0, 1.0)\n    raise ValueError('reached')"
    )
    verdict = graded(notebook({**RIGHT, "hinge_backward": source})).verdicts[1]
    assert verdict.failure.message == "reached"
    assert verdict.failure.where == ("line 3, in hinge_backward: raise ValueError('reached')",)


def test_check_cells_are_never_loaded(graded):
    assert not any("check(" in cell.source for cell in code_cells(read(nbformat.writes(notebook(RIGHT)).encode())))


# --- what stands in the graded notebook ---


def test_a_check_cell_shows_one_result_that_is_the_points(graded):
    shown = show(graded(CROSS_TERM_DROPPED))
    (output,) = find(shown, "check-quadratic_grads").outputs
    assert output.output_type == "execute_result"
    assert output.data["text/plain"] == str(graded(CROSS_TERM_DROPPED).verdicts[0].points)
    assert "cross term dropped" in output.data["text/html"]
    nbformat.validate(shown)


def test_a_graded_notebook_can_be_read_back(graded):
    result = graded("def quadratic_grads(*args):\n    return float('nan'), float('inf'), 'x'")
    again = nbformat.reads(nbformat.writes(show(result)), as_version=4)
    found = read_back("ann", again)
    assert dataclasses.replace(found, notebook=None, seconds=0) == dataclasses.replace(result, notebook=None, seconds=0)


def test_a_notebook_that_was_not_graded_reads_back_as_nothing():
    assert read_back("ann", notebook()) is None
    forged = notebook()
    forged.metadata["hpml"] = {"grading": {"seed": 1}}
    assert read_back("ann", forged) is None


def test_repairs_stand_at_the_top(graded):
    shown = show(graded(without(notebook(RIGHT), "check-hvp")))
    assert "- The check cell of `hvp` was missing; it was put back." in shown.cells[0].source


def test_a_students_words_are_escaped_in_the_table(graded):
    shown = show(graded("def quadratic_grads(*args):\n    raise ValueError('<script>alert(1)</script>')"))
    table = find(shown, "check-quadratic_grads").outputs[0].data["text/html"]
    assert "&lt;script&gt;" in table
    assert "<script>" not in table


# --- what the limit of a case leaves out ---


def test_an_oracle_that_takes_its_time_costs_the_answer_none_of_its_own(runner):
    bank = banks.load("choose_precisions")
    cases = bank.exercise.draw(1)[:1]

    class Slow(type(bank.exercise.oracle(cases[0]))):
        asked = 0

        def ask(self, verb, arguments):
            Slow.asked += 1
            time.sleep(0.8 if Slow.asked <= 3 else 0.0)
            return super().ask(verb, arguments)

    exercise = dataclasses.replace(bank.exercise, seconds=1.0, oracle=Slow)
    with runner.session([CodeCell(source=edits.cell(exercise.name, bank.reference), answers=exercise.name)]) as session:
        (seen,) = session.perform(exercise, cases)
    assert (Slow.asked >= 3, seen.error) == (True, None)
