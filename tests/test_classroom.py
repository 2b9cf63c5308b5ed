"""The class of sample submissions: everyone in it is what their name says, and the report tells it."""

from __future__ import annotations

import functools
import io
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import soak
from rich.console import Console

from autograder import bank as banks
from autograder import classroom, report
from autograder.bank import Bank
from autograder.engine.cells import Release, code_cells
from autograder.engine.read import read_file
from autograder.engine.rebuild import rebuild
from autograder.engine.results import ClassResult, ExerciseResult, StudentResult, brief
from autograder.nbgrader_bridge import How, grade
from autograder.release import authored
from autograder.release.notebook import instructor, students
from autograder.sandbox import open_runner
from course.errors import CourseError
from course.judging import sheet
from course.judging.judge import judge
from course.judging.verdict import Diagnosis, Finding, Verdict
from course.performing.cells import load
from course.performing.exercise import Failure
from course.performing.perform import perform_all
from course.syllabus import UNITS, find_unit

ROOT = Path(__file__).resolve().parent.parent
ASSIGNMENT = "01_computational_graphs"
UNIT = "computational_graphs"
KINDS = {"untouched", "solved", "half", "unreadable", "deleted_cell", "copied_cell"}


@functools.cache
def notebooks(assignment: str) -> dict[str, bytes]:
    """The lesson's source and release notebooks, by step."""
    lesson = authored.read(ROOT / "solutions" / f"{assignment}.py", ROOT)
    return {"source": instructor(lesson), "release": students(lesson)}


def built(folder: Path, assignment: str) -> Path:
    """A folder with the lesson's source and release notebooks."""
    for step, data in notebooks(assignment).items():
        (folder / step / assignment).mkdir(parents=True)
        (folder / step / assignment / f"{assignment}.ipynb").write_bytes(data)
    return folder


def handed_in(root: Path, student: str, assignment: str = ASSIGNMENT) -> Path:
    """A student's file."""
    return root / "submitted" / student / assignment / f"{assignment}.ipynb"


def misconceived(bank: Bank) -> dict[str, str]:
    """Misconceptions of an exercise by the ids that their students may have."""
    names = [each.name for each in bank.misconceptions]
    return {f"mis_{name}": name for name in names} | {f"mis_{bank.exercise.name}_{name}": name for name in names}


LESSONS = [unit.notebook for unit in UNITS if unit.entries]


@pytest.mark.parametrize("assignment", [*LESSONS[:2], *map(soak, LESSONS[2:])])
def test_every_misconception_has_a_source_that_can_be_handed_in(tmp_path, assignment):
    everyone = classroom.make(built(tmp_path, assignment), assignment, everyone=True)
    known = [each for bank in banks.load_unit(find_unit(assignment).slug) for each in bank.misconceptions]
    assert len(everyone) == len(set(everyone)) == len(KINDS) + len(known)


@pytest.mark.parametrize("assignment", [LESSONS[1], *map(soak, LESSONS[2:])])
def test_a_class_shows_every_kind_and_each_mistake_in_it_is_named(tmp_path, assignment, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # loading replaces it
    found = classroom.make(built(tmp_path, assignment), assignment)
    assert len(found) == classroom.SMALL
    assert set(found) >= KINDS
    unit, named = find_unit(assignment), {}
    records = sheet.load(unit.slug)
    release = Release.load(tmp_path / "release" / assignment / f"{assignment}.ipynb")
    for bank in banks.load_unit(unit.slug):
        record, wrong = records[bank.exercise.id], misconceived(bank)
        for student in set(found) & wrong.keys():
            submitted = read_file(handed_in(tmp_path, student, assignment))
            answer = load(code_cells(rebuild(release.cells, submitted).cells), bank.exercise.name).answer
            verdict = judge(
                bank.exercise,
                record.cases,
                perform_all(bank.exercise, answer, record.cases),
                record.references,
                record.suspects,
            )
            if verdict.points < verdict.possible:
                named[student] = (verdict.diagnosis and verdict.diagnosis.name, wrong[student])
    assert [pair for pair in named.values() if pair[0] != pair[1]] == []
    assert len(named) == classroom.SMALL - len(KINDS)


@pytest.mark.slow
@pytest.mark.sandbox
def test_a_whole_lesson_goes_from_hand_in_through_the_sandbox_into_the_gradebook(tmp_path):
    root = built(tmp_path, ASSIGNMENT)
    found = classroom.make(root, ASSIGNMENT)
    (bank,) = (each for each in banks.load_unit(UNIT) if each.exercise.name == "quadratic_grads")
    mistaken, name = next((student, name) for student, name in misconceived(bank).items() if student in found)
    with open_runner() as runner:
        grade(root, ASSIGNMENT, ["solved"], runner=runner)
        others = [mistaken, *KINDS - {"solved"}]
        result = grade(root, ASSIGNMENT, others, runner=runner, how=How(display=False))
    by_name = {each.student: each for each in result.students}
    solved, wrong = by_name["solved"], by_name.pop(mistaken)
    lost = [each for each in wrong.exercises if each.score < each.possible]
    assert [(each.exercise, each.verdict.diagnosis.name) for each in lost] == [(bank.exercise.id, name)]
    full = sum(each.possible for each in solved.exercises)
    half = sum(each.possible for each in solved.exercises[: len(solved.exercises) // 2])
    assert {name: each.score for name, each in by_name.items()} == {
        "untouched": 0,
        "half": half,
        "solved": full,
        "deleted_cell": full,
        "copied_cell": full,
        "unreadable": 0,
    }
    assert [len(by_name[name].repairs) for name in ("solved", "deleted_cell", "copied_cell")] == [0, 1, 2]
    assert "not valid JSON" in by_name["unreadable"].problem
    assert not any(each.failed for each in result.students)


def test_a_lesson_must_be_built_before_it_has_a_class(tmp_path):
    with pytest.raises(CourseError, match="autograder build"):
        classroom.make(tmp_path, ASSIGNMENT)


# --- the report ---------------------------------------------------------------------------------------


def verdict(points: int, **fields) -> Verdict:
    """A verdict on quadratic_grads, which is worth 5 points."""
    finding = Finding(property="value_is_right", held=points == 5, points=points, possible=5)
    return Verdict(exercise=f"{UNIT}.quadratic_grads", points=points, possible=5, findings=(finding,), **fields)


def student(name: str, found: Verdict | None, **fields) -> StudentResult:
    """A student with one exercise."""
    score = float(found.points) if found else 0.0
    one = ExerciseResult(exercise=f"{UNIT}.quadratic_grads", score=score, possible=5, verdict=found)
    return StudentResult(student=name, score=score, max_score=5.0, exercises=(one,), **fields)


EVIL = "<script>alert(1)</script>[bold]"
CLASS = ClassResult(
    assignment=ASSIGNMENT,
    runner="not sandboxed: it says so",
    students=(
        student("ann", verdict(5)),
        student("bob", verdict(2, diagnosis=Diagnosis(name="cross_term_dropped", hint="h"))),
        student("cid", verdict(0, diagnosis=Diagnosis(name="cross_term_dropped", hint="h"))),
        student("dan", verdict(0, attempted=False), problem="the file is not valid JSON", needs_review=True),
        student(EVIL, verdict(0, failure=Failure(type="ValueError", message=EVIL)), repairs=("A cell was put back.",)),
        student("eve", verdict(0), late_penalty=1.5),
        student("fay", None, failed="ZeroDivisionError: ours"),
    ),
)


def printed(result: ClassResult) -> str:
    """What the terminal shows."""
    out = io.StringIO()
    report.show(result, Console(file=out, width=160))
    return out.getvalue()


def test_a_verdict_in_brief_makes_the_same_report_and_holds_no_numbers_or_hints():
    wordy = Finding(property="value_is_right", held=False, points=0, possible=5, got="x" * 999, hint="y" * 999)
    held = Finding(property="held", held=True, points=2, possible=2)
    whole = Verdict(exercise=f"{UNIT}.quadratic_grads", points=2, possible=7, findings=(wordy, held), printed="z" * 999)
    classes = [ClassResult(assignment="a", runner="", students=(student("s", each),)) for each in (whole, brief(whole))]
    assert report.to_html(classes[0]) == report.to_html(classes[1])
    assert len(repr(brief(whole))) < 600


class Tags(HTMLParser):
    """Collects the names of all tags, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onerror", "onload"}

    def handle_data(self, data):
        self.text += data + " "


@pytest.mark.parametrize("show", [printed, lambda result: Tags(report.to_html(result)).text])
@pytest.mark.parametrize(
    "told",
    [
        "not sandboxed: it says so",
        "cross term dropped",
        "the file is not valid JSON",
        "Waits for a review",
        f"ValueError: {EVIL}",
        "A cell was put back.",
        "1.5 points were taken off",
        "fails value is right",
        "Not graded: ZeroDivisionError: ours",
        "7 submissions, 5 points to reach; median 0, mean 1, from 0 to 5.",
    ],
)
def test_page_and_terminal_tell_who_got_what_and_why(show, told):
    assert " ".join(told.split()) in " ".join(show(CLASS).split())


def test_the_page_is_one_file_and_runs_nothing():
    page = Tags(report.to_html(CLASS))
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert EVIL in page.text


def test_misconceptions_are_counted_by_students():
    assert CLASS.misconceptions() == [("quadratic_grads", "cross_term_dropped", 2)]
    assert "cross term dropped" in report.to_html(CLASS)


def test_a_class_of_nobody_can_be_reported(tmp_path):
    nobody = ClassResult(assignment=ASSIGNMENT, runner="", students=())
    assert "Nobody has handed in." in report.write(nobody, tmp_path / "report.html").read_text()
    assert "Nobody has handed in." in printed(nobody)
