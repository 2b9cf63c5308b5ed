"""Checking a notebook from the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course import cli
from course.cli import app
from course.errors import CourseError, UnknownExercise
from course.exercises import load
from course.notebook.from_file import answers

RIGHT = "def running_mean(xs):\n    return [sum(xs[: i + 1]) / (i + 1) for i in range(len(xs))]"
STUB = 'def running_mean(xs):\n    raise NotImplementedError("start_here.running_mean")'


def write(path: Path, *sources: str) -> Path:
    """A notebook with one answer cell and cells before it."""
    plain = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources[:-1]]
    ours = {"hpml": {"exercise": "start_here.running_mean", "role": "answer"}}
    cells = [*plain, {"cell_type": "code", "metadata": ours, "source": sources[-1].splitlines(keepends=True)}]
    path.write_text(json.dumps({"cells": cells}))
    return path


def test_what_stands_above_the_check_cell_counts_and_what_stands_below_does_not(tmp_path: Path) -> None:
    path = write(tmp_path / "n.ipynb", RIGHT.replace("sum", "add"))
    book = json.loads(path.read_text())
    check = {"hpml": {"exercise": "start_here.running_mean", "role": "check"}}
    rest = (("add = sum", {}), ("check(running_mean)", check), ("add = max", {}))
    book["cells"] += [{"cell_type": "code", "metadata": metadata, "source": source} for source, metadata in rest]
    path.write_text(json.dumps(book))
    assert answers(path)["running_mean"].answer([1.0, 3.0]) == [1.0, 2.0]


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", *map(str, arguments)])
    return done.exit_code, done.output


def test_full_marks_exit_with_0(tmp_path: Path) -> None:
    code, said = run(write(tmp_path / "n.ipynb", RIGHT))
    points = load("running_mean").points
    assert (code, f"{points} of {points} points" in said) == (0, True)


def test_an_untouched_answer_exits_with_1(tmp_path: Path) -> None:
    code, said = run(write(tmp_path / "n.ipynb", STUB), "running_mean")
    assert (code, "not attempted" in said) == (1, True)


def test_an_exercise_that_the_notebook_lacks_exits_with_1(tmp_path: Path) -> None:
    code, said = run(write(tmp_path / "n.ipynb", RIGHT), "backward")
    assert (code, "backward: it must be in the notebook, whose exercises are running_mean;" in said) == (1, True)


def test_cells_that_no_answer_needs_are_not_run(tmp_path: Path) -> None:
    assert run(write(tmp_path / "n.ipynb", "raise SystemExit('a demonstration')", RIGHT))[0] == 0


def test_an_answer_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    code, said = run(write(tmp_path / "n.ipynb", "def running_mean(xs)\n    return xs"))
    assert (code, "SyntaxError" in said) == (1, True)


NO_METADATA = '{"cells": [{"cell_type": "code", "source": "", "metadata": null}]}'


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": [{}]}', '{"cells": 3}', NO_METADATA, "[" * 100_000])
def test_another_file_is_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(text)
    with pytest.raises(CourseError, match="must be a notebook"):
        answers(path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_refused_unread(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "n.ipynb")
    with pytest.raises(CourseError, match="but is a folder, a pipe or a device"):
        answers(tmp_path / "n.ipynb")


def test_a_name_that_no_file_can_have_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"must be a notebook .*, but: OSError: .*File name too long"):
        answers(tmp_path / ("a" * 300 + ".ipynb"))


def test_an_error_of_the_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    def closed() -> None:
        raise PermissionError(13, "Permission denied", "notebooks")

    monkeypatch.setattr(cli, "app", closed)
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err == "course: [Errno 13] Permission denied: 'notebooks'\n"


def test_a_notebook_without_exercises_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text('{"cells": []}')
    with pytest.raises(CourseError, match="no cell of it holds an exercise"):
        answers(path)


def test_a_misspelt_exercise_names_the_nearest(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(write(tmp_path / "n.ipynb", RIGHT)), "runing_mean"])
    assert isinstance(done.exception, UnknownExercise)
    assert "did you mean `running_mean`?" in str(done.exception)
