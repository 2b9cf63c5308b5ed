"""A plan of segments on a real GPT: the peak that is predicted from its blocks, and the peak that the meter sees.

blocks --measured--> bytes_, cost, rest --predicted_peak(segments)--> bytes
GPT --forward(segments)--> logits --backward--> Run.peak

words
    segments  pairs (start, end) of blocks that are checkpointed together: sorted, start < end, none overlaps another
    rest      bytes at the peak that belong to no block: the head's and the loss's, and what backward works with
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.meter import Run, metered

Segments: TypeAlias = Sequence[tuple[int, int]]
Checkpoint: TypeAlias = Callable[..., Tensor]  # checkpoint(fn, *args) -> fn(*args), recomputed in backward
Batch: TypeAlias = tuple[Tensor, Tensor]  # tokens and targets, int64 (batch, time)

CONFIG = GPTConfig(vocabulary=64, context=64, width=64, heads=4, layers=12)
BATCH = 8
UNIT = 2**17  # bytes of one x: 8 x 64 tokens, 64 wide, in float32


def problem(seed: int = 0, config: GPTConfig = CONFIG) -> tuple[GPT, Batch]:
    """A GPT and a batch of random tokens, with gradients in place as between two optimizer steps."""
    rng = torch.Generator().manual_seed(seed)
    model = GPT(config, rng)
    text = torch.randint(config.vocabulary, (BATCH, config.context + 1), generator=rng)
    for held in model.parameters():
        held.grad = torch.zeros_like(held)
    return model, (text[:, :-1], text[:, 1:])


def torchs(fn: Callable[..., Any], *args: Any, early_stop: bool = True) -> Tensor:
    """torch.utils.checkpoint, in the kind that torch advises; without `early_stop` backward runs fn to its end."""
    from torch.utils.checkpoint import checkpoint  # here, because it loads torch's compiler: 1 s

    return cast(Tensor, checkpoint(fn, *args, use_reentrant=False, early_stop=early_stop))


def in_segments(blocks: int, length: int) -> Segments:
    """All blocks, in segments of one length; the last may be shorter."""
    return [*pairwise([*range(0, blocks, length), blocks])]


def forward(model: GPT, tokens: Tensor, segments: Segments = (), checkpoint: Checkpoint = torchs) -> Tensor:
    """The logits (batch, time, vocabulary) of model(tokens), where each segment goes through one `checkpoint(fn, x)`.

    Blocks in no segment run as usual.
    """
    positions = torch.arange(tokens.shape[-1], device=tokens.device)
    x = model.dropout(model.token_embedding(tokens) + model.position_embedding(positions))
    ends, at = dict(segments), 0
    while at < len(model.blocks):
        end = ends.get(at, at + 1)
        run = _in_a_row(model, at, end)
        x = checkpoint(run, x) if at in ends else run(x)
        at = end
    return cast(Tensor, model.head(model.norm(x)))


def _in_a_row(model: GPT, start: int, end: int) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        for index in range(start, end):
            x = model.blocks[index](x)
        return x

    return run


def backward(model: GPT, batch: Batch, segments: Segments = (), checkpoint: Checkpoint = torchs) -> Tensor:
    """The loss of one forward and one backward; gradients are added to what is there."""
    tokens, targets = batch
    loss = next_token_loss(forward(model, tokens, segments, checkpoint), targets)
    torch.autograd.backward(loss)
    return loss


def step(model: GPT, batch: Batch, segments: Segments = (), checkpoint: Checkpoint = torchs) -> Run:
    """One forward and one backward under the meter."""
    with metered() as run:
        backward(model, batch, segments, checkpoint)
    return run


def measured(model: GPT, batch: Batch) -> tuple[list[tuple[int, int]], list[int], int]:
    """For each block (bytes of its input, bytes kept inside it), for each its FLOPs, and the rest at the peak, bytes.

    Inside is what `of_block` counts; the output of a block is the next one's input. The rest is the peak of a step
    without checkpoints, less all blocks' inputs and insides.
    """
    bytes_, cost = [], []
    x = torch.zeros(*batch[0].shape, model.config.width, requires_grad=True)
    for block in model.blocks:
        inside, flops = of_block(block, x)
        bytes_.append((x.nbytes, inside))
        cost.append(flops)
    peak = step(model, batch).peak
    return bytes_, cost, (peak.live if peak else 0) - sum(map(sum, bytes_))


def of_block(block: Callable[[Tensor], Tensor], x: Tensor) -> tuple[int, int]:
    """Bytes that autograd keeps of one forward besides its input and its output, and the forward's FLOPs."""
    with metered() as run:
        output = block(x)
    return run.kept([output]), sum(run.flops.values())


def live_bytes(bytes_: Sequence[tuple[int, int]], segments: Segments) -> list[int]:
    """For each segment what is live when backward has recomputed it; last, what is kept after forward."""
    whole = [0, *accumulate(map(sum, bytes_))]
    kept, at, live = 0, 0, []
    for first, stop in segments:
        kept += whole[first] - whole[at]
        live.append(kept + whole[stop] - whole[first])
        kept += bytes_[first][0]
        at = stop
    return [*live, kept + whole[-1] - whole[at]]


def predicted_peak(bytes_: Sequence[tuple[int, int]], rest: int, segments: Segments) -> int:
    """The most bytes that are live at one time in a step with this plan."""
    return max(live_bytes(bytes_, segments)) + rest


def in_units(bytes_: Sequence[tuple[int, int]], unit: int = UNIT) -> list[tuple[int, int]]:
    """The same numbers in units, rounded up, so that what fits in units fits in bytes."""
    return [(-(-given // unit), -(-inside // unit)) for given, inside in bytes_]
