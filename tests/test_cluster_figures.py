"""Figures of a run: spans and steps are those of the ledger, and every ledger can be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from conftest import soak
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from course.cluster import Comm, Event, Ledger, Link, Simulated, fully_connected, ring, run_ranks, two_levels
from course.cluster.account.ledger import Live, Wait
from course.errors import BadArgument
from course.lessons.figures.exchanges import Collective, Message, steps
from course.lessons.figures.memory import held
from course.lessons.figures.messages import messages
from course.lessons.figures.spans import Shares, Span, covered, in_seconds, lanes, shares, time_unit
from course.lessons.figures.timeline import timeline

MIB = torch.zeros(2**18)  # float32: a second on the links below
SLOW = Link(latency=0.0, bandwidth=2**20)


def ran(function: Callable[..., Any], ranks: int, **options: Any) -> Ledger:
    return run_ranks(function, ranks, transport=Simulated(**options)).ledger


def slow(ranks: int) -> Simulated:
    return Simulated(topology=fully_connected(ranks, SLOW))


def pair(comm: Comm) -> None:
    """Rank 0 computes 3 s and sends a message of 1 s; rank 1 computes 1 s, waits 2 s and receives."""
    comm.compute(3.0 if comm.rank == 0 else 1.0, "work")
    if comm.rank == 0:
        comm.send(MIB, 1)
        comm.compute(0.5, "more")
    else:
        comm.recv(MIB.clone(), 0)


def overlap(comm: Comm) -> None:
    """Half of 2 ranks' all_reduce of 1 s goes on beside computing."""
    work = comm.all_reduce(MIB.clone(), async_op=True)
    comm.compute(0.5, "backward")
    work.wait()


def ring_all_reduce(comm: Comm) -> None:
    chunks = list(torch.ones(10 * comm.size + 1).tensor_split(comm.size))  # the first is longer
    comm.compute(1e-4 * (1 + comm.rank), "backward")
    for step in range(2 * comm.size - 2):
        comm.send(chunks[(comm.rank - step) % comm.size], (comm.rank + 1) % comm.size)
        comm.recv(chunks[(comm.rank - step - 1) % comm.size], (comm.rank - 1) % comm.size)


def of_two_levels(comm: Comm) -> None:
    axes = comm.mesh(node=2, local=4)
    axes["local"].all_reduce(torch.ones(8))
    axes["node"].all_reduce(torch.ones(8))
    comm.broadcast(torch.ones(8), src=2)


def drawn(figure: Figure) -> bytes:
    """The figure as the notebook shows it."""
    image: bytes = figure._repr_png_()[0]  # type: ignore[attr-defined]
    assert image.startswith(b"\x89PNG")
    return image


def words(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


# Spans


def test_a_blocking_receive_waits_and_then_communicates() -> None:
    ledger = run_ranks(pair, 2, transport=slow(2)).ledger
    assert lanes(ledger)[1] == [
        Span("own", "compute", 0.0, 1.0, "work"),
        Span("own", "waiting", 1.0, 3.0, "recv #1"),
        Span("own", "communication", 3.0, 4.0, "recv #1"),
    ]


def test_an_eager_send_goes_on_beside_what_the_rank_does_next() -> None:
    ledger = run_ranks(pair, 2, transport=slow(2)).ledger
    assert lanes(ledger)[0] == [
        Span("own", "compute", 0.0, 3.0, "work"),
        Span("own", "compute", 3.0, 3.5, "more"),
        Span("beside", "communication", 3.0, 4.0, "send #1"),
        Span("own", "waiting", 3.5, 4.0, "ended"),
    ]


def test_shares_are_the_seconds_of_each_kind() -> None:
    ledger = run_ranks(pair, 2, transport=slow(2)).ledger
    assert shares(ledger) == {0: Shares(3.5, 0.0, 0.5, 1.0), 1: Shares(1.0, 1.0, 2.0, 0.0)}


def test_what_is_left_of_an_overlapped_transfer_is_waited_for() -> None:
    ledger = run_ranks(overlap, 2, transport=slow(2)).ledger
    assert shares(ledger)[0] == Shares(compute=0.5, communication=0.0, waiting=0.5, beside=1.0)


def test_a_transfer_at_the_end_is_communication_and_the_early_rank_waits() -> None:
    def at_end(comm: Comm) -> None:
        comm.compute(0.5 * (1 + comm.rank))
        comm.all_reduce(MIB.clone())

    ledger = run_ranks(at_end, 2, transport=slow(2)).ledger
    assert list(shares(ledger).values()) == [Shares(0.5, 1.0, 0.5, 0.0), Shares(1.0, 1.0, 0.0, 0.0)]


@pytest.mark.parametrize("function", [pair, overlap, ring_all_reduce])
def test_the_own_lane_fills_the_time_of_a_declared_clock_without_overlap(function: Callable[[Comm], None]) -> None:
    ledger = ran(function, 2)
    for spans in lanes(ledger).values():
        own = [each for each in spans if each.lane == "own"]
        assert all(a.end <= b.start for a, b in pairwise(own))
        assert sum(each.end - each.start for each in own) == pytest.approx(ledger.makespan)


def test_transfers_at_the_same_time_count_once_beside() -> None:
    spans = [Span("beside", "communication", start, start + 2, "") for start in (0.0, 1.0, 3.0, 6.0)]
    assert covered(spans) == [(0.0, 5.0), (6.0, 8.0)]


def test_a_receive_that_was_begun_counts_from_its_wait() -> None:
    def relay(comm: Comm) -> None:
        x = MIB.clone()
        if comm.rank == 0:
            comm.send(x, 1)
        elif comm.rank == 1:
            work = comm.irecv(x, 0)
            comm.compute(5.0)
            comm.send(MIB, 2)  # it has not looked at what came
            comm.compute(0.5)
            work.wait()
        else:
            comm.recv(x, 1)

    assert [len(step) for step in steps(run_ranks(relay, 3, transport=slow(3)).ledger)] == [2]


def test_a_wait_of_the_ledger_is_waiting() -> None:
    ledger = Ledger(size=1, waits=[Wait(0, 1.0, 3.0, "all_reduce"), Wait(0, 3.0, 3.0, "recv")])
    assert lanes(ledger) == {0: [Span("own", "waiting", 1.0, 3.0, "all_reduce")]}


@pytest.mark.parametrize(
    ("seconds", "said"), [(2.0, "2 s"), (0.0031, "3.1 ms"), (2.5e-4, "250 µs"), (5e-8, "50 ns"), (0.0, "0 ns")]
)
def test_times_have_the_unit_that_fits(seconds: float, said: str) -> None:
    assert in_seconds(seconds) == said
    assert said.endswith(time_unit(seconds)[0])


# The timeline


def test_the_title_says_who_ends_last_and_how_time_is_spent() -> None:
    figure = timeline(run_ranks(pair, 2, transport=slow(2)).ledger)
    assert figure.get_suptitle() == "rank 1 ends last, after 4 s: 56% compute, 12% communication, 31% waiting"
    assert timeline(ran(pair, 2), title="mine").get_suptitle() == "mine"


def test_time_of_a_ranks_own_code_is_of_no_kind() -> None:
    ledger = Ledger(size=2, clocks=[0.1 + 0.2, 0.3])  # equal but for rounding
    assert timeline(ledger).get_suptitle() == "all 2 ranks end after 300 ms"


def test_each_kind_has_its_boxes_at_its_times() -> None:
    axes = timeline(run_ranks(pair, 2, transport=slow(2)).ledger).axes[0]
    extents = [[path.get_extents().intervalx.tolist() for path in each.get_paths()] for each in axes.collections]
    assert extents == [[[0, 3], [3, 3.5], [0, 1]], [[3, 4], [3, 4]], [[3.5, 4], [1, 3]]]


def test_what_goes_on_beside_lies_below_the_own_lane() -> None:
    axes = timeline(run_ranks(overlap, 2, transport=slow(2)).ledger).axes[0]
    compute, beside = (each.get_paths()[0].get_extents() for each in axes.collections[:2])
    assert axes.yaxis_inverted()
    assert compute.y1 < beside.y0 < beside.y1 < 0.5


def test_kinds_differ_in_hatch_and_colour() -> None:
    axes = timeline(run_ranks(pair, 2, transport=slow(2)).ledger).axes[0]
    assert len({each.get_hatch() for each in axes.collections}) == 3
    assert len({tuple(each.get_facecolor()[0]) for each in axes.collections}) == 3


def test_spans_that_overlap_in_a_lane_have_no_labels() -> None:
    def several(comm: Comm) -> None:
        for other in (1, 2):
            if comm.rank == 0:
                comm.send(MIB, other)
            elif comm.rank == other:
                comm.recv(MIB.clone(), 0)

    figure = timeline(
        run_ranks(several, 3, transport=Simulated(topology=ring(3, Link(latency=0.0, bandwidth=2**20)))).ledger
    )
    assert words(figure) == ["recv #1", "recv #1"]  # the two sends of rank 0 go on at the same time


def test_labels_stand_where_they_fit() -> None:
    def labelled(comm: Comm) -> None:
        comm.compute(1.0, "forward")
        comm.compute(0.01, "no room for so many words")
        comm.compute(1.0, "a very long label " * 20)

    assert words(timeline(ran(labelled, 1))) == ["forward"]


def test_memory_is_drawn_where_it_was_measured() -> None:
    def holds(comm: Comm) -> None:
        kept = torch.zeros(1024 * (1 + comm.rank))
        comm.compute(1.0)
        del kept

    assert len(timeline(ran(holds, 2)).axes) == 1
    axes = timeline(ran(holds, 2, memory=True)).axes[1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "rank 0: at most 4 KiB",
        "rank 1: at most 8 KiB",
    ]


def test_ranks_that_hold_the_same_share_a_line_with_peak_and_last_value_of_a_moment() -> None:
    live = [Live(rank, time, count) for rank in (0, 1) for time, count in ((0.0, 5), (0.0, 9), (0.0, 2), (1.0, 4))]
    assert held(Ledger(size=2, live=live)) == {((0.0, 9), (0.0, 2), (1.0, 4), (1.0, 4)): [0, 1]}


def test_very_many_spans_become_shares_of_columns() -> None:
    def many(comm: Comm) -> None:
        for _ in range(400):
            comm.compute(1e-5)
            comm.barrier()

    figure = timeline(ran(many, 2, topology=fully_connected(2, Link(latency=1e-5))))
    axes = figure.axes[0]
    assert len(axes.collections) == 2 * 3
    assert axes.get_xlabel().endswith("heights: how the kinds share each stretch of it")
    box = axes.collections[0].get_paths()[0].get_extents()  # of rank 0, compute: half of all time
    assert box.height == pytest.approx(0.84 / 2, rel=0.1)
    drawn(figure)


# Steps


def test_a_ring_takes_one_message_of_every_rank_in_each_step_although_chunks_differ() -> None:
    ledger = ran(ring_all_reduce, 4, topology=ring(4))
    found = steps(ledger)
    assert [[(each.src, each.dst) for each in sorted(step)] for step in found] == [  # type: ignore[union-attr]
        [(0, 1), (1, 2), (2, 3), (3, 0)]
    ] * 6
    assert [step[0].number for step in found] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("function", [ring_all_reduce, of_two_levels])
def test_the_bytes_of_all_steps_are_those_of_the_ledger(function: Callable[[Comm], None]) -> None:
    ledger = ran(function, 8)
    sent: Counter[int] = Counter()
    for step in steps(ledger):
        for each in step:
            sent.update(each.sent)
    assert [sent[rank] for rank in range(8)] == [ledger.bytes_sent(rank) for rank in range(8)]


def test_collectives_of_groups_that_do_not_wait_for_each_other_share_a_step() -> None:
    found = steps(ran(of_two_levels, 8, topology=two_levels(2, 4)))
    groups = [sorted(each.group for each in step if isinstance(each, Collective)) for step in found]
    assert groups == [[(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)], [tuple(range(8))]]
    assert [str(step[0].call) for step in found if isinstance(step[0], Collective)][2] == "broadcast(src=2)"


def test_a_message_comes_after_what_its_sender_has_received() -> None:
    def relay(comm: Comm) -> None:
        x = torch.ones(256)
        if comm.rank:
            comm.recv(x)  # from anybody
        if comm.rank < comm.size - 1:
            comm.send(x, comm.rank + 1)

    assert steps(ran(relay, 4)) == [[Message(rank, rank + 1, 1024, "send", 1)] for rank in range(3)]


@pytest.mark.parametrize(
    ("send", "wanted"),
    [
        ("eager", [[(0, 1)], [(0, 1)], [(1, 2)], [(0, 1)], [(0, 1)]]),
        ("rendezvous", [[(0, 1)], [(0, 1), (1, 2)], [(0, 1)], [(0, 1)]]),  # what is asked for first goes first
    ],
)
def test_what_the_same_ranks_do_is_told_apart_by_tag_and_group(send: str, wanted: list[list[tuple[int, int]]]) -> None:
    def turned(comm: Comm) -> None:
        x = torch.ones(4)
        if comm.rank == 0:
            works = [comm.isend(x, 1, tag=tag) for tag in (1, 2)]
            for group in (comm.subgroup([0, 1]), comm.subgroup([0, 1])):
                group.barrier()
            for work in works:
                work.wait()
        elif comm.rank == 1:
            groups = [comm.subgroup([0, 1]), comm.subgroup([0, 1])]
            comm.recv(x, 0, tag=2)
            comm.send(x, 2)
            comm.recv(x, 0, tag=1)
            for group in groups:
                group.barrier()
        else:
            comm.recv(x, 1)

    found = steps(ran(turned, 3, send=send))
    groups = [[each.group if isinstance(each, Collective) else each[:2] for each in step] for step in found]
    assert [sorted(step) for step in groups] == wanted


def test_a_receive_that_was_begun_first_does_not_delay_the_step() -> None:
    def shift(comm: Comm) -> None:
        for _ in range(3):
            work = comm.irecv(torch.ones(4), (comm.rank - 1) % comm.size)
            comm.isend(torch.ones(4), (comm.rank + 1) % comm.size).wait()
            work.wait()

    assert [len(step) for step in steps(ran(shift, 4))] == [4, 4, 4]


def test_who_sends_many_messages_needs_a_step_for_each() -> None:
    def scatter(comm: Comm) -> None:
        for dst in range(1, comm.size):
            if comm.rank == 0:
                comm.send(torch.ones(1), dst)
            elif comm.rank == dst:
                comm.recv(torch.ones(1), 0)

    assert [[each.dst for each in step] for step in steps(ran(scatter, 4))] == [[1], [2], [3]]  # type: ignore[union-attr]


def test_collectives_that_were_begun_together_follow_one_another() -> None:
    def buckets(comm: Comm) -> None:
        works = [comm.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]
        for work in works:
            work.wait()

    assert [[each.number for each in step] for step in steps(ran(buckets, 2))] == [[1], [2], [3]]


def test_a_receive_whose_message_is_not_known_changes_nothing() -> None:
    ledger = ran(pair, 2)
    ledger.events = [each for each in ledger.events if each.verb != "send"]
    assert steps(ledger) == []


# The picture of messages


def test_every_message_is_an_arrow_and_its_bytes_stand_beside_it() -> None:
    upper, lower = messages(ran(ring_all_reduce, 4)).axes
    arrows = [each for each in upper.patches if isinstance(each, FancyArrowPatch)]
    assert len(arrows) == 24
    assert Counter(text.get_text() for text in upper.texts)["#2: 40 B"] == 3
    assert [text.get_text() for text in upper.get_yticklabels()] == [f"step {step}" for step in range(1, 7)]
    assert len(lower.texts) == 4


def test_arrows_to_the_right_pass_above_and_the_one_back_below_within_the_picture() -> None:
    axes = messages(ran(ring_all_reduce, 4), steps=(0, 1)).axes[0]
    *ahead, back = sorted((each.get_path().get_extents() for each in axes.patches), key=lambda box: box.width)
    (line,) = axes.get_yticks()
    bottom, top = axes.get_ylim()
    assert all(top < each.y0 < line for each in ahead)
    assert line < back.y1 < bottom


def test_a_collective_is_a_bar_over_its_ranks() -> None:
    figure = messages(ran(of_two_levels, 8), steps=(1, 2))
    boxes = [each for each in figure.axes[0].patches if isinstance(each, Rectangle)]
    middles = sorted(each.get_x() + each.get_width() / 2 for each in boxes)
    assert middles == pytest.approx(list(range(8)))
    assert len({each.get_y() for each in boxes}) == 4  # four groups, which overlap
    assert "all_reduce #1: 64 B sent" in words(figure)


def test_a_range_of_steps_shows_these_and_what_is_sent_until_then() -> None:
    ledger = ran(ring_all_reduce, 4)
    figure = messages(ledger, steps=(2, 4))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["step 3", "step 4"]
    assert sum(isinstance(each, FancyArrowPatch) for each in figure.axes[0].patches) == 8
    heights = [each.get_height() for each in figure.axes[1].patches]
    assert heights[:4] == [ledger.bytes_sent(rank) for rank in range(4)]
    assert sum(heights[4:]) == sum(each.bytes for step in steps(ledger)[:4] for each in step)
    assert figure.get_suptitle().startswith("steps 3 to 4 of 6; in the whole run")


def test_a_range_may_end_beyond_the_run_but_not_begin_there() -> None:
    ledger = ran(ring_all_reduce, 2)
    assert len(messages(ledger, steps=(1, 6)).axes[0].get_yticklabels()) == 1
    for wrong in ((2, 6), (-1, 1), (1, 1)):
        with pytest.raises(BadArgument, match=r"0 <= first < stop and first < 2, got \("):
            messages(ledger, steps=wrong)


def test_the_title_counts_messages_and_names_who_sends_most() -> None:
    assert messages(ran(pair, 2)).get_suptitle() == "1 message in 1 step; rank 0 sends the most, 1 MiB"
    assert messages(ran(overlap, 2)).get_suptitle() == "1 collective in 1 step; every rank sends 1 MiB"


# Both


@pytest.mark.parametrize("draw", [timeline, messages])
@pytest.mark.parametrize(("function", "ranks"), [(ring_all_reduce, 1), soak(ring_all_reduce, 64), (of_two_levels, 8)])
def test_runs_of_all_sizes_are_drawn_without_a_warning(
    draw: Callable[[Ledger], Figure], function: Callable[[Comm], None], ranks: int
) -> None:
    assert len(drawn(draw(ran(function, ranks)))) > 1000


@pytest.mark.parametrize("draw", [timeline, messages])
def test_the_same_run_gives_the_same_picture(draw: Callable[[Ledger], Figure]) -> None:
    assert drawn(draw(ran(ring_all_reduce, 4))) == drawn(draw(ran(ring_all_reduce, 4)))


@pytest.mark.parametrize("draw", [timeline, messages])
def test_drawing_leaves_the_ledger_as_it_was(draw: Callable[[Ledger], Figure]) -> None:
    ledger, same = ran(of_two_levels, 8), ran(of_two_levels, 8)
    draw(ledger)
    assert ledger == same


def test_an_empty_ledger_gives_a_figure_that_says_so() -> None:
    assert words(timeline(Ledger(size=4))) == ["no rank computed or called anything"]
    assert words(messages(Ledger(size=4))) == ["nothing was sent"]
    for figure in (timeline(Ledger(size=4)), messages(Ledger(size=4))):
        drawn(figure)


@pytest.mark.parametrize("draw", [timeline, messages])
@pytest.mark.parametrize("given", [run_ranks(lambda comm: None, 1), None])
def test_what_is_no_ledger_is_refused(draw, given) -> None:
    with pytest.raises(BadArgument, match=r"a figure needs the ledger of a run, run.ledger, got "):
        draw(given)


def test_a_run_in_which_no_time_passes_says_so() -> None:
    ledger = Ledger(size=1, events=[Event(0, "compute", 0.0, 0.0, 0.0)], clocks=[0.0])
    assert words(timeline(ledger)) == ["whatever happened took no time"]
