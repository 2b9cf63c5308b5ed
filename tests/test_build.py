"""From an authored lesson to notebooks and answer sheets, and every mistake that an author is told of."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import nbformat
import pytest
import torch
from nbgrader.nbgraderformat import MetadataValidator

from autograder import recording
from autograder.bank import Alternative, Misconception
from autograder.release import AuthorError, ReleaseError, build, sheets_differ
from autograder.release.authored import read
from autograder.release.notebook import instructor, students
from course import syllabus
from course.judging import sheet
from course.performing.exercise import Case, Exercise, Failure, Property, observe
from course.syllabus import Entry, Unit

ROOT = Path(__file__).parent.parent
AUTHORS = (ROOT / "docs/authors.md").read_text()
LESSON = '''\
# %% [markdown]
# # Toys
# Text of the lesson.

# %%
# %matplotlib inline
import math

# %% tags=["wide"]
print("an experiment")

# %% exercise
import torch
from torch import Tensor


# Above the function.
def double(x: Tensor, *, twice: bool = False) -> Tensor:  # (n,) -> (n,)
    """Two times x.

    # not a comment:   x may be of any shape
    """
    # remark on the solution
    factor = 2.0 * math.sqrt(1.0)

    return x * factor  # the product
    # last remark


# %%
check(double)

# %% exercise
class Tally:
    """Adds up."""

    start: float = 0.0  # where it begins

    def __init__(self) -> None:
        self.total = self.start  # secret state

    # between the methods
    @staticmethod
    def name(
        long: str = "a: b",
    ) -> str:
        """What it is called."""
        return "tally"

    def add(self, x: Tensor) -> float:
        """The sum so far."""

        self.total += float(double(x).sum()) / 2
        return self.total
    # behind the last method

# %%
check(Tally)

# %% [markdown]
# The end.
'''

DOUBLE_STUB = '''\
import torch
from torch import Tensor


# Above the function.
def double(x: Tensor, *, twice: bool = False) -> Tensor:  # (n,) -> (n,)
    """Two times x.

    # not a comment:   x may be of any shape
    """
    raise NotImplementedError("toys.double")'''

TALLY_STUB = '''\
class Tally:
    """Adds up."""

    start: float = 0.0  # where it begins

    def __init__(self) -> None:
        raise NotImplementedError("toys.Tally")

    @staticmethod
    def name(
        long: str = "a: b",
    ) -> str:
        """What it is called."""
        raise NotImplementedError("toys.Tally")

    def add(self, x: Tensor) -> float:
        """The sum so far."""
        raise NotImplementedError("toys.Tally")'''


# --- a course of one small unit --------------------------------------------------------------------


def _cases(rng):
    return [Case(name="four numbers", inputs={"x": torch.rand(4, generator=rng)})]


def _probe_double(answer, inputs):
    return observe({"doubled": answer(inputs["x"])})


def _probe_tally(answer, inputs):
    tally = answer()
    return observe({"sums": [tally.add(inputs["x"]), tally.add(inputs["x"])]})


def _exercise(name, probe, key):
    return Exercise(
        id=f"toys.{name}",
        cases=_cases,
        probe=probe,
        properties=(Property(name=f"{key}_right", points=3, keys=(key,), hint="Look."),),
        hints=("a", "b", "c"),
        removes=("numpy", "torch.linalg") if name == "double" else (),
    )


def _double(x):
    return 2 * x


def _wrong_double(x):
    return x + torch.rand(1) if x.sum() < 0 else x * x


def _raises(x):
    raise KeyError("no such toy")


class _Tally:
    def __init__(self):
        self.total = 0.0

    def add(self, x):
        self.total = self.total + x.sum()
        return self.total


class _Forgets:
    def add(self, x):
        return x.sum()


PARTS = {
    "double": (_probe_double, "doubled", _double, (_wrong_double, _raises)),
    "tally": (_probe_tally, "sums", _Tally, (_Forgets,)),
}


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """The syllabus holds the units `toys`, with a bank of two exercises, and `dolls`, with none."""
    entries = tuple(
        Entry(unit="toys", name=name, minutes=minutes, difficulty=2, bonus=bonus)
        for name, minutes, bonus in (("double", 5, False), ("Tally", 10, True))
    )
    unit = Unit(number=7, slug="toys", title="Toys", question="Why?", entries=entries)
    monkeypatch.setattr(syllabus, "UNITS", (unit, dataclasses.replace(unit, number=8, slug="dolls", entries=())))
    for module, (probe, key, reference, wrong) in PARTS.items():
        name = "Tally" if module == "tally" else module
        exercise = _exercise(name, probe, key)
        misconceptions = tuple(Misconception(name=each.__name__, hint="Mend.", witnesses=(each,)) for each in wrong)
        parts = {
            "course.exercises": {"EXERCISE": exercise},
            "course.reference": {name: reference},
            "autograder.answers": {"RIGHT": (Alternative(name="same", answer=reference),), "WRONG": misconceptions},
        }
        for package, content in parts.items():
            made = types.ModuleType(f"{package}.toys.{module}")
            vars(made).update(content)
            monkeypatch.setitem(sys.modules, made.__name__, made)


def _course(tmp_path: Path, text: str = LESSON, name: str = "07_toys.py") -> Path:
    (tmp_path / "solutions").mkdir(exist_ok=True)
    (tmp_path / "solutions" / name).write_text(text)
    return tmp_path


def _lesson(tmp_path: Path, text: str = LESSON):
    return read(_course(tmp_path, text) / "solutions" / "07_toys.py", tmp_path)


def _notebook(data: bytes):
    return nbformat.reads(data.decode(), as_version=4)


def _cell(notebook, name):
    return next(cell for cell in notebook.cells if cell.id == name)


def _edited(old: str, new: str) -> str:
    assert LESSON.count(old) == 1, old
    return LESSON.replace(old, new)


# --- stubs -----------------------------------------------------------------------------------------


def test_stub_of_a_function_keeps_signature_and_docstring_as_written(tmp_path):
    assert _cell(_notebook(students(_lesson(tmp_path))), "answer-double").source == DOUBLE_STUB


def test_stub_of_a_class_keeps_its_fields_and_the_docstrings_of_its_methods(tmp_path):
    assert _cell(_notebook(students(_lesson(tmp_path))), "answer-Tally").source == TALLY_STUB


def test_no_remark_on_a_solution_reaches_students(tmp_path):
    text = students(_lesson(tmp_path)).decode()
    for remark in ("remark", "the product", "secret", "between the methods", "behind the last"):
        assert remark in LESSON
        assert remark not in text


def test_instructors_get_each_body_between_marks_that_are_indented_like_it(tmp_path):
    source = _cell(_notebook(instructor(_lesson(tmp_path))), "answer-Tally").source
    marked = '        ### BEGIN SOLUTION\n        return "tally"\n        ### END SOLUTION\n\n    def add'
    assert marked in source
    assert source.count("### BEGIN SOLUTION") == source.count("### END SOLUTION") == 3


def test_solution_between_marks_is_the_solution(tmp_path):
    made = _cell(_notebook(instructor(_lesson(tmp_path))), "answer-Tally").source
    lines = [line for line in made.splitlines() if "SOLUTION" not in line]
    authored = LESSON.split("# %% exercise\n")[2].split("\n\n# %%")[0]
    assert [line for line in lines if line.strip()] == [line for line in authored.splitlines() if line.strip()]


def test_body_that_is_only_a_docstring_raises_in_the_stub(tmp_path):
    text = _edited('        return "tally"\n', "")
    source = _cell(_notebook(students(_lesson(tmp_path, text))), "answer-Tally").source
    assert source == TALLY_STUB


# --- notebooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [students, instructor])
def test_notebook_is_valid_for_jupyter_and_for_nbgrader(make, tmp_path):
    notebook = _notebook(make(_lesson(tmp_path)))
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


def test_bytes_are_those_that_jupyter_writes(tmp_path):
    data = students(_lesson(tmp_path)).decode()
    assert nbformat.writes(_notebook(data.encode())).rstrip("\n") + "\n" == data


def test_heading_takes_its_numbers_from_exercise_and_syllabus(tmp_path):
    notebook = _notebook(students(_lesson(tmp_path)))
    plain, bonus = (_cell(notebook, f"heading-{name}").source for name in ("double", "Tally"))
    assert plain == (
        "### Exercise: `double`\n\n"
        "3 points, about 5 minutes, difficulty 2 of 5. Not to be used: `numpy`, `torch.linalg`."
    )
    assert bonus == "### Bonus exercise: `Tally`\n\n3 points, about 10 minutes, difficulty 2 of 5."


def test_cells_stand_in_the_authors_order_with_a_heading_above_each_exercise(tmp_path):
    kinds = [cell.id.split("-")[0] for cell in _notebook(students(_lesson(tmp_path))).cells]
    exercise = ["heading", "answer", "check"]
    assert kinds == ["text", "code", "code", *exercise, *exercise, "text"]


def test_answer_and_check_say_what_they_are_to_nbgrader_and_to_us(tmp_path):
    notebook = _notebook(students(_lesson(tmp_path)))
    answer, check = (_cell(notebook, f"{role}-double").metadata for role in ("answer", "check"))
    assert answer.hpml == {"exercise": "toys.double", "role": "answer"}
    assert check.hpml == {"exercise": "toys.double", "role": "check"}
    assert (answer.nbgrader.grade, answer.nbgrader.solution, answer.nbgrader.locked) == (False, True, False)
    assert (check.nbgrader.grade, check.nbgrader.solution, check.nbgrader.locked) == (True, False, True)
    assert (answer.nbgrader.grade_id, check.nbgrader.grade_id) == ("toys-double", "check_double")
    assert check.nbgrader.points == 3


def test_students_may_edit_everything_but_checks(tmp_path):
    notebook = _notebook(students(_lesson(tmp_path)))
    assert [cell.id for cell in notebook.cells if cell.metadata.get("editable") is False] == [
        "check-double",
        "check-Tally",
    ]
    assert _cell(notebook, "answer-double").metadata.deletable is False


def test_plain_cells_keep_their_tags_and_get_no_other_metadata(tmp_path):
    cells = [cell for cell in _notebook(students(_lesson(tmp_path))).cells if cell.id.startswith(("text", "code"))]
    assert [cell.metadata for cell in cells] == [{}, {}, {"tags": ["wide"]}, {}]
    assert cells[1].source == "%matplotlib inline\nimport math"


def test_new_cell_changes_no_other_cells_id(tmp_path):
    before = {cell.id: cell.source for cell in _notebook(students(_lesson(tmp_path))).cells}
    text = _edited("# %% [markdown]\n# The end.", "# %% [markdown]\n# More.\n\n# %% [markdown]\n# The end.")
    after = {cell.id: cell.source for cell in _notebook(students(_lesson(tmp_path, text))).cells}
    assert before.items() < after.items()


def test_equal_cells_have_ids_of_their_own(tmp_path):
    text = LESSON + "\n# %% [markdown]\n# The end.\n" * 2
    ids = [cell.id for cell in _notebook(students(_lesson(tmp_path, text))).cells]
    assert len(set(ids)) == len(ids)


def test_lesson_without_exercises_makes_a_notebook(tmp_path):
    root = _course(tmp_path, "# %% [markdown]\n# Only text.\n", "08_dolls.py")
    report = build(root)
    assert report.lessons == ("08_dolls",)
    assert [cell.source for cell in _notebook((root / "notebooks/08_dolls.ipynb").read_bytes()).cells] == ["Only text."]


def test_one_lesson_is_built_alone_and_the_others_are_no_strays(tmp_path):
    root = _course(tmp_path)
    _course(tmp_path, "# %% [markdown]\n# Only text.\n", "08_dolls.py")
    build(root, with_sheets=False)
    (root / "notebooks/07_toys.ipynb").write_text("an older one")
    assert build(root, "08_dolls", check=True, with_sheets=False).differing == ()
    assert build(root, "08_dolls", with_sheets=False).lessons == ("08_dolls",)
    assert (root / "notebooks/07_toys.ipynb").read_text() == "an older one"


# --- nbgrader --------------------------------------------------------------------------------------


@pytest.mark.soak
def test_nbgrader_itself_releases_what_we_release_but_for_the_text_of_its_stub(tmp_path):
    root = _course(tmp_path)
    build(root)
    ours = _notebook((root / "build/release/07_toys/07_toys.ipynb").read_bytes())
    (root / "build/release/07_toys/07_toys.ipynb").unlink()
    _nbgrader(root / "build", "generate_assignment", "07_toys", "--create", "--force")
    theirs = _notebook((root / "build/release/07_toys/07_toys.ipynb").read_bytes())
    MetadataValidator().validate_nb(theirs)
    for cell in (*ours.cells, *theirs.cells):
        if cell.id.startswith("answer"):
            assert "raise NotImplementedError(" in cell.source
            cell.source = cell.source.replace('"toys.double"', "").replace('"toys.Tally"', "")
            assert len(cell.metadata.nbgrader.pop("checksum")) == 32
    assert theirs.cells == ours.cells


def _nbgrader(folder: Path, *arguments: str) -> None:
    """nbgrader starts alembic by its bare name, so the environment's commands must be on the path."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    stub = "c = get_config()\nc.ClearSolutions.code_stub = {'python': 'raise NotImplementedError()'}\n"
    (folder / "nbgrader_config.py").write_text(stub)
    _ran(folder, environment, "nbgrader", *arguments, f"--course-dir={folder}")


def _ran(folder: Path, environment: dict[str, str], *command: str) -> str:
    """What a module of Python's says on its error stream, where it ends well."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


# --- mistakes of an author -------------------------------------------------------------------------

MISTAKES = {
    "no check": ("\n# %%\ncheck(double)\n", "", "def double", "check(double)` must stand"),
    "text before the check": (
        "\n# %%\ncheck(double)\n",
        "\n# %% [markdown]\n# hm\n\n# %%\ncheck(double)\n",
        "def double",
        "right after",
    ),
    "check of another": ("check(double)", "check(Tally)", "check(Tally)", "must be `check(double)`"),
    "check without exercise": ("# The end.", "# The end.\n\n# %%\ncheck(double)", -1, "right after the exercise cell"),
    "check before its exercise": (
        "# %% tags",
        "# %%\ncheck(double)\n\n# %% tags",
        "check(double)",
        "right after the exercise cell",
    ),
    "check that does more": ("check(double)", "check(double); 1", "def double", "check(double)` must stand"),
    "unknown name": ("class Tally", "class Taly", "class Taly", "did you mean `Tally`"),
    "marker misspelt": ("# %% exercise\nimport", "# %% exercice\nimport", "# %% exercice", "`exercise`"),
    "marker forgotten": ("# %% exercise\nimport", "# %%\nimport", "def double", "marked `# %% exercise`"),
    "answer in another cell": (
        'print("an',
        'if math:\n    double = 1\nprint("an',
        "    double = 1",
        "marked `# %% exercise`",
    ),
    "answer imported": (
        "import math",
        "from math import sqrt as double",
        "from math import sqrt",
        "marked `# %% exercise`",
    ),
    "statement above": ("# Above the function.", "other = 2", "other = 2", "nothing else"),
    "second def": ("# Above the function.", "def helper():\n    pass", "def helper", "nothing else"),
    "import below": ("    # last remark\n", "import os\n", "def double", "nothing else"),
    "empty exercise": ("# %% [markdown]\n# The end.", "# %% exercise\n", -1, "empty cell"),
    "no docstring of the entry": ('    """Adds up."""\n\n', "", "class Tally", "docstring"),
    "no valid Python": ("return x * factor", "return x *", "return x *", "valid Python"),
    "no valid Python in a plain cell": ('print("an', 'print("an" if ', 'print("an" if', "valid Python"),
    "body beside its header": (
        '        return "tally"',
        '        return "tally"\n\n    def one(self): return 1',
        "def one",
        "of their own",
    ),
    "code in a class": ("    start: float = 0.0  # where it begins", "    start = 0.0", "start = 0.0", "into a method"),
    "twice": (
        "# %% [markdown]\n# The end.",
        '# %% exercise\ndef double(x):\n    """Again."""\n    return x\n\n# %%\ncheck(double)',
        "def double(x):",
        "line 18 holds it too",
    ),
    "missing": ("# %% exercise\nclass Tally:", "# %%\nclass Another:", 1, "lacks Tally"),
    "text before the first cell": (
        "# %% [markdown]\n# # Toys",
        "import os\n# %% [markdown]\n# # Toys",
        2,
        "begin with a line",
    ),
    "cell start inside a string": ('print("an', 'x = """\n# %% hm\n"""\nprint("an', 1, "inside a string"),
    "raw cell": ("# %% [markdown]\n# The end.", "# %% [raw]\n# The end.", "# %% [raw]", "code or [markdown]"),
    "solution is wrong": (
        "* math.sqrt(1.0)",
        "* math.sqrt(4.0)",
        "import torch",
        "scored 0 of 3 (failed: doubled_right)",
    ),
    "solution is a known mistake": ("x * factor", "x * x", "import torch", "diagnosed as _wrong_double"),
    "solution raises": ("* math.sqrt(1.0)", "* numbers.one", "import torch", "NameError: name 'numbers'"),
    "cell cannot be run": ("# Above the function.", "@undefined", "import torch", "NameError: name 'undefined'"),
    "import that fails": ("import math", "import no_such_toy", "# %matplotlib", "ModuleNotFoundError"),
    "stub that passes": (
        "# Above the function.",
        "@(lambda f: lambda x: x * 2)",
        "import torch",
        "scored 3 of 3; what",
    ),
    "stub that does not raise": ("# Above the function.", "@(lambda f: lambda x: 0)", "import torch", "must score 0"),
}


def _line(text: str, where: str | int) -> int:
    """The number of the first line that contains `where`, or of that line."""
    lines = text.rstrip("\n").split("\n")
    if isinstance(where, int):
        return where % (len(lines) + 1)
    return min(number for number, line in enumerate(lines, 1) if where in line)


@pytest.mark.parametrize("name", MISTAKES)
def test_author_is_told_file_and_line_of(name, tmp_path):
    old, new, where, sentence = MISTAKES[name]
    text = _edited(old, new)
    if name == "missing":
        text = text.replace("\n# %%\ncheck(Tally)\n", "")
    with pytest.raises(AuthorError) as error:
        build(_course(tmp_path, text))
    assert sentence in str(error.value)
    assert str(error.value).startswith(f"solutions/07_toys.py:{_line(text, where)}: ")


def test_methods_may_go_without_a_docstring(tmp_path):
    assert build(_course(tmp_path, _edited('        """What it is called."""\n', ""))).lessons == ("07_toys",)


@pytest.mark.parametrize(
    ("name", "sentence"), [("07_toyz.py", "did you mean `toys`"), ("toys.py", "must be named 07_toys.py")]
)
def test_lesson_must_be_named_after_its_unit(name, sentence, tmp_path):
    with pytest.raises(AuthorError, match=sentence):
        build(_course(tmp_path, name=name))


def test_exercise_of_another_unit_is_told(tmp_path):
    with pytest.raises(AuthorError, match=r"08_dolls.py:18: `double` must stand in the lesson of unit toys"):
        build(_course(tmp_path, name="08_dolls.py"))


def test_names_inside_functions_and_classes_are_free(tmp_path):
    free = "class Demo:\n    def double(self): pass\n    Tally = 1\n\ndef show():\n    double = 1\n    return double\n"
    assert build(_course(tmp_path, _edited('print("an experiment")', free))).lessons == ("07_toys",)


def test_where_there_is_no_lesson_a_sentence_says_so(tmp_path):
    with pytest.raises(ReleaseError, match="must hold lessons"):
        build(tmp_path)


def test_mistake_leaves_all_files_as_they_were(tmp_path):
    root = _course(tmp_path, _edited("x * factor", "x * x"))
    with pytest.raises(AuthorError):
        build(root)
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["07_toys.py"]


# --- numbers in prose ------------------------------------------------------------------------------

NUMBERS = '''\
"""Numbers of the toys."""

GIVEN = {"77": "the age of the toymaker"}


def worst() -> float:
    """The worst toy."""
    return 2 / 3
'''


def _toys_saying(tmp_path, text: str, numbers: str = "") -> Path:
    """A course whose lesson says `text` in its first cell, with this module of numbers."""
    (tmp_path / "solutions" / "numbers").mkdir(parents=True, exist_ok=True)
    (tmp_path / "solutions" / "numbers" / "toys.py").write_text(numbers)
    code = "import math\n\ndrawn = [0.25, 1_500]"
    lesson = _edited("Text of the lesson.", text.replace("\n", "\n# ")).replace("import math", code, 1)
    return _course(tmp_path, lesson)


def _said(root: Path) -> str:
    build(root, with_sheets=False)
    return _notebook((root / "notebooks/07_toys.ipynb").read_bytes()).cells[0].source.partition("\n")[2]


def test_expression_is_written_as_its_value(tmp_path):
    said = "{{ worst() : .2f }} of {{ spelled(3 *\nround(worst())) }}, {{ worst() : .0%}}, ${{ worst() : .1f }}$."
    root = _toys_saying(tmp_path, said, NUMBERS.replace('"77": "the age of the toymaker"', ""))
    assert _said(root) == "0.67 of three, 67%, $0.7$."


def test_a_count_is_spelled_up_to_twelve(tmp_path):
    counts = " ".join(f"{{{{ spelled({count}) }}}}" for count in (0, 12, 13, 1500, -1))
    assert _said(_toys_saying(tmp_path, counts)) == "zero twelve 13 1,500 -1"


def test_workload_comes_from_the_syllabus(tmp_path):
    assert _said(_toys_saying(tmp_path, "{{ workload(reading=11, sittings=2) }}")) == (
        "The exercises take about 5 minutes, reading and experiments about 11: two sittings of about 8 minutes. "
        "The bonus exercise adds 10 minutes."
    )


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("{{ best() }}", "`{{ best() }}` must give a number, but: NameError"),
        ("{{ worst() / 0 : .2f }}", "ZeroDivisionError"),
        ("{{ worst() : .2q }}", "ValueError: Unknown format code"),
        ("{{ worst() }}", "a float needs a format"),
        ("{{ worst( }}", "SyntaxError"),
    ],
)
def test_expression_without_a_value_is_told(said, sentence, tmp_path):
    with pytest.raises(AuthorError) as error:
        build(_toys_saying(tmp_path, f"It is 77,\nand {said}.", NUMBERS))
    assert str(error.value).startswith("solutions/07_toys.py:4: ")
    assert sentence in str(error.value)


@pytest.mark.parametrize("numbers", ["one = 1\ntwo = one / 0", "one = 1\ntwo ="])
def test_module_of_numbers_that_does_not_run_is_told(numbers, tmp_path):
    with pytest.raises(AuthorError, match=r"^solutions/numbers/toys.py:2: it must run"):
        build(_toys_saying(tmp_path, "Text.", numbers))


@pytest.mark.parametrize(
    "said",
    [
        "Twelve is 12, this is section 14.2 or sections 13 and 14, on 13 May 2026, on a GPT-2 in float32.",
        "## 13. A heading",
        "A formula $x = 13$, another $$13\n+ 14$$, and `code = 13`.\n```text\n13\n```",
        "See [the 13](https://example.org/14) and https://example.org/14.",
        "A rate of 0.25 is 25% for 1,500 or 1500 toys.",
        "Others found 13% (Doll et al., IMA 41) and 14 (Bear 2019).",
        "- A puppet. It found 15,\n  and 16 (arXiv 1706.02677).",
        "| a | b |\n| --- | --- |\n| 13 | arXiv 1706.02677 |",
        "The toymaker is 77.",
    ],
)
def test_number_may_be_typed_where_a_reader_can_see_where_it_comes_from(said, tmp_path):
    numbers = NUMBERS if "toymaker" in said else ""
    assert _said(_toys_saying(tmp_path, said, numbers)) == said


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("It is\n13.", "13"),
        ("It is\n7%.", "7%"),
        ("It is\n1.5.", "1.5"),
        ("It is\n1,999 long.", "1,999"),
        ("It is\n4.5e-5.", "4.5e-5"),
        ("Others found 14 (Bear 2019).\n13 is ours.", "13"),
        ("In October 2024 and\nin 2025 it was 13.", "13"),
        ("- Others found 14 (Bear 2019).\n- Ours gives 13.", "13"),
        ("| 14 | arXiv 1706.02677 |\n| 13 | ours |", "13"),
    ],
)
def test_number_that_is_typed_is_told(said, number, tmp_path):
    with pytest.raises(AuthorError) as error:
        build(_toys_saying(tmp_path, said))
    assert str(error.value).startswith(f"solutions/07_toys.py:4: `{number}` is typed")


def test_reason_that_no_number_needs_is_told(tmp_path):
    with pytest.raises(AuthorError, match=r"^solutions/numbers/toys.py:3: GIVEN .* nothing needs `77`"):
        build(_toys_saying(tmp_path, "The toymaker is old.", NUMBERS))


# --- building and checking -------------------------------------------------------------------------

MADE = [
    "build/release/07_toys/07_toys.ipynb",
    "build/source/07_toys/07_toys.ipynb",
    "course/sheets/toys.safetensors.gz",
    "notebooks/07_toys.ipynb",
]


def test_build_writes_notebooks_and_sheet_and_then_nothing(tmp_path):
    root = _course(tmp_path)
    assert sorted(build(root).written) == MADE
    assert build(root).written == ()
    assert list(root.rglob("*.partial")) == []


def test_same_input_gives_the_same_bytes(tmp_path):
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        root.mkdir()
        build(_course(root))
    for name in MADE:
        assert (roots[0] / name).read_bytes() == (roots[1] / name).read_bytes(), name


def test_check_of_a_fresh_build_finds_nothing_and_writes_nothing(tmp_path):
    root = _course(tmp_path)
    build(root)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert build(root, check=True).differing == ()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_check_says_which_committed_file_differs_and_writes_the_others(tmp_path):
    root = _course(tmp_path)
    found = build(root, check=True)
    assert found.differing == (
        "notebooks/07_toys.ipynb is not what solutions/07_toys.py makes",
        "course/sheets/toys.safetensors.gz: there is no such file",
    )
    assert sorted(found.written) == MADE[:2]
    build(root)
    _course(root, _edited("# The end.", "# The very end."))
    assert build(root, check=True).differing == ("notebooks/07_toys.ipynb is not what solutions/07_toys.py makes",)


def test_check_names_a_notebook_that_no_lesson_makes(tmp_path):
    root = _course(tmp_path)
    build(root)
    (root / "notebooks/06_old.ipynb").write_text("{}")
    assert build(root, check=True).differing == ("notebooks/06_old.ipynb is made by no lesson; delete it",)


def test_damaged_sheet_is_told_and_replaced(tmp_path):
    root = _course(tmp_path)
    build(root)
    (root / MADE[2]).write_bytes(b"not a sheet")
    assert "cannot be read" in build(root, check=True).differing[0]
    assert build(root).written == (MADE[2],)


def test_equivalent_sheet_is_left_as_it_is(tmp_path):
    root = _course(tmp_path)
    build(root)
    records = sheet.from_file((root / MADE[2]).read_bytes())
    other = sheet.compressed(sheet.write("toys", _with_reference(records, lambda value: value * (1 + 2.0**-22))))
    (root / MADE[2]).write_bytes(other)
    assert build(root).written == ()
    assert (root / MADE[2]).read_bytes() == other


def test_only_what_is_not_equivalent_is_recorded_on_moved_inputs(tmp_path, monkeypatch):
    root, recorded, ways = _course(tmp_path), recording.recorded, []

    def noted(bank, *seed, moved):
        ways.append((bank.exercise.name, moved))
        return recorded(bank, *seed, moved=moved)

    monkeypatch.setattr(recording, "recorded", noted)
    build(root)
    assert ways == [("double", recording.WAYS), ("Tally", recording.WAYS)]
    ways.clear()
    records = sheet.from_file((root / MADE[2]).read_bytes())
    other = sheet.compressed(sheet.write("toys", _with_reference(records, lambda value: value * 1.01)))
    (root / MADE[2]).write_bytes(other)
    assert build(root).written == (MADE[2],)
    assert ways == [("double", 0), ("double", recording.WAYS), ("Tally", 0)]
    ways.clear()
    assert build(root, check=True).differing == ()
    assert ways == [("double", 0), ("Tally", 0)]


# --- answer sheets ---------------------------------------------------------------------------------


@pytest.fixture
def records(tmp_path):
    build(_course(tmp_path))
    return sheet.from_file((tmp_path / MADE[2]).read_bytes())


def _with_reference(records, change):
    """The records with the reference's first value changed."""
    record = records["toys.double"]
    seen = record.references[0]
    moved = dataclasses.replace(seen, values={"doubled": change(seen.values["doubled"])})
    return {**records, "toys.double": dataclasses.replace(record, references=(moved,))}


def _with_suspect(records, **changes):
    record = records["toys.double"]
    suspects = (dataclasses.replace(record.suspects[0], **changes), *record.suspects[1:])
    return {**records, "toys.double": dataclasses.replace(record, suspects=suspects)}


def _with_witness(records, **changes):
    witness = records["toys.double"].suspects[0].witnesses[0]
    return _with_suspect(records, witnesses=(dataclasses.replace(witness, **changes),))


def test_sheet_holds_every_exercise_and_misconception(records):
    assert records.keys() == {"toys.double", "toys.Tally"}
    assert [suspect.name for suspect in records["toys.double"].suspects] == ["_wrong_double", "_raises"]


def test_sheet_holds_no_line_of_anybodys_code(records):
    (raised,) = records["toys.double"].suspects[1].witnesses
    assert raised.observations[0].error == Failure(type="KeyError", message="'no such toy'")


@pytest.mark.parametrize("factor", [1.0, 1 + 2.0**-20, 1 - 2.0**-20])
def test_sheets_are_equivalent_within_the_roundings_of_the_case(records, factor):
    assert sheets_differ(records, _with_reference(records, lambda value: value * factor)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value * 1.001,
        lambda value: value[:3],
        lambda value: value.float(),
        lambda value: value * float("nan"),
        lambda value: None,
    ],
)
def test_another_value_of_the_reference_is_told(records, change):
    assert len(sheets_differ(records, _with_reference(records, change))) == 1


def test_another_name_of_a_value_is_told(records):
    other = dataclasses.replace(records["toys.double"].references[0], values={"twice": 1.0})
    changed = {**records, "toys.double": dataclasses.replace(records["toys.double"], references=(other,))}
    (sentence,) = sheets_differ(records, changed)
    assert "the values are now twice, and were doubled" in sentence


def test_lost_exercise_is_told(records):
    (sentence,) = sheets_differ(records, {"toys.double": records["toys.double"]})
    assert sentence == "the exercises are now toys.double, and were toys.Tally, toys.double"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hint": "Other."}, "its hint changed"),
        ({"fails": frozenset({"doubled_right"})}, "its fails changed"),
        ({"witnesses": ()}, "it has 0 witnesses, and had 1"),
        ({"name": "other"}, "the misconceptions are now other, _raises"),
    ],
)
def test_change_of_a_misconception_is_told(records, changes, sentence):
    (told,) = sheets_differ(records, _with_suspect(records, **changes))
    assert sentence in told


def test_other_case_is_told(records):
    record = records["toys.double"]
    case = dataclasses.replace(record.cases[0], inputs={"x": record.cases[0].inputs["x"] + 1})
    changed = {**records, "toys.double": dataclasses.replace(record, cases=(case,))}
    assert "case `four numbers`: x is another value" in sheets_differ(records, changed)[0]


def test_other_failure_of_a_witness_is_told(records):
    seen = records["toys.double"].suspects[0].witnesses[0].observations[0]
    broken = dataclasses.replace(seen, error=Failure(type="ValueError", message=""))
    (told,) = sheets_differ(records, _with_witness(records, observations=(broken,)))
    assert told == "toys.double: misconception _wrong_double: run 0 shows something else"


def test_witness_may_move_by_its_own_sensitivity(records):
    seen = records["toys.double"].suspects[0].witnesses[0].observations[0]
    moved = (dataclasses.replace(seen, values={"doubled": seen.values["doubled"] * 1.0005}),)
    blur = ({"doubled": 0.001},)
    sharp, blurred = _with_witness(records), _with_witness(records, sensitivity=blur)
    moved_sharp = _with_witness(records, observations=moved)
    moved_blurred = _with_witness(records, observations=moved, sensitivity=blur)
    assert sheets_differ(blurred, moved_blurred) == []
    assert [
        len(sheets_differ(*pair)) for pair in [(sharp, moved_sharp), (blurred, moved_sharp), (sharp, moved_blurred)]
    ] == [1] * 3


def test_other_message_of_a_witness_that_always_breaks_is_told(records):
    seen = records["toys.double"].suspects[1].witnesses[0].observations[0]
    reworded = dataclasses.replace(seen, error=dataclasses.replace(seen.error, message="'nothing of that name'"))
    record = records["toys.double"]
    witness = dataclasses.replace(record.suspects[1].witnesses[0], observations=(reworded,))
    suspects = (record.suspects[0], dataclasses.replace(record.suspects[1], witnesses=(witness,)))
    changed = {**records, "toys.double": dataclasses.replace(record, suspects=suspects)}
    (told,) = sheets_differ(records, changed)
    assert told == "toys.double: misconception _raises: run 0 breaks with another message"


def test_free_value_of_a_witness_may_be_any(records):
    seen = records["toys.double"].suspects[0].witnesses[0].observations[0]
    moved = dataclasses.replace(seen, values={"doubled": seen.values["doubled"] + 9})
    free = (frozenset({"doubled"}),)
    before, now = _with_witness(records, free=free), _with_witness(records, free=free, observations=(moved,))
    assert sheets_differ(before, now) == []
    assert "run 0 shows something else" in sheets_differ(records, now)[0]


def test_overflow_of_a_witness_may_come_at_another_place(records):
    seen = records["toys.double"].suspects[0].witnesses[0].observations[0]
    first, second = (
        _with_witness(records, observations=(dataclasses.replace(seen, values={"doubled": torch.tensor(values)}),))
        for values in ([1.0, float("inf")], [float("nan"), 1.0])
    )
    assert sheets_differ(first, second) == []


@pytest.mark.slow
def test_the_exercise_that_authors_read_is_built_and_proven(tmp_path):
    for part in ("course", "autograder", "solutions", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    row, *files, cells = re.findall(r"^```(?:text|python)\n(.+?)^```$", AUTHORS, re.DOTALL | re.MULTILINE)[:5]
    assert len(files) == 3
    for text in files:
        (tmp_path / text.split(": ")[0].removeprefix("# ")).write_text(text)
    syllabus_file, lesson = tmp_path / "course/syllabus.py", tmp_path / "solutions/00_start_here.py"
    first = '("running_mean", 5, 1),\n'
    syllabus_file.write_text(syllabus_file.read_text().replace(first, first + row, 1))
    lesson.write_text(lesson.read_text() + "\n" + cells)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    _ran(tmp_path, environment, "autograder", "build", "00_start_here")
    said = _ran(tmp_path, environment, "autograder", "prove", "soft_sign", "--seeds", "2")
    assert "def soft_sign(x):" in (tmp_path / "notebooks/00_start_here.ipynb").read_text()
    assert ": 28 runs, 0 misses" in said
