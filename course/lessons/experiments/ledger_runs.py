"""Three short programs for several ranks that compute the right thing, and hold too much while they do.

program's name, line number, new line --mended--> text --run, on every rank--> 64 numbers of each of its pieces

The faults: a shard that is a view of the whole, units that are freed when all are over, and losses that keep a graph.
Pieces are 64 numbers, repeated as often as asked for: what a program returns does not depend on how large they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.cluster import Comm, Ledger, Simulated, run_ranks
from course.errors import WrongOutput
from course.lessons.experiments.programs import Programs

PROGRAMS = Programs(
    masters="""\
def masters(comm, gather, weights, gradient, lr):
    mine = []
    for w in weights:
        mine.append(w.double().chunk(comm.size)[comm.rank])
    for step in range(2):
        for w, m in zip(weights, mine):
            m -= lr * gradient(w)
            w.copy_(gather(m))
    return mine
""",
    units="""\
def units(comm, gather, shards, x):
    full = []
    for shard in shards:
        full.append(gather(shard))
        x = torch.tanh(full[-1] * x)
    full.clear()
    return x.chunk(comm.size)
""",
    losses="""\
def losses(comm, gather, shard, gain, batches):
    found = []
    for x in batches:
        w = gather(shard)
        loss = (gain * w - x).square().mean()
        found.append(loss)
        del w
    return found
""",
)
PIECE = 64  # numbers that are drawn for each rank's shard of a unit, and looked at in the end
RANKS, UNITS, COPIES = 3, 6, 1000


def run(comm: Comm, name: str, program: str = "", *, seed: int, units: int = UNITS, copies: int = 1) -> list[Tensor]:
    """The first 64 numbers of each tensor that the program returns on this rank.

    program  its text, as it stands above if left out. It is executed: it is run where its author's code is
    copies   how often each piece of 64 numbers is repeated
    units    in `losses` the number of batches

    Raises WrongOutput where the program does not return tensors, or numbers.
    """

    def piece(unit: int, rank: int) -> Tensor:
        rng = torch.Generator().manual_seed(seed + 100 * unit + rank)
        return 0.5 + torch.rand(PIECE, generator=rng, dtype=torch.float64)

    def full(unit: int, dtype: torch.dtype) -> Tensor:
        return torch.cat([piece(unit, rank).to(dtype).repeat(copies) for rank in range(comm.size)])

    def shard(unit: int) -> Tensor:
        return piece(unit, comm.rank).repeat(copies)

    def gradient(w: Tensor) -> Tensor:
        return w.chunk(comm.size)[comm.rank].double().neg_()

    given: dict[str, Any]
    if name == "masters":
        weights = [full(unit, torch.float32) for unit in range(units)]
        given = {"weights": weights, "gradient": gradient, "lr": 0.1}
    elif name == "units":
        given = {"shards": [shard(unit) for unit in range(units)], "x": full(units, torch.float64)}
    else:
        gain = piece(1, 0)[0].clone().requires_grad_()
        given = {"shard": shard(0), "gain": gain, "batches": list(piece(2, comm.rank)[:units])}
    found = PROGRAMS.defined(name, program)(comm, partial(_gathered, comm, PIECE * copies), **given)
    if not isinstance(found, Sequence) or not all(isinstance(each, (Tensor, float)) for each in found):
        raise WrongOutput(f"{name} must return a list of tensors, got {type(found).__name__}")
    length = 1 if name == "losses" else PIECE * copies
    if others := {len(torch.as_tensor(each).flatten()) for each in found} - {length}:
        raise WrongOutput(f"{name} must return tensors of {length:,} numbers, got {max(others):,}")
    return [torch.as_tensor(each, dtype=torch.float64).detach().flatten()[:PIECE].clone() for each in found]


def _gathered(comm: Comm, length: int, shard: Tensor) -> Tensor:
    """The whole tensor of which each rank has a shard: one piece of each is sent, and repeated where it arrives."""
    if len(shard) != length:
        raise WrongOutput(f"gather takes a shard of {length:,} numbers, got {len(shard):,}")
    pieces = list(shard.new_empty(comm.size, PIECE))
    comm.all_gather(pieces, shard.detach()[:PIECE].clone())
    whole = shard.new_empty(comm.size, len(shard) // PIECE, PIECE)
    for mine, piece in zip(whole, pieces, strict=True):
        mine.copy_(piece)
    return whole.flatten()


def seen(name: str, program: str = "", *, copies: int = COPIES) -> Ledger:
    """The account of a run on simulated ranks whose tensors are counted."""
    worker = partial(_worker, name=name, program=program, copies=copies)
    return run_ranks(worker, RANKS, transport=Simulated(memory=True)).ledger


def _worker(comm: Comm, name: str, program: str, copies: int) -> list[Tensor]:
    return run(comm, name, program, seed=0, copies=copies)
