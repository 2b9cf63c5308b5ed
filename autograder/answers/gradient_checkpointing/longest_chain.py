"""Right and wrong ways to write `longest_chain`."""

from __future__ import annotations

import math
from functools import cache, partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.perform import TimeLimit
from course.reference.gradient_checkpointing.longest_chain import longest_chain


def binomial(slots: int, sweeps: int) -> int:
    """The closed form."""
    return math.comb(slots + sweeps, sweeps)


@cache
def recursion(slots: int, sweeps: int) -> int:
    """Where the first checkpoint goes; each pair once."""
    if slots == 0 or sweeps == 0:
        return 1
    before = recursion(slots, sweeps - 1)
    behind = recursion(slots - 1, sweeps)
    return before + behind


def product(slots: int, sweeps: int) -> int:
    """The closed form, factor by factor: every division leaves no rest."""
    layers = 1
    for i in range(1, sweeps + 1):
        layers = layers * (slots + i) // i
    return layers


RIGHT = (right(binomial, independent="math.comb"), right(recursion), right(product))


def stopped_by_hand(slots: int, sweeps: int) -> int:
    """Each pair again and again, and given up where that takes long: it stands for what the time limit ends."""
    if math.comb(slots + sweeps, sweeps) > 10_000:
        raise TimeLimit
    if slots == 0 or sweeps == 0:
        return 1
    return stopped_by_hand(slots, sweeps - 1) + stopped_by_hand(slots - 1, sweeps)


table = partial(edited, longest_chain)
two_parts = partial(edited, recursion)
closed = partial(edited, binomial)
factors = partial(edited, product)

BEFORE, BEHIND = "before = recursion(slots, sweeps - 1)", "behind = recursion(slots - 1, sweeps)"
COMB = "math.comb(slots + sweeps, sweeps)"
LOGARITHM = "math.lgamma(slots + sweeps + 1) - math.lgamma(slots + 1) - math.lgamma(sweeps + 1)"

WRONG = (
    wrong(
        "first_input_not_counted",
        "You have a slot too many: x_0 lies in one of them.",
        closed((COMB, "math.comb(slots + 1 + sweeps, sweeps)")),
        two_parts(("return 1", "return 1 + (sweeps if slots == 0 else 0)")),
    ),
    wrong(
        "slot_of_the_first_input_lost",
        "You have a slot too few. The slot of x_0 counts among `slots`, and the activation in hand lies in none: with "
        "one slot you can still walk from x_0 to any layer, as often as there are sweeps.",
        closed((COMB, "math.comb(slots - 1 + sweeps, sweeps)")),
    ),
    wrong(
        "one_sweep_short",
        "You are a sweep short. Going backward through a layer is no evaluation: it works from the layer's input "
        "alone. So one layer can go backward without any, and a recursion does not begin with 0 there.",
        closed((COMB, "math.comb(slots + sweeps - 1, slots)")),
        two_parts(("return 1", "return int(sweeps > 0)")),
    ),
    wrong(
        "one_layer_short",
        "You count the layers that are evaluated. The last one goes backward too, and is never evaluated.",
        closed((COMB, "math.comb(slots + sweeps, sweeps) - 1")),
    ),
    wrong(
        "checkpoints_stay",
        "You put all checkpoints down in the first walk and never move one. A slot whose input has been used is free, "
        "and can hold a checkpoint in front of it.",
        closed((COMB, "slots * sweeps + 1")),
    ),
    wrong(
        "slot_not_free_again",
        "The layers before the checkpoint go backward last, when its slot is free again: they have all slots.",
        two_parts((BEFORE, "before = recursion(slots - 1 if slots > 1 else 1, sweeps - 1)")),
    ),
    wrong(
        "behind_pays_too",
        "The walk to the checkpoint evaluates the layers before it. Those behind it have all their sweeps left.",
        two_parts((BEHIND, "behind = recursion(slots - 1, sweeps - 1)")),
    ),
    wrong(
        "in_the_middle",
        "You put the checkpoint in the middle. The two parts have different means, and are not equally long: each "
        "may be as long as its own slots and sweeps allow.",
        two_parts(("return before + behind", "return 2 * min(before, behind)")),
        closed((COMB, "2 ** min(slots, sweeps)")),
    ),
    wrong(
        "a_power",
        "You let every slot multiply the length by sweeps + 1, or every sweep by slots + 1. A layer may lie in front "
        "of many checkpoints, and pays for all of them from the same sweeps.",
        closed((COMB, "(sweeps + 1) ** slots")),
        closed((COMB, "(slots + 1) ** sweeps")),
    ),
    wrong(
        "in_floats",
        "A float has 53 bits, and your number has many more: use `//`, math.comb or sums of ints. A number of NumPy's "
        "or torch's has 64, and is no int of Python's.",
        factors(("layers * (slots + i) // i", "layers * (slots + i) / i")),
        closed((COMB, f"round(math.exp({LOGARITHM}))")),
        factors(("return layers", "return int(float(layers))")),
        closed((COMB, f"{COMB} if min(slots, sweeps) > 9 else float({COMB})")),
        fails=("many",),
    ),
    wrong(
        "divides_into_a_float",
        "`/` gives a float, which ends at 1.8e308: 200! is far beyond. Divide factorials with `//`, or take math.comb.",
        closed((COMB, "int(math.factorial(slots + sweeps) / math.factorial(slots) / math.factorial(sweeps))")),
    ),
    wrong(
        "deeper_than_python_goes",
        "Your recursion is right, and for many slots and sweeps deeper than Python's limit of 1,000 calls, of which a "
        "helper or a generator in between takes its share. Fill a table row by row.",
        two_parts(("    if slots", "    if slots + sweeps > 240:\n        raise RecursionError\n    if slots")),
    ),
    wrong(
        "ends_before_200",
        "200 slots, or 200 sweeps, are beyond your table. Both go from 0 to 200, which are 201 numbers: make the table "
        "as large as what is asked for.",
        table(("[1] * (sweeps + 1)", "[1] * 200"), ("range(1, sweeps + 1)", "range(1, 200)")),
        closed((COMB, "math.comb(min(slots, 199) + min(sweeps, 199), min(sweeps, 199))")),
    ),
    wrong(
        "works_out_the_same_pair_again",
        "Your recursion is right, and works out the same pair again and again: as many calls as the number that it "
        "returns. Keep what you have found (functools.cache, or a table), or fill a table row by row.",
        stopped_by_hand,
    ),
)
