"""Right and wrong ways to write `unit_forward`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.fsdp.unit_forward import unit_forward

Shapes = Sequence[torch.Size]
Result = tuple[Tensor, dict[str, Tensor]]


def emptied_storage(comm: Comm, shard: Tensor, shapes: Shapes, x: Tensor) -> Result:
    """As FSDP: autograd's graph keeps the views, but the memory behind them is given back."""
    full = torch.zeros(comm.size, len(shard), dtype=shard.dtype)
    comm.all_gather([*full.unbind()], shard)
    flat = full.flatten().requires_grad_()
    sizes = [shape.numel() for shape in shapes]
    a, b, _ = torch.split(flat, [*sizes, flat.numel() - sum(sizes)])
    t = torch.tanh(torch.nn.functional.linear(x, a.view(shapes[0])))
    y = torch.addmm(x, t, b.view(shapes[1]))
    flat.untyped_storage().resize_(0)
    return y.detach(), {"x": x, "t": t.detach()}


def joined_parts(comm: Comm, shard: Tensor, shapes: Shapes, x: Tensor) -> Result:
    """A list of parts, joined; and einsum in the place of matrix products."""
    parts = [torch.empty_like(shard) for _ in range(comm.size)]
    comm.all_gather(parts, shard)
    flat, tensors = torch.cat(parts), []
    for shape in shapes:
        tensors.append(flat[: shape.numel()].reshape(shape))
        flat = flat[shape.numel() :]
    t = torch.einsum("nd,hd->nh", x, tensors[0]).tanh()
    return x + torch.einsum("nh,hd->nd", t, tensors[1]), {"t": t, "x": x}


RIGHT = (right(emptied_storage, independent="torch.addmm, and a storage of no bytes"), right(joined_parts))

KEPT: list[Tensor] = []


def keeps_a_list(comm: Comm, shard: Tensor, shapes: Shapes, x: Tensor) -> Result:
    """What was gathered stays in a global list."""
    full = shard.new_empty(comm.size * shard.numel())
    comm.all_gather_single(full, shard)
    KEPT.append(full)
    n = shapes[0].numel()
    a, b = full[:n].view(shapes[0]), full[n : n + shapes[1].numel()].view(shapes[1])
    t = torch.tanh(x @ a.T)
    return x + t @ b, {"x": x, "t": t}


ROOMS: dict[int, Tensor] = {}


def keeps_a_room(comm: Comm, shard: Tensor, shapes: Shapes, x: Tensor) -> Result:
    """Units are gathered into one tensor after the other's, which is there for the next one."""
    room = ROOMS.get(comm.rank)
    if room is None or room.shape != (comm.size * len(shard),) or room.dtype != shard.dtype:
        room = ROOMS[comm.rank] = shard.new_zeros(comm.size * len(shard))
    comm.all_gather_single(room, shard)
    n = shapes[0].numel()
    t = torch.tanh(x @ room[:n].view(shapes[0]).T)
    return x + t @ room[n : 2 * n].view(shapes[1]), {"x": x, "t": t}


edit = partial(edited, unit_forward)
GATHER = "comm.all_gather_single(full, shard)"
SAVED = '{"x": x, "t": t}'
RETURN = f"return x + t @ b, {SAVED}"
CAST = '{"x": x.to(dtype), "t": t.to(dtype)}'
HALVES = (
    "middle = len(shard) // 2\n"
    "    for part, rows in zip(shard.tensor_split([middle]), full.view(comm.size, -1).tensor_split([middle], 1)):\n"
    "        come = shard.new_empty(comm.size * len(part))\n"
    "        comm.all_gather_single(come, part)\n"
    "        rows.copy_(come.view(rows.shape))"
)

WRONG = (
    wrong(
        "parameters_stay",
        "What was gathered outlives the call: it stands in saved, where a view is enough. In the end every rank holds "
        "all units, as if nothing were sharded. Backward gathers it again.",
        edit((SAVED, '{"x": x, "t": t, "a": a, "b": b}')),
        edit((SAVED, '{"x": x, "t": t, "full": full}')),
        edit((SAVED, '{"x": x, "t": t, "b": b}')),
        edit((SAVED, '{"x": x, "t": t, "a": a.clone(), "b": b.clone()}')),
        fails=("nothing_else_saved", "freed", "memory"),
    ),
    wrong(
        "parameters_in_a_list",
        "What was gathered outlives the call: it stands in a list or an attribute of yours, so that in the end every "
        "rank holds all units, as if nothing were sharded. Backward gathers it again.",
        keeps_a_list,
        fails=("freed", "memory"),
    ),
    wrong(
        "more_than_x_and_t",
        'You save a third tensor. Of each unit it stays until backward: "x" and "t" give all that is needed, together '
        "with the parameters, which are gathered again.",
        edit((SAVED, '{"x": x, "t": t, "z": x @ a.T}')),
        edit((SAVED, '{"x": x, "t": t, "sum": b.sum(0)}')),
        fails=("nothing_else_saved",),
    ),
    wrong(
        "graph_stays",
        "What was gathered requires a gradient, so that y and t lead to a graph of autograd, which keeps the full "
        "parameters of every unit; `del` does not reach them. The unit has a backward of its own and needs no graph: "
        "leave out requires_grad_() and Parameter.",
        edit((GATHER, f"{GATHER}\n    full.requires_grad_()")),
        edit(
            (GATHER, f"{GATHER}\n    full.requires_grad_()"),
            (f"    {RETURN}", f"    y = x + t @ b\n    del full, a, b\n    return y, {SAVED}"),
        ),
        edited(
            joined_parts,
            ("reshape(shape))", "reshape(shape).requires_grad_())"),
        ),
        fails=("no_graph", "freed", "memory"),
    ),
    wrong(
        "copies_at_once",
        "You hold a unit's parameters three times or more: the list of parts, what cat makes of it, and a clone. Or "
        "you keep one unit's room between calls, where others need it. Take views of what cat returns, or gather "
        "with all_gather_single into one tensor, which goes when the call ends.",
        edited(joined_parts, ("torch.cat(parts), []", "torch.cat(parts).clone(), []")),
        edited(joined_parts, ("reshape(shape))", "reshape(shape).clone())")),
        edited(
            joined_parts,
            ("torch.cat(parts), []", "torch.cat(parts).clone(), []"),
            ("reshape(shape))", "reshape(shape).clone())"),
        ),
        keeps_a_room,
        fails=("memory",),
    ),
    wrong(
        "b_from_the_end",
        "You count from the end of what was gathered, where the zeros of the padding are. Count from the beginning.",
        edit(("full[n : n + shapes[1].numel()]", "full[-shapes[1].numel() :]")),
        edit(("full[n : n + shapes[1].numel()]", "full[full.numel() // 2 :][: shapes[1].numel()]")),
    ),
    wrong(
        "padding_stays",
        "What follows a in the gathered tensor is more than b where there is padding: it cannot be viewed in the "
        "shape of b. Take as many numbers as b has.",
        edit(("full[n : n + shapes[1].numel()]", "full[n:]")),
        fails=("padding",),
    ),
    wrong(
        "every_number_twice",
        "Every number is sent twice: you gather once for each tensor of the unit, or add up tensors that are zeros "
        "but for one shard. One all_gather of the shard brings both tensors.",
        edit(
            ("full = shard.new_empty(comm.size * shard.numel())", "full = shard.new_zeros(comm.size * shard.numel())"),
            (GATHER, "full.view(comm.size, -1)[comm.rank] = shard\n    comm.all_reduce(full)"),
        ),
        edit((GATHER, f"{GATHER}\n    {GATHER}")),
        fails=("one_gather", "bytes"),
    ),
    wrong(
        "in_several_calls",
        "No byte too many is sent, but in several calls, one after the other: a broadcast of each rank's shard, or "
        "pieces of shards. One all_gather has them all on the way at once.",
        edit(
            (
                GATHER,
                "for rank, part in enumerate(full.view(comm.size, -1)):\n"
                "        part.copy_(shard)\n        comm.broadcast(part, rank)",
            )
        ),
        edit((GATHER, HALVES)),
        fails=("one_gather",),
    ),
    wrong(
        "in_float32",
        "You compute in float32, or in torch's default dtype, whatever the shard has. Rooms are like the shard: "
        "shard.new_empty(n).",
        edit(
            ("full = shard.new_empty(comm.size * shard.numel())", "shard, dtype = shard.float(), x.dtype"),
            (GATHER, f"x, full = x.float(), shard.new_empty(comm.size * shard.numel())\n    {GATHER}"),
            (RETURN, f"y = x + t @ b\n    return y.to(dtype), {CAST}"),
        ),
        edit(
            ("full = shard.new_empty(comm.size * shard.numel())", "shard, x = shard.float(), x.float()"),
            (GATHER, f"full = torch.empty(comm.size * shard.numel())\n    {GATHER}"),
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "saved_in_float32",
        "What you save is in float32, whatever x has: backward gets fewer digits than forward had.",
        edit((SAVED, '{"x": x, "t": t.float()}')),
        edit((SAVED, '{"x": x.float(), "t": t}')),
        rounds_to=torch.float32,
    ),
    wrong(
        "shard_written",
        "You write into the shard, which the optimizer needs, and backward gathers again.",
        edit((f"    {RETURN}", f"    y = x + t @ b\n    shard.zero_()\n    return y, {SAVED}")),
        edit((f"    {RETURN}", f"    y = x + t @ b\n    shard.mul_(1)\n    return y, {SAVED}")),
        edit((f"    {RETURN}", f"    y = x + t @ b\n    shard.data.zero_()\n    return y, {SAVED}")),
    ),
    wrong(
        "own_shard_alone",
        "Your unit computes with this rank's shard alone, in the place of all others'. Gather before you compute.",
        edit((GATHER, "full.view(comm.size, -1).copy_(shard)")),
    ),
    wrong(
        "no_residual",
        "x is missing in y: the unit adds what it computes to its input.",
        edit((RETURN, f"return t @ b, {SAVED}")),
    ),
    wrong(
        "saves_before_tanh",
        "What you save as t is the argument of tanh. Backward needs its value, from which the derivative is 1 - t * t.",
        edit((SAVED, '{"x": x, "t": x @ a.T}')),
    ),
    wrong(
        "written_into_x",
        "You add into x itself, which is saved and belongs to the unit before: backward finds y in its place.",
        edit((RETURN, f"return x.add_(t @ b), {SAVED}")),
    ),
)
