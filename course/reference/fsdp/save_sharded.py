"""A checkpoint of which each rank writes its own part.

    shards  --each rank: without padding-->  its file  --one all-reduce: who failed-->  nobody: rank 0 renames `latest`
                                                                                        somebody: all raise

torch.distributed.checkpoint goes in this order too: all write, the coordinator learns how it went, and only then is a
whole metadata file renamed (FileSystemWriter.finish in torch/distributed/checkpoint/filesystem.py). But an old one in
the same folder is removed first, and for a moment there is none. os.replace leaves no such gap.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from course.cluster import Comm


def save_sharded(
    comm: Comm,
    folder: Path,
    step: int,
    tensors: dict[str, Tensor],
    n: int,
    write: Callable[[dict[str, Tensor], Path], None],
) -> None:
    """Writes this rank's part; `latest` names the step when all parts are written. Raises OSError where one is not."""
    part = folder / f"step-{step:08d}"
    chunk = -(-n // comm.size)
    real = max(0, min(chunk, n - comm.rank * chunk))
    failed = torch.zeros(comm.size)
    try:
        part.mkdir(parents=True, exist_ok=True)
        mine = {name: each[:real] for name, each in tensors.items()}
        write({**mine, "n": torch.tensor(n)}, part / f"rank-{comm.rank}-of-{comm.size}.safetensors")
    except OSError:
        failed[comm.rank] = 1
    comm.all_reduce(failed)
    if failed.any():
        names = ", ".join(f"rank {rank}" for rank in failed.nonzero().flatten().tolist())
        raise OSError(f"step {step} is not saved: {names} could not write")
    if comm.rank == 0:
        new = folder / "latest.new"
        new.write_text(part.name)
        os.replace(new, folder / "latest")
