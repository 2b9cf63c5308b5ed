"""The cheapest plan of checkpointed segments within a budget: a table by place in the row and bytes kept so far.

table[i][kept] --block i keeps all--> table[i + 1][kept + its input + its inside]
table[i][kept] --segment (i, j)----> table[j][kept + input of block i], if kept and all bytes of i, ..., j - 1 fit

There are at most n (budget + 1) entries, each with at most n ways on.
"""

from __future__ import annotations

from typing import Any


def best_cuts(bytes_: list[tuple[int, int]], cost: list[int], budget: int) -> list[tuple[int, int]]:
    """Segments (start, end), sorted, with the least sum of costs; raises ValueError where no plan fits.

    bytes_  for each block (bytes of its input, bytes kept inside it)
    cost    for each block what running it again costs
    budget  the most that may be live: after the forward, and when backward has run a segment again
    """
    n = len(bytes_)
    table: list[dict[int, tuple[int, Any]]] = [{0: (0, ())}, *({} for _ in range(n))]

    def offer(place: int, kept: int, spent: int, plan: Any) -> None:
        if kept <= budget and (kept not in table[place] or spent < table[place][kept][0]):
            table[place][kept] = spent, plan

    for start, (given, inside) in enumerate(bytes_):
        for kept, (spent, plan) in table[start].items():
            offer(start + 1, kept + given + inside, spent, plan)
            live, again = kept, spent
            for end in range(start + 1, n + 1):
                live += sum(bytes_[end - 1])
                again += cost[end - 1]
                if live > budget:
                    break
                offer(end, kept + given, again, (plan, (start, end)))
    if not table[n]:
        raise ValueError(f"no plan has at most {budget} bytes live")
    plan, segments = min(table[n].values(), key=lambda found: found[0])[1], []
    while plan:
        plan, segment = plan
        segments.append(segment)
    return segments[::-1]
