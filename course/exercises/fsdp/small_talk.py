"""Statements about ranks that have little to say to each other: for `Property.holds`, over the ledger of a case.

got["bytes"] (P, P), from row to column        got["calls/all_reduce"] (P,), how often each rank called the verb
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from course.performing.exercise import Inputs, Values

Holds: TypeAlias = Callable[[Inputs, Values, Values], str | None]


def few_words(*, calls: int, nbytes: int) -> Holds:
    """Whether no rank took part in more collectives, or sent more bytes."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        verbs = [each for name, each in got.items() if name.startswith("calls/") and isinstance(each, Tensor)]
        most = int(torch.stack(verbs).sum(0).max()) if verbs else 0
        sent = got["bytes"]
        assert isinstance(sent, Tensor)
        if most > calls:
            return f"{most} collectives, where {calls} {'is' if calls == 1 else 'are'} enough"
        longest = int(sent.sum(1).max())
        return f"a rank sent {longest} bytes, where {nbytes} are enough" if longest > nbytes else None

    return holds
