"""How often a step of each stage sends everything around the ring.

stage 0   all-reduce of gradients
stage 1   reduce-scatter of gradients, all-gather of parameters
stage 2   reduce-scatter for each micro-batch, all-gather of parameters
stage 3   for each micro-batch: all-gather for forward, all-gather for backward, reduce-scatter
"""

from __future__ import annotations


def zero_traffic(n: int, size: int, stage: int, micro_batches: int, keeps_full: bool) -> int:
    """Elements that a rank sends: multiples of the P - 1 chunks that a reduce-scatter or an all-gather sends.

    Rajbhandari et al. (arXiv 1910.02054), section 7, for one micro-batch and padded chunks.
    """
    if stage < 2:
        turns = 2
    elif stage == 2:
        turns = micro_batches + 1
    else:
        gathers = 1 if keeps_full else 2
        turns = micro_batches * (gathers + 1)
    return turns * (size - 1) * -(-n // size)
