"""Programs of ranks that begin their calls and wait for them later, and how far each rank gets where they do not fit.

programs of all ranks --got--> the calls that each has begun

The model is that of a GPU's stream: a rank begins call after call and stands still only in a `wait`, until all of its
calls before are over. They are over in their order. A collective is over where it is the next call of all ranks, and
the same; a send at once; a receive where a message of its shape is there. This is no cluster: nothing is computed, and
calls that do not fit are no error but wait for ever, as with NCCL.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, TypeAlias

Call: TypeAlias = dict[str, Any]
WAIT: Call = {"verb": "wait", "peer": None, "shape": None, "op": None}
RETURNED: Call = {**WAIT, "verb": "returned"}


def call(verb: str, shape: Sequence[int], *, peer: int | None = None, op: str | None = None) -> Call:
    """One call. peer: to which or from which rank a message goes, or the root of a collective."""
    return {"verb": verb, "peer": peer, "shape": list(shape), "op": op}


def got(programs: Sequence[Sequence[Call]]) -> list[list[Call]]:
    """For each rank the calls that it has begun when nobody can go on: up to a `wait`, or to the end and RETURNED."""
    over = _over(programs)
    found = []
    for program, count in zip(programs, over, strict=True):
        waits = [at for at, each in enumerate(program) if each["verb"] == "wait" and at >= count]
        found.append([*program[: waits[0] + 1]] if waits else [*program, RETURNED])
    return found


def _over(programs: Sequence[Sequence[Call]]) -> list[int]:
    """How many of its calls each rank has behind it at the end. Every program must end with a `wait`."""
    over, moved = [0] * len(programs), True
    messages: defaultdict[tuple[int, int], deque[list[int]]] = defaultdict(deque)
    while moved:
        moved = False
        heads = [[*program, RETURNED][count] for program, count in zip(programs, over, strict=True)]
        if heads[0]["verb"] not in ("send", "recv", "wait", "returned") and all(each == heads[0] for each in heads):
            over, moved = [count + 1 for count in over], True
            continue
        for rank, head in enumerate(heads):
            if _alone(rank, head, messages):
                over[rank] += 1
                moved = True
    return over


def _alone(rank: int, head: Call, messages: defaultdict[tuple[int, int], deque[list[int]]]) -> bool:
    """Whether this call, the next of its rank, is over without a collective; what is sent lies in `messages` then."""
    if head["verb"] == "send":
        messages[rank, head["peer"]].append(head["shape"])
    elif head["verb"] == "recv":
        box = messages[head["peer"], rank]
        if not box or box[0] != head["shape"]:
            return False
        box.popleft()
    return head["verb"] in ("send", "recv", "wait")


def table(trace: Sequence[Sequence[Call]]) -> str:
    """A column of calls for each rank, numbered from 0."""
    columns = [[f"rank {rank}", *map(_words, calls)] for rank, calls in enumerate(trace)]
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for at in range(max(map(len, columns))):
        cells = [column[at] if at < len(column) else "" for column in columns]
        number = f"{at - 1:2d}" if at else "  "
        lines.append(
            "  ".join([number, *(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))]).rstrip()
        )
    return "\n".join(lines)


def _words(each: Call) -> str:
    """`send [4] to 2`."""
    preposition = {"send": "to", "recv": "from", "reduce": "to", "broadcast": "from"}.get(each["verb"], "")
    parts = [each["verb"], each["op"], each["shape"], preposition, each["peer"]]
    return " ".join(str(part) for part in parts if part not in (None, ""))


def example() -> list[list[Call]]:
    """The trace with which the lesson begins: rank 2 of 4 leaves out a call in the second step."""

    def step(rank: int, *, leave_out: bool = False) -> list[Call]:
        calls = [
            call("send", [6], peer=(rank + 1) % 4),
            call("recv", [6], peer=(rank - 1) % 4),
            call("all_reduce", [20], op="mean"),
            call("all_reduce", [8], op="mean"),
            WAIT,
        ]
        return [each for each in calls if not (leave_out and each["shape"] == [20])]

    return got([[*step(rank), *step(rank, leave_out=rank == 2), *step(rank)] for rank in range(4)])
