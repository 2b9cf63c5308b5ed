"""Runs of processes that cannot go on: each is told in a sentence, and nothing is left."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest
import torch
from gloo_room import TOLD, by_value, every_verb, gloo, rank_processes
from living import still_alive

from course.cluster import RanksFailed, run_ranks
from course.cluster.processes.launch import Launch

by_value(__name__)


@pytest.fixture(scope="module", autouse=True)
def _server_of_ranks():
    """It has started: that takes as long as to import torch, and has nothing to do with how soon a failure is told."""
    gloo(return_at_once)


def return_at_once(comm):
    pass


def receive_first(comm):
    comm.recv(torch.empty(2), (comm.rank + 1) % comm.size)


def return_early(comm):
    if comm.rank != 1:
        comm.barrier()


def die(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def leave(comm):
    if comm.rank == 1:
        os._exit(0)
    comm.all_reduce(torch.ones(3))


def raise_while_others_wait(comm):
    x = torch.ones(1000)
    comm.all_reduce(x)
    if comm.rank == 1:
        raise ZeroDivisionError("one half")
    comm.all_reduce(x)


def exit_quietly(comm):
    if comm.rank == 1:
        sys.exit(0)
    comm.barrier()


def differ_in_verb(comm):
    x = torch.ones(2)
    comm.all_reduce(x) if comm.rank == 1 else comm.broadcast(x, 0)


def differ_in_shape(comm):
    comm.all_reduce(torch.ones(2 + (comm.rank == 1)))


def differ_in_dtype(comm):
    if comm.rank == 0:
        comm.send(torch.ones(2), 1)
    if comm.rank == 1:
        comm.recv(torch.ones(2, dtype=torch.float64), 0)


def leave_a_message(comm):
    if comm.rank == 0:
        comm.send(torch.ones(2), 1)


def leave_a_collective(comm):
    if comm.rank == 0:
        comm.all_reduce(torch.ones(2), async_op=True)


def wait_for_what_never_comes(comm):
    work = comm.irecv(torch.ones(2), 1 - comm.rank) if comm.rank < 2 else None
    if work:
        work.wait()


def name_no_rank(comm):
    comm.send(torch.ones(1), 3)


def begin_in_a_group_that_nobody_joins(comm):
    """The members of a group are connected when each makes its first collective there."""
    if comm.rank < 2:
        pair = comm.subgroup([0, 1])
        if comm.rank == 0:
            pair.barrier(async_op=True)
        comm.recv(torch.ones(1), 1 - comm.rank)


def return_a_lock(comm):
    return threading.Lock()


BROKEN = [
    (receive_first, "Deadlock", "all wait: rank 0 waits in recv(src=1); rank 1 waits in recv(src=2); rank 2 waits in"),
    (return_early, "Deadlock", "ranks 0, 2 are in barrier #1; rank 1 has returned"),
    (wait_for_what_never_comes, "Deadlock", "rank 0 waits in recv(src=1); rank 1 waits in recv(src=0); rank 2 has"),
    (
        begin_in_a_group_that_nobody_joins,
        "Deadlock",
        "rank 0 is in barrier #1; rank 1 waits in recv(src=0); rank 2 has",
    ),
    (die, "RankDied", "rank 1 died: killed by signal 9 (SIGKILL)"),
    (leave, "RankDied", "rank 1 died: ended by itself with exit status 0, before it returned"),
    (raise_while_others_wait, "RankRaised", "rank 1 raised ZeroDivisionError: one half (line "),
    (exit_quietly, "RankRaised", "rank 1 raised SystemExit: 0"),
    (name_no_rank, "RankRaised", "raised BadArgument: dst must be a rank from 0 to 2, got 3"),
    (return_a_lock, "RankRaised", "returned something that cannot be sent to the caller: cannot pickle"),
    (differ_in_verb, "Mismatch", "all ranks of a group must make the same calls in the same order"),
    (differ_in_shape, "Mismatch", "with float32 of shape (3,)"),
    (differ_in_dtype, "Mismatch", "rank 1 receives float64 of shape (2,) and rank 0 sent float32 of shape (2,)"),
    (leave_a_message, "Leftover", "rank 1 returned without receiving message #1 of rank 0"),
    (leave_a_collective, "Leftover", "ranks 1, 2 returned without joining rank 0, which is in all_reduce #1"),
]


@pytest.mark.parametrize(("function", "kind", "words"), BROKEN, ids=[each.__name__ for each, _, _ in BROKEN])
def test_a_broken_run_is_told_in_a_sentence_and_leaves_nothing(function, kind, words):
    began = time.monotonic()
    with pytest.raises(RanksFailed) as told:
        gloo(function, 3)
    assert told.value.kind == kind
    assert words in str(told.value)
    assert told.value.ledger is not None
    assert time.monotonic() - began < TOLD
    assert not rank_processes()


def test_the_kind_of_a_broken_run_is_that_of_simulated_ranks():
    for function, kind, _ in BROKEN:
        if function not in (die, leave, return_a_lock):
            with pytest.raises(RanksFailed) as told:
                run_ranks(function, 3)
            assert told.value.kind == kind, function.__name__


def test_what_a_rank_said_just_before_its_death_is_not_lost():
    def dying(comm):
        if comm.rank == 1:
            for _ in range(20):
                comm.send(torch.ones(2), 0)
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    with pytest.raises(RanksFailed, match="rank 1 died") as told:
        gloo(dying)
    assert told.value.ledger.messages[1, 0] == 20


def test_a_mismatch_is_told_where_its_rank_dies_of_it():
    def mismatched(comm):
        if comm.rank == 1:
            comm.all_reduce(torch.ones(2), async_op=True)
            os.kill(os.getpid(), signal.SIGKILL)
        comm.all_reduce(torch.ones(3))

    with pytest.raises(RanksFailed) as told:
        gloo(mismatched)
    assert told.value.kind == "Mismatch"


def test_at_the_time_limit_the_line_of_an_endless_loop_is_told():
    def looping(comm):
        if comm.rank == 1:
            while True:
                pass
        comm.barrier()

    with pytest.raises(RanksFailed, match=r"within 1 s, but rank 1 still runs \(line \d+, in looping") as told:
        gloo(looping, seconds=1)
    assert (told.value.kind, told.value.rank) == ("TimeLimit", 1)
    assert "rank 0 is in barrier #1" in str(told.value)


def test_ranks_that_are_processes_have_no_time_limit_but_one_that_is_given(monkeypatch):
    limits, until = [], Launch._until

    def noted(launch, is_over, seconds, what):
        limits.append((what, seconds))
        until(launch, is_over, seconds, what)

    monkeypatch.setattr(Launch, "_until", noted)
    for seconds in (None, 20):
        gloo(return_at_once, seconds=seconds)
    assert [seconds for what, seconds in limits if what == "end"] == [math.inf, 20]


def test_a_rank_that_takes_its_time_is_no_deadlock():
    def slow(comm):
        x = torch.zeros(1)
        for turn in range(3):
            if comm.rank == turn:
                time.sleep(0.3)
            comm.all_reduce(x)
        if comm.rank == 0:
            time.sleep(0.3)
            comm.send(x, 1)
        elif comm.rank == 1:
            comm.recv(x)

    gloo(slow, 3)


def test_what_a_rank_starts_ends_with_it():
    def starting(comm):
        return subprocess.Popen(["sleep", "1000"]).pid

    pids = gloo(starting).values
    assert not still_alive(pids, 5)  # they are killed by then, and a busy machine needs a moment to end them


def test_nothing_is_left_after_a_run(monkeypatch):
    """In a folder of its own: other test processes have runs of theirs in the shared one."""
    own = tempfile.mkdtemp(prefix="own-")
    monkeypatch.setattr(tempfile, "tempdir", own)
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        gloo(every_verb)
    assert not rank_processes()
    assert os.listdir(own) == []
    os.rmdir(own)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 4  # the server's, where this is the first test
