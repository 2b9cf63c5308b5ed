"""Right and wrong ways to write `unshard`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.fsdp.unshard import unshard


def unflattened_by_torch(comm: Comm, shard: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """What DistributedDataParallel makes of its buckets."""
    row = torch.empty(comm.size, shard.numel(), dtype=shard.dtype)
    comm.all_gather(list(row), shard)
    n = sum(torch.Size(shape).numel() for shape in shapes)
    like = [shard.new_empty(shape) for shape in shapes]
    return list(torch._utils._unflatten_dense_tensors(row.view(-1)[:n], like))  # type: ignore[no-untyped-call]


def by_offsets(comm: Comm, shard: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """The pieces are put together afterwards."""
    pieces = [torch.zeros_like(shard) for _ in range(comm.size)]
    comm.all_gather(pieces, shard)
    row, tensors, start = torch.cat(pieces), [], 0
    for shape in shapes:
        size = math.prod(shape)
        tensors.append(row[start : start + size].reshape(shape))
        start += size
    return tensors


RIGHT = (right(unflattened_by_torch, independent="torch._utils._unflatten_dense_tensors"), right(by_offsets))


def tensor_by_tensor(comm: Comm, shard: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """The whole row for each tensor."""
    tensors, start = [], 0
    row = shard.new_empty(comm.size * len(shard))
    for shape in shapes:
        comm.all_gather_single(row, shard)
        tensors.append(row[start : start + math.prod(shape)].view(shape))
        start += math.prod(shape)
    return tensors


def in_two_halves(comm: Comm, shard: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """The first elements of all shards, then the others."""
    m = len(shard)
    row = shard.new_empty(comm.size, m)
    for half in (slice(0, m // 2), slice(m // 2, m)):
        comm.all_gather(list(row[:, half]), shard[half])
    flat = row.view(-1)
    sizes = [math.prod(shape) for shape in shapes]
    return [each.view(shape) for each, shape in zip(torch.split(flat[: sum(sizes)], sizes), shapes, strict=True)]


edit, joined = partial(edited, unshard), partial(edited, by_offsets)
GATHER, CUT, VIEW = "comm.all_gather_single(row, shard)", "torch.split(row[: sum(sizes)], sizes)", "piece.view(shape)"
MAKE = "row = shard.new_empty(comm.size * len(shard))"
PLACE = "row[comm.rank * len(shard) : (comm.rank + 1) * len(shard)]"
ON_COMM = 'comm.__dict__.setdefault("kept", {})'
KEPT = """\
    place = len(shard), shard.dtype
    row = kept.setdefault(place, shard.new_empty(comm.size * len(shard)))"""

WRONG = (
    wrong(
        "padding_not_dropped",
        "Your row has its padding when you split it, so that the sizes do not add up to its length. What is left over "
        "at the end belongs to no tensor.",
        edit((CUT, "torch.split(row, sizes)")),
        edit(
            (CUT, "torch.split(row, [*sizes, len(row) - sum(sizes)])"),
            ("shapes, strict=True)]", "[*shapes, (-1,)], strict=True)]"),
        ),
    ),
    wrong(
        "padding_in_front",
        "You drop elements from the front of the row. The padding stands at its end.",
        edit((CUT, "torch.split(row[len(row) - sum(sizes) :], sizes)")),
    ),
    wrong(
        "zeros_taken_for_padding",
        "You drop zeros because they look like padding. A weight may be 0, too, as biases are at first. The shapes "
        "tell how many elements count: the sum of their sizes.",
        edit((CUT, "torch.split(row[row != 0], sizes)")),
        edit((CUT, "torch.split(row[: int(row.nonzero().max()) + 1] if len(row) else row, sizes)")),
    ),
    wrong(
        "own_shard_first",
        "Your row begins with the rank's own shard, so that every rank has other tensors. The order is that of ranks.",
        edit((CUT, "torch.split(row.roll(-comm.rank * len(shard))[: sum(sizes)], sizes)")),
    ),
    wrong(
        "own_shard_alone",
        "Your row has the rank's own shard, and nothing of the others.",
        edit((MAKE, "row = shard.new_zeros(comm.size * len(shard))"), (GATHER, f"{PLACE}.copy_(shard)")),
    ),
    wrong(
        "one_tensor_for_all_pieces",
        "`[torch.empty_like(shard)] * P` is one tensor P times: each piece that comes overwrites the one before. Make "
        "a tensor for each.",
        joined(("[torch.zeros_like(shard) for _ in range(comm.size)]", "[torch.zeros_like(shard)] * comm.size")),
    ),
    wrong(
        "column_by_column",
        "You fill each tensor column by column. The row was written with the last index running fastest.",
        edit((VIEW, "piece.view(shape[::-1]).permute(*range(len(shape))[::-1])")),
    ),
    wrong(
        "numbers_of_shape_1",
        "A tensor of shape () comes back with shape (1,). It is `view(())`.",
        edit((VIEW, "piece.view(shape or (1,))")),
    ),
    wrong(
        "nothing_for_a_number",
        "You take a shape of () for no elements. The product of no sizes is 1, as math.prod says: it is a number.",
        edit(("math.prod(shape) for shape", "math.prod(shape) if shape else 0 for shape")),
    ),
    wrong(
        "empty_ones_left_out",
        "Tensors without elements are missing in your list. They have a place there, which the caller counts on.",
        edit(("strict=True)]", "strict=True) if piece.numel()]")),
    ),
    wrong(
        "always_float32",
        "You gather into float32, whatever the shards are. Make the row with `shard.new_empty`.",
        edit((MAKE, "row = torch.empty(comm.size * len(shard))")),
    ),
    wrong(
        "sent_as_float32",
        "You send float32, whatever the shards are: half precision takes twice the bytes, and float64 loses digits.",
        joined(
            (
                "pieces = [torch.zeros_like(shard) for _ in range(comm.size)]",
                "shard = shard.float()\n    pieces = [torch.zeros_like(shard) for _ in range(comm.size)]",
            )
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "half_precision_widened",
        "The numbers are right, but of shards in half precision you return float32: twice the memory. Leave the row "
        "in the dtype of the shard.",
        edit((VIEW, "piece.view(shape).to(torch.promote_types(piece.dtype, torch.float32))")),
        fails=("kind_of_the_result",),
    ),
    wrong(
        "more_than_one_row",
        "Your tensors keep more alive than one row: copies, which are a full unit once more where views cost nothing, "
        "or a row that is longer than all shards together.",
        edit((VIEW, "piece.view(shape).clone()")),
        edit((VIEW, "piece.view(shape) if shape else piece[0].clone()")),
        edit((VIEW, "piece.view(shape) if comm.size > 1 else piece.clone().view(shape)")),
        edit((MAKE, "row = shard.new_empty((comm.size + 1) * len(shard))[: comm.size * len(shard)]")),
        fails=("one_row",),
    ),
    wrong(
        "one_row_for_all_calls",
        "You keep one row and gather into it again in the next call: what was returned before is overwritten. Two "
        "units may be full at once, so each call needs a row of its own.",
        edit((MAKE, f"kept = {ON_COMM}\n{KEPT}")),
        edit((MAKE, f"kept = {ON_COMM} if comm.size > 1 else {{}}\n{KEPT}")),
    ),
    wrong(
        "rows_stay",
        "You keep the rows of all calls in a list, a dict or an attribute: after a pass through the model every rank "
        "holds all of it, as if nothing were sharded. Return the tensors, and let nothing else lead to their row.",
        edit((GATHER, f'{GATHER}\n    unshard.__dict__.setdefault("rows", []).append(row)')),
        edit(
            (
                "return [piece",
                'kept = unshard.__dict__.setdefault("tensors", {})\n    kept[len(kept)] = pieces\n    return [piece',
            )
        ),
        fails=("let_go", "memory"),
    ),
    wrong(
        "three_rows_at_once",
        "The tensors are right, but before you return you hold three rows or more: the parts that came, what cat makes "
        "of them, and a copy. Take views of what cat returns, or gather with all_gather_single into one row.",
        joined(
            ("row, tensors, start = torch.cat(pieces), [], 0", "row, tensors, start = torch.cat(pieces).clone(), [], 0")
        ),
        edit((GATHER, f"{GATHER}\n    row = torch.cat([*row.clone().split(len(shard) or 1)])")),
        fails=("memory",),
    ),
    wrong(
        "a_tuple",
        "The tensors are right, but you return a tuple, as `split` does. A list was promised: put `list(...)` around "
        "it, or square brackets.",
        edit(("return [piece", "return tuple([piece"), ("strict=True)]", "strict=True)])")),
    ),
    wrong(
        "the_shard_itself",
        "On one rank you take the shard as the row: the tensors change when the rank steps.",
        edit((MAKE, f"{MAKE} if comm.size > 1 else shard")),
    ),
    wrong(
        "sends_more",
        "The numbers are right, but more is sent than by one all-gather of the shards. An all-reduce of rows in which "
        "all but the own part is 0 sends twice as much, and who gathers again for each tensor pays as often as there "
        "are tensors.",
        edit(
            (MAKE, "row = shard.new_zeros(comm.size * len(shard))"),
            (GATHER, f"{PLACE}.copy_(shard)\n    comm.all_reduce(row)"),
        ),
        tensor_by_tensor,
        fails=("bytes", "messages"),
    ),
    wrong(
        "in_several_calls",
        "The numbers and the bytes are right, but you make several calls where one is enough: each of them takes its "
        "own latency.",
        in_two_halves,
        fails=("messages",),
    ),
)
