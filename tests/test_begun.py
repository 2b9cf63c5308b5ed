"""Messages that were begun: whether they were waited for, and their tensors written to before."""

from __future__ import annotations

import math

import pytest
import torch

from course.cluster import RanksFailed, run_ranks
from course.exercises.ddp.begun import Begun


def seen(program):
    """How many messages rank 0 changed, where both ranks send and receive."""

    def rank(comm):
        begun = Begun(comm)
        program(begun, torch.arange(3.0), torch.zeros(3), 1 - comm.rank)
        return begun.changed()

    return run_ranks(rank, 2).values[0]


def test_a_tensor_may_be_written_to_after_wait():
    def program(comm, x, came, other):
        work = comm.isend(x, other)
        comm.recv(came, other)
        work.wait()
        x += 1

    assert seen(program) == 0


def test_a_tensor_that_is_written_to_before_wait_is_seen():
    def program(comm, x, came, other):
        work = comm.isend(x, other)
        comm.recv(came, other)
        x += 1
        work.wait()

    assert seen(program) == 1


def test_what_is_never_waited_for_is_seen_though_nobody_writes_to_it():
    def program(comm, x, came, other):
        comm.isend(x, other)
        comm.recv(came, other)

    assert seen(program) == 1


def test_a_message_that_is_over_when_somebody_asks_is_free():
    def program(comm, x, came, other):
        work = comm.isend(x, other)
        comm.recv(came, other)
        assert work.is_completed()
        x += 1
        work.wait()

    assert seen(program) == 0


def test_messages_of_a_batch_are_looked_at_too():
    def program(comm, x, came, other):
        works = comm.batch_isend_irecv([comm.P2POp(comm.irecv, came, other), comm.P2POp(comm.isend, x, other)])
        works[0].wait()
        x.copy_(came + 1)
        works[1].wait()

    assert seen(program) == 1


def test_a_number_that_is_none_is_not_changed_where_nobody_writes_to_it():
    def program(comm, x, came, other):
        work = comm.isend(x.fill_(math.nan), other)
        comm.recv(came, other)
        work.wait()

    assert seen(program) == 0


def test_what_is_no_message_is_refused_as_it_is_without():
    def program(comm, x, came, other):
        comm.batch_isend_irecv([(comm.isend, x, other)])

    with pytest.raises(RanksFailed, match="ops must be a list of messages"):
        seen(program)
