"""The journal: what it said is on the disk, whatever happened to the process that wrote it."""

from __future__ import annotations

import errno
import json
import os
import stat

import pytest

from autograder.engine import journal as journals
from autograder.engine.journal import BatchRun, Entry, Journal, JournalError


@pytest.fixture
def path(tmp_path):
    """Where the journal lies; its folder does not exist yet."""
    return tmp_path / ".grading" / "lesson.jsonl"


ASKED = BatchRun(began="2026-01-31T10:00:00+00:00", release="r1", drawn=2**99, students=("ann", "bob"))


def written(path, *, ended=False) -> None:
    """A run in which ann is recorded, bob failed, and cid was under way."""
    with Journal(path) as journal:
        journal.begin(ASKED)
        for seed, student in enumerate(("ann", "bob", "cid")):
            journal.start(student, Entry(digest=f"d-{student}", seed=seed))
        journal.finish("ann")
        journal.finish("bob", failed="the disk is full")
        if ended:
            journal.end()


def test_what_was_written_is_read_back(path):
    written(path)
    with Journal(path) as journal:
        assert journal.run == BatchRun(
            began=ASKED.began,
            drawn=ASKED.drawn,
            release="r1",
            students=("ann", "bob"),
            entries={
                "ann": Entry(digest="d-ann", seed=0, state="recorded"),
                "bob": Entry(digest="d-bob", seed=1, state="failed"),
                "cid": Entry(digest="d-cid", seed=2),
            },
        )


def test_a_run_that_ended_is_told_from_one_that_did_not(path):
    written(path, ended=True)
    with Journal(path) as journal:
        assert journal.run.ended
        journal.start("ann", Entry(digest="d", seed=5))
    with Journal(path) as journal:
        assert not journal.run.ended


def test_a_new_run_knows_the_seeds_of_earlier_ones(path):
    written(path)
    with Journal(path) as journal:
        journal.begin(BatchRun(began="2026-02-01T10:00:00+00:00", release="r1", drawn=1))
        journal.start("bob", Entry(digest="d", seed=9))
        assert list(journal.run.entries) == ["bob"]
    with Journal(path) as journal:
        assert {student: entry.seed for student, entry in journal.starts.items()} == {"ann": 0, "bob": 9, "cid": 2}


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_torn_last_line_is_cut_off(path, cut):
    written(path)
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path) as journal:
        assert journal.run.entries["bob"] == Entry(digest="d-bob", seed=1)
        journal.finish("bob")
    with Journal(path) as journal:
        assert journal.run.entries["bob"].state == "recorded"


def begun(**fields) -> str:
    """A line that begins a run, with these fields."""
    line = {"is": "begun", "began": ASKED.began, "release": "r", "drawn": 5, "seed": None, "repeat": False}
    return json.dumps({**line, "students": None, **fields})


@pytest.mark.parametrize(
    "line",
    [
        *("{", "[]", "[" * 200_000, '{"is": "recorded", "student": "zoe"}', '{"is": "lost", "student": "ann"}'),
        *('{"is": "started", "student": "ann", "digest": "d", "seed": "x"}', begun(began=5), begun(began="later")),
        *(begun(release=5), begun(drawn="x"), begun(seed="x"), begun(repeat="x"), begun(students=5)),
    ],
)
def test_a_damaged_line_is_named(path, line):
    written(path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(JournalError, match="line 7 is none"):
        Journal(path)


def test_a_full_disk_leaves_no_half_line(path, monkeypatch):
    written(path)
    before = path.read_bytes()

    def full(file, data):
        write(file, data[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = os.write
    with Journal(path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match="No space left"):
                journal.finish("cid")
        assert path.read_bytes() == before
        assert journal.run.entries["cid"].state == "started"
        journal.finish("cid")
    assert path.read_bytes().startswith(before)


def test_every_line_is_on_the_disk_when_the_call_returns(path, monkeypatch):
    synced = []
    monkeypatch.setattr(journals.os, "fsync", lambda file: synced.append(path.read_bytes().count(b"\n")))
    written(path)
    assert synced[1:] == [1, 2, 3, 4, 5, 6]


def test_only_its_owner_may_read_the_seeds(path):
    written(path)
    path.chmod(0o644)
    with Journal(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_cannot_grade_at_a_time(path):
    with Journal(path), pytest.raises(JournalError, match="one process may grade below"):
        Journal(path.with_name("other.jsonl"))
    with Journal(path):
        pass


def test_a_journal_that_cannot_be_written_is_one_clear_sentence(tmp_path):
    (tmp_path / ".grading").write_text("a file where the folder should be")
    with pytest.raises(JournalError, match="must be written, but: "):
        Journal(tmp_path / ".grading" / "lesson.jsonl")


def test_any_name_of_a_folder_is_a_students_id(path):
    names = ["a b", "ä\nö", os.fsdecode(b"\xff\xfe"), '"', ""]
    with Journal(path) as journal:
        journal.begin(ASKED)
        for name in names:
            journal.start(name, Entry(digest="d", seed=1))
    with Journal(path) as journal:
        assert list(journal.run.entries) == names
