"""`mend_the_notes()`: find the wrong line in each of three short programs, and mend it.

A mended program is judged by the path of its parameter on secret numbers, so that any spelling of a cure is right.
Its text is code of the student's, and is executed here, where the answer itself is.
"""

from __future__ import annotations

from typing import Any

import torch

from course.lessons.experiments import lecture_notes, programs
from course.performing.draws import integer, normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

LINES = "the numbers of the lines"
ADAM = ("usual eps", "large eps")
GROUPS = (
    "a smaller last group",
    "groups that come out even",
    "fewer batches than k",
    "a last group of one batch",
    "a single batch",
)


def cases(rng: torch.Generator) -> list[Case]:
    """Each program on numbers of its own, Adam's with an eps that matters too; and the line numbers alone.

    Gradients have sizes from 1/2 to 3/2, so that no second moment is near 0.
    """

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=rng, dtype=torch.float64))

    def adam(name: str, eps: float) -> dict[str, Any]:
        signs = torch.randint(0, 2, (7, 4), generator=rng) * 2 - 1
        grads = signs * (torch.rand(7, 4, generator=rng) + 0.5)
        betas = {"beta1": uniform(0.6, 0.9), "beta2": uniform(0.9, 0.99)}
        return {"program": name, "p": normal(rng, 4), "grads": grads, "lr": 0.1, **betas, "eps": eps}

    def accumulate(count: int, k: int) -> dict[str, Any]:
        batches = torch.rand(count, 2, 3, generator=rng) + torch.arange(count)[:, None, None]
        return {
            "program": "accumulate",
            "p": normal(rng, 3),
            "batches": batches,
            "lr": 0.3,
            "k": k,
            "epochs": 2,
        }

    drawn: dict[str, dict[str, Any]] = {LINES: {"program": ""}}
    drawn |= {
        f"{name}, {words}": adam(name, eps)
        for name in ("adam", "adam_in_place")
        for words, eps in zip(ADAM, (1e-8, uniform(0.2, 0.5)), strict=True)
    }
    k = integer(rng, 5, 8)
    counts = (3 * k - 1, 3 * k, 2, 2 * k + 1, 1)  # three even groups: Python's round makes 2 of 2.5, and 4 of 3.5
    drawn |= {name: accumulate(count, k) for name, count in zip(GROUPS, counts, strict=True)}
    return [Case(name=name, inputs=inputs) for name, inputs in drawn.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """Puts the line into the program and runs it: where it does not end, the case's time limit ends it."""
    inputs = dict(inputs)
    name, found = inputs.pop("program"), answer()
    if not name:
        return observe({each: programs.replacement(found, each)[0] for each in lecture_notes.PROGRAMS})
    program = lecture_notes.PROGRAMS.mended(name, *programs.replacement(found, name))
    return observe({"path": lecture_notes.run(name, program, **inputs)})


def _the_faulty_ones(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes; it does not tell which line is the right one."""
    others = [f"line {got[name]} of {name}" for name, line in expected.items() if got[name] != line]
    return f"{', '.join(others)} does what it should" if others else None


EXERCISE = Exercise(
    id="optimizers.mend_the_notes",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "adam_mended",
            "`adam` does not yet take the steps of section 7. Work out m, v and the step by hand for the first "
            "gradient, 0.01, and compare with what each line gives.",
            points=2,
            cases=tuple(f"adam, {each}" for each in ADAM),
        ),
        Property(
            "adam_in_place_mended",
            "`adam_in_place` does not yet take the steps of section 7. With equal gradients each step must be one "
            "rate long, from the first to the last.",
            points=2,
            cases=tuple(f"adam_in_place, {each}" for each in ADAM),
        ),
        Property(
            "accumulate_mended",
            "`accumulate` must take a step for each group of k batches, and one for those that are left over, if there "
            "are any. Try it with 10 or 9 batches in groups of 4, with 6 in groups of 3, and with 2 in groups of 5.",
            points=2,
            cases=GROUPS,
        ),
        Property(
            "only_the_faulty_lines",
            "The line that you replaced in at least one program computes what its names say: what came into it was "
            "wrong. Go back to the first line whose result is not what the formula says.",
            holds=_the_faulty_ones,
            cases=(LINES,),
        ),
    ),
    hints=(
        "Take a pencil: for the first gradient, or for two batches in groups of 5, what should each name hold after "
        "each line, and what does it hold?",
        "A root that gives nan was handed a negative number. A step that is too long at the start, and less so later, "
        "lacks something. A step that is never taken belongs to a loop that ends too early.",
        "In the first, find the line where v becomes negative, and look at its other half as well. In the second, look "
        "for names that are set and never read. In the third, count how often each loop runs, and round the other way.",
    ),
    promises={
        'for "adam", "adam_in_place" and "accumulate" the number': ("only_the_faulty_lines", LINES),
        "Its indentation is kept, and may be left out": ("adam_mended", "adam_in_place_mended", "accumulate_mended"),
        "does what it should on any numbers": ("adam_mended", "adam_in_place_mended", "accumulate_mended"),
        "any spelling of it is right": ("adam_mended", "adam_in_place_mended", "accumulate_mended"),
        "where the groups come out even": ("groups that come out even",),
        "fewer batches than k": ("fewer batches than k", "a single batch"),
    },
    seconds=2.0,
)
