"""Right and wrong ways to write `zero_bytes`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.fsdp.zero_bytes import zero_bytes

Recipe = Mapping[str, int]


def counted(n: int, size: int, stage: int, recipe: Recipe) -> int:
    """Every `size`th element begins a row; a rank has one of each row."""
    rows = len(range(0, n, size))
    sharded = ("states", "gradients", "parameters")[:stage]
    return sum((rows if name in sharded else n) * count for name, count in recipe.items())


def from_a_list(n: int, size: int, stage: int, recipe: Recipe) -> float:
    """The order in which ZeRO shards, and floats."""
    order = [recipe[name] for name in ("states", "gradients", "parameters")]
    return float(math.ceil(n / size) * sum(order[:stage]) + n * sum(order[stage:]))


RIGHT = (right(counted, independent="the length of a range"), right(from_a_list))

edit = partial(edited, zero_bytes)
SHARD, RETURN = "shard = -(-n // size)", "return parameters + gradients + states"
PARAMETERS, GRADIENTS, STATES = (
    f"{name} = (shard if stage >= {stage}"
    for name, stage in zip(("parameters", "gradients", "states"), (3, 2, 1), strict=True)
)


def stages(parameters: str = ">= 3", gradients: str = ">= 2", states: str = ">= 1") -> Answer:
    """Which stages shard what."""
    asked = {PARAMETERS: parameters, GRADIENTS: gradients, STATES: states}
    return edit(*((old, f"{old[:-4]}{new}") for old, new in asked.items()))


def returning(new: str) -> Answer:
    """Another last line."""
    return edited(zero_bytes, (RETURN, f"return {new}"))


WRONG = (
    wrong(
        "stage_2_shards_parameters",
        "You shard the parameters one stage too early. In stage 2 every rank still computes with all of them.",
        stages(parameters=">= 2"),
        stages(parameters=">= 2", gradients=">= 3"),
    ),
    wrong(
        "the_order_reversed",
        "Your order is reversed. The optimizer's states are sharded first, then the gradients, and the parameters "
        "last.",
        stages(parameters=">= 1", states=">= 3"),
    ),
    wrong(
        "states_not_first",
        "You shard in another order. The optimizer's states come first, then the gradients, and the parameters last.",
        stages(parameters=">= 1", gradients=">= 3", states=">= 2"),
        stages(parameters=">= 2", gradients=">= 1", states=">= 3"),
    ),
    wrong(
        "stage_1_shards_gradients",
        "You shard the gradients one stage too early. Stage 1 shards the states of the optimizer alone.",
        stages(gradients=">= 1"),
        stages(gradients=">= 1", states=">= 2"),
    ),
    wrong(
        "a_stage_too_late",
        "Stage 0 is what shards nothing; stage 1 shards the states, 2 the gradients too, 3 the parameters too. Yours "
        "come later, or one of the three never comes.",
        stages("> 3", "> 2", "> 1"),
        stages(parameters="> 3"),
        stages(states="> 3"),
        stages(gradients=">= 3"),
        stages(states=">= 2"),
    ),
    wrong(
        "a_stage_too_early",
        "In stage 0 nothing is sharded: it is plain data parallelism.",
        stages(">= 2", ">= 1", ">= 0"),
        stages(states=">= 0"),
    ),
    wrong(
        "only_this_stage",
        "Each stage keeps what those before it have sharded.",
        stages("== 3", "== 2", "== 1"),
    ),
    wrong(
        "states_forgotten",
        "You leave one of the three out. All are there from step to step: parameters, gradients, and the optimizer's "
        "states.",
        returning("parameters + gradients"),
        returning("parameters + states"),
        returning("gradients + states"),
    ),
    wrong(
        "rounded_down",
        "n / size is rounded down, so that the last parameters are on no rank. Shards are equally long, and all "
        "parameters must have a place: round up.",
        edit((SHARD, "shard = n // size")),
        edit((SHARD, "shard = max(1, n // size)")),
    ),
    wrong(
        "not_rounded",
        "A rank holds whole elements: n / size is rounded up, to a number of elements and not of bytes, and not to the "
        "nearest.",
        edit((SHARD, "shard = n / size")),
        edit((SHARD, "shard = round(n / size)")),
        edit((SHARD, "shard = n / size"), (RETURN, "return -int(-(parameters + gradients + states) // 1)")),
    ),
    wrong(
        "one_too_many",
        "Where `size` divides n, as it does 0, nothing is padded: a shard has n / size elements there, no more.",
        edit((SHARD, "shard = n // size + 1")),
        edit((SHARD, "shard = max(1, -(-n // size))")),
    ),
    wrong(
        "padded_everywhere",
        "What is not sharded has n elements, without padding.",
        edit((SHARD, "shard = -(-n // size)\n    n = shard * size")),
    ),
    wrong(
        "bytes_fixed",
        "You count 2 bytes for each number, or 16 for all of them. How many there are stands in the recipe.",
        edit(('recipe["parameters"]', "2"), ('recipe["gradients"]', "2"), ('recipe["states"]', "12")),
        edit(('recipe["parameters"]', "2"), ('recipe["gradients"]', "2"), ('recipe["states"]', "2")),
        edit(('recipe["parameters"]', "4"), ('recipe["gradients"]', "4"), ('recipe["states"]', "8")),
        edit(('recipe["states"]', "12")),
        edit(('recipe["gradients"]', 'recipe["parameters"]')),
    ),
    wrong(
        "by_position",
        "You take the recipe's numbers in the order in which they stand in the dict, which may be any. Look each of "
        'them up by its name, as in recipe["states"].',
        edit(
            ('recipe["parameters"]', "list(recipe.values())[0]"),
            ('recipe["gradients"]', "list(recipe.values())[1]"),
            ('recipe["states"]', "list(recipe.values())[2]"),
        ),
    ),
    wrong(
        "nothing_taken_for_missing",
        "0 bytes in a recipe are 0 bytes: `or` replaces them, because 0 counts as false.",
        edit(
            ('recipe["parameters"]', '(recipe["parameters"] or 2)'),
            ('recipe["gradients"]', '(recipe["gradients"] or 2)'),
            ('recipe["states"]', '(recipe["states"] or 12)'),
        ),
    ),
    wrong(
        "gigabytes",
        "Return bytes. GB are 10^9 of them in the paper, and GiB are 2^30.",
        returning("(parameters + gradients + states) / 1e9"),
        returning("(parameters + gradients + states) / 2**30"),
        returning("(parameters + gradients + states) * 1e9 / 2**30"),
    ),
    wrong(
        "of_all_ranks",
        "Asked for is what one rank holds, not all of them together.",
        returning("(parameters + gradients + states) * size"),
    ),
)
