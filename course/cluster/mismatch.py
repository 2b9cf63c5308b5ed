"""What does not fit together, in words: the failures that the switch raises."""

from __future__ import annotations

from collections.abc import Sequence

from course.cluster.errors import RanksFailed
from course.cluster.posted import Message, Ticket
from course.cluster.rank_status import names


def compare(one: Ticket, other: Ticket) -> None:
    """Raises RanksFailed where two ranks of a group do not make the same call."""
    a, b = one.call, other.call
    same = (a.verb, a.peer, a.op) == (b.verb, b.peer, b.op)
    if a.verb == "all_to_all":
        here, there = a.group.index(a.rank), a.group.index(b.rank)
        fits = same and a.gives[there] == b.takes[here] and b.gives[here] == a.takes[there]
    else:
        fits = same and a.kinds[:1] == b.kinds[:1]
    if fits:
        return
    raise RanksFailed(
        f"all ranks of a group must make the same calls in the same order, but rank {a.rank} {_said(one)} and "
        f"rank {b.rank} {_said(other)}",
        kind="Mismatch",
        rank=b.rank,
    )


def _said(ticket: Ticket) -> str:
    """`is in all_reduce #1 (sum) with float32 of shape (4,)`."""
    call = ticket.call
    op = f" ({call.op})" if call.op else ""
    return f"is in {call} #{ticket.number}{op}" + (f" with {call.kinds[0]}" if call.kinds else "")


def never_received(queue: Sequence[Message]) -> RanksFailed:
    """The failure of messages that were sent, and of which nobody asked."""
    sent = queue[0].ticket
    more = f" (and {len(queue) - 1} more)" if len(queue) > 1 else ""
    return RanksFailed(
        f"every message must be received, but rank {sent.call.peer} returned without receiving message #{sent.number} "
        f"of rank {sent.call.rank}, {sent.call.gives[0]}{more}",
        kind="Leftover",
        rank=sent.call.peer,
    )


def never_sent(ticket: Ticket) -> RanksFailed:
    """The failure of a receive that was begun, and to which nobody sent."""
    call = ticket.call
    who = "nobody" if call.peer is None else f"rank {call.peer} never"
    return RanksFailed(
        f"every receive must meet a message, but {who} sent what rank {call.rank} began to receive with {call}, "
        f"{call.takes[0]}",
        kind="Leftover",
        rank=call.rank if call.peer is None else call.peer,
    )


def never_joined(ticket: Ticket, missing: Sequence[int]) -> RanksFailed:
    """The failure of a collective that some ranks of the group did not call."""
    who = f"rank {names(missing)}" if len(missing) == 1 else f"ranks {names(missing)}"
    return RanksFailed(
        f"every rank of a group must join its collectives, but {who} returned without joining "
        f"rank {ticket.call.rank}, which {ticket}",
        kind="Leftover",
        rank=missing[0],
    )


def never_waited(ticket: Ticket) -> RanksFailed:
    """The failure of a call that was begun and met, and whose `wait` was forgotten."""
    return RanksFailed(
        f"what is begun must be waited for, but rank {ticket.call.rank} returned without wait() for {ticket.call} "
        f"#{ticket.number}: its tensors may be read only afterwards",
        kind="Leftover",
        rank=ticket.call.rank,
    )


def not_what_was_sent(sent: Ticket, to: Ticket) -> RanksFailed:
    """The failure of a receive into another kind of tensor."""
    return RanksFailed(
        f"what is received must have the dtype and shape of what was sent, but rank {to.call.rank} receives "
        f"{to.call.takes[0]} and rank {sent.call.rank} sent {sent.call.gives[0]} in its message #{sent.number} to it",
        kind="Mismatch",
        rank=to.call.rank,
    )
