"""Our sharded training step beside torch's fully_shard and DDP, on processes over gloo: its time, memory and bytes.

    python benchmarks/fsdp.py [--workers 2 4] [--blocks 4] [--repeats 15]

A GPT 128 wide on 4 x 128 tokens for each worker; each block is a unit, DDP's buckets have 256 KiB, and the optimizer is
torch's AdamW for all. In every turn each worker takes one step of each kind, after a barrier; a step's time is that of
its slowest worker, and ratios are taken within one turn: of the whole step, and of forward and backward alone. Peaks
come from a third step that is not timed: the most bytes of storages that a worker holds after any op, states included;
"between steps" is what it holds before it. Bytes sent are those that the ledger counts in a step.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from measuring import machine, table
from rich.console import Console
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from course.cluster import Comm, run_ranks
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.meter import KeptBytes, kept_bytes
from course.reference.fsdp.sharded import Sharded, Sharding

CAP, BATCH, TIME, WIDTH, VOCABULARY = 2**18, 4, 128, 128, 64
TORCHS, DDP = "torch's fully_shard", "torch's DDP"
OURS = {
    "stage 3": Sharding(),
    "stage 3, no prefetch": Sharding(prefetch=False),
    "stage 2": Sharding(stage=2),
    "stage 1": Sharding(stage=1),
    "stage 0": Sharding(stage=0),
}
KINDS = (TORCHS, DDP, *OURS)


class Step(NamedTuple):
    """backward: forward and backward; update: what the optimizer does, and what must follow it."""

    backward: Callable[[], None]
    update: Callable[[], None]


class Found(NamedTuple):
    """Seconds of a worker, turn by turn, by the kind of step."""

    backward: dict[str, list[float]]
    whole: dict[str, list[float]]


class Bytes(NamedTuple):
    """Of a worker: between two steps, and the most in one."""

    between: int
    peak: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--blocks", type=int, default=4, help="of the GPT")
    parser.add_argument("--repeats", type=int, default=15, help="turns")
    given = parser.parse_args()
    console = Console(width=130)
    console.print(f"{machine()}, torch {torch.__version__}; load {os.getloadavg()[0]:.1f} at the start")
    for workers in given.workers:
        report(console, workers, given.blocks, given.repeats)
    console.print(f"load {os.getloadavg()[0]:.1f} at the end")


def report(console: Console, workers: int, blocks: int, repeats: int) -> None:
    """A row for each kind of step, and the calls of two of them."""
    run = run_ranks(timed, workers, transport="gloo", inputs=[(blocks, repeats)] * workers)
    backward, whole = (_slowest([each[part] for each in run.values]) for part in (0, 1))
    numbers = sum(each.numel() for each in _model(blocks).parameters())
    made = table(
        f"{workers} workers, {blocks} blocks, {numbers:,} parameters",
        *("step", "time", "forward and backward", "between steps, MiB", "peak, MiB", "bytes of a worker"),
    )
    calls = {}
    for name in KINDS:
        times = [_shown(part[name], part[TORCHS], name) for part in (whole, backward)]
        held = run_ranks(measured, workers, transport="gloo", inputs=[(name, blocks)] * workers).values
        most = [max(each[part] for each in held) / 2**20 for part in (0, 1)]
        sent, calls[name] = moved(name, workers, blocks)
        made.add_row(name, *times, *(f"{each:.2f}" for each in most), f"{sent:,}")
    console.print(made)
    for name in (TORCHS, "stage 3"):
        console.print(f"calls of {name}: {', '.join(f'{count} {verb}' for verb, count in calls[name].items())}")
    console.print()


def timed(comm: Comm, blocks: int, repeats: int) -> Found:
    """What one worker measures."""
    steps = {name: step_of(comm, name, blocks) for name in KINDS}
    found = Found({name: [] for name in steps}, {name: [] for name in steps})
    for turn in range(repeats + 2):
        for name, step in steps.items():
            comm.barrier()
            start = time.perf_counter()
            step.backward()
            middle = time.perf_counter()
            step.update()
            if turn > 1:  # the first ones make connections, buffers and states
                found.backward[name].append(middle - start)
                found.whole[name].append(time.perf_counter() - start)
    return found


def measured(comm: Comm, name: str, blocks: int) -> Bytes:
    """Bytes of storages that are alive between the second and the third step, and the most in the third."""
    peak = 0

    def look(meter: KeptBytes) -> None:
        nonlocal peak
        peak = max(peak, meter.bytes_alive())

    with kept_bytes(after=look) as meter:
        step = step_of(comm, name, blocks)
        for _ in range(2):
            step.backward()
            step.update()
        gc.collect()
        comm.barrier()  # what has been sent is dropped
        between = peak = meter.bytes_alive()
        step.backward()
        step.update()
    return Bytes(between, peak)


def moved(name: str, workers: int, blocks: int) -> tuple[int, dict[str, int]]:
    """Bytes that worker 0 sends in a second step, and its calls in that step by their verb."""

    def steps(comm: Comm, count: int) -> None:
        step = step_of(comm, name, blocks)
        for _ in range(count):
            step.backward()
            step.update()

    one, two = (run_ranks(steps, workers, transport="gloo", inputs=[(count,)] * workers).ledger for count in (1, 2))
    calls = two.calls(0)[len(one.calls(0)) :]
    return two.bytes_sent(0) - one.bytes_sent(0), {verb: calls.count(verb) for verb in sorted(set(calls))}


def step_of(comm: Comm, name: str, blocks: int) -> Step:
    """A step of one kind, on a model of its own."""
    text = torch.randint(VOCABULARY, (BATCH, TIME + 1), generator=torch.Generator().manual_seed(comm.rank))
    model = _model(blocks)
    wrapped: Callable[[Tensor], Any] = model
    if name in OURS:
        sharded = wrapped = Sharded(comm, model, [*model.blocks], OURS[name])
        ours = torch.optim.AdamW(sharded.shards)

        def update() -> None:
            ours.step()
            ours.zero_grad()
            sharded.updated()

        return Step(lambda: sharded.backward(next_token_loss(sharded(text[:, :-1]), text[:, 1:])), update)
    if name == TORCHS:
        mesh = init_device_mesh("cpu", (comm.size,))
        for each in (*model.blocks, model):
            fully_shard(each, mesh=mesh)
    else:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=CAP / 2**20)
    torchs = torch.optim.AdamW(model.parameters())

    def torchs_update() -> None:
        torchs.step()
        torchs.zero_grad()

    return Step(lambda: next_token_loss(wrapped(text[:, :-1]), text[:, 1:]).backward(), torchs_update)


def _model(blocks: int) -> GPT:
    config = GPTConfig(vocabulary=VOCABULARY, context=TIME, width=WIDTH, heads=4, layers=blocks)
    return GPT(config, torch.Generator().manual_seed(0))


def _slowest(workers: list[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    return {name: [max(each) for each in zip(*(one[name] for one in workers), strict=True)] for name in workers[0]}


def _shown(seconds: list[float], beside: list[float], name: str) -> str:
    if name == TORCHS:
        return f"{1e3 * statistics.median(seconds):.1f} ms"
    return f"{statistics.median(a / b for a, b in zip(seconds, beside, strict=True)):.2f}"


if __name__ == "__main__":
    main()
