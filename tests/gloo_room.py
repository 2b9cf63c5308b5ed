"""Running functions on gloo, in tests."""

from __future__ import annotations

import sys

import cloudpickle
import psutil
import torch

from course.cluster import run_ranks

LIMIT = 30  # seconds that only a hang takes
TOLD = 10  # seconds within which a failure must be told, on a busy machine: far below LIMIT


def by_value(module):
    """As in a notebook: functions of this module go by value, and ranks need not import it."""
    cloudpickle.register_pickle_by_value(sys.modules[module])


by_value(__name__)


def gloo(function, ranks=2, **options):
    return run_ranks(function, ranks, transport="gloo", seconds=options.pop("seconds", LIMIT), **options)


def both(function, ranks, **options):
    """The same run on gloo and on simulated ranks; their values must be equal, and their bytes and messages."""
    real, simulated = gloo(function, ranks, **options), run_ranks(function, ranks, **options)
    torch.testing.assert_close(real.values, simulated.values, rtol=0, atol=0)
    assert (real.ledger.sent, real.ledger.messages) == (simulated.ledger.sent, simulated.ledger.messages)
    return real


def rank_processes():
    """Processes that the server of ranks has started and that are still there."""
    return [each for child in psutil.Process().children() for each in child.children(recursive=True)]


def ring_all_reduce(comm, x):
    """Pieces go round the ring twice: first they are summed, then handed on."""
    x = x.clone()
    pieces = list(x.chunk(comm.size))
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(2 * (comm.size - 1)):
        comm.send(pieces[(comm.rank - step) % comm.size], after)
        came = torch.empty_like(pieces[(comm.rank - step - 1) % comm.size])
        comm.recv(came, before)
        piece = pieces[(comm.rank - step - 1) % comm.size]
        piece.copy_(piece + came if step < comm.size - 1 else came)
    return x


def every_verb(comm):
    me, size = comm.rank, comm.size
    mine = torch.arange(4.0).view(2, 2) + 10 * me
    outs = [torch.empty(2, 2) for _ in range(size)]
    rows = [mine + place for place in range(size)]
    many, some = [each.clone() for each in rows], torch.empty(2, 2)
    summed, best, rooted, told = mine.clone(), mine.clone(), mine.clone(), mine.clone()
    comm.all_reduce(summed)
    comm.all_reduce(best, op="max")
    comm.reduce(rooted, dst=size - 1, op="product")
    comm.broadcast(told, src=size - 1)
    comm.all_gather(outs, mine)
    comm.reduce_scatter(some, rows, op="mean")
    comm.all_to_all(many, rows)
    gathered = [torch.empty(2, 2) for _ in range(size)] if me == 0 else None
    comm.gather(mine, gathered, dst=0)
    got = torch.empty(2, 2)
    comm.scatter(got, rows if me == 0 else None, src=0)
    comm.barrier()
    stacked, whole, piece = torch.empty(size, 2, 2), torch.empty(2 * size, 2), torch.empty(2, 2)
    comm.all_gather(stacked.unbind(), mine)
    comm.all_gather_single(whole, mine)
    comm.reduce_scatter_single(piece, torch.cat(rows))
    return [summed, best, rooted, told, *outs, some, *many, *(gathered or []), got, stacked, whole, piece]


def torchs_verbs(comm):
    """What programs of torch.distributed call besides: objects, rows of one tensor, its names of ops, complex sums."""
    me, size = comm.rank, comm.size
    objects, gathered, told, own = [None] * size, [None] * size, [me, "t", {"x": torch.ones(me + 1)}], ["", "kept"]
    comm.all_gather_object(objects, {"rank": me, "long": [me] * 100 * me})
    comm.gather_object(("of", me), gathered if me == size - 1 else [], size - 1)
    comm.broadcast_object_list(told, size - 1)
    comm.scatter_object_list(own, ["z" * place for place in range(size)] if me == 0 else ["ignored"], 0)
    right = objects == [{"rank": rank, "long": [rank] * 100 * rank} for rank in range(size)]
    right &= gathered == ([("of", rank) for rank in range(size)] if me == size - 1 else [None] * size)
    right &= told[:2] == [size - 1, "t"] and own == ["z" * me, "kept"]
    counts = [[(rank + 2 * place) % 3 for place in range(size)] for rank in range(size)]  # rows, also 0
    rows = torch.arange(2.0 * sum(counts[me])).view(-1, 2) + 100 * me
    ragged = torch.full((2, sum(each[me] for each in counts)), -1.0).T
    comm.all_to_all_single(ragged, rows, [each[me] for each in counts], counts[me])
    equal = torch.empty(2 * size, dtype=torch.int16)
    comm.all_to_all_single(equal, torch.arange(2 * size).short() + 10 * me)
    found = [torch.tensor(right), told[2]["x"], ragged, equal]
    turned = torch.tensor([1 + 1j * me, 2 - 1j], dtype=torch.complex64)
    ops = torch.distributed.ReduceOp
    for op in ("avg", "prod", ops.SUM, ops.AVG, ops(ops.PRODUCT)):
        found.append(turned.clone())
        comm.all_reduce(found[-1], op)
    for op in (ops.MAX, ops.MIN):
        found.append(torch.tensor([me, -me]))
        comm.reduce(found[-1], 0, op)
    work = comm.all_to_all_single(torch.empty(size), torch.ones(size), async_op=True)
    found.append(work.get_future().wait()[0])
    comm.gather(turned, [torch.empty_like(turned) for _ in range(size)] if me == 0 else [], 0)
    comm.scatter(turned, [turned] * size if me == 0 else [], 0)
    return [each.to(torch.complex64) for each in (*found, turned)]
