"""nbgrader as its users know it, on the small class: its own classes and commands, and what they leave behind."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook, SubmittedNotebook
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.server_extensions.formgrader import handlers
from small_class import ASSIGNMENT, publish, release
from traitlets.config import Config

from autograder.nbgrader_bridge.config import course_directory
from autograder.nbgrader_bridge.gradebook import register

REPOSITORY = Path(__file__).resolve().parent.parent
LOG = logging.getLogger("nbgrader-in-tests")
LOG.setLevel(logging.INFO)


def open_course(root: Path) -> Path:
    """A folder in which the lesson was released, and stands in the gradebook."""
    publish(root, gradebook=True)
    register(course_directory(root)[0], ASSIGNMENT, release())
    return root


def checked_out(folder: Path) -> Path:
    """A folder with the shipped configuration and a released lesson, in which nbgrader's own commands are run."""
    shutil.copy(REPOSITORY / "nbgrader_config.py", folder)
    open_course(folder / "build")
    return folder


def autograde(root: Path, *, student: str = "*", force: bool = False, changes: Config | None = None) -> None:
    """What `nbgrader autograde` does with the shipped configuration. Raises nbgrader's NbGraderException."""
    directory, config = course_directory(root)
    config.merge(changes or Config())
    directory.assignment_id, directory.student_id, directory.log = ASSIGNMENT, student, LOG
    converter = Autograde(coursedir=directory, config=config, log=LOG)
    converter.force = force
    converter.start()


def make_feedback(root: Path) -> None:
    """What `nbgrader generate_feedback` does."""
    directory, config = course_directory(root)
    directory.assignment_id, directory.log = ASSIGNMENT, LOG
    GenerateFeedback(coursedir=directory, config=config, log=LOG).start()


def nbgrader(folder: Path, *command: str) -> str:
    """Runs one of nbgrader's commands in a folder with a configuration; returns what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *command],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def environment() -> dict[str, str]:
    """In which nbgrader's commands find this repository."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONWARNINGS": "ignore"}


# --- what lies in the folders -----------------------------------------------------------------------------------


def graded_path(root: Path, name: str) -> Path:
    """Where a student's graded notebook lies."""
    return root / "autograded" / name / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"


def graded_notebook(root: Path, name: str) -> NotebookNode:
    """A student's graded notebook."""
    return nbformat.read(graded_path(root, name), as_version=4)


def seed(root: Path, name: str) -> int:
    """From which the cases of a graded notebook were drawn: another one after each grading."""
    return int(graded_notebook(root, name).metadata.hpml.grading.seed)


def kept_files(root: Path, step: str, name: str) -> list[str]:
    """The names of all files that a student has in autograded or feedback."""
    folder = root / step / name / ASSIGNMENT
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def page(root: Path, name: str, step: str = "feedback") -> str:
    """A student's feedback page."""
    return (root / step / name / ASSIGNMENT / f"{ASSIGNMENT}.html").read_text()


def formgrader_page(root: Path, name: str) -> str:
    """The page on which a teacher grades a student by hand, as formgrader makes it."""
    config = Config()
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    resources = {"index": 0, "total": 1, "base_url": "", "student": name, "notebook_id": ASSIGNMENT}
    html, _ = HTMLExporter(config=config).from_filename(str(graded_path(root, name)), resources=resources)
    return html


# --- what stands in the gradebook ---------------------------------------------------------------------------------


def gradebook(root: Path) -> Gradebook:
    """nbgrader's gradebook."""
    return Gradebook(f"sqlite:///{root}/gradebook.db")


def recorded(book: Gradebook, name: str) -> SubmittedNotebook:
    """A student's notebook in it."""
    return book.find_submission_notebook(ASSIGNMENT, ASSIGNMENT, name)


def score(root: Path, name: str) -> float:
    """What nbgrader counts for a student, before the late penalty."""
    with gradebook(root) as book:
        return recorded(book, name).score
