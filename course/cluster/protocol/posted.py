"""Calls that ranks have made, and in which words it is told that they do not fit together.

recv(src=1) of rank 0 --posted-->  waits until a message of rank 1 comes         (MPI: a posted receive)
send(dst=0) of rank 1 --posted-->  a message that waits until rank 0 asks for it (MPI: an unexpected message)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from course.cluster.calls import POINT_TO_POINT, Call, Tensors
from course.cluster.protocol.failures import RanksFailed, names


@dataclass(eq=False, slots=True)
class PostedCall:
    """A call that was made, and what came of it.

    at      when; number: which message of the pair, or which collective of the group it is, from 1
    order   which event of the rank it is, from 1
    end     when its tensors can be used; meaningless until `done`
    takes   what the rank gets; None where calls come without tensors
    sender  of a message that was received
    is_given_up  a wait for it has timed out, so that it need not come to anything
    """

    call: Call
    at: float
    number: int
    order: int
    is_async: bool
    given: Tensors | None
    done: bool = False
    end: float = 0.0
    takes: Tensors | None = None
    sender: int | None = None
    is_given_up: bool = False

    @property
    def name(self) -> str:
        """`recv(src=1)`, `all_reduce #3, shape (4,)`."""
        is_message = self.call.verb in POINT_TO_POINT
        number, details = ("", "") if is_message else (f" #{self.number}", self.call.details())
        return f"{self.call}{number}{self.where}{details}"

    @property
    def where(self) -> str:
        """` in group #2 of ranks 0, 1`; nothing in the first that was made of these ranks."""
        group, context = self.call.communicator
        return f" in group #{context + 1} of ranks {names(group)}" if context else ""

    def __str__(self) -> str:
        """`waits in recv(src=1)`, `is in all_reduce #3, shape (4,)`."""
        return f"{'waits' if self.call.verb in POINT_TO_POINT else 'is'} in {self.name}"


@dataclass(eq=False, slots=True)
class SentMessage:
    """What was sent: on its way, not yet received, or, where a send is not eager, not yet on its way.

    start, end, given  of no meaning before it is on its way
    """

    sent: PostedCall
    start: float = 0.0
    end: float = 0.0
    given: Tensors | None = None


@dataclass(eq=False, slots=True)
class Mailbox:
    """Of one rank, group and tag: messages that nobody has asked for yet, by sender; receives that wait for one."""

    unexpected: dict[int, deque[SentMessage]] = field(default_factory=dict)
    receives: list[PostedCall] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Meetings:
    """Of one group: how many collectives each rank has called; the calls of those that some have yet to join; when the
    last one of those that all have joined is over.
    """

    joined: dict[int, int] = field(default_factory=dict)
    open: dict[int, dict[int, PostedCall]] = field(default_factory=dict)
    over: float = 0.0


def compare(one: PostedCall, other: PostedCall) -> None:
    """Raises RanksFailed where two ranks of a group do not make the same call."""
    a, b = one.call, other.call
    same = (a.verb, a.peer, a.op) == (b.verb, b.peer, b.op)
    if same and a.verb == "all_to_all":
        here, there = _between(a, b)
        if not here:
            return
    elif same and a.kinds[:1] == b.kinds[:1]:
        return
    else:
        here, there = _with(a), _with(b)
    raise RanksFailed(
        f"all ranks of a group must make the same calls in the same order, but rank {a.rank} {_said(one)}{here} and "
        f"rank {b.rank} {_said(other)}{there}",
        kind="Mismatch",
        rank=b.rank,
    )


def _said(posted: PostedCall) -> str:
    """`is in all_reduce #1 (sum)`."""
    op = f" ({posted.call.op})" if posted.call.op else ""
    return f"is in {posted.call} #{posted.number}{posted.where}{op}"


def _with(call: Call) -> str:
    """` with float32 of shape (4,)`; nothing for a barrier."""
    return f" with {call.kinds[0]}" if call.kinds else ""


def _between(a: Call, b: Call) -> tuple[str, str]:
    """What does not fit between two ranks of an all_to_all, in words, for each; nothing where all does."""
    here, there = a.group.index(a.rank), a.group.index(b.rank)
    if a.gives[there] != b.takes[here]:
        return f" with {a.gives[there]} for rank {b.rank}", f" with room for {b.takes[here]} from rank {a.rank}"
    if b.gives[here] != a.takes[there]:
        return f" with room for {a.takes[there]} from rank {b.rank}", f" with {b.gives[here]} for rank {a.rank}"
    return "", ""


def _tagged(sent: PostedCall) -> str:
    """` with tag 7 in group #2 of ranks 0, 1`."""
    return (f" with tag {sent.call.tag}" if sent.call.tag else "") + sent.where


def never_received(queue: Sequence[SentMessage]) -> RanksFailed:
    """The failure of messages that were sent, and of which nobody asked."""
    sent = queue[0].sent
    more = f" (and {len(queue) - 1} more)" if len(queue) > 1 else ""
    return RanksFailed(
        f"every message must be received, but rank {sent.call.peer} returned without receiving message #{sent.number} "
        f"of rank {sent.call.rank}{_tagged(sent)}, {sent.call.gives[0]}{more}",
        kind="Leftover",
        rank=sent.call.peer,
    )


def never_sent(posted: PostedCall) -> RanksFailed:
    """The failure of a receive that was begun, and to which nobody sent."""
    call = posted.call
    who = "nobody" if call.peer is None else f"rank {call.peer} never"
    return RanksFailed(
        f"every receive must meet a message, but {who} sent what rank {call.rank} began to receive with {call}"
        f"{posted.where}, {call.takes[0]}",
        kind="Leftover",
        rank=call.rank if call.peer is None else call.peer,
    )


def never_joined(posted: PostedCall, missing: Sequence[int]) -> RanksFailed:
    """The failure of a collective that some ranks of the group did not call."""
    who = f"rank {names(missing)}" if len(missing) == 1 else f"ranks {names(missing)}"
    return RanksFailed(
        f"every rank of a group must join its collectives, but {who} returned without joining "
        f"rank {posted.call.rank}, which {posted}",
        kind="Leftover",
        rank=missing[0],
    )


def never_waited(posted: PostedCall) -> RanksFailed:
    """The failure of a call that was begun and met, and whose `wait` was forgotten."""
    return RanksFailed(
        f"what is begun must be waited for, but rank {posted.call.rank} returned without wait() for {posted.call} "
        f"#{posted.number}{posted.where}: its tensors may be read only afterwards",
        kind="Leftover",
        rank=posted.call.rank,
    )


def not_what_was_sent(sent: PostedCall, to: PostedCall) -> RanksFailed:
    """The failure of a receive into another kind of tensor."""
    return RanksFailed(
        f"what is received must have the dtype and shape of what was sent, but rank {to.call.rank} receives "
        f"{to.call.takes[0]} and rank {sent.call.rank} sent {sent.call.gives[0]} in its message #{sent.number} to it",
        kind="Mismatch",
        rank=to.call.rank,
    )
