"""Right and wrong ways to write `best_cuts`."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.best_cuts import best_cuts

Blocks = list[tuple[int, int]]
Plan = list[tuple[int, int]]


def every_plan(bytes_: Blocks, cost: list[int], budget: int) -> Plan:
    """All plans of a short row are tried. In a long one, the least costly way through places and kept bytes."""
    if len(cost) > 8:
        return cheapest_way(bytes_, cost, budget)

    def plans(start: int) -> list[Plan]:
        if start == len(cost):
            return [[]]
        found = plans_from(start + 1)
        return found + [[(start, end), *rest] for end in range(start + 1, len(cost) + 1) for rest in plans_from(end)]

    def live(plan: Plan) -> int:
        inside = {block for start, end in plan for block in range(start, end)}
        starts = {start for start, _ in plan}
        kept = [given * (i in starts or i not in inside) + more * (i not in inside) for i, (given, more) in all_blocks]
        return max([sum(kept)] + [sum(kept[:start]) + sum(map(sum, bytes_[start:end])) for start, end in plan])

    all_blocks, plans_from = list(enumerate(bytes_)), functools.cache(plans)
    fitting = [plan for plan in plans(0) if live(plan) <= budget]
    return min(fitting, key=lambda plan: sum(sum(cost[start:end]) for start, end in plan))  # ValueError where none is


def cheapest_way(bytes_: Blocks, cost: list[int], budget: int) -> Plan:
    """Dijkstra's search from (0 blocks, 0 bytes kept): the first way that comes to the end is the cheapest."""
    whole, spent = ([0, *itertools.accumulate(each)] for each in (map(sum, bytes_), cost))
    waiting: list[tuple[int, int, int, Plan]] = [(0, 0, 0, [])]
    seen: set[tuple[int, int]] = set()
    while waiting:
        so_far, place, kept, plan = heapq.heappop(waiting)
        if place == len(cost):
            return plan
        if (place, kept) in seen:
            continue
        seen.add((place, kept))
        room = budget - kept
        for end in range(place + 1, len(cost) + 1):
            if whole[end] - whole[place] > room:
                break
            if end == place + 1:
                heapq.heappush(waiting, (so_far, end, kept + sum(bytes_[place]), plan))
            if bytes_[place][0] <= room:
                added = spent[end] - spent[place]
                heapq.heappush(waiting, (so_far + added, end, kept + bytes_[place][0], [*plan, (place, end)]))
    raise ValueError("nothing fits")


def from_the_end(bytes_: Blocks, cost: list[int], budget: int) -> Plan:
    """The least cost from block i on, with so much room left: found from the end, and walked from the start."""
    n = len(cost)
    least = [[0] * (budget + 1)]  # of no blocks
    choice: list[list[int]] = []  # where the segment from block i ends; i where block i keeps all
    for i in reversed(range(n)):
        row, ends = [], []
        for room in range(budget + 1):
            best, at, full, again = math.inf, i, 0, 0
            for end in range(i + 1, n + 1):
                full, again = full + sum(bytes_[end - 1]), again + cost[end - 1]
                if full > room:
                    break
                if end == i + 1:
                    best = least[-1][room - full]
                rest = again + least[i - end][room - bytes_[i][0]]
                best, at = min((best, at), (rest, end), key=lambda found: found[0])
            row.append(best)
            ends.append(at)
        least.append(row)  # type: ignore[arg-type]
        choice.append(ends)
    if least[-1][budget] == math.inf:
        raise ValueError("nothing fits")
    plan, i, room = [], 0, budget
    while i < n:
        end = choice[n - 1 - i][room]
        room -= sum(bytes_[i]) if end == i else bytes_[i][0]
        plan += [(i, end)] if end > i else []
        i = max(end, i + 1)
    return plan


def best_of_a_few(bytes_: Blocks, cost: list[int], budget: int) -> Plan:
    """Wrong: a rule of thumb makes a few plans, here all segments of one length; the cheapest that fits is taken."""

    def fits(plan: Plan) -> bool:
        kept, at = 0, 0
        for start, end in plan:
            kept += sum(map(sum, bytes_[at:start]))
            if kept + sum(map(sum, bytes_[start:end])) > budget:
                return False
            kept, at = kept + bytes_[start][0], end
        return kept + sum(map(sum, bytes_[at:])) <= budget

    n = len(cost)
    plans = [[(i, min(i + k, n)) for i in range(0, n, k)] for k in range(1, n + 1)]
    fitting = [plan for plan in [[], *plans] if fits(plan)]
    return min(fitting, key=lambda plan: sum(sum(cost[start:end]) for start, end in plan))


RIGHT = (
    right(every_plan, independent="every plan is tried; for long rows heapq"),
    right(from_the_end),
)

table, thumb = partial(edited, best_cuts), partial(edited, best_of_a_few)

PLANS = "[[(i, min(i + k, n)) for i in range(0, n, k)] for k in range(1, n + 1)]"
GREEDY = "[[(i, i + 1) for i in sorted(sorted(range(n), key=lambda i: {})[:m])] for m in range(n + 1)]"
START = "    n = len(bytes_)\n"
WAYS, ALL_WAYS = "for kept, (spent, plan) in {}:", "table[start].items()"
FULL, SEGMENT = "sum(bytes_[end - 1])", "kept + given, again"
ENDS = "range(start + 1, n + 1)"
LIVE = "live, again = kept, spent"
CAPPED = (ENDS, "range(start + 1, min(start + 21, n + 1))")  # so that mistakes without a bound end in time
FITS = "if kept <= budget and (kept"
FIRST_OF_EQUALS = (  # by their segments: another plan of the same cost
    ("(plan, (start, end))", "(*plan, (start, end))"),
    ("    plan, segments = min", "    return [*min(table[n].values())[1]]\n    plan, segments = min"),
)


def ways(key: str) -> tuple[str, str]:
    """Of all ways to a place only the first by this key is followed."""
    return WAYS.format(ALL_WAYS), WAYS.format(f"sorted({ALL_WAYS}, key=lambda way: {key})[:1]")


WRONG = (
    wrong(
        "equal_segments",
        "Your segments are all of one length. Where blocks differ, and the budget lets some of them keep all, most of "
        "that is run again for nothing: decide for each block.",
        thumb((PLANS, f"{PLANS}[:]")),
    ),
    wrong(
        "root_of_n",
        "Segments of the square root of n blocks are good where all blocks are equal and nobody says how much room "
        "there is. Here the budget is given: use it.",
        table((START, START + "    k = round(n**0.5)\n    return [(i, min(i + k, n)) for i in range(0, n, k)]\n")),
        by_chance=True,  # whether that fits
    ),
    wrong(
        "all_in_one_segment",
        "One segment of the whole row keeps nearly nothing over the forward. But when backward runs it again, all of "
        "it is live at once.",
        table((START, START + "    return [(0, n)]\n")),
    ),
    wrong(
        "most_bytes_first",
        "You checkpoint the blocks with most bytes inside, one by one, until the rest fits. They may be the most "
        "expensive to run again, and each of them keeps its input: search over segments.",
        thumb((PLANS, GREEDY.format("-bytes_[i][1]"))),
    ),
    wrong(
        "cheapest_by_the_byte",
        "You checkpoint the blocks that cost least for each byte, one by one, until the rest fits. The last of them "
        "may free far more than is missing, and blocks in one segment keep one input only: search over segments.",
        thumb((PLANS, GREEDY.format("cost[i] / bytes_[i][1]"))),
    ),
    wrong(
        "only_a_suffix_keeps_all",
        "In your plans the last blocks keep all, and every block before them is run again. Where blocks differ, an "
        "expensive one early in the row should keep all too.",
        table((LIVE, f"if start and (not plan or plan[1][1] != start):\n                continue\n            {LIVE}")),
    ),
    wrong(
        "one_way_to_each_place",
        "For each place in the row you go on from the cheapest start only. It may keep so much that the rest becomes "
        "expensive or does not fit: keep the cheapest for each number of bytes kept.",
        table(ways("way[1][0]")),
        by_chance=True,  # whether the rest fits at all
    ),
    wrong(
        "least_bytes_to_each_place",
        "For each place in the row you go on from the start that keeps least. That fits, and costs more than needed: "
        "keep the cheapest for each number of bytes kept.",
        table(ways("way[0]")),
    ),
    wrong(
        "blocks_one_by_one",
        "Your segments have one block each. A longer one keeps a single input over the forward, as long as it fits "
        "when it is run again.",
        table((ENDS, "range(start + 1, start + 2)")),
        by_chance=True,  # whether that fits
    ),
    wrong(
        "fewest_blocks",
        "You run as few blocks again as you can. Two cheap ones are better than an expensive one: add up their costs.",
        table(("again += cost[end - 1]", "again += 1")),
    ),
    wrong(
        "last_block_for_free",
        "You count the last block of a segment as if it were not run again. Only the last segment of a chain is spared "
        "that, because backward comes right after it; here every block in a segment costs.",
        table(("again += cost[end - 1]", "again += cost[end - 1] if end - 1 > start else 0")),
    ),
    wrong(
        "only_after_the_forward",
        "You ask only whether fits what is kept after the forward. When backward runs a segment again, all its inputs "
        "and insides are there, beside what stands before it.",
        table(CAPPED, ("if live > budget:", "if again < 0:")),
    ),
    wrong(
        "only_in_backward",
        "You ask only whether each segment fits when it is run again. What all blocks together keep after the forward "
        "must fit too.",
        table((FITS, "if place and (kept")),
    ),
    wrong(
        "segment_alone",
        "You compare a segment alone with the budget. What stands before it is still kept when it is run again.",
        table((LIVE, "live, again = 0, spent")),
        table((LIVE, "live, again = 0, spent"), *FIRST_OF_EQUALS),
    ),
    wrong(
        "insides_only",
        "When a segment is run again, not only the insides of its blocks are there: so is the input of each of them.",
        table(CAPPED, (FULL, "bytes_[end - 1][1]")),
    ),
    wrong(
        "largest_block_at_work",
        "You count one block of a segment at a time. Backward needs all of them: the segment is run again as a whole "
        "before its last block's backward can begin.",
        table(CAPPED, (f"live += {FULL}", f"live = max(live, kept + {FULL})")),
        by_chance=True,  # which of several plans of one cost comes out
    ),
    wrong(
        "what_follows_counted",
        "You count what stands after a segment as live when it is run again. Backward comes from the end and has freed "
        "that: what is kept of the blocks before the segment counts.",
        table(
            (START, "    bytes_, cost = bytes_[::-1], cost[::-1]\n" + START),
            (SEGMENT, "kept + bytes_[end - 1][0], again"),
            ("segments[::-1]", "[(n - end, n - start) for start, end in segments]"),
        ),
        by_chance=True,  # whether that fits
    ),
    wrong(
        "costs_forgotten",
        "You remember plans by their bytes and budget, and give the old one where the costs are others. Remember by "
        "all arguments, or nothing.",
        table(
            ("def best_cuts", "known = {}\n\ndef best_cuts"),
            (START, "    if (seen := (*bytes_, budget)) in known:\n        return known[seen]\n" + START),
            ("return segments[::-1]", "return known.setdefault(seen, segments[::-1])"),
        ),
    ),
    wrong(
        "lists_changed",
        "You write into `cost` or `bytes_`, which the caller still needs: make new lists.",
        table(
            (START, START + "    for i in range(1, n):\n        cost[i] += cost[i - 1]\n"),
            ("again += cost[end - 1]", "again = spent + cost[end - 1] - (cost[start - 1] if start else 0)"),
        ),
        fails=("lists_unchanged",),
    ),
    wrong(
        "checkpoint_counted_twice",
        "You count the input of a segment's first block twice: as what is kept, and among what is live in the segment. "
        "It is one tensor.",
        table((LIVE, "live, again = kept + given, spent")),
        table((LIVE, "live, again = kept + given, spent"), *FIRST_OF_EQUALS),
    ),
    wrong(
        "checkpoint_forgotten",
        "The input of each segment is kept over the forward: without it, there is nothing to run the segment from.",
        table((SEGMENT, "kept, again")),
    ),
    wrong(
        "every_input_kept",
        "Of a segment only the first block's input is kept over the forward. The others are computed again.",
        table((SEGMENT, "kept + sum(bytes_[i][0] for i in range(start, end)), again")),
        by_chance=True,  # whether that fits
    ),
    wrong(
        "ten_blocks_at_most",
        "Your segments have ten blocks at most. In a long row of small blocks longer ones are needed: only the budget "
        "limits them.",
        table((ENDS, "range(start + 1, min(start + 11, n + 1))")),
    ),
    wrong(
        "always_a_segment",
        "You checkpoint something even where all blocks may keep everything. The empty plan costs nothing: let it "
        "compete.",
        table(("key=lambda found: found[0]", "key=lambda found: found[0] or 10**9")),
    ),
    wrong(
        "the_last_byte_unused",
        "A plan that needs exactly the budget fits: compare with <=, and break where the live bytes are more.",
        table((FITS, "if kept < budget and (kept"), ("if live > budget", "if live >= budget")),
        table((FITS, "if kept < budget and (kept")),
        table((FITS, "if kept < budget and (kept"), ("if live > budget", "if live >= budget"), *FIRST_OF_EQUALS),
    ),
    wrong(
        "a_byte_too_many",
        "Your plan may need a byte more than the budget.",
        table((FITS, "if kept <= budget + 1 and (kept"), ("if live > budget", "if live > budget + 1")),
    ),
    wrong(
        "last_block_named",
        "The end of a segment is the number of the block after its last one, as in range(start, end).",
        table(("(start, end)))", "(start, end - 1)))")),
    ),
    wrong(
        "from_the_end_to_the_start",
        "Your segments are right, but the last one comes first: sort them.",
        table(("segments[::-1]", "segments")),
    ),
    wrong(
        "no_value_error",
        "Where no plan fits you return one all the same, or run into another error. Raise a ValueError, so that nobody "
        "runs out of memory later.",
        table(
            (
                "    if not table[n]:\n        raise ValueError",
                "    if not table[n]:\n        return [(0, n)]\n        raise ValueError",
            )
        ),
        fails=("refusals",),
    ),
)
