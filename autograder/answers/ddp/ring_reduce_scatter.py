"""Right and wrong ways to write `ring_reduce_scatter`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.performing.exercise import Answer
from course.reference.ddp.ring_reduce_scatter import ring_reduce_scatter


def one_travelling_sum(comm: Comm, x: Tensor) -> Tensor:
    """No list of sums: what travels is one tensor, new at every stop; begun receives."""
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    rows = x.view(comm.size, -1, *x.shape[1:])
    total = rows[before].clone()
    for stop in range(2, comm.size + 1):
        came = torch.empty_like(total)
        work = comm.irecv(came, before)
        comm.isend(total, after).wait()
        work.wait()
        total = came + rows[(comm.rank - stop) % comm.size]
    return total if comm.size > 1 else rows[0].clone()


def by_recursion(comm: Comm, x: Tensor) -> Tensor:
    """The sum of a chunk as a recursion over those who add to it: the last one asks nobody."""

    def partial_sum(distance: int) -> Tensor:
        own = torch.tensor_split(x, comm.size)[(comm.rank - distance) % comm.size]
        if distance == 1:
            return own.clone()
        comm.send(partial_sum(distance - 1), (comm.rank + 1) % comm.size)
        came = torch.zeros_like(own)
        comm.recv(came, (comm.rank + comm.size - 1) % comm.size)
        return came.add_(own)

    return partial_sum(comm.size)


RIGHT = (
    right(one_travelling_sum),
    right(by_recursion, independent="a recursion over the stops"),
)


def gathers_all(comm: Comm, x: Tensor) -> Tensor:
    """Everybody sends everything around, and adds up alone."""
    total, came = x.clone(), x.clone()
    for _ in range(comm.size - 1):
        comm.send(came, (comm.rank + 1) % comm.size)
        comm.recv(came, (comm.rank - 1) % comm.size)
        total += came
    return total.chunk(comm.size)[comm.rank]


def through_rank_0(comm: Comm, x: Tensor) -> Tensor:
    """A parameter server."""
    if comm.rank:
        comm.send(x, 0)
        mine = torch.empty_like(x.chunk(comm.size)[0])
        comm.recv(mine, 0)
        return mine
    total, came = x.clone(), torch.empty_like(x)
    for other in range(1, comm.size):
        comm.recv(came, other)
        total += came
    for other in range(1, comm.size):
        comm.send(total.chunk(comm.size)[other], other)
    return total.chunk(comm.size)[0].clone()


def each_to_its_owner(comm: Comm, x: Tensor) -> Tensor:
    """The right bytes, on the wrong ways."""
    chunks = x.clone().chunk(comm.size)
    for step in range(1, comm.size):
        comm.send(chunks[(comm.rank + step) % comm.size], (comm.rank + step) % comm.size)
    total, came = chunks[comm.rank].clone(), torch.empty_like(chunks[0])
    for step in range(1, comm.size):
        comm.recv(came, (comm.rank - step) % comm.size)
        total += came
    return total


def in_turns(comm: Comm, x: Tensor) -> Tensor:
    """Rank 0 begins, and every other rank receives before it sends."""
    chunks, after, before = x.clone().chunk(comm.size), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    came = torch.empty_like(chunks[0])
    for step in range(comm.size - 1):
        if comm.rank == 0:
            comm.send(chunks[-1 - step], after)
        comm.recv(came, before)
        if comm.rank:
            comm.send(chunks[comm.rank - 1 - step], after)
        chunks[comm.rank - 2 - step].add_(came)
    return chunks[comm.rank]


edit = partial(edited, ring_reduce_scatter)
SENT, ADDED = "comm.send(chunks[(rank - 1 - step)", "chunks[(rank - 2 - step) % size] += came"
TRAVELS = "chunks[(rank - 1 - step) % size]"
SEND, EMPTY = f"comm.send({TRAVELS}, (rank + 1) % size)", "comm.send(x[:0], (rank + 1) % size)"
CAME, RETURNED = "comm.recv(came, (rank - 1) % size)", "return chunks[rank]"


BEGUN, WAITED = "comm.isend(total, after).wait()", "total = came + rows[(comm.rank - stop) % comm.size]"
SUMMED = WAITED.replace("total = came + ", "torch.add(came, ") + ", out=total)"
INTO_TOTAL = ((BEGUN, "sent = comm.isend(total, after)"),)


def shifted(by: int, *more: tuple[str, str]) -> Answer:
    """Chunks whose numbers are larger by so much."""
    return edit((ADDED, ADDED.replace("- 2", f"- {2 - by}")), (SENT, SENT.replace("- 1", f"- {1 - by}")), *more)


WRONG = (
    wrong(
        "never_adds",
        "What came replaces your own chunk, so that the other ranks' parts are lost on the way. Receive into a tensor "
        "of its own, and add it.",
        edit(("% size] += came", "% size] = came.clone()")),
        edit(("% size] += came", "% size].copy_(came)")),
    ),
    wrong(
        "wrong_chunk_returned",
        "The sum is right, but of another chunk: rank r must return chunk r. The chunk that must end at rank r begins "
        "its way at rank r + 1, because P - 1 steps bring it to the rank before.",
        shifted(1, ("return chunks[rank]", "return chunks[(rank + 1) % size]")),
        shifted(-1, ("return chunks[rank]", "return chunks[(rank - 1) % size]")),
    ),
    wrong(
        "unfinished_chunk_returned",
        "The chunk that you return has not been around the whole ring: some ranks' parts are missing in it. Return the "
        "chunk that was added to in the last step.",
        shifted(1),
        edit(("return chunks[rank]", "return chunks[(rank - 1) % size]")),
    ),
    wrong(
        "one_step_short",
        "With P ranks a chunk meets P - 1 others, so there are P - 1 steps. Yours are P - 2.",
        edit(("range(size - 1)", "range(size - 2)")),
    ),
    wrong(
        "one_step_too_many",
        "After P - 1 steps every chunk has met every rank. In another step what is complete is added to once more.",
        edit(("range(size - 1)", "range(size)")),
    ),
    wrong(
        "same_chunk_every_step",
        "You send your own copy of one chunk in every step. What must travel on is the chunk that came and was added "
        "to: another number in every step.",
        edit(("(rank - 1 - step)", "(rank - 1)")),
        edit(("(rank - 1 - step)", "(rank - 1)"), ("(rank - 2 - step)", "(rank - 2)")),
    ),
    wrong(
        "receives_in_float32",
        "What you receive into has a dtype of its own (float32, where nothing else is said), and not that of what is "
        "sent. Make it with `torch.empty_like`.",
        edit(("torch.empty_like(chunks[rank])", "torch.empty(chunks[rank].shape)")),
        edit(("torch.empty_like(chunks[rank])", "torch.zeros(chunks[rank].shape)")),
    ),
    wrong(
        "receives_first",
        "Every rank receives before it sends, so that all wait for one another, and nobody ever sends. Send first: "
        "here a send waits for nobody.",
        edit(
            ("        comm.recv(came, (rank - 1) % size)\n", ""),
            (f"        {SENT}", f"        comm.recv(came, (rank - 1) % size)\n        {SENT}"),
        ),
        edited(one_travelling_sum, ("        comm.isend", "        work.wait()\n        comm.isend")),
    ),
    wrong(
        "through_floating_point",
        "You add whole numbers in floating point, and turn the sum back: from 2**53 on float64 does not hold them "
        "all, and float32 from 2**24 on. Add them in their own dtype.",
        edit(("x.clone()", "x.double()"), ("return chunks[rank]", "return chunks[rank].to(x.dtype)")),
        edit(
            ("x.clone()", "(x.float() if x.dtype == torch.int32 else x.clone())"),
            ("return chunks[rank]", "return chunks[rank].to(x.dtype)"),
        ),
        edited(
            one_travelling_sum,
            ("x.view(", "x.double().view("),
            ("return total if comm.size > 1", "return total.to(x.dtype) if comm.size > 1"),
        ),
    ),
    wrong(
        "float16_in_bfloat16",
        "float16 travels in bfloat16, which has three binary digits fewer. What travels must have the dtype of x.",
        edit(
            ("x.clone()", "(x.bfloat16() if x.dtype == torch.float16 else x.clone())"),
            ("return chunks[rank]", "return chunks[rank].to(x.dtype)"),
        ),
    ),
    wrong(
        "mean_for_sum",
        "You divide by the number of ranks. A reduce-scatter adds; who wants a mean divides afterwards.",
        edit(("return chunks[rank]", "return chunks[rank] / size")),
    ),
    wrong(
        "gathers_all",
        "The values are right, but whole tensors travel: P times the bytes that are needed. A rank needs the sum of "
        "one chunk only, so only that chunk need travel to it, and be added to on its way.",
        gathers_all,
        fails=("bytes",),
    ),
    wrong(
        "through_rank_0",
        "Everything goes through one rank, which receives P - 1 whole tensors while the others wait. In a ring every "
        "rank receives as much as it sends, from its neighbour.",
        through_rank_0,
        fails=("neighbours_only", "bytes", "all_at_once"),
    ),
    wrong(
        "to_other_ranks",
        "The sums and the bytes are right, but a message goes to another rank than the next one. A chunk that goes "
        "straight to the rank that needs it passes through all ranks between, on a ring of links. Let it go to "
        "rank + 1, and be added to there.",
        each_to_its_owner,
        edit(
            (SENT, SENT.replace("rank - 1 - step", "rank + 1 + step")),
            ("(rank + 1) % size)", "(rank - 1) % size)"),
            ("comm.recv(came, (rank - 1) % size)", "comm.recv(came, (rank + 1) % size)"),
            (ADDED, ADDED.replace("rank - 2 - step", "rank + 2 + step")),
        ),
        fails=("neighbours_only",),
    ),
    wrong(
        "another_dtype",
        "The sums are right, but they have another dtype than x: `sum` of whole numbers gives int64, and half "
        "precision that is added in float32 must be turned back.",
        edit((RETURNED, f"{RETURNED}.to(torch.int64 if x.dtype == torch.int32 else x.dtype)")),
        edit((RETURNED, f"{RETURNED}.to(torch.float32 if x.dtype == torch.float16 else x.dtype)")),
        edit((RETURNED, f"{RETURNED}.to(torch.float64 if x.dtype == torch.float32 else x.dtype)")),
        fails=("dtype",),
    ),
    wrong(
        "another_shape",
        "A chunk has the dims of x, also where it has a single row, and also where a row has several dims of its own.",
        edit((RETURNED, f"{RETURNED}.squeeze(0)")),
        edit((RETURNED, f"{RETURNED}.squeeze(0) if x.dim() > 1 else {RETURNED.removeprefix('return ')}")),
        edit((RETURNED, f"{RETURNED}.flatten(min(1, x.dim() - 1))")),
    ),
    wrong(
        "in_pieces",
        "You send a chunk in several messages, and each message takes a latency. Send a chunk as one.",
        edit(
            (SEND, f"for part in {TRAVELS}.tensor_split(2):\n            comm.send(part, (rank + 1) % size)"),
            (CAME, f"for part in came.tensor_split(2):\n            {CAME.replace('came', 'part')}"),
        ),
        fails=("messages",),
    ),
    wrong(
        "more_messages",
        "You send more messages than P - 1, one after the other: a chunk in several, or one more at the end. Each "
        "takes a latency, however small it is.",
        edit(
            (SEND, "parts = [0, len(came) // 2, len(came)]\n        for at, end in zip(parts, parts[1:]):"),
            (
                CAME,
                f"    comm.send({TRAVELS}[at:end], (rank + 1) % size)\n"
                f"            {CAME.replace('came', 'came[at:end]')}",
            ),
        ),
        edit((RETURNED, f"if size > 1:\n        {EMPTY}\n        {CAME.replace('came', 'x[:0]')}\n    {RETURNED}")),
        fails=("messages", "all_at_once"),
    ),
    wrong(
        "written_before_wait",
        "You write into a tensor between `isend` and `wait`, or begin it and never wait. It may be sent as it is then, "
        "and on other machines the next rank gets the new numbers. Write after `wait`, or send another tensor.",
        edited(one_travelling_sum, *INTO_TOTAL, (f"        {WAITED}", f"        {SUMMED}\n        sent.wait()")),
        edited(one_travelling_sum, *INTO_TOTAL, (f"        {WAITED}", f"        {SUMMED}")),
        edited(one_travelling_sum, ("comm.isend(total, after).wait()", "comm.isend(total, after)")),
        fails=("left_alone_until_waited",),
    ),
    wrong(
        "one_after_the_other",
        "Some ranks receive before they send, and the ranks before them too: they take turns in every step. Here a "
        "send waits for nobody, so let every rank send first.",
        in_turns,
        fails=("all_at_once",),
    ),
)
