# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 05 Data parallelism
#
# **How do many workers take one step?**
#
# At the end of this lesson you will be able to
#
# - write the collectives that training needs from send and receive, and say what each costs;
#
# You need: tensors, and what a process is.

# %%
import torch

from course import check, progress

torch.set_num_threads(1)  # the tensors here are small: a second thread costs more than it brings


# %% exercise
from torch import Tensor

from course.cluster import Comm


def ring_reduce_scatter(comm: Comm, x: Tensor) -> Tensor:
    """Chunk r of the sum over all ranks, on rank r, by messages around a ring.

    comm     rank `comm.rank` of P = `comm.size`; it has send and recv, isend and irecv, and no collective
    x        this rank's tensor, x.shape[0] = P * m with any further dims, any dtype that can be added; the same shape
             on every rank. Chunk c is its rows c * m to (c + 1) * m - 1.
    Returns  (m, ...), chunk comm.rank of the sum over all ranks, in the dtype of x
    Cost     P - 1 messages of one chunk from each rank, all to rank + 1 (modulo P), in P - 1 steps in which all ranks
             send at once
    Example  Two ranks with x = [1, 2] and [10, 20]: rank 0 returns [11], and rank 1 [22].

    x is not changed.
    """
    rank, size = comm.rank, comm.size
    chunks = list(x.clone().chunk(size))
    came = torch.empty_like(chunks[rank])
    for step in range(size - 1):
        comm.send(chunks[(rank - 1 - step) % size], (rank + 1) % size)
        comm.recv(came, (rank - 1) % size)
        chunks[(rank - 2 - step) % size] += came
    return chunks[rank]


# %%
check(ring_reduce_scatter)

# %%
progress()
