"""All attackers in one class, honest students among them: honest scores, and pages that are safe to open."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from attacks import FAMILIES, files, lesson
from attacks.conftest import LIMITS
from attacks.grading import Alarms, hand_in
from attacks.lesson import ASSIGNMENT, FILE
from attacks.scene import Machine, Scene
from autograder.nbgrader_bridge import How, feedback, grade

pytestmark = pytest.mark.sandbox

EVERY = 20  # attackers per honest student
ALL = {f"{family}-{attack.name}": attack for family, attacks in FAMILIES.items() for attack in attacks}
QUICK = {name: attack for name, attack in ALL.items() if not attack.costly}
IN_A_FOLDER = {attack.name: attack for attack in files.IN_A_FOLDER}
TWO_JUDGES = How(limits=LIMITS, display=False, jobs=2)
HONEST = sum(lesson.honest().values())


@contextmanager
def course(scene, folder) -> Iterator[Scene]:
    """A course folder of its own, in which the other submission and the solution hold the secret."""
    made = Scene.prepare(folder / "build", scene.token)
    made.before.clear()  # a real gradebook takes the place of the one with the secret: it is the grader's to write
    (folder / "build" / "gradebook.db").unlink()
    release = made.folder / "release" / ASSIGNMENT / FILE
    release.parent.mkdir(parents=True)
    release.write_bytes(lesson.built()["release"])
    try:
        yield made
    finally:
        made.ears.close()


def dishonest(result, attacks) -> dict[str, tuple[float, int]]:
    """(score that came, honest score) of each attacker and honest student where they differ."""
    found = {}
    for student in result.students:
        attack = attacks.get(student.student.partition("-")[2])
        honest = sum(attack.expected().values()) if attack else HONEST
        if student.student != "other" and (student.score != honest or student.failed):
            found[student.student] = (student.score, honest)
    return found


def graded_notebooks(made) -> str:
    """What everyone but the owner of the secret gets back."""
    graded = (made.folder / "autograded").glob(f"*/{ASSIGNMENT}/{FILE}")
    return "".join(path.read_text() for path in graded if path.parent.parent.name != "other")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attacks", "how"),
    [
        pytest.param(QUICK, TWO_JUDGES, id="two judges"),
        pytest.param(ALL, TWO_JUDGES, id="two judges, every attack", marks=pytest.mark.soak),
        # One judge grades the class of `shown` below, and in test_one_by_one every attack; here all of them, displayed.
        pytest.param(ALL, How(limits=LIMITS), id="one judge, every attack", marks=pytest.mark.soak),
    ],
)
def test_a_class_of_attackers_gets_honest_scores(scene, tmp_path, monkeypatch, attacks, how):
    with course(scene, tmp_path) as made:
        for number, (name, attack) in enumerate(attacks.items()):
            hand_in(made, f"{number:03}-{name}", attack)
            if number % EVERY == 0:
                hand_in(made, f"{number:03}_honest", None)
        log = logging.getLogger("autograder.nbgrader")
        monkeypatch.setattr(log, "handlers", [])  # pytest would show 200 lines of scores above what failed
        before = Machine.now()
        result = grade(made.folder, ASSIGNMENT, how=how)
        assert len(result.students) == len(attacks) + len(range(0, len(attacks), EVERY)) + 1
        assert dishonest(result, attacks) == {}
        assert made.traces((made.folder / "grading.log").read_text() + graded_notebooks(made)) == []
        assert before.left() == ""


@pytest.fixture(scope="module")
def shown(scene, runner, tmp_path_factory):
    """A class with feedback: scripts everywhere, links, and students with names of every kind."""
    scripts = {f"markup-{attack.name}": attack for attack in FAMILIES["markup"]}
    beside = {f"files-{attack.name}": attack for attack in FAMILIES["files"] if attack.beside}
    attacks = {**scripts, **beside, **IN_A_FOLDER}
    with course(scene, tmp_path_factory.mktemp("class")) as made:
        for name, attack in attacks.items():
            hand_in(made, f"s-{name}", attack)
        for name in files.STUDENTS:
            hand_in(made, name, None)
        grade(made.folder, ASSIGNMENT, [f"s-{name}" for name in scripts], runner=runner)
        others = {*(f"s-{name}" for name in (*beside, *IN_A_FOLDER)), *files.STUDENTS, "other"}
        result = grade(made.folder, ASSIGNMENT, others, runner=runner, how=How(display=False))
        feedback(made.folder, ASSIGNMENT)
        yield made, result, attacks


def test_names_and_links_cost_nobody_points_and_earn_none(shown):
    _, result, attacks = shown
    assert dishonest(result, attacks) == {}
    assert {each.student for each in result.students} >= set(files.STUDENTS)


def test_no_page_runs_what_a_student_wrote(shown):
    made, _, _ = shown
    pages = sorted((made.folder / "feedback").rglob("*.html"))
    assert len(pages) >= len(FAMILIES["markup"]) + len(files.STUDENTS) - 1  # nbgrader finds no name with a newline
    assert {
        page.parent.parent.name: Alarms(page.read_text()).found for page in pages if Alarms(page.read_text()).found
    } == {}


def test_nothing_that_was_linked_is_passed_on(shown):
    made, _, _ = shown
    for step in ("autograded", "feedback"):
        for path in (made.folder / step).rglob("*"):
            if path.parent.parent.name != "other":
                assert not path.is_symlink()
                assert path.is_dir() or made.token not in path.read_text("utf-8", "replace")


def test_no_name_is_taken_for_a_command_of_the_database(shown):
    made, result, _ = shown
    with closing(sqlite3.connect(made.folder / "gradebook.db")) as book:
        assert book.execute("select count(*) from student").fetchone()[0] == len(result.students)
