"""`pack_int4(codes)`: two codes of 4 bits in a byte, judged bit for bit."""

from __future__ import annotations

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe
from course.performing.forms import cut, offset, strided, transposed

EVEN, ALL, ODD, MATRIX, ODD_ROWS, THREE, ONE, SINGLE, NONE = (
    "an even number of codes",
    "all pairs of codes",
    "an odd number of codes",
    "a matrix",
    "rows of an odd length",
    "three dimensions",
    "one negative code",
    "one code without dimensions",
    "no codes",
)


def cases(rng: torch.Generator) -> list[Case]:
    """Every pair of codes. All but the shortest begin with both signs in both halves, and end with a negative code.

    So signs may leak in all of them, and a byte is above 127.
    """
    every = torch.arange(-8, 8, dtype=torch.int8)

    def codes(*shape: int) -> torch.Tensor:
        drawn = torch.randint(-8, 8, shape, generator=rng).to(torch.int8)
        drawn.view(-1)[:4] = torch.tensor([-3, 5, integer(rng, 0, 8), -integer(rng, 1, 9)])
        drawn.view(-1)[-1] = -integer(rng, 1, 8)
        return drawn

    some = {
        EVEN: codes(8),
        ALL: torch.cartesian_prod(every, every)[torch.randperm(256, generator=rng)].flatten(),
        ODD: codes(2 * integer(rng, 3, 6) + 1),
        MATRIX: codes(4, 6),
        ODD_ROWS: codes(3, 5),
        THREE: codes(2, 3, 3),
        ONE: torch.tensor([-integer(rng, 1, 9)], dtype=torch.int8),
        SINGLE: torch.tensor(-integer(rng, 1, 9), dtype=torch.int8),
        NONE: torch.zeros(3, 0, dtype=torch.int8),
    }
    return [Case(name=name, inputs={"codes": each}) for name, each in some.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The bytes and their dtype."""
    result = answer(inputs["codes"])
    return observe({"bytes": result, "dtype": str(getattr(result, "dtype", type(result).__name__))})


EXERCISE = Exercise(
    id="quantization.pack_int4",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "bytes",
            "The lower four bits of a code are `code & 15`. The second of two codes is moved up by four bits, and `|` "
            "puts both together.",
            points=3,
            keys=("bytes",),
            roundings=0,
            cases=(EVEN, ALL),
        ),
        Property(
            "odd_length",
            "Where one code is missing, the upper four bits of the last byte are 0.",
            keys=("bytes",),
            roundings=0,
            cases=(ODD, ONE),
        ),
        Property(
            "any_shape",
            "Bytes have one dimension, whatever shape codes have, () too: codes are taken in row-major order, also "
            "beyond the end of a row. No codes have no bytes.",
            keys=("bytes",),
            roundings=0,
            cases=(MATRIX, ODD_ROWS, THREE, SINGLE, NONE),
        ),
        Property(
            "uint8",
            "Bytes are in uint8, also where there are none.",
            keys=("dtype",),
            needs=("bytes",),
        ),
    ),
    hints=(
        "Write -3 and 5 in two's complement, four bits each. Which of them is on the left in the byte?",
        "-3 in int8 is 11111101: keep its lower four bits only, before anything is put beside them.",
        "Flatten, add a 0 if the number is odd; then every second code from 0 on, and every second from 1 on.",
    ),
    keeps=("codes",),
    forms=(
        strided("codes", of=MATRIX),
        transposed("codes", of=ODD_ROWS),
        offset("codes", of=ODD),
        cut("a row of length 1", codes=(0, 1), of=MATRIX),
    ),
    promises={
        "int8, from -8 to 7, any shape, also empty": ("bytes", "any_shape"),
        "it may be a view": ("views that are not contiguous", "transposed tensors"),
        "They are taken in row-major order": ("any_shape", "transposed tensors"),
        "uint8, one dimension": ("uint8", "any_shape"),
        "Where the number of codes is odd": ("odd_length",),
        "codes is not changed": ("arguments_unchanged",),
    },
)
