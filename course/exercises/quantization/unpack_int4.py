"""`unpack_int4(packed, count)`: codes of 4 bits out of bytes, judged bit for bit."""

from __future__ import annotations

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe
from course.performing.forms import offset, strided

EVEN, ALL, ODD, ONE, TWO, NONE = "an even count", "all bytes", "an odd count", "one code", "one byte", "no codes"


def cases(rng: torch.Generator) -> list[Case]:
    """All 256 bytes; odd counts whose last byte has bits that are no code.

    All but the shortest have codes of both signs in both halves, and 7 and -8, where signs begin and end.
    """

    def byte(count: int) -> torch.Tensor:
        drawn = torch.randint(256, (count,), generator=rng).to(torch.uint8)
        drawn[:1], drawn[1:2] = 93, 135  # of [-3, 5] and [7, -8]
        drawn[-1:] = 16 * integer(rng, 1, 16) + integer(rng, 8, 16)
        return drawn

    n = integer(rng, 4, 9)
    some = {
        EVEN: (byte(n), 2 * n),
        ALL: (torch.randperm(256, generator=rng).to(torch.uint8), 512),
        ODD: (byte(n + 1), 2 * n + 1),
        ONE: (byte(1), 1),
        TWO: (byte(1), 2),
        NONE: (byte(0), 0),
    }
    return [Case(name=name, inputs={"packed": packed, "count": count}) for name, (packed, count) in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The codes and their dtype."""
    result = answer(inputs["packed"], inputs["count"])
    return observe({"codes": result, "dtype": str(getattr(result, "dtype", type(result).__name__))})


EXERCISE = Exercise(
    id="quantization.unpack_int4",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "codes",
            "Of each byte first the lower four bits, then the upper four. Bit 3 of such a number counts -8: 15 is -1.",
            points=3,
            keys=("codes",),
            roundings=0,
            cases=(EVEN, ALL, TWO),
        ),
        Property(
            "count",
            "No more codes than `count`: with an odd one the upper bits of the last byte are no code.",
            keys=("codes",),
            roundings=0,
            cases=(ODD, ONE, NONE),
        ),
        Property(
            "int8",
            "Codes are in int8, also where there are none.",
            keys=("dtype",),
            needs=("codes",),
        ),
    ),
    hints=(
        "What do `>> 4` of 0b10110000 in uint8 and in int8 give?",
        "Move the lower four bits up first, in int8, so that their sign is where the sign of an int8 is.",
        "Lower codes: << 4, then >> 4. Upper codes: >> 4. Stack them so that those of a byte are neighbours.",
    ),
    keeps=("packed",),
    forms=(strided("packed"), offset("packed", of=ODD)),
    promises={
        "any bytes, also none": ("codes", "count"),
        "it may be a view": ("views that are not contiguous",),
        "twice the number of bytes, or one less": ("codes", "count"),
        "int8 (count,)": ("int8", "count"),
        "packed is not changed": ("arguments_unchanged",),
    },
)
