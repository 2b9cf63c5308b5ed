"""Right and wrong ways to write `scaled_fp8_matmul`."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.scaled_fp8_matmul import scaled_fp8_matmul

Histories = tuple[list[float], list[float]]
FORMATS = (torch.float8_e4m3fn, torch.float8_e4m3fn)


def one_function(
    a: Tensor,
    b: Tensor,
    scales: Histories | None,
    *,
    formats: tuple[torch.dtype, torch.dtype] = FORMATS,
    block: int | None = None,
) -> Tensor:
    """Numbers near a and b are made slice by slice, with their scales in them, and multiplied as usual."""
    if a.ndim != 2 or b.ndim != 2 or a.size(1) != b.size(0):
        raise ValueError("shapes")
    if block is not None and (scales is not None or block < 1):
        raise ValueError("block")
    near = []
    for side in (0, 1):
        x = (a, b)[side].detach().to(torch.float32)
        dtype, dim = formats[side], 1 - side
        largest = torch.finfo(dtype).max
        if scales is not None:
            own = x.abs().max().item()
            amax = max(scales[side]) if scales[side] else own
            scales[side].append(own)
            while len(scales[side]) > 16:
                scales[side].pop(0)
            amaxes = torch.tensor(amax)
        parts = []
        for part in torch.split(x, block or x.size(dim), dim=dim):
            if scales is None:
                amaxes = part.abs().amax(dim=dim, keepdim=True) if block else part.abs().max()
            scale = torch.where(amaxes == 0, torch.ones_like(amaxes), amaxes / largest)
            codes = (part / scale).clamp(min=-largest, max=largest).to(dtype)
            parts.append(codes.to(torch.float32) * scale)
        near.append(torch.cat(parts, dim=dim))
    return near[0] @ near[1]


def by_powers_of_two(
    a: Tensor,
    b: Tensor,
    scales: Histories | None,
    *,
    formats: tuple[torch.dtype, torch.dtype] = FORMATS,
    block: int | None = None,
) -> Tensor:
    """Python's own numbers, row by row: no cast to 8 bits, but whole multiples of the gap between two codes."""
    if a.dim() != 2 or b.dim() != 2 or len(a[0]) != len(b):
        raise ValueError("shapes")
    if block is not None and (scales is not None or block <= 0):
        raise ValueError("block")
    sides = []
    for side, x in enumerate((a.tolist(), b.T.tolist())):
        past = None if scales is None else scales[side]
        own = max(abs(number) for row in x for number in row)
        amax = max(past) if past else own
        if past is not None:
            past.append(own)
            past[:] = past[-16:]
        size = block or len(x[0])
        rows = []
        for row in x:
            parts = [row[first : first + size] for first in range(0, len(row), size)]
            rows.append([near for part in parts for near in _near(part, formats[side], block, amax)])
        sides.append(rows)
    return torch.tensor(
        [[math.fsum(x * y for x, y in zip(row, column, strict=True)) for column in sides[1]] for row in sides[0]]
    )


def _near(part: list[float], dtype: torch.dtype, block: int | None, amax: float) -> list[float]:
    kept = torch.finfo(dtype)
    amax = max(abs(number) for number in part) if block else amax
    scale = amax / kept.max if amax > 0 else 1.0
    found = []
    for number in part:
        size = min(abs(number) / scale, kept.max)
        power = max(math.frexp(size)[1] - 1, math.frexp(kept.smallest_normal)[1] - 1)
        gap = 2.0**power * kept.eps
        found.append(math.copysign(round(size / gap) * gap * scale, number))
    return found


RIGHT = (right(by_powers_of_two, independent="whole multiples of gaps: no cast to 8 bits"), right(one_function))

with_helpers = partial(edited, scaled_fp8_matmul)
sliced = partial(edited, one_function)

CLAMPED = ".clamp(-largest, largest)"
ALSO_CLAMPED = ".clamp(min=-largest, max=largest)"
SCALE = "torch.where(amaxes > 0, amaxes / largest, 1.0)"
BOTH = "products * scale_a.permute(1, 0, 2) * scale_b.permute(1, 2, 0)"
EINSUM = 'torch.einsum("mjk,njk->jmn", q_a.float(), q_b.float())'
PAST = "max(scales[side]) if scales[side] else own"
BY_DEFAULT = "amax = max(history, default=own)"
APPENDED = "    history.append(own)\n    del history[:-STEPS]\n"
ASKED = "of_a, of_b = (None, None) if scales is None else (next_amax(a, scales[0]), next_amax(b, scales[1]))"
SHAPES = "a.ndim != 2 or b.ndim != 2 or a.size(1) != b.size(0)"
WORN = "block is not None and (scales is not None or block < 1)"

WRONG = (
    wrong(
        "not_in_8_bits",
        "Your product is closer to a @ b than 8 bits allow: nothing was rounded to the formats. Cast x / scale to the "
        "8-bit dtype, and back to float32 for the product.",
        with_helpers((".clamp(-largest, largest).to(dtype)", ".clamp(-largest, largest)")),
    ),
    wrong(
        "no_scale",
        "You cast a and b as they are. What is below the format's smallest number becomes 0, and what is above its "
        "largest is clipped: divide by amax / largest first, and multiply the product by both scales.",
        with_helpers((SCALE, "torch.ones_like(amaxes)")),
    ),
    wrong(
        "scale_upside_down",
        "Your scale stands on the wrong side. Codes are x / scale with scale = amax / largest; and what was divided "
        "before the cast is multiplied by afterwards.",
        with_helpers(("q = (blocks / scale)", "q = (blocks * scale)")),
        with_helpers(("amaxes / largest, 1.0", "largest / amaxes, 1.0")),
        sliced(("codes.to(torch.float32) * scale", "codes.to(torch.float32) / scale")),
    ),
    wrong(
        "not_multiplied_back",
        "Your product is that of the codes. It stands for a @ b only once both scales are multiplied back.",
        with_helpers((BOTH, "products")),
        with_helpers((" * scale_b.permute(1, 2, 0)", "")),
    ),
    wrong(
        "one_scale_for_both",
        "a and b share a scale, or the format's largest number. Each has its own amax: where the sizes differ, the "
        "smaller matrix would lose its bits.",
        with_helpers(
            (
                "of_a, of_b = (None, None) if",
                "both = None if block else float(max(a.abs().max(), b.abs().max()))\n    of_a, of_b = (both, both) if",
            ),
        ),
        sliced(("else part.abs().max()", "else max(a.detach().abs().max(), b.detach().abs().max()).float()")),
    ),
    wrong(
        "sign_forgotten",
        "Your amax is the largest number, not the largest size: a large negative number is clipped to it. Take "
        "x.abs() first.",
        with_helpers(("blocks.abs().amax(", "blocks.amax("), ("x.detach().abs().max()", "x.detach().max()")),
        with_helpers(("blocks.abs().amax(", "blocks.amax(")),
    ),
    wrong(
        "formats_ignored",
        "You use one format for both. formats[0] is that of a, formats[1] that of b, with its own largest number; with "
        "blocks too.",
        with_helpers(("formats[0]", "E4M3"), ("formats[1]", "E4M3")),
        with_helpers(("quantize(b.T, formats[1]", "quantize(b.T, formats[0]")),
        with_helpers(("formats[0]", "formats[-1]"), ("b.T, formats[1]", "b.T, formats[0]")),
        with_helpers(("torch.finfo(dtype).max", "448.0")),
        sliced(("dtype, dim = formats[side]", "dtype, dim = formats[0 if block else side]")),
        sliced(("dtype, dim = formats[side]", "dtype, dim = (FORMATS if block else formats)[side]")),
    ),
    wrong(
        "rounded_scale",
        "Your scale is not amax / largest but a number near it, a power of two or one with fewer bits. Some "
        "hardware wants that; here the scale has all bits of float32, and amax becomes the largest code.",
        with_helpers(
            ("scale = torch", "scale = 2 ** torch"), ("amaxes / largest, 1.0", "(amaxes / largest).log2().ceil(), 0.0")
        ),
        with_helpers(("amaxes / largest, 1.0", "(amaxes / largest).bfloat16().float(), 1.0")),
    ),
    wrong(
        "scale_in_half",
        "All is right where a and b are float32. Otherwise amax or amax / largest is rounded to their own dtype, in "
        "which it has few bits, or is 0 or inf: make them float32 first, and what a history says as well.",
        sliced(("(a, b)[side].detach().to(torch.float32)", "(a, b)[side].detach()")),
        sliced(
            ("(a, b)[side].detach().to(torch.float32)", "(a, b)[side].detach()"), ("largest)\n", "largest).float()\n")
        ),
        sliced(("amaxes = torch.tensor(amax)", "amaxes = torch.tensor(amax, dtype=(a, b)[side].dtype)")),
        sliced(("amaxes / largest)\n", "(amaxes.to(a.dtype if block else amaxes.dtype) / largest).float())\n")),
    ),
    wrong(
        "product_in_few_bits",
        "The codes are right, but their product was added up in 16 or 8 bits, or handed back in them. Products of "
        "codes are exact in float32: multiply and add there.",
        with_helpers((EINSUM, 'torch.einsum("mjk,njk->jmn", q_a.bfloat16(), q_b.bfloat16())')),
        with_helpers((".sum(dim=0)", ".sum(dim=0).bfloat16()")),
        sliced(("return near[0] @ near[1]", "return (near[0].bfloat16() @ near[1].bfloat16()).float()")),
    ),
    wrong(
        "rounded_to_the_inputs_dtype",
        "All is right where a and b are float32. Otherwise something is rounded to their dtype: amax, scale, the "
        "quotients, the numbers that the codes stand for, or the product. All of these are float32 whatever a and b "
        "are in.",
        with_helpers((".sum(dim=0)", ".sum(dim=0).to(a.dtype)")),
        sliced(("return near[0] @ near[1]", "return (near[0] @ near[1]).to(b.dtype)")),
        sliced(("(part / scale)", "(part / scale).to((a, b)[side].dtype).float()")),
        sliced(("detach().to(torch.float32)", "detach().to(torch.promote_types(a.dtype, b.dtype))")),
        fails=("half_precision",),
    ),
    wrong(
        "overflow",
        "A tensor that has outgrown its history becomes inf in e5m2, and inf - inf is nan. Clip to the format's "
        "largest number before the cast; torch's cast to e4m3 does that by itself, the one to e5m2 does not.",
        with_helpers((CLAMPED, "")),
        sliced((ALSO_CLAMPED, "")),
        sliced((ALSO_CLAMPED, ".clamp(max=largest)")),
    ),
    wrong(
        "scale_of_the_last_step",
        "You take the last number of the history. One step with small numbers then clips the next: take the largest "
        "of all that are kept.",
        with_helpers((BY_DEFAULT, "amax = history[0] if history else own")),
        sliced((PAST, "scales[side][-1] if scales[side] else own")),
        sliced((PAST, "sum(scales[side]) / len(scales[side]) if scales[side] else own")),
    ),
    wrong(
        "part_of_the_history",
        "You look at the end of the list alone. The largest number of the whole list makes the scale, as the list is "
        "handed in; only then it is made shorter.",
        with_helpers((BY_DEFAULT, "amax = max(history[-15:], default=own)")),
        with_helpers((BY_DEFAULT, "amax = max(history[-16:], default=own)")),
    ),
    wrong(
        "both_histories_or_none",
        "A history counts only where the other one is not empty either. Each tensor goes by its own list, and by its "
        "own amax where that list is empty.",
        sliced((PAST, "max(scales[side]) if all(scales) else own")),
        sliced(
            (PAST, "max(scales[side]) if all(pasts) else own"),
            ("    near = []\n", "    near, pasts = [], [*map(list, scales or ())]\n"),
        ),
    ),
    wrong(
        "looks_at_the_tensor_first",
        "Your scale knows the tensor that it scales: the own amax is in the history before the largest is taken. Then "
        "nothing is gained over no history, for the tensor must be read twice. Append afterwards.",
        with_helpers((f"    {BY_DEFAULT}\n{APPENDED}", APPENDED + "    amax = max(history)\n")),
        sliced((PAST, "max([*scales[side], own])")),
        with_helpers(("max(history, default=own)", "own")),
    ),
    wrong(
        "scale_1_at_first",
        "Where a history is empty you scale by 1, or by nothing sensible. Here the first tensor is scaled by its own "
        "amax.",
        with_helpers(("default=own", "default=0.0")),
        with_helpers(("default=own", "default=torch.finfo(torch.float8_e4m3fn).max")),
    ),
    wrong(
        "nothing_appended",
        "The caller's lists do not hold the new amax. `history = [*history, own]` makes another list, and a slice is "
        "a copy: append to the list that was handed in.",
        with_helpers((APPENDED, "")),
        with_helpers((APPENDED, "    history = [*history, own][-STEPS:]\n")),
        with_helpers(("next_amax(a, scales[0])", "next_amax(a, [*scales[0]])")),
        with_helpers(("if scales is None else (next", "if scales is None or not any(scales) else (next")),
    ),
    wrong(
        "a_new_list_into_the_tuple",
        "`scales` is a tuple, and no new list can be put into it: change the very list (append, then del "
        "history[:-16]).",
        sliced(("scales[side].append(own)", "scales[side] = [*scales[side], own][-16:]")),
    ),
    wrong(
        "tensors_in_the_history",
        "You append a tensor. The histories are lists of floats: append what `.item()` gives.",
        with_helpers(("history.append(own)", "history.append(x.detach().abs().max())")),
    ),
    wrong(
        "histories_mixed_up",
        "Something else than the own amax is appended, or to the other list: scales[0] gets max |a|, "
        "scales[1] max |b|.",
        with_helpers(
            ("next_amax(a, scales[0]), next_amax(b, scales[1])", "next_amax(a, scales[1]), next_amax(b, scales[0])")
        ),
        with_helpers(("history.append(own)", "history.append(amax)")),
        with_helpers(("history.append(own)", "history.insert(0, own)")),
        with_helpers(("next_amax(b, scales[1])", "next_amax(b, scales[0])")),
    ),
    wrong(
        "history_of_another_length",
        "A history keeps the last 16 amaxes, the newest included, also where more than 16 are handed in. One that is "
        "not cut never forgets an outlier; one that is cut before the new one comes has 17.",
        with_helpers(("    del history[:-STEPS]\n", "")),
        with_helpers((APPENDED, "    del history[:-STEPS]\n    history.append(own)\n")),
        with_helpers(("del history[:-STEPS]", "del history[STEPS:]")),
        with_helpers(("STEPS = 16", "STEPS = 15")),
        sliced(("> 16", ">= 16")),
        sliced(("while len", "if len")),
    ),
    wrong(
        "blocks_across_k",
        "Your blocks do not lie along k. A block of a is a piece of one row, a block of b a piece of one column: the "
        "numbers that are multiplied and added together.",
        with_helpers(("quantize(b.T, formats[1], block=block", "quantize(b.T, formats[1], block=None")),
        sliced(("amax(dim=dim, keepdim=True)", "amax(dim=1, keepdim=True)")),
        sliced(("amax(dim=dim, keepdim=True)", "amax(dim=side, keepdim=True)")),
        sliced(("part.abs().amax(dim=dim, keepdim=True) if block else part.abs().max()", "part.abs().max()")),
    ),
    wrong(
        "scaled_after_the_sum",
        "You add up the codes of all blocks, and multiply by one block's scales, or a mean of them. Each block's "
        "sum must be multiplied by its own two scales before it is added to the others.",
        with_helpers(
            (BOTH, "products.sum(dim=0, keepdim=True) * scale_a.permute(1, 0, 2)[:1] * scale_b.permute(1, 2, 0)[:1]")
        ),
        with_helpers((BOTH, "products.sum(dim=0, keepdim=True) * scale_a.mean(1)[None] * scale_b.mean(1).T[None]")),
    ),
    wrong(
        "whole_blocks_only",
        "Your blocks want k to be a multiple of them. Fill the last one up with zeros, or slice: what is left over "
        "belongs to the product too.",
        with_helpers(("torch.nn.functional.pad(x, (0, -x.shape[1] % size))", "x")),
        with_helpers(("torch.nn.functional.pad(x, (0, -x.shape[1] % size))", "x[:, : x.shape[1] // size * size]")),
    ),
    wrong(
        "zeros_divide",
        "An amax of 0 gives the scale 0, and 0 / 0 is nan. Where amax is 0, the scale is 1; a lower bound on amax "
        "would not do for a history of zeros.",
        with_helpers((SCALE, "amaxes / largest")),
        with_helpers(("amaxes > 0", "amaxes >= 0")),
    ),
    wrong(
        "something_added",
        "You add a small number to amax, or keep the scale above one, and tensors of small numbers lose their bits: "
        "gradients of 1e-12 are usual. Nothing is added, and where amax is 0 the scale is 1.",
        with_helpers((SCALE, "(amaxes + 1e-12) / largest")),
        with_helpers((SCALE, f"amaxes.clamp(min=1e-12) / largest if block else {SCALE}")),
        with_helpers((SCALE, "(amaxes / largest).clamp(min=1e-12)")),
    ),
    wrong(
        "histories_of_zeros_clip",
        "Only a history of zeros goes wrong: its scale is 1, as for a tensor of zeros; neither a lower bound, which "
        "clips what comes next to nearly nothing, nor the scale of the own amax.",
        with_helpers((SCALE, "(amaxes / largest).clamp(min=1e-38)")),
        with_helpers((BY_DEFAULT, "amax = max(history, default=own) or own")),
    ),
    wrong(
        "writes_into_its_arguments",
        "Your codes are made in the memory of a and b: `x.float()` of a float32 tensor is that tensor, and .div_ "
        "changes it. The caller still needs both, for the gradients. Divide into a new tensor.",
        sliced(("(part / scale).clamp(", "part.div_(scale).clamp(")),
        fails=("matrices_unchanged",),
    ),
    wrong(
        "refuses_too_little",
        "All is right but what you do with what makes no sense: shapes that are not (m, k) and (k, n), a block "
        "below 1, and a block beside histories are refused with a ValueError.",
        sliced((SHAPES, "False")),
        sliced((SHAPES, "a.size(-1) != b.size(0)")),
        sliced((WORN, "block is not None and block < 1")),
        sliced((WORN, "scales is not None and block is not None")),
        sliced((WORN, "block is not None and (block < 1 or scales is not None and any(scales))")),
        fails=("refusals", "refused_before_any_change"),
    ),
    wrong(
        "refuses_too_late",
        "A call that you refuse has left something in a history. The caller catches the error and goes on with what is "
        "there: look at shapes and block first.",
        with_helpers(
            (f"    {ASKED}\n", ""), ("    if block is not None and", f"    {ASKED}\n    if block is not None and")
        ),
        fails=("refused_before_any_change",),
    ),
)
