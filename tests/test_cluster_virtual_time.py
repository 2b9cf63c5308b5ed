"""Whose call is made next: the earliest, and in a tie the one that the seed says, whoever spoke first."""

from __future__ import annotations

import functools

import hypothesis.strategies as st
from hypothesis import given

from course.cluster import fully_connected
from course.cluster.calls import Call
from course.cluster.protocol.virtual_time import IN_VAIN, Asks, Schedule, run_on

RANKS = range(5)


def made(seed, spoken, seconds=0.0, calls=4):
    """The ranks in the order in which their calls are made. Those that run say in the order `spoken` what they do."""
    schedule, order = Schedule(fully_connected(len(RANKS)), seed=seed), []
    left = dict.fromkeys(RANKS, calls)

    def call(rank):
        order.append(rank)
        schedule.clocks[rank] += seconds * rank

    running = set(RANKS)
    while any(left.values()):
        for rank in spoken:
            if rank in running and left[rank]:
                left[rank] -= 1
                schedule.add(rank, functools.partial(call, rank), is_call=True)
        running = {rank for rank, _ in schedule.make_next()}
    while not schedule.is_empty:
        schedule.make_next()
    return order


@given(st.integers(0, 99), st.permutations(RANKS), st.sampled_from([0.0, 1.0]))
def test_the_order_of_calls_does_not_depend_on_who_spoke_first(seed, spoken, seconds):
    assert made(seed, spoken, seconds) == made(seed, RANKS, seconds)


def test_seeds_shuffle_calls_of_the_same_time():
    assert len({tuple(made(seed, RANKS)) for seed in range(20)}) == 20
    assert {made(seed, RANKS)[0] for seed in range(50)} == set(RANKS)


@given(st.integers(0, 99))
def test_the_earliest_comes_first_whatever_the_seed(seed):
    schedule, order = Schedule(fully_connected(3), seed=seed), []
    for rank, at in ((0, 2.0), (1, 0.0), (2, 1.0)):
        schedule.clocks[rank] = at
        schedule.add(rank, functools.partial(order.append, rank), is_call=True)
    while not schedule.is_empty:
        schedule.make_next()
    assert order == [1, 2, 0]


@given(st.integers(0, 99))
def test_at_the_same_time_ranks_run_on_before_a_call_is_made(seed):
    schedule, order = Schedule(fully_connected(3), seed=seed), []
    schedule.add(0, functools.partial(order.append, 0), is_call=True)
    for rank in (1, 2):
        schedule.add(rank, run_on)
    assert {schedule.next_turn(), schedule.next_turn()} == {1, 2}
    assert order == []
    assert (schedule.next_turn(), schedule.next_turn(), order) == (0, None, [0])


def asked(seed, spoken, seconds):
    """How often each rank asks whether a barrier is over, and when it knows; rank r comes to it after r seconds.

    seconds  that it waits for a yes, by rank; None: not at all
    """
    schedule, found = Schedule(fully_connected(len(RANKS)), seed=seed), {}

    def program(rank):
        call, posted = Call("barrier", rank, tuple(RANKS)), []
        yield lambda: schedule.compute(rank, float(rank), "")
        yield lambda: posted.append(schedule.switch.post(call, at=schedule.clocks[rank], is_async=True))
        count = 0
        while not (posted[0].done and posted[0].end <= schedule.clocks[rank]):
            count += 1
            yield Asks(lambda: posted[0], seconds[rank])
        found[rank] = (count, schedule.clocks[rank])

    programs, running = {rank: program(rank) for rank in RANKS}, set(RANKS)
    while running or not schedule.is_empty:
        for rank in spoken:
            if rank in running and (action := next(programs[rank], None)) is not None:
                schedule.add(rank, action, is_call=True)
        running = set() if schedule.is_empty else {rank for rank, _ in schedule.make_next()}
    return found, schedule.ledger


@given(
    st.integers(0, 99),
    st.permutations(RANKS),
    st.lists(st.sampled_from([None, 0.75, 100.0]), min_size=len(RANKS), max_size=len(RANKS)),
)
def test_what_ranks_learn_when_they_ask_does_not_depend_on_who_spoke_first(seed, spoken, seconds):
    found, ledger = asked(seed, spoken, seconds)
    assert (found, ledger) == asked(seed, RANKS, seconds)
    assert len({at for _, at in found.values()}) == 1
    assert max(count for count, _ in found.values()) < 20


def test_who_asks_in_vain_while_nobody_can_do_anything_is_answered_some_times():
    schedule, count = Schedule(fully_connected(2), seed=0), 0
    posted = schedule.switch.post(Call("barrier", 0, (0, 1)), is_async=True)
    is_answered = True
    while is_answered:
        schedule.add(0, Asks(lambda: posted), is_call=True)
        count += 1
        is_answered = bool(schedule.make_next() or (not schedule.is_empty and schedule.make_next()))
    assert count == IN_VAIN + 2
    assert schedule.doing(0) == "asks whether barrier #1 is completed"
    assert schedule.clocks == [0.0, 0.0]
