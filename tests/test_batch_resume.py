"""A batch that was killed at any moment: the next run goes on, and every submission ends once, with the same grade."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from batch_room import STUDENTS, Class, made, outcome, run_killed, seeds, stop_at, undisturbed
from small_class import ASSIGNMENT, find, hand_in, notebook

from autograder.engine.journal import Journal
from course.errors import CourseError


@pytest.fixture
def room(tmp_path, fork_server):
    """A class of six."""
    return made(tmp_path)


# --- a kill at any moment ----------------------------------------------------------------------


# Where a run is killed: a function, and which call of it.
MOMENTS = {
    "begin": ("autograder.engine.journal:Journal", "begin", 1),
    "clear": ("autograder.nbgrader_bridge.recorder:Recorder", "clear", 3),
    "start": ("autograder.engine.journal:Journal", "start", 3),
    "judge": ("toy_judge:ToyJudge", "judge", 3),
    "write": ("autograder.nbgrader_bridge.recorder:Recorder", "_write_part", 3),
    "commit": ("autograder.nbgrader_bridge.recorder:books", "save", 3),
    "rename": ("autograder.nbgrader_bridge.recorder:os", "replace", 3),
    "finish": ("autograder.engine.journal:Journal", "finish", 3),
    "end": ("autograder.engine.journal:Journal", "end", 1),
}


# What has happened before a moment has happened after the one before it.
@pytest.mark.parametrize(
    "after", [pytest.param(False, id="before", marks=pytest.mark.soak), pytest.param(True, id="after")]
)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_killed_ends_as_if_nothing_had_happened(room, moment, after):
    run_killed(room, *MOMENTS[moment], after=after, seed=7)
    resumed = room.grade()
    if (moment, after) in [("begin", False), ("end", True)]:  # no run had begun, or it had ended: this one is new
        resumed = room.grade(seed=7, resume=False)
    assert outcome(resumed) == undisturbed()


@pytest.mark.parametrize(("moment", "repeated"), [("finish", []), ("commit", ["cid"]), ("judge", ["cid"])])
def test_what_was_recorded_is_not_graded_twice(room, moment, repeated):
    run_killed(room, *MOMENTS[moment], after=moment != "finish")
    room.grade()
    assert room.calls() == Counter([*STUDENTS, *repeated])
    assert room.said[0].endswith(f"{3 - len(repeated)} of 6 were recorded")
    assert room.planned == [(6, 3 - len(repeated))]


def test_a_run_that_is_taken_up_draws_the_same_secret_seeds(room):
    run_killed(room, *MOMENTS["judge"], after=False)
    with Journal(room.root / ".grading" / f"{ASSIGNMENT}.jsonl") as journal:
        before = {student: entry.seed for student, entry in journal.starts.items()}
    after = seeds(room.grade())
    assert sorted(before) == ["ann", "bob", "cid"]
    assert set(after.values()) == set(before.values())
    assert len(set(after.values())) == 1


def test_who_was_being_graded_when_it_was_killed_comes_last(room):
    run_killed(room, *MOMENTS["judge"], after=True)
    room.grade()
    assert room.toy().calls() == ["ann", "bob", "cid", "dan", "eve", "fay", "cid"]


def test_a_file_that_changed_meanwhile_is_graded_with_a_new_seed(room):
    run_killed(room, *MOMENTS["finish"], after=True)
    before = graded_seed(room, "ann")
    hand_in(room.root, "ann", notebook())
    after = room.grade()
    assert room.calls()["ann"] == 2
    assert seeds(after)["ann"] != before


def test_who_hands_in_after_the_run_began_has_a_new_seed(room, monkeypatch):
    run_killed(room, *MOMENTS["finish"], after=True)
    before = graded_seed(room, "ann")
    honest = Path.stat

    def later(path: Path, **options: bool) -> os.stat_result:
        found = honest(path, **options)
        changed = [*found]
        changed[9] += 3600 if "fay" in path.parts else 0  # st_ctime
        return os.stat_result(changed)

    monkeypatch.setattr(Path, "stat", later)
    after = seeds(room.grade())
    assert after["fay"] != before
    assert after["eve"] == before


def graded_seed(room: Class, student: str) -> int:
    """The seed in a graded notebook."""
    return int(json.loads(room.notebook(student).read_text())["metadata"]["hpml"]["grading"]["seed"])


@pytest.mark.soak
def test_a_coordinator_of_two_judges_that_is_killed_loses_nobody(room):
    run_killed(room, *MOMENTS["write"], after=True, seed=7, jobs=2)
    assert outcome(room.grade(seed=7)) == undisturbed()
    assert set(room.calls()) == set(STUDENTS)


# --- which run is taken up ----------------------------------------------------------------------


def test_a_run_that_ended_is_not_taken_up(room):
    first, second = room.grade(), room.grade()
    assert room.calls() == Counter([*STUDENTS, *STUDENTS])
    assert not set(seeds(first).values()) & set(seeds(second).values())
    assert room.said == []


def test_resume_grades_only_who_is_new_or_changed_or_failed(room):
    room.grade(toy=room.toy(breaks=frozenset({"bob"})))
    hand_in(room.root, "ann", notebook())
    hand_in(room.root, "zoe", notebook())
    result = room.grade(resume=True)
    assert room.calls() == Counter([*STUDENTS, "ann", "bob", "zoe"])
    assert room.said[-1].endswith("4 of 7 were recorded")
    assert not any(each.failed for each in result.students)


def test_fresh_begins_anew(room):
    stop_at(room, "cid")
    room.grade(resume=False)
    assert room.calls()["ann"] == 2
    assert room.planned[-1] == (6, 0)


def test_a_run_of_other_students_is_not_taken_up(room):
    stop_at(room, "cid")
    room.grade(students=["ann"])
    assert room.calls()["ann"] == 2
    assert "it was for other students" in room.said[-1]


def test_a_run_of_an_older_release_is_not_taken_up(room):
    stop_at(room, "cid")
    book = notebook()
    find(book, "title").source = "# Another lesson"
    nbformat.write(book, room.root / "release" / ASSIGNMENT / f"{ASSIGNMENT}.ipynb")
    with pytest.raises(CourseError, match="cannot be resumed: the release was built anew"):
        room.grade(resume=True)
    room.grade()
    assert room.planned[-1] == (6, 0)


def test_resume_needs_a_run(room):
    with pytest.raises(CourseError, match="none has; leave out --resume"):
        room.grade(resume=True)


def test_the_seeds_of_the_journal_give_the_same_grades_again(room):
    first = room.grade()
    assert room.grade(repeat=True, students=["cid"]) == first
    assert outcome(room.grade(repeat=True)) == outcome(first)


def test_a_student_without_a_seed_is_told(room):
    room.grade(students=["ann"])
    room.grade(repeat=True, students=["ann", "bob"])
    assert room.said == ["bob: no earlier seed is in the journal, a new one was drawn"]


def test_a_file_that_has_changed_is_not_graded_with_its_earlier_seed(room):
    before = seeds(room.grade())
    hand_in(room.root, "ann", notebook())
    after = seeds(room.grade(repeat=True))
    assert [student for student in STUDENTS if after[student] != before[student]] == ["ann"]
    assert room.said == ["ann: the file has changed since the earlier seed, a new one was drawn"]
