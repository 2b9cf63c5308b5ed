"""The gradebook may be a PostgreSQL database: the same class gets the same scores as with SQLite."""

from __future__ import annotations

import nbformat
import pytest
import sqlalchemy
from nbgrader.api import Gradebook
from plain_nbgrader import nbgrader
from postgres import data_folder, server
from small_class import ASSIGNMENT, CROSS_TERM_DROPPED, RIGHT, empty_gradebook, hand_in, marked, notebook, publish
from sqlalchemy.engine import make_url

from autograder.nbgrader_bridge import grade, results

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

STUDENTS = {
    "right": notebook(RIGHT),
    "wrong": notebook({**RIGHT, "quadratic_grads": CROSS_TERM_DROPPED}),
    "untouched": notebook(),
    "broken": b"{",
    "naïve ½": notebook({"hvp": RIGHT["hvp"]}),
}


@pytest.fixture(scope="module")
def postgres():
    """The URL of a running server."""
    with data_folder() as folder, server(folder) as url:
        yield url


@pytest.fixture(scope="module")
def database(postgres):
    """The URL of a database that holds nothing when the tests begin."""
    return new_database(postgres)


def new_database(postgres: str) -> str:
    """The URL of an empty database."""
    engine = sqlalchemy.create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        names = connection.execute(sqlalchemy.text("SELECT count(*) FROM pg_database")).scalar_one()
        connection.execute(sqlalchemy.text(f"CREATE DATABASE grades_{names}"))
    engine.dispose()
    return make_url(postgres).set(database=f"grades_{names}").render_as_string(hide_password=False)


def open_class(folder, db_url: str = ""):
    """A class that has handed in, and a configuration that names its gradebook."""
    lines = [
        "from pathlib import Path",
        "from autograder.nbgrader_bridge import configure",
        "c = get_config()",
        f"configure(c, Path({str(folder)!r}) / 'build')",
        "c.GradingExporter.trust_submissions = True",
        *([f"c.CourseDirectory.db_url = {db_url!r}"] if db_url else []),
    ]
    folder.mkdir(exist_ok=True)
    (folder / "nbgrader_config.py").write_text("\n".join(lines))
    publish(folder / "build")
    for student, submission in STUDENTS.items():
        hand_in(folder / "build", student, submission)
    return folder / "build"


def numbers(result) -> dict[str, list[float]]:
    """Scores and maxima by student and exercise: what must not depend on the database."""
    return {
        each.student: [each.score, each.max_score, *(exercise.score for exercise in each.exercises)]
        for each in result.students
    }


@pytest.fixture(scope="module")
def with_sqlite(tmp_path_factory, warm):
    """The numbers of the same class with a SQLite gradebook."""
    root = open_class(tmp_path_factory.mktemp("sqlite"))
    (root / "gradebook.db").write_bytes(empty_gradebook())
    return numbers(grade(root, ASSIGNMENT, seed=1, runner=warm))


@pytest.fixture(scope="module")
def root(tmp_path_factory, database):
    """The class with a PostgreSQL gradebook."""
    return open_class(tmp_path_factory.mktemp("postgres"), database)


def test_our_grading_gives_the_same_scores(root, warm, with_sqlite):
    assert numbers(grade(root, ASSIGNMENT, seed=1, runner=warm)) == with_sqlite
    assert not (root / "gradebook.db").exists()


def test_a_score_given_by_hand_survives_a_regrade(root, database, warm):
    grade(root, ASSIGNMENT, students=["untouched"], runner=warm)
    with Gradebook(database) as book:
        book.find_grade("check_hvp", ASSIGNMENT, ASSIGNMENT, "untouched").manual_score = 2.0
        book.db.commit()
    result = grade(root, ASSIGNMENT, students=["untouched"], runner=warm)
    (student,) = (each for each in result.students if each.student == "untouched")
    assert student.score == 2.0


@pytest.mark.soak
def test_plain_nbgrader_gives_the_same_scores(tmp_path, postgres, with_sqlite):
    database = new_database(postgres)
    root = open_class(tmp_path, database)
    (root / "source" / ASSIGNMENT).mkdir(parents=True)
    nbformat.write(notebook(write=marked), root / "source" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb")
    nbgrader(tmp_path, "generate_assignment", ASSIGNMENT, "--force")
    nbgrader(tmp_path, "autograde", ASSIGNMENT)
    assert numbers(results(root, ASSIGNMENT)) == with_sqlite
    assert not (root / "gradebook.db").exists()
