"""Where the ranks' calls meet: who has to wait for whom, what fits together, and what can never come.

    post(call) --> PostedCall --(all calls that it needs have come)--> done, with what the rank takes
    {rank: its tensors}, op  --combined-->  {rank: what it takes}

One state machine for every transport. Simulated ranks and the broker of graded ranks give it tensors, and get
tensors back; the launcher of real processes gives it the calls alone, to tell a mismatch or a deadlock while the
processes are stuck in it. It holds no thread, socket or clock of its own: `at` is the time of a call.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from course.cluster.account.ledger import COMPUTE, Event, Ledger, Wait
from course.cluster.account.network import Network
from course.cluster.account.traffic import plan
from course.cluster.calls import REDUCING, Call, Communicator, Tensors
from course.cluster.protocol.failures import RanksFailed
from course.cluster.protocol.posted import (
    Mailbox,
    Meetings,
    PostedCall,
    SentMessage,
    compare,
    never_joined,
    never_received,
    never_sent,
    never_waited,
    not_what_was_sent,
)

STEP: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "mean": torch.add,
    "product": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}


class Switch:
    """The calls of `size` ranks so far.

    network  gives the times; None: every transfer takes none
    is_eager whether a send is over at once; else it starts when its receive is there, and is over with it
    seed     decides which of several senders a receive from anybody gets
    done     calls that were completed since the caller last looked; the caller clears it
    """

    def __init__(self, size: int, *, network: Network | None = None, seed: int = 0, is_eager: bool = True) -> None:
        self.ledger = Ledger(size=size)
        self.done: list[PostedCall] = []
        self.is_eager = is_eager
        self._network = network
        self._random = random.Random(seed)
        self._mailboxes: defaultdict[tuple[Communicator, int, int], Mailbox] = defaultdict(Mailbox)
        self._numbers: Counter[tuple[object, ...]] = Counter()
        self._orders = [0] * size
        self._meetings: defaultdict[Communicator, Meetings] = defaultdict(Meetings)
        self._begun: dict[int, PostedCall] = {}  # by id: what was begun and not waited for

    def post(self, call: Call, given: Tensors | None = None, *, at: float = 0.0, is_async: bool = False) -> PostedCall:
        """Begin a call. Never blocks; calls that it completes are in `done`. Raises RanksFailed on a mismatch.

        given  the tensors of `call.gives`; they are read when the call completes, so a caller who goes on gives copies
        """
        match call.verb:
            case "send":
                posted = self._send(call, given, at, is_async or self.is_eager)
            case "recv":
                posted = self._receive(call, at, is_async)
            case _:
                posted = self._meet(call, given, at, is_async)
        if is_async and not (call.verb == "send" and self.is_eager):
            self._begun[id(posted)] = posted
        return posted

    def waited(self, posted: PostedCall, start: float, end: float, *, in_vain: bool = False) -> None:
        """Write down that a rank waited for what it had begun; in vain: it has not ended in the time that it had."""
        if id(posted) in self._begun:
            call = posted.call
            self.ledger.waits.append(Wait(call.rank, start, end, call.verb, posted.order, in_vain))
            posted.is_given_up = in_vain
            if not in_vain:
                del self._begun[id(posted)]

    def compute(self, rank: int, at: float, seconds: float, label: str) -> None:
        """Write down that a rank computes."""
        end = at + seconds
        order = self._order(rank)
        self.ledger.events.append(Event(rank, COMPUTE, called=at, start=at, end=end, label=label, order=order))

    # --- from one to another ---

    def _send(self, call: Call, given: Tensors | None, at: float, is_async: bool) -> PostedCall:
        src, dst = call.rank, call.named
        number = self._number("send", call.communicator, src, dst)
        posted = PostedCall(call, at, number, self._order(src), is_async, given)
        message = SentMessage(posted)
        if self.is_eager:
            self._transfer(message, at)
        mailbox = self._mailboxes[call.communicator, dst, call.tag]
        for waiting in mailbox.receives:
            if waiting.call.peer in (None, src):
                mailbox.receives.remove(waiting)
                self._deliver(message, waiting)
                return posted
        mailbox.unexpected.setdefault(src, deque()).append(message)
        return posted

    def _receive(self, call: Call, at: float, is_async: bool) -> PostedCall:
        posted = PostedCall(call, at, 0, self._order(call.rank), is_async, None)  # its message brings the number
        mailbox = self._mailboxes[call.communicator, call.rank, call.tag]
        senders = sorted(src for src, queue in mailbox.unexpected.items() if queue and call.peer in (None, src))
        if senders:
            self._deliver(mailbox.unexpected[self._random.choice(senders)].popleft(), posted)
        else:
            mailbox.receives.append(posted)
        return posted

    def _transfer(self, message: SentMessage, at: float) -> None:
        """The message goes; its send is over, at once where it is eager."""
        sent, message.given = message.sent, message.sent.given
        (src, dst), size = (sent.call.rank, sent.call.named), sent.call.gives[0].bytes
        message.start, message.end = self._network.transfer(src, dst, size, at) if self._network else (at, at)
        self.ledger.charge({(src, dst): size}, {(src, dst): 1})
        sent.done, sent.end, sent.given = True, at if self.is_eager else message.end, None
        self._write(sent, message.start, message.end, size)
        self.done.append(sent)

    def _deliver(self, message: SentMessage, to: PostedCall) -> None:
        sent = message.sent
        if sent.call.gives != to.call.takes:
            raise not_what_was_sent(sent, to)
        if not sent.done:
            self._transfer(message, max(sent.at, to.at))
        to.sender, to.number = to.call.group.index(sent.call.rank), sent.number
        self._finish(to, message.given, max(to.at, message.start), max(to.at, message.end), 0)

    # --- collectives ---

    def _meet(self, call: Call, given: Tensors | None, at: float, is_async: bool) -> PostedCall:
        meetings = self._meetings[call.communicator]
        number = meetings.joined[call.rank] = meetings.joined.get(call.rank, 0) + 1
        posted = PostedCall(call, at, number, self._order(call.rank), is_async, given)
        met = meetings.open.setdefault(number, {})
        for other in met.values():
            compare(other, posted)
            if call.verb != "all_to_all":
                break  # the others agree with one another
        met[call.rank] = posted
        if len(met) == len(call.group):
            del meetings.open[number]
            self._complete([met[rank] for rank in call.group], meetings)
        return posted

    def _complete(self, posted_calls: list[PostedCall], meetings: Meetings) -> None:
        """All have come: in the order of the group. It begins when the one before is over, as in a stream of NCCL's."""
        messages = plan([each.call for each in posted_calls])
        at = max(meetings.over, *(each.at for each in posted_calls))
        start, end = self._network.collective(messages, at) if self._network else (at, at)
        meetings.over = end
        self.ledger.charge(messages.pairs, messages.counts)
        given = {each.call.rank: each.given for each in posted_calls if each.given is not None}
        takes = combined(posted_calls[0].call, given) if len(given) == len(posted_calls) else {}
        sent = messages.by_rank
        for each in posted_calls:
            self._finish(each, takes.get(each.call.rank), start, end, sent.get(each.call.rank, 0))

    def _finish(self, posted: PostedCall, takes: Tensors | None, start: float, end: float, sent: int) -> None:
        posted.done, posted.end, posted.takes, posted.given = True, end, takes, None
        self._write(posted, start, end, sent)
        self.done.append(posted)

    def _write(self, posted: PostedCall, start: float, end: float, sent: int) -> None:
        call = posted.call
        seen = (call.rank, call.verb, posted.at, start, end, posted.number, sent, call, posted.is_async, "")
        self.ledger.events.append(Event(*seen, posted.order))

    def _order(self, rank: int) -> int:
        self._orders[rank] += 1
        return self._orders[rank]

    def _number(self, *what: object) -> int:
        self._numbers[what] += 1
        return self._numbers[what]

    # --- what is left ---

    def leftovers(self) -> RanksFailed | None:
        """What was sent or begun and never came to anything, when all ranks have returned."""
        for mailbox in self._mailboxes.values():
            for queue in mailbox.unexpected.values():
                if missed := [each for each in queue if not each.sent.is_given_up]:
                    return never_received(missed)
            for receive in _missed(mailbox.receives):
                return never_sent(receive)
        for (group, _), meetings in self._meetings.items():
            for met in meetings.open.values():
                for posted in _missed(met.values()):
                    return never_joined(posted, [rank for rank in group if rank not in met])
        begun = [each for each in self._begun.values() if each.call.verb != "send"]  # nobody misses a send's end
        return next(map(never_waited, _missed(begun)), None)


def _missed(posted_calls: Iterable[PostedCall]) -> list[PostedCall]:
    """Those that some rank still counts on."""
    return [each for each in posted_calls if not each.is_given_up]


def combined(call: Call, given: Mapping[int, Tensors]) -> dict[int, Tensors]:
    """What each rank of the group takes. `call` is that of any of them; the ranks' tensors may be shared between them.

    Values are combined in the order of ranks and in their own dtype. Nothing is shared with what was given.
    """
    group = call.group
    nobody: dict[int, Tensors] = dict.fromkeys(group, ())
    if call.verb not in REDUCING:
        given = {rank: [each.detach().clone() for each in tensors] for rank, tensors in given.items()}
    match call.verb:
        case "all_reduce":
            whole = reduced(call.op, [given[rank][0] for rank in group])
            return dict.fromkeys(group, (whole,))
        case "reduce":
            return nobody | {call.named: (reduced(call.op, [given[rank][0] for rank in group]),)}
        case "reduce_scatter":
            rows = [[given[rank][place] for rank in group] for place in range(len(group))]
            return {rank: (reduced(call.op, row),) for rank, row in zip(group, rows, strict=True)}
        case "broadcast":
            return dict.fromkeys(group, tuple(given[call.named]))
        case "all_gather":
            return dict.fromkeys(group, tuple(given[rank][0] for rank in group))
        case "gather":
            return nobody | {call.named: tuple(given[rank][0] for rank in group)}
        case "scatter":
            return {rank: (each,) for rank, each in zip(group, given[call.named], strict=True)}
        case "all_to_all":
            return {rank: tuple(given[other][place] for other in group) for place, rank in enumerate(group)}
        case _:
            return nobody


def reduced(op: str, tensors: Tensors, *, in_first: bool = False) -> Tensor:
    """The tensors combined one after the other: in the first one, or a new tensor."""
    whole = tensors[0].detach() if in_first else tensors[0].detach().clone()
    for each in tensors[1:]:  # in place: a new tensor for every sum costs as much time as the sums
        STEP[op](whole, each.detach(), out=whole)
    return divided(whole, len(tensors)) if op == "mean" else whole


def divided(whole: Tensor, count: int) -> Tensor:
    """The sum as a mean, in place. Of complex numbers each part: their own division rounds once more."""
    (torch.view_as_real(whole) if whole.is_complex() else whole).div_(count)
    return whole
