"""`autograder grade`: what it prints while it runs and at the end, and with which code it exits."""

from __future__ import annotations

import io
import signal
import sys

import pytest
from batch_room import made, outcome
from rich.console import Console
from small_class import ASSIGNMENT, release
from toy_judge import Nowhere
from typer.testing import CliRunner

from autograder import cli, report
from autograder import nbgrader_bridge as bridge
from autograder.engine.grade import untouched
from autograder.engine.results import ClassResult, StudentResult
from autograder.engine.stopping import Stopped


def graded(student, **traits):
    """A submission that is recorded."""
    return untouched(student, release(), Nowhere(), **traits)


def shown(console, *told) -> str:
    """What is printed of a run of three, one of which was recorded before."""
    with report.ProgressReport(console) as progress:
        progress.planned(3, 1)
        for each in told:
            progress.told(each)
    return console.file.getvalue()


def invoke(room, *options):
    """Run the command on a class that a toy grades."""
    return CliRunner().invoke(cli.app, ["grade", "--assignment", ASSIGNMENT, "--root", str(room.root), *options])


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A class of two; the command's sandbox is a toy. No feedback pages are made, which takes seconds."""
    two = made(tmp_path, ("ann", "bob"))
    two.breaking = frozenset()
    grade = bridge.grade

    def by_toy(root, assignment, students, seed, *, how, watcher):
        two.how = how
        way = bridge.How(work=two.toy(breaks=two.breaking), resume=how.resume, repeat=how.repeat)
        return grade(root, assignment, students, seed, Nowhere(), how=way, watcher=watcher)

    monkeypatch.setattr(bridge, "grade", by_toy)
    monkeypatch.setattr(bridge, "feedback", lambda root, assignment: root / "feedback")
    return two


def test_elsewhere_than_on_a_terminal_each_submission_gets_a_line():
    text = shown(Console(file=io.StringIO(), width=200), graded("ann"), graded("bob", failed="the disk is full"))
    assert text == "2/3 ann: 0 points\n3/3 bob: the disk is full\n"


def test_on_a_terminal_a_bar_counts_and_only_trouble_gets_a_line():
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    text = shown(console, graded("ann"), graded("bob", problem="no JSON"))
    assert "3/3" in text
    assert "3/3 bob: no JSON" in text
    assert "ann: 0 points" not in text


def test_what_a_student_wrote_moves_no_cursor():
    text = shown(Console(file=io.StringIO(), width=200), graded("a\x1b[2Jb", problem="c\rd\ne"))
    assert text == "2/3 a\\x1b[2Jb: c\\rd\\ne\n"


def test_the_summary_names_who_was_repaired_and_who_failed():
    console = Console(file=io.StringIO(), width=200)
    students = (
        StudentResult(student="ann", score=1.0, max_score=2.0, repairs=("A cell was put back.", "Another too.")),
        StudentResult(student="bob", score=0.0, max_score=2.0, failed="the disk is full"),
    )
    report.show(ClassResult(assignment=ASSIGNMENT, runner="", students=students), console)
    lines = console.file.getvalue().splitlines()
    assert lines[-4:] == [
        "Repaired before grading: 1",
        "  ann: A cell was put back. Another too.",
        "Not graded: 1",
        "  bob: the disk is full",
    ]


def test_a_run_without_trouble_exits_with_0_and_leaves_its_files(room):
    result = invoke(room)
    assert result.exit_code == 0, result.output
    assert (room.root / "grades.csv").exists()
    assert (room.root / "report.html").exists()


def test_a_submission_that_failed_makes_the_code_1(room):
    room.breaking = frozenset({"bob"})
    result = invoke(room)
    assert result.exit_code == 1
    assert "bob: ZeroDivisionError: a slip of ours" in result.output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_stops_it_is_told_how_to_go_on(room, monkeypatch, number, code):
    def stopped(*arguments, **named):
        raise Stopped(number)

    monkeypatch.setattr(bridge, "grade", stopped)
    result = invoke(room)
    assert result.exit_code == code
    assert "with --resume goes on from there" in result.output


def test_resume_goes_on_and_says_so(room):
    room.breaking = frozenset({"bob"})
    invoke(room)
    room.breaking = frozenset()
    result = invoke(room, "--resume")
    assert "1 of 2 were recorded" in result.output
    assert result.exit_code == 0


def test_the_same_seeds_give_the_same_grades(room):
    invoke(room)
    first = bridge.results(room.root, ASSIGNMENT)
    invoke(room, "--same-seeds", "--student", "bob")
    assert outcome(bridge.results(room.root, ASSIGNMENT)) == outcome(first)


def test_a_seed_and_the_same_seeds_exclude_each_other(room):
    assert invoke(room, "--seed", "7", "--same-seeds").exit_code == 2


def test_a_seed_below_0_is_refused(room):
    assert invoke(room, "--seed", "-7").exit_code == 2


def test_options_reach_the_batch(room):
    invoke(room, "--jobs", "3", "--trust-submissions", "--no-display", "--fresh")
    assert (room.how.jobs, room.how.trusted, room.how.display, room.how.resume) == (3, True, False, False)


def test_a_name_that_the_terminal_cannot_show_ends_no_command(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    monkeypatch.setattr(cli, "app", lambda: print("\u00fcn\u00ef"))
    cli.main()
    assert written.getvalue() == b"\\xfcn\\xef\n"
