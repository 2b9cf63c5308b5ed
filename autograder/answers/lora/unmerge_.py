"""Right and wrong ways to write `unmerge_`."""

from __future__ import annotations

from functools import partial

import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.adapted import Adapted
from course.reference.lora.unmerge_ import unmerge_


def by_addmm(layer: Adapted) -> None:
    """torch's own sum of a matrix and a product; the weight gets it through a tensor without history."""
    if not layer.merged:
        return
    weight = layer.base.weight.detach()
    a, b = (each.detach().to(torch.promote_types(each.dtype, torch.float32)) for each in (layer.A, layer.B))
    weight.copy_(torch.addmm(weight.to(a.dtype), b, a, alpha=-layer.scale))
    layer.merged = False


def by_numpy(layer: Adapted) -> None:
    """NumPy's product in float64."""
    if layer.merged:
        product = layer.B.detach().double().numpy() @ layer.A.detach().double().numpy()
        with torch.no_grad():
            sum_of_both = layer.base.weight.double() - torch.from_numpy(layer.scale * product)
            layer.base.weight.copy_(sum_of_both)
    layer.merged = False


def added_in_place(layer: Adapted) -> None:
    """One outer product after the other, into a finer copy; the flag first."""
    before, layer.merged = layer.merged, False
    if before is False:
        return
    with torch.no_grad():
        total = layer.base.weight.double()
        total = total.clone() if total is layer.base.weight else total
        for row, column in zip(layer.A, layer.B.T, strict=True):
            total -= layer.scale * column.double()[:, None] * row.double()
        layer.base.weight[:] = total


RIGHT = (
    right(by_addmm, independent="torch.addmm"),
    right(by_numpy),
    right(added_in_place),
)

way = partial(edited, unmerge_)
numpys = partial(edited, by_numpy)

UNLESS = "    if not layer.merged:\n        return\n"
FLAG = "    layer.merged = False\n"
RECORDS = ("@torch.no_grad()\n", "")
PRODUCT = "layer.B.to(finer) @ layer.A.to(finer)"
OUTER = "torch.outer(layer.B.to(finer).squeeze(), layer.A[0].to(finer))"
SUM = "weight.to(finer) - layer.scale * product"
WRITE = f"weight.copy_({SUM})"
FINER = "torch.promote_types(weight.dtype, torch.float32)"
IN_HALF = "if weight.dtype != finer:\n        "

WRONG = (
    wrong(
        "unmerges_twice",
        "You take the adapter off a weight that does not hold it: on a layer that is not merged, or in a second call. "
        "Ask layer.merged first.",
        way((UNLESS, "")),
        numpys(("if layer.merged:", "if True:")),
    ),
    wrong(
        "flag_forgotten",
        "You do not set layer.merged = False. Forward then counts the adapter not at all, and the next call "
        "changes the weight once more.",
        way((FLAG, "")),
        way((FLAG, "    layer.is_merged = False\n")),
        way((FLAG, "    merged = False  # noqa: F841\n")),
    ),
    wrong(
        "flag_left_where_nothing_changes",
        "Where B or scale is 0, as in a fresh layer, you return before you set the flag. The weight stays as it is, "
        "and layer.merged must be False all the same: who reads it next goes by that.",
        way((UNLESS, UNLESS.replace("layer.merged", "layer.merged or not layer.B.any()"))),
        way((UNLESS, UNLESS.replace("layer.merged", "layer.merged or layer.scale == 0"))),
    ),
    wrong(
        "switches_back",
        "A second call undoes the first: you turn the flag around each time. It must leave the weight "
        "as it was before the merge.",
        way(
            (UNLESS, ""),
            (SUM, "weight.to(finer) + (-1 if layer.merged else 1) * layer.scale * product"),
            (FLAG, "    layer.merged = not layer.merged\n"),
        ),
    ),
    wrong(
        "the_other_way_round",
        "You add the adapter where it must be taken off, or you do nothing on a layer that is merged.",
        way((SUM, "weight.to(finer) + layer.scale * product")),
        way(("if not layer.merged:", "if layer.merged:")),
    ),
    wrong(
        "scale_lost",
        "The adapter is scale times B A, and you use B A alone: the outputs change as soon as scale is not 1.",
        way((SUM, "weight.to(finer) - product")),
        numpys(("layer.scale * product", "product")),
    ),
    wrong(
        "scale_elsewhere",
        "The scale belongs to B A, once: not to the weight, not squared, and not as a divisor.",
        way((SUM, "layer.scale * (weight.to(finer) - product)")),
        way((SUM, "weight.to(finer) - layer.scale**2 * product")),
        way((SUM, "weight.to(finer) - product / layer.scale")),
    ),
    wrong(
        "factors_swapped",
        "A B is (r, r): with equal sizes it fits, and with r = 1 it even spreads over the weight. B (m, r) times "
        "A (r, n) has the shape of the weight.",
        way((PRODUCT, "layer.A.to(finer) @ layer.B.to(finer)")),
    ),
    wrong(
        "column_squeezed_away",
        "A weight may have one column or one row, which `.squeeze()` takes away: what is left spreads over a square, "
        "or does not fit. B A has the shape of the weight as it is.",
        way((PRODUCT, f"({PRODUCT}).squeeze()")),
        way((PRODUCT, f"{OUTER} if len(layer.A) == 1 else {PRODUCT}")),
    ),
    wrong(
        "transposed",
        "Your product is the transpose, A' B', which fits where the weight is square. The weight is (m, n), as B A is.",
        way((PRODUCT, f"({PRODUCT}).T")),
        way((PRODUCT, "layer.A.T.to(finer) @ layer.B.T.to(finer)")),
    ),
    wrong(
        "another_tensor",
        "Your sum lies in a new tensor, which becomes the layer's weight or its .data. An optimizer, a tied layer or a "
        "view holds the old one. Write into the weight that is there: copy_, add_.",
        way((WRITE, f"layer.base.weight = torch.nn.Parameter({SUM}, requires_grad=weight.requires_grad)")),
        way((WRITE, f"weight.data = ({SUM}).to(weight.dtype)")),
        way((WRITE, f"layer.base.weight = torch.nn.Parameter({SUM})")),
        way((WRITE, f"layer.base.weight = torch.nn.Parameter(({SUM}).to(weight.dtype), requires_grad=False)")),
        way((WRITE, f"{WRITE}\n    layer.base.weight = torch.nn.Parameter(weight.detach(), weight.requires_grad)")),
        way((WRITE, f"{IN_HALF}weight.data = ({SUM}).to(weight.dtype)\n    else:\n        {WRITE}")),
        way((WRITE, f"weight.data = weight.data.contiguous()\n    {WRITE}")),
    ),
    wrong(
        "result_dropped",
        "You compute the new weight and give it a name of your own: the layer's weight is what it was. Write the sum "
        "into it: copy_.",
        way((WRITE, f"weight = {SUM}")),
        way((WRITE, f"weight.clone().copy_({SUM})")),
    ),
    wrong(
        "recorded_by_autograd",
        "Autograd records your sum. A weight that requires a gradient refuses it, and a frozen one gets a history from "
        "A and B: it requires a gradient from then on. Do it under torch.no_grad().",
        way(RECORDS),
        way(RECORDS, (PRODUCT, f"({PRODUCT}).detach()")),
        way(RECORDS, (WRITE, "layer.base.weight -= (layer.scale * product).to(weight.dtype)")),
    ),
    wrong(
        "error_swallowed",
        "Autograd refuses to change a leaf in place, and you catch the error and go on. The flag says that it is done, "
        "and the weight is as before. torch.no_grad() is what the error asks for.",
        way(RECORDS, (WRITE, f"try:\n        {WRITE}\n    except RuntimeError:\n        pass")),
    ),
    wrong(
        "changes_requires_grad",
        "You turn the gradient of the weight off so that it may be changed, and leave it off, or on. torch.no_grad() "
        "changes nothing but the recording.",
        way((WRITE, f"weight.requires_grad_(False)\n    {WRITE}")),
        way((WRITE, f"{WRITE}\n    weight.requires_grad_(True)")),
        way((WRITE, f"{WRITE}\n    layer.A.requires_grad_(False)\n    layer.B.requires_grad_(False)")),
    ),
    wrong(
        "factors_cleared",
        "You set a factor, or the scale, to 0. Forward leaves the adapter out by the flag; the factors are needed to "
        "take it out of the weight again, and to save it.",
        way((WRITE, f"{WRITE}\n    layer.B.zero_()")),
        way((WRITE, f"{WRITE}\n    layer.A.zero_()\n    layer.B.zero_()")),
        way((WRITE, f"{WRITE}\n    layer.scale = 0.0")),
    ),
    wrong(
        "factors_converted",
        "A and B are in float32 after the call: you assigned what you converted to the layer itself. In half precision "
        "the next forward refuses them, or they take twice the memory. Convert copies.",
        way((WRITE, f"layer.A.data = layer.A.data.to(finer)\n    layer.B.data = layer.B.data.to(finer)\n    {WRITE}")),
        way((WRITE, f"{WRITE}\n    layer.B.data = layer.B.data.to(finer)")),
        fails=("factors_unchanged", "nothing_kept"),
    ),
    wrong(
        "factors_scaled_in_float64",
        "Where all is in float64, `.double()` makes no copy: it is the factor itself, and `mul_` changes that. "
        "Multiply without an underscore.",
        way(
            (PRODUCT, "layer.B.double().mul_(layer.scale) @ layer.A.double()"), ("- layer.scale * product", "- product")
        ),
        fails=("factors_unchanged",),
    ),
    wrong(
        "keeps_a_second_weight",
        "You keep a copy of the weight, or the product, in the layer. That is as much memory again as the whole base: "
        "A and B tell what was added.",
        way((WRITE, f"layer.before = weight.clone()\n    {WRITE}")),
        way((WRITE, f"{WRITE}\n    layer.product = product")),
        way((WRITE, f"{IN_HALF}layer.before = weight.clone()\n    {WRITE}")),
    ),
    wrong(
        "computed_in_half_precision",
        "With a weight in half precision you round B A, or scale B A, before the sum, which is then rounded again. "
        "Convert the factors and the weight to float32 first, and round where the weight is written.",
        way((FINER, "weight.dtype")),
        way((PRODUCT, "(layer.B @ layer.A).to(finer)")),
        way((WRITE, "weight.sub_((layer.scale * product).to(weight.dtype))")),
    ),
    wrong(
        "float32_for_float64",
        "With a weight in float64 you compute in float32, and lose half of its digits. torch.promote_types(dtype, "
        "torch.float32) is float32 for half precision and float64 for float64.",
        way((FINER, "torch.float32")),
        way((PRODUCT, f"({PRODUCT}).float()")),
        way((SUM, SUM.replace("layer.scale", "torch.tensor(layer.scale)"))),
        rounds_to=torch.float32,
    ),
    wrong(
        "view_of_scattered_numbers",
        "Right for a weight whose numbers lie in a row, and an exception for one that is a view of a wider tensor. "
        "Change it as the matrix that it is.",
        way((WRITE, f"weight.view(-1).copy_(({SUM}).view(-1))")),
    ),
)
