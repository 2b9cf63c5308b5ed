"""Order of messages, groups that do not mix, and the account of what was sent."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from course.cluster import RanksFailed, Simulated, run_ranks


def heard(ranks, seed):
    """Who is heard by rank 0, in order, when all others send at once."""

    def step(comm):
        if comm.rank:
            return comm.send(torch.zeros(1), 0)
        comm.compute(1.0)
        return [comm.recv(torch.zeros(1)) for _ in range(ranks - 1)]

    return run_ranks(step, ranks, transport=Simulated(seed=seed)).values[0]


@given(st.integers(0, 99))
def test_receive_from_anybody_hears_every_sender_once_and_the_same_for_the_same_seed(seed):
    assert sorted(heard(5, seed)) == [1, 2, 3, 4]
    assert heard(5, seed) == heard(5, seed)


def test_seeds_shuffle_who_is_heard_first():
    assert len({tuple(heard(5, seed)) for seed in range(20)}) > 5


@given(st.integers(0, 99), st.integers(2, 5))
def test_messages_of_one_sender_stay_in_order_whoever_else_sends(seed, ranks):
    def step(comm):
        x = torch.zeros(1)
        if comm.rank:
            for value in range(4):
                comm.send(x.fill_(value), 0)
            return None
        return [(comm.recv(x), x.item()) for _ in range(4 * (comm.size - 1))]

    came = run_ranks(step, ranks, transport=Simulated(seed=seed)).values[0]
    for sender in range(1, ranks):
        assert [value for src, value in came if src == sender] == [0.0, 1.0, 2.0, 3.0]


def test_receive_from_anybody_may_follow_receive_from_one():
    def step(comm):
        if comm.rank:
            return comm.send(torch.tensor(comm.rank), 0)
        x = torch.tensor(0)
        return comm.recv(x, 2), comm.recv(x), x.item()

    assert run_ranks(step, 3).values[0] == (2, 1, 1)


def everything(comm):
    x = torch.ones(8)
    work = comm.all_reduce(x.clone(), async_op=True)
    comm.compute(0.5, "work")
    for _ in range(comm.size - 1):
        if comm.rank:
            comm.send(x, 0)
        else:
            for _ in range(comm.size - 1):
                comm.recv(x)
    comm.subgroup([r for r in range(comm.size) if r % 2 == comm.rank % 2]).all_reduce(x)
    work.wait()
    return x.tolist()


@given(st.integers(0, 99), st.integers(1, 6))
def test_two_runs_of_one_seed_have_the_same_values_and_ledger(seed, ranks):
    for send in ("eager", "rendezvous"):
        one, two = (run_ranks(everything, ranks, transport=Simulated(seed=seed, send=send)) for _ in range(2))
        assert one == two


# --- groups ---


def test_messages_in_a_group_do_not_mix_with_those_of_the_same_two_ranks_in_another():
    def step(comm):
        pair, x = comm.subgroup([1, 2]) if comm.rank else None, torch.zeros(1)
        if comm.rank == 1:
            comm.send(torch.ones(1), 2)
            pair.send(torch.full((1,), 2.0), 1)
        if comm.rank == 2:
            src = pair.recv(x)
            other = torch.zeros(1)
            return src, x.item(), comm.recv(other), other.item()

    assert run_ranks(step, 3).values[2] == (0, 2.0, 1, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_the_same_ranks_do_not_mix_in_whatever_order_they_are_used(seed):
    def step(comm):
        groups = [comm, comm.subgroup([0, 1]), comm.mesh(dp=2)["dp"], comm.subgroup([0, 1]).subgroup([0, 1])]
        rows = [torch.full((1,), 10.0 * place + comm.rank) for place in range(len(groups))]
        order = list(range(len(groups)))[:: -1 if comm.rank else 1]
        for work in [groups[place].all_reduce(rows[place], async_op=True) for place in order]:
            work.wait()
        for place in order:
            groups[place].send(rows[place] + comm.rank, 1 - comm.rank)
        for place in reversed(order):
            groups[place].recv(rows[place], 1 - comm.rank)
        return [row.item() for row in rows]

    values = run_ranks(step, 2, transport=Simulated(seed=seed)).values
    assert values == [[20.0 * place + 1 + other for place in range(4)] for other in (1, 0)]


def test_messages_of_different_tags_do_not_wait_for_one_another():
    def step(comm):
        x, y = torch.zeros(1), torch.zeros(1)
        if comm.rank == 0:
            comm.irecv(y, tag=9).wait()
            return comm.recv(x, tag=8), x.item(), y.item()
        if comm.rank == 1:
            for tag, value in ((8, 1.0), (7, 2.0), (7, 3.0)):
                comm.send(x.fill_(value), 2 if tag == 7 else 0, tag=tag)
            comm.send(x.fill_(4.0), 2)
            return None
        comm.isend(torch.full((1,), 5.0), 0, tag=9)
        found = [(comm.recv(x, 1), x.item()), (comm.recv(x, tag=7), x.item()), (comm.recv(x, 1, tag=7), x.item())]
        return found

    for seed in range(5):
        values = run_ranks(step, 3, transport=Simulated(seed=seed)).values
        assert values[0] == (1, 1.0, 5.0)
        assert values[2] == [(1, 4.0), (1, 2.0), (1, 3.0)]


def test_overlapping_groups_each_reduce_their_own():
    def step(comm):
        x = torch.ones(1)
        for low in range(comm.size - 1):
            if comm.rank in (low, low + 1):
                comm.subgroup([low, low + 1]).all_reduce(x)
        return x.item()

    assert run_ranks(step, 4).values == [2.0, 3.0, 4.0, 4.0]


def test_a_group_of_a_group_counts_from_0_and_knows_ranks_of_the_whole_run():
    def step(comm):
        if comm.rank not in (4, 5):
            return None
        inner = comm.subgroup([1, 3, 4, 5]).subgroup([2, 3])
        x = torch.tensor(comm.rank)
        inner.broadcast(x, 1)
        return inner.rank, inner.size, inner.ranks, x.item()

    assert run_ranks(step, 6).values[4:] == [(0, 2, (4, 5), 5), (1, 2, (4, 5), 5)]


def test_a_rank_that_is_no_member_cannot_make_a_group():
    with pytest.raises(RanksFailed, match=r"only its members may make a group, but rank 2 is none of \[0, 1\]"):
        run_ranks(lambda comm: comm.subgroup([0, 1]), 3)


@pytest.mark.parametrize("ranks", [[], [1, 0], [0, 0], [0, 3], [-1, 0], [0.0], [True]])
def test_a_group_must_hold_known_ranks_once_and_in_order(ranks):
    with pytest.raises(RanksFailed, match="a group must hold ranks of") as failed:
        run_ranks(lambda comm: comm.subgroup(ranks), 3)
    assert failed.value.type == "BadArgument"


@given(st.sampled_from([{"a": 6}, {"a": 2, "b": 3}, {"a": 1, "b": 2, "c": 3}, {"a": 3, "b": 1, "c": 2, "d": 1}]))
def test_axes_of_a_mesh_are_those_of_init_device_mesh(sizes):
    got = run_ranks(lambda comm: {name: axis.ranks for name, axis in comm.mesh(**sizes).items()}, 6).values
    for rank in range(6):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=6)
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        wanted = {name: tuple(torch.distributed.get_process_group_ranks(mesh.get_group(name))) for name in sizes}
        torch.distributed.destroy_process_group()
        assert got[rank] == wanted


@pytest.mark.parametrize("sizes", [{}, {"a": 4}, {"a": 2, "b": 2}, {"a": -2, "b": -3}, {"a": 0}])
def test_the_sizes_of_a_mesh_must_multiply_to_the_size_of_the_group(sizes):
    with pytest.raises(RanksFailed, match="the sizes of a mesh must be >= 1 and their product 6"):
        run_ranks(lambda comm: comm.mesh(**sizes), 6)


# --- the account ---


def test_calls_come_in_the_order_in_which_the_rank_made_them_though_all_at_one_time():
    def step(comm):
        other, x = 1 - comm.rank, torch.zeros(1)
        work = comm.irecv(x, other)
        reduced = comm.all_reduce(torch.zeros(1), async_op=True)
        comm.send(torch.zeros(1), other)
        work.wait()
        reduced.wait()
        comm.barrier()

    ledger = run_ranks(step, 2).ledger
    assert [ledger.calls(rank) for rank in range(2)] == [["recv", "all_reduce", "send", "barrier"]] * 2


def test_messages_are_numbered_by_pair_however_they_are_received():
    def step(comm):
        x = torch.zeros(1)
        if comm.rank:
            for _ in range(3):
                comm.send(x, 0)
        else:
            for src in (1, None, 1):
                comm.recv(x, src)

    events = run_ranks(step, 2).ledger.events
    assert [each.number for each in events if each.verb == "recv"] == [1, 2, 3]


def test_times_of_every_event_are_in_order_and_events_of_a_rank_too():
    ledger = run_ranks(everything, 5).ledger
    assert all(each.called <= each.start <= each.end for each in ledger.events)
    for rank in range(5):
        own = sorted((each for each in ledger.events if each.rank == rank), key=lambda each: each.order)
        assert [each.order for each in own] == list(range(1, len(own) + 1))
        assert all(a.called <= b.called for a, b in pairwise(own))
    assert all(each.start <= each.end for each in ledger.waits)
