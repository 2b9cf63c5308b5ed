"""Exercises with several ranks: each has a container of its own, and a broker stands between them.

case --split--> parts --> performers <--calls--> broker;  observations --merged--> one observation
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from autograder.sandbox.outside.broker import Broker
from autograder.sandbox.outside.kept import Kept
from autograder.sandbox.outside.loading import Loading, NotStarted, PerformerTask, RunnerError, ended, late
from autograder.sandbox.wire import stream
from autograder.sandbox.wire.messages import MAX_MESSAGE
from autograder.sandbox.wire.policy import PATIENT, Limits
from autograder.sandbox.wire.rank_messages import RankCall, from_part
from course.cluster import RanksFailed, Run
from course.cluster.account.ledger import costs
from course.performing.exercise import Case, Exercise, Failure, Inputs, Observation
from course.performing.oracle import with_costs
from course.performing.perform import in_turn, stops
from course.performing.simulate import merged
from course.tree import Leaf, Tree, clone, readable

ENDS = ("RankDied", "BadReply", "Flood", "TimeLimit")  # later cases are not run any more


class Ranks:
    """The ranks of one submission. The first is in the submission's container, `another` makes one for each further."""

    def __init__(self, limits: Limits, first: Loading, another: Callable[[], Loading]) -> None:
        self._limits, self._loadings, self._another = limits, [first], another
        self._performers: dict[int, socket.socket] = {}
        self._kept = Kept()

    def close(self) -> None:
        """End the containers of all ranks but the first, also where one cannot be ended."""
        self._let_go(list(self._performers))
        with contextlib.ExitStack() as all_of_them:
            for each in self._loadings[1:]:
                all_of_them.callback(each.close)
            del self._loadings[1:]

    def perform(self, exercise: Exercise, cases: Sequence[Case], until: float) -> tuple[Observation, ...]:
        """One observation per case; none begins at the time `until` or later."""
        seeds, self._kept = itertools.count(), Kept()

        def observe(case: Case) -> Observation:
            return self._observe(exercise, case, until, seed=next(seeds))

        try:
            return tuple(in_turn(cases, observe, _ends))
        finally:
            self._let_go(list(self._performers))
            for each in self._loadings:
                each.end()

    def call(self, call: RankCall, parts: Sequence[Inputs]) -> Run:
        """See Session."""
        request: Tree = {"function": call.function, "verbs": list(call.verbs), "seconds": call.seconds}
        try:
            task = PerformerTask(name=call.function, request=request)
            broker = self._broker(task, parts, call.verbs, call.seconds, returns=True)
            try:
                broker.run()
            except RanksFailed:
                self._clear_up(broker.stuck)
                raise
            finally:
                sys.stdout.write(broker.printed)
        except NotStarted as error:
            raise RunnerError(f"{call.function} must load in the sandbox, but: {error}") from None
        finally:
            self._let_go(list(self._performers))
        return Run(values=broker.values, ledger=broker.ledger)

    def _observe(self, exercise: Exercise, case: Case, until: float, *, seed: int) -> Observation:
        """One case, if it is not too late. One that is measured is performed small first, by new processes.

        Libraries would count else, also where one process alone is new because its rank had to be replaced. And what
        earlier cases have left behind would make room, once it is let go of, that does not count.
        """
        measured = case.name in exercise.measured
        if measured and time.monotonic() < until:
            self._let_go(list(self._performers))
            kept = self._kept.bytes
            seen = self._performed(exercise, case, seed=seed, measured=False)
            if seen.error is not None:
                return seen
            self._kept.bytes = kept
            del seen  # nobody judges it
        over = time.monotonic() >= until
        return late(self._limits) if over else self._performed(exercise, case, seed=seed, measured=measured)

    def _performed(self, exercise: Exercise, case: Case, *, seed: int, measured: bool) -> Observation:
        assert exercise.split is not None
        outside = {"outside": True} if measured else {}
        parts = exercise.split({**{name: clone(value) for name, value in case.inputs.items()}, **outside})
        try:
            if measured:  # from before they get their parts
                self._start(PerformerTask.of(exercise), len(parts))
                self._loadings[0].container.tell({"do": "mark"})
            task = PerformerTask.of(exercise)
            broker = self._broker(task, parts, exercise.verbs, exercise.seconds, seed=seed, measured=measured)
        except NotStarted as error:
            return error.seen
        try:
            seen = dataclasses.replace(merged(broker.run(), broker.ledger, "broker"), printed=broker.printed)
            return with_costs(seen, self._spent(broker, len(parts)), "kernel") if measured else seen
        except RanksFailed as failure:
            why = self._clear_up(broker.stuck)
            seen = ended(why) if why else Observation(error=_failure(failure))
            return with_costs(dataclasses.replace(seen, printed=broker.printed), costs(broker.ledger), "broker")

    def _broker(
        self,
        task: PerformerTask,
        parts: Sequence[Inputs],
        verbs: Sequence[str],
        seconds: float,
        *,
        seed: int = 0,
        measured: bool = False,
        returns: bool = False,
    ) -> Broker:
        """A broker between ranks that have got their parts. Raises NotStarted.

        The time in which a rank was ready to run, and others were running, is not its own.
        """
        socks, token = self._start(task, len(parts)), stream.new_token()
        started = time.monotonic()
        deadline = started + seconds

        def later() -> float:
            waits = [float(each.container.tell({"do": "waited"})["seconds"]) for each in self._loadings[: len(parts)]]
            return started + min(seconds + sum(waits), PATIENT * seconds)

        def look() -> None:
            if measured:
                self._loadings[0].container.tell({"do": "look"})

        broker = Broker(
            socks,
            token,
            verbs=verbs,
            seed=seed,
            deadline=deadline,
            later=later,
            look=look,
            kept=self._kept,
            returns=returns,
        )
        for rank, part in enumerate(parts):
            with contextlib.suppress(stream.Late, stream.Closed):  # the broker hears that it has gone
                given = Case(name="", inputs=part)
                stream.send(socks[rank], from_part(given, rank, len(parts)), token=token, deadline=deadline)
        return broker

    def _start(self, task: PerformerTask, count: int) -> list[socket.socket]:
        """A performer for each rank, those that are there already first. Raises NotStarted."""
        missing = [rank for rank in range(count) if rank not in self._performers]
        if missing:
            with ThreadPoolExecutor(len(missing)) as pool:  # they wait for other processes
                while len(self._loadings) < count:
                    self._loadings.append(self._another())
                started = [pool.submit(self._loadings[rank].start, task) for rank in missing]
                for rank, future in zip(missing, started, strict=True):
                    if future.exception() is None:
                        self._performers[rank] = future.result()
            for future in started:
                future.result()
        return [self._performers[rank] for rank in range(count)]

    def _spent(self, broker: Broker, count: int) -> dict[str, Leaf]:
        """What each rank's processes used since the mark. Raises RanksFailed where one has ended meanwhile."""
        spent = [each.container.tell({"do": "spent"}) for each in self._loadings[:count]]
        for rank, each in enumerate(spent):
            if each["ended"]:
                raise broker.died(rank)
        return {name: torch.tensor([each[name] for each in spent]) for name in ("peak_bytes", "cpu_seconds")}

    def _clear_up(self, stuck: Sequence[int]) -> str:
        """End the processes of ranks that did not stop, and first of the others: what these have begun would go on, and
        keep those from their end. The watchdog's reason, where it was faster.
        """
        if not stuck:
            return ""
        self._let_go(list(self._performers))
        for rank, each in enumerate(self._loadings):
            if rank not in stuck:
                each.end()
        return next((why for rank in stuck if (why := self._loadings[rank].sweep())), "")

    def _let_go(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._performers.pop(rank).close()


def _failure(failed: RanksFailed) -> Failure:
    message = readable(failed.without_line, MAX_MESSAGE)
    return Failure(type=failed.type, message=message, where=failed.where, rank=failed.rank)


def _ends(failure: Failure | None) -> bool:
    return failure is not None and (failure.type in (*ENDS, "ProcessDied") or stops(failure))
