"""nbgrader's configuration, said once: `nbgrader_config.py` and our own commands both call `configure`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties, ClearSolutions
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from autograder.nbgrader_bridge.exchange import ReleaseFeedback
from autograder.nbgrader_bridge.exporters import GradingExporter
from autograder.nbgrader_bridge.pages import FeedbackExporter
from autograder.nbgrader_bridge.preprocessors import ClearToStub, SandboxedExecute, Sanitize, SaveVerdicts
from autograder.nbgrader_bridge.scores import QuotingExport
from course.errors import CourseError

FILE = "nbgrader_config.py"
SPECIAL = re.compile(r"[?*\[\]%]")  # to a glob, or in the address of a database
COURSE = "default_course"  # nbgrader's name for a course without one; left empty, PostgreSQL refuses its assignments


def configure(config: Config, root: Path) -> None:
    """Make nbgrader work below `root` (the folder of source, release, submitted, ...) and grade with our engine.

    Autograde's first pass does all of the grading, its second none: a notebook that exists has been graded, so that
    a run that was killed is taken up where it stood. Set anything else after this call: `c.AssignLatePenalties`,
    `c.CourseDirectory.db_url`, `c.SandboxedExecute.enabled = False` (no display run). Raises CourseError where the
    folder's path would be read as a pattern of paths, or the gradebook's as another one.
    """
    path = str(root.resolve())
    if SPECIAL.search(path):
        raise CourseError(
            "the path of a course's folder must hold none of ? * [ ] %, which nbgrader reads as patterns and in "
            f"addresses, but it is {path}; rename the folder"
        )
    _find_alembic()
    config.CourseDirectory.root = path
    config.CourseDirectory.course_id = COURSE
    config.Autograde.exporter_class = GradingExporter
    config.Autograde.sanitize_preprocessors = [Sanitize, SandboxedExecute, SaveVerdicts, AssignLatePenalties]
    config.Autograde.autograde_preprocessors = []
    config.GenerateFeedback.exporter_class = FeedbackExporter
    config.ExportApp.plugin_class = QuotingExport
    config.ExchangeFactory.release_feedback = ReleaseFeedback
    steps = GenerateAssignment.class_traits()["preprocessors"].default()
    config.GenerateAssignment.preprocessors = [ClearToStub if step is ClearSolutions else step for step in steps]


def course_directory(root: Path) -> tuple[CourseDirectory, Config]:
    """nbgrader's view of the folder, and the configuration that its converters need.

    What `nbgrader_config.py` beside the folder says (late penalties, a database's URL) holds here too. Raises
    CourseError where it cannot be loaded, or says what nbgrader does not take.
    """
    config = Config()
    configure(config, root)
    beside = root.resolve().parent / FILE
    try:
        if beside.is_file():
            config.merge(PyFileConfigLoader(FILE, path=str(beside.parent)).load_config())
        config.CourseDirectory.root = str(root.resolve())
        directory = CourseDirectory(config=config)
        directory.format_path("step", "student", "assignment")
    except CourseError:
        raise
    except (Exception, SystemExit) as error:  # it is a program, which may do anything
        said = f"{type(error).__name__}: {error}"
        raise CourseError(f"{beside} must be a configuration that nbgrader takes, but: {said}; mend it") from None
    return directory, config


def _find_alembic() -> None:
    """nbgrader starts `alembic` by its bare name to make a gradebook: it lies beside this Python."""
    if shutil.which("alembic") is None:
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
