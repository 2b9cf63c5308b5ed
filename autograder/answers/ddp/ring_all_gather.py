"""Right and wrong ways to write `ring_all_gather`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.performing.exercise import Answer
from course.reference.ddp.ring_all_gather import ring_all_gather


def turned_round(comm: Comm, chunk: Tensor) -> Tensor:
    """The order of arrival, turned round and rolled into place: no number of a chunk is computed."""
    arrived = [chunk.contiguous()]
    for _ in range(comm.size - 1):
        came = torch.empty_like(arrived[0])
        comm.send(arrived[-1], (comm.rank + 1) % comm.size)
        comm.recv(came, (comm.rank - 1) % comm.size)
        arrived.append(came)
    return torch.cat(arrived[::-1]).roll((comm.rank + 1) * len(chunk), 0)


def all_begun(comm: Comm, chunk: Tensor) -> Tensor:
    """All receives are begun at the start; each chunk that is there goes on."""
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    found = [torch.zeros_like(chunk) for _ in range(comm.size)]
    numbers = [(comm.rank - step) % comm.size for step in range(comm.size)]
    found[comm.rank] += chunk
    receives = [comm.irecv(found[number], before) for number in numbers[1:]]
    sends = []
    for number, work in zip(numbers, receives, strict=False):
        sends.append(comm.isend(found[number], after))
        work.wait()
    for work in sends:
        work.wait()
    return torch.cat(found)


RIGHT = (
    right(turned_round, independent="torch.roll of what arrived"),
    right(all_begun),
)


def grows(comm: Comm, chunk: Tensor) -> Tensor:
    """Everything that a rank has travels on."""
    have = chunk.clone()
    for step in range(1, comm.size):
        comm.send(have, (comm.rank + 1) % comm.size)
        came = torch.cat([torch.empty_like(chunk)] * step)
        comm.recv(came, (comm.rank - 1) % comm.size)
        have = torch.cat([came, chunk])
    return have.roll((comm.rank + 1) * len(chunk), 0)


def to_everybody(comm: Comm, chunk: Tensor) -> Tensor:
    """The right bytes, on the wrong ways."""
    parts = [torch.empty_like(chunk) for _ in range(comm.size)]
    parts[comm.rank].copy_(chunk)
    for step in range(1, comm.size):
        comm.send(chunk, (comm.rank + step) % comm.size)
    for step in range(1, comm.size):
        comm.recv(parts[comm.rank - step], (comm.rank - step) % comm.size)
    return torch.cat(parts)


def through_rank_0(comm: Comm, chunk: Tensor) -> Tensor:
    """One rank gathers, and tells all."""
    whole = torch.cat([chunk] * comm.size)
    if comm.rank:
        comm.send(chunk, 0)
        comm.recv(whole, 0)
        return whole
    for other in range(1, comm.size):
        comm.recv(whole.chunk(comm.size)[other], other)
    for other in range(1, comm.size):
        comm.send(whole, other)
    return whole


def in_turns(comm: Comm, chunk: Tensor) -> Tensor:
    """Rank 0 begins, and every other rank receives before it sends."""
    parts = [torch.empty_like(chunk) for _ in range(comm.size)]
    parts[comm.rank].copy_(chunk)
    for step in range(comm.size - 1):
        if comm.rank == 0:
            comm.send(parts[-step], 1)
        comm.recv(parts[comm.rank - step - 1], (comm.rank - 1) % comm.size)
        if comm.rank:
            comm.send(parts[comm.rank - step], (comm.rank + 1) % comm.size)
    return torch.cat(parts)


edit = partial(edited, ring_all_gather)
SENT, CAME = "parts[(rank - step) % size]", "parts[(rank - step - 1) % size]"
SEND = f"comm.send({SENT}, (rank + 1) % size)"
OWN, LAST = "parts[rank].copy_(chunk)", "    return whole"
BEGUN = "sent = comm.isend(passing, (rank + 1) % size)"
PASSING = ((OWN, f"{OWN}\n    passing = chunk.clone()"), (SEND, BEGUN))
RECEIVED = f"comm.recv({CAME}, (rank - 1) % size)"


def through(cast: str) -> Answer:
    """All numbers are sent in another dtype, and turned back at the end."""
    return edited(
        turned_round, ("chunk.contiguous()", f"chunk{cast}"), ("len(chunk), 0)", "len(chunk), 0).to(chunk.dtype)")
    )


WRONG = (
    wrong(
        "order_of_arrival",
        "You return the chunks in the order in which they came. Every rank's neighbour is another, and so is that "
        "order; rank 0's chunk must stand first everywhere.",
        edited(turned_round, ("torch.cat(arrived[::-1]).roll((comm.rank + 1) * len(chunk), 0)", "torch.cat(arrived)")),
        edited(turned_round, (".roll((comm.rank + 1) * len(chunk), 0)", "")),
    ),
    wrong(
        "next_place",
        "Each chunk stands one place or more from where it belongs: the chunk of rank r has the rows from r * m on. "
        "What comes in the first step is the chunk of the rank before.",
        edited(turned_round, ("(comm.rank + 1) * len", "comm.rank * len")),
        edited(turned_round, ("(comm.rank + 1) * len", "(comm.rank + 2) * len")),
    ),
    wrong(
        "own_chunk_missing",
        "Your own chunk reaches the others, but not your own result: copy it to its place.",
        edit((OWN, ""), ("new_empty", "new_zeros"), (SENT, f"({SENT} if step else chunk)")),
    ),
    wrong(
        "one_step_short",
        "A chunk must reach P - 1 other ranks, so there are P - 1 steps. Yours are P - 2.",
        edit(("range(size - 1)", "range(size - 2)"), ("new_empty", "new_zeros")),
    ),
    wrong(
        "sends_its_own_always",
        "You send your own chunk in every step, so that a rank gets the chunk of the one before it P - 1 times. Pass "
        "on what came last.",
        edit((SENT, "parts[rank]")),
    ),
    wrong(
        "one_tensor_for_all",
        "You receive every chunk into the same tensor, and keep it several times: each place of your list shows what "
        "came last. Receive each into a tensor of its own, or copy it.",
        edited(
            turned_round,
            ("    arrived = ", "    came = torch.empty_like(chunk.contiguous())\n    arrived = "),
            ("        came = torch.empty_like(arrived[0])\n", ""),
        ),
    ),
    wrong(
        "receives_in_float32",
        "What you receive into has a dtype of its own (float32, where nothing else is said), and not that of what is "
        "sent. Make it with `torch.empty_like` or `chunk.new_empty`.",
        edited(turned_round, ("torch.empty_like(arrived[0])", "torch.empty(chunk.shape)")),
    ),
    wrong(
        "result_in_float32",
        "The chunks come in their own dtype, but your result has another: float32, where nothing else is said. Make it "
        "with `chunk.new_empty`.",
        edited(
            all_begun,
            ("    found = [", "    result = torch.zeros(comm.size * len(chunk), *chunk.shape[1:])\n    found = ["),
            ("return torch.cat(found)", "result[:] = torch.cat(found)\n    return result"),
        ),
        edit((LAST, "    return whole.float()")),
        fails=("views_and_dtypes", "dtype"),
    ),
    wrong(
        "a_new_dimension",
        "You return (P, m, ...). The chunks stand one behind the other along dim 0, which has P * m rows: `torch.cat`, "
        "not `torch.stack`.",
        edited(all_begun, ("torch.cat(found)", "torch.stack(found)")),
    ),
    wrong(
        "a_dimension_lost",
        "A row of chunk that has a dimension of one entry keeps it: the result has the dimensions of chunk, and only "
        "dim 0 is longer.",
        edited(all_begun, ("torch.cat(found)", "torch.cat(found).squeeze()")),
    ),
    wrong(
        "views_refused",
        "Your code cannot take a chunk that is a view: `.view` asks how its numbers lie in memory. `copy_`, `reshape` "
        "and the communicator's verbs do not.",
        edit((OWN, "parts[rank].view(-1).copy_(chunk.view(-1))")),
    ),
    wrong(
        "chunk_itself_returned",
        "Where there is one rank you return chunk itself. When the caller writes its next numbers into it, your result "
        "changes: copy it.",
        edit((LAST, "    return whole if size > 1 else chunk")),
        fails=("own_memory",),
    ),
    wrong(
        "through_another_dtype",
        "Your numbers travel in one dtype, whatever theirs is: float32 loses digits of float64, and of whole numbers "
        "from 2**24 on; float64 from 2**53 on; and float16 ends at 65,504. Send each chunk in its own dtype.",
        through(".float()"),
        through(".double()"),
        through(".half() if chunk.element_size() == 2 else chunk"),
    ),
    wrong(
        "more_than_a_chunk_travels",
        "The values are right, but more travels than the next rank needs: it lacks one chunk only, the one that came "
        "to you last, and in the dtype of chunk. Half precision that is sent as float32 takes twice the bytes.",
        grows,
        edited(
            turned_round,
            ("    arrived = ", "    half = chunk.dtype == torch.bfloat16\n    arrived = "),
            ("chunk.contiguous()", "(chunk.float() if half else chunk.contiguous())"),
            ("len(chunk), 0)", "len(chunk), 0).to(chunk.dtype)"),
        ),
        fails=("bytes",),
    ),
    wrong(
        "in_pieces",
        "You send each chunk in several messages, and each message takes a latency. Send a chunk as one.",
        edit(
            (SEND, f"for part in {SENT}.tensor_split(2):\n            comm.send(part, (rank + 1) % size)"),
            (
                f"comm.recv({CAME}, (rank - 1) % size)",
                f"for part in {CAME}.tensor_split(2):\n            comm.recv(part, (rank - 1) % size)",
            ),
        ),
        fails=("messages",),
    ),
    wrong(
        "through_rank_0",
        "Everything goes through one rank, which sends P - 1 whole results while the others wait. In a ring every rank "
        "sends as much as it receives.",
        through_rank_0,
        fails=("neighbours_only", "bytes", "all_at_once"),
    ),
    wrong(
        "to_other_ranks",
        "The values and the bytes are right, but a message goes to another rank than the next one. On a ring of links "
        "it passes through all ranks between: let it go to rank + 1, which passes it on.",
        to_everybody,
        edit(
            (SEND, f"comm.send({SENT.replace('-', '+')}, (rank - 1) % size)"),
            (f"comm.recv({CAME}, (rank - 1)", f"comm.recv({CAME.replace('-', '+')}, (rank + 1)"),
        ),
        fails=("neighbours_only",),
    ),
    wrong(
        "written_before_wait",
        "You write into a tensor between `isend` and `wait`, or begin it and never wait. It may be sent as it is then, "
        "and on other machines the next rank gets the new numbers. Write after `wait`, or send another tensor.",
        edit(*PASSING, (RECEIVED, f"{RECEIVED}\n        passing.copy_({CAME})\n        sent.wait()")),
        edit(*PASSING, (RECEIVED, f"{RECEIVED.replace(CAME, 'passing')}\n        {CAME}.copy_(passing)")),
        edited(all_begun, ("    for work in sends:\n        work.wait()\n", "")),
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
