"""Each operator in the precision that CUDA's autocast gives it, and each weight cast once per pass.

op, inputs --by the op's list--> half precision, float32, the widest, or as they come --op--> result
weight --first use in half precision--> its cast, kept until the pass ends
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.lessons.autocast_lists import HIGH, LOW, WIDEST


class Autocast:
    """`with Autocast(dtype) as cast:` is a pass, in which `cast.run(op, *args)` calls operators.

    dtype  torch.float16 or torch.bfloat16, for products
    A weight is a float32 leaf that requires a gradient; a cast of it is kept, and used until the pass ends. Its own
    graph leads back to the weight, whose gradient arrives in float32. All else is cast at every use.
    Source: torch 2.13, aten/src/ATen/autocast_mode.cpp, cached_cast; torch/include/ATen/autocast_mode.h for the lists.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._casts: dict[Tensor, Tensor] = {}  # by the weight itself: its id could go to another once it is gone

    def __enter__(self) -> Autocast:
        return self

    def __exit__(self, *error: object) -> None:
        self._casts.clear()  # the optimizer is about to change the weights

    def run(self, op: Callable[..., Any], *args: Any) -> Any:
        """op(*args), its floating tensors cast first; what is float64, or no floating tensor, stays as it is."""
        target = self._target(op.__name__, args)
        return op(*(self._cast(arg, target) if _eligible(arg) else arg for arg in args))

    def _target(self, name: str, args: tuple[Any, ...]) -> torch.dtype | None:
        """The dtype for the inputs; None where they run as they come."""
        if name in LOW:
            return self.dtype
        if name in HIGH:
            return torch.float32
        if name in WIDEST:
            return torch.float32 if any(_eligible(arg) and arg.dtype == torch.float32 for arg in args) else self.dtype
        return None

    def _cast(self, tensor: Tensor, target: torch.dtype | None) -> Tensor:
        if target is None or tensor.dtype == target:
            return tensor
        if not (tensor.is_leaf and tensor.requires_grad and tensor.dtype == torch.float32):
            return tensor.to(target)
        if tensor not in self._casts:
            with torch.enable_grad():  # the first use may be an evaluation, the next one is not
                self._casts[tensor] = tensor.to(target)
        return self._casts[tensor]


def _eligible(arg: Any) -> bool:
    return isinstance(arg, Tensor) and arg.is_floating_point() and arg.dtype != torch.float64
