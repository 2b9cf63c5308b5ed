"""Cases for the verbs of a communicator, and what each verb means, computed without ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import torch
from torch import Tensor

from course.cluster import Comm, Simulated, run_ranks
from course.cluster.calls import OPS, REDUCIBLE

MOVABLE = (*REDUCIBLE, torch.int16)
SHAPES = [(), (0,), (1,), (5,), (2, 3), (3, 0, 2), (2, 1, 4)]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A group of a run, and the tensors of its ranks: whole numbers from -2 to 2, so that sums and products are exact.

    layout  "dense", "strided", "transposed", or "leaf": one that wants a gradient, where the dtype allows it
    """

    ranks: int
    group: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    op: str
    root: int
    seed: int

    @property
    def size(self) -> int:
        return len(self.group)

    def values(self, rank: int, place: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 10_000 + rank * 100 + place)
        low = 0 if self.dtype in (torch.uint8, torch.bool) else -2
        real = torch.randint(low, 3, self.shape, generator=generator).to(self.dtype)
        return real + 1j * torch.randint(low, 3, self.shape, generator=generator) if self.dtype.is_complex else real

    def tensor(self, rank: int, place: int = 0) -> Tensor:
        """`values`, laid out as the case says."""
        return laid(self.values(rank, place), self.layout)

    def empty(self) -> Tensor:
        """Something to receive into."""
        return laid(torch.ones(self.shape, dtype=self.dtype), self.layout)

    def run(self, function: Callable[[Comm], Any]) -> list[Any]:
        """What `function` returns on each rank of the group."""

        def on_rank(comm: Comm) -> Any:
            return function(comm.subgroup(self.group)) if comm.rank in self.group else None

        values = run_ranks(on_rank, self.ranks, transport=Simulated(seed=self.seed)).values
        return [values[rank] for rank in self.group]


def laid(values: Tensor, layout: str) -> Tensor:
    if layout == "strided":
        return torch.stack([values, values], dim=-1)[..., 1]
    if layout == "transposed":
        turn = tuple(reversed(range(values.dim())))
        return values.permute(turn).contiguous().permute(turn)
    wants = layout == "leaf" and (values.dtype.is_floating_point or values.dtype.is_complex)
    return values.clone().requires_grad_(wants)


@st.composite
def cases(draw: st.DrawFn, *, reducing: bool = False) -> Case:
    ranks = draw(st.integers(1, 6))
    group = tuple(sorted(draw(st.sets(st.integers(0, ranks - 1), min_size=1)) if draw(st.booleans()) else range(ranks)))
    dtype = draw(st.sampled_from(REDUCIBLE if reducing else MOVABLE))
    return Case(
        ranks=ranks,
        group=group,
        shape=draw(st.sampled_from(SHAPES)),
        dtype=dtype,
        layout=draw(st.sampled_from(["dense", "strided", "transposed", "leaf"])),
        op=draw(st.sampled_from(ops_of(dtype))),
        root=draw(st.integers(0, len(group) - 1)),
        seed=draw(st.integers(0, 99)),
    )


def ops_of(dtype: torch.dtype) -> list[str]:
    """Those that values of this dtype can be combined with."""
    if dtype.is_complex:
        return ["sum", "mean", "product"]
    if dtype == torch.bool:
        return ["max", "min", "product"]
    return [op for op in OPS if op != "mean" or dtype.is_floating_point]


def reduced(op: str, tensors: list[Tensor]) -> Tensor:
    """The definition: along a dim of ranks, in double precision (whole numbers in int64), converted at the end."""
    dtype = tensors[0].dtype
    exact = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    rows = torch.stack(tensors).to(exact)
    whole = {
        "sum": lambda: rows.sum(0),
        "mean": lambda: parts(rows.sum(0)) / len(tensors),
        "max": lambda: rows.amax(0),
        "min": lambda: rows.amin(0),
        "product": lambda: rows.prod(0),
    }[op]()
    return (torch.view_as_complex(whole) if dtype.is_complex and op == "mean" else whole).to(dtype)


def parts(values: Tensor) -> Tensor:
    """Real and imaginary parts along a last dim of 2, where there are any."""
    return torch.view_as_real(values) if values.is_complex() else values


def same(got: Tensor, wanted: Tensor) -> bool:
    """Equal in dtype, shape and every value."""
    return got.dtype == wanted.dtype and got.shape == wanted.shape and bool((got == wanted).all())


def share_nothing(tensors: list[Tensor]) -> bool:
    """Whether no two of the tensors lie in one storage; empty ones do not count."""
    places = [each.untyped_storage().data_ptr() for each in tensors if each.numel()]
    return len(places) == len(set(places))
