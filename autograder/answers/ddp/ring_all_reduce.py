"""Right and wrong ways to write `ring_all_reduce`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.performing.exercise import Answer
from course.reference.ddp.ring_all_gather import ring_all_gather
from course.reference.ddp.ring_all_reduce import ring_all_reduce
from course.reference.ddp.ring_reduce_scatter import ring_reduce_scatter


def two_halves(comm: Comm, x: Tensor) -> Tensor:
    """The two exercises before it, and padding."""
    flat = torch.nn.functional.pad(x.reshape(-1), (0, -x.numel() % comm.size))
    total = ring_all_gather(comm, ring_reduce_scatter(comm, flat))
    return total[: x.numel()].reshape(x.shape)


def unequal(comm: Comm, x: Tensor) -> Tensor:
    """Chunks whose lengths differ by one; new sums at every stop; begun messages."""
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    parts = list(x.flatten().tensor_split(comm.size))
    for stop in range(2 * comm.size - 2):
        taken = (comm.rank - stop - 1) % comm.size
        came = torch.empty_like(parts[taken])
        receive = comm.irecv(came, before)
        comm.isend(parts[(taken + 1) % comm.size], after).wait()
        receive.wait()
        parts[taken] = parts[taken] + came if stop < comm.size - 1 else came
    return torch.cat(parts).view(x.shape)


def by_recursion(comm: Comm, x: Tensor) -> Tensor:
    """What a rank gets is the sum of a shorter way round, or what another rank got."""
    size, rank = comm.size, comm.rank
    own = [each.clone() for each in torch.tensor_split(x.reshape(-1), size)]
    found = {}

    def hop(number: int, given: Tensor) -> Tensor:
        comm.send(given, (rank + 1) % size)
        came = torch.zeros_like(own[number])
        comm.recv(came, (rank + size - 1) % size)
        return came

    def summed(distance: int) -> Tensor:
        mine = own[(rank - distance) % size]
        return mine if distance == 1 else mine.add_(hop((rank - distance) % size, summed(distance - 1)))

    def told(distance: int) -> Tensor:
        number = (rank - distance) % size
        found[number] = hop(number, told(distance - 1)) if distance else summed(size)
        return found[number]

    told(size - 1)
    return torch.cat([found[number] for number in range(size)]).reshape(x.shape)


def one_tensor_travels(comm: Comm, x: Tensor) -> Tensor:
    """One tensor travels all the way, in two turns; it is written to when it was waited for."""
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    flat = torch.nn.functional.pad(x.reshape(-1), (0, -x.numel() % comm.size)).clone()
    chunks = flat.view(comm.size, len(flat) // comm.size)
    travels, came = chunks[comm.rank].clone(), chunks[0].clone()
    for stop in range(2 * comm.size - 2):
        place = (comm.rank - stop - 1) % comm.size
        comm.isend(travels, after).wait()
        comm.recv(came, before)
        chunks[place] = came + chunks[place] if stop < comm.size - 1 else came
        came = chunks[place].clone()
        travels.copy_(came)
    return flat[: x.numel()].view(x.shape)


RIGHT = (
    right(two_halves),
    right(unequal),
    right(one_tensor_travels),
    right(by_recursion, independent="a recursion over the stops"),
)


def round_the_ring(comm: Comm, x: Tensor) -> Tensor:
    """Every x goes all the way round, and each rank adds as they come."""
    total, passing = x.clone(), x.clone()
    for _ in range(comm.size - 1):
        comm.send(passing, (comm.rank + 1) % comm.size)
        comm.recv(passing, (comm.rank - 1) % comm.size)
        total = total + passing
    return total


def round_the_ring_in_order(comm: Comm, x: Tensor) -> Tensor:
    """The same, but added in the order of ranks."""
    passing, found = x.clone(), {comm.rank: x.clone()}
    for step in range(1, comm.size):
        comm.send(passing, (comm.rank + 1) % comm.size)
        comm.recv(passing, (comm.rank - 1) % comm.size)
        found[(comm.rank - step) % comm.size] = passing.clone()
    return torch.stack([found[rank] for rank in range(comm.size)]).sum(0, dtype=x.dtype)


def small_ones_whole(comm: Comm, x: Tensor) -> Tensor:
    """A short cut where a chunk would have one element."""
    return ring_all_reduce(comm, x) if x.numel() > 2 else round_the_ring(comm, x)


def two_whole(comm: Comm, x: Tensor) -> Tensor:
    """A short cut for two ranks, which halves the latency."""
    return ring_all_reduce(comm, x) if comm.size != 2 else round_the_ring(comm, x)


def at_rank_0(comm: Comm, x: Tensor) -> Tensor:
    """A parameter server."""
    total, came = x.clone(), torch.empty_like(x)
    if comm.rank:
        comm.send(x, 0)
        comm.recv(total, 0)
        return total
    for other in range(1, comm.size):
        comm.recv(came, other)
        total += came
    for other in range(1, comm.size):
        comm.send(total, other)
    return total


def down_the_line_and_back(comm: Comm, x: Tensor) -> Tensor:
    """A sum of all travels once round the ring, and then its result."""
    total, came = x.clone(), torch.empty_like(x)
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    if comm.rank:
        comm.recv(came, before)
        total += came
    if comm.size > 1:
        comm.send(total, after)
        if after:
            comm.recv(total, before)
        else:
            return total
        if after != comm.size - 1:
            comm.send(total, after)
    return total


def in_turns(send: str, receive: str) -> str:
    """Lines in which every rank but the first receives before it sends."""
    return f"if rank:\n            {receive}\n        {send}\n        if not rank:\n            {receive}"


edit = partial(edited, ring_all_reduce)
FIRST, ADDED = "comm.send(chunks[(rank - step) % size], after)", "chunks[(rank - step - 1) % size] += came"
SECOND, COPIED = "comm.send(chunks[(rank + 1 - step) % size], after)", "comm.recv(chunks[(rank - step) % size], before)"
CAME, LAST = "        came = chunks[0].clone()\n", "return padded[:n].view(x.shape)"
NEIGHBOURS = "after, before = (rank + 1) % size, (rank - 1) % size"
CHUNK = "parts[(taken + 1) % comm.size]"
WHOLE_CHUNK, PARTS = f"comm.isend({CHUNK}, after).wait()", "list(x.flatten().tensor_split(comm.size))"
TAIL = f"    for step in range(size - 1):\n        {SECOND}\n        {COPIED}\n"


def with_lengths(lengths: str) -> Answer:
    """Chunks of other lengths; `k` elements are n // P."""
    return edited(
        unequal, (f"parts = {PARTS}", f"k = x.numel() // comm.size\n    parts = list(x.flatten().split({lengths}))")
    )


WRONG = (
    wrong(
        "mean_for_sum",
        "You divide by the number of ranks. An all-reduce adds; who wants a mean divides afterwards.",
        edit((LAST, "return (padded[:n] / size).view(x.shape)")),
        edited(unequal, ("return torch.cat(parts)", "return torch.cat(parts).div(comm.size)")),
    ),
    wrong(
        "shape_lost",
        "You return a flat tensor, the padding with it, or no dimension of one entry. Cut off what was added, and give "
        "the sum the shape of x.",
        edit((LAST, "return padded")),
        edit((LAST, "return padded[:n]")),
        edit((LAST, f"{LAST}.squeeze()")),
        edit((LAST, f"{LAST} if size > 1 else padded")),
    ),
    wrong(
        "rest_not_added",
        "n // P elements in each chunk leave a rest of n % P elements that is never added up. Round up and pad, or let "
        "chunks differ in length by one (`torch.tensor_split`).",
        edit(
            ("-(-n // size)", "n // size"),
            ("x.new_zeros(size * m)", "x.new_zeros(n)"),
            ("padded.view", "padded[: size * m].view"),
        ),
    ),
    wrong(
        "fewer_chunks_than_ranks",
        "`torch.chunk` gives at most P chunks: 5 elements make 3 chunks of 2, 2 and 1 for P = 4. `torch.tensor_split` "
        "always gives P, some of them shorter or empty; or pad.",
        edited(unequal, ("tensor_split(comm.size)", "chunk(comm.size)")),
        edited(unequal, ("tensor_split(comm.size)", "split(max(1, x.numel() // comm.size))")),
    ),
    wrong(
        "second_turn_missing",
        "After the first turn each rank has one complete chunk, and the others' sums are parts. Pass the complete ones "
        "on, once round the ring.",
        edit((TAIL, "")),
    ),
    wrong(
        "added_in_both_turns",
        "In the second turn you add what comes to what is there. What comes is complete: it replaces your own part.",
        edit(
            (
                COPIED,
                "comm.recv(came, before)\n        chunks[(rank - step) % size] += came",
            )
        ),
    ),
    wrong(
        "second_turn_begins_elsewhere",
        "The second turn begins with a chunk that is not complete: after the first one rank r has the whole sum of the "
        "chunk that it added to last.",
        edit((SECOND, SECOND.replace("rank + 1", "rank")), (COPIED, COPIED.replace("rank", "rank - 1", 1))),
        edit((SECOND, SECOND.replace("+ 1", "+ 2")), (COPIED, COPIED.replace("rank", "rank + 1", 1))),
    ),
    wrong(
        "turns_too_short",
        "A chunk must meet P - 1 other ranks in each turn. Yours take P - 2 steps.",
        edit((TAIL, TAIL.replace("size - 1", "size - 2"))),
        edit((f"range(size - 1):\n{CAME}", f"range(size - 2):\n{CAME}")),
    ),
    wrong(
        "turns_too_long",
        "P - 1 steps are a turn. You take P, and with one rank you send to yourself: there is no message then.",
        edit((TAIL, TAIL.replace("size - 1", "size"))),
        edit((f"range(size - 1):\n{CAME}", f"range(size):\n{CAME}")),
    ),
    wrong(
        "buffer_written_while_it_travels",
        "`isend` reads its tensor at some time before `wait` returns, and you write the next part into it before that: "
        "wait first, or take another tensor.",
        edit(
            (CAME, f"{CAME}        receive = comm.irecv(came, before)\n"),
            (FIRST, "work = comm.isend(travelling, after)"),
            ("comm.recv(came, before)", "travelling.copy_(chunks[(rank - step - 1) % size])"),
            (ADDED, "receive.wait()\n        work.wait()\n        travelling += came"),
            (
                "    for step in range(size - 1):\n        came",
                "    travelling = chunks[rank].clone()\n    for step in range(size - 1):\n        came",
            ),
            (
                f"    for step in range(size - 1):\n        {SECOND}",
                f"    chunks[(rank + 1) % size] = travelling\n    for step in range(size - 1):\n        {SECOND}",
            ),
        ),
    ),
    wrong(
        "receives_in_float32",
        "What you receive into has a dtype of its own (float32, where nothing else is said), and not that of what is "
        "sent. Make it with `torch.empty_like`.",
        edited(unequal, ("torch.empty_like(parts[taken])", "torch.empty(parts[taken].shape)")),
    ),
    wrong(
        "result_in_float32",
        "Your sum has another dtype than x: float32, where nothing else is said.",
        edit((LAST, f"{LAST}.float()")),
        fails=("views_and_dtypes", "dtype"),
    ),
    wrong(
        "nothing_in_float32",
        "Where x has no elements your sum is in float32, whatever the dtype of x is. `torch.zeros_like` keeps it.",
        edit(
            (
                "    rank, size, n =",
                "    import torch\n\n    if not x.numel():\n        return torch.zeros(x.shape)\n    rank, size, n =",
            )
        ),
        fails=("dtype",),
    ),
    wrong(
        "travels_in_float64",
        "You add in float64, and send that: the bytes are two or four times as many, and whole numbers from 2**53 on "
        "are rounded. What travels must have the dtype of x.",
        edit(("x.new_zeros(size * m)", "x.new_zeros(size * m).double()"), (LAST, f"{LAST}.to(x.dtype)")),
        fails=("views_and_dtypes", "bytes", "bytes_of_every_length", "bytes_in_half"),
    ),
    wrong(
        "everything_in_float32",
        "You add in float32, whatever the dtype of x is: half precision takes twice the bytes then, and of float64 "
        "half the digits are lost.",
        edit(("x.new_zeros(size * m)", "x.new_zeros(size * m).float()"), (LAST, f"{LAST}.to(x.dtype)")),
        fails=("views_and_dtypes", "bytes_in_half"),
    ),
    wrong(
        "whole_numbers_in_floating_point",
        "You add whole numbers in floating point, and turn the sum back: from 2**53 on float64 does not hold them "
        "all, and float32 from 2**24 on. Add them in their own dtype.",
        edited(
            unequal,
            ("x.flatten()", "(x if x.is_floating_point() or x.nbytes < 8 else x.double()).flatten()"),
            ("view(x.shape)", "view(x.shape).to(x.dtype)"),
        ),
        fails=("views_and_dtypes",),
    ),
    wrong(
        "float16_in_bfloat16",
        "float16 travels in bfloat16, which has three binary digits fewer. What travels must have the dtype of x.",
        edited(
            unequal,
            ("x.flatten()", "(x.bfloat16() if x.dtype == torch.float16 else x).flatten()"),
            ("view(x.shape)", "view(x.shape).to(x.dtype)"),
        ),
    ),
    wrong(
        "half_travels_in_float32",
        "You add float16 in float32, which is careful, but you send it so as well: twice the bytes. Round to the dtype "
        "of x before you send. int8 needs no wider numbers either.",
        edited(
            unequal,
            ("parts = ", "half = x.dtype == torch.float16\n    parts = "),
            ("x.flatten()", "(x.float() if half else x).flatten()"),
            ("view(x.shape)", "view(x.shape).to(x.dtype)"),
        ),
        edited(
            unequal,
            ("x.flatten()", "(x if x.is_floating_point() else x.long()).flatten()"),
            ("view(x.shape)", "view(x.shape).to(x.dtype)"),
        ),
        fails=("bytes_in_half",),
    ),
    wrong(
        "views_refused",
        "Your code cannot take an x that is a view: `.view` asks how its numbers lie in memory. Take `reshape` or "
        "`flatten`.",
        edit(("x.flatten()", "x.view(-1)")),
    ),
    wrong(
        "x_itself_returned",
        "Where there is one rank you return x itself. When the caller writes its next numbers into it, your sum "
        "changes: copy it.",
        edit((LAST, f"{LAST} if size > 1 else x")),
        fails=("own_memory",),
    ),
    wrong(
        "written_into_x",
        "The sum is right, but you write it into x. The caller still needs its own: return a new tensor.",
        edit((LAST, f"return x.copy_({LAST.removeprefix('return ')})")),
        fails=("own_memory", "arguments_unchanged"),
    ),
    wrong(
        "every_rank_adds_itself",
        "Whole tensors go round the ring: P / 2 times the bytes that are needed. And each rank adds them in the order "
        "in which they come to it, so that the last bits differ from rank to rank.",
        round_the_ring,
        fails=("same_bits", "bytes", "bytes_of_every_length"),
    ),
    wrong(
        "whole_tensors_travel",
        "The values are right, but whole tensors travel. No rank needs another one's x: cut it into P chunks, so that "
        "every rank has one to add and to send in every step.",
        round_the_ring_in_order,
        down_the_line_and_back,
        fails=("bytes", "bytes_of_every_length"),
    ),
    wrong(
        "the_rest_in_one_chunk",
        "One of your chunks takes what n // P elements in each leave over, or you round up twice, or a small x, or one "
        "of two ranks, travels whole. Of 11 elements for 4 ranks the last chunk has 5 then, and whoever sends it makes "
        "all others wait. Let chunks differ in length by one (`torch.tensor_split`), or pad to P * ceil(n / P).",
        with_lengths("[k] * (comm.size - 1) + [x.numel() - k * (comm.size - 1)]"),
        with_lengths("[x.numel() - k * (comm.size - 1)] + [k] * (comm.size - 1)"),
        edit(("-(-n // size)", "n // size + 2 * (n % size > 0)")),
        two_whole,
        fails=("bytes_of_every_length",),
    ),
    wrong(
        "more_than_a_chunk_in_a_step",
        "In a step you send more than one chunk of ceil(n / P) elements: n // P + 1 is one element too many where P "
        "divides n, and a chunk in two messages pays two latencies.",
        edit(("-(-n // size)", "n // size + 1")),
        edited(
            unequal,
            (WHOLE_CHUNK, f"for half in {CHUNK}.chunk(2):\n            comm.send(half, after)"),
            ("receive = comm.irecv(came, before)", "receive = [comm.irecv(half, before) for half in came.chunk(2)]"),
            ("receive.wait()", "[each.wait() for each in receive]"),
        ),
        fails=("bytes", "bytes_of_every_length", "bytes_in_half"),
    ),
    wrong(
        "lengths_are_sent",
        "The x of all ranks are alike, so that every rank knows the lengths of all chunks: send the chunks alone.",
        edit(
            (
                "    chunks = padded",
                "    import torch\n\n    if size > 1:\n        length = torch.tensor(n)\n"
                "        comm.send(length, after)\n        comm.recv(length, before)\n    chunks = padded",
            )
        ),
        fails=("bytes", "bytes_of_every_length", "bytes_in_half", "all_at_once"),
    ),
    wrong(
        "to_the_rank_before",
        "Your ring turns the other way: every message goes to rank - 1. It must go to rank + 1, modulo P.",
        edit(
            (NEIGHBOURS, NEIGHBOURS.replace("after, before", "before, after")),
            (FIRST, FIRST.replace("rank - step", "rank + step")),
            (ADDED, ADDED.replace("rank - step - 1", "rank + step + 1")),
            (SECOND, SECOND.replace("rank + 1 - step", "rank - 1 + step")),
            (COPIED, COPIED.replace("rank - step", "rank + step")),
        ),
        fails=("neighbours_only",),
    ),
    wrong(
        "small_tensors_otherwise",
        "You send small tensors whole. Then each rank adds them in an order of its own, and the last bits differ; and "
        "a message holds more than ceil(n / P) elements. What works for large ones works here, with some empty chunks.",
        small_ones_whole,
        fails=("same_bits", "bytes_of_every_length"),
    ),
    wrong(
        "through_rank_0",
        "Everything goes through one rank, which receives and sends P - 1 whole tensors while the others wait. In a "
        "ring every rank sends as much as it receives, from its neighbour.",
        at_rank_0,
        fails=("neighbours_only", "bytes", "bytes_of_every_length"),
    ),
    wrong(
        "written_before_wait",
        "You write into a tensor between `isend` and `wait`, or begin it and never wait. It may be sent as it is then, "
        "and on other machines the next rank gets the new numbers. Write after `wait`, or send another tensor.",
        edited(
            one_tensor_travels,
            ("comm.isend(travels, after).wait()", "sent = comm.isend(travels, after)"),
            ("travels.copy_(came)", "travels.copy_(came)\n        sent.wait()"),
        ),
        edited(one_tensor_travels, ("comm.isend(travels, after).wait()", "comm.isend(travels, after)")),
        edited(unequal, (WHOLE_CHUNK, WHOLE_CHUNK.removesuffix(".wait()"))),
        fails=("left_alone_until_waited",),
    ),
    wrong(
        "one_after_the_other",
        "Some ranks receive before they send, and the ranks before them too: they take turns in every step. Here a "
        "send waits for nobody, so let every rank send first.",
        edit(
            (f"{FIRST}\n        comm.recv(came, before)", in_turns(FIRST, "comm.recv(came, before)")),
            (f"{SECOND}\n        {COPIED}", in_turns(SECOND, COPIED)),
        ),
        fails=("all_at_once",),
    ),
)
