"""Calls that are begun and waited for later: when tensors are read, when they are written, and when it is over."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
from collectives import Case, cases, reduced, same
from hypothesis import given

from course.cluster import Link, RanksFailed, Simulated, WaitTimedOut, fully_connected, run_ranks

SLOW = Simulated(topology=fully_connected(2, Link(latency=1.0, bandwidth=1e30)))


@given(cases(reducing=True))
def test_begun_collectives_give_what_the_plain_ones_give_in_whatever_order_they_are_waited_for(case: Case):
    def step(comm):
        x, y, z = case.tensor(comm.rank), case.tensor(comm.rank, 1), case.empty()
        works = [
            comm.all_reduce(x, case.op, async_op=True),
            comm.broadcast(y, case.root, async_op=True),
            comm.reduce_scatter(z, [case.tensor(comm.rank, p) for p in range(comm.size)], case.op, async_op=True),
        ]
        for work in reversed(works) if comm.rank % 2 else works:
            work.wait()
            work.wait()  # at once
        return x, y, z

    ranks = range(case.size)
    for place, (x, y, z) in enumerate(case.run(step)):
        assert same(x, reduced(case.op, [case.values(rank) for rank in ranks]))
        assert same(y, case.values(case.root, 1))
        assert same(z, reduced(case.op, [case.values(rank, place) for rank in ranks]))


def test_every_collective_can_be_begun():
    def step(comm):
        rows = [torch.zeros(1) for _ in range(7)]
        works = [
            comm.reduce(torch.ones(1), 0, async_op=True),
            comm.all_gather(rows[:2], torch.ones(1), async_op=True),
            comm.all_gather_single(out := torch.zeros(2), torch.ones(1), async_op=True),
            comm.reduce_scatter_single(rows[2], torch.ones(2), async_op=True),
            comm.all_to_all(rows[3:5], [torch.ones(1), torch.ones(1)], async_op=True),
            comm.gather(torch.ones(1), [rows[5], torch.zeros(1)] if comm.rank == 0 else None, async_op=True),
            comm.scatter(rows[6], [torch.ones(1), torch.ones(1)] if comm.rank == 0 else None, async_op=True),
            comm.barrier(async_op=True),
        ]
        for work in works:
            work.wait()
        return [each.item() for each in (*rows, *out)]

    assert run_ranks(step, 2).values == [[1, 1, 2, 1, 1, rank == 0, 1, 1, 1] for rank in range(2)]


def test_before_wait_the_tensor_still_holds_its_old_value():
    def step(comm):
        x = torch.ones(1)
        work = comm.all_reduce(x, async_op=True)
        comm.barrier()  # the call is made, and over
        before = x.item()
        work.wait()
        return before, x.item()

    assert run_ranks(step, 3).values == [(1.0, 3.0)] * 3


def test_a_tensor_that_is_overwritten_between_isend_and_wait_is_sent_overwritten():
    def step(comm):
        x = torch.zeros(1)
        if comm.rank == 0:
            work = comm.isend(x, 1)
            x.fill_(7)
            work.wait()
            x.fill_(8)
        else:
            comm.recv(x, 0)
        return x.item()

    assert run_ranks(step, 2).values == [8.0, 7.0]


def test_a_begun_call_is_made_at_the_next_call_whatever_that_is():
    def step(comm):
        x = torch.zeros(1)
        if comm.rank == 0:
            comm.isend(x.fill_(1), 1)
            comm.compute(5.0)
            x.fill_(2)
        else:
            comm.recv(x, 0)
        return x.item()

    assert run_ranks(step, 2).values == [2.0, 1.0]


def test_what_was_begun_last_is_made_when_the_rank_returns():
    def step(comm):
        x = torch.zeros(1)
        if comm.rank == 0:
            comm.isend(torch.ones(1), 1)
        else:
            comm.recv(x, 0)
        return x.item()

    assert run_ranks(step, 2).values == [0.0, 1.0]


def test_neighbours_may_all_begin_to_receive_first():
    def step(comm):
        left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        x = torch.zeros(1)
        work = comm.irecv(x, left)
        comm.isend(torch.full((1,), float(comm.rank)), right).wait()
        work.wait()
        return x.item()

    assert run_ranks(step, 5).values == [4.0, 0.0, 1.0, 2.0, 3.0]


def test_receives_that_were_begun_get_the_messages_in_order_though_waited_for_in_another():
    def step(comm):
        if comm.rank == 0:
            for value in (1.0, 2.0, 3.0):
                comm.send(torch.tensor(value), 1)
            return None
        rows = [torch.tensor(0.0) for _ in range(3)]
        works = [comm.irecv(row, src) for row, src in zip(rows, (0, None, 0), strict=True)]
        for place in (2, 0, 1):
            works[place].wait()
        return [row.item() for row in rows]

    assert run_ranks(step, 2).values[1] == [1.0, 2.0, 3.0]


def test_a_work_is_completed_when_its_time_has_come_and_asking_once_takes_no_time():
    def step(comm):
        work = comm.all_reduce(torch.zeros(1), async_op=True)
        early = work.is_completed()
        comm.compute(3.0)
        late = work.is_completed()
        work.wait()
        return early, late

    run = run_ranks(step, 2, transport=SLOW)
    assert run.values == [(False, True)] * 2
    assert run.ledger.clocks == [3.0, 3.0]


def test_a_loop_that_asks_until_completed_sees_what_another_rank_does_meanwhile():
    def step(comm):
        if comm.rank == 0:
            comm.compute(3.0)
            comm.send(torch.zeros(1), 1)
            return 0
        work, asked = comm.irecv(torch.zeros(1), 0), 0
        while not work.is_completed():
            comm.compute(1.0)
            asked += 1
        work.wait()
        return asked

    assert run_ranks(step, 2, transport=SLOW).values[1] == 4  # sent at 3 s, there at 4 s


def until_completed(*works):
    """How often a loop has asked in vain."""
    asked = 0
    while not all(work.is_completed() for work in works):
        asked += 1
    return asked


def test_a_loop_that_does_nothing_but_ask_ends_when_its_work_does():
    def step(comm):
        if comm.rank == 0:
            comm.compute(3.0)
            comm.send(torch.zeros(1), 1)
            return comm.recv(torch.zeros(1), 1)
        asked = until_completed(comm.irecv(x := torch.ones(1), 0))
        comm.send(x, 0)
        return asked

    run = run_ranks(step, 2, transport=SLOW)
    assert run.values[1] < 5
    assert run.ledger.clocks == [5.0, 4.0]  # sent at 3 s, there at 4 s


def test_who_asks_for_several_in_turn_sees_the_first_that_is_completed():
    def step(comm):
        if comm.rank:
            comm.compute(float(comm.rank))
            return comm.send(torch.zeros(1), 0)
        works = {src: comm.irecv(torch.zeros(1), src) for src in (2, 1)}
        order = []
        while works:
            for src in [src for src, work in works.items() if work.is_completed()]:
                works.pop(src).wait()
                order.append((src, comm.compute(0.0)))
        return [src for src, _ in order]

    run = run_ranks(step, 3, transport=Simulated(topology=fully_connected(3, Link(latency=1.0, bandwidth=1e30))))
    assert run.values[0] == [1, 2]
    assert run.ledger.clocks == [3.0, 1.0, 2.0]


def test_what_is_completed_is_there_and_need_not_be_waited_for():
    def step(comm):
        x, y = torch.zeros(1), torch.ones(1)
        comm.isend(torch.full((1,), 7.0), 1 - comm.rank)
        until_completed(comm.irecv(x, 1 - comm.rank), comm.all_reduce(y, async_op=True))
        return x.item(), y.item()

    assert run_ranks(step, 2, transport=SLOW).values == [(7.0, 2.0)] * 2


@pytest.mark.parametrize("verb", ["irecv", "all_reduce"])
def test_asking_for_what_can_never_come_is_a_deadlock(verb):
    def step(comm):
        if comm.rank == 2:
            return
        x = torch.zeros(4)
        until_completed(comm.irecv(x, 2) if verb == "irecv" else comm.all_reduce(x, async_op=True))

    what = {"irecv": "recv(src=2)", "all_reduce": "all_reduce #1, shape (4,)"}[verb]
    with pytest.raises(RanksFailed) as failed:
        run_ranks(step, 3)
    assert failed.value.kind == "Deadlock"
    assert str(failed.value).endswith(f"all wait: ranks 0, 1 ask whether {what} is completed; rank 2 has returned")


def test_a_loop_that_gives_up_goes_on_while_all_others_wait():
    def step(comm):
        if comm.rank:
            comm.recv(torch.zeros(1), 0)
            return comm.send(torch.zeros(1), 0)
        work = comm.irecv(torch.zeros(1), 1)
        asked = [work.is_completed() for _ in range(100)]
        comm.send(torch.zeros(1), 1)
        work.wait()
        return any(asked)

    assert run_ranks(step, 2).values[0] is False


def test_a_receive_from_anybody_that_was_begun_knows_its_sender():
    def step(comm):
        if comm.rank:
            return comm.subgroup([1, 2]).rank == 0 or comm.send(torch.zeros(1), 0)
        work = comm.irecv(torch.zeros(1))
        work.wait()
        return work.source_rank(), work._source_rank()

    assert run_ranks(step, 3).values[0] == (2, 2)


@pytest.mark.parametrize("timeout", [4, 4.0, timedelta(seconds=4)])
def test_a_wait_that_lasts_long_enough_returns_true_when_the_work_ends(timeout):
    def step(comm):
        if comm.rank == 0:
            comm.compute(3.0)
            comm.send(torch.ones(1), 1)
            return None
        work = comm.irecv(x := torch.zeros(1), 0)
        return work.wait(timeout), work.wait(timeout), x.item()

    run = run_ranks(step, 2, transport=SLOW)
    assert run.values[1] == (True, True, 1.0)
    assert run.ledger.clocks == [3.0, 4.0]  # sent at 3 s, there at 4 s
    assert [(each.start, each.end) for each in run.ledger.waits] == [(0.0, 4.0)]


def test_a_wait_that_is_too_short_raises_when_it_is_over_and_the_work_goes_on():
    def step(comm):
        if comm.rank == 0:
            comm.compute(3.0)
            return comm.send(torch.ones(1), 1)
        work, over = comm.irecv(x := torch.zeros(1), 0), []
        for seconds in (2, 0.5, 1):
            with pytest.raises(WaitTimedOut, match=rf"recv\(src=0\) must end within {seconds:g} s") as raised:
                work.wait(timedelta(seconds=seconds))
            over.append((isinstance(raised.value, RuntimeError), x.item()))
        work.wait()
        return over, x.item()

    run = run_ranks(step, 2, transport=SLOW)
    assert run.values[1] == ([(True, 0.0)] * 3, 1.0)
    assert [(each.start, each.end) for each in run.ledger.waits] == [(0.0, 2.0), (2.0, 2.5), (2.5, 3.5), (3.5, 4.0)]
    assert [each.in_vain for each in run.ledger.waits] == [True, True, True, False]


@pytest.mark.parametrize("begun", ["recv", "all_reduce", "met"])
def test_what_was_given_up_is_no_deadlock_and_not_left_over(begun):
    def step(comm):
        if comm.rank == 1 and begun != "met":
            return None
        x = torch.zeros(1)
        work = comm.irecv(x, 1) if begun == "recv" else comm.all_reduce(x, async_op=True)
        with pytest.raises(WaitTimedOut):
            work.wait(0.5)

    assert run_ranks(step, 2, transport=SLOW).ledger.clocks == [0.5, 0.5 if begun == "met" else 0.0]


def test_a_future_holds_the_tensors_and_what_follows_is_called_when_they_have_come():
    def step(comm):
        order, x, out = [], torch.ones(1), torch.zeros(2)
        work = comm.all_reduce(x, async_op=True)
        after = work.get_future().then(lambda done: order.append("called") or done.value()[0] / comm.size)
        twice = after.then(lambda done: done.value() * 2)
        order.append(twice.done())
        work.wait()
        order.append((work.get_future().done(), twice.done()))
        gathered = comm.all_gather_single(out, torch.ones(1), async_op=True).get_future()
        (whole,) = gathered.wait()
        failing = gathered.then(lambda done: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failing.wait()
        late = comm.all_reduce(torch.ones(1), async_op=True)
        assert late.get_future().then(lambda done: done.value()[0].item()).wait() == comm.size
        return order, twice.wait().item(), whole is out, work.get_future().then(len).done()

    for values in run_ranks(step, 2).values:
        assert values == ([False, "called", (True, True)], 2.0, True, True)


def test_a_batch_of_messages_goes_both_ways_whatever_its_order():
    def step(comm):
        other, x, came = 1 - comm.rank, torch.arange(2.0) + 10 * comm.rank, torch.zeros(2)
        ops = [comm.P2POp(comm.isend, x[:1], other), comm.P2POp(comm.irecv, came[:1], other)]
        ops += [comm.P2POp(comm.irecv, came[1:], other, tag=3), comm.P2POp(comm.isend, x[1:], other, tag=3)]
        for work in comm.batch_isend_irecv(ops[:: 1 - 2 * comm.rank]):
            work.wait()
        return came.tolist()

    assert run_ranks(step, 2).values == [[10.0, 11.0], [0.0, 1.0]]
