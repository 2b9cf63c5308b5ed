"""One training step of a deep, narrow GPT whose blocks are checkpointed in segments: bytes, evaluations, seconds.

    blocks --segments of so many--> checkpoint(segment) for all but the last --> backward --meter--> peak

The last segment runs as usual, because backward begins with it. Gradients of parameters have their memory before the
step, so that the peak is that of activations, and of what forward and backward work with. Bytes are recorded, because
the meter takes 20 s for them; seconds are measured anew each time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course.lessons.experiments import planned, recording
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.meter import metered

CONFIG = GPTConfig(vocabulary=32, context=64, width=32, heads=4, layers=64)
BATCH = 8
LENGTHS = (1, 2, 4, 8, 16, 32, 64)  # blocks in a segment; the last keeps everything
TIMED = (1, 2, 8, 64)
ROUNDS = 2
NAME = "segments"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Bytes of one block: its input, and all that it keeps for backward when it runs as usual, its input included."""

    input: int
    kept: int

    @property
    def ratio(self) -> float:
        """How many times its input a block keeps."""
        return self.kept / self.input


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """For each length of segments: live bytes at the peak of a step, and evaluations of blocks."""

    block: Block
    lengths: list[int]
    peaks: list[int]
    evaluations: list[int]

    def law(self, length: float) -> float:
        """Bytes of n / length checkpoints, and of all that the blocks of one segment keep."""
        return CONFIG.layers / length * self.block.input + length * self.block.kept

    @property
    def best(self) -> float:
        """The length at which the law is least: sqrt(n / k), if a block keeps k times its input."""
        return math.sqrt(CONFIG.layers / self.block.ratio)

    def peak(self, length: int) -> int:
        """Bytes at the peak with segments of this length."""
        return self.peaks[self.lengths.index(length)]


def tokens() -> tuple[Tensor, Tensor]:
    """Inputs and targets; which they are makes no difference to bytes and seconds."""
    drawn = torch.randint(CONFIG.vocabulary, (BATCH, CONFIG.context + 1), generator=torch.Generator().manual_seed(1))
    return drawn[:, :-1], drawn[:, 1:]


def run(gpt: GPT, length: int) -> None:
    """Forward and backward of one batch, with segments of so many blocks.

    Not through `planned.forward`: what is recorded has the tokens and the last block's output, too.
    """
    inputs, targets = tokens()
    x = gpt.token_embedding(inputs) + gpt.position_embedding(torch.arange(inputs.shape[-1]))
    blocks = list(gpt.blocks)
    for start in range(0, len(blocks), length):
        segment = nn.Sequential(*blocks[start : start + length])
        last = start + length >= len(blocks)
        x = segment(x) if last else planned.torchs(segment, x)
    next_token_loss(gpt.head(gpt.norm(x)), targets).backward()  # type: ignore[no-untyped-call]


def block() -> Block:
    """What the meter sees of one block."""
    gpt, _ = planned.problem(config=CONFIG)
    x = torch.randn(BATCH, CONFIG.context, CONFIG.width, requires_grad=True)
    inside, _ = planned.of_block(gpt.blocks[0], x)
    return Block(input=x.nbytes, kept=x.nbytes + inside)


def peak(length: int) -> tuple[int, int]:
    """Live bytes at the peak of a step, and evaluations of blocks."""
    gpt, _ = planned.problem(config=CONFIG)
    with metered(evaluations=gpt.blocks) as seen:
        run(gpt, length)
    assert seen.peak is not None
    return seen.peak.live, sum(seen.evaluations.values())


def measure(lengths: Sequence[int] = LENGTHS) -> Peaks:
    """All that is recorded."""
    peaks, evaluations = zip(*map(peak, lengths), strict=True)
    return Peaks(block=block(), lengths=[*lengths], peaks=[*peaks], evaluations=[*evaluations])


def seconds(lengths: Sequence[int] = TIMED) -> dict[int, float]:
    """By length the fastest step of a few rounds through all of them, on this machine, without the meter."""
    (gpt, _), fastest = planned.problem(config=CONFIG), dict.fromkeys(lengths, math.inf)
    run(gpt, max(lengths))
    for length in [*lengths] * ROUNDS:
        start = time.perf_counter()
        run(gpt, length)
        fastest[length] = min(fastest[length], time.perf_counter() - start)
    return fastest


def recorded() -> recording.Recording[Peaks]:
    """The bytes, from the package."""
    return recording.load(NAME, Peaks)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(recording.record(NAME, measure))
