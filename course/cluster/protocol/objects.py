"""Python objects as tensors of bytes: what the object collectives of a communicator send.

    obj --pickled--> uint8 of shape (n,) --padded--> (largest,) --a collective--> [:n] --unpickled--> a copy of obj

Pickled by cloudpickle, so that what a notebook's cells define can be sent, too. Unpickling runs code that the sender
chose: ranks of one run trust one another, as in torch.distributed.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import torch
from torch import Tensor

from course.errors import BadArgument


def pickled(obj: Any) -> Tensor:
    """The object as bytes, uint8 of shape (n,). Raises BadArgument where it cannot be pickled."""
    try:
        data = cloudpickle.dumps(obj)
    except Exception as error:  # a class may raise what it likes
        raise BadArgument(
            f"an object that is sent must be one that can be pickled, got {type(obj).__name__} ({error})"
        ) from None
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def padded(data: Tensor, size: int, device: torch.device) -> Tensor:
    """So many bytes, the first of which are those of `data`."""
    whole = torch.zeros(size, dtype=torch.uint8, device=device)
    whole[: len(data)] = data
    return whole


def unpickled(data: Tensor) -> Any:
    """The object of `pickled`."""
    return pickle.loads(data.cpu().numpy().tobytes())


def check_list(name: str, found: object, count: int | None = None) -> None:
    """Raises BadArgument unless it is a list with room for `count` objects, or for at least one."""
    if not isinstance(found, list) or (len(found) != count if count is not None else not found):
        wanted = f"{count} objects, one for each rank of the group" if count else "objects, at least one"
        came = len(found) if isinstance(found, list) else f"a {type(found).__name__}"
        raise BadArgument(f"{name} must be a list of {wanted}, got {came}")
