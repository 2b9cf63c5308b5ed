"""Runs that cannot go on, or that leave something undone: each is told at once, by kind, rank and words."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
import torch

from course.cluster import RanksFailed, Simulated, run_ranks
from course.errors import BadArgument

ONE, TWO = torch.ones(1), torch.ones(2)


def failure(step, ranks=3, **settings) -> RanksFailed:
    """How a run fails, which it must at once."""
    begun = time.monotonic()
    with pytest.raises(RanksFailed) as failed:
        run_ranks(step, ranks, **settings)
    assert time.monotonic() - begun < 5
    return failed.value


def test_all_receive_first():
    def step(comm):
        comm.recv(torch.zeros(1), (comm.rank + 1) % comm.size)

    error = failure(step)
    assert (error.kind, error.rank) == ("Deadlock", 0)
    assert str(error) == (
        "some rank must be able to go on, but all wait: rank 0 waits in recv(src=1); rank 1 waits in recv(src=2); "
        "rank 2 waits in recv(src=0)"
    )


RENDEZVOUS = Simulated(send="rendezvous")


def test_all_send_first_is_a_deadlock_only_where_a_send_waits_for_its_receive():
    def step(comm):
        comm.send(ONE, 1 - comm.rank)
        return comm.recv(ONE.clone(), 1 - comm.rank)

    assert run_ranks(step, 2).values == [1, 0]
    error = failure(step, 2, transport=RENDEZVOUS)
    assert (error.kind, error.rank) == ("Deadlock", 0)
    assert str(error).endswith("but all wait: rank 0 waits in send(dst=1); rank 1 waits in send(dst=0)")


def test_a_send_that_nobody_receives_where_it_waits():
    error = failure(lambda comm: comm.rank == 2 and comm.send(ONE, 0, tag=4), transport=RENDEZVOUS)
    assert str(error).endswith("rank 2 waits in send(dst=0, tag=4); ranks 0, 1 have returned")
    error = failure(lambda comm: comm.rank == 2 and comm.isend(ONE, 0), transport=RENDEZVOUS)
    assert (error.kind, error.rank) == ("Leftover", 0)
    assert "rank 0 returned without receiving message #1 of rank 2" in str(error)


def test_a_message_that_was_received_need_not_be_waited_for():
    def step(comm):
        comm.isend(ONE, 1 - comm.rank)
        return comm.recv(ONE.clone(), 1 - comm.rank)

    assert run_ranks(step, 2, transport=RENDEZVOUS).values == [1, 0]


def test_the_three_ways_to_be_stuck_are_told_in_one_sentence():
    def step(comm):
        if comm.rank != 1:
            comm.subgroup([0, 2]).barrier()
        if comm.rank == 0:
            comm.all_reduce(torch.zeros(4))
        if comm.rank == 2:
            comm.recv(torch.zeros(1), 1)

    error = failure(step)
    assert "rank 0 is in all_reduce #1, shape (4,); rank 2 waits in recv(src=1); rank 1 has returned" in str(error)
    assert error.ledger is not None
    assert error.ledger.calls(0) == ["barrier"]


def test_a_return_before_the_others_collective():
    error = failure(lambda comm: comm.rank == 1 or comm.barrier(), 5)
    assert (error.kind, error.rank) == ("Deadlock", 0)
    assert str(error).endswith("ranks 0, 2 to 4 are in barrier #1; rank 1 has returned")


def test_a_return_of_the_rank_that_anybody_waits_for():
    error = failure(lambda comm: None if comm.rank else comm.recv(torch.zeros(1)))
    assert str(error).endswith("rank 0 waits in recv(src=any); ranks 1, 2 have returned")


def test_a_wait_for_what_was_begun_and_never_comes():
    error = failure(lambda comm: None if comm.rank else comm.irecv(torch.zeros(1), 1).wait())
    assert error.kind == "Deadlock"
    assert "rank 0 waits in recv(src=1)" in str(error)


GROUPS = {
    "rank 0 is in barrier #1; rank 1 is in barrier #1 in group #2 of ranks 0, 1": lambda one, two: (
        two if one.rank else one
    ).barrier(),
    "rank 0 waits in recv(src=1) in group #2 of ranks 0, 1; rank 1 waits in recv(src=0, tag=3)": lambda one, two: (
        one.recv(ONE.clone(), 0, tag=3) if one.rank else two.recv(ONE.clone(), 1)
    ),
    "receiving message #1 of rank 0 with tag 7 in group #2 of ranks 0, 1, float32 of shape (1,)": lambda one, two: (
        one.rank or two.send(ONE, 1, tag=7)
    ),
    "is in all_reduce #1 in group #2 of ranks 0, 1 (max) with float32": lambda one, two: two.all_reduce(
        ONE.clone(), "max" if one.rank else "sum"
    ),
    "began to receive with recv(src=0, tag=7) in group #2 of ranks 0, 1, float32": lambda one, two: (
        one.rank and two.irecv(ONE.clone(), 0, tag=7)
    ),
    "without wait() for barrier #1 in group #2 of ranks 0, 1:": lambda one, two: two.barrier(async_op=True),
}


@pytest.mark.parametrize("words", GROUPS)
def test_a_group_is_named_where_another_has_the_same_ranks(words):
    def step(comm):
        if comm.rank < 2:
            GROUPS[words](comm.subgroup([0, 1]), comm.subgroup([0, 1]))

    assert words in str(failure(step))


def test_the_first_real_error_is_told_and_not_what_it_did_to_the_others():
    def step(comm):
        comm.barrier()
        if comm.rank == 2:
            [][1]
        comm.barrier()

    error = failure(step)
    assert (error.kind, error.rank, error.type) == ("RankRaised", 2, "IndexError")
    assert str(error).startswith("rank 2 raised IndexError: list index out of range (line ")
    assert error.where[-1].endswith("in step: [][1]")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, BaseException])
def test_what_is_no_exception_but_ends_a_rank_is_told_as_one(kind):
    def step(comm):
        if comm.rank == 1:
            raise kind("enough")
        comm.barrier()

    error = failure(step)
    assert (error.kind, error.rank, error.type) == ("RankRaised", 1, kind.__name__)
    assert "enough" in str(error)


def test_an_error_whose_message_raises():
    class Sly(Exception):
        def __str__(self):
            raise RuntimeError

    def step(comm):
        raise Sly

    assert "cannot be read" in str(failure(step))


def test_an_error_without_a_message_is_told_by_its_name():
    def step(comm):
        if comm.rank == 1:
            raise AssertionError
        comm.barrier()

    assert str(failure(step)).startswith("rank 1 raised AssertionError (line ")


def test_two_threads_of_a_rank_that_call_at_once_are_told():
    def step(comm):
        def beside():
            with contextlib.suppress(BaseException):  # the run ends meanwhile
                comm.recv(ONE.clone(), (comm.rank + 1) % comm.size, tag=1)

        if comm.rank:
            comm.compute(1.0)
            return time.sleep(0.5)  # until then nobody sees a deadlock
        threading.Thread(target=beside, daemon=True).start()
        while not comm._port._rank.is_calling:  # until it waits
            time.sleep(0.001)
        comm.recv(ONE.clone(), (comm.rank + 1) % comm.size, tag=2)

    error = failure(step)
    assert error.type == "BadArgument"
    assert "a rank must make one call after another, but two of its threads call at once" in str(error)


def test_an_error_that_a_rank_answers_is_no_failure():
    def step(comm):
        try:
            comm.send(ONE, comm.rank)
        except BadArgument:
            comm.barrier()
        return "went on"

    assert run_ranks(step, 2).values == ["went on"] * 2


PIECES = {
    "verb": (lambda c: c.barrier(), lambda c: c.all_reduce(ONE), "all_reduce #1 (sum) with float32 of shape (1,)"),
    "op": (lambda c: c.all_reduce(ONE, "max"), lambda c: c.all_reduce(ONE), "all_reduce #1 (max)"),
    "root": (lambda c: c.broadcast(ONE, 0), lambda c: c.broadcast(ONE, 1), "broadcast(src=1) #1"),
    "shape": (lambda c: c.all_reduce(TWO), lambda c: c.all_reduce(ONE), "float32 of shape (2,)"),
    "dtype": (lambda c: c.all_reduce(ONE.int()), lambda c: c.all_reduce(ONE), "int32 of shape (1,)"),
    "number of dims": (lambda c: c.broadcast(ONE[0], 0), lambda c: c.broadcast(ONE, 0), "float32 of shape ()"),
    "gather": (lambda c: c.gather(TWO, [TWO] * 2), lambda c: c.gather(ONE), "gather(dst=0) #1 with float32"),
    "scatter": (lambda c: c.scatter(TWO, [TWO] * 2), lambda c: c.scatter(ONE), "scatter(src=0) #1 with float32"),
    "reduce": (lambda c: c.reduce(TWO, 0), lambda c: c.reduce(ONE, 0), "reduce(dst=0) #1 (sum) with float32"),
    "pieces": (
        lambda c: c.all_to_all([ONE, ONE], [ONE, TWO]),
        lambda c: c.all_to_all([ONE, ONE], [ONE, ONE]),
        "rank 0 is in all_to_all #1 with float32 of shape (2,) for rank 1",
    ),
    "room": (
        lambda c: c.all_to_all([ONE, ONE], [ONE, ONE]),
        lambda c: c.all_to_all([TWO, ONE], [ONE, ONE]),
        "rank 1 is in all_to_all #1 with room for float32 of shape (2,) from rank 0",
    ),
    "async": (lambda c: c.all_reduce(ONE, async_op=True), lambda c: c.barrier(), "barrier #1"),
    "order": (
        lambda c: (c.all_reduce(ONE), c.barrier()),
        lambda c: (c.barrier(), c.all_reduce(ONE)),
        "barrier #1",
    ),
}


@pytest.mark.parametrize("what", PIECES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_calls_that_do_not_fit(what, seed):
    zero, one, words = PIECES[what]
    error = failure(lambda comm: (one if comm.rank else zero)(comm), 2, transport=Simulated(seed=seed))
    assert error.kind == "Mismatch"
    assert error.rank in (0, 1)
    assert str(error).startswith("all ranks of a group must make the same calls in the same order, but rank ")
    assert words in str(error)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    "into", [torch.zeros(2), torch.zeros(1, dtype=torch.int32), torch.zeros(()), torch.zeros(1, 1)]
)
def test_a_receive_into_another_shape_or_dtype(into, first):
    def step(comm):
        if comm.rank != first:
            comm.compute(1.0)  # the other calls first
        if comm.rank == 0:
            comm.send(ONE, 1)
        else:
            comm.recv(into.clone(), 0)

    error = failure(step, 2)
    assert (error.kind, error.rank) == ("Mismatch", 1)
    assert "rank 0 sent float32 of shape (1,) in its message #1 to it" in str(error)


# --- leftovers: all have returned ---


def test_a_message_that_is_never_received():
    def step(comm):
        if comm.rank == 2:
            comm.send(TWO, 0)
            comm.send(ONE, 0)

    error = failure(step)
    assert (error.kind, error.rank) == ("Leftover", 0)
    assert str(error) == (
        "every message must be received, but rank 0 returned without receiving message #1 of rank 2, "
        "float32 of shape (2,) (and 1 more)"
    )


def test_a_collective_that_was_begun_and_never_joined():
    error = failure(lambda comm: comm.rank == 1 and comm.all_reduce(torch.zeros(4), async_op=True))
    assert (error.kind, error.rank) == ("Leftover", 0)
    assert str(error) == (
        "every rank of a group must join its collectives, but ranks 0, 2 returned without joining rank 1, "
        "which is in all_reduce #1, shape (4,)"
    )


def test_a_receive_that_was_begun_and_never_met():
    error = failure(lambda comm: None if comm.rank else comm.irecv(torch.zeros(4), 2))
    assert (error.kind, error.rank) == ("Leftover", 2)
    assert "rank 2 never sent what rank 0 began to receive with recv(src=2), float32 of shape (4,)" in str(error)


def test_a_receive_from_anybody_that_was_begun_and_never_met():
    error = failure(lambda comm: comm.rank == 1 and comm.irecv(torch.zeros(4)))
    assert (error.kind, error.rank) == ("Leftover", 1)
    assert "nobody sent what rank 1 began to receive with recv(src=any)" in str(error)


@pytest.mark.parametrize("begun", ["all_reduce", "recv"])
def test_what_was_begun_and_met_must_be_waited_for(begun):
    def step(comm):
        if begun == "all_reduce":
            comm.all_reduce(torch.zeros(1), async_op=True)
        elif comm.rank == 0:
            comm.irecv(torch.zeros(1), 1)
        else:
            comm.send(ONE, 0)

    error = failure(step, 2)
    assert error.kind == "Leftover"
    assert "returned without wait() for" in str(error)


def test_the_rank_that_raises_is_told_before_what_it_left():
    def step(comm):
        comm.send(ONE, 1 - comm.rank)
        raise ValueError("first")

    assert failure(step, 2).kind == "RankRaised"
