"""The engine as a part of nbgrader's pipeline.

submitted file --SubmissionExporter--> path --GradeSubmission--> graded notebook, gradebook
source notebook --ClearToStub--> released notebook
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbformat.v4 import new_notebook
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearSolutions, NbGraderPreprocessor

from autograder.engine.grade import Graded, Release, Submission, grade
from autograder.engine.rebuild import role_of
from autograder.engine.record import show
from autograder.engine.runner import PlainRunner
from autograder.nbgrader_bridge.gradebook import maximum, release_path, save


class SubmissionExporter(NotebookExporter):
    """Hands on the path of a submission instead of reading it: nbformat would raise on what the engine can grade."""

    def from_filename(self, filename: str, resources: Any = None, **kwargs: Any) -> Any:
        """The graded notebook as text. nbgrader calls this twice; the second time with the file it has written."""
        converter: Any = self.parent
        if converter._sanitizing:
            notebook, resources = new_notebook(), {**resources, "submission": filename}  # type: ignore[no-untyped-call]
        else:
            notebook = nbformat.read(filename, as_version=4)  # type: ignore[no-untyped-call]
        return self.from_notebook_node(notebook, resources, **kwargs)  # type: ignore[no-untyped-call]


class GradeSubmission(NbGraderPreprocessor):
    """Grades one submission and saves scores and comments.

    `graded` may be set beforehand: then only the saving is left to do. Under plain `nbgrader autograde` it is None,
    and each notebook pays for a warm process of its own.
    """

    graded: Graded | None = None

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """The graded notebook in place of the submitted one."""
        names = resources["nbgrader"]
        graded = self.graded or self._grade(names, Path(resources["submission"]))
        with Gradebook(names["db_url"]) as gradebook:
            save(gradebook, names["assignment"], names["notebook"], graded)
        return show(graded), resources

    def _grade(self, names: dict[str, str], path: Path) -> Graded:
        release = Release.load(release_path(self._course_directory(), names["assignment"], names["notebook"]))
        with PlainRunner() as runner:
            self.log.warning("%s", runner.describe())
            return grade(Submission(student=names["student"], path=path), release, runner)

    def _course_directory(self) -> CourseDirectory:
        """That of the converter, whose exporter holds this preprocessor."""
        return self.parent.parent.coursedir


class ClearToStub(ClearSolutions):
    """Replaces a solution by the course's own stub, by whose message the judge knows an unwritten answer.

    A check cell gets its maximum from the exercise, so that a bonus raises none under plain nbgrader commands either.
    """

    code_stub: dict[str, str]

    def preprocess_cell(self, cell: NotebookNode, resources: Any, cell_index: int) -> tuple[NotebookNode, Any]:
        """The cell as students get it."""
        exercise, role = role_of(cell)
        if role == "answer":
            self.code_stub = {"python": f'raise NotImplementedError("{exercise}")'}
        elif role == "check":
            cell.metadata.nbgrader["points"] = maximum(exercise)
        cleared: tuple[NotebookNode, Any] = super().preprocess_cell(cell, resources, cell_index)
        return cleared
