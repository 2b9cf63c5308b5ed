"""What can go wrong with a run of several ranks, told in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from course.errors import CourseError

if TYPE_CHECKING:
    from course.cluster.ledger import Ledger

Kind = Literal["Deadlock", "Mismatch", "Leftover", "RankRaised", "RankDied", "TimeLimit", "Flood", "BadReply"]


class RanksFailed(CourseError):
    """A run of ranks that could not go on, or that ended with something left undone.

    kind    what broke
    rank    the rank to look at first; None where no single one is to blame
    type    of the exception that the rank raised; else the kind
    where   the rank's own lines, innermost last
    ledger  what was sent and called until then
    """

    def __init__(
        self, message: str, *, kind: Kind, rank: int | None = None, type: str = "", where: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.kind, self.rank, self.type, self.where = kind, rank, type or kind, where
        self.ledger: Ledger | None = None


class Stopped(BaseException):
    """Raised inside the calls of a rank whose run is over; no `except Exception` of the rank can swallow it."""
