"""Calls on their way: what the switch keeps of each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from course.cluster.calls import Call, Tensors


@dataclass(eq=False, slots=True)
class Ticket:
    """A call that was posted, and what came of it.

    at      when; number: which message of the pair, or which collective of the group it is, from 1
    order   which event of the rank it is, from 1
    end     when its tensors can be used; meaningless until `done`
    takes   what the rank gets; None where calls come without tensors
    sender  of a message that was received
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

    def __str__(self) -> str:
        """`waits in recv(src=1)`, `is in all_reduce #3, shape (4,)`."""
        if self.call.verb in ("send", "recv"):
            return f"waits in {self.call}"
        return f"is in {self.call} #{self.number}{self.call.details()}"


@dataclass(eq=False, slots=True)
class Message:
    """On its way, or not yet received."""

    ticket: Ticket
    start: float
    end: float


@dataclass(eq=False, slots=True)
class Boxes:
    """What one rank has not received yet in one group, by sender; and the receives that wait for something."""

    come: dict[int, deque[Message]] = field(default_factory=dict)
    waiting: list[Ticket] = field(default_factory=list)
