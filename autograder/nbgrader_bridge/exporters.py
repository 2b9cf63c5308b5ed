"""What stands between nbgrader's Autograde and our steps: one exporter per run, made before the first submission.

    Autograde --makes--> GradingExporter --> Sanitize, SandboxedExecute, SaveVerdicts, one submission after the other

Autograde offers no other place for what a whole run shares: the process in which students' code runs, and the care
with which nbgrader's own code touches their folders.
"""

from __future__ import annotations

import functools
import weakref
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat.v4 import new_notebook
from nbgrader.converters.base import NbGraderException
from traitlets import Bool, Integer

from autograder.engine.cells import Release
from autograder.engine.journal import JournalError, demand_none_is_written
from autograder.nbgrader_bridge.folders import EVERYTHING, JOURNALS, exchanged, remove_unfinished, take_names_literally
from autograder.nbgrader_bridge.gradebook import release_path
from autograder.sandbox import Runner, RunnerError, open_runner


class GradingExporter(NotebookExporter):
    """Holds what a run of `nbgrader autograde` shares: one runner for all of its submissions, the releases.

    Raises NbGraderException before anything was touched where students' code cannot be run, or a batch of ours grades
    below the same folder. Without a sandbox: `nbgrader autograde NAME --GradingExporter.trust_submissions=True`.
    """

    trust_submissions = Bool(False, help="Run students' code without a sandbox, as the user who grades.").tag(
        config=True
    )
    seed = Integer(None, allow_none=True, help="Draws the cases; if left out, a secret one does.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        converter: Any = kwargs["parent"]
        self._demand_no_batch(Path(converter.coursedir.root))
        self.runner = self._open_runner()
        self._load = functools.cache(Release.load)
        self.directory = take_names_literally(converter, EVERYTHING)
        for folder in remove_unfinished(self.directory):
            self.log.warning("%s was left behind by a run that was killed; it is graded again", folder)

    def release(self, assignment: str, notebook: str) -> Release:
        """The release copy of a notebook, read once. Raises CourseError."""
        return self._load(release_path(self.directory, assignment, notebook))

    def from_filename(self, filename: str, resources: Any = None, **kwargs: Any) -> Any:
        """The graded notebook as text. nbgrader calls this twice; the second time with the file that it has written.

        A submission is not read here: nbformat would raise on what the engine can grade. Of the files beside it those
        of the exchange come along: by the time stamp nbgrader knows a newer submission, by the secret its feedback.
        """
        converter: Any = self.parent
        if not converter._sanitizing:
            notebook = nbformat.read(filename, as_version=4)  # type: ignore[no-untyped-call]
            return self.from_notebook_node(notebook, resources, **kwargs)  # type: ignore[no-untyped-call]
        beside = {**resources, "outputs": exchanged(Path(filename).parent)}
        return self.from_notebook_node(new_notebook(), beside, **kwargs)  # type: ignore[no-untyped-call]

    def _demand_no_batch(self, root: Path) -> None:
        """What both record of a submission would be mixed. Two of nbgrader's own runs do not look for each other."""
        try:
            demand_none_is_written(root / JOURNALS)
        except JournalError as error:
            self.log.error("%s", error)
            raise NbGraderException(str(error)) from None

    def _open_runner(self) -> Runner:
        """A runner that has run something; it is closed with this exporter, at the latest when Python ends."""
        try:
            runner = open_runner(trusted=self.trust_submissions)
            weakref.finalize(self, runner.close)
            runner.display([])  # starts it: what cannot run must be known before the first old score is forgotten
        except RunnerError as error:
            self.log.error("%s (with nbgrader's own commands: --GradingExporter.trust_submissions=True)", error)
            raise NbGraderException(str(error)) from None
        self.log.info("%s", runner.describe())
        return runner
