"""Units whose parameters are sharded: residual blocks y = x + tanh(x a') b with a and b of shape (h, d).

    a case's a, b (few rows)  --copies-->  a, b of one unit  --flat, padded-->  the shard of each rank
    rows of a large result  --mixed-->  MIXED rows, the same however many copies there are

Every row of a may stand there several times, with as many parts of its row of b: the unit grows and computes the same.
So a case stays small, and its unit is as large as memory must be to be measured. Where a copy stands, its sign (tanh is
odd) and its part are drawn, and `mixed` looks at all of them: no piece of a large unit can stand for the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course.performing.draws import integer, normal
from course.performing.exercise import Case, Inputs, Values

MIXED = 2  # rows that are observed of a large result
FIRST = 64  # numbers by which one sees that something was written
ROWS, WIDTH, BATCH, DEEP = 16, 32, 2, 6  # of the case whose memory is measured
FEW, MANY = 16, 1024  # copies, in a notebook and outside: a unit has 128 KiB and 8 MiB there
SUM = ROWS * MANY // 2  # roundings, at worst, of a sum over all rows: half of eps each, where copies all round alike
OUTSIDE = 2**20  # bytes that a process may take besides its tensors
KEPT = 2  # activations of each unit

Holds = Callable[[Inputs, Values, Values], str | None]


def case(
    rng: torch.Generator,
    name: str,
    ranks: int,
    shapes: Sequence[tuple[int, int]],
    *,
    batch: int = 3,
    dtype: torch.dtype = torch.float32,
    copies: Sequence[int] = (1, 1),
    positive: bool = False,
) -> Case:
    """A stack of units of these shapes of a and b, on so many ranks.

    copies    in a notebook, and outside
    positive  all numbers: where a shard has one or two, nothing but roundings would be left of sums that cancel
    """
    width = shapes[0][1]
    inputs: dict[str, Any] = {
        # half as large as b, so that no tanh is saturated: of 1 - t^2 nothing but roundings would be left
        "a": [normal(rng, *shape, dtype=dtype) / (2 * shape[1] ** 0.5) for shape in shapes],
        "b": [normal(rng, *shape, dtype=dtype) / shape[0] ** 0.5 for shape in shapes],
        "x": [normal(rng, batch, width, dtype=dtype) for _ in range(ranks)],
        "dy": [normal(rng, batch, width, dtype=dtype) for _ in range(ranks)],
    }
    if positive:
        inputs = {key: [each.abs() for each in tensors] for key, tensors in inputs.items()}
    return Case(name=name, inputs={**inputs, "copies": list(copies), "seed": integer(rng, 0, 2**31)})


def deep(rng: torch.Generator, name: str, layers: int = DEEP) -> Case:
    """The case whose memory is measured."""
    return case(rng, name, 4, [(ROWS, WIDTH)] * layers, batch=BATCH, dtype=torch.float64, copies=(FEW, MANY))


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank its x and dy, and of all units what they are made of."""
    shared = {name: inputs[name] for name in ("a", "b", "seed")} | {"copies": inputs["copies"]["outside" in inputs]}
    return [{**shared, "x": x, "dy": dy} for x, dy in zip(inputs["x"], inputs["dy"], strict=True)]


def shapes_of(part: Inputs) -> list[list[torch.Size]]:
    """Of the tensors of each unit."""
    return [[torch.Size((len(a) * part["copies"], a.shape[1]))] * 2 for a in part["a"]]


def shards_of(part: Inputs, ranks: int, rank: int) -> list[Tensor]:
    """This rank's shard of each unit: its part of a and b one after the other, zeros at the end."""
    return [_shard(part, number, ranks, rank) for number in range(len(part["a"]))]


def _shard(part: Inputs, number: int, ranks: int, rank: int) -> Tensor:
    a, copies = part["a"][number], part["copies"]
    m = -(-2 * copies * a.numel() // ranks)
    full = a.new_zeros(ranks * m)
    fill(part, number, *full[: 2 * copies * a.numel()].view(2, -1, a.shape[1]))
    shard: Tensor = full.view(ranks, m)[rank].clone()
    return shard


class _Copies(NamedTuple):
    """For each row of a unit: of which of the few it is a copy, with which sign, and which part of b's row is here.

    weight  by which it counts in what is observed
    mix     (MIXED, few): by which those of the few count
    """

    row: Tensor
    sign: Tensor
    share: Tensor
    weight: Tensor
    mix: Tensor


def _copies(part: Inputs, number: int) -> _Copies:
    """Drawn anew for each use: kept, they would be seen where memory is."""
    few, copies = part["a"][number], part["copies"]
    rng = torch.Generator().manual_seed(part["seed"] + number)

    def drawn(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=rng, dtype=few.dtype)

    mix, shape = 0.5 + drawn(MIXED, len(few)), (copies, len(few))
    if copies == 1:
        ones = few.new_ones(len(few))
        return _Copies(torch.arange(len(few)), ones, ones, ones, mix)
    row, sign = drawn(*shape).argsort(1).flatten(), 1 - 2 * drawn(*shape).round().flatten()
    share, weight = 0.5 + drawn(2, len(row))
    share /= torch.zeros_like(mix[0]).index_add_(0, row, share)[row]  # those of a row are 1 in all
    return _Copies(row, sign, share, weight, mix)


def fill(part: Inputs, number: int, a: Tensor, b: Tensor) -> None:
    """Writes a unit's own a and b into these."""
    made = _copies(part, number)
    for few, full, factor in ((part["a"], a, made.sign), (part["b"], b, made.sign * made.share)):
        torch.index_select(few[number], 0, made.row, out=full).mul_(factor[:, None])


def columns(part: Inputs, number: int, t: Tensor) -> Tensor:
    """The tanh of a unit, from that of the few rows."""
    made = _copies(part, number)
    return t[:, made.row] * made.sign


def mixed(part: Inputs, number: int, rows: Tensor, *, shared: bool, start: int = 0) -> Tensor:
    """(MIXED, columns): the few rows of which these are copies, each as a mean of them, and then mixed.

    shared  whether a copy has a part of its row, as in b and the gradient of a; else all of it
    start   where they begin
    """
    row, sign, share, weight, mix = _copies(part, number)
    row, weight, factor = (each[start : start + len(rows)] for each in (row, weight, sign * share if shared else sign))
    whole = torch.zeros_like(mix[0]).index_add_(0, row, weight * factor.square())
    return (mix[:, row] * weight * factor / whole[row]).to(rows.dtype) @ rows.detach()


def piece(part: Inputs, number: int, gradient: Tensor, ranks: int, rank: int) -> Tensor:
    """What is observed of a shard of gradients: all of it; a large one, with rows of a or of b alone, is mixed."""
    if part["copies"] == 1:
        return gradient
    few = part["a"][number]
    rows = gradient.reshape(-1, few.shape[1])
    start = rank * len(rows) % (len(few) * part["copies"])
    return mixed(part, number, rows, shared=2 * rank < ranks, start=start).flatten()


def marks(tensors: Iterable[Tensor]) -> list[tuple[int, list[float]]]:
    """Of each how often it was written into, and its first numbers: what writes into `.data` is not counted."""
    return [(each._version, each.flatten()[:FIRST].tolist()) for each in tensors]


def room(part: Inputs, units: int) -> None:
    """As much memory as so many units of the measured case, for a moment: added to what outlives a call it shows."""
    if part["copies"] > 1:
        a = part["a"][0]
        a.new_ones(units * 2 * part["copies"] * a.numel())


@contextmanager
def filled(wanted: bool) -> Iterator[None]:
    """Tensors that torch.empty makes are written to at once: else nobody sees outside what waits to be received."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn" if wanted else before)
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def memory(units: float, *, shards: int, sent: int = 0) -> Holds:
    """Whether no rank held more, at any time, than what a unit is made of, shards, activations, and so many units.

    shards  of each unit; a message is read where it belongs, so that a notebook and the kernel count the same
    sent    so many all-gathers or reduce-scatters of each unit must be, in bytes: who works on a piece of it holds less
    """

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        measured = "peak_bytes" in got
        peaks, moved = got["peak_bytes" if measured else "live_bytes"], got["bytes_sent"]
        unit, hidden, width = _bytes(inputs, measured)
        ranks, count = len(inputs["x"]), len(inputs["a"])
        assert isinstance(moved, Tensor)
        if moved.sum() < sent * count * (ranks - 1) * unit:  # each rank needs what the others have
            return f"{int(moved.sum()):,} bytes went from rank to rank: that is less than all parts of the units have"
        given = sum(each.nbytes for each in (*inputs["a"], *inputs["b"])) + 2 * width
        kept = given + count * (shards * unit / ranks + KEPT * (hidden + width))
        most = int(kept + units * unit) + measured * OUTSIDE
        assert isinstance(peaks, Tensor)
        rank = int(peaks.argmax())
        return (
            None if peaks[rank] <= most else f"rank {rank} held {int(peaks[rank]):,} bytes, where {most:,} are enough"
        )

    return holds


def _bytes(inputs: Inputs, measured: bool) -> tuple[int, int, int]:
    """Of the largest unit's parameters, of its hidden layer for one batch, and of one x."""
    a, x, copies = max(inputs["a"], key=lambda each: int(each.numel())), inputs["x"][0], inputs["copies"][measured]
    return 2 * copies * a.nbytes, copies * len(a) * len(x) * a.itemsize, x.nbytes


def unit_bytes(inputs: Inputs, measured: bool) -> int:
    """Of the largest unit's parameters. measured: where the kernel weighs them, else in a notebook."""
    return _bytes(inputs, measured)[0]


def traffic(collectives: int) -> Holds:
    """Whether no rank sent more than that many all-gathers or reduce-scatters of each unit do."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        ranks, sent = len(inputs["x"]), got["bytes_sent"]
        most = collectives * sum((ranks - 1) * -(-2 * a.numel() // ranks) * a.itemsize for a in inputs["a"])
        assert isinstance(sent, Tensor)
        rank = int(sent.argmax())
        return None if sent[rank] <= most else f"rank {rank} sent {int(sent[rank])} bytes, where {most} are enough"

    return holds


def calls(*verbs: str) -> Holds:
    """Whether every rank called each of these verbs once for each unit."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        count = len(inputs["a"])
        for verb in verbs:
            made = got.get(f"calls/{verb}")
            if not isinstance(made, Tensor) or made.tolist() != [count] * len(inputs["x"]):
                return f"{int(made.max()) if isinstance(made, Tensor) else 0} calls of {verb} for {count} units"
        return None

    return holds
