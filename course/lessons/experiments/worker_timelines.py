"""When gradients travel in a step on real processes: one's own parts, and torch's DDP, on the clock of the machine.

parts --four processes over gloo--> backward, and each all-reduce from where it begins to where it ends --> Ledger

Both send through torch.distributed, whose futures tell when an all-reduce is over; DDP by a hook that does what it does
by itself, and writes down the time. Backward ends with the gradient of the embedding, which comes last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from course.cluster import Comm, Event, Ledger, run_ranks
from course.cluster.account.ledger import COMPUTE, Wait
from course.lessons.experiments.assembled_ddp import CAP, RATE, SHARDS, problem, shard
from course.lessons.models import next_token_loss

Named = Mapping[str, Callable[..., Any]]
Seen = list[tuple[str, float, float]]  # what, from when, until when, in seconds since the step began

STEPS = 3  # of which the last one is seen


class Timed:
    """A communicator whose all-reduce is torch's, and says when it is over."""

    def __init__(self, comm: Comm, clock: Clock) -> None:
        self._comm, self._clock = comm, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def all_reduce(self, tensor: Tensor, op: str = "sum", *, async_op: bool = False) -> Pending | None:
        """In place, the sum or the mean."""
        work = Pending(self._clock.all_reduce(tensor), tensor, self.size if op in ("mean", "avg") else 1)
        if async_op:
            return work
        work.wait()
        return None


class Pending:
    """A sum that may still be on its way."""

    def __init__(self, future: Any, tensor: Tensor, parts: int) -> None:
        self._future, self._tensor, self._parts = future, tensor, parts

    def wait(self) -> bool:
        """Until the tensor holds the sum, or the mean."""
        if self._parts:
            self._future.wait()
            self._tensor /= self._parts
            self._parts = 0
        return True


class Clock:
    """What happened in a step, and when."""

    def __init__(self) -> None:
        self.seen: Seen = []
        self._began = 0.0

    def start(self) -> None:
        """Forget what was before."""
        self.seen, self._began = [], time.monotonic()

    def now(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self._began

    def all_reduce(self, tensor: Tensor) -> Any:
        """A future of the sum; what it took is written down."""
        began, seen = self.now(), self.seen

        def over(future: Any) -> Tensor:
            seen.append(("all_reduce", began, self.now()))
            total: Tensor = future.value()[0]
            return total

        return dist.all_reduce(tensor.detach(), async_op=True).get_future().then(over)


def own(comm: Comm, parts: Named) -> Seen:
    """A worker of one's own parts."""
    clock = Clock()
    model, batches = problem(seed=comm.rank, steps=STEPS)
    parts["broadcast_parameters"](comm, model)
    buckets = parts["make_buckets"]([*model.parameters()], CAP)
    return _trained(
        comm, clock, model, batches, lambda loss: parts["overlapped_backward"](Timed(comm, clock), loss, buckets)
    )


def torchs(comm: Comm) -> Seen:
    """A worker with DDP."""
    clock = Clock()
    model, batches = problem(seed=comm.rank, steps=STEPS)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=CAP / 2**20)
    wrapped.register_comm_hook(
        None, lambda _, bucket: clock.all_reduce(bucket.buffer()).then(lambda future: future.value() / comm.size)
    )
    return _trained(comm, clock, wrapped, batches, torch.autograd.backward)


def timelines(parts: Named) -> dict[str, Ledger]:
    """Of both kinds."""
    runs = {
        "these parts": run_ranks(own, len(SHARDS), transport="gloo", inputs=[(dict(parts),)] * len(SHARDS)),
        "torch's DDP": run_ranks(torchs, len(SHARDS), transport="gloo"),
    }
    return {name: account(run.values) for name, run in runs.items()}


def account(seen: list[Seen]) -> Ledger:
    """What each rank has seen, as an account."""
    ledger = Ledger(size=len(seen))
    for rank, own_seen in enumerate(seen):
        calls = 0
        for what, began, ended in sorted(own_seen, key=lambda each: each[1]):
            calls += what == "all_reduce"
            if what == COMPUTE:
                ledger.events.append(Event(rank, COMPUTE, began, began, ended, label="backward"))
            else:
                ledger.events.append(Event(rank, what, began, began, ended, number=calls, is_async=True))
        backward = max(ended for what, _, ended in own_seen if what == COMPUTE)
        over = max(ended for _, _, ended in own_seen)
        if over > backward:
            ledger.waits.append(Wait(rank, backward, over, "all_reduce"))
    return ledger


def _trained(
    comm: Comm,
    clock: Clock,
    model: nn.Module,
    batches: list[tuple[Tensor, Tensor]],
    backward: Callable[[Tensor], None],
) -> Seen:
    """Plain gradient descent; what the last step showed."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    last = next(iter(model.parameters()))  # the embedding, whose gradient comes last
    for inputs, targets in (shard(each, comm.rank) for each in batches):
        optimizer.zero_grad()
        loss = next_token_loss(model(inputs), targets)
        comm.barrier()
        clock.start()
        ends: list[float] = []
        noted = last.register_hook(lambda grad, ends=ends: ends.append(clock.now()))  # type: ignore[no-untyped-call]
        backward(loss)
        noted.remove()
        clock.seen.append((COMPUTE, 0.0, ends[-1]))
        optimizer.step()
    return clock.seen
