"""Other right ways to write `optimizer_bytes`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from autograder.bank import Alternative

Shapes = list[tuple[int, ...]]
Dtypes = dict[str, torch.dtype]


def makes_the_state(shapes: Shapes, name: str, dtypes: Dtypes) -> int:
    """Makes every tensor that the optimizer would keep, on the device that has no memory, and asks it for its size."""
    return sum(each.nbytes for shape in shapes for each in _tensors(shape, name, dtypes))


def _tensors(shape: tuple[int, ...], name: str, dtypes: Dtypes) -> Iterator[Tensor]:
    param = torch.empty(shape, dtype=dtypes["param"], device="meta")
    like = torch.empty(shape, dtype=dtypes["state"], device="meta")
    if param.element_size() < 4:
        yield param.float()
    if name in ("adagrad", "rmsprop", "adamw", "adafactor"):
        yield torch.zeros((), device="meta")
    if name == "adafactor" and like.dim() >= 2:
        yield from (like[..., :1], like[..., :1, :])
    elif name == "muon" and like.dim() != 2:
        raise ValueError(f"muon takes matrices only, got {shape}")
    elif name == "adamw":
        yield from (like, like)
    elif name in ("momentum", "adagrad", "rmsprop", "adafactor", "muon"):
        yield like
    elif name != "sgd":
        raise ValueError(f"unknown name {name}")


def three_sums(shapes: Shapes, name: str, dtypes: Dtypes) -> int:
    """Each part summed over all shapes, in NumPy's integers."""
    moments = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adamw": 2, "adafactor": 1, "muon": 1}
    if name not in moments or (name == "muon" and any(len(shape) != 2 for shape in shapes)):
        raise ValueError(f"no such optimizer, or no matrices: {name}, {shapes}")
    count = np.array([np.prod(shape, dtype=np.int64) for shape in shapes])
    kept = moments[name] * count
    if name == "adafactor":
        kept = np.array([n // s[-1] + n // s[-2] if len(s) > 1 else n for n, s in zip(count, shapes, strict=True)])
    master = 4 if torch.empty(0, dtype=dtypes["param"]).element_size() < 4 else 0
    steps = 0 if name in ("sgd", "momentum", "muon") else len(shapes)
    total = kept.sum() * torch.empty(0, dtype=dtypes["state"]).element_size() + count.sum() * master + 4 * steps
    return int(total)


def in_bits(shapes: Shapes, name: str, dtypes: Dtypes) -> float:
    """Counts bits with torch.finfo, and divides at the end, which makes a float."""
    state, param = (torch.finfo(dtypes[key]).bits for key in ("state", "param"))
    bits = 0
    for shape in shapes:
        size = torch.Size(shape)
        copies = _copies(size, name)
        bits += state * copies + (32 * size.numel() if param < 32 else 0)
        bits += 32 * (name in {"adagrad", "rmsprop", "adamw", "adafactor"})
    return bits / 8


def _copies(size: torch.Size, name: str) -> int:
    match name:
        case "sgd":
            return 0
        case "momentum" | "adagrad" | "rmsprop":
            return size.numel()
        case "adamw":
            return 2 * size.numel()
        case "muon" if len(size) == 2:
            return size.numel()
        case "adafactor":
            if len(size) < 2:
                return size.numel()
            *batch, rows, columns = size
            return torch.Size(batch).numel() * (rows + columns)
        case _:
            raise ValueError(f"{name} does not exist, or takes no parameter of {len(size)} dimensions")


ALTERNATIVES = (
    Alternative(name="makes_the_state", answer=makes_the_state),
    Alternative(name="three_sums", answer=three_sums),
    Alternative(name="in_bits", answer=in_bits),
)
