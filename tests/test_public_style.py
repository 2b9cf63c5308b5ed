"""Programs for torch.distributed, written as public ones are, on gloo ranks as they stand: docs/ranks.md lists them.

Each trains the same small model as one process does, or hands on what it has; all of them in one launch.
"""

from __future__ import annotations

import os
import tempfile

import pytest
import torch
import torch.distributed as dist
from gloo_room import by_value, gloo
from torch import nn

from course.cluster import RanksFailed
from course.cluster.processes import torch_own

by_value(__name__)

RANKS, STEPS = 4, 3


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def batches():
    rng = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 8, generator=rng), torch.randn(8, 8, generator=rng)) for _ in range(STEPS)]


def adam(net):
    return torch.optim.Adam(net.parameters(), 0.01, foreach=False)


def train(net, optimizer, share=lambda rows: rows):
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(share(x)), share(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def data_parallel(net, optimizer):
    """Each rank has its share of the batch; the mean of their losses."""
    losses = train(net, optimizer, lambda rows: rows.chunk(dist.get_world_size())[dist.get_rank()])
    dist.all_reduce(losses)
    return losses / dist.get_world_size()


def ddp():
    net = nn.parallel.DistributedDataParallel(model())
    return data_parallel(net, adam(net))


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    net = model()
    for layer in (net[0], net[2], net):
        fully_shard(layer)
    return data_parallel(net, adam(net))


def hsdp():
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    net = fully_shard(model(), mesh=mesh)
    return data_parallel(net, adam(net))


def zero1():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(model())
    return data_parallel(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01))


def dtensor():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(net, adam(net))


def pipelining():
    """Two stages on the first two ranks; the second one has the losses."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    pair = dist.new_group([0, 1])
    rank, layers, losses = dist.get_rank(), model(), []
    if rank < 2:
        part = layers[:2] if rank == 0 else layers[2:]
        stage = PipelineStage(part, rank, 2, torch.device("cpu"), group=pair)
        schedule, optimizer = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss), adam(part)
        for x, y in batches():
            optimizer.zero_grad()
            found = []
            schedule.step(x) if rank == 0 else schedule.step(target=y, losses=found)
            optimizer.step()
            losses.append(sum(found).detach() / 2 if found else torch.zeros(()))
    told = [torch.stack(losses) if losses else None]
    dist.broadcast_object_list(told, src=1)
    return told[0]


def checkpoints():
    """The losses of a model that was saved, spoilt and loaded."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard

    net = fully_shard(model())
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    dcp.save({"model": net.state_dict()}, checkpoint_id=folder[0])
    for each in net.parameters():
        nn.init.zeros_(each)
    state = {"model": net.state_dict()}
    dcp.load(state, checkpoint_id=folder[0])
    net.load_state_dict(state["model"])
    return data_parallel(net, adam(net))


def script():
    """As a file for torchrun: its own group, made and destroyed, more than once."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    assert local == (rank, size)
    assert os.environ["MASTER_ADDR"] == "127.0.0.1"
    assert int(os.environ["MASTER_PORT"]) > 0
    dist.init_process_group("gloo", rank=rank, world_size=size)
    losses = ddp()
    dist.destroy_process_group()
    dist.destroy_process_group()
    dist.init_process_group(backend="cpu:gloo,cuda:nccl")
    dist.barrier()
    return losses


PROGRAMS = {each.__name__: each for each in (ddp, fsdp2, hsdp, zero1, dtensor, pipelining, checkpoints, script)}


def all_of_them(comm, programs):
    return {name: program() for name, program in programs.items()}


@pytest.fixture(scope="module")
def run():
    return gloo(all_of_them, RANKS, inputs=[(PROGRAMS,)] * RANKS, seconds=60)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_trains_as_one_process_does(run, name):
    net = model()
    expected = train(net, adam(net))
    for found in run.values:
        torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-6)


# --- what has connections or processes of its own ---


def test_remote_calls_reach_every_rank():
    def calls(comm):
        from torch.distributed import rpc

        rpc.init_rpc(f"rank{comm.rank}", rank=comm.rank, world_size=comm.size)
        asked = [rpc.rpc_async(f"rank{rank}", torch.add, args=(torch.ones(1), comm.rank)) for rank in range(comm.size)]
        kept = rpc.remote("rank0", torch.mul, args=(torch.ones(1), 10))
        found = [each.wait().item() for each in asked] + [kept.to_here().item()]
        rpc.shutdown()
        return found

    ran = gloo(calls)
    assert ran.values == [[1.0, 1.0, 10.0], [2.0, 2.0, 10.0]]
    assert not ran.ledger.events  # they go by connections of torch's own


def test_what_starts_processes_starts_them_on_every_rank(capfd):
    def starts(comm):
        torch.multiprocessing.start_processes(lambda place: print("process", place), nprocs=2, start_method="fork")

    gloo(starts)
    told = [f"[rank {rank}] process {place}" for rank in range(2) for place in range(2)]
    assert sorted(capfd.readouterr().out.splitlines()) == told


# --- the account of what torch sends ---


def test_what_torch_sends_is_in_the_ledger():
    def step(comm):
        x = torch.ones(6)
        comm.all_reduce(x)
        dist.all_reduce(torch.ones(60))
        dist.send(x, 1) if comm.rank == 0 else dist.recv(x, 0)
        net = nn.parallel.DistributedDataParallel(nn.Linear(8, 2))
        net(torch.ones(1, 8)).sum().backward()

    ledger = gloo(step).ledger
    sent = [(each.verb, each.sent, each.label) for each in ledger.events if each.rank == 0]
    own, torchs = ("all_reduce", 24, ""), "torch.distributed"
    assert own in sent
    assert [each for each in sent if each[0] in ("all_reduce", "send") and each != own] == [
        ("all_reduce", 240, torchs),
        ("send", 24, torchs),
        ("all_reduce", 4 * (8 * 2 + 2), torchs),
    ]
    assert ledger.bytes_sent(0) == sum(each for _, each, _ in sent)
    assert "not counted" not in repr(ledger)


COLLECTIVES = {
    "all_gather": (lambda x: dist.all_gather([torch.ones(8) for _ in range(RANKS)], x), 3 * 32),
    "all_gather_single": (lambda x: dist.all_gather_single(torch.ones(32), x), 3 * 32),
    "all_to_all": (lambda x: dist.all_to_all_single(torch.ones(8), x), 3 * 8),
    "broadcast": (lambda x: dist.broadcast(x, 0), 32),
    "reduce": (lambda x: dist.reduce(x, 0), 0),
    "gather": (lambda x: dist.gather(x, [torch.ones(8) for _ in range(RANKS)] if dist.get_rank() == 0 else None), 0),
    "barrier": (lambda x: dist.barrier(), 0),
}


def test_each_collective_of_torch_costs_what_ours_costs():
    def step(comm, collectives):
        for name in sorted(collectives):
            collectives[name](torch.ones(8))

    functions = {name: function for name, (function, _) in COLLECTIVES.items()}
    ledger = gloo(step, RANKS, inputs=[(functions,)] * RANKS).ledger
    sent = [each.sent for each in ledger.events if each.rank == 0]
    assert sent == [COLLECTIVES[name][1] for name in sorted(COLLECTIVES)]


@pytest.mark.parametrize("holds", [20, 0])
def test_what_is_too_much_to_hold_is_said(monkeypatch, holds):
    def step(comm):
        for _ in range(30):
            dist.all_reduce(torch.ones(1))

    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", str(holds))
    ledger = gloo(step).ledger
    assert len(ledger.calls(0)) == holds
    assert f"{2 * (30 - holds)} collectives of torch's own not counted" in repr(ledger)


ASKED = {
    "init_process_group must ask for the group of this run, whose world_size is 2, got 3; leave it out": {
        "world_size": 3
    },
    "init_process_group must ask for the backend of this run, gloo, got nccl; run it with": {"backend": "nccl"},
}


@pytest.mark.parametrize("words", ASKED)
def test_a_script_that_asks_for_another_group_is_told(words):
    with pytest.raises(RanksFailed) as failed:
        gloo(lambda comm, options: dist.init_process_group(**options), inputs=[(ASKED[words],)] * 2)
    assert words in str(failed.value)


def test_the_recorder_names_dtypes_that_we_know():
    assert set(torch_own.DTYPES.values()) > {torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool}
