"""Right and wrong ways to write `attention_tiled_backward`."""

from __future__ import annotations

import itertools
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.attention_tiled_backward import attention_tiled_backward

Gradients = tuple[Tensor, Tensor, Tensor]


def through_autograd(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> Gradients:
    """torch differentiates each tile's share of the loss: p is dout (v - out), with out and lse as they move."""
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError("block or mask")
    wide = torch.promote_types(q.dtype, torch.float32)
    grads = [torch.zeros(x.shape, dtype=wide) for x in (q, k, v)]
    for i in range(0, q.shape[-2], block):
        for j in range(0, i + 1 if causal else k.shape[-2], block):
            at_i, at_j = (..., slice(i, i + block), slice(None)), (..., slice(j, j + block), slice(None))
            with torch.enable_grad():
                parts = [x[at].detach().to(wide).requires_grad_() for x, at in ((q, at_i), (k, at_j), (v, at_j))]
                scores = parts[0] @ parts[1].mT * q.shape[-1] ** -0.5
                if causal and i == j:
                    scores = scores + torch.full(scores.shape[-2:], -torch.inf, dtype=wide).triu(1)
                p = (scores - lse[..., i : i + block, None]).exp()
                gain = (p @ parts[2] - p.sum(-1, keepdim=True) * out[at_i].to(wide)) * dout[at_i].to(wide)
                for grad, at, part in zip(
                    grads, (at_i, at_j), torch.autograd.grad(gain.sum(), parts[:2], retain_graph=True), strict=False
                ):
                    grad[at] += part
            grads[2][at_j] += p.detach().mT @ dout[at_i].to(wide)
    return grads[0].to(q.dtype), grads[1].to(k.dtype), grads[2].to(v.dtype)


def queries_outside(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> Gradients:
    """Queries in the outer loop, and every tile looked at."""
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError("block or mask")
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    dq, dk, dv = (torch.zeros(x.shape, dtype=wide) for x in (q, k, v))
    for i in range(0, q.shape[-2], block):
        rows = torch.arange(i, min(i + block, q.shape[-2]))
        q_i, do_i, o_i = (x[..., rows, :].to(wide) for x in (q, dout, out))
        mean = torch.einsum("...te,...te->...t", do_i, o_i)[..., None]
        for j in range(0, k.shape[-2], block):
            columns = torch.arange(j, min(j + block, k.shape[-2]))
            k_j, v_j = (x[..., columns, :].to(wide) for x in (k, v))
            exponents = q_i @ k_j.mT / q.shape[-1] ** 0.5 - lse[..., rows, None].to(wide)
            if causal:
                exponents = torch.where(columns <= rows[:, None], exponents, -torch.inf)
            p = exponents.exp()
            ds = p * (do_i @ v_j.mT - mean) / q.shape[-1] ** 0.5
            dq[..., rows, :] += ds @ k_j
            dk[..., columns, :] += ds.mT @ q_i
            dv[..., columns, :] += p.mT @ do_i
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


def one_head_at_a_time(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> Gradients:
    """Two dimensions in each product; the mean of dp by a sum in another order than dp itself."""
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    for head in itertools.product(*map(range, q.shape[:-2])):
        parts = queries_outside(q[head], k[head], v[head], out[head], lse[head], dout[head], block, causal)
        for grad, part in zip(grads, parts, strict=True):
            grad[head] = part
    return grads


def mean_from_p(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> Gradients:
    """A sweep of its own for the mean of dp: `out`, which was rounded, is not used."""
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError("block or mask")
    mean, scale = torch.zeros_like(lse), q.shape[-1] ** -0.5
    dq, dk, dv = (torch.zeros(x.shape, dtype=lse.dtype) for x in (q, k, v))
    starts = (range(0, x.shape[-2], block) for x in (q, k))
    for final, i, j in itertools.product((False, True), *starts):
        rows, columns = (torch.arange(at, min(at + block, x.shape[-2])) for at, x in ((i, q), (j, k)))
        q_i, do_i, k_j, v_j = (
            x[..., at, :].to(lse.dtype) for x, at in ((q, rows), (dout, rows), (k, columns), (v, columns))
        )
        exponents = scale * q_i @ k_j.mT - lse[..., rows, None]
        if causal:
            exponents = exponents.masked_fill(columns > rows[:, None], -torch.inf)
        p, dp = exponents.exp(), do_i @ v_j.mT
        if not final:
            mean[..., rows] += (p * dp).sum(-1)
            continue
        ds = scale * p * (dp - mean[..., rows, None])
        dq[..., rows, :] += ds @ k_j
        dk[..., columns, :] += ds.mT @ q_i
        dv[..., columns, :] += p.mT @ do_i
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


RIGHT = (
    right(through_autograd, independent="torch.autograd.grad"),
    right(queries_outside),
    right(one_head_at_a_time),
    right(mean_from_p),
)


def whole_matrix(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> Gradients:
    """All probabilities at once."""
    return attention_tiled_backward(q, k, v, out, lse, dout, max(q.shape[-2], k.shape[-2]) if block > 0 else 0, causal)


def result_kept(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, block: int, causal: bool = False
) -> Gradients:
    """The gradients are written into what the last call of this size returned."""
    dq, dk, dv = attention_tiled_backward(q, k, v, out, lse, dout, block, causal)
    kept = buffers.setdefault((q.shape, k.shape, v.shape, q.dtype), (dq, dk, dv))
    return kept[0].copy_(dq), kept[1].copy_(dk), kept[2].copy_(dv)


buffers: dict[tuple[torch.Size, torch.Size, torch.Size, torch.dtype], Gradients] = {}

mistaken = partial(edited, attention_tiled_backward)

FINE = "torch.promote_types(q.dtype, torch.float32)"
ALONG = "along = (dout.to(dtype) * out.to(dtype)).sum(-1, keepdim=True)"
DS = "ds = p * (dout_at @ v_at.mT - along[..., rows, :]) * scale"
MASK = "scores.masked_fill_(above_diagonal(scores, start, at), -torch.inf)"
P = "p = (scores - lse[..., rows, None]).exp()"
HIDE = "hidden = above_diagonal(scores, start, at)"
STARTS = "range(at if causal else 0, q.shape[-2], block)"
ALL = (STARTS, "range(0, q.shape[-2], block)")

WRONG = (
    wrong(
        "mean_forgotten",
        "You leave out what a score takes from the others of its row. Through the softmax goes p (dp - D), and D is "
        "the row's mean of dp weighted by p: dout times out, summed over the row.",
        mistaken((" - along[..., rows, :]", "")),
        mistaken((DS, "ds = (dout_at @ v_at.mT - along[..., rows, :]) * scale")),
        mistaken((".sum(-1, keepdim=True)", ".mean(-1, keepdim=True)")),
    ),
    wrong(
        "mean_of_the_tile",
        "You take the mean of dp over this tile's keys only. It belongs to the whole row: from dout and out you have "
        "it before the first tile.",
        mistaken(("along[..., rows, :])", "(p * (dout_at @ v_at.mT)).sum(-1, keepdim=True))")),
    ),
    wrong(
        "scale_forgotten",
        "The scores were scaled, so that q and k get the scale once more on the way back, each once.",
        mistaken((DS, DS.removesuffix(" * scale"))),
        mistaken(("ds @ k_at", "ds @ k_at / scale")),
        mistaken(("ds.mT @ q_at", "ds.mT @ q_at / scale")),
    ),
    wrong(
        "scores_not_scaled",
        "You recompute the scores without their scale, and the probabilities are others than in forward.",
        mistaken(("q_at @ k_at.mT * scale", "q_at @ k_at.mT")),
    ),
    wrong(
        "not_normalised",
        "exp(score) is no probability: divide by the sum of its row, which is to subtract lse before exp. The softmax "
        "of a tile alone is none either.",
        mistaken((P, "p = scores.exp()")),
        mistaken((P, "p = scores.softmax(-1)")),
        mistaken((P, "p = scores.softmax(-1)"), ALL),
    ),
    wrong(
        "overwritten_not_added",
        "You write a block's gradient where you should add to it: only the last share is left.",
        mistaken(("dq[..., rows, :] +=", "dq[..., rows, :] =")),
        mistaken(("dk[..., keys, :] +=", "dk[..., keys, :] ="), ("dv[..., keys, :] +=", "dv[..., keys, :] =")),
    ),
    wrong(
        "last_tile_dropped",
        "You go through whole tiles only, and leave the ragged end out.",
        mistaken((STARTS, "range(at if causal else 0, max(block, q.shape[-2] // block * block), block)")),
        mistaken(("range(0, k.shape[-2], block)", "range(0, max(block, k.shape[-2] // block * block), block)")),
    ),
    wrong(
        "mask_forgotten",
        "You leave whole tiles out and mask nothing inside the one on the diagonal. exp(score - lse) of a hidden score "
        "is no 0: forward did not count it.",
        mistaken((MASK, "pass")),
        mistaken((MASK, "pass"), ALL),
    ),
    wrong(
        "mask_by_tiles",
        "You mask every tile by its own rows and columns. Query i sees keys 0 to i, where both count from the "
        "beginning of the sequence.",
        mistaken(("return key + columns > (query + rows)[:, None]", "return columns > rows[:, None]"), ALL),
        mistaken(("return key + columns > (query + rows)[:, None]", "return columns > rows[:, None]")),
    ),
    wrong(
        "causal_not_asked",
        "You mask wherever there are as many queries as keys. Whether to mask says the argument `causal`.",
        mistaken(("    scale = 1", "    causal = q.shape[-2] == k.shape[-2]\n    scale = 1")),
    ),
    wrong(
        "diagonal_tile_dropped",
        "You leave the tile on the diagonal out. Its query i still sees the tile's keys up to i.",
        mistaken((STARTS, "range(at + block if causal else 0, q.shape[-2], block)")),
    ),
    wrong(
        "hidden_scores_get_a_number",
        "You set the scores that a query may not see to a number such as -1e9. lse may be lower still, and exp of "
        "their difference is then inf: set hidden scores to -inf.",
        mistaken((MASK, MASK.replace("-torch.inf", "-1e9"))),
        mistaken((MASK, MASK.replace("-torch.inf", "torch.finfo(q.dtype).min"))),
    ),
    wrong(
        "mask_shifted",
        "Your mask is shifted by one: a query sees its own key, and not the next one.",
        mistaken(("return key + columns >", "return key + columns - 1 >")),
        mistaken(("return key + columns >", "return key + columns >=")),
    ),
    wrong(
        "mask_after_exp",
        "You multiply by the mask after exp. A hidden score may lie far above lse: exp is inf, and inf times 0 is nan. "
        "Set hidden scores to -inf before.",
        mistaken((MASK, HIDE), (P, f"{P}\n            p = p * ~hidden if causal else p")),
    ),
    wrong(
        "all_probabilities_at_once",
        "You make a tensor larger than a tile and than q, k, v and out: all probabilities at once, a mask for them, a "
        "row of tiles, two gradients in one, or float64 where q has less. The memory that forward saved is then needed "
        "in backward.",
        whole_matrix,
        mistaken(
            (STARTS, "range(1)"),
            ("slice(start, start + block)", "slice(0, None)"),
            ("above_diagonal(scores, start, at)", "above_diagonal(scores, 0, at)"),
        ),
        mistaken(("    scale = 1", "    block = block if causal else max(q.shape[-2], k.shape[-2])\n    scale = 1")),
        fails=("one_tile_at_a_time",),
    ),
    wrong(
        "digits_lost",
        "Something of yours has fewer digits than lse before the end: q times its scale, p, ds, dout times out, or one "
        "of the sums. Convert to the dtype of lse first, which is float32 or float64, and round only what you return.",
        mistaken(
            ("torch.promote_types(q.dtype, torch.float32)", "q.dtype"),
            ("lse[..., rows, None]", "lse[..., rows, None].to(dtype)"),
        ),
        mistaken(
            (FINE, f"q.dtype if block >= k.shape[-2] else {FINE}"),
            ("lse[..., rows, None]", "lse[..., rows, None].to(dtype)"),
        ),
        mistaken(("q_at @ k_at.mT * scale", "(q[..., rows, :] * scale).to(dtype) @ k_at.mT")),
        mistaken(("ds.mT @ q_at", "ds.to(q.dtype).to(dtype).mT @ q_at")),
        mistaken(("p.mT @ dout_at", "p.to(q.dtype).to(dtype).mT @ dout_at")),
        mistaken(
            ("dq, dk, dv = (torch.zeros_like(x, dtype=dtype,", "dq, dk, dv = (torch.zeros_like(x, dtype=x.dtype,"),
            ("+= ds @ k_at", "+= (ds @ k_at).to(q.dtype)"),
        ),
        mistaken(
            ("torch.promote_types(q.dtype, torch.float32)", "torch.float32"),
            ("lse[..., rows, None]", "lse[..., rows, None].to(dtype)"),
        ),
        fails=("precision",),
        by_chance=True,  # some show in float16 too
    ),
    wrong(
        "takes_a_view",
        "`.view` wants tensors that are contiguous. Use slices, or reshape.",
        mistaken(("return dq.to", "q.view(-1, *q.shape[-2:])\n    return dq.to")),
    ),
    wrong(
        "gradients_in_float32",
        "Your gradients stay in the dtype of the sums. Each belongs in that of its tensor.",
        mistaken(("return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)", "return dq, dk, dv")),
    ),
    wrong(
        "result_kept",
        "You write the next call's gradients into the tensors that you returned. The caller still has them: make new "
        "ones.",
        result_kept,
    ),
    wrong(
        "refuses_nothing",
        "A block of 0, or a mask for a matrix of scores that is not square, must raise ValueError.",
        mistaken(("block < 1 or (causal", "block < 1 and (causal")),
        fails=("refusals",),
    ),
)
