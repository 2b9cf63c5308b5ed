"""`shard_indices(n, rank, size, seed, epoch)`: which samples a rank reads in an epoch.

The order is free. So all ranks are asked, and the same answer once more as the only rank, which shows its whole order.
Ranks are processes, in each of which Python hashes texts in another way, and no one knows what another keeps: one order
is asked for where it is so here.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course.errors import WrongOutput
from course.exercises.ddp.processes import Memory, another_process
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.tree import Tree

MANY, FROM_0, EVEN, UNEVEN = "101 samples, 4 ranks", "seed 0, epoch 0", "12 samples, 3 ranks", "10 samples, 4 ranks"
FEW, ONE, ALONE = "11 samples, 29 ranks", "1 sample, 17 ranks", "1 rank"
USUAL = (MANY, FROM_0, EVEN, UNEVEN, ALONE)
FURTHER = {"the next": 1, "1,000 further": 1_000, "8,192 further": 8_192}  # a modulus that anybody takes divides one
LONGEST = 1_000  # indices that are looked at: no rank has more than 104
LARGE, SMALL = (MANY, FROM_0), (FEW, ONE)  # in the large ones two orders are never alike by chance


def cases(rng: torch.Generator) -> list[Case]:
    """Equal shards, a remainder, fewer samples than ranks, the first epoch of the seed 0."""

    def case(name: str, n: int, size: int, *numbers: int) -> Case:
        # No two cases ask for one seed, of which an answer may have kept an order; FURTHER leads to 10,000 at most.
        seed, epoch = numbers or (9 * n + integer(rng, 1, 9), integer(rng, 1, 1_000))
        return Case(name=name, inputs={"n": n, "size": size, "seed": seed, "epoch": epoch})

    return [
        case(UNEVEN, 10, 4),
        case(EVEN, 12, 3),
        case(ALONE, 7, 1),
        case(MANY, 101, 4),
        case(FROM_0, 103, 5, 0, 0),
        case(FEW, 11, 29),
        case(ONE, 1, 17),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """All shards, what the global random states give next, and the orders of this epoch, of others and of other n."""
    n, size, seed, epoch = (inputs[name] for name in ("n", "size", "seed", "epoch"))

    def shard(rank: int, size: int, seed: int, epoch: int) -> Tensor:
        return _indices(answer(n, rank, size, seed, epoch))

    memory = Memory(answer)
    torch.manual_seed(1_000 + seed)
    random.seed(1_000 + seed)
    np.random.seed(1_000 + seed)
    shards: dict[str, Tree] = {str(rank): shard(rank, size, seed, epoch) for rank in range(size)}
    state: dict[str, Tree] = {"torch": torch.rand(()), "python": random.random(), "numpy": float(np.random.rand())}
    orders: dict[str, Tree] = {
        "here": shard(0, 1, seed, epoch),
        "more samples": _indices(answer(n + 1, 0, 1, seed, epoch)),
        "epochs": {words: shard(0, 1, seed, epoch + far) for words, far in FURTHER.items()},
        "seeds": {words: shard(0, 1, seed + far, epoch) for words, far in FURTHER.items()},
    }
    later = shard(0, size, seed, epoch + 1)
    memory.forget()
    with another_process():
        orders["elsewhere"] = shard(0, 1, seed, epoch)
    return observe({"shards": shards, "next": state, "orders": orders, "later": later})


def _indices(found: Any) -> Tensor:
    """What was returned as an int64 tensor. Raises WrongOutput."""
    try:
        indices = torch.tensor(0) if _holds_tensors(found) else torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError):
        indices = torch.tensor(0)
    if indices.dim() != 1 or (len(indices) and indices.dtype != torch.int64):
        came = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise WrongOutput(f"must return a list of ints or an int64 tensor of shape (k,), got {came}")
    if len(indices) > LONGEST:
        raise WrongOutput(f"must return ceil(n / size) indices, got {len(indices)}")
    return indices.long()


def _holds_tensors(found: Any) -> bool:
    return isinstance(found, (list, tuple)) and any(isinstance(each, Tensor) for each in found)


def _numbers(got: Values, key: str) -> list[int]:
    found = got[key]
    assert isinstance(found, Tensor)
    return [int(each) for each in found]


def _shards(inputs: Inputs, got: Values) -> list[list[int]]:
    return [_numbers(got, f"shards/{rank}") for rank in range(inputs["size"])]


def _order(inputs: Inputs, got: Values, which: str = "here") -> list[int]:
    """That of the only rank; [] where it is not an order of all samples."""
    order = _numbers(got, f"orders/{which}")
    return order if sorted(order) == [*range(inputs["n"])] else []


def _every_sample(inputs: Inputs, got: Values, expected: Values) -> str | None:
    read = {each for shard in _shards(inputs, got) for each in shard}
    wanted = {*range(inputs["n"])}
    if strange := sorted(read - wanted):
        return f"index {strange[0]}, where there are {inputs['n']} samples"
    if wanted - read:
        return f"sample {min(wanted - read)} is in no shard"
    if sorted(_numbers(got, "orders/more samples")) != [*range(inputs["n"] + 1)]:
        return f"asked for {inputs['n'] + 1} samples after {inputs['n']}, a single rank does not read each of them once"
    return None


def _equal_counts(inputs: Inputs, got: Values, expected: Values) -> str | None:
    shards = _shards(inputs, got)
    counts = sorted({len(each) for each in shards})
    if len(counts) > 1:
        return f"shards of {' and '.join(map(str, counts))} samples"
    parts = all(_is_part(inputs, shard) for shard in shards)
    return None if parts else "a shard that is no part of an order"


def _is_part(inputs: Inputs, shard: list[int]) -> bool:
    """Whether these are samples, at least one, and other ones in every step that all ranks have."""
    full = shard[: inputs["n"] // inputs["size"]]
    return len({*full}) == len(full) > 0 and {*shard} <= {*range(inputs["n"])}


def _places(inputs: Inputs, got: Values, first: int, end: int) -> str | None:
    """Whether entry i of the order, which begins again after n, is entry i // size of rank i % size's shard."""
    n, size, order, shards = inputs["n"], inputs["size"], _order(inputs, got), _shards(inputs, got)
    if not order:
        return "one rank alone does not read every sample once"
    for place in range(first, end):
        shard, step = shards[place % size], place // size
        came = shard[step] if step < len(shard) else "nothing"
        if came != order[place % n]:
            where = f"place {place} of the order" if place < n else f"{place - n} places after the end of the order"
            return f"rank {place % size} reads {came} in step {step}, where {order[place % n]} is at {where}"
    return None


def _in_turns(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Up to where the shortest shard ends: what is missing is another slip."""
    steps = min(len(each) for each in _shards(inputs, got))
    return _places(inputs, got, 0, min(inputs["n"], steps * inputs["size"])) if steps else "an empty shard"


def _begins_again(inputs: Inputs, got: Values, expected: Values) -> str | None:
    steps = -(-inputs["n"] // inputs["size"])
    longest = max(len(each) for each in _shards(inputs, got))
    if longest > steps:
        return f"a shard of {longest} samples, where {steps} are enough"
    return _places(inputs, got, inputs["n"], steps * inputs["size"])


def _few(inputs: Inputs, got: Values, expected: Values) -> str | None:
    if max(map(len, _shards(inputs, got))) > 1:
        return f"a shard of 2 samples or more, where {inputs['n']} samples are fewer than {inputs['size']} ranks"
    return _places(inputs, got, 0, inputs["size"])


def _alike(one: list[int], other: list[int]) -> str | None:
    """Orders that have a quarter of their neighbours in common; two random ones have two pairs, whatever n is."""
    if not one or not other:
        return "one rank alone does not read every sample once"
    pairs = {frozenset(pair) for pair in pairwise(one)} & {frozenset(pair) for pair in pairwise(other)}
    return f"{len(pairs)} of {len(one) - 1} neighbours are the same" if len(pairs) > len(one) // 4 else None


def _alike_to_any(inputs: Inputs, got: Values, what: str) -> str | None:
    """Whether the order is like that of other epochs, or seeds; the first of them is told."""
    here = _order(inputs, got)
    for words in FURTHER:
        if wrong := _alike(here, _order(inputs, got, f"{what}/{words}")):
            return wrong if words == "the next" else f"{wrong} as {words}"
    return None


def _has_a_rule(order: list[int]) -> str | None:
    """What a random order of a hundred samples shows less than once in 10^9."""
    n, steps = len(order), [*pairwise(order)]
    if (differences := len({(b - a) % n for a, b in steps})) < n / 3:  # 0.63 n
        return f"from one sample to the next are only {differences} different ways"
    kinds = {"even": [sample % 2 for sample in order], "in the first half": [2 * sample // n for sample in order]}
    for words, kind in kinds.items():
        if (turns := sum(a != b for a, b in pairwise(kind))) < n / 6:  # n / 2
            return f"samples that are {words} and others come in {turns + 1} runs"
    return None


def _shuffled(inputs: Inputs, got: Values, expected: Values) -> str | None:
    order = _order(inputs, got)
    others = [f"{what}/{words}" for what in ("epochs", "seeds") for words in FURTHER]
    orders = {(*_order(inputs, got, which),) for which in ("here", *others)} - {()}
    if inputs["n"] < 100:  # one order of few samples says nothing, but seven are never the same by chance
        return None if len(orders) > 1 else "all seeds and epochs have one order"
    if wrong := _alike(order, [*range(inputs["n"])]) or _has_a_rule(order):
        return wrong
    if wrong := _near(orders):
        return wrong
    for place, words in ((0, "first"), (-1, "last")):
        if len(orders) > 3 and len({each[place] for each in orders}) == 1:
            return f"one and the same sample is the {words} of {len(orders)} orders"
    if len(orders) > 3 and all(_circle(each) == len(each) for each in orders):
        return f"in none of {len(orders)} orders could any sample stay: each is one circle through all places"
    return None


def _near(orders: Collection[Sequence[int]]) -> str | None:
    """Whether samples are nearer to where they are stored than in a random order but once in 10^9."""
    apart = [abs(sample - place) for order in orders for place, sample in enumerate(order)]
    n, far = len(apart) / len(orders), sum(apart) / len(apart)
    deviation = (2 * n / 45 / len(orders)) ** 0.5  # of the mean, which is n / 3
    return (
        f"a sample is {far:.1f} places away from where it is stored, on average"
        if far < n / 3 - 6 * deviation
        else None
    )


def _circle(order: Sequence[int]) -> int:
    """How many steps it is from place 0 to the place of the number that is there, and so on, back to 0."""
    place, steps = order[0], 1
    while place:
        place, steps = order[place], steps + 1
    return steps


def _each_epoch(inputs: Inputs, got: Values, expected: Values) -> str | None:
    if {*_numbers(got, "shards/0")} == {*_numbers(got, "later")}:
        return "rank 0 reads the same samples in two epochs"
    return _alike_to_any(inputs, got, "epochs")


def _each_seed(inputs: Inputs, got: Values, expected: Values) -> str | None:
    return _alike_to_any(inputs, got, "seeds")


def _anywhere(inputs: Inputs, got: Values, expected: Values) -> str | None:
    here, elsewhere = _order(inputs, got), _order(inputs, got, "elsewhere")
    if not here or not elsewhere:
        return "one rank alone does not read every sample once"
    if here == elsewhere:
        return None
    return "another process of Python, with another `hash` and nothing that was kept, draws another order"


def _state_kept(inputs: Inputs, got: Values, expected: Values) -> str | None:
    if not _is_part(inputs, _numbers(got, "shards/0")):
        return "a shard that is no part of an order"
    others = [name for name in ("torch", "python", "numpy") if got[f"next/{name}"] != expected[f"next/{name}"]]
    return f"other numbers come next from the global generator of {others[0]}" if others else None


EXERCISE = Exercise(
    id="ddp.shard_indices",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "every_sample",
            "Together the shards must hold every sample. Ranks that cut one and the same order into pieces, with "
            "nothing left over, do that without a word to each other. An order of another n is another order.",
            points=2,
            holds=_every_sample,
            cases=USUAL,
        ),
        Property(
            "equal_counts",
            "All shards must be equally long: a rank with one more sample would take one more step than the others, "
            "and wait in it for ever.",
            holds=_equal_counts,
            cases=USUAL,
        ),
        Property(
            "every_size_th",
            "Rank r reads entries r, r + size, r + 2 size, ... of the order, and the order is the one that a single "
            "rank would read: it depends on n, seed and epoch, not on rank and size.",
            points=2,
            holds=_in_turns,
            cases=USUAL,
        ),
        Property(
            "in_every_process",
            "The ranks are processes, and all of them must draw the same order. Python's `hash` of a text is another "
            "number in each process, and what one of them has drawn and kept no other knows. Seed with the numbers "
            "themselves.",
            holds=_anywhere,
            cases=LARGE,
        ),
        Property(
            "begins_again",
            "Where n is no multiple of size, the last step has too few samples. The missing ones are those at the "
            "beginning of the same order, and no more of them than that step needs: none where n is a multiple.",
            holds=_begins_again,
            cases=(EVEN, UNEVEN, MANY, FROM_0),
        ),
        Property(
            "fewer_samples_than_ranks",
            "With fewer samples than ranks every rank still reads one: the order must be repeated as often as it "
            "takes, perhaps more than once.",
            holds=_few,
            cases=SMALL,
        ),
        Property(
            "shuffled",
            "The order is the one in which the samples are stored, or much of it is, or it follows a rule. Draw a "
            "permutation, of few samples too.",
            holds=_shuffled,
            cases=(*LARGE, EVEN, UNEVEN),
        ),
        Property(
            "another_order_each_epoch",
            "In the next epoch the order must be drawn anew, over all samples, so that a rank reads others than "
            "before. All of the epoch must be part of what you seed your generator with, also where the seed is 0.",
            holds=_each_epoch,
            cases=LARGE,
        ),
        Property(
            "another_order_for_each_seed",
            "Another seed must give another order, up to 10,000, also in epoch 0. (torch's CPU generator reads only "
            "the lower 32 bits of the number with which it is seeded.)",
            holds=_each_seed,
            cases=LARGE,
        ),
        Property(
            "random_states_untouched",
            "Dropout and initial weights draw from the global generators, and their numbers must not depend on how "
            "often somebody asks for a shard. Use a generator of your own.",
            holds=_state_kept,
            cases=USUAL,
        ),
    ),
    hints=(
        "Nobody sends anything here. How can every rank know which samples the others read?",
        "All ranks draw the same permutation, from a `torch.Generator` of their own that was seeded with both numbers.",
        "Draw the permutation; repeat it until it fills the last step of all ranks; cut it off there; take every "
        "size-th entry from `rank` on.",
    ),
    promises={
        "at least 1": (ONE, ALONE),
        "ints from 0 to 10,000": ("another_order_each_epoch", "another_order_for_each_seed"),
        "it may be larger than n": (FEW,),
        "0 to size - 1": (UNEVEN,),
        "a change of either changes the order": ("another_order_each_epoch", "another_order_for_each_seed"),
        "or an int64 tensor": ("every_sample",),
        "ceil(n / size) indices, for all ranks the same number": ("equal_counts", "begins_again"),
        "a random permutation of 0 to n - 1": ("shuffled", "every_sample"),
        "depends on n, seed and epoch alone": ("every_size_th", "in_every_process"),
        "entries rank, rank + size, rank + 2 size, ...": ("every_size_th",),
        "begins again after its end as often as needed": ("begins_again", "fewer_samples_than_ranks"),
        "global random states": ("random_states_untouched",),
    },
    seconds=2.0,
)
