"""Shards for one number of ranks, from a checkpoint that another number of them wrote.

    elements start .. stop of this rank  --which files hold them-->  slices  --cat, pad-->  shards

Only slices are read: a safetensors file begins with a table of what lies where (https://github.com/huggingface/safetensors,
section Format). torch.distributed.checkpoint plans its reads by such overlaps too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from course.cluster import Comm


def load_resharded(comm: Comm, folder: Path) -> dict[str, Tensor]:
    """This rank's shards of the step that `latest` names, padded anew. Raises where a file is missing or cut."""
    part = folder / (folder / "latest").read_text().strip()
    saved = int(next(part.glob("rank-*")).stem.split("-")[-1])

    def opened(rank: int) -> Any:
        path = part / f"rank-{rank}-of-{saved}.safetensors"
        if not path.exists():
            raise FileNotFoundError(f"{path.name} is missing in {part}")
        try:
            return safe_open(path, "pt")
        except SafetensorError as error:
            raise ValueError(f"{path.name} is damaged: {error}") from None

    with opened(0) as file:
        n = int(file.get_tensor("n"))
        pieces = {name: [file.get_tensor(name)[:0]] for name in sorted(file.keys()) if name != "n"}
    chunk, old = -(-n // comm.size), -(-n // saved)
    start, stop = min(comm.rank * chunk, n), min((comm.rank + 1) * chunk, n)
    for rank in range(start // old, -(-stop // old)) if start < stop else ():
        with opened(rank) as file:
            for name, found in pieces.items():
                found.append(file.get_slice(name)[max(start - rank * old, 0) : min(stop - rank * old, old)])
    return {name: torch.cat([*each, each[0].new_zeros(chunk - stop + start)]) for name, each in pieces.items()}
