"""What our checkpoint and tiled attention cost, beside torch's own: time of forward and backward, and live bytes.

    python benchmarks/checkpointing.py [--depths 2 4 8] [--lengths 128 512 1024] [--repeats 7]

Checkpoints: a GPT 64 wide with so many blocks, each in a checkpoint of its own, on 4 x 128 tokens, against
`torch.utils.checkpoint` in both kinds. Attention: 4 heads of 16 on 2 causal sequences of each length, in tiles of 64,
against torch's fused one and one that makes all scores. Contestants of a line take turns; times are the median of the
ratios to the first within one turn, bytes are the ratio of the peaks that `metered` sees. CPU only.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
from collections.abc import Callable, Mapping

import torch
from measuring import machine, table
from optimizers import Step, in_turns
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint as torchs_checkpoint

from course.lessons.experiments.attention_bytes import explicit, in_tiles
from course.lessons.experiments.planned import forward
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.meter import metered
from course.reference.gradient_checkpointing.attention_tiled import attention_tiled
from course.reference.gradient_checkpointing.attention_tiled_backward import attention_tiled_backward
from course.reference.gradient_checkpointing.checkpoint import checkpoint

TILE, TIME, VOCABULARY = 64, 128, 64
CHECKPOINTS: dict[str, Callable[..., Tensor] | None] = {
    "no checkpoint": None,
    "torch, not reentrant": functools.partial(torchs_checkpoint, use_reentrant=False),
    "torch, reentrant": functools.partial(torchs_checkpoint, use_reentrant=True),
    "ours": checkpoint,
}
ATTENTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "torch, fused": functools.partial(F.scaled_dot_product_attention, is_causal=True),
    "all scores": functools.partial(explicit, causal=True),
    "ours, tiled": in_tiles(attention_tiled, attention_tiled_backward, TILE, causal=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8], help="blocks")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 1024], help="tokens")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each contestant")
    given = parser.parse_args()
    console = Console(width=130)
    threads = f"{torch.get_num_threads()} threads; load {os.getloadavg()[0]:.1f} at the start"
    console.print(f"{machine()}, torch {torch.__version__}, {threads}")
    for depth in given.depths:
        console.print(compared(f"{depth} blocks", checkpoints(depth), given.repeats))
    for length in given.lengths:
        console.print(compared(f"attention, {length} tokens", attentions(length), given.repeats))


def compared(title: str, steps: Mapping[str, Step], repeats: int) -> Table:
    """A line for each contestant: milliseconds and MiB of the first, ratios to it of the others."""
    made = table(title, "what", "time", "peak")
    seconds = in_turns(dict(steps), repeats, torch.device("cpu"))
    peaks = {name: peak(step) for name, step in steps.items()}
    first = next(iter(steps))
    for name in steps:
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds[first], strict=True))
        row = f"{ratio:.2f}", f"{peaks[name] / peaks[first]:.2f}"
        if name == first:
            row = f"{1000 * statistics.median(seconds[first]):.2f} ms", f"{peaks[first] / 2**20:.2f} MiB"
        made.add_row(name, *row)
    return made


def peak(step: Step) -> int:
    """Most bytes that are live in one step."""
    with metered() as run:
        step()
    return run.peak.live if run.peak else 0


def checkpoints(depth: int) -> dict[str, Step]:
    """Forward and backward of a GPT; gradients are there before, and are added to."""
    rng = torch.Generator().manual_seed(0)
    model = GPT(GPTConfig(vocabulary=VOCABULARY, context=TIME, width=64, heads=4, layers=depth), rng)
    text = torch.randint(VOCABULARY, (4, TIME + 1), generator=rng)
    for each in model.parameters():
        each.grad = torch.zeros_like(each)

    def step(keep: Callable[..., Tensor] | None) -> None:
        segments = [(at, at + 1) for at in range(depth)] if keep else []
        logits = forward(model, text[:, :-1], segments, keep or checkpoint)
        torch.autograd.backward(next_token_loss(logits, text[:, 1:]))

    return {name: functools.partial(step, keep) for name, keep in CHECKPOINTS.items()}


def attentions(length: int) -> dict[str, Step]:
    """Forward and backward of one attention."""
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, length, 16, generator=rng, requires_grad=True) for _ in range(3))

    def step(mix: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        torch.autograd.grad(mix(q, k, v).sum(), (q, k, v))

    return {name: functools.partial(step, mix) for name, mix in ATTENTIONS.items()}


if __name__ == "__main__":
    main()
