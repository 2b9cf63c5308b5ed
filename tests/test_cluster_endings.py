"""However a run ends, it ends in time, and leaves nothing behind: no thread, no stream, no random state."""

from __future__ import annotations

import signal
import sys
import sysconfig
import threading
import time

import pytest
import torch

from course.cluster import RanksFailed, run_ranks
from course.cluster.protocol.failures import Stopped
from course.cluster.simulated import simulation


def living():
    return [each.name for each in threading.enumerate() if each.name.startswith("rank ")]


@pytest.fixture(autouse=True)
def _nothing_left():
    """No rank lives on, and streams and random numbers of the caller are what they were."""
    streams, state = (sys.stdout, sys.stderr), torch.get_rng_state()
    yield
    assert (sys.stdout, sys.stderr) == streams
    assert torch.equal(torch.get_rng_state(), state)
    assert living() == []


def failure(step, ranks=2, seconds=0.3) -> RanksFailed:
    """How a run fails, which it must soon after its limit."""
    begun = time.monotonic()
    with pytest.raises(RanksFailed) as failed:
        run_ranks(step, ranks, seconds=seconds)
    assert time.monotonic() - begun < seconds + 3  # 1.1 s alone on the machine
    return failed.value


def test_an_endless_loop_is_told_at_the_limit_with_its_line():
    def step(comm):
        torch.rand(1)
        if comm.rank == 1:
            while True:
                pass
        comm.barrier()

    error = failure(step)
    assert (error.kind, error.rank) == ("TimeLimit", 1)
    assert "the ranks must end within 0.3 s, but rank 1 still runs (line " in str(error)
    assert error.where[-1].split(":")[1].strip() in ("while True", "pass")


def test_a_limit_that_nobody_has_set_is_told_with_its_argument(monkeypatch):
    def step(comm):
        while True:
            pass

    monkeypatch.setattr(simulation, "SECONDS", 0.3)
    with pytest.raises(RanksFailed, match=r"within 0.3 s where seconds= gives them no more, but rank 0 still runs"):
        run_ranks(step, 1)


def test_an_endless_loop_of_calls_is_told_too():
    def step(comm):
        while True:
            comm.barrier()

    error = failure(step)
    assert error.kind == "TimeLimit"
    assert "comm.barrier()" in error.where[-1]


def test_a_single_rank_that_does_not_end():
    def step(comm):
        while True:
            pass

    error = failure(step, ranks=1)
    assert str(error) == f"the ranks must end within 0.3 s, but rank 0 still runs ({error.where[-1]})"


def test_a_rank_that_swallows_every_interrupt():
    def step(comm):
        while True:
            try:
                sum(range(100))
            except BaseException:
                continue

    assert failure(step).kind == "TimeLimit"


def test_a_rank_that_sleeps_beyond_the_limit_ends_when_it_wakes():
    def step(comm):
        if comm.rank == 0:
            time.sleep(2.0)
        comm.barrier()

    error = failure(step)
    assert "time.sleep(2.0)" in error.where[-1]
    begun = time.monotonic()
    while living() and time.monotonic() - begun < 20:
        time.sleep(0.1)


def test_a_rank_that_swallows_whatever_its_calls_raise():
    def step(comm):
        while True:
            try:
                comm.barrier()
            except BaseException:
                continue

    assert failure(step, ranks=3).kind == "TimeLimit"


def test_ranks_that_swallow_everything_when_another_has_raised():
    def step(comm):
        if comm.rank == 0:
            raise ValueError("first")
        while True:
            try:
                comm.barrier()
            except BaseException:
                continue

    error = failure(step, ranks=3, seconds=60)
    assert (error.kind, error.rank) == ("RankRaised", 0)


def test_a_rank_that_computes_on_when_the_run_is_over():
    def step(comm):
        if comm.rank == 0:
            raise ValueError("first")
        try:
            comm.barrier()
        finally:
            while True:
                pass

    assert failure(step, seconds=60).type == "ValueError"


LIBRARY = """
def work(lock):
    lock.acquire()
    for _ in range(1000):
        pass
    lock.release()
"""


def test_a_rank_is_interrupted_in_its_own_code_not_in_a_librarys_which_may_hold_a_lock():
    library, lock = {}, threading.Lock()
    exec(compile(LIBRARY, f"{sysconfig.get_paths()['stdlib']}/work.py", "exec"), library)

    def step(comm):
        while True:
            library["work"](lock)
            sum(range(1000))

    assert failure(step).kind == "TimeLimit"
    assert lock.acquire(timeout=1)


def test_a_rank_that_stays_in_a_library_is_interrupted_there():
    library = {}
    exec(compile("def stay():\n    while True: pass", f"{sysconfig.get_paths()['stdlib']}/stay.py", "exec"), library)
    assert failure(lambda comm: library["stay"]()).kind == "TimeLimit"


def test_what_a_rank_tidies_up_is_done_though_the_run_broke():
    tidied = []

    def step(comm):
        try:
            comm.recv(torch.zeros(1), 1 - comm.rank)
        finally:
            tidied.append(comm.rank)

    assert failure(step).kind == "Deadlock"
    assert sorted(tidied) == [0, 1]


def test_a_call_after_the_end_raises_again():
    seen = []

    def step(comm):
        for _ in range(3):
            try:
                comm.recv(torch.zeros(1), 1 - comm.rank)
            except Stopped:
                seen.append(comm.rank)

    assert failure(step).kind == "Deadlock"
    assert sorted(seen) == [0, 0, 0, 1, 1, 1]


def test_except_exception_does_not_swallow_the_end():
    def step(comm):
        for _ in range(3):
            try:
                comm.recv(torch.zeros(1), 1 - comm.rank)
            except Exception:
                raise AssertionError from None

    assert failure(step).kind == "Deadlock"


def test_an_interrupt_of_the_caller_ends_the_run():
    def interrupt(*_):
        raise KeyboardInterrupt

    def step(comm):
        while True:
            comm.barrier()

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            run_ranks(step, 3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_run_inside_a_rank_of_another():
    def inner(comm):
        x = torch.ones(1)
        comm.all_reduce(x)
        return x.item()

    def outer(comm):
        x = torch.tensor(sum(run_ranks(inner, 3).values))
        comm.all_reduce(x)
        return x.item()

    assert run_ranks(outer, 2).values == [18.0, 18.0]


def test_a_broken_run_inside_a_rank_is_an_error_of_that_rank():
    def outer(comm):
        comm.barrier()
        if comm.rank == 1:
            run_ranks(lambda inside: inside.recv(torch.zeros(1)), 2)
        comm.barrier()

    error = failure(outer, seconds=60)
    assert (error.kind, error.rank, error.type) == ("RankRaised", 1, "RanksFailed")
    assert "rank 1 raised RanksFailed: some rank must be able to go on" in str(error)


def test_a_run_from_a_thread_that_is_not_the_main_one():
    values = []
    thread = threading.Thread(target=lambda: values.extend(run_ranks(lambda comm: comm.rank, 3).values))
    thread.start()
    thread.join()
    assert values == [0, 1, 2]


def test_a_hundred_runs_in_a_row_broken_and_whole():
    for turn in range(50):
        assert run_ranks(lambda comm: comm.barrier(), 4).values == [None] * 4
        assert failure(lambda comm, turn=turn: comm.rank == turn % 4 or comm.barrier(), 4).kind == "Deadlock"
