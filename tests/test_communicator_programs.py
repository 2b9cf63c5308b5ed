"""Programs for a communicator, written as public code for parallel training is: each computes what one process does.

On simulated ranks and on gloo, as they stand: data, tensor, pipeline and context parallelism, sharded optimizer states,
Muon with its matrices dealt out; grids, experts, groups that shrink. At the end puzzles of a pipeline, whose answer is
a time on the virtual clock.
"""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from gloo_room import by_value, gloo
from torch import Tensor
from torch.nn import functional as F

from course.cluster import Link, Simulated, fully_connected, run_ranks
from course.reference.optimizers.orthogonalize import orthogonalize

by_value(__name__)

RANKS, STEPS, RATE = 4, 3, 0.1
WIDTH, ROWS = 8, 8  # of a batch
HEADS, TOKENS = 4, 16


def weights() -> list[Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [(torch.randn(WIDTH, WIDTH, generator=rng) / 3).requires_grad_() for _ in range(RANKS)]


def batches() -> list[tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(1)
    return [(torch.randn(ROWS, WIDTH, generator=rng), torch.randn(ROWS, WIDTH, generator=rng)) for _ in range(STEPS)]


def forward(layers, x):
    for each in layers:
        x = torch.tanh(x @ each)
    return x


def sgd(params):
    with torch.no_grad():
        for each in params:
            each -= RATE * each.grad
            each.grad = None


def one_process(step=sgd):
    """The losses that all of them must have."""
    layers, losses = weights(), []
    for x, y in batches():
        loss = F.mse_loss(forward(layers, x), y)
        loss.backward()
        step(layers)
        losses.append(loss.item())
    return losses


# --- training ---


def data_parallel(comm, step=sgd):
    """A share of the batch for each rank; gradients go in buckets of two, begun in hooks while backward runs."""
    layers, losses, works = weights(), [], []

    def begin(params, _):
        if all(each.grad is not None for each in params):
            flat = torch.cat([each.grad.flatten() for each in params])
            works.append((comm.all_reduce(flat, "avg", async_op=True), flat, params))

    for pair in (layers[:2], layers[2:]):
        for each in pair:
            each.register_post_accumulate_grad_hook(functools.partial(begin, pair))
    for x, y in batches():
        loss = F.mse_loss(forward(layers, x.chunk(comm.size)[comm.rank]), y.chunk(comm.size)[comm.rank])
        loss.backward()
        for work, flat, params in works:
            work.wait()
            for each, grad in zip(params, flat.split([each.numel() for each in params]), strict=True):
                each.grad.copy_(grad.view_as(each))
        works.clear()
        step(layers)
        total = loss.detach()
        comm.all_reduce(total, "mean")
        losses.append(total.item())
    return losses


class ToAll(torch.autograd.Function):
    """Enters a layer whose outputs are shared out: the gradients of all ranks are added."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        whole = grad.clone()
        ctx.comm.all_reduce(whole)
        return whole, None


class Added(torch.autograd.Function):
    """Leaves a layer whose inputs are shared out: the results of all ranks are added."""

    @staticmethod
    def forward(ctx, x, comm):
        whole = x.clone()
        comm.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def tensor_parallel(comm):
    """Two groups of two, from a mesh: batches are shared out along dp; along tp a layer has half of its columns, the
    next one half of its rows, and so on.
    """
    mesh = comm.mesh(dp=2, tp=2)
    tp, dp = mesh["tp"], mesh["dp"]
    pieces = [each.detach().chunk(2, dim=1 - place % 2)[tp.rank].clone() for place, each in enumerate(weights())]
    layers, losses = [each.requires_grad_() for each in pieces], []
    for x, y in batches():
        h, y = x.chunk(2)[dp.rank], y.chunk(2)[dp.rank]
        for columns, rows in (layers[:2], layers[2:]):
            h = torch.tanh(Added.apply(torch.tanh(ToAll.apply(h, tp) @ columns) @ rows, tp))
        loss = F.mse_loss(h, y)
        loss.backward()
        for each in layers:
            dp.all_reduce(each.grad, "mean")
        sgd(layers)
        total = loss.detach()
        dp.all_reduce(total, "mean")
        losses.append(total.item())
    return losses


def pipeline(comm, *, is_1f1b):
    """A layer on each rank, a batch in four pieces. All pieces forward and then all backward, or one forward, one back.

    A stage hears of activations from the one before it, and of gradients from the one after it.
    """
    (layer,), losses = weights()[comm.rank : comm.rank + 1], []
    is_first, is_last = comm.rank == 0, comm.rank == comm.size - 1
    for x, y in batches():
        xs, ys, kept, total, begun = x.chunk(RANKS), y.chunk(RANKS), [], torch.zeros(()), []

        def forth(place, xs=xs, ys=ys, kept=kept, begun=begun, total=total):
            h = xs[place] if is_first else torch.empty_like(xs[place])
            if not is_first:
                comm.recv(h, comm.rank - 1)
            h.requires_grad_(not is_first)
            out = torch.tanh(h @ layer)
            if is_last:
                out = F.mse_loss(out, ys[place]) / RANKS
                total.add_(out.detach())
            else:
                begun.append(comm.isend(out.detach(), comm.rank + 1))
            kept.append((h, out))

        def back(kept=kept, begun=begun):
            h, out = kept.pop(0)
            grad = None if is_last else torch.empty_like(out)
            if grad is not None:
                comm.recv(grad, comm.rank + 1)
            out.backward(grad)
            if not is_first:
                begun.append(comm.isend(h.grad, comm.rank - 1))

        warmup = comm.size - 1 - comm.rank if is_1f1b else RANKS - 1
        for place in range(min(warmup, RANKS - 1)):
            forth(place)
        for place in range(min(warmup, RANKS - 1), RANKS):
            forth(place)
            back()
        while kept:
            back()
        for work in begun:
            work.wait()
        sgd([layer])
        comm.broadcast(total, comm.size - 1)
        losses.append(total.item())
    return losses


def zero1(comm, step=sgd):
    """Gradients are reduced and scattered in one tensor, each rank steps its quarter, and all are gathered."""
    layers, losses = weights(), []
    for x, y in batches():
        loss = F.mse_loss(forward(layers, x.chunk(comm.size)[comm.rank]), y.chunk(comm.size)[comm.rank])
        loss.backward()
        flat = torch.cat([each.grad.flatten() for each in layers])
        own = torch.empty(flat.numel() // comm.size)
        comm.reduce_scatter_single(own, flat, torch.distributed.ReduceOp.AVG)
        shard = torch.cat([each.detach().flatten() for each in layers]).chunk(comm.size)[comm.rank].clone()
        comm.all_gather_single(flat, shard - RATE * own)
        with torch.no_grad():
            for each, values in zip(layers, flat.chunk(len(layers)), strict=True):
                each.copy_(values.view_as(each))
                each.grad = None
        total = loss.detach()
        comm.all_reduce(total, "mean")
        losses.append(total.item())
    return losses


def muon_step(params):
    with torch.no_grad():
        for each in params:
            each -= RATE * orthogonalize(each.grad)
            each.grad = None


def muon(comm):
    """Each rank makes the update of the matrices that are its turn, and all of them are gathered."""

    def step(params):
        updates = [torch.empty_like(each) for each in params]
        comm.all_gather(updates, orthogonalize(params[comm.rank].grad))
        with torch.no_grad():
            for each, update in zip(params, updates, strict=True):
                each -= RATE * update
                each.grad = None

    return data_parallel(comm, step)


TRAINING = {
    "data parallel, buckets begun in hooks": data_parallel,
    "tensor and data parallel on a mesh": tensor_parallel,
    "pipeline, all forward and all backward": functools.partial(pipeline, is_1f1b=False),
    "pipeline, one forward and one backward": functools.partial(pipeline, is_1f1b=True),
    "sharded optimizer states": zero1,
}


# --- attention over a sequence that is shared out ---


def attention_inputs() -> list[Tensor]:
    rng = torch.Generator().manual_seed(2)
    return [torch.randn(HEADS, TOKENS, WIDTH, generator=rng) for _ in range(3)]


def ring_attention(comm):
    """Causal: keys and values go round the ring, and the own queries see those that are there, by a running softmax."""
    q, k, v = (each.chunk(comm.size, dim=1)[comm.rank].contiguous() for each in attention_inputs())
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    length = q.shape[1]
    top, total, out = torch.full(q.shape[:2], -torch.inf), torch.zeros(q.shape[:2]), torch.zeros_like(q)
    for turn in range(comm.size):
        works, following = [], [torch.empty_like(k), torch.empty_like(v)]
        if turn < comm.size - 1:
            ops = [comm.P2POp(comm.isend, each, after) for each in (k, v)]
            works = comm.batch_isend_irecv([*ops, *(comm.P2POp(comm.irecv, each, before) for each in following)])
        whose = (comm.rank - turn) % comm.size
        if whose <= comm.rank:
            scores = q @ k.mT / WIDTH**0.5
            if whose == comm.rank:
                scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
            largest = torch.maximum(top, scores.amax(-1))
            weight, scale = (scores - largest[..., None]).exp(), (top - largest).exp()
            total, out = total * scale + weight.sum(-1), out * scale[..., None] + weight @ v
            top = largest
        for work in works:
            work.wait()
        k, v = following
    return out / total[..., None]


def heads_for_tokens(comm):
    """Two exchanges of everybody with everybody: from a quarter of the tokens to one of the heads, and back."""
    mine = [each.chunk(comm.size, dim=1)[comm.rank] for each in attention_inputs()]
    turned = []
    for each in mine:
        come = torch.empty(comm.size, TOKENS // comm.size, WIDTH)
        comm.all_to_all_single(come, each.contiguous())
        turned.append(come.view(1, TOKENS, WIDTH))
    out = F.scaled_dot_product_attention(*turned, is_causal=True)
    back = torch.empty(HEADS, TOKENS // comm.size, WIDTH)
    comm.all_to_all_single(back, out.view(comm.size, TOKENS // comm.size, WIDTH))
    return back


ATTENTION = {"ring attention": ring_attention, "heads for tokens": heads_for_tokens}


# --- what is no training ---


def averages_of_neighbours(comm):
    """A grid on a mesh of 2 by 2: rows and columns at the edges are received into views of the own piece."""
    mesh, side = comm.mesh(y=2, x=2), GRID // 2
    whole = torch.arange(float(GRID * GRID)).view(GRID, GRID)
    piece = F.pad(whole.chunk(2)[mesh["y"].rank].chunk(2, dim=1)[mesh["x"].rank], (1, 1, 1, 1))
    for _ in range(STEPS):
        works = []
        for axis, lines in ((mesh["y"], piece), (mesh["x"], piece.T)):
            for other, inner, outer in ((axis.rank - 1, 1, 0), (axis.rank + 1, side, side + 1)):
                if 0 <= other < axis.size:
                    works += [axis.irecv(lines[outer], other), axis.isend(lines[inner], other)]
        for work in works:
            work.wait()
        piece[1:-1, 1:-1] = neighbours(piece)
    return piece[1:-1, 1:-1].clone()


def neighbours(grid):
    return (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]) / 4


GRID = 8


def experts(comm):
    """Each rank is an expert that multiplies by its number; tokens go there and come back, one expert has most."""
    rng = torch.Generator().manual_seed(comm.rank)
    x, to = torch.randn(10, WIDTH, generator=rng), torch.randint(0, comm.size, (10,), generator=rng)
    to[comm.rank :] = 0
    order = to.argsort(stable=True)
    go = to.bincount(minlength=comm.size)
    come = torch.empty_like(go)
    comm.all_to_all_single(come, go)
    there, back, out = torch.empty(int(come.sum()), WIDTH), torch.empty_like(x), torch.empty_like(x)
    comm.all_to_all_single(there, x[order], come.tolist(), go.tolist())
    comm.all_to_all_single(back, there * comm.rank, go.tolist(), come.tolist())
    out[order] = back
    return torch.equal(out, x * to[:, None])


def largest_of_all(comm):
    """The largest three numbers of all ranks, by objects."""
    values, places = (torch.arange(20) * 7 % 20 + comm.rank / 8).topk(3)
    found = [None] * comm.size if comm.rank == 0 else None
    comm.gather_object([*zip(values.tolist(), places.tolist(), strict=True)], found, dst=0)
    best = [sorted(itertools.chain(*found), reverse=True)[:3]] if comm.rank == 0 else [None]
    comm.broadcast_object_list(best, src=0)
    return best[0]


def fewer_and_fewer(comm):
    """The last rank leaves after each sum; those who stay make a group of their own."""
    x = torch.ones(1)
    while True:
        comm.all_reduce(x)
        if comm.rank == comm.size - 1:
            return x.item()
        comm = comm.subgroup(range(comm.size - 1))


def asked_until_found(comm):
    """Whether any rank has found what it looks for, and all have: flags, and a loop that asks for the answer."""
    has_any, has_all = torch.tensor(comm.rank == 2), torch.tensor([comm.rank != 2, True])
    work = comm.all_reduce(has_any, torch.distributed.ReduceOp.MAX, async_op=True)
    while not work.is_completed():
        pass
    comm.all_reduce(has_all, "min")
    return has_any.item(), has_all.tolist()


ANSWERS = {
    "experts": [True] * RANKS,
    "largest of all": [[(19 + 3 / 8, 17), (19 + 2 / 8, 17), (19 + 1 / 8, 17)]] * RANKS,
    "fewer and fewer": [24.0, 24.0, 12.0, 4.0],
    "asked until found": [(True, [False, True])] * RANKS,
}
OTHERS = {
    "experts": experts,
    "largest of all": largest_of_all,
    "fewer and fewer": fewer_and_fewer,
    "asked until found": asked_until_found,
    "averages of neighbours": averages_of_neighbours,
}


# --- both transports ---


def all_of_them(comm, programs):
    return {name: program(comm) for name, program in programs.items()}


@pytest.fixture(scope="module", params=["simulated", "gloo"])
def found(request):
    """What every rank returns for every program, in one run."""
    inputs = [(TRAINING | ATTENTION | OTHERS | {"muon": muon},)] * RANKS
    run = gloo if request.param == "gloo" else run_ranks
    return run(all_of_them, RANKS, inputs=inputs).values


@pytest.mark.parametrize("name", TRAINING)
def test_a_program_trains_as_one_process_does(found, name):
    for each in found:
        assert each[name] == pytest.approx(one_process(), rel=1e-5)


def test_matrices_of_muon_may_be_dealt_out(found):
    for each in found:
        assert each["muon"] == pytest.approx(one_process(muon_step), rel=1e-4)  # Newton-Schulz runs in bfloat16


@pytest.mark.parametrize("name", ATTENTION)
def test_a_sequence_that_is_shared_out_has_the_attention_of_the_whole_one(found, name):
    whole = F.scaled_dot_product_attention(*attention_inputs(), is_causal=True)
    torch.testing.assert_close(torch.cat([each[name] for each in found], dim=1), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_program_that_moves_numbers_has_the_answer_of_one_process(found, name):
    assert [each[name] for each in found] == ANSWERS[name]


def test_a_grid_that_is_shared_out_has_the_averages_of_the_whole_one(found):
    grid = F.pad(torch.arange(float(GRID * GRID)).view(GRID, GRID), (1, 1, 1, 1))
    for _ in range(STEPS):
        grid[1:-1, 1:-1] = neighbours(grid)
    rows = [torch.cat([each["averages of neighbours"] for each in found[at : at + 2]], dim=1) for at in (0, 2)]
    torch.testing.assert_close(torch.cat(rows), grid[1:-1, 1:-1], rtol=1e-6, atol=0)


# --- puzzles: how long does it take? ---

FORWARD, BACKWARD = 1.0, 2.0  # seconds of a piece in a stage


def stage(comm, pieces, *, is_1f1b):
    """The times of a pipeline, without a model."""
    x, last = torch.zeros(1), comm.size - 1

    def forth():
        if comm.rank:
            comm.recv(x, comm.rank - 1)
        comm.compute(FORWARD, "forward")
        if comm.rank < last:
            comm.send(x, comm.rank + 1)

    def back():
        if comm.rank < last:
            comm.recv(x, comm.rank + 1)
        comm.compute(BACKWARD, "backward")
        if comm.rank:
            comm.send(x, comm.rank - 1)

    ahead = min(last - comm.rank, pieces) if is_1f1b else pieces
    for _ in range(ahead):
        forth()
    for _ in range(pieces - ahead):
        forth()
        back()
    for _ in range(ahead):
        back()


AT_ONCE = Link(latency=0.0, bandwidth=float("inf"))


@pytest.mark.parametrize("is_1f1b", [False, True])
@pytest.mark.parametrize(("stages", "pieces"), [(1, 3), (2, 1), (4, 8), (3, 5)])
def test_a_pipeline_takes_its_pieces_and_the_bubble(stages, pieces, is_1f1b):
    program = functools.partial(stage, pieces=pieces, is_1f1b=is_1f1b)
    run = run_ranks(program, stages, transport=Simulated(topology=fully_connected(stages, AT_ONCE)))
    assert run.ledger.makespan == (pieces + stages - 1) * (FORWARD + BACKWARD)
