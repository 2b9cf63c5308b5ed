"""Tensors without data on simulated ranks: what they would cost is counted as for others, and nothing is computed."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from course.cluster import RanksFailed, Simulated, run_ranks
from course.cluster.account.ledger import costs
from course.cluster.calls import Kind, check_place
from course.errors import BadArgument
from course.lessons.models import GPT, GPTConfig, next_token_loss

RANKS = 3
TINY = GPTConfig(vocabulary=11, context=8, width=8, heads=2, layers=2)
XL = GPTConfig(vocabulary=50_257, context=1024, width=1600, heads=25, layers=48)


def made(device):
    """Makes tensors: on a device, or FakeTensors."""
    mode = FakeTensorMode() if device == "fake" else torch.device(device)

    def ones(*shape):
        with mode:
            return torch.ones(*shape)

    return ones


def every_verb(comm, ones):
    x, rows, wide = ones(4), [ones(4) for _ in range(RANKS)], ones(4 * RANKS)
    after, before = (comm.rank + 1) % RANKS, (comm.rank - 1) % RANKS
    comm.all_reduce(x, "mean")
    comm.reduce(x, 1)
    comm.broadcast(x, 2)
    comm.all_gather(rows, x)
    comm.all_gather_single(wide, x)
    comm.reduce_scatter(x, rows, "max")
    comm.reduce_scatter_single(x, wide)
    comm.all_to_all(rows, [each * 2 for each in rows])
    comm.gather(x, rows if comm.rank == 0 else None)
    comm.scatter(x, rows if comm.rank == 0 else None)
    for verb, peer in [(comm.send, after), (comm.recv, before)][:: -1 if comm.rank == 0 else 1]:
        verb(x, peer)
    begun = [comm.isend(x, after), comm.irecv(rows[0]), comm.all_reduce(wide, async_op=True)]
    for work in begun:
        work.wait()
    comm.mesh(one=1, all=RANKS)["all"].barrier()
    return x + 1, rows[0], wide


def told(run):
    return {name: each.tolist() if hasattr(each, "tolist") else each for name, each in costs(run.ledger).items()}


@pytest.mark.parametrize("device", ["meta", "fake"])
@pytest.mark.parametrize("send", ["eager", "rendezvous"])
def test_every_verb_costs_what_it_costs_with_data(device, send):
    transport = Simulated(memory=True, send=send)
    runs = [
        run_ranks(every_verb, RANKS, inputs=[(made(each),)] * RANKS, transport=transport) for each in (device, "cpu")
    ]
    assert told(runs[0]) == told(runs[1])
    assert [runs[0].ledger.peak_bytes(rank) for rank in range(RANKS)] == [
        runs[1].ledger.peak_bytes(rank) for rank in range(RANKS)
    ]
    without, with_data = ([Kind.of(each) for values in run.values for each in values] for run in runs)
    assert without == [each._replace(has_data=False) for each in with_data]


def test_a_module_of_the_caller_is_copied_for_each_rank():
    mode = FakeTensorMode()
    with mode:
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))

    def step(comm, model):
        with mode:
            model(torch.ones(4, 8)).sum().backward()
        for each in model.parameters():
            comm.all_reduce(each.grad, "mean")
        return model

    run = run_ranks(step, 2, inputs=[(model,)] * 2)
    assert run.ledger.bytes_sent(0) == 4 * (64 + 8 + 8 + 8)
    assert model[0].weight.grad is None
    assert run.values[0][0].weight is not run.values[1][0].weight


BROKEN = {
    "rank 0 is in all_reduce #1 (sum) with float32 of shape (4,) and rank 1 is in all_reduce #1 (sum) with float32 of "
    "shape (4,) without data": lambda comm: comm.all_reduce(torch.ones(4, device="meta" if comm.rank else "cpu")),
    "rank 1 receives float32 of shape (4,) without data and rank 0 sent float32 of shape (4,) in": lambda comm: (
        comm.recv(torch.ones(4, device="meta")) if comm.rank else comm.send(torch.ones(4), 1)
    ),
    "the tensors of one call must all have data, or none of them, got some of each kind": lambda comm: comm.all_to_all(
        [torch.ones(1), torch.ones(1)], [torch.ones(1), torch.ones(1, device="meta")]
    ),
}


@pytest.mark.parametrize("words", BROKEN)
def test_data_is_never_missing_in_silence(words):
    with pytest.raises(RanksFailed) as failed:
        run_ranks(BROKEN[words], 2, transport=Simulated(seed=2))
    assert words in str(failed.value) or _turned(words) in str(failed.value)


def _turned(words):
    """Whose call came first is the seed's."""
    with_data, without = "float32 of shape (4,) and", "float32 of shape (4,) without data"
    return words.replace(with_data, f"{without} and").removesuffix(" without data")


def test_other_transports_want_data():
    x = torch.ones(1, device="meta")
    with pytest.raises(BadArgument, match=r"only simulated ranks \(transport=\"simulated\"\) count"):
        check_place([x], [Kind.of(x)], torch.device("cpu"), needs_data=True)


def test_a_tensor_on_another_device_is_refused():
    x = torch.ones(1)
    with pytest.raises(BadArgument, match="tensors must lie on cuda to be sent or received, got one on cpu"):
        check_place([x], [Kind.of(x)], torch.device("cuda"), needs_data=False)


def train_step(comm, config):
    """Data parallel: every rank has a model of its own, and the mean of all gradients."""
    with torch.device("meta"):
        model = GPT(config)
        tokens = torch.zeros(2, config.context, dtype=torch.int64)
    optimizer = torch.optim.AdamW(model.parameters())
    next_token_loss(model(tokens), tokens).backward()
    for each in model.parameters():
        comm.all_reduce(each.grad, "mean")
    optimizer.step()


def test_a_training_step_is_planned():
    run = run_ranks(train_step, 4, inputs=[(TINY,)] * 4, transport=Simulated(memory=True))
    assert sum(run.ledger.bytes_sent(rank) for rank in range(4)) == 2 * 3 * 4 * TINY.parameters
    assert run.ledger.peak_bytes(0) > 4 * 4 * TINY.parameters


def test_gradients_of_a_model_that_fits_on_no_laptop_are_counted():
    def step(comm):
        with torch.device("meta"):
            model = GPT(XL)
        for each in model.parameters():
            comm.all_reduce(torch.empty_like(each))

    ledger = run_ranks(step, 2).ledger
    assert ledger.bytes_sent(0) == 4 * XL.parameters == 6_230_444_800
