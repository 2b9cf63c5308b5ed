"""The virtual clock: exact times of messages and collectives on each topology, and what may overlap."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from course.cluster import Link, RanksFailed, Simulated, Topology, fully_connected, ring, run_ranks, two_levels
from course.errors import BadArgument

ALPHA, BETA = 0.5, 16.0  # seconds, bytes per second
LINK = Link(latency=ALPHA, bandwidth=BETA)
TWO_LEVELS = two_levels(2, 2, inside=Link(latency=0.25, bandwidth=64.0), between=LINK)


def bytes_of(count):
    return torch.zeros(count, dtype=torch.uint8)


def clocks(step, topology, **settings):
    return run_ranks(step, topology.size, transport=Simulated(topology=topology, **settings)).ledger.clocks


def sending(*pairs, n=32):
    """Ranks send n bytes for each pair, then receive what comes."""

    def step(comm):
        for src, dst in pairs:
            if comm.rank == src:
                comm.send(bytes_of(n), dst)
        for src, dst in pairs:
            if comm.rank == dst:
                comm.recv(bytes_of(n), src)

    return step


@pytest.mark.parametrize(
    ("topology", "dst", "seconds"),
    [
        (fully_connected(6, LINK), 3, ALPHA + 2),
        (ring(6, LINK), 1, ALPHA + 2),
        (ring(6, LINK), 3, 3 * ALPHA + 2),
        (ring(6, LINK), 4, 2 * ALPHA + 2),  # the other way round
        (TWO_LEVELS, 1, 0.25 + 0.5),
        (TWO_LEVELS, 2, 0.25 + ALPHA + 2),
    ],
)
def test_a_message_takes_the_latencies_of_its_links_and_its_bytes_over_the_smallest_bandwidth(topology, dst, seconds):
    found = clocks(sending((0, dst)), topology)
    assert found[dst] == pytest.approx(seconds)
    assert found[0] == 0.0  # eager


@pytest.mark.parametrize(("early", "late"), [(0, 1), (1, 0)])
def test_a_send_that_is_not_eager_starts_when_both_are_there_and_is_over_with_its_receive(early, late):
    def step(comm):
        if comm.rank == late:
            comm.compute(3.0)
        x = bytes_of(32)
        comm.send(x + 7, 1) if comm.rank == 0 else comm.recv(x, 0)
        return x[0].item()

    run = run_ranks(step, 2, transport=Simulated(topology=fully_connected(2, LINK), send="rendezvous"))
    assert run.values == [0, 7]
    assert run.ledger.clocks == [3 + ALPHA + 2] * 2
    ends = [(each.called, each.start, each.end, each.is_async) for each in run.ledger.events if each.verb != "compute"]
    assert sorted(ends) == [(0.0, 3.0, 5.5, False), (3.0, 3.0, 5.5, False)]


def test_a_send_that_is_begun_and_not_eager_is_waited_for():
    def step(comm):
        if comm.rank:
            comm.compute(3.0)
            return comm.recv(bytes_of(32), 0)
        works = [comm.isend(bytes_of(32), 1)]
        comm.compute(1.0)
        asked = works[0].is_completed()
        works[0].wait()
        return asked

    run = run_ranks(step, 2, transport=Simulated(topology=fully_connected(2, LINK), send="rendezvous"))
    assert (run.values, run.ledger.clocks) == ([False, 0], [5.5, 5.5])
    assert [(each.rank, each.start, each.end) for each in run.ledger.waits] == [(0, 1.0, 5.5)]


@pytest.mark.parametrize("senders", [1, 2, 3, 5])
def test_senders_to_one_rank_queue_for_its_port(senders):
    found = clocks(sending(*((src, 0) for src in range(1, senders + 1))), fully_connected(6, LINK))
    assert found[0] == pytest.approx(senders * 2 + ALPHA)


def test_messages_of_one_sender_queue_for_its_port():
    assert clocks(sending((0, 1), (0, 2)), fully_connected(3, LINK))[1:] == pytest.approx([ALPHA + 2, ALPHA + 4])


def test_messages_between_different_ranks_do_not_wait_for_one_another():
    assert clocks(sending((0, 1), (2, 3)), fully_connected(4, LINK)) == pytest.approx([0, ALPHA + 2, 0, ALPHA + 2])


def test_a_link_of_the_ring_is_shared_by_those_who_pass_over_it():
    found = {max(clocks(sending((0, 2), (1, 2)), ring(6, LINK), seed=seed)) for seed in range(9)}
    assert found == {2 + 2 + ALPHA, 2 + 2 + 2 * ALPHA}  # the neighbour's message second, or the other


def test_ranks_of_a_node_share_its_link_out_but_not_their_own():
    assert sorted(clocks(sending((0, 2), (1, 3)), TWO_LEVELS))[2:] == pytest.approx(
        [0.25 + ALPHA + 2, 0.25 + ALPHA + 4]
    )
    assert clocks(sending((0, 1), (2, 3)), TWO_LEVELS) == pytest.approx([0, 0.75, 0, 0.75])


def test_who_receives_late_goes_on_at_once():
    def step(comm):
        if comm.rank == 0:
            comm.send(bytes_of(32), 1)
        else:
            comm.compute(10.0)
            comm.recv(bytes_of(32), 0)

    assert clocks(step, fully_connected(2, LINK)) == [0.0, 10.0]


@given(st.integers(2, 9), st.integers(1, 50), st.sampled_from([ring, fully_connected]))
def test_ring_collectives_take_a_latency_and_a_piece_a_round(ranks, chunk, make):
    a_round = ALPHA + chunk / BETA
    topology = make(ranks, LINK)
    assert clocks(lambda comm: comm.all_reduce(bytes_of(chunk * ranks)), topology) == pytest.approx(
        [2 * (ranks - 1) * a_round] * ranks
    )
    gathered = clocks(lambda comm: comm.all_gather_single(bytes_of(chunk * ranks), bytes_of(chunk)), topology)
    assert gathered == pytest.approx([(ranks - 1) * a_round] * ranks)
    scattered = clocks(lambda comm: comm.reduce_scatter_single(bytes_of(chunk), bytes_of(chunk * ranks)), topology)
    assert scattered == pytest.approx([(ranks - 1) * a_round] * ranks)


@given(st.integers(2, 9), st.integers(1, 50), st.sampled_from([ring, fully_connected]), st.data())
def test_bytes_stream_through_a_chain_and_pay_the_latency_of_each_link(ranks, n, make, data):
    root = data.draw(st.integers(0, ranks - 1))
    seconds = (ranks - 1) * ALPHA + n / BETA
    for verb in ("broadcast", "reduce"):
        found = clocks(lambda comm, verb=verb: getattr(comm, verb)(bytes_of(n), root), make(ranks, LINK))
        assert found == pytest.approx([seconds] * ranks)


@given(st.integers(2, 9), st.integers(1, 50))
def test_gather_and_all_to_all_are_bound_by_the_port_of_one_rank(ranks, n):
    def gather(comm):
        comm.gather(bytes_of(n), [bytes_of(n) for _ in range(ranks)] if comm.rank == 0 else None)

    def exchange(comm):
        comm.all_to_all([bytes_of(n) for _ in range(ranks)], [bytes_of(n) for _ in range(ranks)])

    for step in (gather, exchange):
        assert clocks(step, fully_connected(ranks, LINK)) == pytest.approx([ALPHA + (ranks - 1) * n / BETA] * ranks)


def test_a_barrier_takes_a_latency_a_round_and_more_where_the_way_is_long():
    assert clocks(lambda comm: comm.barrier(), fully_connected(6, LINK)) == pytest.approx([3 * ALPHA] * 6)
    assert clocks(lambda comm: comm.barrier(), ring(6, LINK)) == pytest.approx([(1 + 2 + 2) * ALPHA] * 6)


def test_a_collective_starts_when_its_last_rank_has_come():
    def step(comm):
        comm.compute(float(comm.rank))
        comm.barrier()

    assert clocks(step, fully_connected(4, LINK)) == pytest.approx([3 + 2 * ALPHA] * 4)


def test_groups_on_links_of_their_own_run_beside_one_another_and_on_one_link_after_one_another():
    def halves(*pairs):
        def step(comm):
            for pair in pairs:
                if comm.rank in pair:
                    comm.subgroup(pair).all_reduce(bytes_of(32))

        return step

    alone = 2 * (0.25 + 16 / 64)
    assert clocks(halves((0, 1), (2, 3)), TWO_LEVELS) == pytest.approx([alone] * 4)
    across = 2 * (0.25 + ALPHA + 16 / BETA)
    later = across + 32 / BETA  # the link between the nodes carries one after the other, and latencies overlap
    assert sorted(clocks(halves((0, 2), (1, 3)), TWO_LEVELS)) == pytest.approx([across, across, later, later])


def test_messages_that_are_sent_at_once_take_as_long_as_the_verb_whatever_the_seed():
    def by_hand(comm):
        others = [(comm.rank + step) % comm.size for step in range(1, comm.size)]
        for other in others:
            comm.send(bytes_of(64), other)
        for other in others:
            comm.recv(bytes_of(64), other)

    def verb(comm):
        comm.all_to_all([bytes_of(64) for _ in range(6)], [bytes_of(64) for _ in range(6)])

    wanted = clocks(verb, fully_connected(6, LINK))
    for seed in range(4):
        run = run_ranks(by_hand, 6, transport=Simulated(topology=fully_connected(6, LINK), seed=seed))
        assert run.ledger.clocks == pytest.approx(wanted)


def test_a_message_that_waits_for_a_port_holds_up_nothing_behind_it():
    def step(comm):
        if comm.rank in (0, 2):
            comm.send(bytes_of(640), 1)
        if comm.rank == 2:
            comm.send(bytes_of(1), 3)
        if comm.rank == 3:
            comm.recv(bytes_of(1), 2)
        if comm.rank == 1:
            comm.recv(bytes_of(640), 0)
            comm.recv(bytes_of(640), 2)

    assert clocks(step, fully_connected(4, LINK))[3] == pytest.approx(640 / BETA + 1 / BETA + ALPHA)


def test_a_message_waits_for_the_collective_on_its_links():
    def step(comm):
        work = comm.all_reduce(bytes_of(64), async_op=True)
        sending((0, 1))(comm)
        work.wait()

    assert clocks(step, fully_connected(2, LINK))[1] == pytest.approx(2 * 2 + ALPHA + 2)  # it carries for 2 x 2 s


def test_collectives_of_a_group_are_made_one_after_another_and_those_of_two_groups_wait_for_links_alone():
    def step(comm, more):
        groups = [comm, *(comm.subgroup(range(comm.size)) for _ in range(more))]
        for work in [each.all_reduce(bytes_of(32), async_op=True) for each in (groups[0], groups[-1])]:
            work.wait()

    alone, carried = 2 * (ALPHA + 16 / BETA), 2 * 16 / BETA
    for more, wanted in ((0, 2 * alone), (1, alone + carried)):
        run = run_ranks(step, 2, inputs=[(more,)] * 2, transport=Simulated(topology=fully_connected(2, LINK)))
        assert run.ledger.clocks == pytest.approx([wanted] * 2)


@pytest.mark.parametrize("seconds", [0.5, 5.0, 50.0])
def test_a_begun_collective_beside_compute_ends_when_the_longer_of_the_two_ends(seconds):
    def step(comm):
        work = comm.all_reduce(bytes_of(64), async_op=True)
        comm.compute(seconds, "backward")
        work.wait()

    run = run_ranks(step, 2, transport=Simulated(topology=fully_connected(2, LINK)))
    assert run.ledger.makespan == pytest.approx(max(5.0, seconds))
    assert [each.end - each.start for each in run.ledger.waits] == pytest.approx([max(0.0, 5.0 - seconds)] * 2)


def test_compute_is_written_down_with_its_label_and_takes_its_seconds():
    run = run_ranks(lambda comm: comm.compute(2.5, "forward"), 2)
    assert run.ledger.makespan == 2.5
    assert [(each.verb, each.start, each.end, each.label) for each in run.ledger.events] == [
        ("compute", 0.0, 2.5, "forward")
    ] * 2


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_seconds_of_compute_must_be_finite_and_not_negative(seconds):
    with pytest.raises(RanksFailed, match="seconds must be finite and at least 0"):
        run_ranks(lambda comm: comm.compute(seconds), 1)


def test_a_measured_clock_counts_the_work_before_a_call_as_before_it():
    def step(comm):
        for count in (0, 200_000):
            sum(range(count))
            comm.barrier()

    ledger = run_ranks(step, 2, transport=Simulated(clock="measured")).ledger
    for rank in range(2):
        first, second = (each for each in ledger.events if each.rank == rank)
        assert 0 < first.called <= first.end
        assert second.called > first.end
    assert all(a.end <= b.start for a, b in pairwise(ledger.events[::2]))
    assert ledger.makespan >= ledger.events[-1].end


def test_a_declared_clock_does_not_see_work():
    assert run_ranks(lambda comm: sum(range(100_000)), 2).ledger.clocks == [0.0, 0.0]


@pytest.mark.parametrize(
    "make", [ring, fully_connected, lambda size: two_levels(size, 1), lambda size: two_levels(-1, size)]
)
@pytest.mark.parametrize("size", [0, -1, 1025])
def test_a_topology_must_have_from_1_to_1024_ranks(make, size):
    with pytest.raises(BadArgument, match="the number of ranks must be from 1 to 1024"):
        make(size)


def test_what_takes_no_link_takes_no_time():
    def step(comm):
        comm.send(torch.ones(1), 1 - comm.rank)
        comm.recv(torch.ones(1), 1 - comm.rank)
        comm.all_reduce(torch.ones(3))
        comm.broadcast(torch.ones(3), 0)

    here = Topology(name="one place", size=2, links={}, route=lambda src, dst: ())
    ledger = run_ranks(step, 2, transport=Simulated(topology=here)).ledger
    assert (ledger.makespan, ledger.bytes_sent(0)) == (0.0, 4 + 12 + 12)


@pytest.mark.parametrize("settings", [{"latency": -1.0}, {"latency": float("nan")}, {"bandwidth": 0.0}])
def test_a_link_must_have_a_latency_and_a_bandwidth(settings):
    with pytest.raises(BadArgument, match="a link must have a latency >= 0 s and a bandwidth > 0 bytes/s"):
        Link(**settings)


@given(st.integers(1, 1024), st.data())
def test_every_route_of_a_ring_is_a_shortest_one(size, data):
    src, dst = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))
    topology = ring(size)
    route = topology.route(src, dst)
    assert len(route) == min((dst - src) % size, (src - dst) % size)
    stops = [name.split("->") for name in route]
    assert all(name in topology.links for name in route)
    assert [stop[0] for stop in stops] + [str(dst)] == [str(src)] + [stop[1] for stop in stops]
