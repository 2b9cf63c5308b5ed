"""How fast this machine trains a small GPT with and without checkpointing, and what published runs reached.

tokens a second --your utilization--> shares of the peak that the largest product reaches on this machine
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from course.lessons.experiments import planned
from course.lessons.models import GPT, GPTConfig

CONFIG = GPTConfig(vocabulary=64, context=128, width=128, heads=4, layers=4)
BATCH = 2
MODEL = {
    "width": CONFIG.width,
    "heads": CONFIG.heads,
    "kv_heads": CONFIG.heads,
    "hidden": 4 * CONFIG.width,
    "vocabulary": CONFIG.vocabulary,
    "sequence": CONFIG.context,
}


def train_step(model: GPT, tokens: Tensor, *, checkpointed: bool) -> None:
    """Forward and backward on tokens (batch, context + 1); each block recomputed in backward, or none."""
    segments = planned.in_segments(len(model.blocks), 1) if checkpointed else ()
    whole = partial(planned.torchs, early_stop=False)
    planned.backward(model, (tokens[:, :-1], tokens[:, 1:]), segments, whole)
    model.zero_grad()


def rates(rounds: int = 8) -> tuple[float, float, float]:
    """This machine's best of some rounds: tokens a second without and with checkpointing, and the peak in FLOP/s.

    The peak is what a product of two square float32 matrices reaches.
    """
    rng = torch.Generator().manual_seed(0)
    model = GPT(CONFIG, rng)
    tokens = torch.randint(CONFIG.vocabulary, (BATCH, CONFIG.context + 1), generator=rng)
    matrix = torch.randn(SIDE, SIDE, generator=rng)
    jobs: list[Callable[[], object]] = [
        lambda: train_step(model, tokens, checkpointed=False),
        lambda: train_step(model, tokens, checkpointed=True),
        lambda: matrix @ matrix,
    ]
    best = [min(times) for times in zip(*([_seconds(job) for job in jobs] for _ in range(rounds)), strict=True)]
    count = BATCH * CONFIG.context
    return count / best[0], count / best[1], 2 * SIDE**3 / best[2]


SIDE = 768  # of the matrices


def _seconds(job: Callable[[], object]) -> float:
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


@dataclass(frozen=True, kw_only=True)
class Published:
    """A run as it was published: shares of a GPU's peak, in percent, and the model.

    mfu  None where it was not given
    """

    name: str
    width: int
    heads: int
    layers: int
    vocabulary: int
    recomputed: str  # in each block
    mfu: float | None
    hfu: float
    source: str

    @property
    def model(self) -> dict[str, int]:
        """For `utilization`; all have as many heads of keys and values as of queries, and an MLP of 4 x width."""
        shared = {"kv_heads": self.heads, "hidden": 4 * self.width, "sequence": 2048}
        return {"width": self.width, "heads": self.heads, "vocabulary": self.vocabulary, **shared}


MEGATRON = "Narayanan et al., arXiv 2104.04473, Table 1"
SELECTIVE = "Korthikanti et al., arXiv 2205.05198, as Megatron-LM's README repeats it"
PEAK = 312e12  # FLOP/s of an A100 in half precision, by its maker's data sheet


def _published(name: str, size: tuple[int, int, int], recomputed: str, mfu: float | None, hfu: float) -> Published:
    width, heads, layers = size
    source = MEGATRON if mfu is None else SELECTIVE
    kind = {"recomputed": recomputed, "mfu": mfu, "hfu": hfu, "source": source}
    return Published(name=name, width=width, heads=heads, layers=layers, vocabulary=51_200, **kind)  # type: ignore[arg-type]


RUNS = (
    _published("1.7B", (2304, 24, 24), "block", None, 44.0),
    _published("1008B", (25600, 160, 128), "block", None, 52.0),
    _published("22B", (6144, 64, 48), "scores", 41.5, 43.7),
    _published("175B", (12288, 96, 96), "scores", 51.4, 52.8),
    _published("530B", (20480, 128, 105), "scores", 56.0, 57.0),
    _published("1T", (25600, 160, 128), "scores", 56.3, 57.0),
)
