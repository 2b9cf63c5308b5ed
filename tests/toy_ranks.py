"""A small exercise with ranks for tests of the machinery, under an id that the syllabus holds.

`running_mean(comm, x)` returns the sum of all ranks' x, by messages from neighbour to neighbour. Sandboxes in tests get
this very file in place of the exercise that the id belongs to.
"""

from __future__ import annotations

import torch

from course.performing.exercise import Case, Exercise, Property, observe

ID = "start_here.running_mean"
SIZES = (1, 2, 3, 4)


def cases(rng):
    """A vector for each rank; its length is no multiple of the number of ranks."""
    return [
        Case(name=f"{size} ranks", inputs={"parts": [torch.rand(10, generator=rng) for _ in range(size)]})
        for size in SIZES
    ]


def split(inputs):
    """To each rank its vector."""
    return [{"x": part} for part in inputs["parts"]]


def probe(answer, comm, inputs):
    """The sum, as one rank sees it."""
    return observe({"total": answer(comm, inputs["x"])})


def few_bytes(inputs, got, expected):
    """At most 2(P-1)/P of the bytes, and a padded chunk for each message."""
    size = len(inputs["parts"])
    most = 2 * (size - 1) * 4 * -(-10 // size)
    sent = int(got["bytes_sent"].max())
    return None if sent <= most else f"a rank sent {sent} bytes, where {most} are enough"


EXERCISE = Exercise(
    id=ID,
    cases=cases,
    probe=probe,
    split=split,
    verbs=("send", "recv", "broadcast", "barrier"),
    properties=(
        Property(
            "total",
            "Every rank's vector, once.",
            points=4,
            keys=("*/total",),
        ),
        Property(
            "few_bytes",
            "A chunk, not the whole vector.",
            points=4,
            evidence="ledger",
            holds=few_bytes,
            needs=("total",),
        ),
    ),
    hints=("Who needs what?", "Neighbours.", "A ring."),
    keeps=("x",),
    seconds=3.0,
)

RING = '''
import torch

def running_mean(comm, x):
    """The sum of all ranks' x: a ring reduce-scatter, then a ring all-gather."""
    size, rank = comm.size, comm.rank
    if size == 1:
        return x.clone()
    padded = torch.cat([x, x.new_zeros(-len(x) % size)])
    chunks, after, before = list(padded.chunk(size)), (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        comm.send(chunks[(rank - step) % size], after)
        came = torch.empty_like(chunks[0])
        comm.recv(came, before)
        chunks[(rank - step - 1) % size] += came
    for step in range(size - 1):
        comm.send(chunks[(rank + 1 - step) % size], after)
        comm.recv(chunks[(rank - step) % size], before)
    return padded[: len(x)]
'''
