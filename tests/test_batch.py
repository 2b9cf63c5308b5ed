"""A batch: what is stopped, full, locked or unreadable costs nobody else a grade."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import stat
from collections import Counter
from pathlib import Path

import pytest
from batch_room import STUDENTS, made, outcome, scores, stop_at, undisturbed
from nbgrader.api import InvalidEntry
from small_class import ASSIGNMENT, NAMES, hand_in, notebook, release
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from toy_judge import Nowhere, ToyJudge

from autograder.engine.grade import sanitize, untouched
from autograder.engine.record import read_file, show
from autograder.engine.stopping import Stopped
from autograder.nbgrader_bridge import How, Watcher, batch, grade, recorder, results
from autograder.nbgrader_bridge.config import course_directory
from autograder.nbgrader_bridge.gradebook import open_gradebook
from autograder.nbgrader_bridge.locks import is_locked
from autograder.nbgrader_bridge.log import logged
from autograder.nbgrader_bridge.recorder import Recorder
from autograder.report import page
from autograder.sandbox.wire import policy
from course.errors import CourseError


@pytest.fixture
def room(tmp_path):
    """A class of six."""
    return made(tmp_path)


# --- stopping ----------------------------------------------------------------------


def test_ctrl_c_keeps_what_is_recorded_and_the_next_run_goes_on(room):
    stop_at(room, "dan")
    assert [each.student for each in room.told] == ["ann", "bob", "cid"]
    assert len(room.grade().students) == 6
    assert [each.student for each in room.told] == [*STUDENTS[:3], *STUDENTS[4:], "dan"]


def test_ctrl_c_while_a_submission_is_recorded_waits_until_it_is_whole(room, monkeypatch):
    write = Recorder._write_part

    def interrupted(self, graded):
        os.kill(os.getpid(), signal.SIGTERM)
        return write(self, graded)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "_write_part", interrupted)
        with pytest.raises(Stopped) as stopped:
            room.grade()
    assert stopped.value.number == signal.SIGTERM
    assert room.notebook("ann").exists()
    room.grade()
    assert room.calls() == Counter(STUDENTS)


def test_afterwards_signals_mean_what_they_meant(room):
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    room.grade()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_class_in_a_folder_that_students_code_sees_is_refused(room, monkeypatch):
    monkeypatch.setattr(policy, "SYSTEM", (str(room.root.parent),))
    with pytest.raises(CourseError, match=r"where students' code cannot read it, got .*: move it"):
        grade(room.root, ASSIGNMENT)
    assert not (room.root / "autograded").exists()


# --- judges ----------------------------------------------------------------------


@pytest.mark.usefixtures("forked_judges")
def test_of_two_judges_one_that_dies_fails_its_submission_and_all_others_have_the_grades_of_one_judge(room):
    room.grade(seed=6)
    before = room.calls()
    result = room.grade(seed=7, jobs=2, toy=room.toy(dies=frozenset({"cid"})))
    cid = outcome(result).pop("cid")
    assert (cid.score, cid.needs_review) == (0, True)
    assert "3 processes died that graded it" in cid.failed
    assert {**outcome(result), "cid": None} == {**undisturbed(), "cid": None}
    assert room.calls() - before == Counter({**dict.fromkeys(STUDENTS, 1), "cid": 3})


def test_one_submission_is_graded_here_however_many_judges_there_may_be(room, monkeypatch):
    monkeypatch.delattr(batch, "spread")
    assert scores(room.grade(students=["ann"], seed=7, jobs=2))["ann"] == undisturbed()["ann"].score


def test_a_slip_of_ours_is_a_failure_with_a_reason(room):
    result = room.grade(toy=room.toy(breaks=frozenset({"cid"})))
    assert outcome(result)["cid"].failed == "ZeroDivisionError: a slip of ours"
    assert "in judge" in (room.root / "grading.log").read_text()


# --- the disk, the database, the files ----------------------------------------------------------------------


def full_for(student: str):
    """A `_write_part` that finds no space for one student."""
    write = Recorder._write_part

    def full(self, graded):
        if graded.student == student:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.ipynb.part")
        return write(self, graded)

    return full


def test_a_full_disk_costs_only_what_could_not_be_written(room, monkeypatch):
    room.grade()
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "_write_part", full_for("cid"))
        result = room.grade(seed=7)
    cid = outcome(result)["cid"]
    assert (cid.score, cid.failed) == (0, "No space left on device: a.ipynb.part")
    assert [each.student for each in result.students if each.failed] == ["cid"]
    room.grade(resume=True)
    assert room.calls() == Counter([*STUDENTS, *STUDENTS, "cid"])


def test_a_gradebook_on_a_full_disk_is_told_as_such(room, monkeypatch):
    room.grade()
    save = recorder.books.save

    def full(gradebook, *given):
        pages = gradebook.db.execute(text("PRAGMA page_count")).scalar_one()
        gradebook.db.execute(text(f"PRAGMA max_page_count = {pages}"))
        gradebook.update_or_create_student("x", first_name="x" * 100_000)
        save(gradebook, *given)

    monkeypatch.setattr(recorder.books, "save", full)
    (failed,) = {each.failed for each in room.grade().students}
    assert failed == "the gradebook: database or disk is full"


def test_an_error_of_the_disk_without_a_number_is_told_by_its_words(room):
    room.grade(students=["ann"])
    folder = room.notebook("ann").parent
    folder.rename(room.root / "elsewhere")
    folder.symlink_to(room.root / "elsewhere")
    assert outcome(room.grade(students=["ann"]))["ann"].failed == "Cannot call rmtree on a symbolic link"


def test_a_full_disk_leaves_no_half_notebook(room, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(recorder.os, "fsync", full)
    with pytest.raises(CourseError, match="No space left"):
        room.grade()  # not even the journal can begin
    assert not room.notebook("ann").exists()


@pytest.mark.parametrize("kind", ["no database", "a folder"])
def test_a_gradebook_that_cannot_be_opened_is_told_in_one_sentence(room, kind):
    path = room.root / "gradebook.db"
    path.unlink(missing_ok=True)
    path.mkdir() if kind == "a folder" else path.write_text("no database " * 99)
    with pytest.raises(CourseError, match=r"^the gradebook sqlite:.* must be a database that can be opened, but: "):
        room.grade()
    assert path.is_dir() or path.read_text() == "no database " * 99


def test_a_database_that_refuses_is_told_in_one_sentence(room):
    with open_gradebook(course_directory(room.root)[0]):
        pass  # which makes it
    with sqlite3.connect(room.root / "gradebook.db") as book:
        book.execute("CREATE TRIGGER full BEFORE INSERT ON assignment BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    with pytest.raises(CourseError, match=r"^the gradebook: .*disk is full; when that is mended, "):
        room.grade()


MISCONFIGURED = {
    "c = (": r"must be a configuration that nbgrader takes, but: SyntaxError: '\(' was never closed",
    "c.CourseDirectory.db_url = nope": "NameError: name 'nope' is not defined",
    "import sys; sys.exit('no')": "SystemExit: no",
    "c.CourseDirectory.db_url = 5": "expected a unicode string, not the int 5",
    "c.CourseDirectory.directory_structure = '{x}'": "KeyError: 'x'",
    "c.CourseDirectory.db_url = 'nonsense'": "db_url must be the address of a database .* but: Could not parse",
    "c.CourseDirectory.db_url = 'mysql://x/y'": "db_url must be .* whose driver is installed, but: No module named",
    "c.CourseDirectory.db_url = 'foo://x/y'": "db_url must be .* but: Can't load plugin",
    "c.AssignLatePenalties.plugin_class = 'no.such.Plugin'": "'no.such.Plugin' could not be imported; mend it",
}


@pytest.mark.parametrize("line", MISCONFIGURED)
def test_a_configuration_that_nbgrader_does_not_take_is_told_in_one_sentence(room, line):
    (room.root.parent / "nbgrader_config.py").write_text(f"c = get_config()\n{line}")
    with pytest.raises(CourseError, match=MISCONFIGURED[line]):
        room.grade()


def test_a_folder_that_is_not_there_is_told_and_not_made(tmp_path):
    with pytest.raises(CourseError, match=r"^the folder of the course must be there, but .*/slip/build is not: "):
        grade(tmp_path / "slip" / "build", ASSIGNMENT)
    assert not any(tmp_path.iterdir())


@pytest.fixture
def impatient(room):
    """A gradebook for which nobody waits long."""
    url = f"sqlite:///{room.root}/gradebook.db?timeout=0.1"
    (room.root.parent / "nbgrader_config.py").write_text(f"get_config().CourseDirectory.db_url = {url!r}")
    return room


class Locker(ToyJudge):
    """Locks the gradebook while the second submission is graded, and never again."""

    def judge(self, task):
        graded = super().judge(task)
        if task.submission.student == "bob":
            LOCKS.append(sqlite3.connect(self.notes.parent / "build" / "gradebook.db"))
            LOCKS[-1].execute("BEGIN IMMEDIATE")
        return graded


LOCKS: list[sqlite3.Connection] = []


def test_a_gradebook_that_stays_locked_costs_the_submissions_of_that_time(impatient):
    def unlock(graded):
        if LOCKS and graded.student == "cid":
            LOCKS.pop().close()

    watcher = Watcher(said=impatient.said.append, told=unlock)
    how = How(work=Locker(release(), impatient.root.parent / "notes"), patience=0.0)
    result = grade(impatient.root, ASSIGNMENT, None, None, Nowhere(), how=how, watcher=watcher)
    failed = {each.student: each.failed for each in result.students if each.failed}
    assert sorted(failed) == ["bob", "cid"]
    assert all("must not stay locked" in why for why in failed.values())


def test_a_gradebook_that_is_locked_for_a_while_is_waited_for(impatient):
    def said(sentence):
        impatient.said.append(sentence)
        LOCKS.pop().close()

    how = How(work=Locker(release(), impatient.root.parent / "notes"), patience=60.0)
    result = grade(impatient.root, ASSIGNMENT, None, None, Nowhere(), how=how, watcher=Watcher(said=said))
    assert not any(each.failed for each in result.students)
    assert impatient.said == ["the gradebook is locked by another program: waiting for it, 60 s at most"]


def test_a_gradebook_that_is_locked_when_it_is_opened_is_waited_for(impatient, monkeypatch):
    def register(*given):
        registered(*given)
        LOCKS.append(sqlite3.connect(impatient.root / "gradebook.db"))
        LOCKS[-1].execute("BEGIN EXCLUSIVE")

    registered = batch.books.register
    monkeypatch.setattr(batch.books, "register", register)
    how = How(work=impatient.toy(), patience=60.0)
    result = grade(
        impatient.root, ASSIGNMENT, how=how, runner=Nowhere(), watcher=Watcher(said=lambda _: LOCKS.pop().close())
    )
    assert not any(each.failed for each in result.students)


@pytest.mark.parametrize(
    ("said", "locked"),
    [
        ("database is locked", True),
        ("canceling statement due to lock timeout\nCONTEXT:  while it", True),
        ("database or disk is full", False),
        ("duplicate key\nDETAIL:  Key (id)=(is locked) already exists.", False),
    ],
)
def test_what_a_database_was_given_is_not_taken_for_what_it_says(said, locked):
    comment = "linear_vjp: RuntimeError: the file is locked"
    assert is_locked(OperationalError("UPDATE comment SET ...", (comment,), sqlite3.OperationalError(said))) is locked
    assert is_locked(InvalidEntry(f"(sqlite3.OperationalError) {said}")) is locked


def test_a_folder_that_cannot_be_written_fails_its_student_alone(room):
    (room.root / "autograded").mkdir()
    (room.root / "autograded" / "bob").write_text("a file where a folder should be")
    failed = {each.student: each.failed for each in room.grade().students if each.failed}
    assert list(failed) == ["bob"]
    assert failed["bob"] == f"Not a directory: {ASSIGNMENT}"


def test_what_cannot_be_read_is_graded_as_untouched_with_the_reason(room):
    folder = room.root / "submitted"
    (folder / "bob" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb").unlink()
    os.mkfifo(folder / "bob" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb")
    os.mkfifo(folder / "ann" / ASSIGNMENT / "timestamp.txt")
    for student in ("bob", "cid"):
        (folder / student / ASSIGNMENT / "submission_secret.txt").write_text("secret")
    (folder / "cid" / ASSIGNMENT).rename(folder / "elsewhere")
    (folder / "cid" / ASSIGNMENT).symlink_to(folder / "elsewhere")
    result = outcome(room.grade(work=real_judge(), students=["ann", "bob", "cid"]))
    assert result["bob"].problem == f"{ASSIGNMENT}.ipynb must be a regular file"
    assert result["cid"].problem == "the folder must not be a link"
    assert result["ann"].repairs == (recorder.NO_TIME,)
    beside = [(room.notebook(student).parent / "submission_secret.txt").exists() for student in ("bob", "cid")]
    assert beside == [True, False]  # a link may lead to what belongs to another student


ODD = {
    "Lösung.ipynb".encode("latin-1"): "L?sung.ipynb",
    b"\xff\xfe\n\x1b[31m.ipynb": "????[31m.ipynb",
    b"y" * 200 + b".ipynb": "y" * 80 + "...",
}


@pytest.mark.parametrize(("name", "shown"), ODD.items())
def test_whatever_a_file_is_called_it_is_graded_as_untouched(room, name, shown):
    folder = room.root / "submitted" / "ann" / ASSIGNMENT
    os.rename(folder / f"{ASSIGNMENT}.ipynb", os.fsencode(folder) + b"/" + name)
    ann = outcome(room.grade(work=real_judge(), students=["ann"]))["ann"]
    assert (ann.failed, ann.problem) == ("", f"the file must be called {ASSIGNMENT}.ipynb, found {shown}")


def test_what_lies_in_the_place_of_a_submission_is_told(room):
    for name in ("dot", "a\nb"):
        (room.root / "submitted" / name).mkdir()
    (room.root / "submitted" / "a\nb" / ASSIGNMENT).mkdir()
    (room.root / "submitted" / "dot" / ASSIGNMENT).write_text("{}")
    room.grade(students=["ann"])
    assert room.said == [
        "a student's folder must have a printable name, got 'a\\nb': rename it, it was left out",
        f"dot/{ASSIGNMENT} must be a folder with the notebook in it, but is a file: dot was left out",
    ]
    log = (room.root / "grading.log").read_text()
    assert all(log.count(told) == 1 for told in room.said)


@pytest.fixture
def closed(room, monkeypatch):
    """A class in which bob's folder and that of cid's submission are closed to who grades, even to root."""
    shut = [room.root / "submitted" / "bob", room.root / "submitted" / "cid" / ASSIGNMENT]

    def walled(call):
        def look(path, *given, **named):
            found = Path(os.fsdecode(path)) if isinstance(path, (str, os.PathLike)) else Path()
            if any(each in found.parents for each in shut) or (call is listed and found in shut):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return call(path, *given, **named)

        return look

    listed = os.listdir
    for name in ("stat", "lstat", "open", "listdir", "scandir"):
        monkeypatch.setattr(os, name, walled(getattr(os, name)))
    return room


WHY_BOB = f"bob/{ASSIGNMENT} must be a folder that can be entered, but: Permission denied; bob was left out"


def test_who_may_not_be_looked_at_is_told(closed):
    result = outcome(closed.grade(work=real_judge()))
    assert (closed.said, "bob" in result) == ([WHY_BOB], False)
    assert result["cid"].problem == "the folder cannot be read: Permission denied"
    with pytest.raises(CourseError, match=rf"^{WHY_BOB}$"):
        closed.grade(students=["bob"])


def test_a_folder_that_is_closed_meanwhile_costs_its_student_alone(closed, monkeypatch):
    monkeypatch.setattr(batch.submitted, "students", lambda *given: ["ann", "bob"])
    result = outcome(closed.grade(work=real_judge()))
    assert [result[name].problem for name in ("ann", "bob")] == ["", "the folder cannot be read: Permission denied"]


def real_judge():
    """The engine, which has nothing to run where nothing can be read or everything is untouched."""

    class Reads(ToyJudge):
        def judge(self, task):
            student, problem = task.submission.student, sanitize(task.submission, self.release).problem
            return untouched(student, self.release, Nowhere(), problem=problem, seed=task.seed)

    return Reads(release(), Path(os.devnull))


def damaged(change):
    """The bytes of a graded notebook after a change."""

    def spoil(data: bytes) -> bytes:
        book = json.loads(data)
        change(book, book["metadata"]["hpml"]["grading"])
        return json.dumps(book).encode()

    return spoil


def spoilt_verdicts(**fields):
    """Other fields in each verdict."""

    def change(book, _):
        for verdict in filter(None, (cell["metadata"].get("hpml", {}).get("verdict") for cell in book["cells"])):
            verdict["$dict"].update(fields)

    return damaged(change)


DAMAGES = {
    "no JSON": lambda data: data[:500],
    "no object": lambda data: b"[1]",
    "deep": lambda data: b"[" * 200_000,
    "no cells": damaged(lambda book, _: book.pop("cells")),
    "no metadata": damaged(lambda book, _: book.pop("metadata")),
    "cells of numbers": damaged(lambda book, _: book.update(cells=[1])),
    "a cell without metadata": damaged(lambda book, _: book["cells"][0].pop("metadata")),
    "metadata of text": damaged(lambda book, _: book["metadata"].update(hpml="x")),
    "a repair of numbers": damaged(lambda _, grading: grading.update(repairs=[5])),
    "a problem of numbers": damaged(lambda _, grading: grading.update(problem=5)),
    "a runner of numbers": damaged(lambda _, grading: grading.update(runner=5)),
    "seconds of text": damaged(lambda _, grading: grading.update(seconds="x")),
    "findings of numbers": spoilt_verdicts(findings=[5]),
    "points of text": spoilt_verdicts(points="x"),
    "a misconception of numbers": spoilt_verdicts(diagnosis={"$dict": {"name": 5, "hint": ""}}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_graded_notebook_that_was_damaged_is_read_as_none(tmp_path, damage):
    graded, path = untouched("ann", release(), Nowhere(), seed=3), tmp_path / "a.ipynb"
    path.write_text(json.dumps(show(graded)))
    assert read_file("ann", path).verdicts == graded.verdicts
    path.write_bytes(damage(path.read_bytes()))
    assert read_file("ann", path) is None


@pytest.mark.parametrize("damage", [DAMAGES["deep"], DAMAGES["a runner of numbers"]])
def test_a_graded_notebook_that_was_damaged_keeps_nobody_from_the_report_and_is_graded_again(room, damage):
    before = room.grade(students=["ann", "bob"])
    room.notebook("ann").write_bytes(damage(room.notebook("ann").read_bytes()))
    found = results(room.root, ASSIGNMENT)
    page.to_html(found)
    assert (outcome(found)["ann"].failed, outcome(found)["bob"]) == (
        "the graded notebook is missing or damaged: grade again",
        outcome(before)["bob"],
    )
    room.grade(students=["ann", "bob"], resume=True)
    assert room.calls() == Counter({"ann": 2, "bob": 1})


# --- the gradebook ----------------------------------------------------------------------


def test_a_regrade_takes_back_the_old_feedback(room):
    page = room.root / "feedback" / "cid" / ASSIGNMENT / f"{ASSIGNMENT}.html"
    page.parent.mkdir(parents=True)
    page.write_text("Score: 7")
    room.grade(work=real_judge(), students=["bob"])
    assert page.exists()
    room.grade(work=real_judge(), students=["cid"])
    assert not page.exists()


def test_a_regrade_clears_old_scores_before_it_grades_and_keeps_what_people_gave(room):
    room.grade()
    place = (ASSIGNMENT, ASSIGNMENT, "cid")
    with room.gradebook() as book:
        book.find_grade(f"check_{NAMES[0]}", *place).manual_score = 3.0
        book.find_grade(f"check_{NAMES[1]}", *place).extra_credit = 1.0
        book.find_comment(NAMES[2], *place).manual_comment = "See me."
        book.db.commit()
    stop_at(room, "cid")
    with room.gradebook() as book:
        grades = [book.find_grade(f"check_{name}", *place) for name in NAMES]
        assert [each.auto_score for each in grades] == [None, None, None]
        assert (grades[0].manual_score, grades[1].extra_credit) == (3.0, 1.0)
        assert book.find_comment(NAMES[2], *place).comment == "See me."
    assert not room.notebook("cid").exists()
    cid = outcome(room.grade())["cid"]
    assert cid.exercises[0].score == 3.0
    assert cid.exercises[1].score == cid.exercises[1].verdict.points + 1.0


def test_a_submission_is_in_the_gradebook_as_a_whole_or_not_at_all(room, monkeypatch):
    def breaks(*arguments):
        raise ValueError("the plugin broke")

    monkeypatch.setattr(recorder._Penalties, "charge", breaks)
    failed = {each.failed for each in room.grade().students}
    assert failed == {"ValueError: the plugin broke"}
    with room.gradebook() as book:
        assert book.assignment_submissions(ASSIGNMENT) == []
        assert book.students == []


def test_nbgraders_hooks_and_permissions_hold(room, monkeypatch):
    (room.root.parent / "nbgrader_config.py").write_text(
        "from pathlib import Path\ndef note(**names):\n    Path('hooks').write_text(str(sorted(names.items())))\n"
        "get_config().Autograde.post_convert_hook = note\nget_config().Autograde.permissions = 440\n"
    )
    monkeypatch.chdir(room.root.parent)
    room.grade(students=["ann"])
    assert "('student', 'ann')" in (room.root.parent / "hooks").read_text()
    assert stat.S_IMODE(room.notebook("ann").stat().st_mode) == 0o440


def test_nothing_is_left_beside_a_graded_notebook(room):
    hand_in(room.root, "ann", notebook(), stamp="2026-01-01 00:00:00 UTC")
    room.grade()
    left = sorted(path.name for path in room.notebook("ann").parent.iterdir())
    assert left == [f"{ASSIGNMENT}.ipynb", "timestamp.txt"]


def test_students_that_nbgraders_configuration_leaves_out_are_left_out(room):
    (room.root.parent / "nbgrader_config.py").write_text("get_config().CourseDirectory.student_id_exclude = 'ann,bob'")
    assert sorted(scores(room.grade())) == ["cid", "dan", "eve", "fay"]


def test_time_is_spent_on_one_open_gradebook(room, monkeypatch):
    opened = []
    create = recorder.books.open_gradebook
    monkeypatch.setattr(batch.books, "open_gradebook", lambda *args: opened.append(args) or create(*args))
    room.grade()
    assert len(opened) == 3  # the cells, all submissions, the results


def test_no_name_begins_an_entry_of_the_log(tmp_path):
    forged = "2026-01-01 00:00:00,000 WARNING eve: 96 points"
    with logged(tmp_path) as log:
        for line_break in ("\n", "\r", "\x0b", "\x85", "\u2028"):
            log.warning("%s: %s", "eve", f"name{line_break}{forged}")
    lines = (tmp_path / "grading.log").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith(forged[:4]) and "name" not in line] == []
    assert sum(forged in line for line in lines) == 5
