"""The one writer: a graded submission goes into the gradebook and to autograded/, whole or not at all.

    clear   {old scores, comments, graded notebook, feedback} -> gone   what people gave stays
    record  Graded -> notebook.part -> one transaction -> notebook      a notebook that is there was recorded

nbgrader's own Autograde would open the gradebook seven times and convert the notebook twice for each submission; this
opens it once for all of them. Its hooks, permissions, late penalties and time stamps are asked for as Autograde does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties
from sqlalchemy.orm import scoped_session, sessionmaker
from traitlets.config import Config

from autograder.engine.cells import Release
from autograder.engine.grade import Graded
from autograder.engine.record import read_file, show
from autograder.nbgrader_bridge import gradebook as books
from autograder.nbgrader_bridge.folders import STAMP, exchanged
from autograder.nbgrader_bridge.submitted import NoTime, folder_of, handed_in_at

NO_TIME = f"No time could be read from {STAMP}, so the submission was recorded without one and without a late penalty."
# What a transaction needs first: SQLite gives no savepoints without BEGIN, PostgreSQL waits for locks for ever.
OPENINGS = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "SET LOCAL lock_timeout = '5s'"}


class Recorder:
    """Writes for one assignment, whose cells must be registered. Use as a context manager."""

    def __init__(self, directory: CourseDirectory, config: Config, assignment: str, release: Release) -> None:
        self._directory, self._assignment, self._release = directory, assignment, release
        self._nbgrader = Autograde(coursedir=directory, config=config, log=directory.log)
        self._penalties = _Penalties(config=config, log=directory.log)
        self._gradebook = books.open_gradebook(directory)
        directory.assignment_id = assignment

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gradebook.close()

    def clear(self, student: str) -> None:
        """Take back what was graded automatically: a score that is there belongs to the file that is there."""
        with self._transaction() as gradebook, contextlib.suppress(MissingEntry):
            books.forget(gradebook, self._assignment, self._release.name, student)
        for folder in (self._folder(student), books.feedback_folder(self._directory, self._assignment, student)):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)

    def record(self, graded: Graded) -> Graded:
        """Write it; returns it with what had to be repaired on the way. May be called again with the same."""
        time, graded = self._time(graded)
        self._hooks_at(graded.student).run_pre_convert_hook()
        part = self._write_part(graded)
        with self._transaction() as gradebook:
            gradebook.update_or_create_student(graded.student)
            gradebook.update_or_create_submission(self._assignment, graded.student, timestamp=time)
            books.save(gradebook, self._assignment, self._release, graded)
            self._penalties.charge(gradebook, self._assignment, self._release.name, graded.student)
        os.replace(part, part.with_suffix(""))
        self._nbgrader.set_permissions(self._assignment, graded.student)
        self._hooks_at(graded.student).run_post_convert_hook()
        return graded

    def recorded_seed(self, student: str) -> int | None:
        """The seed of the submission that was recorded last; None where there is none, or it failed."""
        graded = read_file(student, self._folder(student) / f"{self._release.name}.ipynb")
        return graded.seed if graded and not graded.failed else None

    def _folder(self, student: str) -> Path:
        return books.graded_folder(self._directory, self._assignment, student)

    def _submitted(self, student: str) -> Path:
        return folder_of(self._directory, self._assignment, student)

    def _time(self, graded: Graded) -> tuple[datetime | None, Graded]:
        try:
            return handed_in_at(self._directory, self._assignment, graded.student), graded
        except NoTime:
            repairs = [repair for repair in graded.repairs if repair != NO_TIME]
            return None, dataclasses.replace(graded, repairs=(*repairs, NO_TIME))

    def _write_part(self, graded: Graded) -> Path:
        """The graded notebook under a name that nothing reads, on the disk; the files of the exchange beside it.

        Of other files that were handed in none comes along: they may be links to what no student may read, and would
        come back with the feedback.
        """
        folder = self._folder(graded.student)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in exchanged(self._submitted(graded.student)).items():
            (folder / name).write_bytes(data)
        part = folder / f"{self._release.name}.ipynb.part"
        with part.open("w", encoding="ascii") as file:
            file.write(json.dumps(show(graded)))
            file.flush()
            os.fsync(file.fileno())
        return part

    def _hooks_at(self, student: str) -> Autograde:
        """nbgrader's converter, which holds the hooks of its configuration."""
        self._directory.student_id = student
        self._nbgrader.notebooks = [str(self._submitted(student) / f"{self._release.name}.ipynb")]
        return self._nbgrader

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Gradebook]:
        """The gradebook, where a commit is only a savepoint until all is done."""
        engine, outside = self._gradebook.engine, self._gradebook.db
        with engine.connect() as connection, connection.begin():
            if engine.dialect.name in OPENINGS:
                connection.exec_driver_sql(OPENINGS[engine.dialect.name])
            inside = scoped_session(sessionmaker(bind=connection, join_transaction_mode="create_savepoint"))
            self._gradebook.db = inside
            try:
                yield self._gradebook
                inside.commit()
            finally:
                self._gradebook.db = outside
                inside.remove()


class _Penalties(AssignLatePenalties):
    """nbgrader's late penalties, in a gradebook that is open already."""

    def charge(self, gradebook: Gradebook, assignment: str, notebook: str, student: str) -> None:
        """What the plugin of the configuration says, between 0 and the score."""
        self.init_plugin()
        submitted = gradebook.find_submission_notebook(notebook, assignment, student)
        submitted.late_submission_penalty = None
        late = submitted.assignment.total_seconds_late
        penalty = self.plugin_inst.late_submission_penalty(student, submitted.score, late) if late > 0 else None
        if penalty is not None:
            submitted.late_submission_penalty = self._check_late_penalty(submitted, penalty)
