"""Right and wrong ways to write `tree_broadcast`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.performing.exercise import Answer
from course.reference.ddp.tree_broadcast import tree_broadcast


def by_halves(comm: Comm, x: Tensor, source: int) -> None:
    """The ranks are cut into halves, again and again; the first of one half tells the first of the other."""

    def within(first: int, end: int) -> None:
        if end - first < 2:
            return
        middle = (first + end + 1) // 2
        ranks = [(place + source) % comm.size for place in (first, middle)]
        if comm.rank == ranks[0]:
            comm.send(x, ranks[1])
        if comm.rank == ranks[1]:
            comm.recv(x, ranks[0])
        own = (comm.rank - source) % comm.size
        within(*((first, middle) if own < middle else (middle, end)))

    within(0, comm.size)


def by_bits(comm: Comm, x: Tensor, source: int) -> None:
    """The parent has the lowest bit of a place cleared; the farthest child comes first; begun sends."""
    place, works = (comm.rank - source) % comm.size, []
    bit = 1
    while bit < comm.size and not place & bit:
        bit *= 2
    if place:
        comm.recv(x, (place - bit + source) % comm.size)
    while bit > 1:
        bit //= 2
        if place + bit < comm.size:
            works.append(comm.isend(x, (place + bit + source) % comm.size))
    for work in works:
        work.wait()


def by_a_list(comm: Comm, x: Tensor, source: int) -> None:
    """Every rank writes down who sends to whom; x comes into a new tensor."""
    reached = [source]
    missing = [rank for rank in range(comm.size) if rank != source]
    while missing:
        pairs = list(zip(reached, missing, strict=False))
        missing = missing[len(pairs) :]
        reached += [to for _, to in pairs]
        for sender, to in pairs:
            if comm.rank == sender:
                comm.send(x.contiguous(), to)
            elif comm.rank == to:
                came = torch.empty(x.shape, dtype=x.dtype)
                comm.recv(came, sender)
                x[...] = came


RIGHT = (
    right(by_halves),
    right(by_bits),
    right(by_a_list, independent="a list of who has x, without numbers of rounds or places"),
)


def zeros(comm: Comm, x: Tensor, source: int) -> None:
    """Nothing is sent."""
    if comm.rank != source:
        x.zero_()


def star(comm: Comm, x: Tensor, source: int) -> None:
    """The source tells everybody."""
    if comm.rank != source:
        comm.recv(x, source)
        return
    for to in range(comm.size):
        if to != source:
            comm.send(x, to)


def by_way_of_rank_0(comm: Comm, x: Tensor, source: int) -> None:
    """A tree whose root is rank 0, whatever the source is."""
    if source and comm.rank == source:
        comm.send(x, 0)
    if source and comm.rank == 0:
        comm.recv(x, source)
    tree_broadcast(comm, x, 0)


def chain(comm: Comm, x: Tensor, source: int) -> None:
    """Each tells the next."""
    place = (comm.rank - source) % comm.size
    if place:
        comm.recv(x, (comm.rank - 1) % comm.size)
    if place < comm.size - 1:
        comm.send(x, (comm.rank + 1) % comm.size)


def two_children(comm: Comm, x: Tensor, source: int) -> None:
    """A tree as a heap has it."""
    place = (comm.rank - source) % comm.size
    if place:
        comm.recv(x, ((place - 1) // 2 + source) % comm.size)
    for child in (2 * place + 1, 2 * place + 2):
        if child < comm.size:
            comm.send(x, (child + source) % comm.size)


def everybody_sends(comm: Comm, x: Tensor, source: int) -> None:
    """In every round each rank sends what it has, good or not."""
    place, have, came = (comm.rank - source) % comm.size, 1, torch.empty_like(x)
    while have < comm.size:
        comm.send(x, (comm.rank + have) % comm.size)
        comm.recv(came, (comm.rank - have) % comm.size)
        if have <= place < 2 * have:
            x.copy_(came)
        have *= 2


def cast(dtype: str) -> Answer:
    """Another tensor goes down the tree, and x is filled from it."""
    return edited(
        tree_broadcast,
        ("    size = comm.size", f"    whole, x = x, {dtype}\n    size = comm.size"),
        ("        have *= 2", "        have *= 2\n    whole.copy_(x)"),
    )


edit = partial(edited, tree_broadcast)
SEND, RECV = "comm.send(x, (comm.rank + have) % size)", "comm.recv(x, (comm.rank - have) % size)"
CAME = f"came = x.clone()\n            {RECV.replace('(x', '(came')}"
FLOATING = "x.copy_(came) if not x.is_floating_point()"

WRONG = (
    wrong(
        "rounds_rounded_down",
        "With P not a power of two the last ranks get nothing: P = 5 takes three rounds, not two. Go on while fewer "
        "than P ranks have x.",
        edit(("while have < size", "while 2 * have <= size")),
    ),
    wrong(
        "sends_beyond_the_last",
        "In the last round some ranks have nobody to send to: their partner's place would be P or more, and modulo P "
        "that is a rank which has x already.",
        edit((" and place + have < size", "")),
        edit(
            (" and place + have < size", ""),
            ("comm.rank + have) % size", "place + have + source)"),
        ),
    ),
    wrong(
        "source_ignored",
        "You send rank 0's x, whatever the source is.",
        edit(("(comm.rank - source) % size", "comm.rank")),
    ),
    wrong(
        "places_for_ranks",
        "You count from the source, and then send to that number. Back to ranks: (place + source) modulo P.",
        edit((SEND, "comm.send(x, place + have)"), (RECV, "comm.recv(x, place - have)")),
    ),
    wrong(
        "exclusive_or_for_a_difference",
        "You number places by rank ^ source. That goes well among powers of two alone: of 5 ranks, from the last, some "
        "would be told by rank 5, which there is not. Places are (rank - source) modulo P.",
        edit(
            ("(comm.rank - source) % size", "comm.rank ^ source"),
            ("place + have < size", "(place + have) ^ source < size"),
            (SEND, "comm.send(x, (place + have) ^ source)"),
            (RECV, "comm.recv(x, (place - have) ^ source)"),
        ),
    ),
    wrong(
        "zeros_delivered",
        "x is filled with zeros, and the source's numbers never arrive.",
        zeros,
        edit((RECV, f"{RECV}\n            x.zero_()")),
    ),
    wrong(
        "added_to_what_was_there",
        "You add what comes to what x held. A broadcast overwrites it.",
        edit((RECV, f"came = x.clone()\n            {RECV.replace('(x', '(came')}\n            x += came")),
    ),
    wrong(
        "computed_with_what_was_there",
        "You compute with what x held: 0 times it and what came, say, or the difference of both. Where it held nan or "
        "inf that gives nan. Receive into x, or copy what came.",
        edit((RECV, f"{CAME}\n            {FLOATING} else x.mul_(0).add_(came)")),
        edit((RECV, f"{CAME}\n            {FLOATING} else x.add_(came - x)")),
    ),
    wrong(
        "through_another_dtype",
        "Your numbers travel in one dtype, whatever theirs is: float32 loses digits of float64, and of whole numbers "
        "from 2**24 on; float64 from 2**53 on; and float16 ends at 65,504. Send x in its own dtype.",
        cast("x.float()"),
        cast("x.double()"),
        cast("x.half() if x.element_size() == 2 else x"),
    ),
    wrong(
        "half_travels_in_float32",
        "The values are right, but half precision travels in float32, in twice the bytes. Send x in its own dtype.",
        cast("x.float() if x.element_size() == 2 else x"),
        fails=("messages_in_all", "messages_of_a_rank"),
    ),
    wrong(
        "not_in_place",
        "The numbers come into a new tensor, and the caller's x keeps its own. Write into the memory of x: receive "
        "into x itself, or `x.copy_(came)`; an assignment to a name or to `.data` does not.",
        edit(("    size = comm.size", "    x = x.clone()\n    size = comm.size")),
        edit((RECV, f"came = x.clone()\n            {RECV.replace('(x', '(came')}\n            x.data = came")),
    ),
    wrong(
        "received_in_a_copy",
        "`contiguous`, `flatten` and `reshape` of a view give a copy: what comes into it does not reach x, or only "
        "after x was passed on. recv takes any strides.",
        edit((RECV, RECV.replace("(x", "(x.contiguous()"))),
        edit((RECV, RECV.replace("(x", "(x.flatten()")), (SEND, SEND.replace("(x", "(x.flatten()"))),
        edit(
            ("    size = comm.size", "    row = x.contiguous()\n    size = comm.size"),
            (RECV, RECV.replace("(x", "(row")),
            ("        have *= 2", "        have *= 2\n    x.copy_(row)"),
        ),
    ),
    wrong(
        "views_refused",
        "Your code cannot take an x that is a view: `.view` asks how its numbers lie in memory. send and recv take any "
        "strides.",
        edit((RECV, RECV.replace("(x", "(x.view(-1)")), (SEND, SEND.replace("(x", "(x.view(-1)"))),
    ),
    wrong(
        "source_sends_to_all",
        "The source sends all P - 1 messages, one after the other, and the others only wait. Let every rank that has x "
        "help.",
        star,
        fails=("messages_of_a_rank", "rounds"),
    ),
    wrong(
        "by_way_of_rank_0",
        "The source sends x to rank 0, and rank 0 sends it on: one message and one round too many. Put the source "
        "at the root of the tree.",
        by_way_of_rank_0,
        fails=("messages_in_all", "rounds"),
    ),
    wrong(
        "too_many_rounds",
        "x goes down a chain, or a tree in which each rank has two children: a rank that has x sends it once or twice "
        "and stops. It can send in every round that is left.",
        chain,
        two_children,
        fails=("rounds",),
    ),
    wrong(
        "all_send_in_every_round",
        "Every rank sends in every round, also one that does not have the source's x yet. Its message is thrown away: "
        "P - 1 messages in all are enough.",
        everybody_sends,
        fails=("messages_in_all",),
    ),
)
