"""Right and wrong ways to write `smallest_stage`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.fsdp.smallest_stage import smallest_stage


def by_bisection(n: int, size: int, recipe: Mapping[str, int], limit: int) -> int | None:
    """Bytes fall from stage to stage: what each one saves is taken off the whole."""
    saved = n - (n + size - 1) // size
    bytes_ = [n * sum(recipe.values())]
    for name in ("states", "gradients", "parameters"):
        bytes_.append(bytes_[-1] - saved * recipe[name])
    stage = bisect_left([-each for each in bytes_], -limit)
    return stage if stage < len(bytes_) else None


def smallest_of_all(n: int, size: int, recipe: Mapping[str, int], limit: int) -> int | None:
    """All that fit, and the least of them."""
    shard = (n + size - 1) // size
    fitting = set()
    for stage in range(4):
        sharded = {"states"} if stage == 1 else {"states", "gradients"} if stage == 2 else {*recipe} if stage else {}
        if sum((shard if name in sharded else n) * recipe[name] for name in recipe) <= limit:
            fitting.add(stage)
    return min(fitting, default=None)


RIGHT = (right(by_bisection, independent="bisect"), right(smallest_of_all))

edit = partial(edited, smallest_stage)
SHARD, SUM = "shard = -(-n // size)", "return parameters + gradients + states"

WRONG = (
    wrong(
        "not_exactly",
        "As many bytes as the limit fit: compare with <=.",
        edit((") <= limit", ") < limit")),
    ),
    wrong(
        "stage_3_where_none_fits",
        "Where not even stage 3 fits, there is no stage to return: None.",
        edit(("return None", "return 3")),
        edit(("return None", "return 4")),
        edit(("return None", "return -1"), ("range(4)", "(0, 1, 2, 3)")),
        edit(("return None", 'return "None"')),
    ),
    wrong(
        "the_largest_stage",
        "You return the largest stage that fits. Take the smallest one.",
        edit(("range(4)", "(3, 2, 1, 0)")),
    ),
    wrong(
        "stage_0_forgotten",
        "Where everything fits, nothing needs to be sharded: the answer is 0, which is not None.",
        edit(("range(4)", "range(1, 4)")),
        edit(("return stage", "return stage or None")),
    ),
    wrong(
        "stage_3_forgotten",
        "range(3) ends with 2: there is a stage 3.",
        edit(("range(4)", "range(3)")),
    ),
    wrong(
        "of_all_ranks",
        "The limit is that of one rank, and so are the bytes.",
        edit((") <= limit", ") <= limit * size")),
        edit((") <= limit", ") * size <= limit")),
    ),
    wrong(
        "elements_not_whole",
        "A shard has whole elements: n / size is rounded up first, and then come the bytes. Else a stage seems to fit "
        "by less than one element.",
        edit((SHARD, "shard = n / size")),
        edit((SHARD, "shard = n // size")),
        edit((SHARD, "shard = round(n / size)")),
        edit((SHARD, "shard = n / size"), (SUM, "return -int(-(parameters + gradients + states) // 1)")),
    ),
    wrong(
        "one_too_many",
        "Where `size` divides n, nothing is padded: n // size + 1 is one too many there.",
        edit((SHARD, "shard = n // size + 1")),
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
)
