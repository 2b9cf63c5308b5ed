"""The process that runs answers ends in the middle of a submission: it is started again, and nobody loses a point."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gc
import inspect
import os
import resource
from pathlib import Path

import pytest
import toy_ranks
from attacks import lesson
from attacks.conftest import LIMITS
from attacks.hiding import SAVES_TOO_MUCH
from ranks_room import staged_with_toy

from autograder.engine import grade as engine
from autograder.engine.grade import GradingTask, Judging, Submission, grade
from autograder.engine.pool import spread
from autograder.engine.worker import in_turn
from autograder.sandbox import RunnerError, open_runner
from autograder.sandbox.outside import control, loading
from autograder.sandbox.outside.control import WarmProcess
from autograder.sandbox.outside.loading import WarmProcessEnded
from autograder.sandbox.outside.session import Session
from course import exercises
from course.performing.cells import CodeCell

pytestmark = pytest.mark.sandbox
SEED = 5
STEPS = ["spent", *(pytest.param(each, marks=pytest.mark.soak) for each in ("start", "mark", "end"))]


@dataclasses.dataclass(frozen=True)
class Deadly(Judging):
    """Judges with a warm process that is killed when it is told `step` while this student's submission is graded.

    times  how often; the same student's next attempts too
    """

    student: str = ""
    step: str = ""
    times: int = 1

    @contextlib.contextmanager
    def __call__(self):
        honest, left, now = WarmProcess.tell, [self.times], [""]

        def tell(warm, message, passed=None):
            if now == [self.student] and message["do"] == self.step and left[0]:
                left[0] -= 1
                warm._process.kill()
                warm._process.wait()
            return honest(warm, message, passed)

        with pytest.MonkeyPatch.context() as patch, super().__call__() as do:
            patch.setattr(WarmProcess, "tell", tell)

            def watched(task):
                now[0] = task.submission.student
                return do(task)

            yield watched


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> list[GradingTask]:
    """Three students, whose memory is measured."""
    path = tmp_path_factory.mktemp("submitted") / "solved.ipynb"
    path.write_bytes(lesson.to_bytes(lesson.solved(SaveLess=SAVES_TOO_MUCH)))
    return [GradingTask(submission=Submission(student=name, path=path), seed=SEED) for name in ("ann", "bob", "cid")]


@pytest.fixture(scope="module")
def undisturbed(tasks):
    with open_runner(LIMITS, display=False) as runner:
        return held(grade(tasks[0].submission, lesson.release(), runner, seed=SEED, display=False))


def held(graded) -> list[tuple[str, bool]]:
    """Whether each property held; what was measured differs from run to run."""
    return [(finding.property, finding.held) for verdict in graded.verdicts for finding in verdict.findings]


def judging(**deadly) -> Deadly:
    return Deadly(release=dataclasses.replace(lesson.release()), limits=LIMITS, display=False, **deadly)


@pytest.mark.parametrize("step", STEPS)
def test_a_submission_is_graded_anew_on_other_cases_where_it_ends_at_any_step(step, tasks, undisturbed, monkeypatch):
    drawn, known = [], engine._known
    monkeypatch.setattr(engine, "_known", lambda name, seed: drawn.append((name, seed)) or known(name, seed))
    (outcome,) = in_turn(tasks[:1], judging(student="ann", step=step))
    assert outcome.failed == ""
    assert held(outcome.result) == undisturbed
    assert len({*drawn}) == len(drawn)
    assert outcome.result.seed == SEED


@pytest.mark.soak
@pytest.mark.parametrize("jobs", [1, 2])
def test_one_at_which_it_always_ends_is_given_up_and_the_others_are_graded(jobs, tasks, undisturbed):
    work = judging(student="bob", step="mark", times=2)
    outcomes = in_turn(tasks, work) if jobs == 1 else spread(tasks, work, jobs)
    found = {each.task.submission.student: each for each in outcomes}
    assert found["bob"].result is None
    assert "the process that runs answers ended, or was silent, in the middle" in found["bob"].failed
    assert [held(found[name].result) for name in ("ann", "cid")] == [undisturbed] * 2


@pytest.mark.usefixtures("forked_judges")
def test_two_judges_go_on_where_the_one_of_either_ends(tasks, undisturbed):
    outcomes = list(spread(tasks, judging(student="ann", step="mark"), 2))
    assert [each.failed for each in outcomes] == [""] * 3
    assert all(held(each.result) == undisturbed for each in outcomes)


def test_it_is_started_again_where_the_first_attempts_fail(monkeypatch, tmp_path):
    warm, fails = WarmProcess(None, display=False, units=()), [RunnerError("no memory"), RunnerError("no memory")]
    monkeypatch.setattr(control, "PAUSE", 0.0)
    monkeypatch.setattr(warm, "_start", lambda: (_ for _ in ()).throw(fails.pop()) if fails else Path(tmp_path))
    with pytest.raises(RunnerError):
        warm.start()
    warm._stood, fails[:] = True, [RunnerError("no memory")] * 2
    assert warm.start() == tmp_path


def test_a_submission_to_which_no_socket_can_be_handed_is_not_judged_by_that(monkeypatch):
    def full(to, message):
        raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))

    exercise = exercises.load("quadratic_grads")
    cells = [CodeCell(source="def quadratic_grads(a, b, c, x): return 0.0", answers="quadratic_grads")]
    with open_runner(LIMITS, display=False) as runner, runner.session(cells) as session:
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        monkeypatch.setattr(loading, "hand", full)
        with pytest.raises(WarmProcessEnded, match="Too many references"):
            session.perform(exercise, exercise.draw(1)[:1])


def test_a_session_that_loses_it_leaves_no_container_to_pythons_garbage_collector():
    with staged_with_toy(), open_runner(LIMITS, display=False) as runner:
        session = Session(runner._container, LIMITS, [CodeCell(source=toy_ranks.RING, answers=toy_ranks.EXERCISE.name)])
        session.perform(toy_ranks.EXERCISE, [case for case in toy_ranks.EXERCISE.draw(3) if case.name == "3 ranks"])
        runner._warm._process.kill()
        with pytest.raises(WarmProcessEnded):
            session.close()
        open_ones = [each for each in gc.get_objects() if inspect.isgenerator(each) and each.__name__ == "_container"]
        assert [inspect.getgeneratorstate(each) for each in open_ones if each.gi_frame] == []
