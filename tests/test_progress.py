"""course/notebook/progress_file.py: what was reached survives crashes, damage, and two notebooks at once."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import soak
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course.notebook import doctor, progress_file
from course.notebook.progress_file import Row, load, path, update

ROOT = Path(__file__).parent.parent
A, B = "start_here.running_mean", "computational_graphs.backward"


def more(row: Row) -> Row:
    return dataclasses.replace(row, checks=row.checks + 1)


def python(code: str) -> subprocess.Popen:
    """Another process that works on the same file."""
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom course.notebook import progress_file\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", start + code], **pipes)


def test_the_file_lies_in_the_users_data_directory(data_home):
    assert path() == data_home / "hpml-course" / "progress.json"
    assert not path().exists()


def test_nothing_was_reached_before_the_first_update():
    assert load() == {}
    assert not path().parent.exists()


def test_an_update_is_read_back():
    assert update(A, lambda row: Row(points=2, possible=3, checks=1, hints=1)) == ""
    assert load() == {A: Row(points=2, possible=3, checks=1, hints=1)}


def test_an_update_sees_the_row_before_it_and_leaves_the_others():
    for name in (A, B, A):
        update(name, more)
    assert {name: row.checks for name, row in load().items()} == {A: 2, B: 1}


def test_only_the_file_and_its_lock_are_left():
    update(A, more)
    assert sorted(each.name for each in path().parent.iterdir() if each.suffix != ".lock") == ["progress.json"]


# crashes


def test_a_failed_rename_leaves_the_old_file(monkeypatch):
    update(A, more)

    def broken(source, target):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", broken)
    assert update(A, more) == f"Progress was not saved: {path()} must be writable, but Input/output error."
    assert load()[A].checks == 1
    assert [each.name for each in path().parent.iterdir() if each.name.startswith(".progress")] == []


@pytest.mark.parametrize("moment", ["replace", soak("fsync")])
def test_a_process_killed_in_the_middle_of_a_write_leaves_the_old_file(moment):
    update(A, more)
    kill = "import os, signal\ndef die(*args): os.kill(os.getpid(), signal.SIGKILL)\n"
    change = f"progress_file.update({A!r}, lambda row: progress_file.Row(points=99))"
    with python(f"{kill}os.{moment} = die\n{change}") as process:
        assert process.wait() == -signal.SIGKILL
    assert load()[A] == Row(checks=1)
    assert update(A, more) == ""
    assert load()[A].checks == 2


def test_an_interrupt_in_the_middle_of_a_write_leaves_no_rubbish(monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        update(A, more)
    assert [each for each in path().parent.iterdir() if each.suffix != ".lock"] == []


# damage

DAMAGED = {
    "empty": "",
    "cut": '{"schema": 1, "exercises": {"a": {"poi',
    "no JSON": "progress",
    "a list": "[]",
    "null": "null",
    "no exercises": "{}",
    "exercises are a list": '{"exercises": []}',
    "a row is null": '{"exercises": {"a": null}}',
    "a row lacks a field": '{"exercises": {"a": {"points": 1}}}',
    "a text for a number": '{"exercises": {"a": {"points": "x", "possible": 1, "checks": 1, "hints": 1}}}',
    "infinite": '{"exercises": {"a": {"points": 1e999, "possible": 1, "checks": 1, "hints": 1}}}',
    "nan": '{"exercises": {"a": {"points": NaN, "possible": 1, "checks": 1, "hints": 1}}}',
    "huge": '{"exercises": {"a": {"points": ' + "9" * 5000 + "}}}",
    "deep": "[" * 10**5,
    "bytes": b"\xff\xfe\x00",
}


def _write(content: str | bytes) -> None:
    path().parent.mkdir(parents=True, exist_ok=True)
    path().write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_a_damaged_file_is_kept_beside_the_new_one(name):
    _write(DAMAGED[name])
    before = path().read_bytes()
    assert load() == {}
    note = update(A, more)
    assert note.startswith("The progress file could not be read: it is now ")
    assert load()[A].checks == 1
    assert path().with_suffix(".json.damaged").read_bytes() == before
    assert update(A, more) == ""


def test_what_was_damaged_before_is_not_lost():
    for content in ("first", "second", "third"):
        _write(content)
        assert update(A, more).startswith("The progress file could not be read: it is now ")
    names = ("progress.json.damaged", "progress.json.damaged-2", "progress.json.damaged-3")
    assert [(path().parent / name).read_text() for name in names] == ["first", "second", "third"]


@given(st.binary(max_size=60), st.integers(0, 200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_any_content_is_read_or_counts_as_damaged(junk, position):
    update(A, more)
    whole = path().read_bytes()
    _write(whole[:position] + junk + whole[position + len(junk) :])
    assert isinstance(load(), dict)
    update(A, lambda row: Row(checks=7))
    assert load()[A] == Row(checks=7)
    path().unlink()


def test_fields_of_a_later_version_are_no_damage():
    row = {"points": 1, "possible": 2, "checks": 3, "hints": 0, "new": "field"}
    _write(json.dumps({"schema": 1, "exercises": {A: row}, "more": 1}))
    assert load() == {A: Row(points=1, possible=2, checks=3)}


# two at once


def test_a_lock_that_somebody_holds_gives_a_sentence(monkeypatch):
    monkeypatch.setattr(progress_file, "LOCK_SECONDS", 0.2)
    update(A, more)
    lock = path().with_suffix(".lock")
    with python(f"with progress_file.FileLock({str(lock)!r}):\n    print('held', flush=True)\n    input()") as holder:
        assert holder.stdout.readline() == "held\n"
        note = update(A, more)
        holder.communicate("\n")
    assert note == f"Progress was not saved: another notebook has held {path()} for 0.2 s; check again."
    assert load()[A].checks == 1
    assert update(A, more) == ""


def test_reading_needs_no_lock():
    update(A, more)
    with FileLock(path().with_suffix(".lock")):
        assert load()[A].checks == 1


def test_two_processes_lose_nothing():
    step = f"note = progress_file.update({A!r}, lambda row: progress_file.Row(checks=row.checks + 1))"
    ready = "progress_file.LOCK_SECONDS = 60; print('ready', flush=True); input()"
    code = f"{ready}\nfor _ in range(50):\n    {step}\n    assert note == '', note"
    with python(code) as one, python(code) as two:
        assert [each.stdout.readline() for each in (one, two)] == ["ready\n", "ready\n"]
        for each in (one, two):
            each.stdin.write("\n")
            each.stdin.flush()
        assert [each.wait() for each in (one, two)] == [0, 0]
    assert load()[A].checks == 100


# places that cannot be written


def _refuse(monkeypatch, name: str) -> None:
    """Makes one call of the file system fail as it does where the directory is read-only."""

    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    owner = Path if name == "mkdir" else progress_file.tempfile
    monkeypatch.setattr(owner, name, refused)


@pytest.mark.parametrize("name", ["mkdir", "mkstemp"])
def test_a_directory_that_refuses_gives_a_sentence(monkeypatch, name):
    _refuse(monkeypatch, name)
    assert update(A, more) == f"Progress was not saved: {path()} must be writable, but Permission denied."
    assert load() == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_gives_a_sentence(data_home):
    data_home.mkdir()
    data_home.chmod(0o500)
    assert "must be writable, but Permission denied" in update(A, more)


def test_a_file_where_the_directory_should_be_gives_a_sentence(data_home):
    data_home.write_text("in the way")
    assert update(A, more).startswith(f"Progress was not saved: {path()} must be writable, but ")
    assert load() == {}


def closed_to(call, folder):
    """The call, to which all that lies in a folder is closed."""

    def look(path, *given, **named):
        if folder in Path(path).parents:
            raise PermissionError(13, "Permission denied", path)
        return call(path, *given, **named)

    return look


@pytest.mark.parametrize("what", ["whole", "a file above it", "a folder that takes no file", "a closed folder"])
def test_the_doctor_says_whether_progress_is_kept(what, monkeypatch, data_home):
    if what == "a file above it":
        data_home.write_text("a file")
    elif what != "whole":

        def refuses(*arguments, **options):
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(tempfile, "TemporaryFile", refuses)
    with monkeypatch.context() as patch:
        if what == "a closed folder":
            patch.setattr(os, "stat", closed_to(os.stat, data_home))
        told = doctor._progress()
    assert (told.good, "progress will not be kept" in told.says) == (
        (True, False) if what == "whole" else (False, True)
    )
    assert not path().parent.exists()


def test_a_directory_where_the_file_should_be_is_moved_aside():
    path().mkdir(parents=True)
    assert load() == {}
    assert "could not be read" in update(A, more)
    assert load()[A].checks == 1
