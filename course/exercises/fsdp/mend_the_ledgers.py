"""`mend_the_ledgers()`: find the line by which each of three short programs holds too much, and mend it.

A mended program is judged by what it returns, on secret numbers, and by the most bytes that a rank holds at once. Its
text is code of the student's, and is executed on the ranks, where the answer itself is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.lessons.experiments import ledger_runs, programs
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.tree import Leaf

HELD = {name: f"what `{name}` holds" for name in ledger_runs.PROGRAMS}
OTHERS = {name: f"`{name}` on 2 ranks" for name in ledger_runs.PROGRAMS}
COPIES = 4096  # in grading: a unit has 6 MiB
SLACK = {"masters": 1.25, "units": 1.4, "losses": 1.25}  # times our bytes; two units are 1.33 of one, three are 1.5
MOST = {"masters": 70, "units": 50, "losses": 40}  # MiB in grading: right ones take up to 62, 48, 32, others 76, 54, 44
UNITS = {**dict.fromkeys(HELD, ledger_runs.UNITS), "masters": 10}  # more: then one whole is little


def cases(rng: torch.Generator) -> list[Case]:
    """Each program on 3 ranks, where its memory is measured, and on 2 with other units."""

    def case(name: str, words: str, ranks: int, units: int) -> Case:
        return Case(
            name=words, inputs={"program": name, "ranks": ranks, "units": units, "seed": integer(rng, 0, 2**31)}
        )

    measured = [case(name, words, ledger_runs.RANKS, UNITS[name]) for name, words in HELD.items()]
    return measured + [case(name, words, 2, 4) for name, words in OTHERS.items()]


def split(inputs: Inputs) -> list[Inputs]:
    """The same for each rank: a seed, and how large its tensors are."""
    given = {name: inputs[name] for name in ("program", "units", "seed")}
    return [{**given, "copies": COPIES if inputs.get("outside") else 1} for _ in range(inputs["ranks"])]


def probe(answer: Answer, comm: Any, inputs: Inputs) -> Observation:
    """Puts the line into the program and runs it."""
    name = inputs["program"]
    program = ledger_runs.PROGRAMS.mended(name, *programs.replacement(answer(), name))
    given = {each: inputs[each] for each in ("seed", "units", "copies")}
    return observe({"found": [*ledger_runs.run(comm, name, program, **given)]})


def _held(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether no rank holds more than it must, at once; counted or, in grading, measured from outside."""
    name = inputs["program"]
    if "peak_bytes" in got:
        peak, most = _most(got["peak_bytes"]), MOST[name] * 2**20
    else:
        peak, most = _most(got["live_bytes"]), int(SLACK[name] * _most(expected["live_bytes"]))
    return None if peak <= most else f"a rank of `{name}` holds {peak:,} bytes at once, where {most:,} are enough"


def _most(bytes_: Leaf) -> int:
    """Of any rank. Raises TypeError where nothing was measured."""
    if not isinstance(bytes_, Tensor):
        raise TypeError("no bytes were measured")
    return int(bytes_.max())


def _mended(name: str, hint: str) -> tuple[Property, Property]:
    """That it returns what it must, and that it holds no more than it must."""
    return (
        Property(
            f"{name}_right",
            f"Your line must fit into `{name}`, one line of Python for one of its lines, and the program then return "
            "what it returns now: only what it holds is at fault.",
            roundings=1024,
            cases=(HELD[name], OTHERS[name]),
        ),
        Property(
            f"{name}_held",
            hint,
            points=2,
            evidence="ledger",
            holds=_held,
            beside=("*/found/*",),
            cases=(HELD[name],),
            needs=(f"{name}_right",),
        ),
    )


EXERCISE = Exercise(
    id="fsdp.mend_the_ledgers",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("all_gather",),
    measured=tuple(HELD.values()),
    properties=(
        *_mended("masters", "How long is the tensor that a chunk of it keeps alive? A view shares all of its memory."),
        *_mended("units", "Which line frees a full unit, and when? Nothing needs it after the line that computes."),
        *_mended("losses", "`del w` removes a name. Who else holds the tensor, although nobody calls backward?"),
    ),
    hints=(
        "For each large tensor: which names, lists, views and graphs lead to it, and when is the last of them gone?",
        "`masters` is high from its beginning: look at what it appends. `units` rises with every unit, and "
        "falls at the end. `losses` rises with every loss, although each is a single number.",
        "In `masters` append memory of its own, in `units` take a unit out of the list when you use it, and in "
        "`losses` append a number without its graph.",
    ),
    promises={
        'for "masters", "units" and "losses" the number': ("masters_right", "units_right", "losses_right"),
        "Its indentation is kept, and may be left out": ("masters_right", "units_right", "losses_right"),
        "by what each rank returns": ("masters_right", "units_right", "losses_right"),
        "the most bytes that a rank holds at once, which may be a quarter above ours, and in `units` two fifths": (
            "masters_held",
            "units_held",
            "losses_held",
        ),
        "any spelling of a cure is right": ("masters_held", "units_held", "losses_held"),
        "the master copy of its own shard, in float64": ("masters_right", "masters_held"),
        "one unit, or two": ("units_held",),
        "no graph": ("losses_held",),
    },
)
