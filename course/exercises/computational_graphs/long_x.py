"""What `hvp` costs, seen on a long x: a Hessian and a loop over the entries of x cost too much there.

f has coefficients of its own, so that nobody knows its derivatives.

In a notebook x has 102 numbers, and torch's operations are counted; in grading it has 4,352, and the process is
measured from outside. In both the same block of the result is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.performing.blocks import draw, over_peak
from course.performing.draws import integer
from course.performing.exercise import Ask, Case, Inputs, Observation, Values, observe
from course.performing.oracle import is_here
from course.performing.pledges import Look, Stage, number, pieces, pledged, shown
from course.tree import Leaf, Tree

Function = Callable[[Tensor], Tensor]
Call = Callable[[Function, Tensor, Tensor], Any]

NAME = "a long x"
BLOCK = 34  # numbers
PIECE = 3 * BLOCK  # in a notebook: a block that is looked at, between two others
BLOCKS = 128  # in grading
OPERATIONS = 1_000  # right answers take 48 to 133 on the piece, a loop over its entries 5,600 and more
LENGTHS = 4  # right answers make tensors as long as x; the Hessian of the piece is 102 times as long
PEAK = 40 * 2**20  # bytes in grading: right answers take 1.4 to 27 MiB (torch.func.linearize), a Hessian 144
ANOTHER_SHAPE = "not in the shape of x"
LOOK = Look(
    stages=(Stage(pieces={"hv": BLOCKS}, tells=("block",)),),
    at=lambda numbers: {"hv": numbers["block"]},
)
SECONDS = 0.3  # of computing in grading: right answers take 0.002 to 0.12 (torch.func.linearize), batches of rows 1.0


def long_case(rng: torch.Generator) -> Case:
    """x, v and the coefficients of f are drawn from three seeds by the probe; which block is looked at is hidden."""
    drawn = partial(integer, rng)

    scale = 1 + torch.rand((), generator=rng, dtype=torch.float64) / 8
    inputs: dict[str, Tree] = {"seeds": [drawn(0, 2**31) for _ in range(3)], "scale": scale, "apart": drawn(1, BLOCK)}
    return Case(name=NAME, inputs=inputs, hidden={"block": drawn(1, BLOCKS - 1)})


def observe_long(call: Call, inputs: Inputs, ask: Ask) -> Observation:
    """One call on a long x: of a piece, and counted, where the oracle is here; else of all blocks."""
    if not is_here(ask):
        f, x, v = _drawn(inputs, range(BLOCKS))
        result = call(f, x, v)
        fits = _fits(result, x)
        block = pledged(ask, {"hv": pieces(result, BLOCK) if fits else ANOTHER_SHAPE})["block"]
        return shown(ask, _one_block(result, x, block) if fits else {})
    block = number(ask, "block")
    f, x, v = _drawn(inputs, range(block - 1, block + 2))
    with _Meter() as meter:
        result = call(f, x, v)
    return observe(_one_block(result, x, 1), meter.costs(x))


def _drawn(inputs: Inputs, blocks: range) -> tuple[Function, Tensor, Tensor]:
    """f, and these blocks of the case's x and v, each one vector of numbers between -1.2 and 1.2.

    In f each entry meets two others, one block away or less: a block of H v depends on the blocks beside it.
    """
    x, v, a = ((2 * draw(seed, blocks, BLOCK).flatten() - 1) * inputs["scale"] for seed in inputs["seeds"])
    apart = inputs["apart"]

    def f(x: Tensor) -> Tensor:
        return torch.sin(a[apart:] * x[apart:] * x[:-apart]).sum() + (torch.relu(x) ** 3).sum()

    return f, x, v


def _one_block(hv: Any, x: Tensor, block: int) -> dict[str, Any]:
    """The block of a result in the shape of x. Another one is not read: it would differ with the length of x."""
    return {"hv": hv[block * BLOCK : (block + 1) * BLOCK] if _fits(hv, x) else ANOTHER_SHAPE}


def _fits(hv: Any, x: Tensor) -> bool:
    return isinstance(hv, Tensor) and hv.shape == x.shape


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's operations in the body of the `with`, and the bytes of the largest tensor that they made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.largest = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's compiler need not be kept out of this: to import it for that would take 2 s."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for made in tree_leaves(result):
            if isinstance(made, Tensor) and made.layout == torch.strided:
                self.largest = max(self.largest, made.untyped_storage().nbytes())
        return result

    def costs(self, x: Tensor) -> dict[str, Leaf]:
        """Both counts as limits that they keep, rounded up tenfold at a time: answers differ in style."""
        return {
            "operations_up_to": _tenfold(OPERATIONS, self.operations),
            "largest_tensor_up_to": _tenfold(LENGTHS * PIECE, self.largest // x.element_size()),
        }


def _tenfold(limit: int, count: int) -> int:
    """The first of limit, 10 limit, 100 limit, ... that is not below `count`."""
    while limit < count:
        limit *= 10
    return limit


def in_a_few_passes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """A loop over the entries of x takes too many operations, or too long; a Hessian takes too much memory."""
    if "peak_bytes" in got:
        sentence = "{peak:,} bytes at the highest, where {most:,} are more than enough"
        return over_peak(got["peak_bytes"], PEAK, sentence) or _too_long(got["cpu_seconds"])
    operations, largest = got["operations_up_to"], got["largest_tensor_up_to"]
    if not isinstance(operations, int) or operations > OPERATIONS:
        return f"up to {operations:,} operations, where {OPERATIONS:,} are more than enough"
    if not isinstance(largest, int) or largest > LENGTHS * PIECE:
        return f"a tensor of up to {largest:,} numbers, for an x of {PIECE}"
    return None


def _too_long(seconds: Leaf) -> str | None:
    if not isinstance(seconds, float) or not seconds <= SECONDS:
        return f"{seconds:.3g} s of computing, where {SECONDS} are more than enough"
    return None
