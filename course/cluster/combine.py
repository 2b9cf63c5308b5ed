"""What a collective gives each rank: a pure function of what the ranks gave.

{rank: its tensors}, op  --combined-->  {rank: what it takes}
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from course.cluster.calls import REDUCING, Call, Tensors

STEP: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "mean": torch.add,
    "product": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}


def combined(call: Call, given: Mapping[int, Tensors]) -> dict[int, Tensors]:
    """What each rank of the group takes. `call` is that of any of them; the ranks' tensors may be shared between them.

    Values are combined in the order of ranks and in their own dtype. Nothing is shared with what was given.
    """
    group = call.group
    nobody: dict[int, Tensors] = dict.fromkeys(group, ())
    if call.verb not in REDUCING:
        given = {rank: [each.detach().clone() for each in tensors] for rank, tensors in given.items()}
    match call.verb:
        case "all_reduce":
            whole = reduced(call.op, [given[rank][0] for rank in group])
            return dict.fromkeys(group, (whole,))
        case "reduce":
            return nobody | {call.named: (reduced(call.op, [given[rank][0] for rank in group]),)}
        case "reduce_scatter":
            rows = [[given[rank][place] for rank in group] for place in range(len(group))]
            return {rank: (reduced(call.op, row),) for rank, row in zip(group, rows, strict=True)}
        case "broadcast":
            return dict.fromkeys(group, tuple(given[call.named]))
        case "all_gather":
            return dict.fromkeys(group, tuple(given[rank][0] for rank in group))
        case "gather":
            return nobody | {call.named: tuple(given[rank][0] for rank in group)}
        case "scatter":
            return {rank: (each,) for rank, each in zip(group, given[call.named], strict=True)}
        case "all_to_all":
            return {rank: tuple(given[other][place] for other in group) for place, rank in enumerate(group)}
        case _:
            return nobody


def reduced(op: str, tensors: Tensors) -> Tensor:
    """The tensors combined one after the other; a new tensor."""
    if len(tensors) == 1:
        return tensors[0].detach().clone()
    whole = functools.reduce(STEP[op], (each.detach() for each in tensors))
    return whole / len(tensors) if op == "mean" else whole
