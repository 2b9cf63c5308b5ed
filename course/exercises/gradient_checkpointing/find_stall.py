"""`find_stall(events)`: how long the device is idle in a step, and which mark of the host to blame.

All times are whole microseconds, and the mark to blame leads by far. A case holds several traces, so that another way
to count gives another number or another name in one of them.
"""

from __future__ import annotations

from typing import Any

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs

Event = dict[str, Any]
Trace = list[Event]


def cases(rng: torch.Generator) -> list[Case]:
    """Traces in which one thing at a time is not as in the simplest one."""

    def near(length: int) -> int:
        """A length up to 5% longer."""
        return length + integer(rng, 0, length // 20)

    def trace(host: dict[str, tuple[int, int]], device: list[tuple[int, int]], step: int = 2_000) -> Trace:
        """Marks (their names up to a space) and kernels by begin and end, in the order in which they begin."""
        zero = integer(rng, 2**32, 2**40)
        spans = [("step", "host", (0, step))] if step else []
        spans += [(name.partition(" ")[0], "host", span) for name, span in host.items()]
        spans += [(f"kernel{at}", "device", span) for at, span in enumerate(device)]
        spans.sort(key=lambda each: (each[2][0], -each[2][1]))
        return [
            {"name": name, "lane": lane, "start": zero + start, "duration": stop - start}
            for name, lane, (start, stop) in spans
        ]

    a, b, c = near(400), near(200), near(100)
    loop = {"data": (5, a), "forward": (a, a + b), "backward": (a + b, a + b + c), "item": (a + b + c, 1_990)}
    waits = trace(loop, [(0, 12), (a + 10, a + b), (a + b, 2_000)])
    launches = {f"launch {at}": (500 + 200 * at, 620 + 200 * at) for at in range(5)}
    many = [(a, 510), *((600 + 200 * at, 710 + 200 * at) for at in range(4)), (1_405, 2_000)]
    two = {"log": (0, 300), "data 1": (300, 300 + b), "save": (320 + b, 400 + b), "data 2": (400 + b, 400 + 2 * b)}
    quick = {"data": (0, 490), **{f"launch {at}": (500 + 10 * at, 504 + 10 * at) for at in range(100)}}
    short = [(0, 500), *((504 + 10 * at, 510 + 10 * at) for at in range(100)), (1_500, 2_000)]
    inside = {"data": (5, 1_500), "read": (10, 400), "decode": (400, 400 + a), "augment": (1_300, 1_400)}
    at_once = {"data": (0, 900), "read": (0, a), "item": (900, 2_000)}
    bare = {"data": (0, b), "forward": (b + a, 2_000)}
    nested = {"data 1": (0, 1_000), "data 2": (100, 100 + c), "item": (1_000, 2_000)}
    twice = {"data 1": (0, a + b), "data 2": (0, 2 * a), "save": (2 * a, 1_800)}
    parts = {"data": (0, 2 * a), "forward 1": (2 * a, 1_300), "forward 2": (1_400, 1_900)}
    last = {"data": (0, b), "forward": (b, 1_400), "save": (1_500, 2_000)}
    beyond = {"item": (-3_000, -100), "data": (50, 50 + a), "forward": (50 + a, 1_900), "save": (2_000, 4_000)}
    streams = {"data": (100, 200 + c), "forward": (600, 1_000), "optimizer": (1_200, 1_250 + b)}
    over = [(0, 1_200), (80, 100), (90, 150 + c), (300, 1_100), (1_200 + b, 2_000), (1_250 + b, 1_300 + b)]
    points = {"data": (10, a), "mark": (20, 20), "forward": (a, a + b), "item": (a + b, 1_990)}
    traces: dict[str, dict[str, Trace]] = {
        "one gap or many": {
            "the loader waits": waits,
            "many short gaps": trace({"data": (0, a), **launches}, [(0, a - b - c), *many]),
            "kernels of 9": trace(loop, [(10 * at, 10 * at + 9) for at in range(200)]),
            "gaps of 4": trace(quick, short),
            "a gap under four marks": trace(two, [(0, 20), (400 + 2 * b, 1_200), (1_200, 2_000)]),
            "a smaller part, and a gap": trace(parts, [(1_300, 1_400), (1_900, 2_000)]),
        },
        "marks inside marks": {
            "the inner one": trace(inside, [(0, 300), (500 + a, 1_350), (1_350, 2_000)]),
            "both begin at once": trace(at_once, [(0, 20), (a + b, 2_000)]),
            "one in another of its name": trace(nested, [(0, 100 + c), (300 + c + b, 1_500 - c), (1_500, 2_000)]),
            "twice its name, and more of another": trace(twice, [(1_800, 2_000)]),
            "the step, where others nest": trace({"data": (0, 2 * a), "read": (0, 600)}, [(1_700, 2_000)]),
            "four levels": trace({"data": (0, 1_900), "read": (0, 2 * a), "decode": (0, 700)}, [(1_900, 2_000)]),
            "under none": trace(bare, [(0, b - 50), (a + b + 20, 2_000)]),
        },
        "ends of the step": {
            "at its begin": trace({"data": (0, a), "item": (a, 2_000)}, [(a + 30, 1_970)]),
            "at its end": trace(last, [(0, b), (b, 1_550)]),
            "kernels cross them": trace(beyond, [(-500, 80), (40 + a, 1_500), (1_560, 2_600), (3_500, 3_900)]),
            "kernels named step": [
                *({**each, "name": "step"} for each in waits if each["lane"] == "device"),
                *(each for each in waits if each["lane"] == "host"),
            ],
        },
        "two streams": {"overlaps": trace(streams, over), "a kernel twice": trace(loop, [(0, 30), (a, 2_000)] * 2)},
        "no length": {"marks and kernels": trace(points, [(0, 15), (20, 20), (a + 5, 2_000)])},
        "never or always idle": {
            "never": trace(loop, [(-10, 700), (700, 2_000)]),
            "always": trace({"data": (10, 1_900), "item": (1_900, 2_000)}, [(2_000, 2_500)]),
        },
        "one lane almost empty": {
            "no device event": trace({"data": (0, 1_200 + a)}, []),
            "no mark but the step": trace({}, [(a, 1_900)]),
        },
    }
    mixed = {
        "mixed": [waits[at] for at in torch.randperm(len(waits), generator=rng).tolist()],
        "backwards": traces["marks inside marks"]["both begin at once"][::-1],
        "the last kernel first": sorted(waits, key=lambda each: (each["lane"] == "host", -int(each["start"]))),
    }
    return [Case(name=name, inputs={"traces": dict(each)}) for name, each in {**traces, "any order": mixed}.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each trace."""
    return observe({label: outputs(answer(each), "idle", "name") for label, each in inputs["traces"].items()})


EXERCISE = Exercise(
    id="gradient_checkpointing.find_stall",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "idle_time",
            "The microseconds of the step in which no device event runs, in one gap or in many.",
            keys=("*/idle",),
            roundings=0,
            cases=("one gap or many",),
        ),
        Property(
            "blame",
            "Each idle microsecond belongs to the mark that runs then. Add up by name: many short gaps may come to "
            "more than a long one, and a long mark under which the device works costs it nothing.",
            points=2,
            keys=("*/name",),
            cases=("one gap or many",),
            needs=("idle_time",),
        ),
        Property(
            "innermost_mark",
            "Of the host events that run, the innermost is the one to blame: the shortest. Where only the step itself "
            "runs, that is `step`.",
            points=2,
            roundings=0,
            cases=("marks inside marks",),
        ),
        Property(
            "ends_of_the_step",
            "Idle time before the first and after the last device event of the step counts. What lies outside of the "
            "step does not, and a device event may cross its ends.",
            roundings=0,
            cases=("ends of the step",),
        ),
        Property(
            "two_streams",
            "Device events may overlap: the device is idle only where none of them runs.",
            roundings=0,
            cases=("two streams",),
        ),
        Property(
            "any_order",
            "The events are in no order: begin with the ones that you need sorted.",
            roundings=0,
            cases=("any order",),
        ),
        Property(
            "no_length",
            "An event of duration 0 covers nothing, and two events that touch leave no gap.",
            roundings=0,
            cases=("no length",),
        ),
        Property(
            "never_or_always_idle",
            "Where the device is never idle return (0, None). Where it never works, the whole step is idle.",
            roundings=0,
            cases=("never or always idle", "one lane almost empty"),
        ),
    ),
    hints=(
        "In which stretches of the step does no device event run? What ran on the host meanwhile?",
        "Cut the step at every start and every end of an event. Between two neighbouring cuts nothing changes, so one "
        "look tells whether the device works, and which host events run.",
        "For each stretch without a device event, take the shortest of the host events that cover it, and add the "
        "stretch's length to a counter under its name. The sum of the counter and its largest entry are the answer.",
    ),
    promises={
        "in any order": ("any_order",),
        "whole microseconds": ("idle_time",),
        "0 or more": ("no_length",),
        'One host event is named "step"': ("ends_of_the_step",),
        "Device events may have any name": ("ends_of_the_step",),
        "may overlap": ("two_streams",),
        "or cross its ends": ("ends_of_the_step",),
        "There may be none": ("one lane almost empty",),
        "in which no device event runs": ("idle_time",),
        "also before the first and after the last device event": ("ends_of_the_step",),
        "the innermost host event that runs then": ("innermost_mark",),
        "added up by name": ("blame",),
        "None if the device is never idle": ("never_or_always_idle",),
    },
)
