"""What one rank holds from step to step, with more and more of it sharded.

        parameters  gradients  states
stage 0    full       full      full
stage 1    full       full      shard
stage 2    full       shard     shard
stage 3    shard      shard     shard
"""

from __future__ import annotations

from collections.abc import Mapping


def zero_bytes(n: int, size: int, stage: int, recipe: Mapping[str, int]) -> int:
    """Bytes on one of `size` ranks: Rajbhandari et al. (arXiv 1910.02054), section 5, with padded shards."""
    shard = -(-n // size)
    parameters = (shard if stage >= 3 else n) * recipe["parameters"]
    gradients = (shard if stage >= 2 else n) * recipe["gradients"]
    states = (shard if stage >= 1 else n) * recipe["states"]
    return parameters + gradients + states
