"""What is staged into the sandbox: the student side, by name, and what import contracts say of it."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from autograder.sandbox.outside import stage as staging
from autograder.sandbox.outside.stage import COURSE, GRADER, ROOMS, STUDENT_SIDE, left_out, stage

ROOT = Path(__file__).resolve().parent.parent
NAMES = {name.removesuffix(".py") for name in STUDENT_SIDE}
SHEETS = "course.sheets"  # no Python lies there, so that no contract can name it


@pytest.fixture(scope="module")
def staged(tmp_path_factory) -> Path:
    """The staged tree of this checkout."""
    to = tmp_path_factory.mktemp("staged") / "course"
    stage(to)
    return to


def listing(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"__pycache__"}


def test_exactly_the_named_folders_are_staged(staged):
    assert listing(staged) == {"course", "autograder"}
    assert listing(staged / "course") == {*STUDENT_SIDE, "notebook"}
    assert listing(staged / "autograder") == {"sandbox", "start.py", "__init__.py"}
    assert listing(staged / "autograder" / "sandbox") == {"inside", "wire", "__init__.py"}


def test_what_is_compiled_comes_along_and_tells_nobody_where_the_grader_lies(staged):
    for path in staged.rglob("*.py"):
        if path.stat().st_size:
            compiled = Path(importlib.util.cache_from_source(path)).read_bytes()
            assert os.fsencode(GRADER.parent) not in compiled
            code = SourceFileLoader("", str(path)).get_code("")
            assert code.co_filename == str(path)
            assert code == compile(path.read_bytes(), str(path), "exec", dont_inherit=True)


def test_what_is_compiled_lies_there_also_where_the_graders_own_lies_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    stage(tmp_path / "to")
    monkeypatch.undo()
    assert Path(importlib.util.cache_from_source(tmp_path / "to/course/tree.py")).is_file()


def test_the_notebooks_part_is_nothing_but_stand_ins(staged):
    ours = GRADER / "sandbox" / "inside" / "stand_ins"
    assert {path.name: path.read_bytes() for path in (staged / "course" / "notebook").glob("*.py")} == {
        path.name: path.read_bytes() for path in ours.glob("*.py")
    }


PLACES = ["course/judging", "course/reference", "course/sheets", "course/new_room", "course/notebook", "course"]
PLACES += ["autograder/sandbox/outside", "autograder/sandbox/new_room", "autograder/sandbox", "autograder/new_room"]


@pytest.mark.parametrize("place", PLACES)
def test_a_new_file_elsewhere_is_never_staged(place, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "COURSE", tmp_path / "course")
    monkeypatch.setattr(staging, "GRADER", tmp_path / "autograder")
    for name in (*(f"course/{each}" for each in STUDENT_SIDE), *(f"autograder/{each}" for each in ROOMS)):
        made = tmp_path / name
        (made.parent if made.suffix else made).mkdir(parents=True, exist_ok=True)
        (made if made.suffix else made / "ours.py").touch()
    (tmp_path / "autograder/sandbox/inside/stand_ins").mkdir()
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "secret.py").write_text("SEED = 1")
    stage(tmp_path / "to")
    assert len(list((tmp_path / "to").rglob("ours.py"))) == len(STUDENT_SIDE) - 6 + 2
    assert list((tmp_path / "to").rglob("secret*")) == []


def test_what_is_staged_imports_nothing_of_ours_that_is_not(staged):
    """Also where no import contract looks: inside of functions, under `if TYPE_CHECKING`, in the stand-ins."""
    missing = set()
    for path in staged.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name.split(".")[0] in ("course", "autograder"):
                    there = staged / name.replace(".", "/")
                    missing |= set() if there.is_dir() or there.with_suffix(".py").exists() else {name}
    assert missing == set()


# the import contracts


def contract(word: str) -> dict[str, list[str]]:
    """The contract whose name holds `word`."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (one,) = [each for each in found if word in each["name"]]
    return one


def test_the_import_contract_and_what_is_staged_are_the_same_student_side():
    sources = set(contract("nothing but the student side")["source_modules"])
    modules = {f"course.{name}" for name in NAMES if name != "__init__"}
    assert sources == modules | {"autograder.sandbox.inside", "autograder.sandbox.wire", "autograder.start"}


def test_the_import_contract_forbids_all_that_is_left_out():
    assert {*contract("nothing but the student side")["forbidden_modules"], SHEETS} == {*left_out(), "course.notebook"}
    assert importlib.util.find_spec(SHEETS).origin is None
    assert list((COURSE / "sheets").rglob("*.py")) == []


def test_the_rooms_of_the_sandbox_are_all_in_a_contract():
    assert contract("the wire knows neither")["layers"] == ["outside | inside", "wire"]
    assert {path.name for path in (GRADER / "sandbox").iterdir() if path.is_dir()} - {"__pycache__"} == {
        "outside",
        "inside",
        "wire",
    }
