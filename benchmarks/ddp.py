"""Our data parallel step beside torch's DDP, on processes over gloo; and the simulator's idea of it.

    python benchmarks/ddp.py [--workers 2 4] [--blocks 4] [--repeats 15]

A GPT 128 wide on 4 x 128 tokens for each worker, with buckets of 256 KiB. In every turn each worker takes one step of
each kind, after a barrier; a step's time is that of its slowest worker, and ratios are taken within one turn. Bytes are
those that the ledger counts in a step. The simulator is told how long backward takes while all workers compute and none
sends, and what an all-reduce of two sizes takes: from the two come latency and bandwidth of the links.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from measuring import machine, table
from rich.console import Console
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course.cluster import Comm, Link, run_ranks
from course.lessons.experiments.worker_step import Gradient, simulated
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.reference.ddp.make_buckets import make_buckets
from course.reference.ddp.overlapped_backward import overlapped_backward

CAP, BATCH, TIME, WIDTH, VOCABULARY = 2**18, 4, 128, 128, 64
SMALL, LARGE = 2**12, 2**20  # bytes of the all-reduces that are timed
OURS, TORCHS, AFTER, ALONE = "ours", "torch's DDP", "ours, after backward", "no reduction"


class Found(NamedTuple):
    """Seconds of a worker: of every kind of step, turn by turn, and of an all-reduce by its bytes."""

    steps: dict[str, list[float]]
    reductions: dict[int, float]


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


def report(console: Console, workers: int, blocks: int, repeats: int) -> None:
    """Two tables: steps beside torch's DDP, and the simulator's step beside the real one."""
    run = run_ranks(timed, workers, transport="gloo", inputs=[(blocks, repeats)] * workers)
    slowest = {name: _slowest([each.steps[name] for each in run.values]) for name in run.values[0].steps}
    made = table(f"{workers} workers, {blocks} blocks", "step", "time", "bytes of a worker")
    for name, seconds in slowest.items():
        ratio = statistics.median(a / b for a, b in zip(seconds, slowest[TORCHS], strict=True))
        shown = f"{1e3 * statistics.median(seconds):.1f} ms" if name == TORCHS else f"{ratio:.2f}"
        made.add_row(name, shown, f"{sent(name, workers, blocks):,}")
    console.print(made)
    console.print(
        f"sending during backward takes {_ratio(slowest[OURS], slowest[AFTER]):.2f} of the time of sending after it"
    )
    link = fitted({size: max(each.reductions[size] for each in run.values) for size in (SMALL, LARGE)}, workers)
    if link is None:
        console.print(f"{LARGE:,} bytes took no longer than {SMALL:,}: too much else runs here to predict a step\n")
        return
    predicted = simulated(workers, link, cap=CAP, gradients=gradients(slowest[ALONE], blocks)).makespan
    measured = statistics.median(slowest[OURS])
    console.print(
        f"simulated {1e3 * predicted:.1f} ms, measured {1e3 * measured:.1f} ms: {predicted / measured - 1:+.0%} "
        f"(links of {1e6 * link.latency:.0f} microseconds and {link.bandwidth / 1e6:.0f} MB/s)\n"
    )


def timed(comm: Comm, blocks: int, repeats: int) -> Found:
    """What one worker measures."""
    steps = kinds(comm, blocks)
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 2):
        for name, step in steps.items():
            seconds = _seconds(comm, step)
            if turn > 1:  # the first ones make connections and buffers
                found[name].append(seconds)
    reductions = {}
    for size in (SMALL, LARGE):
        tensor = torch.zeros(size // 4)
        reductions[size] = statistics.median(_seconds(comm, lambda: comm.all_reduce(tensor)) for _ in range(31))  # noqa: B023
    return Found(found, reductions)


def kinds(comm: Comm, blocks: int) -> Mapping[str, Callable[[], None]]:
    """One step of each kind, on a model of its own."""
    text = torch.randint(VOCABULARY, (BATCH, TIME + 1), generator=torch.Generator().manual_seed(comm.rank))
    models = {name: _model(blocks) for name in (OURS, TORCHS, AFTER, ALONE)}
    buckets = {name: make_buckets([*model.parameters()], CAP) for name, model in models.items()}
    wrapped: dict[str, nn.Module] = {
        **models,
        TORCHS: DistributedDataParallel(models[TORCHS], bucket_cap_mb=CAP / 2**20),
    }

    def step(name: str, backward: Callable[[Tensor], None]) -> None:
        models[name].zero_grad()
        backward(next_token_loss(wrapped[name](text[:, :-1]), text[:, 1:]))

    def after(loss: Tensor) -> None:
        torch.autograd.backward(loss)
        for bucket in buckets[AFTER]:
            flat = torch.cat([p.grad.flatten() for p in bucket if p.grad is not None])
            comm.all_reduce(flat, "mean")
            for p, mean in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
                p.grad = mean.view_as(p)

    return {
        TORCHS: lambda: step(TORCHS, torch.autograd.backward),
        OURS: lambda: step(OURS, lambda loss: overlapped_backward(comm, loss, buckets[OURS])),
        AFTER: lambda: step(AFTER, after),
        ALONE: lambda: step(ALONE, torch.autograd.backward),
    }


def sent(name: str, workers: int, blocks: int) -> int:
    """Bytes that worker 0 sends in a second step."""

    def steps(comm: Comm, count: int) -> None:
        step = kinds(comm, blocks)[name]
        for _ in range(count):
            step()

    one, two = (
        run_ranks(steps, workers, transport="gloo", inputs=[(count,)] * workers).ledger.bytes_sent(0)
        for count in (1, 2)
    )
    return two - one


def gradients(seconds: list[float], blocks: int) -> tuple[Gradient, ...]:
    """The model's, with two thirds of a step's time shared by their sizes."""
    sizes = [(name, each.numel()) for name, each in _model(blocks).named_parameters()]
    whole, backward = sum(size for _, size in sizes), 2 / 3 * statistics.median(seconds)
    return tuple(Gradient(name=name, numbers=size, seconds=backward * size / whole) for name, size in sizes)


def fitted(seconds: Mapping[int, float], workers: int) -> Link | None:
    """The link with which a ring takes these seconds for these bytes; None where more bytes took no longer."""
    (small, quick), (large, slow) = sorted(seconds.items())
    if slow <= quick:
        return None
    rounds = 2 * (workers - 1)
    bandwidth = rounds * (large - small) / workers / (slow - quick)
    return Link(latency=max(0.0, quick / rounds - small / workers / bandwidth), bandwidth=bandwidth)


def _model(blocks: int) -> GPT:
    config = GPTConfig(vocabulary=VOCABULARY, context=TIME, width=WIDTH, heads=4, layers=blocks)
    return GPT(config, torch.Generator().manual_seed(0))


def _seconds(comm: Comm, work: Callable[[], None]) -> float:
    comm.barrier()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _slowest(rows: list[list[float]]) -> list[float]:
    return [max(each) for each in zip(*rows, strict=True)]


def _ratio(these: list[float], those: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


if __name__ == "__main__":
    main()
