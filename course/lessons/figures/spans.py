"""Who did what when, from the account of a run: plain data under the timeline.

ledger --lanes--> {rank: [Span, ...]} --shares--> {rank: Shares}, in seconds

words
    own lane     what a rank itself does: it computes, it is inside a blocking transfer, or it waits. Never two at once
    lane beside  transfers that go on while the rank does something else: eager sends, and what it began with async_op
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from course.cluster.account.ledger import COMPUTE, Event, Ledger

Lane = Literal["own", "beside"]
Kind = Literal["compute", "communication", "waiting"]
LANES: tuple[Lane, ...] = ("own", "beside")
KINDS: tuple[Kind, ...] = ("compute", "communication", "waiting")
TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


class Span(NamedTuple):
    """Something that takes a rank from `start` to `end`, in seconds. label: of the compute, or its verb and number."""

    lane: Lane
    kind: Kind
    start: float
    end: float
    label: str


class Shares(NamedTuple):
    """Seconds of one rank: three kinds of its own lane, and how long at least one transfer was under way beside it."""

    compute: float
    communication: float
    waiting: float
    beside: float


def lanes(ledger: Ledger) -> dict[int, list[Span]]:
    """The spans of each rank, by their start; what takes no time is left out.

    A blocking call waits from when it was made until its transfer starts. What was begun earlier is waited for in
    `wait`; all that time counts as waiting, also where the transfer is under way. A rank that has ended waits for the
    last one.
    """
    found: dict[int, list[Span]] = {rank: [] for rank in range(ledger.size)}
    for event in ledger.events:
        found[event.rank].extend(_spans(event))
    for wait in ledger.waits:
        found[wait.rank].append(Span("own", "waiting", wait.start, wait.end, wait.verb))
    for rank, clock in enumerate(ledger.clocks):
        found[rank].append(Span("own", "waiting", clock, ledger.makespan, "ended"))
    return {
        rank: sorted((each for each in spans if each.end > each.start), key=lambda each: (each.start, each.end))
        for rank, spans in found.items()
    }


def _spans(event: Event) -> Iterator[Span]:
    if event.verb == COMPUTE:
        yield Span("own", "compute", event.start, event.end, event.label)
        return
    label = f"{event.verb} #{event.number}"
    if not event.is_async:
        yield Span("own", "waiting", event.called, event.start, label)
    yield Span("beside" if event.is_async else "own", "communication", event.start, event.end, label)


def shares(ledger: Ledger) -> dict[int, Shares]:
    """How long each rank computed, communicated and waited, in seconds.

    What its clock says beyond these three it spent in its own code, where the clock measures that.
    """
    found = {}
    for rank, spans in lanes(ledger).items():
        own = {kind: seconds(each for each in spans if each.lane == "own" and each.kind == kind) for kind in KINDS}
        found[rank] = Shares(**own, beside=seconds(each for each in spans if each.lane == "beside"))
    return found


def seconds(spans: Iterable[Span]) -> float:
    """How long at least one of the spans lasts."""
    return sum(end - start for start, end in covered(spans))


def covered(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Start and end of each stretch in which at least one of the spans lasts, in order; none touches the next."""
    found: list[tuple[float, float]] = []
    for each in sorted(spans, key=lambda each: each.start):
        if found and each.start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], each.end)
        else:
            found.append((each.start, each.end))
    return found


def ends(ledger: Ledger) -> list[float]:
    """When each rank ended, in seconds; where nobody wrote that down, the end of the last thing that it did."""
    if ledger.clocks:
        return list(ledger.clocks)
    return [max((each.end for each in spans if each.lane == "own"), default=0.0) for spans in lanes(ledger).values()]


def time_unit(length: float) -> tuple[str, float]:
    """The greatest unit that `length` seconds fill, and its seconds."""
    return next((unit for unit in TIMES if length >= unit[1]), TIMES[-1])


def in_seconds(length: float) -> str:
    """`3.1 ms`, `250 µs`: three significant digits."""
    unit, size = time_unit(length)
    number = length / size
    return f"{number:.0f} {unit}" if number >= 1000 else f"{number:.3g} {unit}"
