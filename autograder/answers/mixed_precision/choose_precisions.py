"""Right and wrong ways to write `choose_precisions`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.choose_precisions import choose_precisions

Operators = dict[str, dict[torch.dtype, int]]
Plan = dict[str, torch.dtype]
Loss = Callable[[Plan], float]


def all_sums(operators: Operators, budget: int, loss: Loss) -> Plan:
    """Every plan, operator by operator; of those with more bytes and more damage than another nothing can come."""
    whole = dict.fromkeys(operators, torch.float32)
    front: list[tuple[int, float, Plan]] = [(0, 0.0, {})]
    for name, sizes in operators.items():
        alone = {form: loss({**whole, name: form}) for form in sizes}
        longer = [
            (size + sizes[form], damage + alone[form], {**plan, name: form})
            for size, damage, plan in front
            for form in sizes
        ]
        front, least = [], float("inf")
        for size, damage, plan in sorted(longer, key=lambda each: each[:2]):
            if damage < least or not front:
                front.append((size, damage, plan))
                least = damage
    fitting = [(damage, size, plan) for size, damage, plan in front if size <= budget]
    if not fitting:
        raise ValueError("nothing fits")
    return min(fitting, key=lambda each: each[:2])[2]


def before_every_move(operators: Operators, budget: int, loss: Loss) -> Plan:
    """The loss of each move is measured where it would be made."""
    plan = dict.fromkeys(operators, torch.float32)
    now = 0.0
    while True:
        over = sum(operators[name][plan[name]] for name in operators) - budget
        if over <= 0:
            return plan
        found = []
        for name, sizes in operators.items():
            for form, size in sizes.items():
                saved = sizes[plan[name]] - size
                if saved > 0:
                    then = min(loss({**plan, name: form}), 1e9)
                    found.append(((then - now) / saved, then, name, form))
        if not found:
            raise ValueError("too little")
        _, now, name, form = min(found, key=lambda each: each[:2])
        plan[name] = form


RIGHT = (right(all_sums, independent="all sums of what each format costs alone"), right(before_every_move))

by_rate = partial(edited, choose_precisions)
each_time = partial(edited, before_every_move)

SIZE = "sum(operators[name][format] for name, format in plan.items())"
OVER = f"while {SIZE} > budget:"
MOVES = "if saved(*move) > 0"
RATE = "(damage[move] - damage[move[0], plan[move[0]]]) / saved(*move)"
START = "    plan = dict.fromkeys(operators, torch.float32)\n"
SMALLEST = "{name: min(sizes, key=sizes.__getitem__) for name, sizes in operators.items()}"
FORMATS = "for name, sizes in operators.items() for format in sizes"
ALL = "(torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)"
SAVED = "if saved > 0"

SINGLE = """    common = set.intersection(*(set(sizes) for sizes in operators.values()))
    plans = [dict.fromkeys(operators, format) for format in common]
    fitting = [each for each in plans if sum(operators[name][format] for name, format in each.items()) <= budget]
    return min(fitting, key=loss, default=plans[0])
"""

WRONG = (
    wrong(
        "all_in_the_smallest",
        "Every operator gets its smallest format, whatever the budget. Bytes that you may use are lost, and some "
        "operators overflow or vanish in 8 bits.",
        by_rate((START, f"    return {SMALLEST}\n{START}")),
    ),
    wrong(
        "one_format_for_all",
        "Your plan has one format. Operators differ: some need bits, some need range, and some need neither. "
        "Choose for each of them.",
        by_rate((START, SINGLE + START)),
    ),
    wrong(
        "over_the_budget",
        "Your plan needs more bytes than there are. Add up operators[name][format] over all operators, also over those "
        "of one size, and go on until the sum is at most the budget.",
        by_rate((OVER, f"while {SIZE.replace('sum(', 'sum({').replace('items())', 'items()})')} > budget:")),
        by_rate((OVER, "while sum(saved(name, torch.float32) for name in plan) > budget:")),
        by_rate((OVER, "for _ in range(3):")),
    ),
    wrong(
        "largest_first",
        "You shrink the largest results first, whatever that does to the loss. The largest may be the one that needs "
        "its bits: measure.",
        by_rate((RATE, "-saved(*move)")),
        by_rate((RATE, "-operators[move[0]][torch.float32]")),
        by_rate((RATE, "saved(*move)")),
    ),
    wrong(
        "not_by_the_byte",
        "You make the moves of least loss first, whatever they save. Many small operators are then dropped where one "
        "large one would do: divide the rise of loss by the bytes that the move saves.",
        by_rate((RATE, "damage[move]")),
        by_rate((RATE, "damage[move] - damage[move[0], plan[move[0]]]")),
        each_time(("(then - now) / saved, then", "then, then")),
        by_chance=True,  # how much the drawn block punishes it
    ),
    wrong(
        "one_move_each",
        "An operator that has 16 bits gets no smaller format any more, and where that is needed no move is left and "
        "the search fails. Let each operator move again, as long as that saves bytes.",
        by_rate((MOVES, "if plan[move[0]] == torch.float32 and saved(*move) > 0")),
        by_rate(
            (MOVES, "if plan[move[0]] == torch.float32 and saved(*move) > 0"),
            ("min((move for", "min([move for"),
            ("), key=rate)", "], key=rate, default=None)"),
        ),
    ),
    wrong(
        "refuses_what_fits",
        "You refuse a budget by a size that not every operator has, such as that in 8 bits, or a quarter of float32. "
        "The least that a plan needs is the sum of each operator's own smallest.",
        by_rate(("min(sizes.values())", "sizes.get(torch.float8_e4m3fn, sizes[torch.float32])")),
        by_rate(("min(sizes.values())", "sizes.get(torch.bfloat16, sizes[torch.float32])")),
    ),
    wrong(
        "in_their_order",
        "You shrink one operator after the other as they stand in the dict. The order must come from the loss.",
        by_rate((RATE, "0")),
        by_rate((RATE, "-list(operators).index(move[0])")),
    ),
    wrong(
        "always_float16",
        "Of the two formats with 16 bits you take float16 only. What is beyond 65504 becomes inf in it, and what is "
        "below 6e-8 becomes 0: there bfloat16 is better. They cost the same, so measure both.",
        by_rate((MOVES, "if saved(*move) > 0 and move[1] != torch.bfloat16")),
        each_time((SAVED, "if saved > 0 and form != torch.bfloat16")),
    ),
    wrong(
        "always_bfloat16",
        "Of the two formats with 16 bits you take bfloat16 only. It has 3 bits of mantissa less than float16, and "
        "where numbers are of a usual size these count. They cost the same, so measure both.",
        by_rate((MOVES, "if saved(*move) > 0 and move[1] != torch.float16")),
        each_time((SAVED, "if saved > 0 and form != torch.float16")),
    ),
    wrong(
        "no_16_bits",
        "You know 32 bits and 8, and nothing between. Most operators lose nearly nothing with 16.",
        by_rate((MOVES, "if saved(*move) > 0 and move[1] == torch.float8_e4m3fn")),
    ),
    wrong(
        "measured_among_8_bits",
        "You measure one operator while all others are in their smallest formats. Their errors, or what overflows in "
        "them, hide what it does. Leave the others in float32.",
        by_rate(("loss(plan | {name: format})", f"loss({SMALLEST} | {{name: format}})")),
        by_chance=True,  # how much the drawn block punishes it
    ),
    wrong(
        "upside_down",
        "You make the move that costs most loss for its bytes. The first to go is what is missed least.",
        by_rate((RATE, f"-{RATE}")),
        by_rate((RATE, "saved(*move) / (damage[move] - damage[move[0], plan[move[0]]] + 1e-30)")),
    ),
    wrong(
        "the_last_byte_unused",
        "A plan of exactly the budget fits: go on while its bytes are more, not while they are as many.",
        by_rate((OVER, f"while {SIZE} >= budget:")),
        each_time(("if over <= 0", "if over < 0")),
    ),
    wrong(
        "every_format_everywhere",
        "You ask for formats that an operator does not have. Go through operators[name], which differs from one to "
        "the other.",
        by_rate((FORMATS, f"for name in operators for format in {ALL}")),
        by_rate((FORMATS, f"for name in operators for format in {ALL} if operators[name][format]")),
    ),
    wrong(
        "too_many_calls",
        "Your plan is good, but you call loss more than 500 times. Keep what you have measured: a dict by operator and "
        "format.",
        each_time(("for name, sizes in operators.items():\n", "for name, sizes in [*operators.items()] * 3:\n")),
        fails=("few_calls",),
    ),
    wrong(
        "nothing_refused",
        "Your plans are good, but a budget below the smallest formats is not refused with a ValueError.",
        by_rate(("        raise BadArgument(", f"        return {SMALLEST}\n        raise BadArgument(")),
        fails=("refusals",),
    ),
)
