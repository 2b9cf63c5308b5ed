"""What can go wrong with a run of several ranks, told in one sentence.

{0: "is in all_reduce #3, shape (4,)", 1: "has returned", 2: "waits in recv(src=1)"}  -->  RanksFailed
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from course.cluster.account.ledger import Ledger
from course.errors import CourseError
from course.failing import message_of, own_lines, type_of

FailureKind = Literal["Deadlock", "Mismatch", "Leftover", "RankRaised", "RankDied", "TimeLimit", "Flood", "BadReply"]
PLURAL = {"waits": "wait", "asks": "ask", "is": "are", "has": "have", "runs": "run"}
RETURNED, RUNNING = "has returned", "is running"
# How torch.distributed says that nobody has started it.
NO_GROUP = ("Default process group has not been initialized", "Error initializing torch.distributed")


class RanksFailed(CourseError):
    """A run of ranks that could not go on, or that ended with something left undone.

    kind    what broke
    rank    the rank to look at first; None where no single one is to blame
    type    of the exception that the rank raised; else the kind
    where   the rank's own lines, innermost last
    ledger  what was sent and called until then
    """

    def __init__(
        self, message: str, *, kind: FailureKind, rank: int | None = None, type: str = "", where: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.kind, self.rank, self.type, self.where = kind, rank, type or kind, where
        self.ledger: Ledger | None = None

    @property
    def without_line(self) -> str:
        """The message, but for the rank's own line: for those who show `where` beside it, or may not show it."""
        return str(self).replace(f" ({self.where[-1]})", "", 1) if self.where else str(self)


class Stopped(BaseException):
    """Raised inside the calls of a rank whose run is over; no `except Exception` of the rank can swallow it."""


def raised(rank: int, error: BaseException) -> RanksFailed:
    """The failure of a run in which a rank raised."""
    return rank_raised(rank, type_of(error), message_of(error), own_lines(error.__traceback__))


def rank_raised(rank: int, kind: str, message: str, where: tuple[str, ...]) -> RanksFailed:
    """The same, of an exception that is known by its class, its message and the rank's own lines."""
    at = f" ({where[-1]})" if where else ""
    cure = ""
    if message.startswith(NO_GROUP):
        cure = '; torch.distributed needs transport="gloo" (or "nccl"), here write it with the verbs of comm'
    return RanksFailed(
        f"rank {rank} raised {kind}{': ' * bool(message)}{message}{at}{cure}",
        kind="RankRaised",
        rank=rank,
        type=kind,
        where=where,
    )


def told(statuses: Mapping[int, str]) -> str:
    """`rank 2 waits in recv(src=1); rank 1 has returned`: those that wait first, equal ones together."""
    together: defaultdict[str, list[int]] = defaultdict(list)
    for rank, words in statuses.items():
        together[words].append(rank)
    rows = sorted(together.items(), key=lambda item: (item[0] == RETURNED, min(item[1])))
    return "; ".join(_row(ranks, words) for words, ranks in rows)


def deadlock(statuses: Mapping[int, str]) -> RanksFailed:
    """The failure of a run in which nobody can go on."""
    waiting = [rank for rank, words in statuses.items() if words != RETURNED]
    return RanksFailed(
        f"some rank must be able to go on, but all wait: {told(statuses)}", kind="Deadlock", rank=min(waiting)
    )


def late(
    seconds: float,
    rank: int,
    where: tuple[str, ...],
    statuses: Mapping[int, str],
    what: str = "end",
    *,
    by_default: bool = False,
) -> RanksFailed:
    """The failure of a run that has not ended (`what`) in time: `rank` still runs, in the lines `where`.

    by_default  whether nobody has set the limit
    """
    at = f" ({where[-1]})" if where else ""
    more = " where seconds= gives them no more" if by_default else ""
    others = {other: words for other, words in statuses.items() if other != rank}
    sentences = [f"the ranks must {what} within {seconds:g} s{more}, but rank {rank} still runs{at}"]
    return RanksFailed(
        "; ".join(sentences + ([told(others)] if others else [])), kind="TimeLimit", rank=rank, where=where
    )


def names(ranks: Sequence[int]) -> str:
    """`0, 2 to 5`."""
    rows: list[list[int]] = []
    for rank in sorted(ranks):
        if rows and rank == rows[-1][-1] + 1:
            rows[-1].append(rank)
        else:
            rows.append([rank])
    parts = [str(row[0]) if len(row) == 1 else f"{row[0]}{' to ' if len(row) > 2 else ', '}{row[-1]}" for row in rows]
    return ", ".join(parts)


def _row(ranks: list[int], words: str) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} {words}"
    verb, _, rest = words.partition(" ")
    return f"ranks {names(ranks)} {PLURAL.get(verb, verb)} {rest}"
