"""Who waits for what, in words.

{0: "is in all_reduce #3, shape (4,)", 1: "has returned", 2: "waits in recv(src=1)"}  -->  one sentence
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from course.cluster.errors import RanksFailed

PLURAL = {"waits": "wait", "is": "are", "has": "have", "runs": "run"}
RETURNED, RUNNING = "has returned", "is running"


def told(standing: Mapping[int, str]) -> str:
    """`rank 2 waits in recv(src=1); rank 1 has returned`: those that wait first, equal ones together."""
    together: defaultdict[str, list[int]] = defaultdict(list)
    for rank, words in standing.items():
        together[words].append(rank)
    rows = sorted(together.items(), key=lambda item: (item[0] == RETURNED, min(item[1])))
    return "; ".join(_row(ranks, words) for words, ranks in rows)


def deadlock(standing: Mapping[int, str]) -> RanksFailed:
    """The failure of a run in which nobody can go on."""
    waiting = [rank for rank, words in standing.items() if words != RETURNED]
    return RanksFailed(
        f"some rank must be able to go on, but all wait: {told(standing)}", kind="Deadlock", rank=min(waiting)
    )


def late(
    seconds: float, rank: int, where: tuple[str, ...], standing: Mapping[int, str], what: str = "end"
) -> RanksFailed:
    """The failure of a run that has not ended (`what`) in time: `rank` still runs, in the lines `where`."""
    at = f" ({where[-1]})" if where else ""
    others = {other: words for other, words in standing.items() if other != rank}
    sentences = [f"the ranks must {what} within {seconds:g} s, but rank {rank} still runs{at}"]
    return RanksFailed(
        "; ".join(sentences + ([told(others)] if others else [])), kind="TimeLimit", rank=rank, where=where
    )


def names(ranks: Sequence[int]) -> str:
    """`0, 2 to 5`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}{' to ' if len(run) > 2 else ', '}{run[-1]}" for run in runs]
    return ", ".join(parts)


def _row(ranks: list[int], words: str) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} {words}"
    verb, _, rest = words.partition(" ")
    return f"ranks {names(ranks)} {PLURAL.get(verb, verb)} {rest}"
