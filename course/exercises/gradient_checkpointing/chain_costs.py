"""`chain_costs(sizes, cuts)`: evaluations and peak bytes of a chain with checkpoints, before anything runs.

The two numbers are judged apart. The peak is judged where it lies: in the only segment, in the last, or in another.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs
from course.performing.refusals import all_refused, refused

ONE, LAST, ELSEWHERE = "one segment", "the peak in the last segment", "the peak in another"
SHORT, LARGE, ASKED = "short segments", "sizes above 2**53", "what is refused"
Chain = dict[str, Any]


def cases(rng: torch.Generator) -> list[Case]:
    """Every case asks about several chains: sizes and cuts are drawn, large inputs put where the peak is to be."""
    draw = partial(integer, rng)

    def chain(cuts: list[int], n: int, **large: int) -> Chain:
        """Inputs of 3 to 9 bytes, and about 200 where a word says so: `at` a layer, or at the `end`, n - 1."""
        sizes = [draw(3, 10) for _ in range(n)]
        for place in large.values():
            sizes[place] += 200 + draw(0, 20)
        return {"sizes": sizes, "cuts": cuts}

    first, second = draw(3, 6), draw(8, 11)
    cuts, n = [0, first, second], second + draw(3, 6)
    drawn = {
        ONE: {"one layer": chain([0], 1), "few layers": chain([0], draw(2, 5)), "many": chain([0], draw(20, 40))},
        LAST: {
            "a large input at its end": chain(cuts, n, at=n - 1),
            "a large checkpoint": chain(cuts, n, at=second),
            "even lengths": chain([0, 4, 8], 12, at=10),
            "a last segment of one layer": chain([0, first, n - 1], n, at=n - 1),
            "large everywhere": chain(cuts, n, a=0, b=first, c=second, d=n - 1),
        },
        ELSEWHERE: {
            "in the first": chain(cuts, n, at=1),
            "in the first, at its end": chain(cuts, n, at=first - 1),
            "in the middle": chain(cuts, n, at=first + 1),
            "in the middle, at its end": chain(cuts, n, at=second - 1),
            "before a large checkpoint": chain(cuts, n, a=1, b=2, c=second),
            "behind more checkpoints": chain(cuts, n, a=0, b=0, c=1, d=first + 1, e=first + 1),
            "before a ragged tail": chain([0, 5, 10], 11, at=7),
        },
        SHORT: {
            "all inputs kept": chain([*range(n)], n),
            "neighbours": chain([0, 1, 2, first + 2], n, at=first),
            "neighbours at the end": chain([0, n - 2, n - 1], n, at=n - 3),
            "two layers": chain([0, 1], 2),
        },
        LARGE: {
            label: {"sizes": [2**bits + draw(1, 2**50) * 2 + 1 for _ in range(n)], "cuts": cuts}
            for label, bits in (("whole", 54), ("whole, in sum above 2**64", 62))
        },
        ASKED: {"chain": chain(cuts, n)},
    }
    return [Case(name=name, inputs={**asked}) for name, asked in drawn.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each chain, and both lists as text afterwards; or the calls that are to be refused.

    Text tells 3 from 3.0 and from a number of NumPy's, and has all digits.
    """
    if [*inputs] == ["chain"]:
        sizes, n = [*inputs["chain"]["sizes"]], len(inputs["chain"]["sizes"])
        given = _nonsense(n)
        came = refused({words: partial(answer, sizes, cuts) for words, cuts in given.items()})
        return observe({"refused": {**came, "left": {**_as_text({**given, "sizes": sizes})}}})
    values: dict[str, Any] = {}
    for label, chain in inputs.items():
        sizes, cuts = [*chain["sizes"]], [*chain["cuts"]]
        found = outputs(answer(sizes, cuts), "evaluations", "peak")
        values[label] = _as_text(found) if label.startswith("whole") else found
        values[label]["left"] = _as_text({"sizes": sizes, "cuts": cuts})
    return observe(values)


def _as_text(values: dict[str, Any]) -> dict[str, str]:
    return {name: repr(value)[:1000] for name, value in values.items()}


def _nonsense(n: int) -> dict[str, list[int]]:
    return {
        "no cuts": [],
        "a first cut of 1": [1, 4],
        "a single cut of 1": [1],
        "a single cut of n": [n],
        "a first cut of -1": [-1, 4],
        "a cut of -1 before 0": [-1, 0, 4],
        "the same cut twice": [0, 4, 4],
        "cuts that decrease": [0, 4, 2],
        "cuts that decrease at the end": [0, 2, 5, 3],
        "a cut of n": [0, 4, n],
        "a cut beyond n": [0, n + 2],
    }


USUAL = (ONE, LAST, ELSEWHERE, SHORT)

EXERCISE = Exercise(
    id="gradient_checkpointing.chain_costs",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "evaluations",
            "The forward pass evaluates every layer once. Backward runs a segment again, but not its last layer, whose "
            "output nobody needs; of the last segment it has all inputs already.",
            points=2,
            keys=("*/evaluations",),
            cases=USUAL,
        ),
        Property(
            "one_segment",
            "With one segment nothing is thrown away: the peak is the sum of all inputs. So it is for one layer.",
            keys=("*/peak",),
            cases=(ONE,),
        ),
        Property(
            "peak_in_the_last_segment",
            "When backward begins, all checkpoints are there, and the other inputs of the last segment. Each input "
            "counts once.",
            keys=("*/peak",),
            cases=(LAST, SHORT),
        ),
        Property(
            "peak_anywhere",
            "Any segment may be the one. While backward works in it, its own inputs and the checkpoints before it are "
            "there; what came after it has been freed.",
            points=2,
            keys=("*/peak",),
            cases=(ELSEWHERE,),
        ),
        Property(
            "whole_numbers",
            "Both numbers are ints of Python's, with all their digits: a float has 53 bits, NumPy's and torch's whole "
            "numbers have 64 at most.",
            keys=("whole*/evaluations", "whole*/peak"),
            cases=(LARGE,),
            needs=("evaluations", "peak_in_the_last_segment", "peak_anywhere"),
        ),
        Property(
            "refusals",
            "Raise a ValueError where cuts are empty, do not begin with 0, do not increase, or end at n or beyond.",
            holds=all_refused,
            cases=(ASKED,),
            needs=("evaluations",),
        ),
        Property(
            "lists_unchanged",
            "A list was changed in place (append, pop, sort), perhaps in a call that was refused. The caller still "
            "needs it: make a new one, [*cuts, n].",
            keys=("*left/*",),
            cases=(*USUAL, ASKED),
            needs=("evaluations",),
        ),
    ),
    hints=(
        "Which inputs are there when backward begins? Which when it has finished the last segment and run the one "
        "before it again?",
        "Go through the segments from the first to the last: pairwise([*cuts, n]) gives where each begins and ends.",
        "Keep a running sum of checkpoints. In each segment add the sizes of its other inputs to it, and take the "
        "largest of these sums; count its length less 1, unless it is the last.",
    ),
    promises={
        "ints of at least 1, one for each layer; n of at least 1": ("one_segment", "peak_anywhere"),
        "0 first, then increasing, all below n": ("evaluations", SHORT),
        "Neither list is changed": ("lists_unchanged",),
        "evaluates all n layers": ("evaluations",),
        "in the last segment it keeps every layer's input": ("peak_in_the_last_segment", "one_segment"),
        "It runs any but the last again": ("evaluations", "peak_anywhere"),
        "its last layer is not evaluated again": ("evaluations",),
        "freed, with its checkpoint, before another segment is run again": ("peak_anywhere",),
        "(evaluations, peak)": ("evaluations", "peak_anywhere"),
        "ints, exact at any size": ("whole_numbers",),
        "Gradients, and inputs that are not kept, do not count": ("one_segment", "peak_anywhere"),
        "empty cuts": ("refusals",),
        "a first cut that is not 0": ("refusals",),
        "cuts that do not increase": ("refusals",),
        "a cut of n or more": ("refusals",),
    },
)
