"""What torch.autocast does on a CPU, operator by operator, measured beside the lists that it follows on CUDA.

op, its inputs in bfloat16, and in float32 --run in a region of autocast--> dtype of the result
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from course.lessons.autocast_lists import HIGH, LOW, WIDEST

TARGETS = torch.tensor([0, 1])
CALLS: tuple[tuple[Callable[..., Any], Callable[[Tensor], tuple[Any, ...]]], ...] = (
    (torch.matmul, lambda x: (x, x)),
    (F.linear, lambda x: (x, x)),
    (F.softmax, lambda x: (x, -1)),
    (F.layer_norm, lambda x: (x, (2,))),
    (F.cross_entropy, lambda x: (x, TARGETS)),
    (F.mse_loss, lambda x: (x, x)),
    (torch.sum, lambda x: (x,)),
    (torch.exp, lambda x: (x,)),
    (torch.pow, lambda x: (x, 2)),
    (torch.norm, lambda x: (x,)),
    (torch.add, lambda x: (x, x)),
    (F.relu, lambda x: (x,)),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One operator: CUDA's list ("LOW", "HIGH", "WIDEST" or "none"), and its result's dtype on a CPU by its inputs'."""

    name: str
    cuda: str
    of_half: str
    of_float32: str

    @property
    def differs(self) -> bool:
        """Whether the CPU gives half precision where CUDA's list says float32."""
        return self.cuda == "HIGH" and self.of_half != "float32"


def rows() -> list[Row]:
    """A row for each operator of `CALLS`, in a region of torch.autocast("cpu", torch.bfloat16)."""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with torch.autocast("cpu", torch.bfloat16):
        return [
            Row(
                name=op.__name__,
                cuda=cuda_list(op.__name__),
                of_half=_dtype(op(*given(x.bfloat16()))),
                of_float32=_dtype(op(*given(x))),
            )
            for op, given in CALLS
        ]


def cuda_list(name: str) -> str:
    """The list of CUDA's autocast in which the operator stands."""
    return next(
        (words for words, names in {"LOW": LOW, "HIGH": HIGH, "WIDEST": WIDEST}.items() if name in names), "none"
    )


def table(found: list[Row]) -> str:
    """A line for each row."""
    head = f"{'operator':14} {'list on CUDA':14} {'on a CPU: bfloat16 in':23} float32 in"
    return "\n".join([head, *(f"{row.name:14} {row.cuda:14} {row.of_half:23} {row.of_float32}" for row in found)])


def _dtype(result: Tensor) -> str:
    return str(result.dtype).removeprefix("torch.")
