"""Sharded training beside one process and beside torch's: the same losses under every stage, clipped and scaled too,
saved and loaded; and what each rank holds and sends.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from course.cluster import Simulated, run_ranks
from course.errors import BadArgument
from course.exercises.fsdp.checkpoints import write_file
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.reference.fsdp.load_resharded import load_resharded
from course.reference.fsdp.save_sharded import save_sharded
from course.reference.fsdp.sharded import Sharded, Sharding
from course.reference.fsdp.sharded_clip_ import sharded_clip_
from course.reference.fsdp.sharded_scaler_step import sharded_scaler_step

CONFIG = GPTConfig(vocabulary=11, context=8, width=12, heads=2, layers=3)
RATE, STEPS, BATCH = 1e-2, 3, 6
STAGES = (0, 1, 2, 3)


def gpt(frozen=False):
    """With a head that is tied to the embedding; and with two frozen parameters."""
    model = GPT(CONFIG, torch.Generator().manual_seed(0))
    if frozen:
        model.blocks[1].mlp.up.weight.requires_grad_(False)
        model.norm.bias.requires_grad_(False)
    return model


def batches(size=BATCH, steps=STEPS):
    rng = torch.Generator().manual_seed(1)
    return [torch.randint(CONFIG.vocabulary, (size, CONFIG.context + 1), generator=rng) for _ in range(steps)]


def loss_of(model, text):
    return next_token_loss(model(text[:, :-1]), text[:, 1:])


def alone(frozen=False):
    """The losses of one process."""
    model, losses = gpt(frozen), []
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=RATE)
    for text in batches():
        optimizer.zero_grad()
        loss = loss_of(model, text)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(comm, how, frozen=False):
    """This rank's losses, and the numbers that it trains."""
    model = gpt(frozen).to(comm.device)
    sharded = Sharded(comm, model, [*model.blocks], how)
    optimizer, losses = torch.optim.AdamW(sharded.shards, lr=RATE), []
    share = BATCH // comm.size
    for text in batches():
        optimizer.zero_grad()
        loss = loss_of(sharded, text[comm.rank * share :][:share].to(comm.device))
        sharded.backward(loss)
        optimizer.step()
        sharded.updated()
        losses.append(loss.item())
    return losses, sum(each.numel() for each in sharded.shards)


def whole(run):
    return [sum(each) / len(each) for each in zip(*(losses for losses, _ in run.values), strict=True)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_the_losses_of_one_process(stage, ranks):
    run = run_ranks(trained, ranks, inputs=[(Sharding(stage=stage), True)] * ranks)
    assert whole(run) == pytest.approx(alone(frozen=True), abs=1e-6)
    numbers = sum(each.numel() for each in gpt(frozen=True).parameters() if each.requires_grad)
    assert numbers <= run.values[0][1] * (ranks if stage else 1) < numbers + 5 * ranks


def test_stages_send_what_they_must():
    sent = {}
    for stage in STAGES:
        run = run_ranks(trained, 2, inputs=[(Sharding(stage=stage),)] * 2)
        sent[stage] = run.ledger.bytes_sent(0) / (4 * STEPS * CONFIG.parameters / 2)
    assert sent[0] == pytest.approx(sent[1], abs=0.01) == pytest.approx(sent[2], abs=0.01) == pytest.approx(2, abs=0.01)
    assert sent[3] == pytest.approx(3, abs=0.01)


def test_each_stage_holds_less():
    wide = dataclasses.replace(CONFIG, width=96, layers=6)

    def once(comm, how):
        model = GPT(wide, torch.Generator().manual_seed(0))
        sharded = Sharded(comm, model, [*model.blocks], how)
        optimizer = torch.optim.AdamW(sharded.shards, lr=RATE)
        sharded.backward(loss_of(sharded, batches()[0][:1]))
        optimizer.step()

    peaks = []
    for stage in STAGES:
        run = run_ranks(
            once, 4, transport=Simulated(memory=True), inputs=[(Sharding(stage=stage, prefetch=False),)] * 4
        )
        peaks.append(run.ledger.peak_bytes(0) / (4 * wide.parameters))
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[3] < 0.75 * peaks[2]


def test_prefetch_changes_no_number():
    one, other = (run_ranks(trained, 2, inputs=[(Sharding(prefetch=each),)] * 2) for each in (True, False))
    assert one.values == other.values


def test_a_checkpoint_that_runs_forward_again_finds_its_unit():
    class Checkpointed(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.block = block

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)

    def once(comm, checkpointed):
        model = gpt()
        if checkpointed:
            model.blocks = nn.ModuleList(Checkpointed(each) for each in model.blocks)
        sharded = Sharded(comm, model, [each.block if checkpointed else each for each in model.blocks])
        sharded.backward(loss_of(sharded, batches()[0]))
        return [each.grad for each in sharded.shards]

    plain, again = (run_ranks(once, 2, inputs=[(each,)] * 2).values for each in (False, True))
    assert all(
        torch.equal(a, b) for one, other in zip(plain, again, strict=True) for a, b in zip(one, other, strict=True)
    )


def test_parameters_that_are_tied_across_units_are_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    with pytest.raises(BadArgument, match="must lie in one unit"):
        Sharded(None, model, [*model])


def fully_sharded(comm, dtypes=None):
    model, mesh = gpt(), init_device_mesh("cpu", (comm.size,))
    for each in (*model.blocks, model):
        fully_shard(each, mesh=mesh, mp_policy=MixedPrecisionPolicy(*(dtypes or ())))
    return model


def torchs(comm, dtypes):
    """The same with fully_shard."""
    model = fully_sharded(comm, dtypes)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=RATE), []
    share = BATCH // comm.size
    for text in batches():
        optimizer.zero_grad()
        loss = loss_of(model, text[comm.rank * share :][:share])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, 0


@pytest.mark.parametrize("dtypes", [None, (torch.bfloat16, torch.float32)])
def test_on_processes_losses_are_those_of_fully_shard(dtypes):
    how = Sharding(gathered=dtypes[0], reduced=dtypes[1]) if dtypes else Sharding()
    ours = whole(run_ranks(trained, 2, transport="gloo", inputs=[(how,)] * 2))
    theirs = whole(run_ranks(torchs, 2, transport="gloo", inputs=[(dtypes,)] * 2))
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert ours == pytest.approx(alone(), abs=1e-6 if dtypes is None else 0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_a_gpu_every_stage_has_the_losses_of_one_process():
    for stage in STAGES:
        run = run_ranks(trained, 1, transport="nccl", inputs=[(Sharding(stage=stage),)], seconds=60)
        assert whole(run) == pytest.approx(alone(), abs=1e-4)


def test_buffers_stay_whole_and_each_ranks_own():
    def model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))

    def once(comm, x):
        net = model()
        sharded = Sharded(comm, net, [net[0], net[1]])
        sharded.backward(sharded(x).square().mean())
        return dict(net.named_buffers())

    inputs = [(torch.randn(4, 3) + rank,) for rank in range(3)]
    for found, (x,) in zip(run_ranks(once, 3, inputs=inputs).values, inputs, strict=True):
        own = model()
        own(x)
        torch.testing.assert_close(found, dict(own.named_buffers()))


# --- clipped ---

ALONE = SimpleNamespace(rank=0, size=1)


def clipping(model, backward, optimizer, clip, comm=ALONE):
    """A loss of each step, and the norm before clipping."""
    found, share = [], BATCH // comm.size
    for text in batches():
        optimizer.zero_grad()
        loss = loss_of(model, text[comm.rank * share :][:share])
        backward(loss)
        norm = clip()
        optimizer.step()
        found.append((loss.item(), float(norm)))
    return found


def clipped_alone(norm):
    """SGD, because AdamW's steps change little where all gradients are multiplied."""
    model = gpt()
    optimizer, parameters = torch.optim.SGD(model.parameters(), lr=1.0), [*model.parameters()]
    return clipping(model, torch.Tensor.backward, optimizer, lambda: nn.utils.clip_grad_norm_(parameters, norm))


def clipped(comm, how, norm):
    sharded, optimizer = sharded_sgd(comm, how)

    def clip():
        return sharded_clip_(comm, [each.grad for each in sharded.shards], norm)

    return clipping(sharded, sharded.backward, optimizer, clip, comm)


def clipped_torchs(comm, norm):
    model = fully_sharded(comm)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def clip():
        return nn.utils.clip_grad_norm_(model.parameters(), norm).full_tensor()

    return clipping(model, torch.Tensor.backward, optimizer, clip, comm)


def sharded_sgd(comm, how):
    """A model in units, and SGD that brings it up to date."""
    model = gpt()
    sharded = Sharded(comm, model, [*model.blocks], how)
    optimizer = torch.optim.SGD(sharded.shards, lr=1.0)
    optimizer.register_step_post_hook(lambda *_: sharded.updated())
    return sharded, optimizer


def means(run):
    """Of each step: the mean of the losses, and that of the norms."""
    return torch.tensor(run.values, dtype=torch.float64).mean(0)


@pytest.mark.parametrize("stage", STAGES[1:])
def test_clipping_by_the_norm_of_all_shards_is_that_of_one_process(stage):
    expected = clipped_alone(0.1)
    assert all(norm > 0.2 for _, norm in expected)
    for ranks in (1, 3):
        found = means(run_ranks(clipped, ranks, inputs=[(Sharding(stage=stage), 0.1)] * ranks))
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=2e-6)


def test_on_processes_clipping_is_that_of_torch():
    ours = run_ranks(clipped, 2, transport="gloo", inputs=[(Sharding(), 0.1)] * 2)
    theirs = run_ranks(clipped_torchs, 2, transport="gloo", inputs=[(0.1,)] * 2)
    torch.testing.assert_close(means(ours), means(theirs), rtol=0, atol=2e-6)


# --- scaled ---

SCALE, BROKEN_STEP = 1024.0, 1


def scaled(comm, how):
    """A loss and the scale after each step; in one step a number of the last rank's shards is inf."""
    sharded, optimizer = sharded_sgd(comm, how)
    found, scale, good, share = [], SCALE, 0, BATCH // comm.size
    for number, text in enumerate(batches()):
        optimizer.zero_grad()
        loss = loss_of(sharded, text[comm.rank * share :][:share])
        sharded.backward(loss * scale)
        grads = [each.grad for each in sharded.shards]
        if number == BROKEN_STEP and comm.rank == comm.size - 1:
            grads[0][0] = torch.inf
        scale, good = sharded_scaler_step(comm, grads, optimizer.step, scale, good, 1)
        found.append((loss.item(), scale))
    return found


def scaled_alone():
    """The same with torch's GradScaler in one process."""
    model = gpt()
    optimizer, found = torch.optim.SGD(model.parameters(), lr=1.0), []
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=1)
    for number, text in enumerate(batches()):
        optimizer.zero_grad()
        loss = loss_of(model, text)
        scaler.scale(loss).backward()
        if number == BROKEN_STEP:
            model.norm.bias.grad[0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        found.append((loss.item(), scaler.get_scale()))
    return found


@pytest.mark.parametrize("stage", STAGES[1:])
def test_an_inf_on_one_rank_skips_the_step_on_all(stage):
    expected = scaled_alone()
    assert [scale for _, scale in expected] == [2 * SCALE, SCALE, 2 * SCALE]
    found = means(run_ranks(scaled, 3, inputs=[(Sharding(stage=stage),)] * 3))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=2e-6)


# --- saved and loaded ---

LARGE, MOMENTS = 12, ("exp_avg", "exp_avg_sq")  # sequences that 1, 3 and 4 ranks share evenly


def losses_of(model, backward, optimizer, comm, texts):
    share, losses = LARGE // comm.size, []
    for text in texts:
        optimizer.zero_grad()
        loss = loss_of(model, text[comm.rank * share :][:share])
        backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses, 0


def going_on(comm, folder, start, stop):
    """The losses of steps start to stop; units are loaded before and saved after them, each in a folder of its own."""
    model = gpt()
    sharded = Sharded(comm, model, [*model.blocks])
    optimizer = torch.optim.AdamW(sharded.shards, lr=RATE)
    for unit, shard in enumerate(sharded.shards) if start else ():
        found = load_resharded(comm, folder / str(unit))
        shard.data.copy_(found.pop("weight"))
        optimizer.state[shard] = {"step": torch.tensor(float(start)), **found}
    losses = losses_of(sharded, sharded.backward, optimizer, comm, batches(LARGE, 4)[start:stop])
    inner = [sum(each.numel() for each in block.parameters()) for block in model.blocks]
    for unit, (shard, n) in enumerate(zip(sharded.shards, (*inner, CONFIG.parameters - sum(inner)), strict=True)):
        tensors = {"weight": shard.detach(), **{name: optimizer.state[shard][name] for name in MOMENTS}}
        save_sharded(comm, folder / str(unit), stop, tensors, n, write_file)
    return losses


def torchs_going_on(comm, folder, start, stop):
    """The same with fully_shard and torch.distributed.checkpoint."""
    model = fully_sharded(comm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    if start:
        weights, state = get_state_dict(model, optimizer)
        dcp.load({"weights": weights, "state": state}, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    losses = losses_of(model, torch.Tensor.backward, optimizer, comm, batches(LARGE, 4)[start:stop])
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"weights": weights, "state": state}, checkpoint_id=folder)
    return losses


def in_turn(function, folder, ranks, **options):
    """Losses of two steps on some ranks, and of two more on others: the last one shows the moments, too."""
    runs = [(ranks[0], 0, 2), (ranks[1], 2, 4)]
    return [
        loss
        for size, start, stop in runs
        for loss in whole(run_ranks(function, size, inputs=[(folder, start, stop)] * size, **options))
    ]


@pytest.mark.parametrize("ranks", [(4, 3), (4, 1), (1, 4)])
def test_training_goes_on_from_a_checkpoint_on_other_ranks(ranks, tmp_path):
    expected = whole(run_ranks(going_on, 1, inputs=[(tmp_path / "alone", 0, 4)]))
    assert in_turn(going_on, tmp_path / "ours", ranks) == pytest.approx(expected, abs=1e-6)


def test_on_processes_it_goes_on_as_from_torchs_checkpoint(tmp_path):
    ours = in_turn(going_on, tmp_path / "ours", (2, 3), transport="gloo")
    theirs = in_turn(torchs_going_on, tmp_path / "torchs", (2, 3), transport="gloo")
    assert ours == pytest.approx(theirs, abs=1e-6)
