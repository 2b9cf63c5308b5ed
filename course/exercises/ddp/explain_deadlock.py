"""`explain_deadlock(trace)`: which rank's program is at fault, at which call, and what is wrong with it.

Traces come from programs whose calls all differ (three equal ones apart), so that one fault explains them in one way.
Each holds a message around the ring and a root, so that peers must be compared as distances and roots as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch

from course.lessons.experiments.hanging import WAIT, Call, call, got
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs
from course.tree import Tree

Trace = list[list[Call]]
STEPS, CALLS = 3, 7  # of a program, and of a step, its `wait` included
MISSING, EXTRA, ORDER, ARGUMENT, TWO = ("a missing call", "an extra call", "two swapped", "an argument", "2 ranks")
LATER, EQUAL, TURNS = "faults that are seen later", "three equal calls", "two calls in turns"


def cases(rng: torch.Generator) -> list[Case]:
    """Each kind of fault on the first and on another rank, in the middle of a step and where one ends."""

    def sizes() -> Iterator[int]:
        return iter((torch.randperm(900, generator=rng) + 2).tolist())

    def programs(
        ranks: int, size: Iterator[int], *, equal: bool = False, around: bool = False, turns: bool = False
    ) -> Trace:
        """What every rank should do. equal: three equal calls in each step, in the place of three different ones;
        around: the first and the last of the three are; turns: with the one after them they are a b a b.
        """
        found: Trace = [[] for _ in range(ranks)]
        for _ in range(STEPS):
            far, to, root = integer(rng, 1, ranks), integer(rng, 0, ranks), integer(rng, 0, ranks)
            shapes = [[next(size)] * integer(rng, 1, 3) for _ in range(5)]
            reduced = call("all_reduce", shapes[1], op="mean")
            three = [reduced, call("reduce", shapes[2], peer=to, op="mean"), call("broadcast", shapes[3], peer=root)]
            if around:
                three = [reduced, call("all_reduce", shapes[2], op="mean"), reduced]
            if turns:
                three = [reduced, call("all_gather", shapes[4]), reduced]
            for rank, calls in enumerate(found):
                calls += [
                    call("send", shapes[0], peer=(rank + far) % ranks),
                    call("recv", shapes[0], peer=(rank - far) % ranks),
                    *([reduced] * 3 if equal else three),
                    call("all_gather", shapes[4]),
                    WAIT,
                ]
        return found

    def trace(ranks: int, rank: int, fault: str, at: int, step: int = 1, **like: bool) -> Trace:
        """What is seen where `rank` makes a mistake at call `at` of a step."""
        size = sizes()
        found = programs(ranks, size, **like)
        calls, place = found[rank], step * CALLS + at
        here = dict(calls[place])
        if fault == "missing":
            del calls[place]
        elif fault == "extra":
            calls.insert(place, here if like.get("equal") else call("all_reduce", [next(size)], op="sum"))
        elif fault == "again":
            calls.insert(place, dict(calls[place - 1]))
        elif fault == "ahead":
            calls.insert(place, dict(calls[place + 1]))
        elif fault == "order":
            calls[place : place + 2] = calls[place : place + 2][::-1]
        else:
            others = {"op": "max", "shape": [next(size), 2], "peer": (rank + 1) % ranks}
            if here["verb"] in ("send", "recv"):
                others["peer"] = next(each for each in range(ranks) if each not in (rank, here["peer"]))
            elif here["peer"] is not None:
                others["peer"] = (here["peer"] + 1) % ranks
            here[fault] = others[fault]
            calls[place] = here
        return got(found)

    def last(ranks: int) -> int:
        return integer(rng, 1, ranks)

    drawn: dict[str, dict[str, Trace]] = {
        MISSING: {
            "a reduction": trace(4, last(4), "missing", 2),
            "on rank 0": trace(3, 0, "missing", 3),
            "in the first step": trace(5, last(5), "missing", 3, step=0),
            "a message": trace(4, last(4), "missing", 0),
            "one that comes again": trace(4, last(4), "missing", 2, around=True),
        },
        EXTRA: {
            "a reduction": trace(4, last(4), "extra", 3),
            "on rank 0": trace(3, 0, "extra", 4),
            "the same again": trace(4, last(4), "again", 3),
            "in the last step": trace(5, last(5), "extra", 2, step=2),
            "the next one ahead": trace(4, last(4), "ahead", 2),
        },
        ORDER: {
            "reductions": trace(4, last(4), "order", 2),
            "on rank 0": trace(3, 0, "order", 3),
            "the last two": trace(5, last(5), "order", 4, step=2),
            "two of one verb": trace(4, last(4), "order", 2, around=True),
        },
        ARGUMENT: {
            "a send": trace(4, last(4), "peer", 0),
            "a receive": trace(5, 0, "peer", 1),
            "a root": trace(4, last(4), "peer", 3),
            "another root, on rank 0": trace(3, 0, "peer", 4),
            "a shape": trace(4, last(4), "shape", 5),
            "a message's shape": trace(3, last(3), "shape", 0),
            "an op": trace(4, 0, "op", 2),
            "an op beside a root": trace(4, last(4), "op", 3),
            "a shape beside a root": trace(4, last(4), "shape", 4),
            "a received shape": trace(4, last(4), "shape", 1),
        },
        LATER: {
            "missing at the end of a step": trace(4, last(4), "missing", 5),
            "missing at the end": trace(3, 0, "missing", 5, step=2),
            "extra at the end of a step": trace(4, last(4), "extra", 6),
            "extra at the end": trace(3, 0, "extra", 6, step=2),
        },
        EQUAL: {
            "missing": trace(4, last(4), "missing", integer(rng, 2, 5), equal=True),
            "extra": trace(4, last(4), "extra", integer(rng, 2, 5), equal=True),
        },
        TURNS: {
            "missing": trace(4, last(4), "missing", 2, turns=True),
            "extra": trace(4, last(4), "ahead", 2, turns=True),
        },
        TWO: {
            "missing": trace(2, 1, "missing", 2),
            "extra": trace(2, 1, "extra", 3),
            "a root": trace(2, 1, "peer", 4),
            "two swapped": trace(2, 1, "order", 2),
            "a shape": trace(2, 1, "shape", 5),
            "an op": trace(2, 1, "op", 2),
        },
    }
    for words, fault in {MISSING: "missing", EXTRA: "extra", ARGUMENT: "shape"}.items():
        drawn[words]["the first call"] = trace(4, last(4), fault, 0, step=0)
    return [Case(name=name, inputs={"traces": cast(Tree, each)}) for name, each in drawn.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each trace."""
    parts = ("rank", "index", "reason")
    return observe({label: outputs(answer(each), *parts) for label, each in inputs["traces"].items()})


ONE_FAULT = (MISSING, EXTRA, ORDER, ARGUMENT)

EXERCISE = Exercise(
    id="ddp.explain_deadlock",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "rank",
            "The rank at fault is the one whose calls are not those of the others. It need not be the one that waits "
            "first, nor the one that got least far. Compare peers as distances on the ring, and roots as they are.",
            points=3,
            keys=("*/rank",),
            cases=ONE_FAULT,
        ),
        Property(
            "index",
            "The place, from 0, of the first call in the list of the rank at fault that is not what the others called "
            "there.",
            keys=("*/index",),
            roundings=0,
            cases=ONE_FAULT,
            needs=("rank",),
        ),
        Property(
            "calls_left_out_or_added",
            "Which of both lists must you move by one place, from the first difference on, so that they agree? Two "
            "calls that are swapped agree again after them, without a move: two that look swapped may be a call left "
            "out of three, a b a. Where two calls take turns, a b a b, only the end of the lists tells.",
            points=2,
            keys=("*/reason",),
            cases=(MISSING, EXTRA, ORDER, TURNS),
            needs=("rank",),
        ),
        Property(
            "arguments",
            "Where verb and place are right, one argument differs. A message has a peer, a broadcast or a reduce a "
            "root.",
            points=2,
            keys=("*/reason",),
            cases=(ARGUMENT,),
            needs=("rank",),
        ),
        Property(
            "seen_later",
            "The rank at fault may get further than the others, into the next step or to its end, and its list may be "
            "the longer one although a call is missing. A list's length says nothing: compare what follows.",
            points=2,
            roundings=0,
            cases=(LATER,),
            needs=("rank",),
        ),
        Property(
            "equal_calls",
            "With three equal calls in a row nobody can say which one is missing: the first place at which the lists "
            "differ is after the ones that are there.",
            roundings=0,
            cases=(EQUAL,),
            needs=("rank",),
        ),
        Property(
            "two_ranks",
            "Of two ranks none has a majority: rank 0 is right.",
            roundings=0,
            cases=(TWO,),
            needs=("rank",),
        ),
    ),
    hints=(
        "Which rank would you ask first: the one that waits, or the one for which it waits? What do you compare a "
        "rank's calls with?",
        "Rewrite each list as rank 0 would have called it, and go through all lists place by place until one of them "
        "differs. Then hold the rest of that list against the rest of another one.",
        "Let a and b be the rests, from the first difference on. Swapped: the first two of a are those of b turned "
        "around, and the others are alike. Missing: a is b without its first. Extra: b is a without its first. All as "
        "far as both go. Else look for the argument that differs.",
    ),
    promises={
        "at least 2 ranks": ("two_ranks",),
        "as far as it got": ("seen_later",),
        "where a send goes to or a recv comes from": ("arguments", "rank"),
        "the root of a broadcast or reduce": ("arguments", "rank"),
        "None where a verb has none": ("rank",),
        "until all of its calls before are over": ("seen_later",),
        'the program has ended, and "returned" stands there': ("seen_later",),
        "the same distance on all ranks": ("rank",),
        "One rank makes a single mistake": ("rank",),
        "its calls differ from those of the others, which agree as far as they go": ("rank", "seen_later", TURNS),
        "Of two ranks, rank 0 is right": ("two_ranks",),
        "the first call, counted from 0, that is not what the others call at that place": ("index", "equal_calls"),
        '"missing call"': ("calls_left_out_or_added",),
        '"wrong peer"': ("arguments",),
    },
)
