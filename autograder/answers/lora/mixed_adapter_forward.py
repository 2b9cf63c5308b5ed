"""Right and wrong ways to write `mixed_adapter_forward`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.lora.mixed_adapter_forward import mixed_adapter_forward


def in_numpy(x: Tensor, ids: Tensor, linear: nn.Linear, adapters: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Each row by one einsum over all three factors, in float64."""
    if not all(-1 <= number < len(adapters) for number in ids.tolist()):
        raise ValueError("no such adapter")
    y = linear(x).double().numpy()
    for row, number in enumerate(ids.numpy()):
        if number >= 0:
            A, B, scale = adapters[number]
            operands = (x[row].double().numpy(), A.double().numpy(), B.double().numpy())
            y[row] += scale * np.einsum("tn,rn,mr->tm", *operands, optimize=["einsum_path", (0, 1), (0, 1)])
    return torch.from_numpy(y).to(x.dtype)


def row_by_row(x: Tensor, ids: Tensor, linear: nn.Linear, adapters: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """A product for each row that has an adapter."""
    if any(number < -1 or number >= len(adapters) for number in ids.tolist()):
        raise ValueError("ids must name adapters")
    y: Tensor = linear(x).clone()
    for row, number in enumerate(ids.tolist()):
        if number >= 0:
            A, B, scale = adapters[number]
            y[row] += F.linear(F.linear(x[row], A), B) * scale
    return y


def sorted_by_adapter(
    x: Tensor, ids: Tensor, linear: nn.Linear, adapters: Sequence[tuple[Tensor, Tensor, float]]
) -> Tensor:
    """Rows of one adapter lie side by side for a while."""
    counts = [int((ids == number).sum()) for number in range(-1, len(adapters))]
    if sum(counts) < len(ids):
        raise ValueError("some ids name no adapter")
    order = torch.sort(ids, stable=True).indices
    parts = torch.split(x[order], counts)
    y: Tensor = linear(x[order])
    deltas = [scale * (part @ A.T @ B.T) for part, (A, B, scale) in zip(parts[1:], adapters, strict=True)]
    y = y + torch.cat([y.new_zeros(counts[0], *y.shape[1:]), *deltas])
    return y[torch.argsort(order)]


def gathered(x: Tensor, ids: Tensor, linear: nn.Linear, adapters: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """For all adapters of one r the factors of each row, in one batched product."""
    if len(ids) and (int(ids.min()) < -1 or int(ids.max()) >= len(adapters)):
        raise ValueError("an id out of range")
    y: Tensor = linear(x)
    for r in {len(A) for A, _, _ in adapters}:
        numbers = [number for number, (A, _, _) in enumerate(adapters) if len(A) == r]
        rows = torch.isin(ids, torch.tensor(numbers)).nonzero().flatten()
        places = torch.searchsorted(torch.tensor(numbers), ids[rows])
        As = torch.stack([adapters[number][0] for number in numbers])[places]
        Bs = torch.stack([adapters[number][1] for number in numbers])[places]
        scales = x.new_tensor([adapters[number][2] for number in numbers])[places]
        y.index_add_(0, rows, scales[:, None, None] * torch.bmm(torch.bmm(x[rows], As.mT), Bs.mT))
    return y


def by_elements(x: Tensor, ids: Tensor, linear: nn.Linear, adapters: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Products of the rows that use an adapter as products of elements, and a tensor like y for each adapter."""
    if not set(ids.tolist()) <= set(range(-1, len(adapters))):
        raise ValueError("ids of no adapter")
    y: Tensor = linear(x)
    for number, (A, B, scale) in enumerate(adapters):
        mask, delta = ids == number, torch.zeros_like(y)
        inner = (x[mask].unsqueeze(-2) * A).sum(-1)
        delta[mask] = scale * (inner.unsqueeze(-2) * B).sum(-1)
        y = torch.where(mask[:, None, None], y + delta, y)
    return y


RIGHT = (
    right(by_elements),
    right(in_numpy, independent="numpy.einsum"),
    right(row_by_row),
    right(sorted_by_adapter),
    right(gathered),
)

BASE = "y: Tensor = linear(x)\n"
ROWS = "rows = torch.nonzero(ids == number)[:, 0]"
ADDED = "y[rows] += scale * (x[rows] @ A.T @ B.T)"
ROW_OF_BA = "(b[:, None] * A).sum(0)"
NO_ADAPTER = "y[ids < 0] = linear(x[ids < 0])"

WRONG = (
    wrong(
        "base_for_each_adapter",
        "You call the layer again for each adapter. Its product is nearly all of the work, and the adapters do not "
        "change it: call it once with all rows, then add what the adapters bring.",
        edited(mixed_adapter_forward, (ADDED, f"y[rows] = linear(x)[rows] + {ADDED[11:]}")),
        edited(
            mixed_adapter_forward,
            (BASE, f"y = x.new_empty(*x.shape[:2], linear.out_features)\n    {NO_ADAPTER}\n"),
            (ADDED, f"y[rows] = linear(x[rows]) + {ADDED[11:]}"),
        ),
    ),
    wrong(
        "merged_for_each_adapter",
        "You make a weight with the adapter in it for each adapter in the batch. It is as large as the base's, and "
        "the base's product is made anew with each. Keep the factors apart: x A' first, then times B'.",
        edited(
            mixed_adapter_forward,
            (BASE, "y = torch.nn.functional.linear(x, linear.weight, linear.bias)\n"),
            (ADDED, "y[rows] = torch.nn.functional.linear(x[rows], linear.weight + scale * B @ A, linear.bias)"),
        ),
    ),
    wrong(
        "merged_in_place",
        "You add each adapter to the weight of the base, and take it off again. That forms B A, and leaves the weight "
        "changed by roundings. A base that serves many must not be touched: use the factors.",
        edited(
            mixed_adapter_forward,
            (
                ADDED,
                "linear.weight.data += scale * B @ A\n        y[rows] = linear(x[rows])\n"
                "        linear.weight.data -= scale * B @ A",
            ),
        ),
    ),
    wrong(
        "product_of_the_factors",
        "You multiply B by A before x comes in: that makes a matrix as large as the weight, and costs as much as the "
        "base, also row by row. From the left, x A' B' passes through r numbers.",
        edited(mixed_adapter_forward, ("(x[rows] @ A.T @ B.T)", "(x[rows] @ (B @ A).T)")),
        edited(mixed_adapter_forward, ("(x[rows] @ A.T @ B.T)", "(x[rows] @ (A.T @ B.T))")),
        edited(
            mixed_adapter_forward,
            (
                ADDED,
                f"merged = [{ROW_OF_BA} for b in B]\n"
                "        more = torch.stack([(x[rows] * row).sum(-1) for row in merged], -1)\n"
                "        y[rows] += scale * more",
            ),
        ),
    ),
    wrong(
        "every_adapter_on_every_row",
        "You multiply all rows by each adapter, and drop most results by a mask. With a hundred adapters that is a "
        "hundred times the work: take out the rows of an adapter before you multiply.",
        edited(mixed_adapter_forward, ("(x[rows] @ A.T @ B.T)", "(x @ A.T @ B.T)[rows]")),
        edited(
            mixed_adapter_forward,
            (ROWS, "mask = (ids == number).to(x.dtype)[:, None, None]"),
            (ADDED, "y += scale * mask * (x @ A.T @ B.T)"),
        ),
        edited(
            mixed_adapter_forward,
            (
                ADDED,
                "inner = torch.stack([(x * row).sum(-1) for row in A], -1)\n"
                "        more = torch.stack([(inner * row).sum(-1) for row in B], -1)\n"
                "        y[rows] += scale * more[rows]",
            ),
        ),
        edited(
            mixed_adapter_forward,
            (BASE, f"{BASE}    room = torch.empty_like(x)\n"),
            (
                "(x[rows] @ A.T @ B.T)",
                "(torch.stack([torch.mul(x, row, out=room).sum(-1) for row in A], -1)[rows] @ B.T)",
            ),
        ),
    ),
    wrong(
        "padded_to_the_largest_r",
        "You fill all factors up with zeros to the largest r, so that they can be stacked. Each row then pays for the "
        "largest adapter. Give each its own product, or stack only factors of one r.",
        edited(
            mixed_adapter_forward,
            (ROWS, f"{ROWS}\n        more = max(len(each[0]) for each in adapters) - len(A)"),
            ("A.T @ B.T", "torch.nn.functional.pad(A, (0, 0, 0, more)).T @ torch.nn.functional.pad(B, (0, more)).T"),
        ),
    ),
    wrong(
        "stacks_all_factors",
        "You stack the factors of all adapters, which needs one r for all of them, and at least one adapter. Let each "
        "have its own product.",
        edited(
            mixed_adapter_forward,
            (BASE, f"{BASE}    As, Bs = (torch.stack([each[at] for each in adapters]) for at in (0, 1))\n"),
            ("A.T @ B.T", "As[number].T @ Bs[number].T"),
        ),
    ),
    wrong(
        "last_adapter_for_none",
        "You use the id as an index also where it is -1, and Python counts -1 from the end: a row that wants no "
        "adapter gets the last one. Leave such rows as the base made them.",
        edited(row_by_row, ("if number >= 0:", "if adapters:")),
        edited(mixed_adapter_forward, ("ids == number", "ids % len(adapters) == number")),
    ),
    wrong(
        "first_adapter_for_none",
        "You turn -1 into 0, and the rows that want no adapter get the first one. Leave such rows as the base made "
        "them.",
        edited(mixed_adapter_forward, ("ids == number", "ids.clamp(min=0) == number")),
    ),
    wrong(
        "scale_of_the_first",
        "You multiply by the scale of the first adapter everywhere. Each has an alpha and an r of its own, hence a "
        "scale of its own.",
        edited(mixed_adapter_forward, ("scale * (", "adapters[0][2] * (")),
    ),
    wrong(
        "no_scale",
        "You add x A' B' as it is: multiply it by the adapter's scale.",
        edited(mixed_adapter_forward, ("scale * (", "(")),
    ),
    wrong(
        "base_left_out",
        "You assign what the adapter brings in place of the base's result: add it to that.",
        edited(mixed_adapter_forward, ("y[rows] +=", "y[rows] =")),
    ),
    wrong(
        "not_put_back",
        "You sort the rows by their adapter and return them in that order: the caller's row i is somewhere else. Undo "
        "the sorting at the end; the inverse of a permutation is its argsort.",
        edited(sorted_by_adapter, ("return y[torch.argsort(order)]", "return y")),
    ),
    wrong(
        "put_back_by_the_same_order",
        "You undo the sorting by the order that you sorted with, which is its own inverse only when it swaps pairs. "
        "The inverse of a permutation is its argsort; or assign: out[order] = y.",
        edited(sorted_by_adapter, ("y[torch.argsort(order)]", "y[order]")),
    ),
    wrong(
        "added_to_a_copy",
        "y[rows] with a tensor of numbers or a mask is a copy, and you add to that copy: y itself never changes. "
        "`y[rows] += ...` writes back, and so does y.index_add_(0, rows, ...).",
        edited(mixed_adapter_forward, (ADDED, f"y[rows].add_({ADDED[11:]})")),
    ),
    wrong(
        "leaves_a_trace_in_the_layer",
        "The layer, or a factor, has the numbers that it had and is not what it was: in another mode, with a hook left "
        "behind, or it trains. It serves others as well. One plain call of it is all that is needed.",
        edited(mixed_adapter_forward, (BASE, f"linear.eval()\n    {BASE}")),
        edited(mixed_adapter_forward, (BASE, f"linear.train()\n    {BASE}")),
        edited(mixed_adapter_forward, (BASE, f"linear.requires_grad_(True)\n    {BASE}")),
        edited(mixed_adapter_forward, (BASE, f"linear.register_forward_hook(lambda *given: None)\n    {BASE}")),
        edited(mixed_adapter_forward, (ADDED, f"A.requires_grad_(True)\n        {ADDED}")),
    ),
    wrong(
        "dimension_squeezed_away",
        "n or m may be 1, and `.squeeze` takes such a dimension away: a product with a matrix needs it.",
        edited(mixed_adapter_forward, ("x[rows] @ A.T", "x[rows].squeeze(-1) @ A.T")),
        edited(mixed_adapter_forward, ("(x[rows] @ A.T @ B.T)", "(x[rows] @ A.T @ B.T).squeeze(-1)")),
    ),
    wrong(
        "one_row_of_each",
        "You find one row for each adapter, but several rows may use the same one. `ids == number` finds them all.",
        edited(mixed_adapter_forward, (ROWS, f"{ROWS}[:1]")),
        edited(mixed_adapter_forward, (ROWS, f"{ROWS}[-1:]")),
    ),
    wrong(
        "fails_on_an_empty_batch",
        "You ask for the largest id, and an empty batch has none. Let the loop run over the adapters.",
        edited(
            mixed_adapter_forward,
            ("if ((ids < -1) | (ids >= len(adapters))).any():", "if ids.min() < -1 or ids.max() >= len(adapters):"),
        ),
    ),
    wrong(
        "flattened_by_view",
        "You flatten x with .view, which fails where x is not contiguous. Use reshape, or leave it as it is: a product "
        "with a matrix takes any leading dimensions.",
        edited(
            mixed_adapter_forward,
            ("x[rows] @ A.T", "x.view(*x.shape)[rows] @ A.T"),
            (BASE, BASE.replace("(x)", "(x.view(-1, x.shape[2])).view(*x.shape[:2], -1)")),
        ),
    ),
    wrong(
        "buffer_in_float32",
        "What the adapters bring passes through float32: by .float(), or in a tensor made without a dtype. It rounds "
        "float64, and turns half precision into float32 if it is not cast back. Make it like y: torch.zeros_like(y).",
        edited(
            mixed_adapter_forward,
            (BASE, f"{BASE}    more = torch.zeros(y.shape)\n"),
            (ADDED, f"more[rows] = ({ADDED[11:]}).float()"),
            ("return y", "return y + more"),
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "result_in_float32",
        "In some calls y is in float32 and x is not: an empty batch for which you make a tensor without a dtype, or "
        "half precision that .float() makes finer and nothing casts back. What linear(x) returns has the right shape "
        "and dtype, in each case.",
        edited(mixed_adapter_forward, ("return y", "return y if len(x) else torch.zeros(y.shape)")),
        edited(mixed_adapter_forward, ("return y", "return y.float() if x.dtype.itemsize == 2 else y")),
        fails=("dtype_of_x",),
    ),
    wrong(
        "ids_unchecked",
        "An id that names no adapter is not refused as it should be: its row gets the base's result, or another error "
        "than a ValueError comes from somewhere inside. Look at all ids first, and raise a ValueError.",
        edited(mixed_adapter_forward, ("if ((ids < -1) | (ids >= len(adapters))).any():", "if False:")),
        edited(mixed_adapter_forward, ("(ids < -1) | (ids >= len(adapters))", "ids >= len(adapters)")),
        edited(mixed_adapter_forward, ("ids >= len(adapters)", "ids > len(adapters)")),
        edited(mixed_adapter_forward, ("    if ((ids", "    if not adapters:\n        return linear(x)\n    if ((ids")),
        fails=("refusals",),
    ),
)
