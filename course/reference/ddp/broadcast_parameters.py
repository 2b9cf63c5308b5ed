"""All ranks begin with one model: rank 0's.

    parameters, buffers  --broadcast from rank 0, into the memory that is there-->  the same function everywhere

What DistributedDataParallel does when it is made (S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data
Parallel Training", VLDB 2020, section 3.1).
"""

from __future__ import annotations

import itertools

from torch import nn

from course.cluster import Comm


def broadcast_parameters(comm: Comm, model: nn.Module) -> None:
    """Every parameter and buffer becomes rank 0's, in place; each once, however many names it has."""
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        comm.broadcast(tensor.detach(), 0)
