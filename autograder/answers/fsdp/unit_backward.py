"""Right and wrong ways to write `unit_backward`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.fsdp.unit_backward import unit_backward

Shapes = Sequence[torch.Size]
Saved = Mapping[str, Tensor]


def by_autograd(comm: Comm, shard: Tensor, shapes: Shapes, saved: Saved, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The unit once more under autograd, with respect to x and to all that was gathered, padding included."""
    full = shard.new_empty(comm.size * shard.numel())
    comm.all_gather_single(full, shard)
    leaves = saved["x"].detach().requires_grad_(), full.requires_grad_()
    with torch.enable_grad():
        sizes = [shape.numel() for shape in shapes]
        a, b, _ = torch.split(leaves[1], [*sizes, len(full) - sum(sizes)])
        y = leaves[0] + torch.tanh(leaves[0] @ a.view(shapes[0]).T) @ b.view(shapes[1])
    dx, flat = torch.autograd.grad(y, leaves, dy)
    dshard = torch.empty_like(shard)
    comm.reduce_scatter(dshard, [*flat.view(comm.size, -1).unbind()])
    return dx, dshard / comm.size


def joined_gradients(comm: Comm, shard: Tensor, shapes: Shapes, saved: Saved, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients that are joined when the parameters are gone, divided before they are added."""
    parts = [torch.empty_like(shard) for _ in range(comm.size)]
    comm.all_gather(parts, shard)
    full = torch.cat(parts)
    parts.clear()
    n = shapes[0].numel()
    dt = torch.einsum("nd,hd->nh", dy, full[n : n + shapes[1].numel()].view(shapes[1])) * (1 - saved["t"].square())
    dx = dy + torch.einsum("nh,hd->nd", dt, full[:n].view(shapes[0]))
    padding = full.numel() - n - shapes[1].numel()
    del full
    pieces = [torch.einsum("nh,nd->hd", dt, saved["x"]), torch.einsum("nh,nd->hd", saved["t"], dy)]
    flat = torch.cat([*(each.flatten() for each in pieces), shard.new_zeros(padding)])
    flat /= comm.size
    dshard = torch.empty_like(shard)
    comm.reduce_scatter_single(dshard, flat)
    return dx, dshard


RIGHT = (right(by_autograd, independent="torch.autograd.grad"), right(joined_gradients))

KEPT: list[Tensor] = []


def keeps_a_list(comm: Comm, shard: Tensor, shapes: Shapes, saved: Saved, dy: Tensor) -> tuple[Tensor, Tensor]:
    """What was gathered stays in a global list."""
    full = shard.new_empty(comm.size * shard.numel())
    comm.all_gather_single(full, shard)
    KEPT.append(full)
    grads = torch.zeros_like(full)
    n, x, t = shapes[0].numel(), saved["x"], saved["t"]
    a, b = full[:n].view(shapes[0]), full[n : 2 * n].view(shapes[1])
    da, db = grads[:n].view(shapes[0]), grads[n : 2 * n].view(shapes[1])
    dt = (dy @ b.T) * (1 - t * t)
    dx = dy + dt @ a
    torch.mm(dt.T, x, out=da)
    torch.mm(t.T, dy, out=db)
    dshard = torch.empty_like(shard)
    comm.reduce_scatter_single(dshard, grads, "mean")
    return dx, dshard


def cat_and_pad(comm: Comm, shard: Tensor, shapes: Shapes, saved: Saved, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients are joined, and padded, while they and the parameters are there."""
    full = shard.new_empty(comm.size * shard.numel())
    comm.all_gather_single(full, shard)
    n, x, t = shapes[0].numel(), saved["x"], saved["t"]
    dt = (dy @ full[n : 2 * n].view(shapes[1]).T) * (1 - t**2)
    dx = dy + dt @ full[:n].view(shapes[0])
    da, db = dt.T @ x, t.T @ dy
    flat = torch.cat([da.flatten(), db.flatten()])
    flat = torch.nn.functional.pad(flat, (0, len(full) - len(flat)))
    dshard = torch.empty_like(shard)
    comm.reduce_scatter_single(dshard, flat, "mean")
    return dx, dshard


ROOMS: dict[int, Tensor] = {}


def keeps_a_room(comm: Comm, shard: Tensor, shapes: Shapes, saved: Saved, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients are put together in a tensor that is there for the next unit."""
    grads = ROOMS.get(comm.rank)
    if grads is None or grads.shape != (comm.size * len(shard),) or grads.dtype != shard.dtype:
        grads = ROOMS[comm.rank] = shard.new_zeros(comm.size * len(shard))
    full = torch.empty_like(grads)
    comm.all_gather_single(full, shard)
    n, x, t = shapes[0].numel(), saved["x"], saved["t"]
    dt = (dy @ full[n : 2 * n].view(shapes[1]).T) * (1 - t * t)
    dx = dy + dt @ full[:n].view(shapes[0])
    torch.mm(dt.T, x, out=grads[:n].view(shapes[0]))
    torch.mm(t.T, dy, out=grads[n : 2 * n].view(shapes[1]))
    dshard = torch.empty_like(shard)
    comm.reduce_scatter_single(dshard, grads, "mean")
    return dx, dshard


edit = partial(edited, unit_backward)
WHOLE = "full = shard.new_empty(comm.size * shard.numel())\n    comm.all_gather_single(full, shard)"
PARTS = "parts = [torch.empty_like(shard) for _ in range(comm.size)]\n    comm.all_gather(parts, shard)\n    "
SCATTER = 'comm.reduce_scatter_single(dshard, flat, "mean")'
IN_PARTS = 'comm.reduce_scatter(dshard, [part.clone() for part in flat.chunk(comm.size)], "mean")'
GATHER = "comm.all_gather_single(full, shard)"
OWN = "dshard = torch.empty_like(shard)"
REDUCE = 'comm.reduce_scatter_single(dshard, grads, "mean")'
SUMMED = (
    "full = shard.new_zeros(comm.size * shard.numel())\n"
    "    full.view(comm.size, -1)[comm.rank] = shard\n"
    "    comm.all_reduce(full)"
)
BY_RANK_0 = (
    'comm.reduce(grads, 0, "mean")\n'
    "    comm.scatter(dshard, [*grads.view(comm.size, -1)] if comm.rank == 0 else None, 0)"
)
HALVES = (
    "middle = len(shard) // 2\n"
    "    for part, rows in zip(dshard.tensor_split([middle]), grads.view(comm.size, -1).tensor_split([middle], 1)):\n"
    '        comm.reduce_scatter_single(part, rows.flatten(), "mean")'
)
SCATTERED = f"    {OWN}\n    {REDUCE}"
REDUCED = '    comm.all_reduce(grads, "mean")\n    dshard = '

WRONG = (
    wrong(
        "all_reduce_then_slice",
        "You do something else than one all_gather and one reduce_scatter, and send more: a collective twice, by way "
        "of one rank, or an all_reduce, which gives every rank the whole, of which it keeps one part, for twice the "
        "bytes of a reduce_scatter.",
        edit((SCATTERED, f"{REDUCED}grads.view(comm.size, -1)[comm.rank].clone()")),
        edit((WHOLE, SUMMED), (REDUCE, BY_RANK_0)),
        fails=("one_of_each", "bytes"),
    ),
    wrong(
        "view_of_the_gradient",
        "The shard that you return is a view, and keeps the full gradient alive behind it, of every unit. And an "
        "all_reduce sends twice what a reduce_scatter does. Let reduce_scatter write into a tensor like the shard.",
        edit((SCATTERED, f"{REDUCED}grads.view(comm.size, -1)[comm.rank]")),
        edit((SCATTERED, f"{REDUCED}grads.chunk(comm.size)[comm.rank]")),
        fails=("one_of_each", "bytes", "freed", "memory"),
    ),
    wrong(
        "something_outlives_the_call",
        "What is full outlives the call. Your shard of the gradient lies in the memory of the full one, all of "
        "which it keeps alive, or saved, a list or an attribute leads to what was gathered. The shard needs memory "
        "of its own.",
        edit((OWN, "dshard = grads.view(comm.size, -1)[comm.rank]")),
        keeps_a_list,
        edit((GATHER, f"{GATHER}\n    shard.full = full")),
        edit((GATHER, f'{GATHER}\n    saved["full"] = full')),
        fails=("freed", "memory"),
    ),
    wrong(
        "copies_at_once",
        "While one unit is at work more is alive than its parameters, its gradients and one copy: cat makes a copy "
        "of the gradients, pad another (even of no zeros), and cloned parts one more. Delete what was used (a and b, "
        "or da and db, under every name that they have), or write da and db into views of zeros. A room that you "
        "keep between calls counts, too.",
        cat_and_pad,
        edited(cat_and_pad, (WHOLE, f"{PARTS}full = torch.cat(parts)")),
        edited(cat_and_pad, (SCATTER, IN_PARTS)),
        edited(cat_and_pad, (WHOLE, f"{PARTS}full = torch.cat(parts)"), (SCATTER, IN_PARTS)),
        keeps_a_room,
        fails=("memory",),
    ),
    wrong(
        "in_several_calls",
        "No byte too many is sent, but in several calls, one after the other. One all_gather and one reduce_scatter "
        "have all of it on the way at once.",
        edit((REDUCE, HALVES)),
        fails=("one_of_each",),
    ),
    wrong(
        "in_float32",
        "You compute in float32, or in torch's default dtype, whatever the shard has. Rooms are like the shard.",
        edit(
            ("full = shard.new_empty(comm.size * shard.numel())", "shard, dy = shard.float(), dy.float()"),
            (GATHER, f"full = torch.empty(comm.size * shard.numel())\n    {GATHER}"),
            ('saved["x"], saved["t"]', 'saved["x"].float(), saved["t"].float()'),
        ),
        edit(
            ("grads = torch.zeros_like(full)", "grads = torch.zeros(len(full))"),
            ("torch.mm(dt.T, x, out=da)", "da.copy_(dt.T @ x)"),
            ("torch.mm(t.T, dy, out=db)", "db.copy_(t.T @ dy)"),
            ("dshard = torch.empty_like(shard)", "dshard = torch.empty(len(shard))"),
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "written_into_the_shard",
        "The gradient comes into the shard itself, over the parameters that the optimizer is to change. It needs a "
        "tensor like the shard.",
        edit((OWN, "dshard = shard")),
        edit((OWN, "dshard = shard.data")),
    ),
    wrong(
        "sum_for_mean",
        "Your gradients are sums over the ranks. Each rank's loss is the mean of its own samples, so that all ranks "
        "together want the mean.",
        edit((', "mean")', ")")),
    ),
    wrong(
        "this_ranks_own",
        "You return a part of this rank's own gradient, which the other ranks' samples have no say in.",
        edit((SCATTERED, "    dshard = grads.view(comm.size, -1)[comm.rank].clone()")),
        edit((SCATTERED, "    dshard = grads.view(comm.size, -1)[comm.rank]")),
    ),
    wrong(
        "another_ranks_part",
        "Rank r returns another part than part r: its optimizer would step with gradients of other parameters.",
        edit((REDUCE, 'comm.reduce_scatter_single(dshard, grads.view(comm.size, -1).flip(0).flatten(), "mean")')),
        edit((REDUCE, 'comm.reduce_scatter_single(dshard, grads.view(comm.size, -1).roll(1, 0).flatten(), "mean")')),
    ),
    wrong(
        "dx_reduced",
        "You take the mean of dx over the ranks. dx belongs to this rank's own samples; only gradients of parameters "
        "are shared.",
        edit((f"    {OWN}", f'    comm.all_reduce(dx, "mean")\n    {OWN}')),
    ),
    wrong(
        "padding_is_no_zero",
        "The gradient of the padding is not 0, and an optimizer moves what belongs to no parameter, or a norm counts "
        "it. Begin with zeros.",
        edit(("torch.zeros_like(full)", "torch.ones_like(full)")),
        fails=("padding",),
    ),
    wrong(
        "da_and_db_swapped",
        "The gradient of b lies where that of a belongs. In the flat gradient each has the place of its parameter.",
        edit(("out=da", "out=db"), ("torch.mm(t.T, dy, out=db)", "torch.mm(t.T, dy, out=da)")),
    ),
    wrong(
        "residual_forgotten",
        "dx lacks a term: y = x + ..., so that dy itself goes on to x.",
        edit(("dx = dy + dt @ a", "dx = dt @ a")),
    ),
    wrong(
        "derivative_of_tanh",
        "The derivative of the tanh is 1 - t * t, with t its value.",
        edit(("(1 - t * t)", "(1 - t)")),
        edit((" * (1 - t * t)", "")),
        edit(("(1 - t * t)", "(1 - torch.tanh(t) ** 2)")),
    ),
    wrong(
        "own_shard_alone",
        "You compute with this rank's shard in the place of all others'. Gather before you compute: forward has "
        "freed what it gathered.",
        edit((GATHER, "full.view(comm.size, -1).copy_(shard)")),
    ),
)
