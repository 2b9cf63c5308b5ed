"""A feedback page begins with what was earned and what failed; then comes what the student wrote, the lesson folded."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell
from small_class import ASSIGNMENT, NAMES, POINTS, RIGHT, UNIT, find, notebook, release

from autograder.engine.cells import parse
from autograder.engine.grade import Graded
from autograder.engine.rebuild import rebuild
from autograder.engine.record import show
from autograder.nbgrader_bridge.feedback import view
from autograder.nbgrader_bridge.gradebook import comment_on
from autograder.nbgrader_bridge.pages import FeedbackExporter
from course.judging.verdict import Diagnosis, Finding, Verdict
from course.performing.exercise import Failure

RELEASE = release()


def verdict(name: str, points: int, **fields) -> Verdict:
    """Of an answer with one property that holds and, where points are missing, one that does not."""
    held = Finding(property="value_is_right", held=True, points=points, possible=points)
    lost = Finding(property="cross_term_kept", held=False, points=0, possible=POINTS[name] - points, hint="Keep `b`.")
    findings = (held,) if points == POINTS[name] else (held, lost)
    return Verdict(exercise=f"{UNIT}.{name}", points=points, possible=POINTS[name], findings=findings, **fields)


def not_attempted(name: str) -> Verdict:
    return Verdict(exercise=f"{UNIT}.{name}", points=0, possible=POINTS[name], findings=(), attempted=False)


def graded(book=None, *verdicts: Verdict, **fields) -> Graded:
    """A submission with these verdicts, all other exercises not attempted."""
    cells = rebuild(RELEASE.cells, [parse(cell) for cell in (book or notebook()).cells]).cells
    found = {each.exercise.partition(".")[2]: each for each in verdicts}
    told = tuple(found.get(name) or not_attempted(name) for name in NAMES)
    return Graded(
        student="ann", notebook=RELEASE.notebook_of(cells, marked=True), verdicts=told, seed=1, runner="", **fields
    )


def scored(given: Graded, **by_hand: float):
    """Its notebook as nbgrader hands it on, with scores (those given by hand first) and comments."""
    book = show(given)
    for cell in book.cells:
        known = cell.metadata.get("nbgrader", {})
        name = str(known.get("grade_id", "")).removeprefix("check_")
        if known.get("grade"):
            known["points"] = 0 if name == "hvp" else POINTS[name]
            known["score"] = by_hand.get(
                name, next(each.points for each in given.verdicts if each.exercise.endswith(name))
            )
        elif known.get("solution"):
            known["comment"] = comment_on(given, next(each for each in given.verdicts if each.exercise.endswith(name)))
    return book


def resources(**fields):
    return {
        "nbgrader": {"student": "ann", "notebook": ASSIGNMENT, "score": 3, "max_score": 9, "late_penalty": 0, **fields}
    }


def page(book, **fields) -> str:
    text, _ = FeedbackExporter().from_notebook_node(book, resources(**fields))
    return text


class Parts(HTMLParser):
    """The text of a page: outside of all folds, and inside of those of the lesson."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.folded, self.tags = [], [], []
        self._folds, self._style = list[bool](), False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._style = tag == "style"
        if tag == "details":
            self._folds.append(("class", "lesson") in attrs)

    def handle_endtag(self, tag):
        self._style = False
        if tag == "details":
            self._folds.pop()

    def handle_data(self, data):
        if not self._style:
            (self.folded if any(self._folds) else self.open).append(data)


def parts(text: str) -> tuple[str, str]:
    found = Parts(text)
    return "".join(found.open), "".join(found.folded)


WRITTEN = {"quadratic_grads": "def quadratic_grads(*args):\n    return 'written'"}


@pytest.fixture
def half():
    """One answer that lost points to a misconception, nothing else; cells of the student's own."""
    book = notebook(WRITTEN)
    book.cells.insert(4, new_markdown_cell("my *thoughts*"))
    book.cells.insert(5, new_code_cell("my_experiment = 1"))
    diagnosis = Diagnosis(name="cross_term_dropped", hint="The product of x and y has a derivative, too.")
    return graded(book, verdict("quadratic_grads", 3, diagnosis=diagnosis))


def test_the_page_begins_with_points_and_with_what_failed(half):
    open_, _ = parts(page(scored(half)))
    summary = open_.partition("What you wrote")[0]
    told = (f"{ASSIGNMENT} (Score: 3.0 / 9.0)", "quadratic_grads", f"3.0 / {float(POINTS['quadratic_grads'])}")
    why = ("Not held: cross term kept.", "Diagnosis: cross term dropped.", "The product of x and y", "hinge_backward")
    places = [summary.index(each) for each in (*told, *why, "not attempted")]
    assert places == sorted(places)


def test_without_a_diagnosis_the_summary_gives_the_hint_and_what_broke():
    failure = Failure(type="ValueError", message="<b>no</b>", where=("line 1",))
    given = graded(notebook(WRITTEN), verdict("quadratic_grads", 3, failure=failure, failure_case="small"))
    text = page(scored(given))
    summary = parts(text)[0].partition("What you wrote")[0]
    assert "In case small: ValueError: <b>no</b>" in summary
    assert "cross term kept: Keep b." in summary
    assert "<b>no" not in text


@pytest.mark.parametrize(
    "line", ["a\n" + " " * 4_990 + "x" * 4_990, "\n" * 9_999, "\u2028" * 9_999, "\U0001f600" * 9_999]
)
def test_a_comment_stays_short_whatever_an_answer_brings_about(line):
    failure = Failure(type="ValueError", message=line, where=(line,) * 20)
    given = verdict("quadratic_grads", 3, failure=failure, failure_case="small", printed=line)
    comment = comment_on(graded(), given)
    assert len(comment.encode()) < 200_000
    assert "3 of 7 points" in comment
    assert comment.endswith("[the rest was left out]")


def test_what_the_student_wrote_is_open_and_the_lesson_folded(half):
    open_, folded = parts(page(scored(half)))
    for own in ("return 'written'", "my *thoughts*", "my_experiment", "3 of 7 points"):
        assert own in re.sub(r"\s+", " ", open_)
        assert own not in folded
    for lesson in ("A lesson", "import math", "def hvp", "demo", "hinge_backward: not attempted"):
        assert lesson in folded


def test_a_cell_of_the_lesson_that_was_changed_is_the_students():
    book = notebook()
    find(book, "demo").source = "demo = 'changed'"
    open_, folded = parts(page(scored(graded(book))))
    assert "demo = 'changed'" in open_
    assert "demo" not in folded


def test_a_fold_is_called_by_its_first_heading_and_leads_to_the_lesson(half):
    text = page(scored(half))
    assert "2 cells of the lesson: A lesson</summary>" in text
    assert f'<a href="../../{ASSIGNMENT}.ipynb">' in text


def test_there_is_no_script_and_nothing_from_elsewhere(half):
    text = page(scored(half))
    assert not {"script", "link", "iframe", "object", "embed"} & set(Parts(text).tags)
    assert not re.search(r"https?://|@import|url\(|\son\w+=", text)


def test_every_exercise_is_linked_to_where_it_stands(half):
    text = page(scored(half))
    for name in NAMES:
        assert text.count(f'href="#check_{name}"') == text.count(f'id="check_{name}"') == 1


def test_a_score_that_a_person_gave_is_shown_with_its_cell():
    book = scored(graded(notebook()), hinge_backward=2.0)
    find(book, "answer-hinge_backward").metadata.nbgrader.comment = "Nearly *there*."
    (row,) = [row for row in view(book, resources()).rows if row.name == "hinge_backward"]
    assert (row.score, row.kind) == (2.0, "part")
    open_, _ = parts(page(book))
    assert "Nearly there." in open_


def test_of_comments_only_those_of_people_are_shown(half):
    assert "Comments:" not in page(scored(half))


def test_a_bonus_shows_what_it_may_bring_and_has_no_maximum():
    given = graded(notebook(RIGHT), *(verdict(name, POINTS[name]) for name in NAMES))
    (row,) = [row for row in view(scored(given), resources()).rows if row.bonus]
    assert (row.name, row.possible, row.kind, row.told) == ("hvp", POINTS["hvp"], "full", "")


def test_why_nothing_was_read_and_a_late_penalty_stand_above_the_table():
    text = parts(page(scored(graded(problem="the file is empty")), late_penalty=1.5))[0]
    assert text.index("Late submission penalty: 1.5 points") < text.index("the file is empty") < text.index("hvp")


def test_a_notebook_that_this_course_did_not_grade_has_a_page_too():
    book = notebook(RIGHT)
    for cell in book.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.metadata.nbgrader.score = 1.0
    assert [row.told for row in view(book, resources()).rows] == ["", "", ""]
    assert "demo" in "".join(parts(page(book)))
