"""What lies beside a submitted notebook reaches nobody, stops nobody and is never opened."""

from __future__ import annotations

import logging
import os

import pytest
from plain_nbgrader import LOG, autograde, graded_notebook, kept_files, make_feedback, open_course, score
from small_class import ASSIGNMENT, POINTS, RIGHT, hand_in, notebook

from autograder.nbgrader_bridge import exporters

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


def test_a_time_stamp_is_kept(root, handed_in):
    (handed_in / "timestamp.txt").write_text(STAMP)
    autograde(root)
    assert (root / "autograded/ann" / ASSIGNMENT / "timestamp.txt").read_text() == STAMP


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "large"])
def test_a_time_stamp_that_is_no_small_file_is_never_opened(root, handed_in, kind):
    path = handed_in / "timestamp.txt"
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


def test_a_time_stamp_that_names_no_time_is_told_and_costs_no_points(root, handed_in, caplog):
    (handed_in / "timestamp.txt").write_bytes(b"yesterday \xff")
    with caplog.at_level(logging.WARNING, LOG.name):
        autograde(root)
    assert score(root, "ann") == FULL
    assert "must hold a time" in caplog.text
