"""A display run leaves out what the student's cells do not need, and shows of these what the whole run would show."""

from __future__ import annotations

import contextlib
import io
import random
from pathlib import Path

import nbformat
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autograder.engine.cells import role_of
from autograder.sandbox.inside.needed import IMPORTS, LEFT, QUIET, SHOWN, imports_of, parts

LESSON, STUDENT = False, True


def sorted_out(*cells: tuple[str, bool]) -> list[str]:
    """What is done with each of these cells."""
    return parts([source for source, _ in cells], [own for _, own in cells])


# --- programs of cells, whole and in part ---------------------------------------------------------------

START = [  # each in a cell of its own, so that nothing belongs together yet
    "import contextlib\nimport random\nfrom reprlib import repr as told",
    "class Box:\n    items = [0]",
    "@contextlib.contextmanager\ndef filled(items):\n    items.append(7)\n    yield items",
    "shelf = []",
    "def kept(function):\n    shelf.append(function)\n    return function",
    *("a = [1]", "b = [2]", "c = [3]", "d = [4]", "box = Box()", "it = iter(range(100))"),
    *("f = lambda *given: [8]", "def g(*given):\n    return [9]"),
]
VARIABLES, FUNCTIONS = st.sampled_from("abcd"), st.sampled_from("fg")
STATEMENTS = """
{x} = [{n}]
{x} = {y}
{x} = [*{y}, {n}][-5:]
{x} = [{y}, {z}]
{x} = ({y} + {z})[:5]
{x}, {y} = {y}, {x}
{x} = {y} if len({z}) % 2 else [{n}]
{x} = [each for each in {y}]
{x} = (lambda: {y})()
{x} = {h}()
{x} = box.items
{x} = [next(it)]
{x} = [random.random()]
{x} = {y} = [{n}]
{x} = {n}
({x} := [{n}]).append({n})
{x} += [{n}]; del {x}[5:]
{x}.append({n})
{x}[0] = {n}
{x}[0] = {y}
box.items = {x}
Box.items = {x}
{h}.seen = {x}
{x} = getattr({h}, 'seen', [{n}])
random.seed({n})
random.shuffle({x})
for {x} in [{y}, {z}]: {x}.append({n})
for each in {x}[:2]: {y}.append({n})
while len({x}) < 3: {x}.append({n})
if len({x}) % 2: {y} = [{n}]
with filled({x}) as {y}: {z}.append({n})
[{x}.append(each) for each in range(2)]
def {h}(): {x}.append({n}); return {y}
def {h}(given={x}): given.append({n}); return given
def {h}(): return [*{x}, *{k}()] if len({x}) < 9 else {y}
def {h}(): global {x}; {x} = [{n}]; return {y}
@kept
def {h}(): return {x}
{h} = (lambda held: lambda: held)({x})
{h} = {k}
{h}()
shelf[-1]() if shelf else None
class Box: items = {x}
class Box(Box): held = {x}
box = Box()
try: {x}.missing
except Exception: {y} = [{n}]
del {x}; {x} = [{n}]
import math; {x} = [math.pi]
import random as math
print(told({x}), told({y}))
print({x} is {y}, told({h}()))
print(random.random())
print(told(box.items), told(Box.items), len(shelf))
"""
FORMS: list[str] = []
for line in STATEMENTS.strip().split("\n"):
    if FORMS and (line.startswith("except") or (FORMS[-1].startswith("@") and "\n" not in FORMS[-1])):
        FORMS[-1] += f"\n{line}"
    else:
        FORMS.append(line)


@st.composite
def statements(draw) -> str:
    names = {"x": VARIABLES, "y": VARIABLES, "z": VARIABLES, "h": FUNCTIONS, "k": FUNCTIONS, "n": st.integers(0, 9)}
    form = draw(st.sampled_from(FORMS))
    return form.format(**{name: draw(values) for name, values in names.items()})


CELLS = st.lists(
    st.tuples(st.lists(statements(), min_size=1, max_size=3).map("\n".join), st.booleans()), min_size=2, max_size=9
)
LOOKS = st.lists(st.sampled_from(["a", "b", "c", "d", "box.items", "f()"]), min_size=1, max_size=2).map(
    lambda names: ("\n".join(f"print(told({name}))" for name in names), STUDENT)
)


class Raised(Exception):
    """A cell ended with an exception."""


def outputs(cells, chosen) -> list[str]:
    """What the student's cells print, where of the others only what is chosen is run. Raises Raised."""
    random.seed(0)
    names, printed = {"__name__": "__main__"}, []
    for (source, own), part in zip(cells, chosen, strict=True):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                exec({LEFT: "", IMPORTS: imports_of(source)}.get(part, source), names)
            except Exception as error:
                raise Raised from error
        printed += [said.getvalue()] if own else []
    return printed


@given(CELLS, LOOKS)
def test_the_students_cells_show_what_they_show_when_everything_is_run(cells, look):
    cells = [*((source, LESSON) for source in START), *cells, look]
    chosen = sorted_out(*cells)
    assume(LEFT in chosen or QUIET in chosen)
    try:
        partly = outputs(cells, chosen)
    except Raised:
        return  # then everything is run
    try:
        whole = outputs(cells, [SHOWN] * len(cells))
    except Raised:
        return  # the cells after it would go on in a notebook
    assert partly == whole


# --- one thing at a time --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lesson", "own"),
    [
        ("rate = 0.1", "print(rate)"),
        ("def step(p):\n    return p - rate", "print(step(1))"),
        ("def outer():\n    return inner()", "def inner():\n    return outer\nprint(outer())"),
        ("model = make()", "class Net:\n    size = model.size"),
        ("points.x = 3", "print(points)"),
        ("points[0] = 3", "print(points)"),
        ("points += [3]", "print(points)"),
        ("points.append(3)", "print(points)"),
        ("train(points)", "print(points)"),
        ("for each in points:\n    each.grad = 0", "print(points)"),
        ("del points[0]", "print(points)"),
        ("with points:\n    pass", "print(points)"),
        ("if late:\n    points = []", "print(points)"),
        ("def more():\n    global points\n    points = []\nmore()", "print(points)"),
        ("torch.manual_seed(0)", "print(torch.randn(3))"),
        ("dropped = torch.nn.functional.dropout(ones)", "points.normal_()"),
        ("torch.manual_seed(0)", "import sampler\nprint(sampler.draw())"),
        ("from course.lessons import models\nmodels.GPT()", "print(torch.rand(2))"),
        ("from course.lessons.experiments.problems import gpt_problem\ngpt_problem().model()", "print(torch.rand(2))"),
        ("torch.set_default_dtype(torch.float64)", "print(torch.ones(3))"),
        ("torch.backends.mkldnn.enabled = False", "print(torch.ones(3))"),
        ("from __future__ import annotations", "def f(x: Missing): ..."),
    ],
)
def test_a_cell_of_the_lesson_is_run_where_it_may_matter_to_the_students(lesson, own):
    chosen = sorted_out(("points = [1]", LESSON), ("import torch", LESSON), (lesson, LESSON), (own, STUDENT))
    assert chosen[2] in (QUIET, IMPORTS)
    assert chosen[3] == SHOWN


@pytest.mark.parametrize(
    ("lesson", "own"),
    [
        ("draw(graph)", "print(1)"),
        ("points = make()", "points = [1]\nprint(points)"),
        ("def f(points):\n    return points", "def g(points):\n    return points"),
        ("print(torch.randn(3, generator=torch.Generator().manual_seed(0)))", "print(torch.randn(3))"),
        ("from course.lessons.figures.graph import draw\ndraw(points)", "print(torch.rand(2))"),
        ("torch.manual_seed(1)", "torch.manual_seed(0)\nprint(torch.randn(3))"),
        ("print(torch.tensor(1.0))", "print(torch.ones(3))"),
        ("train(model, torch.optim.SGD(model.parameters(), lr=0.1))", "print(torch.ones(3))"),
    ],
)
def test_a_cell_of_the_lesson_that_cannot_matter_is_left_out(lesson, own):
    assert sorted_out(("import torch", LESSON), (lesson, LESSON), (own, STUDENT))[1] == LEFT


def test_what_two_names_may_share_is_changed_under_both():
    shared = ("a = b = []", LESSON), ("c = [b]", LESSON), ("c[0].append(1)", LESSON)
    assert sorted_out(*shared, ("print(a)", STUDENT)) == [QUIET, QUIET, QUIET, SHOWN]


def test_a_cell_that_is_needed_for_its_imports_alone_runs_these():
    cell = "import math\nfrom torch import (\n    nn,\n)\nprint(model)"
    assert sorted_out((cell, LESSON), ("print(math.pi)", STUDENT)) == [IMPORTS, SHOWN]
    assert imports_of(cell) == "import math\nfrom torch import nn"


def test_what_comes_after_the_last_cell_of_the_student_is_left_out():
    assert sorted_out(("a = 1", LESSON), ("print(a)", STUDENT), ("print(a)", LESSON)) == [QUIET, SHOWN, LEFT]


@pytest.mark.parametrize(
    "source",
    [
        "%timeit 1",
        "!ls",
        "print?",
        "from math import *",
        "exec('a = 1')",
        "print(eval('a'))",
        "print(globals()['a'])",
        "print(_)",
        "print(_1, Out[1])",
        "get_ipython()",
        "import sys\nprint(sys.modules)",
        "import gc",
        "def f():\n    return locals()",
        "f.__globals__['a'] = 1",
        "a b",
        "return 1",
        "(" * 500,
    ],
)
def test_where_names_do_not_stand_in_the_source_everything_is_run_and_shown(source):
    assert sorted_out(("a = [1]", LESSON), ("print(1)", LESSON), (source, STUDENT)) == [SHOWN] * 3


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_of_a_lesson_to_which_no_cell_was_added_most_is_left_out(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    chosen = sorted_out(*((cell.source, role_of(cell)[1] == "answer") for cell in cells if role_of(cell)[1] != "check"))
    assert chosen.count(LEFT) > len(chosen) / 2
