"""Right and wrong ways to write `shard_flat`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.fsdp.shard_flat import shard_flat


def piece_by_piece(params: Sequence[Tensor], size: int, rank: int) -> Tensor:
    """From each parameter what overlaps with the piece: no row of all elements is made."""
    once = list({id(each): each for each in params}.values())
    m = (sum(each.numel() for each in once) + size - 1) // size
    shard = torch.zeros(m, dtype=once[0].dtype, device=once[0].device)
    start = -rank * m  # of the next parameter, seen from the piece
    for each in once:
        low, high = max(start, 0), min(start + each.numel(), m)
        if low < high:
            shard[low:high] = each.detach().reshape(-1)[low - start : high - start]
        start += each.numel()
    return shard


@torch.no_grad()
def numpys_array_split(params: Sequence[Tensor], size: int, rank: int) -> Tensor:
    """A row of float64, padded and split by numpy, in the dtype of the parameters again."""
    once = [each for place, each in enumerate(params) if not any(each is other for other in params[:place])]
    row = np.concatenate([each.double().numpy().ravel() for each in once])
    row = np.pad(row, (0, -len(row) % size))
    return torch.tensor(np.split(row, size)[rank]).to(once[0].dtype)


RIGHT = (right(numpys_array_split, independent="numpy.pad and numpy.split"), right(piece_by_piece))


@torch.no_grad()
def each_by_itself(params: Sequence[Tensor], size: int, rank: int) -> Tensor:
    """A piece of every parameter."""
    pieces = []
    for each in dict.fromkeys(params):
        flat = each.reshape(-1)
        m = -(-len(flat) // size)
        pieces.append(torch.cat([flat, flat.new_zeros(size * m - len(flat))])[rank * m : (rank + 1) * m])
    return torch.cat(pieces)


edit = partial(edited, shard_flat)
ALL, M, PIECE = "in dict.fromkeys(params)", "-(-flat.numel() // size)", "flat[rank * m : (rank + 1) * m]"
PADDED = "shard = flat.new_zeros(m)\n    shard[: len(piece)] = piece\n    return shard"

WRONG = (
    wrong(
        "rounded_down",
        "A piece of yours has n // size elements, and the elements at the end of the row belong to nobody. Round up.",
        edit((M, "flat.numel() // size"), ("shard[: len(piece)] = piece", "shard[:] = piece")),
    ),
    wrong(
        "one_too_many",
        "n // size + 1 is one too many where `size` divides n. Round up: -(-n // size).",
        edit((M, "flat.numel() // size + 1")),
    ),
    wrong(
        "no_padding",
        "Your pieces differ in length: the last ones are shorter. All ranks must give a collective tensors of one "
        "shape. Fill up with zeros.",
        edit((PADDED, "return piece.clone()")),
    ),
    wrong(
        "lengths_that_differ_by_one",
        "You spread the elements as evenly as possible, and fill up afterwards (or not at all). Then zeros stand "
        "between elements when the pieces are put together. All zeros belong to the end of the row.",
        edit((PIECE, "flat.tensor_split(size)[rank]")),
        edit((PIECE, "flat.tensor_split(size)[rank]"), (PADDED, "return piece.clone()")),
    ),
    wrong(
        "wraps_around",
        "Behind the last element you begin with the first one again, as a sampler does with indices. These elements "
        "would be counted twice in every norm: pad with zeros.",
        edit((PIECE, "flat.repeat(size * m // max(len(flat), 1) + 1)[rank * m : (rank + 1) * m]")),
    ),
    wrong(
        "zeros_in_front",
        "Your zeros stand before the elements. They belong to the end.",
        edit(("shard[: len(piece)] = piece", "shard[m - len(piece) :] = piece")),
    ),
    wrong(
        "every_size_th",
        "You take every `size`-th element. A piece is a contiguous part of the row: so pieces put together are the "
        "row, and no element must be moved.",
        edit((PIECE, "flat[rank::size]")),
    ),
    wrong(
        "each_parameter_by_itself",
        "You cut every parameter by itself, each with its own zeros. (torch's newer fully_shard does so.) Here they "
        "are one row, which is cut once.",
        each_by_itself,
    ),
    wrong(
        "counted_from_1",
        "Ranks are numbered from 0: rank 0 has the first piece.",
        edit((PIECE, "flat[(rank - 1) % size * m : ((rank - 1) % size + 1) * m]")),
    ),
    wrong(
        "nothing_for_a_number",
        "You leave out a parameter of shape (). It has one element, which is trained as others are.",
        edit((ALL, "in dict.fromkeys(params) if each.dim()")),
    ),
    wrong(
        "tied_twice",
        "A tied parameter stands in your row twice, or is counted twice for the length of a piece. It is one object: "
        "count it once.",
        edit((ALL, "in params")),
        edit((M, "-(-sum(each.numel() for each in params) // size)")),
    ),
    wrong(
        "tied_at_its_last_place",
        "A tied parameter counts where it stands first, and you take its last place.",
        edit((ALL, "in [*dict.fromkeys(reversed(params))][::-1]")),
    ),
    wrong(
        "equal_taken_for_tied",
        "You take two parameters for one because they hold the same numbers, as all biases do at first. Only the same "
        "object is tied: compare with `is`, or by id().",
        edit((ALL, "in [q for k, q in enumerate(params) if not any(torch.equal(q, r) for r in params[:k])]")),
    ),
    wrong(
        "shared_memory_taken_for_tied",
        "You take two parameters for one because they begin at the same address. One may be a view of the other: only "
        "the same object is tied. Compare with `is`, or by id().",
        edit((ALL, "in list({q.data_ptr(): q for q in params[::-1]}.values())[::-1]")),
        edit((ALL, "in list({(q.data_ptr(), q.shape): q for q in params[::-1]}.values())[::-1]")),
        edit((ALL, "in list({q.untyped_storage().data_ptr(): q for q in params[::-1]}.values())[::-1]")),
    ),
    wrong(
        "frozen_set_apart",
        "You leave out parameters that require no gradient, or put them behind the others. They are part of the model "
        "all the same, and stand in the row where they stand in the list.",
        edit((ALL, "in dict.fromkeys(params) if each.requires_grad")),
        edit((ALL, "in sorted(dict.fromkeys(params), key=lambda q: not q.requires_grad)")),
    ),
    wrong(
        "the_callers_parameters_changed",
        "The piece is right, but the caller's parameters are not what they were: you take their gradients, or switch "
        "`requires_grad` off, or put them into other memory. Work on `each.detach()`.",
        edit((ALL, "in [q.requires_grad_(False) for q in dict.fromkeys(params)]")),
        edit((M, f"{M}\n    for each in params:\n        each.grad = None")),
        edit((M, f"{M}\n    for each in params:\n        each.data = each.data.clone()")),
    ),
    wrong(
        "a_view",
        "Your piece is a slice of the whole row, which lives as long as the piece does: nothing is saved. Copy it.",
        edit(
            (PIECE, "torch.cat([flat, flat.new_zeros(size * m - len(flat))])[rank * m : (rank + 1) * m]"),
            (PADDED, "return piece"),
        ),
        edit(
            (
                PADDED,
                "shard = flat.new_zeros(m)\n    shard[: len(piece)] = piece\n"
                "    return piece if len(piece) == m else shard",
            )
        ),
        fails=("own_memory",),
    ),
    wrong(
        "the_parameter_itself",
        "On one rank with one parameter nothing is copied: your piece is the parameter's own memory, and changes with "
        "it.",
        edit(
            (
                "flat = torch.cat([each.detach().flatten() for each in dict.fromkeys(params)])",
                "rows = [each.detach().flatten() for each in dict.fromkeys(params)]\n"
                "    flat = torch.cat(rows) if len(rows) > 1 else rows[0]",
            ),
            (PADDED, "return piece if size == 1 else torch.cat([piece, piece.new_zeros(m - len(piece))])"),
        ),
    ),
    wrong(
        "recorded",
        "Your piece requires a gradient, and its graph keeps every parameter alive. Detach them.",
        edit(("each.detach().flatten()", "each.flatten()")),
        fails=("no_gradient",),
    ),
    wrong(
        "always_float32",
        "Your piece is float32 (`torch.zeros(m)` is), whatever the parameters are. `flat.new_zeros(m)` has their "
        "dtype.",
        edit(("flat.new_zeros(m)", "torch.zeros(m)")),
        edit((PADDED, f"if m == 0:\n        return torch.zeros(0)\n    {PADDED}")),
        edit(("each.detach().flatten()", "each.detach().flatten().float()"), (PADDED, f"{PADDED}.to(params[0].dtype)")),
        rounds_to=torch.float32,
    ),
    wrong(
        "flattened_by_view",
        "`view(-1)` raises where a parameter is not contiguous. `flatten()` and `reshape(-1)` copy it then.",
        edit(("each.detach().flatten()", "each.detach().view(-1)")),
    ),
    wrong(
        "in_the_order_of_memory",
        "You read a parameter as it lies in memory. That of a transposed one is another order than that of its "
        "indices.",
        edit(("each.detach().flatten()", "torch.as_strided(each.detach(), (each.numel(),), (1,))")),
    ),
)
