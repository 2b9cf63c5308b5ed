"""A sharded GPT on four processes, put together from shards, ZeRO's steps, a schedule of units and a clipping by all.

parts, variant --the same worker--> 4 processes over gloo: losses, bytes held at the highest, bytes sent

Every variant takes the same steps of AdamW on the same batches. Beside the stages stand one process with the whole
batch, and torch's fully_shard. The GPT is a chain of units: its embeddings, its blocks, its last norm and head.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.func import functional_call
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from course.cluster import Comm, Run, run_ranks
from course.lessons import grammar
from course.lessons.experiments.assembled import Parts, having
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.meter import KeptBytes, kept_bytes

Named = Mapping[str, Callable[..., Any]]

CONFIG = GPTConfig(vocabulary=len(grammar.ALPHABET), context=32, width=128, heads=4, layers=4, tied=False)
RANKS, BATCH = 4, 8  # sequences in all
STEPS, RATE, DECAY, NORM = 3, 3e-4, 0.01, 0.5


class Start(nn.Module):
    """Tokens to vectors."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.tokens, self.positions = model.token_embedding, model.position_embedding

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, time) to (batch, time, width)."""
        x: Tensor = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[-1]))
        return x


class End(nn.Module):
    """Vectors to logits."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.norm, self.head = model.norm, model.head

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) to (batch, time, vocabulary)."""
        logits: Tensor = self.head(self.norm(x))
        return logits


def units_of(model: GPT) -> list[nn.Module]:
    """The model as a chain of modules that are called one after the other."""
    return [Start(model), *model.blocks, End(model)]


# --- torch's parts -----------------------------------------------------------------------------------------


def shard_flat(params: Sequence[Tensor], size: int, rank: int) -> Tensor:
    """A part of all as one vector, filled up with zeros."""
    row = nn.utils.parameters_to_vector(params).detach()
    padded = nn.functional.pad(row, (0, -len(row) % size))
    return torch.tensor_split(padded, size)[rank].contiguous().clone()


def unshard(comm: Comm, own: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Parts of all ranks as parameters that torch fills from a vector."""
    parts = [torch.empty_like(own) for _ in range(comm.size)]
    comm.all_gather(parts, own)
    tensors: list[Tensor] = [own.new_empty(shape) for shape in shapes]
    nn.utils.vector_to_parameters(torch.hstack(parts)[: sum(each.numel() for each in tensors)], tensors)
    return tensors


def zero1_step(comm: Comm, params: Sequence[Parameter], state: dict[str, Any], **options: Any) -> None:
    """The whole optimizer on every rank: torch's ZeroRedundancyOptimizer gives whole parameters to single ranks."""
    mean_of_gradients(comm, params)
    state.setdefault("adamw", torch.optim.AdamW(params, **options)).step()


def zero2_backward(comm: Comm, loss: Tensor, buckets: Sequence[Sequence[Parameter]]) -> list[Tensor]:
    """Backward first, and everything that it gives; then every rank keeps its part. (What FSDP does is its own.)"""
    torch.autograd.backward(loss)
    found = []
    for bucket in buckets:
        mean_of_gradients(comm, bucket)
        found.append(shard_flat([each.grad for each in bucket if each.grad is not None], comm.size, comm.rank))
        for each in bucket:
            each.grad = None
    return found


def mean_of_gradients(comm: Comm, params: Sequence[Parameter]) -> None:
    """As data parallelism leaves them."""
    for each in params:
        if each.grad is not None:
            comm.all_reduce(each.grad, "mean")


def sharded_clip_(comm: Comm, grads: list[Tensor], max_norm: float) -> Tensor:
    """torch's norm of a rank's own, those of all ranks, and torch's scaling."""
    norms = [torch.zeros(()) for _ in range(comm.size)]
    comm.all_gather(norms, nn.utils.get_total_norm(grads))
    norm = nn.utils.get_total_norm(norms)
    nn.utils.clip_grads_with_norm_(having(grads), max_norm, norm)
    return norm


def run_units(
    comm: Comm,
    shards: Sequence[Tensor],
    forward: Callable[[int, Tensor, Any], Any],
    backward: Callable[[int, Tensor, Any, Any], tuple[Any, Tensor]],
    x: Any,
    dy: Any,
    prefetch: bool,
) -> tuple[Any, Any, list[Tensor]]:
    """All units are gathered first, and stay. (What FSDP does are hooks of its modules.)"""
    units = [torch.hstack(_all_of(comm, each)) for each in shards]
    inputs = [x]
    for number, unit in enumerate(units):
        inputs.append(forward(number, unit, inputs[number]))
    found = []
    for number in range(len(units) - 1, -1, -1):
        dy, gradient = backward(number, units[number], inputs[number], dy)
        comm.all_reduce(gradient, "mean")
        found.append(gradient.view(comm.size, -1)[comm.rank])
    return inputs[-1], dy, found[::-1]


def _all_of(comm: Comm, own: Tensor) -> list[Tensor]:
    parts = [torch.empty_like(own) for _ in range(comm.size)]
    comm.all_gather(parts, own)
    return parts


PARTS = Parts(
    torchs={
        "shard_flat": shard_flat,
        "unshard": unshard,
        "zero1_step": zero1_step,
        "zero2_backward": zero2_backward,
        "run_units": run_units,
        "sharded_clip_": sharded_clip_,
    },
    names=("shard_flat", "unshard", "zero1_step", "zero2_backward", "run_units", "sharded_clip_"),
)


# --- steps -------------------------------------------------------------------------------------------------

Step = Callable[[Tensor, Tensor], float]  # a rank's tokens and targets to its loss


def stage_0(comm: Comm, parts: Named) -> Step:
    """torch's DDP and AdamW: everything on every rank."""
    model = _model()
    wrapped = DistributedDataParallel(model)
    optimizer = _adamw(model.parameters())

    def step(tokens: Tensor, targets: Tensor) -> float:
        loss = _backward(wrapped, tokens, targets)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def stage_1(comm: Comm, parts: Named) -> Step:
    """States are sharded."""
    model, state = _model(), dict[str, Any]()
    params = [*model.parameters()]

    def step(tokens: Tensor, targets: Tensor) -> float:
        loss = _backward(model, tokens, targets)
        parts["zero1_step"](comm, params, state, lr=RATE, weight_decay=DECAY)
        model.zero_grad()
        return loss

    return step


def stage_2(comm: Comm, parts: Named) -> Step:
    """Gradients too, in a bucket for each unit."""
    model = _model()
    buckets = [[*each.parameters()] for each in reversed(units_of(model))]
    shards = [Parameter(parts["shard_flat"](each, comm.size, comm.rank)) for each in buckets]
    optimizer = _adamw(shards)

    def step(tokens: Tensor, targets: Tensor) -> float:
        loss = next_token_loss(model(tokens), targets)
        for shard, grad in zip(shards, parts["zero2_backward"](comm, loss, buckets), strict=True):
            shard.grad = grad
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for bucket, shard in zip(buckets, shards, strict=True):
                full = parts["unshard"](comm, shard.detach(), [each.shape for each in bucket])
                torch._foreach_copy_([*bucket], full)
        return loss.item()

    return step


def stage_3(comm: Comm, parts: Named, *, prefetch: bool, clipping: bool = False) -> Step:
    """Parameters too: units without memory, whose parameters are handed in."""
    chain = units_of(_model())
    params = [[*each.parameters()] for each in chain]
    names = [[name for name, _ in each.named_parameters()] for each in chain]
    shapes = [[each.shape for each in unit] for unit in params]
    shards = [Parameter(parts["shard_flat"](each, comm.size, comm.rank)) for each in params]
    for each in itertools.chain(*params):
        each.untyped_storage().resize_(0)  # what a unit computes with is handed in
    optimizer = _adamw(shards)

    def forward(number: int, full: Tensor, x: Tensor) -> Tensor:
        named = dict(zip(names[number], _views(full, shapes[number]), strict=True))
        y: Tensor = functional_call(chain[number], named, (x,))
        return y

    def step(tokens: Tensor, targets: Tensor) -> float:
        def loss_of(number: int, full: Tensor, x: Tensor) -> Tensor:
            y = forward(number, full, x)
            return next_token_loss(y, targets) if number == len(chain) - 1 else y

        def no_graph(number: int, full: Tensor, x: Tensor) -> Tensor:
            with torch.no_grad():
                return loss_of(number, full, x)

        def backward(number: int, full: Tensor, x: Tensor, dy: Tensor) -> tuple[Tensor | None, Tensor]:
            leaves = [full.detach().requires_grad_(), *([x.detach().requires_grad_()] if number else [])]
            with torch.enable_grad():  # forward once more: a unit keeps its input alone
                y = loss_of(number, leaves[0], leaves[1] if number else x)
            dfull, *dx = torch.autograd.grad(y, leaves, dy)
            return (dx[0] if dx else None), dfull

        own = [each.detach() for each in shards]
        loss, _, grads = parts["run_units"](comm, own, no_graph, backward, tokens, torch.ones(()), prefetch)
        if clipping:
            parts["sharded_clip_"](comm, grads, NORM)
        for shard, grad in zip(shards, grads, strict=True):
            shard.grad = grad
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    return step


def fully_sharded(comm: Comm, dtypes: Sequence[torch.dtype] = ()) -> Step:
    """torch's fully_shard. dtypes: of what is gathered, and of what is reduced; none: float32."""
    model = _model()
    mesh = init_device_mesh("cpu", (comm.size,))
    gathered, reduced = (*dtypes, None, None)[:2]
    policy = MixedPrecisionPolicy(param_dtype=gathered, reduce_dtype=reduced)
    for each in (*model.blocks, model):
        fully_shard(each, mesh=mesh, mp_policy=policy)
    optimizer = _adamw(model.parameters())

    def step(tokens: Tensor, targets: Tensor) -> float:
        loss = _backward(model, tokens, targets)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


STEPS_OF: Mapping[str, Callable[[Comm, Named], Step]] = {
    "stage 0": stage_0,
    "stage 1": stage_1,
    "stage 2": stage_2,
    "stage 3": partial(stage_3, prefetch=False),
    "and prefetch": partial(stage_3, prefetch=True),
    "and clipping": partial(stage_3, prefetch=True, clipping=True),
}


def one_process(*, clipping: bool = False, steps: int = STEPS) -> list[float]:
    """The losses of a process that has the whole batch."""
    model, losses = _model(), []
    optimizer = _adamw(model.parameters())
    for tokens, targets in _batches(steps):
        losses.append(_backward(model, tokens, targets))
        if clipping:
            nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        optimizer.zero_grad()
    return losses


# --- runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Of one rank: the losses of its samples, and the bytes of its tensors after a step and at the highest."""

    losses: list[float]
    kept: int
    peak: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of a run: losses of the whole batch, a rank's bytes after a step and at the highest, those sent in a step.

    That DDP broadcasts all parameters before the first step is not counted.
    """

    losses: list[float]
    kept: int
    peak: int
    sent: float


def worker(comm: Comm, making: Callable[..., Step], given: Sequence[Any], steps: int, counts: bool) -> Seen:
    """One rank's training. making: what makes its step, from the communicator and what else is given.

    counts  whether to count bytes: in the last step, when optimizer states are there, because it takes most of its time
    """
    losses: list[float] = []
    peak = 0

    def look(meter: KeptBytes) -> None:
        nonlocal peak
        if len(losses) == steps - 1:
            peak = max(peak, meter.bytes_alive())

    with kept_bytes(after=look) if counts else contextlib.nullcontext() as meter:
        step = making(comm, *given)
        for tokens, targets in _batches(steps):
            share = len(tokens) // comm.size
            own = slice(comm.rank * share, (comm.rank + 1) * share)
            losses.append(step(tokens[own], targets[own]))
        kept = meter.bytes_alive() if meter else 0
    return Seen(losses=losses, kept=kept, peak=peak)


def outcome(making: Callable[..., Step], *given: Any, steps: int = STEPS) -> Outcome:
    """Trains on four processes."""
    run = on_processes(making, *given, steps=steps)
    rows = [each.losses for each in run.values]
    return Outcome(
        losses=[sum(each) / len(each) for each in zip(*rows, strict=True)],
        kept=max(each.kept for each in run.values),
        peak=max(each.peak for each in run.values),
        sent=sum(each.sent for each in run.ledger.events if each.rank == 0 and each.verb != "broadcast") / steps,
    )


def on_processes(making: Callable[..., Step], *given: Any, steps: int = STEPS, counts: bool = True) -> Run:
    """Four ranks over gloo."""
    return run_ranks(worker, RANKS, transport="gloo", inputs=[(making, given, steps, counts)] * RANKS)


def table(parts: Named) -> Iterator[str]:
    """Line by line, as they come."""
    yield f"{'':22}  MiB: kept  highest  MB sent  losses, nats: the first, and the last two"
    yield _line("one process", Outcome(losses=one_process(), kept=0, peak=0, sent=0))
    yield _line("torch's fully_shard", outcome(fully_sharded))
    for name, making in STEPS_OF.items():
        if name == "and clipping":
            yield _line("one process, clipping", Outcome(losses=one_process(clipping=True), kept=0, peak=0, sent=0))
        yield _line(name, outcome(making, dict(parts)))


def dtypes_table() -> Iterator[str]:
    """What torch's fully_shard sends in a step, by verb, with three choices of dtypes."""
    choices = {
        "float32": (),
        "bfloat16, reduced in float32": (torch.bfloat16, torch.float32),
        "bfloat16": (torch.bfloat16, torch.bfloat16),
    }
    for name, dtypes in choices.items():
        run = on_processes(fully_sharded, dtypes, counts=False)
        sent: dict[str, float] = {}
        for each in run.ledger.events:
            if each.rank == 0 and each.sent:
                sent[each.verb] = sent.get(each.verb, 0) + each.sent / STEPS / 1e6
        shown = ", ".join(f"{verb} {count:.2f} MB" for verb, count in sorted(sent.items()))
        losses = [sum(each) / RANKS for each in zip(*(seen.losses for seen in run.values), strict=True)]
        yield f"{name:29} {shown}; loss at the end {losses[-1]:.4f}"


def _line(name: str, found: Outcome) -> str:
    mib = f"{found.kept / 2**20:9.1f}  {found.peak / 2**20:7.1f}  {found.sent / 1e6:7.2f}"
    held = mib if found.peak else " " * len(mib)
    shown = [found.losses[0], *found.losses[-2:]]
    return f"{name:22}  {held}  {'  '.join(f'{loss:.6f}' for loss in shown)}"


def _model() -> GPT:
    return GPT(CONFIG, torch.Generator().manual_seed(0))


def _adamw(params: Any) -> torch.optim.AdamW:
    return torch.optim.AdamW(params, lr=RATE, weight_decay=DECAY)


def _backward(model: nn.Module, tokens: Tensor, targets: Tensor) -> float:
    loss = next_token_loss(model(tokens), targets)
    torch.autograd.backward(loss)
    return loss.item()


def _batches(steps: int) -> list[tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(1)
    tokens = grammar.encode(grammar.text(grammar.NORTH, 5_000, rng))
    return [grammar.batch(tokens, BATCH, CONFIG.context, rng) for _ in range(steps)]


def _views(full: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    counts = [each.numel() for each in shapes]
    flat = torch.split(full[: sum(counts)], counts)
    return [part.view(each) for part, each in zip(flat, shapes, strict=True)]
