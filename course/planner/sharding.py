"""How many bytes of states does a rank hold when they are sharded, and how long does a run take?

    parameters, Recipe, ranks, stage  --sharded_state_bytes-->  bytes on one rank, by name

words
    stage 0  every rank holds everything: data parallelism as in lesson 05
    stage 1  optimizer states (moments and master copy) are sharded over the ranks
    stage 2  and gradients
    stage 3  and parameters: FSDP
    hybrid   sharded over the ranks of a group, such as a node, and replicated over the groups

Source: Rajbhandari et al., ZeRO, arXiv 1910.02054, section 5 and figure 1. GB are 10^9 bytes.
"""

from __future__ import annotations

from course.errors import BadArgument
from course.planner.memory import Recipe, state_bytes

STAGES = {0: "nothing sharded", 1: "optimizer states", 2: "and gradients", 3: "and parameters"}
SHARDED_FROM = {"moments": 1, "master": 1, "gradients": 2, "parameters": 3}  # the stage
GPT3, TRILLION = 175 * 10**9, 10**12  # parameters
SEVEN_AND_A_HALF, RANKS = 7_500_000_000, 64  # parameters and ranks of ZeRO's figure 1
A100 = 312e12  # FLOP/s in bf16 without sparsity, by the vendor's data sheet
HOUR = 3600


def shard_elements(parameters: int, ranks: int) -> int:
    """Numbers of a shard: the parameters in one row, cut into equal parts, the last filled up."""
    if ranks < 1:
        raise BadArgument(f"ranks must be at least 1, got {ranks}")
    return -(-parameters // ranks)


def sharded_state_bytes(parameters: int, recipe: Recipe, *, ranks: int, stage: int) -> dict[str, int]:
    """Bytes that a rank holds from step to step, gradients included, by the recipe's names.

    Raises BadArgument for a stage other than 0 to 3, or no rank.
    """
    if stage not in STAGES:
        raise BadArgument(f"stage must be 0, 1, 2 or 3, got {stage}")
    own = shard_elements(parameters, ranks)
    whole, sharded = state_bytes(parameters, recipe), state_bytes(own, recipe)
    return {name: (sharded if stage >= SHARDED_FROM[name] else whole)[name] for name in whole}


def training_hours(parameters: float, tokens: float, *, share: float, passes: int = 8) -> float:
    """Hours of one A100 for a whole training run: what is paid for, however many share them."""
    return passes * parameters * tokens / (A100 * share) / HOUR


def training_days(parameters: float, tokens: float, *, gpus: int, share: float, passes: int = 8) -> float:
    """Days of a training run on A100s.

    passes  operations for each parameter and token: 6 of forward and backward, and 2 more where forward is repeated
    share   of the peak of 312 TFLOP/s that the GPUs reach, counted with the same `passes`
    """
    return training_hours(parameters, tokens, share=share, passes=passes) / gpus / 24
