"""The engine as steps of `nbgrader autograde`, and stubs as a step of `generate_assignment`.

    submitted file --Sanitize--> rebuilt notebook --SandboxedExecute--> with outputs --SaveVerdicts--> with verdicts
                                                                                              `--> gradebook
    source notebook --ClearToStub--> released notebook

All three grading steps belong to Autograde's first pass, so that autograded/ gets a file only when the gradebook has
the verdicts. What the first hands to the others lies in `resources`; the runner, in which students' code runs, is
the exporter's. The display run and the graded calls know nothing of one another.
"""

from __future__ import annotations

from typing import Any

from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearSolutions, NbGraderPreprocessor

from autograder.engine import grade as engine
from autograder.engine.cells import Release, role_of
from autograder.engine.grade import Graded
from autograder.engine.record import show
from autograder.nbgrader_bridge.gradebook import forget, maximum, save
from autograder.nbgrader_bridge.submitted import submission

Names = dict[str, str]  # nbgrader's student, assignment, notebook and db_url


class Sanitize(NbGraderPreprocessor):
    """Reads the submitted file with suspicion and rebuilds the notebook from the release.

    What an earlier submission earned is forgotten first: whatever happens to this one, no stale score stands.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """The rebuilt notebook in place of the submitted one."""
        names: Names = resources["nbgrader"]
        with Gradebook(names["db_url"]) as gradebook:
            forget(gradebook, names["assignment"], names["notebook"], names["student"])
        release = self.parent.release(names["assignment"], names["notebook"])
        handed_in = submission(self.parent.directory, names["assignment"], names["student"], release)
        sanitized = engine.sanitize(handed_in, release)
        for sentence in filter(None, [sanitized.problem, *sanitized.repairs]):
            self.log.warning("%s: %s", names["student"], sentence)
        return release.notebook_of(sanitized.cells), {**resources, "sanitized": sanitized}


class SandboxedExecute(NbGraderPreprocessor):
    """The display run: the student's cells are executed for people to look at. `enabled = False` leaves it out."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """The notebook as it was; its outputs are handed on."""
        names: Names = resources["nbgrader"]
        release = self.parent.release(names["assignment"], names["notebook"])
        displayed = engine.display_run(resources["sanitized"], release, self.parent.runner)
        return nb, {**resources, "displayed": displayed}


class SaveVerdicts(NbGraderPreprocessor):
    """Grades, saves scores and comments, and writes the verdicts into the notebook."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """The graded notebook."""
        names: Names = resources["nbgrader"]
        release: Release = self.parent.release(names["assignment"], names["notebook"])
        graded = self._grade(release, resources)
        with Gradebook(names["db_url"]) as gradebook:
            save(gradebook, names["assignment"], release, graded)
        return show(graded), resources

    def _grade(self, release: Release, resources: Any) -> Graded:
        graded = engine.verdicts(
            resources["sanitized"],
            release,
            self.parent.runner,
            seed=self.parent.seed,
            displayed=resources.get("displayed", ()),
        )
        self.log.info("%s: %d points in %.1f s", graded.student, graded.points, graded.seconds)
        return graded


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
