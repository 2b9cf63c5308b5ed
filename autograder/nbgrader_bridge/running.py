"""One batch: who is left to grade, with which seed, and what became of each.

    journal --plan--> left to do --tasks--> judges --outcomes--> settle --> gradebook, autograded/, journal

The order makes a kill at any moment harmless: old scores are cleared, then the journal says that a submission was
started, then it is graded, then recorded (its notebook last), then the journal says so. A notebook with the journal's
seed in it is therefore a submission that was recorded, even where the journal lacks its last line.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from nbgrader.coursedir import CourseDirectory

from autograder.engine.cells import Release
from autograder.engine.grade import Graded, GradingTask, Submission, new_seed, untouched
from autograder.engine.journal import BatchRun, Entry, Journal
from autograder.engine.stopping import Stop
from autograder.engine.worker import Outcome
from autograder.nbgrader_bridge.locks import DATABASE_ERRORS, PATIENCE, Result, database_words, patiently
from autograder.nbgrader_bridge.log import report_one
from autograder.nbgrader_bridge.recorder import Recorder
from autograder.nbgrader_bridge.submitted import digest_of, submission
from autograder.sandbox import Runner
from course.errors import CourseError


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Who is told how a batch goes.

    planned  once: how many submissions the run has, and how many of them are recorded already
    told     each submission, as soon as it is recorded, or could not be
    said     one sentence for people
    """

    planned: Callable[[int, int], None] = lambda count, recorded: None
    told: Callable[[Graded], None] = lambda graded: None
    said: Callable[[str], None] = lambda sentence: None


@dataclass(kw_only=True)
class Batch:
    """The state of a run.

    taken_up  it began earlier
    failures  why, by student
    """

    directory: CourseDirectory
    assignment: str
    release: Release
    runner: Runner
    journal: Journal
    run: BatchRun
    taken_up: bool
    recorder: Recorder
    stop: Stop
    watcher: Watcher
    patience: float = PATIENCE
    failures: dict[str, str] = field(default_factory=dict)

    def plan(self, students: Sequence[str]) -> list[str]:
        """Those who are not recorded yet; last those whose grading was under way, in case it was they who killed it."""
        left = [student for student in students if not self._is_recorded(student)]
        if self.taken_up:
            count = f"{len(students) - len(left)} of {len(students)}"
            self.watcher.said(f"taking up the run of {self.run.began}: {count} were recorded")
        self.watcher.planned(len(students), len(students) - len(left))
        return sorted(left, key=lambda student: student in self.run.entries)

    def tasks(self, students: Sequence[str]) -> Iterator[GradingTask]:
        """What the judges get, one at a time: cleared in the gradebook, and started in the journal."""
        for student in students:
            handed_in = submission(self.directory, self.assignment, student, self.release)
            entry = self._entry(student, handed_in.path)
            try:
                with self.stop.whole():
                    self._patiently(functools.partial(self.recorder.clear, student))
                    self.journal.start(student, entry)
            except Exception as error:
                self._log.exception("%s: not started", student)
                self.settle(Outcome(task=GradingTask(submission=handed_in, seed=entry.seed), failed=sentence(error)))
                continue
            yield GradingTask(submission=handed_in, seed=entry.seed)

    def settle(self, outcome: Outcome[GradingTask, Graded]) -> None:
        """Record what came out, or why nothing did, and tell it."""
        if outcome.trace:
            self._log.error("%s: grading broke\n%s", outcome.task.submission.student, outcome.trace)
        with self.stop.whole():
            graded = self._recorded(outcome.result or self._failed(outcome.task, outcome.failed))
            report_one(self._log, graded)
            if graded.failed:
                self.failures[graded.student] = graded.failed
            self._finish(graded)
        self.watcher.told(graded)

    # --- seeds ---

    def _entry(self, student: str, path: Path | None) -> Entry:
        """The run's seed, or the one that is to be repeated; but a new one for a file that came when feedback may have
        been read: after this student was graded, or, where nobody graded him yet, after the run began.
        """
        digest, before, earlier = digest_of(path), self.run.entries.get(student), self.journal.starts.get(student)
        if self.run.seed is not None:
            seed = self.run.seed
        elif before is not None:
            seed = before.seed if before.digest == digest else new_seed()
        elif self.run.repeat and earlier is not None and earlier.digest == digest:
            seed = earlier.seed
        else:
            if self.run.repeat:
                why = "the file has changed since the earlier seed" if earlier else "no earlier seed is in the journal"
                self.watcher.said(f"{student}: {why}, a new one was drawn")
            seed = new_seed() if self._came_later(path) else self.run.drawn
        return Entry(digest=digest, seed=seed)

    def _came_later(self, path: Path | None) -> bool:
        """Whether a file was put where it lies after the run began; whoever writes it cannot choose that time."""
        try:
            return path is not None and path.stat().st_ctime > datetime.fromisoformat(self.run.began).timestamp() + 1.0
        except OSError:
            return True

    def _is_recorded(self, student: str) -> bool:
        """Whether this file was recorded in this run, also where a kill kept the journal from saying so."""
        entry = self.run.entries.get(student)
        if entry is None or entry.state == "failed" or self.recorder.recorded_seed(student) != entry.seed:
            return False
        path = submission(self.directory, self.assignment, student, self.release).path
        return digest_of(path) == entry.digest

    # --- recording ---

    def _recorded(self, graded: Graded) -> Graded:
        """Recorded; or else recorded as failed; or else at least told."""
        try:
            return self._patiently(functools.partial(self.recorder.record, graded))
        except Exception as error:
            self._log.exception("%s: not recorded", graded.student)
            task = GradingTask(submission=Submission(student=graded.student, path=None), seed=graded.seed)
            failed = self._failed(task, graded.failed or sentence(error))
        try:
            return self.recorder.record(failed)
        except Exception:
            self._log.exception("%s: not even that it failed could be recorded", graded.student)
            return failed

    def _failed(self, task: GradingTask, why: str) -> Graded:
        return untouched(task.submission.student, self.release, self.runner, failed=why, seed=task.seed)

    def _finish(self, graded: Graded) -> None:
        if graded.student not in self.run.entries:
            return  # it could not even be started
        try:
            self.journal.finish(graded.student, graded.failed)
        except OSError as error:  # not on the disk, so that a run that takes this one up looks at it again
            self._log.error("%s: the journal could not be written: %s", graded.student, error)

    def _patiently(self, action: Callable[[], Result]) -> Result:
        return patiently(action, self.watcher.said, seconds=self.patience, check=self.stop.check)

    @property
    def _log(self) -> logging.Logger:
        log: logging.Logger = self.directory.log
        return log


def sentence(error: Exception) -> str:
    """What went wrong, in one line for people; students too, so that a file stands there without its folder."""
    if isinstance(error, CourseError):
        return str(error)
    if isinstance(error, OSError):
        name = Path(os.fsdecode(error.filename)).name if isinstance(error.filename, (str, bytes)) else ""
        return ": ".join(filter(None, [error.strerror or str(error), name]))
    return database_words(error) if isinstance(error, DATABASE_ERRORS) else f"{type(error).__name__}: {error}"
