"""A data parallel GPT put together from a broadcast of the parameters, buckets, an overlapped backward and a ring.

parts, variant --the same worker--> 4 processes over gloo: losses;  4 simulated ranks: seconds on slow links

Shards are unequal, so each worker weighs its loss by its share of the batch: then the mean over workers is the gradient
of the whole batch. Variants take one thing away at a time; torch's own DDP, and one process with the whole batch, stand
beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed import _compute_bucket_assignment_by_size  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course.cluster import Comm, Link, Run, Simulated, fully_connected, run_ranks
from course.lessons import grammar
from course.lessons.experiments.assembled import Parts
from course.lessons.models import GPT, GPTConfig, next_token_loss

Named = Mapping[str, Callable[..., Any]]

CONFIG = GPTConfig(vocabulary=len(grammar.ALPHABET), context=64, width=64, heads=4, layers=4)
SHARDS = (7, 4, 3, 2)  # sequences of a batch that each worker has
RATE, STEPS = 0.1, 5
CAP = 200_000  # bytes of a bucket: a block has about as many
LINK = Link(latency=1e-3, bandwidth=1e8)  # slow, so that a laptop's step has something to hide
VARIANTS = {
    "all but the ring": "ring_all_reduce",
    "your ring, too": "",
    "no buckets": "make_buckets",
    "no overlap": "overlapped_backward",
    "mean of means": "shares",
    "no broadcast": "broadcast_parameters",
}


def broadcast_parameters(comm: Comm, model: nn.Module) -> None:
    """All parameters as one vector."""
    whole = parameters_to_vector(model.parameters()).detach()
    comm.broadcast(whole, 0)
    vector_to_parameters(whole, model.parameters())


def make_buckets(params: Sequence[Tensor], cap: int) -> list[list[Tensor]]:
    """DDP's own assignment, of the parameters from the last to the first."""
    backwards = [*params][::-1]
    places, _ = _compute_bucket_assignment_by_size(backwards, [cap])
    return [[backwards[place] for place in each] for each in places]


def backward_then_reduce(comm: Comm, loss: Tensor, buckets: Sequence[Sequence[Tensor]]) -> None:
    """Backward first, then the mean of each bucket: nothing overlaps. (What DDP does stands in C++.)"""
    torch.autograd.backward(loss)
    for bucket in buckets:
        grads = [each.grad for each in bucket if each.grad is not None]
        mean = parameters_to_vector(grads)
        comm.all_reduce(mean, "mean")
        vector_to_parameters(mean, grads)


def no_ring(comm: Comm, x: Tensor) -> Tensor:
    """gloo's own sum."""
    total = x.clone()
    comm.all_reduce(total)
    return total


PARTS = Parts(
    torchs={
        "broadcast_parameters": broadcast_parameters,
        "make_buckets": make_buckets,
        "overlapped_backward": backward_then_reduce,
        "ring_all_reduce": no_ring,
    },
    names=("broadcast_parameters", "make_buckets", "overlapped_backward", "ring_all_reduce"),
)


class OwnRing:
    """A communicator whose all-reduce is made of send and recv. It is over when it returns, also with `async_op`."""

    def __init__(self, comm: Comm, ring: Callable[[Comm, Tensor], Tensor]) -> None:
        self._comm, self._ring = comm, ring

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def all_reduce(self, tensor: Tensor, op: str = "sum", *, async_op: bool = False) -> Done | None:
        """In place, the sum or the mean."""
        total = self._ring(self._comm, tensor.detach())
        tensor.detach().copy_(total / self._comm.size if op in ("mean", "avg") else total)
        return Done() if async_op else None


class Done:
    """What `async_op` returns where nothing is left to wait for."""

    def wait(self) -> bool:
        """At once."""
        return True

    def is_completed(self) -> bool:
        """It is."""
        return True


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The losses of the whole batch in nats, step by step, and the seconds of a step: real ones, and on slow links."""

    losses: list[float]
    seconds: float
    on_slow_links: float | None


def worker(comm: Comm, parts: Named, without: str, steps: int = STEPS) -> tuple[list[float], float]:
    """One worker's own mean losses, and the seconds of its fastest step."""
    parts = {**parts, **({without: PARTS.torchs[without]} if without in PARTS.torchs else {})}
    model, batches = problem(seed=comm.rank, steps=steps)
    if without != "broadcast_parameters":
        parts["broadcast_parameters"](comm, model)
    if without == "make_buckets":
        buckets = [[each] for each in reversed([*model.parameters()])]
    else:
        buckets = parts["make_buckets"]([*model.parameters()], CAP)
    alone = 1.0 if without == "shares" else SHARDS[comm.rank] * comm.size / sum(SHARDS)
    reducing = comm if without else OwnRing(comm, parts["ring_all_reduce"])  # the ring in one variant alone

    def backward(loss: Tensor) -> None:
        parts["overlapped_backward"](reducing, loss * alone, buckets)

    return _trained(model, [shard(each, comm.rank) for each in batches], backward)


def torchs_worker(comm: Comm, steps: int = STEPS) -> tuple[list[float], float]:
    """The same with torch's DDP."""
    model, batches = problem(seed=comm.rank, steps=steps)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=CAP / 2**20)
    share = SHARDS[comm.rank] * comm.size / sum(SHARDS)
    return _trained(
        wrapped, [shard(each, comm.rank) for each in batches], lambda loss: torch.autograd.backward(loss * share)
    )


def one_process(steps: int = STEPS) -> list[float]:
    """The losses of a process that has the whole batch."""
    model, batches = problem(seed=0, steps=steps)
    return _trained(model, batches, torch.autograd.backward)[0]


def problem(*, seed: int, steps: int) -> tuple[GPT, list[tuple[Tensor, Tensor]]]:
    """A model with weights by the seed, and the same batches for all."""
    rng = torch.Generator().manual_seed(1)
    tokens = grammar.encode(grammar.text(grammar.NORTH, 20_000, rng))
    batches = [grammar.batch(tokens, sum(SHARDS), CONFIG.context, rng) for _ in range(steps)]
    return GPT(CONFIG, torch.Generator().manual_seed(seed)), batches


def shard(batch: tuple[Tensor, Tensor], rank: int) -> tuple[Tensor, Tensor]:
    """A worker's sequences."""
    start = sum(SHARDS[:rank])
    inputs, targets = (each[start : start + SHARDS[rank]] for each in batch)
    return inputs, targets


def outcome(variant: str, parts: Named, steps: int = STEPS) -> Outcome:
    """Trains on four processes, and takes a step on slow links."""
    run = on_processes(variant, parts, steps)
    return Outcome(
        losses=whole(run), seconds=max(each[1] for each in run.values), on_slow_links=on_slow_links(variant, parts)
    )


def on_processes(variant: str, parts: Named, steps: int = STEPS) -> Run:
    """Four workers over gloo."""
    return run_ranks(worker, len(SHARDS), transport="gloo", inputs=[(dict(parts), VARIANTS[variant], steps)] * 4)


def on_slow_links(variant: str, parts: Named, clock: Literal["measured", "declared"] = "measured") -> float:
    """Seconds of a step on simulated ranks: three steps less a single one, each the faster of two runs.

    clock  "declared": of communication alone, which takes the same in every run
    """
    slow = Simulated(topology=fully_connected(len(SHARDS), LINK), clock=clock)

    def makespan(steps: int) -> float:
        inputs = [(dict(parts), VARIANTS[variant], steps)] * len(SHARDS)
        return run_ranks(worker, len(SHARDS), transport=slow, inputs=inputs).ledger.makespan

    runs = 2 if clock == "measured" else 1
    three, one = (min(makespan(steps) for _ in range(runs)) for steps in (3, 1))
    return (three - one) / 2


def torchs(steps: int = STEPS) -> Outcome:
    """torch's DDP on four processes."""
    run = run_ranks(torchs_worker, len(SHARDS), transport="gloo", inputs=[(steps,)] * len(SHARDS))
    return Outcome(losses=whole(run), seconds=max(each[1] for each in run.values), on_slow_links=None)


def whole(run: Run) -> list[float]:
    """The losses of the whole batch, from those of its shards."""
    rows = [[loss * size for loss in losses] for size, (losses, _) in zip(SHARDS, run.values, strict=True)]
    return [sum(each) / sum(SHARDS) for each in zip(*rows, strict=True)]


def table(parts: Named) -> Iterator[str]:
    """Line by line, as they come."""
    yield f"{'':17}  ms per step  ms on slow links  losses, nats: the first, and the last two"
    yield _line("one process", Outcome(losses=one_process(), seconds=0.0, on_slow_links=None))
    yield _line("torch's DDP", torchs())
    for variant in VARIANTS:
        yield _line(variant, outcome(variant, parts))


def _line(name: str, found: Outcome) -> str:
    took = f"{found.seconds * 1e3:11.0f}" if found.seconds else " " * 11
    slow = f"{found.on_slow_links * 1e3:16.0f}" if found.on_slow_links else " " * 16
    shown = [found.losses[0], *found.losses[-2:]]
    return f"{name:17}  {took}  {slow}  {'  '.join(f'{loss:.6f}' for loss in shown)}"


def _trained(
    model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]], backward: Callable[[Tensor], None]
) -> tuple[list[float], float]:
    """The losses of plain gradient descent, and the seconds of the fastest step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses, seconds = [], []
    for inputs, targets in batches:
        optimizer.zero_grad()
        start = time.perf_counter()
        loss = next_token_loss(model(inputs), targets)
        backward(loss)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses += [loss.item()]
    return losses, min(seconds)
