"""Bytes and messages of every verb, against formulas."""

from __future__ import annotations

import math
from itertools import pairwise

import hypothesis.strategies as st
import torch
from hypothesis import given

from course.cluster import Ledger, run_ranks
from course.cluster.account.ledger import Event, Wait, costs
from course.cluster.calls import Call

SIZES = st.integers(0, 40)
RANKS = st.integers(1, 9)
STEPS = st.tuples(st.sampled_from(["begin", "wait", "wait in vain", "compute"]), st.integers(0, 3), st.integers(0, 2))


def ledger_of(step, ranks) -> Ledger:
    return run_ranks(step, ranks).ledger


def bytes_of(count):
    return torch.zeros(count, dtype=torch.uint8)


@given(RANKS, SIZES)
def test_all_reduce_sends_twice_the_tensor_but_for_one_share_to_the_next_rank(ranks, n):
    ledger = ledger_of(lambda comm: comm.all_reduce(bytes_of(n)), ranks)
    assert sum(ledger.sent.values()) == 2 * (ranks - 1) * n
    for rank in range(ranks):
        assert abs(ledger.bytes_sent(rank) - 2 * (ranks - 1) * n / ranks) < 2
        assert ledger.messages_sent(rank) == 2 * (ranks - 1)
        assert ledger.peers(rank) == (((rank + 1) % ranks,) if ranks > 1 else ())


@given(RANKS, SIZES)
def test_all_reduce_sends_what_a_ring_written_with_send_and_recv_does(ranks, n):
    def by_hand(comm):
        chunks = list(torch.zeros(n).tensor_split(comm.size))
        for step in range(2 * (comm.size - 1)):
            comm.send(chunks[(comm.rank - step) % comm.size], (comm.rank + 1) % comm.size)
            comm.recv(chunks[(comm.rank - step - 1) % comm.size].clone(), (comm.rank - 1) % comm.size)

    assert ledger_of(lambda comm: comm.all_reduce(torch.zeros(n)), ranks).sent == ledger_of(by_hand, ranks).sent


@given(RANKS, SIZES)
def test_all_gather_and_reduce_scatter_send_every_piece_but_one_to_the_next_rank(ranks, n):
    def gather(comm):
        comm.all_gather([bytes_of(n) for _ in range(ranks)], bytes_of(n))

    def scatter(comm):
        comm.reduce_scatter_single(bytes_of(n), bytes_of(n * ranks))

    wanted = {(rank, (rank + 1) % ranks): (ranks - 1) * n for rank in range(ranks) if ranks > 1}
    for step in (gather, scatter):
        assert ledger_of(step, ranks).sent == wanted


@given(RANKS, SIZES, st.data())
def test_broadcast_and_reduce_send_the_tensor_once_over_each_link_of_a_chain(ranks, n, data):
    root = data.draw(st.integers(0, ranks - 1))
    chain = [(root + step) % ranks for step in range(ranks)]
    away = dict.fromkeys(pairwise(chain), n)
    assert ledger_of(lambda comm: comm.broadcast(bytes_of(n), root), ranks).sent == away
    assert ledger_of(lambda comm: comm.reduce(bytes_of(n), root), ranks).sent == {(b, a): n for a, b in away}


@given(RANKS, SIZES, st.data())
def test_gather_and_scatter_send_straight_to_and_from_the_root(ranks, n, data):
    root = data.draw(st.integers(0, ranks - 1))

    def gather(comm):
        comm.gather(bytes_of(n), [bytes_of(n) for _ in range(ranks)] if comm.rank == root else None, root)

    def scatter(comm):
        comm.scatter(bytes_of(n), [bytes_of(n) for _ in range(ranks)] if comm.rank == root else None, root)

    others = [rank for rank in range(ranks) if rank != root]
    assert ledger_of(gather, ranks).sent == {(rank, root): n for rank in others}
    assert ledger_of(scatter, ranks).sent == {(root, rank): n for rank in others}


@given(RANKS)
def test_all_to_all_sends_each_pair_its_own_piece(ranks):
    def step(comm):
        comm.all_to_all(
            [bytes_of(10 * src + comm.rank) for src in range(ranks)],
            [bytes_of(10 * comm.rank + dst) for dst in range(ranks)],
        )

    pairs = {(src, dst): 10 * src + dst for src in range(ranks) for dst in range(ranks) if src != dst}
    ledger = ledger_of(step, ranks)
    assert ledger.sent == pairs
    assert ledger.messages == dict.fromkeys(pairs, 1)


@given(RANKS)
def test_a_barrier_takes_log_p_rounds_of_empty_messages(ranks):
    ledger = ledger_of(lambda comm: comm.barrier(), ranks)
    assert sum(ledger.sent.values()) == 0
    assert all(ledger.messages_sent(rank) == math.ceil(math.log2(ranks)) for rank in range(ranks))


@given(st.integers(2, 6), SIZES)
def test_a_message_is_charged_to_its_pair_when_it_is_sent(ranks, n):
    def step(comm):
        if comm.rank == 0:
            for dst in range(1, ranks):
                for _ in range(dst):
                    comm.send(bytes_of(n), dst)
        for _ in range(comm.rank):
            comm.recv(bytes_of(n))

    ledger = ledger_of(step, ranks)
    assert ledger.sent == {(0, dst): dst * n for dst in range(1, ranks)}
    assert ledger.messages == {(0, dst): dst for dst in range(1, ranks)}
    assert ledger.peers(0) == tuple(range(1, ranks))


@given(st.sampled_from([(0, 2), (1, 2, 3), (3,)]), SIZES)
def test_a_group_is_charged_by_ranks_of_the_whole_run(group, n):
    def step(comm):
        if comm.rank in group:
            comm.subgroup(group).all_gather([bytes_of(n) for _ in group], bytes_of(n))

    after = dict(zip(group, (*group[1:], group[0]), strict=True))
    wanted = {pair: (len(group) - 1) * n for pair in after.items() if len(group) > 1}
    assert ledger_of(step, 4).sent == wanted


def test_the_bytes_of_each_event_add_up_to_those_of_its_rank():
    def step(comm):
        x = torch.zeros(10)
        comm.all_reduce(x)
        comm.broadcast(x, 2)
        comm.all_gather([torch.zeros(10) for _ in range(3)], x)
        comm.send(x, (comm.rank + 1) % 3)
        comm.recv(x)

    ledger = ledger_of(step, 3)
    for rank in range(3):
        assert sum(each.sent for each in ledger.events if each.rank == rank) == ledger.bytes_sent(rank)


def test_the_largest_message_is_known_of_each_rank():
    def step(comm):
        for length in ((), (3,), (2, 5))[: 3 - comm.rank]:
            comm.isend(torch.zeros(length), (comm.rank + 1) % 3)
        for length in ((), (3,), (2, 5))[: 3 - (comm.rank - 1) % 3]:
            comm.recv(torch.zeros(length), (comm.rank - 1) % 3)

    assert ledger_of(step, 3).largest() == [40, 12, 4]


def test_a_dtype_counts_with_the_bytes_of_its_items():
    def step(comm):
        comm.all_reduce(torch.zeros(6, dtype=torch.bfloat16))
        comm.all_reduce(torch.zeros(6, dtype=torch.float64))

    assert sum(ledger_of(step, 3).sent.values()) == 4 * 6 * 2 + 4 * 6 * 8


@given(st.lists(STEPS, max_size=30))
def test_calls_count_as_open_where_a_rank_computes_until_it_has_waited_for_them(steps):
    """Beside a count that looks at every call and every wait for each of them."""
    ledger, now, begun = Ledger(size=2), 0.0, []
    for order, (what, which, seconds) in enumerate(steps, start=1):
        event = Event(rank=which % 2, verb="compute", called=now, start=now, end=now + seconds, order=order)
        if what == "compute":
            ledger.events.append(event)
        elif what == "begin":
            begun.append(event._replace(verb="all_gather", call=Call("all_gather", which % 2, (0, 1)), is_async=True))
            ledger.events.append(begun[-1])
        elif begun:
            over = begun[which % len(begun)] if what == "wait in vain" else begun.pop(which % len(begun))
            wait = Wait(rank=over.rank, start=now, end=now, verb=over.verb, order=over.order)
            ledger.waits.append(wait._replace(in_vain=what == "wait in vain"))
        now += seconds

    def is_open(call: Event, computes: Event) -> bool:
        waits = [each for each in ledger.waits if each.order == call.order and not each.in_vain]
        waited = any(each.start <= computes.start for each in waits)
        return call.rank == computes.rank and call.order < computes.order and not waited

    calls = [each for each in ledger.events if each.is_async]
    computed = [each for each in ledger.events if each.call is None]
    if calls and computed:
        most = [
            [sum(is_open(call, each) for call in calls) for each in computed if each.rank == rank] for rank in (0, 1)
        ]
        assert costs(ledger)["open/all_gather"].tolist() == [max(each, default=0) for each in most]
