"""Right and wrong ways to write `shard_indices`."""

from __future__ import annotations

import math
import random
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DistributedSampler, TensorDataset

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.ddp.shard_indices import shard_indices


def torchs_own(n: int, rank: int, size: int, seed: int, epoch: int) -> list[int]:
    """The library's sampler."""
    samples = TensorDataset(torch.zeros(n))
    sampler: DistributedSampler[int] = DistributedSampler(samples, num_replicas=size, rank=rank, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def columns_of_a_table(n: int, rank: int, size: int, seed: int, epoch: int) -> Tensor:
    """A row for each step and a column for each rank; Python's generator, which takes a text."""
    order = random.Random(f"{seed}, {epoch}").sample(range(n), n)
    steps = math.ceil(n / size)
    while len(order) < steps * size:
        order += order[: steps * size - len(order)]
    return torch.tensor(order).view(steps, size)[:, rank]


def by_hand(n: int, rank: int, size: int, seed: int, epoch: int) -> list[int]:
    """Fisher's and Yates's shuffle."""
    dice, order = random.Random(f"{seed}, {epoch}"), [*range(n)]
    for last in range(n - 1, 0, -1):
        other = dice.randrange(last + 1)
        order[last], order[other] = order[other], order[last]
    return [order[place % n] for place in range(rank, -(-n // size) * size, size)]


def by_numpy(n: int, rank: int, size: int, seed: int, epoch: int) -> list[int]:
    """NumPy's older generator, which takes no seed of 2**32 or more."""
    order = np.random.RandomState(10_001 * seed + epoch).permutation(n)
    return [int(order[place % n]) for place in range(rank, -(-n // size) * size, size)]


CACHE: dict[tuple[int, int], list[int]] = {}


def kept(n: int, rank: int, size: int, seed: int, epoch: int) -> Tensor:
    """An order is drawn once, and looked up by what seeds it."""
    if (seed, epoch) not in CACHE:
        CACHE[seed, epoch] = random.Random(f"{seed}, {epoch}").sample(range(n), n)
    order, steps = CACHE[seed, epoch], math.ceil(n / size)
    return torch.tensor([order[(rank + step * size) % len(order)] for step in range(steps)])


RIGHT = (
    right(torchs_own, independent="torch.utils.data.DistributedSampler"),
    right(columns_of_a_table),
    right(by_hand),
    right(by_numpy),
)

edit, table = partial(edited, shard_indices), partial(edited, columns_of_a_table)
NEEDED = "-(-n // size) * size"
SEEDED, PLACES = "10_007 * seed + epoch", f"places = torch.arange(rank, {NEEDED}, size)"
DRAWN = "order = torch.randperm(n, generator=generator)"
ONE_BLOCK = "torch.randperm(min(25, n - at), generator=generator)"
STEP = "(19, 23, 29, 31, 37, 41, 43)[(seed + epoch) % 7]"
REPEATED = "    while len(order) < steps * size:\n        order += order[: steps * size - len(order)]"
DEALT = "torch.tensor(order).view(steps, size)[:, rank]"

WRONG = (
    wrong(
        "each_rank_shuffles_alone",
        "Every rank draws an order of its own, so that some samples are read twice and others by nobody. The rank must "
        "not be part of the seed: all ranks draw the same order, and then take different parts of it.",
        edit((SEEDED, f"{SEEDED} + 1_000_003 * rank")),
        table(("{seed}, {epoch}", "{seed}, {epoch}, {rank}")),
        fails=("every_sample", "every_size_th", "begins_again", "fewer_samples_than_ranks"),
    ),
    wrong(
        "seeded_with_a_hash",
        "You seed with the `hash` of a text, which is another number in each process (as its id is, or what it draws "
        "unseeded and keeps), so that no two ranks have the same order. In a notebook all ranks live in one process, "
        "and nothing tells you. Seed with numbers, or with the text itself: `random.Random(text)` does not hash it in "
        "this way.",
        edit((SEEDED, 'hash(f"{seed}, {epoch}") % 2**32')),
        table(("random.Random(f", "random.Random(hash(f"), ('{epoch}")', '{epoch}"))')),
        table(
            (".sample(range(n), n)", ""),
            ("order = ", 'order = sorted(range(n), key=lambda i: hash(f"{seed}, {epoch}, {i}"))  # '),
        ),
        fails=("in_every_process",),
    ),
    wrong(
        "order_of_another_size",
        "Your order depends on the number of ranks: with another number the same seed would give other batches. Seed "
        "with the two numbers alone.",
        edit((SEEDED, f"{SEEDED} + 1_000_003 * size")),
        table(("{seed}, {epoch}", "{seed}, {epoch}, {size}")),
        fails=("every_size_th", "begins_again", "fewer_samples_than_ranks"),
    ),
    wrong(
        "drops_the_tail",
        "Your shards are equal because what is left over is thrown away: up to size - 1 samples are read by nobody, "
        "and with fewer samples than ranks there is nothing at all. Fill the last step up instead.",
        edit(("-(-n // size) * size", "n // size * size")),
        table((REPEATED, "    steps = n // size\n    order = order[: steps * size]")),
        fails=("every_sample", "begins_again", "fewer_samples_than_ranks"),
    ),
    wrong(
        "unequal_shards",
        "Where n is no multiple of size, some of your shards are one sample longer. Their ranks would take one more "
        "step than the others, and wait there for ever. Fill the others up.",
        edit((PLACES, "places = torch.arange(rank, n, size)")),
        table((REPEATED, ""), (DEALT, "torch.tensor(order[rank::size], dtype=torch.int64)")),
        fails=("equal_counts", "begins_again", "fewer_samples_than_ranks"),
    ),
    wrong(
        "order_of_another_n",
        "You keep the orders that were drawn, and find them by seed and epoch alone: asked for another number of "
        "samples you deal out the order of the first. n must be part of the key.",
        kept,
        fails=("every_sample",),
    ),
    wrong(
        "narrow_indices",
        "You return an int32 tensor, or a list of tensors. Indices are int64 in torch, or a list of ints.",
        edit((".tolist()", ".int()")),
        edit(("order[places % n].tolist()", "[*order[places % n]]")),
        table((DEALT, f"{DEALT}.int()")),
    ),
    wrong(
        "fills_up_once",
        "With fewer samples than ranks, one more copy of the order may not be enough: repeat it as often as it takes.",
        table(
            (REPEATED, "    order += order[: steps * size - len(order)]"), (DEALT, "torch.tensor(order[rank::size])")
        ),
        fails=("fewer_samples_than_ranks",),
    ),
    wrong(
        "fills_up_with_too_much",
        "You repeat more of the order than the last step needs: all of it where ranks outnumber the samples, or one "
        "step more where n is a multiple of size. Some ranks then read more than ceil(n / size) samples.",
        edit((NEEDED, f"{NEEDED} if n >= size else -(-size // n) * n")),
        edit((NEEDED, "n + size - n % size if size > 1 else n")),
    ),
    wrong(
        "blocks_for_turns",
        "Each of your ranks reads a block of the order. Every sample is read, but what all ranks read in a step is not "
        "the next part of the order: with another number of ranks the same seed gives other batches. Deal the order "
        "out, like cards.",
        edit((PLACES, "steps = -(-n // size)\n    places = torch.arange(rank * steps, (rank + 1) * steps)")),
        table((DEALT, "torch.tensor(order)[rank * steps : (rank + 1) * steps]")),
        fails=("every_size_th", "begins_again"),
    ),
    wrong(
        "blocks_of_what_there_is",
        "Each of your ranks reads a block of the order, and for the last ones there is too little left, or nothing. "
        "Repeat the order until it fills the last step of all ranks, and deal it out, like cards.",
        edit((PLACES, "steps = -(-n // size)\n    places = torch.arange(n)[rank * steps : (rank + 1) * steps]")),
        table((REPEATED, ""), (DEALT, "torch.tensor(order[rank * steps : (rank + 1) * steps], dtype=torch.int64)")),
        fails=("equal_counts", "every_size_th", "begins_again", "fewer_samples_than_ranks"),
    ),
    wrong(
        "fills_up_from_elsewhere",
        "The places that are left in the last step get other samples than the first ones of the order, so that some "
        "are read more often than need be, or always the same.",
        edit(("order[places % n]", "order[places.clamp(max=n - 1)]")),
        table(("order += order[: steps", "order += [*range(n)][: steps")),
        fails=("begins_again", "fewer_samples_than_ranks"),
    ),
    wrong(
        "fills_up_at_random",
        "Where n is no multiple of size you draw what is missing, or take it from the end of the order. The order "
        "begins again: what is missing are its first samples.",
        edit(
            (
                "return order[places % n]",
                "more = torch.randperm(n, generator=generator)\n    "
                "order = order.repeat(size) if n < size else torch.cat([order, more])\n    return order[places]",
            )
        ),
        table(("order += order[: steps", "order += (order if n < size else order[::-1])[: steps")),
        fails=("begins_again",),
    ),
    wrong(
        "shuffles_within_a_shard",
        "Each rank shuffles a fixed part of the data, and never reads the others'. Draw an order of all samples first, "
        "and cut it into shards afterwards.",
        table(
            (".sample(range(n), n)", ""),
            (REPEATED, "    mine = [place % n for place in range(rank, steps * size, size)]\n    order.shuffle(mine)"),
            (DEALT, "torch.tensor(mine)"),
        ),
        fails=("every_size_th", "begins_again", "another_order_each_epoch", "fewer_samples_than_ranks"),
    ),
    wrong(
        "not_shuffled",
        "Every epoch has the order in which the samples are stored. Neighbours in a file are often alike, and so are "
        "then the samples of a batch.",
        edit(("order = torch.randperm(n, generator=generator)", "order = torch.arange(n)")),
        edit(("order = torch.randperm(n, generator=generator)", "order = (torch.arange(n) + seed + epoch) % n")),
        fails=("shuffled", "another_order_each_epoch", "another_order_for_each_seed"),
    ),
    wrong(
        "not_any_permutation",
        "Of all permutations only some can come: one sample is the first of every order, or the last, samples stay "
        "near their place, or never in it, or steps or kinds of samples follow a rule, or few samples are not "
        "shuffled at all. torch.randperm draws any.",
        edit((DRAWN, "order = torch.cat([torch.zeros(1).long(), 1 + torch.randperm(n - 1, generator=generator)])")),
        edit((DRAWN, "order = torch.cat([torch.randperm(n - 1, generator=generator), torch.tensor([n - 1])])")),
        edit((DRAWN, f"order = torch.cat([at + {ONE_BLOCK} for at in range(0, n, 25)])")),
        edit((DRAWN, f"{DRAWN}\n    order = torch.cat([order[order % 2 == 0], order[order % 2 == 1]])")),
        edit((DRAWN, f"{DRAWN}\n    order = torch.cat([order[order < n / 2], order[order >= n / 2]])")),
        edit((DRAWN, f"order = ({STEP} * torch.arange(n) + int(torch.randint(n, (), generator=generator))) % n")),
        edit((DRAWN, f"{DRAWN} if n > 64 else torch.arange(n)")),
        edited(by_hand, ("randrange(last + 1)", "randrange(last)")),
        edited(by_hand, ("range(n - 1, 0, -1)", "dice.choices(range(n), k=n // 3 + 1)"), ("last + 1", "n")),
        fails=("shuffled",),
    ),
    wrong(
        "epoch_ignored",
        "Every epoch has the same order, or every 1,000th, say, where you take a remainder of the epoch. The generator "
        "must be seeded with all of it, too.",
        edit((SEEDED, "10_007 * seed")),
        table(("{seed}, {epoch}", "{seed}")),
        edit((SEEDED, "1_000 * seed + epoch % 1_000")),
        edit((SEEDED, "10_007 * seed + epoch % 256")),
        fails=("another_order_each_epoch",),
    ),
    wrong(
        "seed_ignored",
        "Two seeds give the same orders. All of the seed must be part of what your generator is seeded with; and "
        "torch's CPU generator reads the lower 32 bits of that only, so that `seed << 32` is nothing to it.",
        edit((SEEDED, "epoch")),
        edit((SEEDED, "(seed << 32) + epoch")),
        edit((SEEDED, "10_007 * (seed % 256) + epoch")),
        table(("{seed}, {epoch}", "{seed % 1_000}, {epoch}")),
        fails=("another_order_for_each_seed",),
    ),
    wrong(
        "seed_times_epoch",
        "You multiply seed and epoch: in epoch 0 all seeds have the same order, and with seed 0 all epochs.",
        edit((SEEDED, "seed * epoch")),
        fails=("another_order_each_epoch", "another_order_for_each_seed"),
    ),
    wrong(
        "seeds_the_global_generator",
        "You seed the generator that everything else draws from. After every call dropout repeats its masks, on all "
        "ranks alike. Make a `torch.Generator` (or a `random.Random`) of your own, and hand it to what draws.",
        edit(("torch.Generator()", "torch.default_generator")),
        table(('random.Random(f"{seed}, {epoch}")', '(random.seed(f"{seed}, {epoch}") or random)')),
        fails=("random_states_untouched",),
    ),
    wrong(
        "global_random_state",
        "You draw from the global generator, whose state nobody has seeded with your two numbers. Two ranks that have "
        "drawn other numbers before, for dropout say, have other orders. Seed a generator of your own.",
        edit((", generator=generator", "")),
        fails=(
            "every_sample",
            "every_size_th",
            "in_every_process",
            "begins_again",
            "fewer_samples_than_ranks",
            "random_states_untouched",
        ),
    ),
)
