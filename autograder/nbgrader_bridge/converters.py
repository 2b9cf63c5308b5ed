"""What nbgrader's converters and exporters do for us: the release, the feedback pages, the table of scores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nbgrader.converters import GenerateAssignment, GenerateFeedback
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from autograder.engine.cells import Release
from autograder.nbgrader_bridge import gradebook as books
from autograder.nbgrader_bridge.config import course_directory
from autograder.nbgrader_bridge.folders import notebooks_of
from autograder.nbgrader_bridge.log import FILE, logged
from autograder.nbgrader_bridge.scores import QuotingExport
from course.errors import CourseError


def feedback(root: Path, assignment: str) -> Path:
    """Write the feedback pages with nbgrader's generate_feedback, and return their folder."""
    with logged(root) as log:
        directory, config = course_directory(root)
        directory.assignment_id = assignment
        converter = _Feedback(coursedir=directory, config=config, log=log)
        converter.force = True
        _run(converter, "the feedback was not written")
        if converter.blocked:
            raise CourseError(
                f"feedback must go into folders, but at {' and '.join(converter.blocked)} lies something else; put it "
                "away, and the same command with --resume makes these pages, too (all others are there)"
            )
        return root / str(directory.feedback_directory)


def export(root: Path, assignment: str, to: Path) -> Path:
    """Write the scores as CSV, as `nbgrader export` does, and return the file's path."""
    with logged(root) as log:
        directory, config = course_directory(root)
        part = to.with_name(f"{to.name}.part")
        plugin = QuotingExport(config=config, log=log, to=str(part), assignment=[assignment])
        with books.open_gradebook(directory) as gradebook:
            plugin.export(gradebook)
        os.replace(part, to)
    return to


def release_of(directory: CourseDirectory, config: Config, assignment: str) -> Release:
    """The release copy; where there is a source and no release, nbgrader's generate_assignment makes it."""
    path = books.release_path(directory, assignment, assignment)
    source = directory.format_path(directory.source_directory, ".", assignment)
    if not path.exists() and os.path.isdir(source):
        directory.assignment_id = assignment
        converter = GenerateAssignment(coursedir=directory, config=config, log=directory.log)
        _run(converter, f"the release of {assignment} could not be made")
    return Release.load(path)


class _Feedback(GenerateFeedback):
    """nbgrader's, which also begins where nobody has an id that is no glob pattern, and which no file in a folder's
    place stops. blocked: where there is one.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blocked: list[str] = []

    def init_destination(self, assignment_id: str, student_id: str) -> bool:
        """Whether this student's page can be made. nbgrader ends at what it cannot remove as a folder."""
        folder = Path(self._format_dest(assignment_id, student_id))
        blocked = [each for each in (folder.parent, folder) if os.path.lexists(each) and not each.is_dir()]
        if folder.is_symlink():
            blocked = [folder]
        self.blocked += map(str, blocked)
        return not blocked and super().init_destination(assignment_id, student_id)

    def init_notebooks(self) -> None:
        """Looks for what there is to convert. Raises NbGraderException where there is nothing."""
        self.assignments = notebooks_of(self)
        if not self.assignments:
            super().init_notebooks()


def _run(converter: GenerateAssignment | GenerateFeedback, sentence: str) -> None:
    try:
        converter.start()
    except (NbGraderException, SystemExit) as error:
        root = converter.coursedir.root
        raise CourseError(f"{sentence} ({error}); {Path(root) / FILE} says more") from None
