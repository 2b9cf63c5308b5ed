"""Right and wrong ways to write `tree_wins_below`."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.ddp.tree_wins_below import tree_wins_below


def closed(ranks: int, latency: float, bandwidth: float) -> float:
    """One fraction."""
    if not (ranks >= 1 and latency >= 0 and bandwidth > 0):
        raise ValueError("this is no cluster")
    c = math.ceil(math.log2(ranks))
    return latency * bandwidth * ranks * (ranks - 1 - c) / max(1, ranks * c - ranks + 1)


def two_lines(ranks: int, latency: float, bandwidth: float) -> float:
    """Two straight lines, known from two points each, in exact fractions."""
    if ranks < 1:
        raise ValueError("at least one rank")
    if latency < 0:
        raise ValueError("messages do not arrive before they are sent")
    if bandwidth <= 0:
        raise ValueError("bytes must move")
    a, b, rounds = Fraction(latency), 1 / Fraction(bandwidth), 0
    while 2**rounds < ranks:
        rounds += 1

    def ahead(n: int) -> Fraction:
        return 2 * (ranks - 1) * (a + b * Fraction(n, ranks)) - 2 * rounds * (a + b * n)

    slope = ahead(1) - ahead(0)
    return float(-ahead(0) / slope) if ahead(0) > 0 else 0.0


RIGHT = (
    right(closed),
    right(two_lines, independent="the lines through two points each, in exact fractions"),
)

edit = partial(edited, tree_wins_below)
CHECK = "ranks < 1 or latency < 0 or bandwidth <= 0"
ROUNDS, FEWER, LONGER = "(ranks - 1).bit_length()", "ranks - 1 - rounds", "rounds - (ranks - 1) / ranks"
LAST = "return fewer * latency * bandwidth / longer"

WRONG = (
    wrong(
        "rounds_rounded_down",
        "You round log2 P down. With 5 ranks two rounds reach 4 of them: it takes three.",
        edit((ROUNDS, "ranks.bit_length() - 1")),
    ),
    wrong(
        "rounds_not_rounded",
        "A tree has whole rounds: ceil(log2 P).",
        edit((ROUNDS, "math.log2(ranks)"), ("    if ranks == 1", "    import math\n\n    if ranks == 1")),
    ),
    wrong(
        "a_round_too_many_at_powers_of_two",
        "For a power of two log2 P is a whole number, and needs no rounding up: 8 ranks take 3 rounds.",
        edit((ROUNDS, "ranks.bit_length()")),
    ),
    wrong(
        "one_tree_of_two",
        "You count one tree and both turns of the ring. An all-reduce takes a tree up and a tree down: 2 ceil(log2 P) "
        "messages.",
        edit((FEWER, "2 * (ranks - 1) - rounds"), (LONGER, "rounds - 2 * (ranks - 1) / ranks")),
    ),
    wrong(
        "one_turn_of_two",
        "You count one turn of the ring and both trees. An all-reduce goes round twice: 2 (P - 1) messages.",
        edit((FEWER, "ranks - 1 - 2 * rounds"), (LONGER, "2 * rounds - (ranks - 1) / ranks")),
    ),
    wrong(
        "p_messages_a_turn",
        "A turn of the ring has P - 1 messages, not P: nobody sends to itself.",
        edit((FEWER, "ranks - rounds"), (LONGER, "rounds - 1")),
        edit((FEWER, "ranks - rounds"), (LONGER, "rounds - 1 or 1")),
    ),
    wrong(
        "bytes_of_the_ring_forgotten",
        "The ring's messages carry bytes too: n / P each, and P - 1 of them in a turn make (P - 1) / P of n.",
        edit((LONGER, "rounds")),
    ),
    wrong(
        "one_chunk_for_the_ring",
        "You count the bytes of one message of the ring, n / P. It has P - 1 of them in a turn.",
        edit((LONGER, "rounds - 1 / ranks")),
    ),
    wrong(
        "bytes_of_a_chunk",
        "What you return is the size of a chunk. x is P times as large.",
        edit((LAST, f"{LAST} / ranks")),
    ),
    wrong(
        "bandwidth_upside_down",
        "You divide by the bandwidth. Seconds times bytes a second are bytes.",
        edit((LAST, "return fewer * latency / bandwidth / longer")),
    ),
    wrong(
        "bits",
        "You return bits. The bandwidth is in bytes a second, and so is the answer in bytes.",
        edit((LAST, f"{LAST} * 8")),
    ),
    wrong(
        "always_where_never",
        "For 2 and 3 ranks the trees save no latency and send more bytes, and for one rank both take no time: the "
        "trees take less time for no x at all, so the answer is 0.",
        edit(
            ("return 0.0", 'return float("inf")'),
            (LAST, 'return fewer * latency * bandwidth / longer or float("inf")'),
        ),
        edit(("return 0.0", 'return float("inf")')),
    ),
    wrong(
        "fails_for_one_rank",
        "With one rank neither way sends anything: the difference of the two slopes is 0, and you divide by it.",
        edit(("if ranks == 1", "if ranks < 1")),
    ),
    wrong(
        "not_looked_at",
        "Refuse what is no cluster with a ValueError: fewer than 1 rank, a negative latency, a bandwidth of 0 or "
        "below. Look at all three before the first return. A ZeroDivisionError of its own will not do.",
        edit((CHECK, "False")),
        edit((CHECK, "latency < 0 or bandwidth <= 0")),
        edit((CHECK, "ranks < 1 or bandwidth <= 0")),
        edit((CHECK, "ranks < 1 or latency < 0 or bandwidth < 0")),
        edit((CHECK, "ranks == 0 or latency < 0 or bandwidth <= 0")),
        edit((CHECK, "ranks < 1 or ranks > 3 and (latency < 0 or bandwidth <= 0)")),
        edit((CHECK, "ranks < 1 or latency < 0 or ranks > 1 and bandwidth <= 0")),
        edit((CHECK, "latency and (ranks < 1 or latency < 0 or bandwidth <= 0)")),
        fails=("refusals",),
    ),
    wrong(
        "refuses_too_much",
        "One rank is a cluster, and a latency of 0 is none to refuse: the answer is 0.0.",
        edit((CHECK, "ranks < 2 or latency < 0 or bandwidth <= 0")),
        edit((CHECK, "ranks < 1 or latency <= 0 or bandwidth <= 0")),
    ),
)
