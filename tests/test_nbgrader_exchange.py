"""The whole way through nbgrader's exchange, by its own commands and buttons: a student ends with a page of scores."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader import apps
from nbgrader.utils import get_username, notebook_hash
from nbgrader_buttons import jupyter_with
from plain_nbgrader import checked_out, score
from small_class import ASSIGNMENT, CROSS_TERM_DROPPED, POINTS, RIGHT, hand_in, marked, notebook, release
from toy_judge import Nowhere, ToyJudge

from autograder.nbgrader_bridge import How, exporters, feedback, grade
from autograder.nbgrader_bridge.config import COURSE

# nbgrader 0.9.6 leaves time stamps open, and writes a keyword as `authentictor`.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file", "ignore:Passing unrecognized arguments")

SITE = """\
c = get_config()
c.CourseDirectory.course_id = {course!r}
c.Exchange.root = {root!r}
c.Exchange.cache = {cache!r}
"""
ME = get_username()  # under which this process hands in
BY_HAND = "0"  # comes before everyone else


class Course:
    """A teacher's and a student's folder, and an exchange between them that the site's configuration names."""

    def __init__(self, folder: Path) -> None:
        (folder / "teacher").mkdir()
        (folder / "student").mkdir()
        self.teacher, self.student = checked_out(folder / "teacher"), folder / "student"
        self.root, self.exchange = self.teacher / "build", folder / "exchange"
        (folder / "site").mkdir()
        (folder / "site" / "nbgrader_config.py").write_text(
            SITE.format(course=COURSE, root=str(self.exchange), cache=str(folder / "cache"))
        )

    def teach(self, command: type) -> None:
        """One of nbgrader's commands in the teacher's folder."""
        run(self.teacher, command)

    def solve(self) -> None:
        """What a student does up to the submission."""
        run(self.student, apps.FetchAssignmentApp)
        answers = {**RIGHT, "quadratic_grads": CROSS_TERM_DROPPED}
        nbformat.write(notebook(answers), self.student / ASSIGNMENT / f"{ASSIGNMENT}.ipynb")
        run(self.student, apps.SubmitApp)

    def fetched(self) -> list[str]:
        """The feedback pages that the student can get."""
        run(self.student, apps.FetchFeedbackApp)
        return [path.read_text() for path in (self.student / ASSIGNMENT / "feedback").glob(f"*/{ASSIGNMENT}.html")]


def run(folder: Path, command: type) -> None:
    """One of nbgrader's commands, in this process."""
    app = command()
    with contextlib.chdir(folder):
        app.initialize([ASSIGNMENT])
        app.start()


@pytest.fixture
def course(tmp_path, warm, monkeypatch):
    """A course in which someone has handed in by hand."""
    monkeypatch.setattr(warm, "close", lambda: None)
    monkeypatch.setattr(exporters, "open_runner", lambda **trust: warm)
    monkeypatch.setattr(sys, "path", [*sys.path])  # nbgrader puts each folder there
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "site"))
    made = Course(tmp_path)
    hand_in(made.root, BY_HAND, notebook())
    return made


def by_our_command(course: Course) -> None:
    """What `autograder grade` does, with a toy for a judge."""
    grade(course.root, ASSIGNMENT, runner=Nowhere(), how=How(work=ToyJudge(release(), course.teacher / "notes")))
    feedback(course.root, ASSIGNMENT)


def by_nbgrader(course: Course) -> None:
    """nbgrader's own two commands."""
    course.teach(apps.AutogradeApp)
    course.teach(apps.GenerateFeedbackApp)


def assert_the_scores_came_back(course: Course) -> None:
    (page,) = course.fetched()
    assert f"(Score: {score(course.root, ME)} / {float(sum(POINTS.values()) - POINTS['hvp'])})" in page
    assert len(list((course.exchange / COURSE / "feedback").iterdir())) == 1  # nobody else's


@pytest.mark.parametrize("graded", [by_our_command, by_nbgrader])
def test_feedback_comes_back_by_the_exchange(course, capfd, graded):
    course.teach(apps.ReleaseAssignmentApp)
    course.solve()
    course.teach(apps.CollectApp)
    graded(course)
    course.teach(apps.ReleaseFeedbackApp)
    assert_the_scores_came_back(course)
    (sentence,) = [line for line in capfd.readouterr().err.splitlines() if "no feedback was released" in line]
    assert f" {BY_HAND}: no feedback was released, because timestamp.txt and submission_secret.txt must" in sentence


def give_feedback(course: Course, student: str, **beside: bytes) -> None:
    """Puts a student's page where nbgrader looks for it, and these files beside it."""
    folder = course.root / "feedback" / student / ASSIGNMENT
    folder.mkdir(parents=True)
    (folder / f"{ASSIGNMENT}.html").write_text(student)
    for name, data in beside.items():
        (folder / f"{name}.txt").write_bytes(data)


def test_nobody_keeps_the_feedback_of_others_back(course, capfd):
    course.exchange.mkdir()
    ids = ("[bold]", "*", "?", "{{7*7}}", "ann")
    for each in ids:
        give_feedback(course, each, timestamp=b"t", submission_secret=each.encode())
    give_feedback(course, "0")
    give_feedback(course, "1", submission_secret=b"s")
    give_feedback(course, "2", timestamp=b"t", submission_secret=b"")
    give_feedback(course, "3", timestamp=b"\xff", submission_secret=b"s")
    give_feedback(course, "left out")
    give_feedback(course, "away", timestamp=b"t", submission_secret=b"s")
    with (course.teacher / "nbgrader_config.py").open("a") as file:
        file.write("c.CourseDirectory.student_id_exclude = 'left out,away'\n")
    course.teach(apps.ReleaseFeedbackApp)
    released = course.exchange / COURSE / "feedback"
    assert {path.name: path.read_text() for path in released.iterdir()} == {
        f"{notebook_hash(secret=each, notebook_id=ASSIGNMENT)}.html": each for each in ids
    }
    assert " 0, 1, 2, 3: no feedback was released" in capfd.readouterr().err


def test_feedback_comes_back_by_formgraders_buttons(course):
    source = course.root / "source" / ASSIGNMENT
    source.mkdir(parents=True)
    nbformat.write(notebook(write=marked), source / f"{ASSIGNMENT}.ipynb")

    async def teach() -> str:
        async with jupyter_with("formgrader", course.teacher) as post:

            async def press(button: str) -> dict:
                return await post(f"formgrader/api/{button}")

            answers = [await press(f"assignment/{ASSIGNMENT}/{button}") for button in ("assign", "release")]
            course.solve()
            answers.append(await press(f"assignment/{ASSIGNMENT}/collect"))
            answers += [await press(f"submission/{ASSIGNMENT}/{student}/autograde") for student in (BY_HAND, ME)]
            buttons = ("generate_feedback", "release_feedback")
            answers += [await press(f"assignment/{ASSIGNMENT}/{button}") for button in buttons]
        assert [answer.get("error") for answer in answers if not answer["success"]] == []
        return answers[-1]["log"]

    with contextlib.chdir(course.teacher):
        said = asyncio.run(teach())
    assert_the_scores_came_back(course)
    assert f"{BY_HAND}: no feedback was released" in said
