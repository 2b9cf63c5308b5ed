"""Right and wrong ways to write `most_sent`."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.ddp.most_sent import most_sent


def closed(ranks: int) -> tuple[float, int]:
    """A library's logarithm."""
    if not ranks >= 1:
        raise ValueError("at least one rank")
    return 2 - 2 / ranks, math.ceil(math.log2(ranks))


def played(ranks: int) -> tuple[float, float]:
    """Message after message is counted, of every rank."""
    if ranks <= 0:
        raise ValueError("nobody is there")
    chunk, ring = Fraction(1, ranks), Fraction(0)
    for step in range(2 * ranks):
        ring += chunk * (step % ranks > 0)
    sent, have = [0] * ranks, 1
    while have < ranks:
        for place in range(min(have, ranks - have)):
            sent[place] += 1  # on the way down
            sent[place + have] += 1  # and up
        have *= 2
    return float(ring), float(max(sent))


RIGHT = (
    right(closed),
    right(played, independent="messages, counted one by one"),
)

edit = partial(edited, most_sent)
CHECK, RING, ROUNDS, TREES = "ranks < 1", "2 * (ranks - 1) / ranks", "(ranks - 1).bit_length()", "float(rounds)"

WRONG = (
    wrong(
        "twice_for_any_number",
        "Nobody sends the last chunk of a turn to itself: a turn has P - 1 messages, not P. Twice the bytes of x is "
        "where it goes when P grows.",
        edit((RING, "2.0")),
        edit((RING, "2.0 * (ranks > 1)")),
    ),
    wrong(
        "one_turn_of_the_ring",
        "You count one turn of the ring. An all-reduce goes round twice: sums, and then what is complete.",
        edit((RING, "(ranks - 1) / ranks")),
    ),
    wrong(
        "whole_tensors_in_the_ring",
        "A message of the ring holds a chunk, one of P parts of x.",
        edit((RING, "2.0 * (ranks - 1)")),
    ),
    wrong(
        "one_message_a_turn",
        "You count one chunk for each turn. A rank sends one in each of the P - 1 steps of a turn.",
        edit((RING, "2 / ranks")),
    ),
    wrong(
        "received_too",
        "You count what comes in, too. Asked is what a rank sends.",
        edit((RING, f"2 * {RING}")),
    ),
    wrong(
        "all_ranks_together",
        "You count what all ranks send together, or the mean of it. Asked is the rank that sends most: its link is "
        "what the others wait for.",
        edit((RING, "2 * (ranks - 1)"), (TREES, "2.0 * (ranks - 1)")),
        edit((TREES, "2.0 * (ranks - 1)")),
        edit((TREES, "2 * (ranks - 1) / ranks")),
    ),
    wrong(
        "root_sends_on_both_ways",
        "On the way up the root sends nothing: what the others have comes to it. And another rank sends once on the "
        "way up, and tells fewer on the way down.",
        edit((TREES, "2.0 * rounds")),
        edit((TREES, "float(rounds + 1)")),
    ),
    wrong(
        "star_for_tree",
        "You let the root tell every rank. In the tree it tells one in each round, and whoever knows tells others.",
        edit((TREES, "float(ranks - 1)")),
    ),
    wrong(
        "any_rank_of_the_tree",
        "You look at a rank that hardly sends. Asked is the one that sends most: the root, which sends in every round.",
        edit((TREES, "float(min(rounds, 1))")),
        edit((TREES, "float(min(rounds, 2))")),
    ),
    wrong(
        "rounds_rounded_down",
        "You round log2 P down. With 5 ranks two rounds reach 4 of them: it takes three.",
        edit((ROUNDS, "ranks.bit_length() - 1")),
    ),
    wrong(
        "rounds_not_rounded",
        "A tree has whole rounds: ceil(log2 P).",
        edit((ROUNDS, "math.log2(ranks)"), ("    rounds =", "    import math\n\n    rounds =")),
    ),
    wrong(
        "a_round_too_many_at_powers_of_two",
        "For a power of two log2 P is a whole number, and needs no rounding up: 8 ranks take 3 rounds.",
        edit((ROUNDS, "ranks.bit_length()")),
    ),
    wrong(
        "trees_first",
        "Your two numbers are in the other order: the ring's stands first.",
        edit((f"{RING}, {TREES}", f"{TREES}, {RING}")),
    ),
    wrong(
        "one_rank_sends",
        "One rank has nobody to send to: both numbers are 0, and it is no error.",
        edit((ROUNDS, f"max(1, {ROUNDS})")),
        edit((CHECK, "ranks < 2")),
        fails=("one_rank",),
    ),
    wrong(
        "not_looked_at",
        "Refuse fewer than 1 rank with a ValueError. A ZeroDivisionError of its own will not do.",
        edit((CHECK, "False")),
        edit((CHECK, "ranks == 0")),
        edit((CHECK, "ranks < 0")),
        fails=("refusals",),
    ),
)
