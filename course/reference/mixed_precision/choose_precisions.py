"""A format for each operator of a block, under a budget of bytes.

all in float32 --the move that costs least loss for each byte it saves--> again, until the bytes fit
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from course.errors import BadArgument

Plan: TypeAlias = dict[str, torch.dtype]
BROKEN = 1e30  # in place of inf, of which no difference can be taken


def choose_precisions(operators: dict[str, dict[torch.dtype, int]], budget: int, loss: Callable[[Plan], float]) -> Plan:
    """{operator: dtype} of at most `budget` bytes, with a loss close to the least possible.

    operators  the dtypes of each, float32 among them, with the bytes of its result
    loss       of a plan; called once for each operator and dtype, with all others in float32
    Roundings are nearly independent, so that what each costs alone adds up. Then it is a knapsack problem, for which
    the best ratio first is nearly right: only the last move may save more bytes than were needed.
    Raises BadArgument where even the smallest formats do not fit.
    Source: Kellerer, Pferschy and Pisinger, Knapsack Problems (2004), section 11.2, the greedy algorithm for multiple
    choice.
    """
    least = sum(min(sizes.values()) for sizes in operators.values())
    if least > budget:
        raise BadArgument(f"budget must be at least {least} bytes, got {budget}")
    plan = dict.fromkeys(operators, torch.float32)
    moves = [(name, format) for name, sizes in operators.items() for format in sizes]
    damage = {(name, format): min(loss(plan | {name: format}), BROKEN) for name, format in moves}

    def saved(name: str, format: torch.dtype) -> int:
        return operators[name][plan[name]] - operators[name][format]

    def rate(move: tuple[str, torch.dtype]) -> float:
        return (damage[move] - damage[move[0], plan[move[0]]]) / saved(*move)

    while sum(operators[name][format] for name, format in plan.items()) > budget:
        name, format = min((move for move in damage if saved(*move) > 0), key=rate)
        plan[name] = format
    return plan
