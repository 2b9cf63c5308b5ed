"""Right and wrong ways to write `find_stall`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.find_stall import find_stall

Events = Sequence[dict[str, Any]]


def by_microsecond(events: Events) -> tuple[int, str | None]:
    """An array with an entry for each microsecond; longer marks are painted over by shorter ones."""
    step = next(each for each in events if each["lane"] == "host" and each["name"] == "step")
    zero, length = step["start"], step["duration"]
    names: list[str] = []
    owner, idle = np.zeros(length, int), np.ones(length, bool)
    for each in sorted(events, key=lambda each: -each["duration"]):
        span = slice(max(each["start"] - zero, 0), max(each["start"] + each["duration"] - zero, 0))
        if each["lane"] == "device":
            idle[span] = False
        else:
            owner[span] = len(names)
            names.append(each["name"])
    totals: dict[str, int] = {}
    for number, count in zip(*np.unique(owner[idle], return_counts=True), strict=True):
        totals[names[number]] = totals.get(names[number], 0) + int(count)
    return int(idle.sum()), max(totals, key=totals.__getitem__, default=None)


def by_gaps(events: Events) -> tuple[int, str | None]:
    """The gaps between kernels, one after the other; a mark owns what it covers of them less what marks in it do."""
    step = next(each for each in events if each["lane"] == "host" and each["name"] == "step")
    begin, end = step["start"], step["start"] + step["duration"]
    kernels = [(each["start"], each["start"] + each["duration"]) for each in events if each["lane"] == "device"]
    kernels = sorted((max(begin, start), min(end, stop)) for start, stop in kernels if start < end and stop > begin)
    gaps, reached = [], begin
    for start, stop in [*kernels, (end, end)]:
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, stop)
    marks = [each for each in events if each["lane"] == "host"]
    marks.sort(key=lambda each: (each["start"], -each["duration"]))
    own: dict[str, int] = {}
    open_marks: list[tuple[int, str]] = []
    for mark in marks:
        start, stop = mark["start"], mark["start"] + mark["duration"]
        under = sum(max(0, min(stop, right) - max(start, left)) for left, right in gaps)
        while open_marks and open_marks[-1][0] <= start:
            open_marks.pop()
        own[mark["name"]] = own.get(mark["name"], 0) + under
        if open_marks:
            own[open_marks[-1][1]] -= under
        open_marks.append((stop, mark["name"]))
    idle = sum(stop - start for start, stop in gaps)
    return idle, max(own, key=own.__getitem__) if idle > 0 else None


RIGHT = (right(by_microsecond, independent="numpy, microsecond by microsecond"), right(by_gaps))

swept = partial(edited, find_stall)
gapped = partial(edited, by_gaps)
numbered = partial(edited, by_microsecond)

BUSY = "if not any(start <= left and right <= stop for start, stop in device):"
INNER = "innermost = min(each for each in host if each[1] <= left and right <= each[2])"
MARKS = '(each for each in host if each[1] <= left and right <= each[2] and each[3] != "step")'
BLAMED = "max(idle, key=lambda name: idle[name])"
BETWEEN = "if (not device or min(device)[0] <= left and right <= max(stop for _, stop in device))"
AFTER_THE_FIRST = ("= [], begin", "= [], min(kernels, default=(end,))[0]")
BEFORE_THE_LAST = ("[*kernels, (end, end)]", "kernels")
UNDER = "max(0, min(stop, right) - max(start, left)) for left, right in gaps"

WRONG = (
    wrong(
        "less_all_marks_inside",
        "From a mark's idle time you take that of all marks inside it. What lies two levels below is in the level "
        "between, too, and you take it off twice: only the marks directly inside count.",
        gapped(
            (
                "if open_marks:\n            own[open_marks[-1][1]] -= under",
                "for _, name in open_marks:\n            own[name] -= under",
            )
        ),
    ),
    wrong(
        "durations_added_up",
        "You subtract the sum of the device events' durations from the step's. Where two overlap, that subtracts the "
        "same time twice, and what runs outside of the step is subtracted too.",
        swept(("(idle.total(), ", "(max(0, end - begin - sum(stop - start for start, stop in device)), ")),
    ),
    wrong(
        "longest_mark",
        "You blame the mark that takes longest. The device may be working under it, and then it costs nothing: look "
        "only at the time in which the device is idle.",
        swept((BLAMED, 'max(each for each in host if each[3] != "step")[3]')),
        swept(
            ("= Counter()", "= Counter()\n    own = Counter()"),
            (BUSY, f"{INNER}\n        own[innermost[3]] += right - left\n        {BUSY}"),
            (BLAMED, "max(own, key=lambda name: own[name])"),
        ),
    ),
    wrong(
        "outermost_mark",
        "You blame the outermost mark. What it holds inside says more: blame the innermost, the shortest that runs.",
        swept((INNER, f'innermost = max({MARKS}, default=(0, 0, 0, "step"))')),
    ),
    wrong(
        "always_the_step",
        "The step itself is a host event that runs all the time. It is to blame only where nothing inside it runs.",
        swept((INNER, INNER.replace("min(", "max("))),
    ),
    wrong(
        "step_never_blamed",
        "Where no mark but the step runs, the idle time belongs to `step`: the marks of this loop leave something out.",
        swept((INNER, f"innermost = min({MARKS}, default=(0, 0, 0, None))")),
    ),
    wrong(
        "latest_start",
        "You take the mark that began last for the innermost. Two may begin at once: the shorter one is inside.",
        swept(
            (INNER, INNER.replace("min(each", "max((each").replace("each[2])", "each[2]), key=lambda each: each[1])"))
        ),
    ),
    wrong(
        "gap_to_one_mark",
        "You give a whole gap to one mark: the one that runs when it begins, at its middle or end, or for most of it. "
        "A gap may go on under other marks: each gets its own part.",
        gapped((UNDER, "right - left for left, right in gaps if start <= left < stop")),
        gapped((UNDER, "right - left for left, right in gaps if start <= (left + right) // 2 < stop")),
        gapped((UNDER, "right - left for left, right in gaps if start < right <= stop")),
        numbered(
            (
                "number, count in zip(*np.unique(owner[idle], return_counts=True), strict=True):",
                "left, right in np.flatnonzero(np.diff([False, *idle, False])).reshape(-1, 2):\n"
                "        number, count = np.bincount(owner[left:right]).argmax(), right - left",
            )
        ),
    ),
    wrong(
        "longest_gap",
        "You look for the mark under the longest gap. Many short gaps may come to more: add up by name.",
        gapped((UNDER, f"{UNDER.removesuffix('gaps')}sorted(gaps, key=lambda gap: gap[1] - gap[0])[-1:]")),
    ),
    wrong(
        "one_event",
        "You look for the single event that covers most. Events of one name belong together: add them up.",
        gapped(
            (
                'own[mark["name"]] = own.get(mark["name"], 0) + under',
                'own[mark["name"]] = max(own.get(mark["name"], 0), under)',
            )
        ),
    ),
    wrong(
        "ends_left_out",
        "You look only between device events. The device is idle, too, from the step's begin to the first of them, and "
        "from the last to the step's end.",
        gapped(AFTER_THE_FIRST),
        gapped(BEFORE_THE_LAST),
        gapped(AFTER_THE_FIRST, BEFORE_THE_LAST),
        swept((BUSY, f"{BETWEEN} and not any{BUSY.partition('any')[2]}")),
    ),
    wrong(
        "beyond_the_step",
        "You count gaps outside of the step. Of device events only the part within the step matters.",
        gapped(
            (
                "((max(begin, start), min(end, stop)) for start, stop in kernels if start < end and stop > begin)",
                "(kernels)",
            )
        ),
    ),
    wrong(
        "crossing_dropped",
        "You leave out device events that begin before the step or end after it. The device works in the part of them "
        "that lies within.",
        gapped(("if start < end and stop > begin", "if start >= begin and stop <= end")),
    ),
    wrong(
        "step_of_another_lane",
        "You take the first event named `step`, whatever its lane. A device event may have that name too.",
        swept(
            ('_, start, stop, name in host if name == "step"', 'start, stop, each in spans if each["name"] == "step"')
        ),
    ),
    wrong(
        "kernels_named_step_dropped",
        "You drop every event named `step`, on the device too. There it is a name like any other.",
        swept(('if each["lane"] == "device"]', 'if each["lane"] == "device" and each["name"] != "step"]')),
    ),
    wrong(
        "nested_name_counted_twice",
        "Where a mark lies in another of its name, you count the idle time under it for both. Each idle microsecond "
        "counts once.",
        gapped(("        if open_marks:", '        if open_marks and open_marks[-1][1] != mark["name"]:')),
    ),
    wrong(
        "all_that_run",
        "You give an idle microsecond to every mark that runs then, so the outer ones and the step get most. It "
        "belongs to the innermost alone.",
        swept(
            ("= Counter()", "= Counter()\n    total = 0"),
            (INNER, "total += right - left"),
            (
                "idle[innermost[3]] += right - left",
                "idle.update({n: right - left for _, start, stop, n in host if start <= left and right <= stop})",
            ),
            ("idle.total()", "total"),
        ),
    ),
    wrong(
        "order_taken_for_granted",
        "You take it that events come in the order in which they begin: sort them first.",
        gapped(("kernels = sorted(", "kernels = list(")),
        gapped(('marks.sort(key=lambda each: (each["start"], -each["duration"]))', "marks = list(marks)")),
    ),
    wrong(
        "last_end_forgotten",
        "A gap begins at the latest end of all device events so far. You take the end of the last one that began, "
        "which may lie inside another.",
        gapped(("reached = max(reached, stop)", "reached = stop")),
    ),
    wrong(
        "lanes_mixed",
        "You let the host's marks count as work of the device. The device is busy only under events of its own lane.",
        swept(('if each["lane"] == "device"]', 'if each["name"] != "step"]')),
    ),
    wrong(
        "idle_host",
        "You look for time in which the *host* does nothing. The question is when the device does nothing.",
        swept((BUSY, f"if not any{MARKS}:")),
    ),
    wrong(
        "ends_included",
        "An event ends where its duration does: at start + duration nothing of it runs any more. So one without length "
        "covers nothing.",
        numbered(('["duration"] - zero, 0)', '["duration"] - zero + 1, 0)')),
        swept((INNER, INNER.replace("right <= each[2]", "left <= each[2]"))),
    ),
    wrong(
        "no_device_event_forgotten",
        "There may be no device event at all: then the whole step is idle, and a mark to blame all the same. Look at "
        "the first of them only if there is one.",
        swept(("edges = sorted(", "first = device[0]\n    edges = sorted(")),
        swept(("edges = sorted(", "first = min(device)\n    edges = sorted(")),
        swept(("edges = sorted(", 'if not device:\n        return end - begin, "step"\n    edges = sorted(')),
    ),
    wrong(
        "never_idle_forgotten",
        "Where the device is never idle there is nothing to blame: return (0, None).",
        swept((" if idle else (0, None)", "")),
        swept(("(0, None)", '(0, "step")')),
        swept(("(0, None)", '(0, "")')),
    ),
)
