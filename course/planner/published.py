"""Figures that papers give, and what the planner says of the same settings.

published.tsv --figures--> name, setting, value, unit, source;  planned() --> the same names, by formula
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from course.planner.memory import (
    GB,
    GPT2,
    RECIPES,
    ZERO,
    Batch,
    activation_bytes,
    fused_buffer_bytes,
    recomputation_overhead,
    state_bytes,
)
from course.planner.sharding import A100, GPT3, RANKS, SEVEN_AND_A_HALF, STAGES, sharded_state_bytes, training_days

FILE = Path(__file__).with_name("published.tsv")
GPT3_LAYERS, GPT3_WIDTH = 96, 12_288  # Brown et al., arXiv 2005.14165, table 2.1
SETTING = Batch(sequence=1024, size=32)  # of ZeRO's section 3.2
OPT_ROWS = 50_272 + 2_050  # of both embeddings, as in the released weights; OPT-175B has GPT-3's layers and width
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A published figure: `value` in `unit`, and where it stands."""

    name: str
    setting: str
    value: float
    unit: str
    source: str


def figures() -> dict[str, Figure]:
    """All of them, by name."""
    found = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, setting, value, unit, source = line.split("\t")
            found[name] = Figure(name=name, setting=setting, value=float(value), unit=unit, source=source)
    return found


def planned() -> dict[str, float]:
    """What the formulas give for each figure, in its unit.

    checkpoint    at 2 bytes a number
    checkpointed  all activations divided by the square root of the number of layers. The paper says "approximately the
                  square root of the total activations", which has no unit: this is one reading of it.
    """
    activations = activation_bytes(GPT2, SETTING, ZERO).total
    scales, twice = 32 / 64, 8 / 64 + 32 / (64 * 256)  # bits of a parameter
    recipe = RECIPES["fp16"]  # 12 bytes of moments and master copy
    stages = {
        f"stage {stage}": sum(sharded_state_bytes(SEVEN_AND_A_HALF, recipe, ranks=RANKS, stage=stage).values()) / GB
        for stage in STAGES
    }
    return {
        **stages,
        "adapter, r = 1": _adapter(1),
        "adapter, r = 8": _adapter(8),
        "checkpoint, full": 2 * GPT3 / GB,
        "checkpoint, r = 4": 2 * _adapter(4) / 1e6,
        "days of 175B": training_days(GPT3, 300e9, gpus=128, share=0.51),
        "throughput of 175B": 0.51 * A100 / 1e12,
        "throughput of 1T": 0.27 * A100 / 1e12,
        "states": sum(state_bytes(GPT2.parameters, RECIPES["fp16"]).values()) / GB,
        "activations": activations / GB,
        "checkpointed": activations / math.sqrt(GPT2.layers) / GB,
        "recomputation": 100 * recomputation_overhead(),
        "buffer": fused_buffer_bytes(GPT2.parameters) / GB,
        "few bits, scales of NF4": scales,
        "few bits, scales in 8 bits": twice,
        "few bits, saved at 65B": 65e9 * (scales - twice) / 8 / GB,
        "few bits, OPT-175B at 3": _opt_bytes(3) / GIB,
    }


def _adapter(r: int) -> float:
    """Numbers of an adapter of GPT-3's query and value matrices, which are square."""
    return GPT3_LAYERS * 2 * r * 2 * GPT3_WIDTH


def _opt_bytes(bits: int) -> float:
    """OPT-175B with matrices at so many bits, a step and a zero point of 16 bits for each of their rows.

    A layer has four matrices of width h, and two between h and 4 h. Embeddings, of which the output layer is one, stay
    in 16 bits; biases and norms are left out.
    """
    h = GPT3_WIDTH
    codes, rows = 12 * h**2 * bits, 9 * h
    return (GPT3_LAYERS * (codes + rows * 32) + OPT_ROWS * h * 16) / 8


# GPT-2 large on two GPUs with 24 GB each: the largest batch of a GPU that fits, and minutes. Mangrulkar et al.,
# Accelerate Large Model Training using PyTorch Fully Sharded Data Parallel, 2022.
FINE_TUNING = {
    "DDP": (7, 15),
    "fp16": (7, 8),  # DDP
    "gradients": (11, 11),  # and states are sharded: SHARD_GRAD_OP
    "1M": (15, 12),  # FULL_SHARD, units of a million parameters and more
    "2K": (15, 13),
    "1M offloaded": (20, 23),  # on the CPU
    "2K offloaded": (22, 24),
}
GPT2_LARGE = 774_030_080  # parameters: 36 layers, 1,280 wide (Radford et al., 2019, table 2), a tied head
DESK, DESK_RANKS = 24 * GB, 2


def batches_by_room() -> dict[str, float]:
    """The batch of each row of FINE_TUNING, by the bytes that states leave of a GPU.

    A sequence takes what it does in the first row: the room that is left there, by its batch. All numbers have 4 bytes,
    and DDP's buckets are a second copy of the gradients. What is full for a moment is not counted. The row in fp16 is
    left out: its states are those of the first.
    """
    recipe = RECIPES["fp32"]

    def room(stage: int) -> int:
        return DESK - sum(sharded_state_bytes(GPT2_LARGE, recipe, ranks=DESK_RANKS, stage=stage).values())

    buckets = recipe.gradients * GPT2_LARGE
    sequence = (room(0) - buckets) / FINE_TUNING["DDP"][0]
    rooms = {"gradients": room(2), "1M": room(3), "2K": room(3), "1M offloaded": DESK, "2K offloaded": DESK}
    return {name: each / sequence for name, each in rooms.items()}
