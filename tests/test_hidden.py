"""An answer finds nothing of the course but what its lesson hands to it; our own modules find everything."""

from __future__ import annotations

import textwrap

import pytest

from autograder.sandbox import open_runner
from course import exercises
from course.performing.cells import CodeCell

EXERCISE = exercises.load("quantization.best_step")
HIDDEN = {
    "an import": "import course.exercises.quantization.choose_bits",
    "an import from": "from course.lessons.experiments import moons",
    "an attribute": "import course; course.meter",
    "by its name": "import importlib; importlib.import_module('autograder.sandbox.inside.container')",
    "what is loaded": "import sys; sys.modules['course.performing.perform']",
    "an attribute of what is open": "import course.cluster; course.cluster.protocol",
    "a file": "import course; open(course.__file__.replace('__init__', 'tree'))",
    "a file by another way": "import course, os; os.open(os.path.dirname(course.__file__) + '/../course/tree.py', 0)",
    "a compiled file": "import course, glob; open(glob.glob(f'{os.path.dirname(course.__file__)}/performing/*.py')[0])",
    "run as a program": "import course, runpy; runpy.run_path(course.__file__.replace('__init__', 'tree'))",
}
OPEN = (
    "from course.lessons import int8, models, nf4; from course.cluster import Comm, run_ranks; from course import check"
)


@pytest.fixture(scope="module")
def sandbox():
    with open_runner(display=False) as opened:
        yield opened


def failure(opened, body: str, head: str = ""):
    """How an answer to the exercise fails."""
    source = (
        f"import os\n{head}\ndef best_step(*given):\n{textwrap.indent(body, '    ')}\n    raise KeyError('found')\n"
    )
    with opened.session([CodeCell(source=source, answers=EXERCISE.name)]) as session:
        (seen,) = session.perform(EXERCISE, EXERCISE.draw(1)[:1])
    return seen.error


@pytest.mark.sandbox
@pytest.mark.parametrize("way", HIDDEN)
def test_what_the_course_checks_with_is_not_found(sandbox, way):
    found = failure(sandbox, HIDDEN[way])
    assert found.type in ("ImportError", "PermissionError", "KeyError", "AttributeError")
    assert "found" not in found.message


@pytest.mark.sandbox
def test_nor_while_the_cells_load(sandbox):
    found = failure(sandbox, "moons", head="from course.lessons.experiments import moons")
    assert found.message == (
        "`course.lessons.experiments` may not be used in an answer: it is what the course checks answers with"
    )


@pytest.mark.sandbox
def test_what_a_lesson_hands_to_answers_is_there(sandbox):
    assert failure(sandbox, OPEN).message == "'found'"
