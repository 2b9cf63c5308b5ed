"""An answer finds nothing of the course but what its lesson hands to it; our own modules find everything."""

from __future__ import annotations

import sys
import textwrap

import pytest

from autograder.sandbox import open_runner
from autograder.sandbox.inside import hidden
from course import exercises
from course.notebook.check import NOT_THERE
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
    "a compiled file": "import course, glob; open(glob.glob(f'{os.path.dirname(course.__file__)}/meter/*.py')[0])",
    "a file in a folder that is open": (
        "import course; at = os.open(os.path.dirname(course.__file__), 0); "
        "os.open('exercises/fsdp/shardings.py', 0, dir_fd=at)"
    ),
    "a file in the words of torch": (
        "import course, torch; at = os.path.dirname(course.__file__); "
        "torch.UntypedStorage.from_file(f'{at}/exercises/fsdp/shardings.py', False, 9)"
    ),
    "code that says where it lies": (
        "import course; at = course.__file__.replace('__init__', 'x'); "
        "exec(compile('import course.exercises.fsdp.shardings', at, 'exec'), {})"
    ),
    "code in a module that is open": (
        "import course; at = course.__file__.replace('__init__', 'x'); "
        "exec(compile('import course.exercises.fsdp.shardings', at, 'exec'), vars(course))"
    ),
    "without its finders": "import sys; sys.meta_path[:] = sys.meta_path[-1:]; import course.tree",
    "run as a program": "import course, runpy; runpy.run_path(course.__file__.replace('__init__', 'tree'))",
}
REFUSED = (
    *("ImportError", "ModuleNotFoundError", "KeyError", "AttributeError"),
    *("PermissionError", "FileNotFoundError", "RuntimeError"),
)
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
    assert found.type in REFUSED
    assert "found" not in found.message


def test_what_a_check_remarks_is_what_is_hidden():
    assert all(map(hidden.is_hidden, NOT_THERE))


def test_an_import_statement_of_ours_is_known_from_a_call():
    """Our own code calls what an answer gives it: that may be `__import__`."""

    def look(*_):
        return hidden._imports(sys._getframe(1), frozenset([id(ours)]))

    ours = {"look": look, "__builtins__": {"__import__": look}}
    exec("import something\ncalled = look()", ours)
    assert (ours["something"], ours["called"]) == (True, False)


@pytest.mark.sandbox
def test_nor_while_the_cells_load(sandbox):
    found = failure(sandbox, "moons", head="from course.lessons.experiments import moons")
    assert found.message == (
        "`course.lessons.experiments` may not be used in an answer: it is what the course checks answers with"
    )


@pytest.mark.sandbox
def test_what_a_lesson_hands_to_answers_is_there(sandbox):
    assert failure(sandbox, OPEN).message == "'found'"
