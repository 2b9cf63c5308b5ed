"""The folder of a runner goes when its owner was killed, and no other folder does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from living import still_alive

from autograder.sandbox import RunnerError, open_runner, sweep
from autograder.sandbox.outside import folder
from autograder.sandbox.outside.folder import PREFIX, Folder

ROOT = Path(__file__).resolve().parents[1]
HOLD = "from autograder.sandbox.outside.folder import Folder\nprint(Folder().path, flush=True)\ninput()"
GRADE = """
from autograder.sandbox import open_runner
from course.performing.cells import CodeCell
with open_runner(trusted={trusted}) as runner:
    with runner.session([CodeCell(source="x = 1", answers="hvp")]):
        print(runner._warm._folder.path, runner._warm._process.pid, flush=True)
        input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files that nobody else uses."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return place


@contextlib.contextmanager
def another(program: str):
    """Another process that runs a program: the process, and the words it said. It is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes) as process:
        try:
            yield process, process.stdout.readline().decode().split()
        finally:
            process.kill()
            process.wait()


def test_the_next_runner_removes_the_folder_of_a_killed_owner_and_leaves_that_of_a_living_one():
    with another(HOLD) as (_, (living,)):
        with another(HOLD) as (_, (left,)):
            assert Path(left).is_dir()
        assert Path(left).is_dir()
        Folder().remove()
        assert not Path(left).exists()
        assert Path(living).is_dir()


def test_a_folder_is_removed_however_deep_it_is(temporary):
    mine = Folder()
    descend = f"import os\nos.chdir({str(mine.path)!r})\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    subprocess.run([sys.executable, "-c", descend], check=True)
    mine.remove()
    assert not list(temporary.iterdir())


def test_a_folder_of_this_process_stays_until_it_is_removed(temporary):
    mine, other = Folder(), Folder()
    sweep()
    assert set(temporary.iterdir()) == {mine.path, other.path}
    mine.remove()
    assert set(temporary.iterdir()) == {other.path}
    other.remove()
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    "trusted",
    [
        pytest.param(False, id="sandbox", marks=pytest.mark.sandbox),
        pytest.param(True, id="trusted", marks=pytest.mark.soak),
    ],
)
def test_nothing_is_left_of_a_grader_that_was_killed(trusted, temporary):
    with another(GRADE.format(trusted=trusted)) as (_, (left, warm)):
        assert Path(left).is_dir()
        assert Path(f"/proc/{warm}").exists()
    assert not still_alive([int(warm)], 30)
    sweep()
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    "name", ["hpml-runner-abc", "hpml-runner-abcdefgh9", "hpml-runner-ABCDEFGH", "my-hpml-runner-abcdefgh"]
)
def test_a_folder_of_another_name_stays(name, temporary):
    (temporary / name).mkdir()
    sweep()
    assert (temporary / name).is_dir()


def test_no_link_is_followed(temporary, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (temporary / f"{PREFIX}abcdefgh").symlink_to(tmp_path / "precious")
    sweep()
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["file"]


def test_what_lies_behind_a_link_within_stays(temporary, tmp_path):
    (tmp_path / "precious").touch()
    (temporary / f"{PREFIX}abcdefgh").mkdir()
    (temporary / f"{PREFIX}abcdefgh" / folder.OWNER).symlink_to(tmp_path / "precious")
    sweep()
    assert (temporary / f"{PREFIX}abcdefgh").is_dir()


def test_a_folder_of_another_user_stays(temporary, monkeypatch):
    (temporary / f"{PREFIX}abcdefgh").mkdir()
    monkeypatch.setattr(folder.os, "geteuid", lambda: os.getuid() + 1)
    sweep()
    assert list((temporary / f"{PREFIX}abcdefgh").iterdir()) == []


def test_an_owner_whose_folder_is_swept_before_it_is_locked_makes_another(temporary, monkeypatch):
    made = []

    def swept_at_once(**how):
        made.append(make(**how))
        if len(made) == 1:
            sweep()
        return made[-1]

    make = tempfile.mkdtemp
    monkeypatch.setattr(folder.tempfile, "mkdtemp", swept_at_once)
    mine = Folder()
    assert list(temporary.iterdir()) == [mine.path] == [Path(made[1])]
    mine.remove()


def test_a_runner_without_a_place_for_its_folder_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with open_runner(trusted=True) as runner, pytest.raises(RunnerError, match=r"must be made.*missing.*set TMPDIR"):
        runner.display(["1"])
