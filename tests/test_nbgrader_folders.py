"""What lies beside a submitted notebook reaches nobody, stops nobody and is never opened."""

from __future__ import annotations

import csv
import logging
import os
import shutil
from datetime import datetime

import pytest
from conftest import soak
from nbgrader.converters import GenerateFeedback
from nbgrader.plugins import CsvExportPlugin
from plain_nbgrader import (
    LOG,
    autograde,
    gradebook,
    graded_notebook,
    kept_files,
    make_feedback,
    open_course,
    page,
    score,
)
from small_class import ASSIGNMENT, POINTS, RIGHT, hand_in, notebook, release
from toy_judge import Nowhere, ToyJudge

from autograder.nbgrader_bridge import How, export, exporters, feedback, grade
from autograder.nbgrader_bridge.config import course_directory
from autograder.nbgrader_bridge.folders import EXCHANGED, time_in
from autograder.nbgrader_bridge.recorder import NO_TIME
from autograder.nbgrader_bridge.scores import QuotingExport
from course.errors import CourseError

SECRET = "only teachers may read this"
STAMP = "2026-01-01 00:00:00 UTC"
FULL = sum(POINTS.values())


@pytest.fixture
def root(tmp_path, warm, monkeypatch):
    """A folder in which the lesson was released and ann has handed in; beside it, a secret."""
    monkeypatch.setattr(warm, "close", lambda: None)
    monkeypatch.setattr(exporters, "open_runner", lambda **trust: warm)
    (tmp_path / "secret").write_text(SECRET)
    root = open_course(tmp_path / "build")
    hand_in(root, "ann", notebook(RIGHT))
    return root


@pytest.fixture
def handed_in(root):
    """Ann's folder."""
    return root / "submitted" / "ann" / ASSIGNMENT


def test_a_links_target_reaches_neither_autograded_nor_feedback(root, handed_in):
    for name in ("link.txt", ".link", "folder/link", "[f]/link", ".f/link", "a b\n", "torch.py"):
        (handed_in / name).parent.mkdir(exist_ok=True)
        (handed_in / name).symlink_to(root.parent / "secret")
    autograde(root)
    make_feedback(root)
    assert kept_files(root, "autograded", "ann") == [f"{ASSIGNMENT}.ipynb"]
    assert kept_files(root, "feedback", "ann") == [f"{ASSIGNMENT}.html"]


def test_a_linked_folder_is_not_followed(root, handed_in):
    (root.parent / "private").mkdir()
    (root.parent / "private" / "key").write_text(SECRET)
    (handed_in / "folder").symlink_to(root.parent / "private")
    autograde(root)
    assert kept_files(root, "autograded", "ann") == [f"{ASSIGNMENT}.ipynb"]


def test_pipes_and_links_to_nowhere_cost_nobody_points(root, handed_in):
    os.mkfifo(handed_in / "pipe")
    (handed_in / "dangling").symlink_to("/nowhere")
    autograde(root)
    assert score(root, "ann") == FULL


def test_a_notebook_that_is_a_link_is_refused_unopened(root, handed_in):
    (root.parent / "secret.ipynb").write_bytes((handed_in / f"{ASSIGNMENT}.ipynb").read_bytes())
    (handed_in / f"{ASSIGNMENT}.ipynb").unlink()
    (handed_in / f"{ASSIGNMENT}.ipynb").symlink_to(root.parent / "secret.ipynb")
    autograde(root)
    assert score(root, "ann") == 0
    assert "must be a regular file" in graded_notebook(root, "ann").metadata.hpml.grading.problem


@pytest.mark.parametrize("name", EXCHANGED)
def test_what_the_exchange_writes_is_kept_up_to_the_feedback(root, handed_in, name):
    (handed_in / name).write_text(STAMP)
    autograde(root)
    make_feedback(root)
    for step in ("autograded", "feedback"):
        assert (root / step / "ann" / ASSIGNMENT / name).read_text() == STAMP


@pytest.mark.parametrize("name", EXCHANGED)
@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "large"])
def test_what_the_exchange_would_not_write_is_never_opened(root, handed_in, kind, name):
    path = handed_in / name
    if kind == "pipe":
        os.mkfifo(path)  # whoever opens it waits for good
    elif kind == "link":
        path.symlink_to(root.parent / "secret")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text(STAMP + " " * 1000)
    autograde(root)
    assert score(root, "ann") == FULL
    assert kept_files(root, "autograded", "ann") == [f"{ASSIGNMENT}.ipynb"]


NO_TIMES = (  # the third is read by nbgrader as the path of a time zone
    b"yesterday \xff",
    b"9999999999999999999999999999999999999999m99999999999AM",
    b"2026-01-31 23:59:00 ../../../etc/passwd",
    b"2026-01-31 23:59:00 -99999999999",
    b"2026-02-31 23:59:00 UTC",
    b"0001-01-01 00:00:00 +86399",
    b"\xd9\xa2026-01-31 23:59:00",
    b"",
)
TIMES = (
    ("2026-01-31 23:59:00", datetime(2026, 1, 31, 23, 59)),
    ("2026-01-31 23:59:00.5 UTC\n", datetime(2026, 1, 31, 23, 59, 0, 500_000)),
    ("2026-01-31 23:59 EST", datetime(2026, 2, 1, 4, 59)),
)


@pytest.mark.parametrize("stamp", NO_TIMES)
def test_a_time_stamp_that_names_no_time_is_told_and_costs_no_points(root, handed_in, stamp, caplog):
    (handed_in / "timestamp.txt").write_bytes(stamp)
    with caplog.at_level(logging.WARNING, LOG.name):
        autograde(root)
    assert score(root, "ann") == FULL
    assert "must hold a time" in caplog.text
    assert kept_files(root, "autograded", "ann") == [f"{ASSIGNMENT}.ipynb"]


@pytest.mark.parametrize("stamp", NO_TIMES)
def test_our_command_records_whoever_hands_in_no_time(root, handed_in, stamp):
    (handed_in / "timestamp.txt").write_bytes(stamp)
    graded = How(work=ToyJudge(release(), root.parent / "notes"), display=False)
    (ann,) = grade(root, ASSIGNMENT, runner=Nowhere(), how=graded).students
    assert (ann.failed, ann.repairs) == ("", (NO_TIME,))


@pytest.mark.parametrize(("stamp", "time"), TIMES)
def test_a_time_stamp_of_the_exchange_is_read(root, handed_in, stamp, time):
    (handed_in / "timestamp.txt").write_text(stamp)
    assert time_in(handed_in) == time


# --- ids that read as patterns ------------------------------------------------------------------------------------

PATTERNS = ("[bold]", "[!a]", "*", "?", "**", "{{7*7}}", "{x}", "%s", ".x", "..x")


def by_nbgrader(root):
    """nbgrader's own two commands."""
    autograde(root)
    make_feedback(root)


def by_our_command(root):
    """What `autograder grade` does, with a toy for a judge."""
    grade(root, ASSIGNMENT, runner=Nowhere(), how=How(work=ToyJudge(release(), root.parent / "notes"), display=False))
    feedback(root, ASSIGNMENT)


@pytest.mark.parametrize("graded", [soak(by_nbgrader), by_our_command])
def test_an_id_that_reads_as_a_pattern_names_one_student(root, graded):
    for name in PATTERNS:
        hand_in(root, name, notebook(RIGHT))
        (root / "submitted" / name / ASSIGNMENT / "folder").mkdir()
        for path in ("link", "folder/link", ".link"):
            (root / "submitted" / name / ASSIGNMENT / path).symlink_to(root.parent / "secret")
    graded(root)
    for name in (*PATTERNS, "ann"):
        assert kept_files(root, "autograded", name) == [f"{ASSIGNMENT}.ipynb"]
        assert kept_files(root, "feedback", name) == [f"{ASSIGNMENT}.html"]
        assert f"(Score: {score(root, name)} /" in page(root, name)


def test_the_table_of_scores_is_nbgraders(root):
    by_our_command(root)
    with gradebook(root) as book:
        book.update_or_create_student("absent", email="a@b.c")
        CsvExportPlugin(to=str(root / "theirs.csv")).export(book)
    assert export(root, ASSIGNMENT, root / "ours.csv").read_text() == (root / "theirs.csv").read_text()


def test_a_name_with_what_csv_is_written_with_stands_in_one_column(root):
    names = ("Doe, Jane", "Doe, John", 'x"y', "'z'; {a}")
    for name in names:
        hand_in(root, name, notebook(RIGHT))
    by_our_command(root)
    with export(root, ASSIGNMENT, root / "grades.csv").open(newline="") as file:
        found = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert found == {name: score(root, name) for name in (*names, "ann")}
    assert course_directory(root)[1].ExportApp.plugin_class is QuotingExport


def test_a_class_of_nobody_else_gets_its_feedback(root, handed_in):
    shutil.rmtree(handed_in.parent)
    hand_in(root, "[bold]", notebook(RIGHT))
    by_our_command(root)
    assert kept_files(root, "feedback", "[bold]") == [f"{ASSIGNMENT}.html"]


def test_a_file_in_the_place_of_a_feedback_folder_keeps_nobody_elses_feedback_back(root):
    for name in ("bob", "cleo", "dora"):
        hand_in(root, name, notebook(RIGHT))
    by_our_command(root)
    shutil.rmtree(root / "feedback")
    (root / "feedback" / "bob").mkdir(parents=True)
    (root / "feedback" / "bob" / ASSIGNMENT).write_text("notes")
    (root / "feedback" / "cleo").write_text("notes")
    (root / "elsewhere").mkdir()
    (root / "feedback" / "ann").mkdir()
    (root / "feedback" / "ann" / ASSIGNMENT).symlink_to(root / "elsewhere")
    with pytest.raises(CourseError, match="must go into folders") as told:
        feedback(root, ASSIGNMENT)
    for name in (f"ann/{ASSIGNMENT}", f"bob/{ASSIGNMENT}", "cleo"):
        assert str(root / "feedback" / name) in str(told.value)
    assert (root / "feedback" / "cleo").read_text() == "notes"
    assert kept_files(root, "feedback", "dora") == [f"{ASSIGNMENT}.html"]


@pytest.mark.parametrize("name", ["ML [2026]", "quest?ion", "star*", "%41"])
def test_a_folder_whose_path_reads_as_a_pattern_or_an_address_is_refused(tmp_path, name):
    with pytest.raises(CourseError, match="must hold none of") as told:
        course_directory(tmp_path / name / "build")
    assert name in str(told.value)


def test_each_page_is_made_once(root, monkeypatch):
    made = []
    convert = GenerateFeedback.convert_single_notebook
    monkeypatch.setattr(
        GenerateFeedback, "convert_single_notebook", lambda self, path: made.append(path) or convert(self, path)
    )
    hand_in(root, "*", notebook(RIGHT))
    by_our_command(root)
    assert len(made) == len(set(made)) == 2


def test_nbgraders_own_view_of_the_folders_stays_as_it_was(root):
    hand_in(root, "[bold]", notebook(RIGHT))
    autograde(root)
    directory, config = course_directory(root)
    ignored = [*directory.ignore]
    directory.assignment_id = ASSIGNMENT
    GenerateFeedback(coursedir=directory, config=config, log=LOG).start()
    assert directory.ignore == ignored
