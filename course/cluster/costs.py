"""The account of a run as the ledger entries of an observation: plain tensors, numbers and strings, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from course.cluster.ledger import Ledger
from course.tree import MAX_TEXT, Leaf


def costs(ledger: Ledger) -> dict[str, Leaf]:
    """What a run cost.

    Messages of no bytes, and which verb, group or peer is chosen, can carry values, too: who limits bytes limits
    messages beside them. What a rank computes, and when, is its own claim, and the makespan rests on it.

    bytes, messages       int64, (ranks, ranks): from row to column
    bytes_sent            int64, (ranks,)
    calls/all_reduce ...  int64, (ranks,): how often each rank called a verb; a verb that nobody called is absent
    order/0 ...           the verbs of each rank in order, "send recv send", cut where it is long
    makespan              float: when the last rank ended, in virtual seconds
    """
    size = ledger.size
    sent = _matrix(ledger.sent, size)
    found: dict[str, Leaf] = {
        "bytes": sent,
        "messages": _matrix(ledger.messages, size),
        "bytes_sent": sent.sum(1),
        "makespan": ledger.makespan,
    }
    orders = ledger.orders()
    counted = [Counter(order) for order in orders]
    for verb in sorted({verb for order in orders for verb in order}):
        found[f"calls/{verb}"] = torch.tensor([each[verb] for each in counted])
    for rank, order in enumerate(orders):
        found[f"order/{rank}"] = " ".join(order)[:MAX_TEXT]
    return found


def _matrix(counts: Mapping[tuple[int, int], int], size: int) -> Tensor:
    matrix = torch.zeros(size, size, dtype=torch.int64)
    for (src, dst), count in counts.items():
        matrix[src, dst] = count
    return matrix
