"""Right and wrong ways to write `attention_tiled`."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.attention_tiled import attention_tiled


def keys_outside(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """Results of tiles, merged by their log-sum-exps as flash decoding does; queries in the inner loop."""
    queries, keys = q.shape[-2], k.shape[-2]
    if block <= 0 or (causal and queries != keys):
        raise ValueError(f"got a block of {block}, {queries} queries and {keys} keys")
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=wide)
    lse = torch.full(q.shape[:-1], -math.inf, dtype=wide)
    for j in range(0, keys, block):
        for i in range(0, queries, block):
            tile = torch.einsum(
                "...td,...sd->...ts", q[..., i : i + block, :].to(wide), k[..., j : j + block, :].to(wide)
            )
            tile = tile * q.shape[-1] ** -0.5
            if causal and j > i:
                continue
            if causal and j == i:
                tile = tile + torch.full(tile.shape[-2:], -math.inf, dtype=wide).triu(1)
            here = torch.logsumexp(tile, -1)
            both = torch.logaddexp(lse[..., i : i + block], here)
            old = (lse[..., i : i + block] - both).exp()[..., None]
            new = torch.softmax(tile, -1) @ v[..., j : j + block, :].to(wide)
            out[..., i : i + block, :] = old * out[..., i : i + block, :] + (here - both).exp()[..., None] * new
            lse[..., i : i + block] = both
    return out.to(q.dtype), lse


def two_passes(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """numpy, and no online softmax: first the log-sum-exp of each row over all tiles, then the weights."""
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError("a block below 1, or a mask that fits nothing")
    wide = np.float64 if q.dtype == torch.float64 else np.float32
    a, b, c = (x.to(torch.promote_types(x.dtype, torch.float32)).numpy() for x in (q, k, v))
    out, lse = np.zeros((*a.shape[:-1], c.shape[-1]), wide), np.full(a.shape[:-1], -np.inf, wide)
    for final in (False, True):
        for i in range(0, a.shape[-2], block):
            rows = np.arange(i, min(i + block, a.shape[-2]))
            for j in range(0, i + 1 if causal else b.shape[-2], block):
                columns = np.arange(j, min(j + block, b.shape[-2]))
                tile = a[..., rows, :] @ np.swapaxes(b[..., columns, :], -1, -2) / wide(math.sqrt(a.shape[-1]))
                if causal:
                    tile = np.where(columns > rows[:, None], -np.inf, tile)
                if final:
                    out[..., rows, :] += np.exp(tile - lse[..., rows, None]) @ c[..., columns, :]
                else:
                    top = np.maximum(lse[..., rows], tile.max(-1))
                    total = np.exp(lse[..., rows] - top) + np.exp(tile - top[..., None]).sum(-1)
                    lse[..., rows] = top + np.log(total)
    return torch.from_numpy(out.astype(wide)).to(q.dtype), torch.from_numpy(lse.astype(wide))


RIGHT = (
    right(two_passes, independent="numpy, in two passes"),
    right(keys_outside),
)


def whole_matrix(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """The formula as it stands."""
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError("block")
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return (scores.softmax(-1) @ v.to(wide)).to(q.dtype), scores.logsumexp(-1)


def rows_of_tiles(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """All keys at once for a block of queries."""
    if block < 1 or (causal and q.shape[-2] != k.shape[-2]):
        raise ValueError("block")
    wide = torch.promote_types(q.dtype, torch.float32)
    outs, logs = [], []
    for at in range(0, q.shape[-2], block):
        scores = q[..., at : at + block, :].to(wide) @ k.to(wide).mT / math.sqrt(q.shape[-1])
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1 + at), -math.inf)
        outs.append((scores.softmax(-1) @ v.to(wide)).to(q.dtype))
        logs.append(scores.logsumexp(-1))
    return torch.cat(outs, -2), torch.cat(logs, -1)


def lse_not_scaled(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """out as it should be, and lse of q k^T."""
    wide = q.to(torch.promote_types(q.dtype, torch.float32))
    _, lse = attention_tiled(wide * math.sqrt(q.shape[-1]), k, v, block, causal)
    return attention_tiled(q, k, v, block, causal)[0], lse


def last_queries_dropped(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """The rows of the last queries stay 0."""
    out, lse = attention_tiled(q, k, v, block, causal)
    whole = max(block, q.shape[-2] // block * block)
    out[..., whole:, :] = 0
    lse[..., whole:] = 0
    return out, lse


def result_kept(q: Tensor, k: Tensor, v: Tensor, block: int, causal: bool = False) -> tuple[Tensor, Tensor]:
    """out is written into what the last call of this size returned."""
    out, lse = attention_tiled(q, k, v, block, causal)
    return buffers.setdefault((out.shape, out.dtype), out).copy_(out), lse


buffers: dict[tuple[torch.Size, torch.dtype], Tensor] = {}


mistaken = partial(edited, attention_tiled)

FINE = "torch.promote_types(q.dtype, torch.float32)"
KEYS = "range(0, start + q.shape[-2] if causal else k.shape[-2], block)"
HIGHER = "higher = torch.maximum(top, scores.amax(-1, keepdim=True))"
MASK = "scores.masked_fill_(above_diagonal(scores, start, at), -torch.inf)"
START = "x.new_full((*q.shape[:-1], 1), -torch.inf)"
PADDED = "torch.nn.functional.pad({}[..., at : at + block, :], (0, 0, 0, max(0, at + block - k.shape[-2]))).to(dtype)"
SQUARE = "causal = q.shape[-2] == k.shape[-2]"
WIDE_LSE = (".squeeze(-1)", ".squeeze(-1).to(torch.promote_types(q.dtype, torch.float32))")

WRONG = (
    wrong(
        "no_rescaling",
        "Your running sums, or one of them, are never corrected. What was summed so far is relative to the old largest "
        "score: where a tile raises it, multiply the sum and the accumulator by exp(old - new) first.",
        mistaken(("total * shrink", "total"), ("out * shrink", "out")),
        mistaken(("total * shrink", "total")),
        mistaken(("out * shrink", "out")),
    ),
    wrong(
        "shrinks_the_wrong_way",
        "Your factor is exp(new - old), which is at least 1. Terms relative to a higher score are smaller.",
        mistaken(("(top - higher).exp()", "(higher - top).exp()")),
    ),
    wrong(
        "largest_of_this_tile_only",
        "You subtract the largest score of the tile at hand. A tile may lie below the largest so far: take the "
        "larger of the two, then all terms are relative to one number and no factor is above 1.",
        mistaken((HIGHER, "higher = scores.amax(-1, keepdim=True)")),
    ),
    wrong(
        "one_largest_for_all_queries",
        "You subtract one number from the scores of all queries. Where a query's own scores lie far below it every exp "
        "is 0, and lse is -inf: each query has a largest score of its own.",
        mistaken((HIGHER, "higher = torch.maximum(top, scores).amax().expand_as(top)")),
        mistaken((HIGHER, "higher = torch.maximum(top, scores).amax((-2, -1), keepdim=True).expand_as(top)")),
    ),
    wrong(
        "largest_starts_at_a_number",
        "Your running maximum starts at 0, or at a number such as -1e9. Where all scores are far below it every exp is "
        "0, and 0 / 0 is nan. Before the first tile there is no largest score: start at -inf.",
        mistaken((START, "x.new_full((*q.shape[:-1], 1), -1e9)")),
        mistaken((START, START.replace("-torch.inf", "torch.finfo(q.dtype).min"))),
    ),
    wrong(
        "hidden_scores_get_a_number",
        "You set the scores that a query may not see to a number such as -1e9. Scores that it sees may be lower still: "
        "set hidden ones to -inf.",
        mistaken((MASK, MASK.replace("-torch.inf", "-1e9"))),
        mistaken((MASK, MASK.replace("-torch.inf", "torch.finfo(q.dtype).min"))),
    ),
    wrong(
        "no_largest_subtracted",
        "You take exp of the scores as they are: above 88 it is inf in float32. Subtract the largest score.",
        mistaken((HIGHER, "higher = torch.zeros_like(top)"), (START, "x.new_zeros(*q.shape[:-1], 1)")),
    ),
    wrong(
        "masked_scores_count_for_the_largest",
        "You take the largest score before the mask. A key that the query may not see can then push all that it sees "
        "down to 0. Set masked scores to -inf first.",
        mistaken(
            (MASK, "hidden = above_diagonal(scores, start, at)"),
            (
                "(scores - higher).exp()",
                "(scores - higher).exp().masked_fill(hidden, 0) if causal else (scores - higher).exp()",
            ),
        ),
    ),
    wrong(
        "no_scale",
        "The scale 1 / sqrt(d), with d the width of q and k, belongs to the scores once: it is missing, twice there, "
        "or another one.",
        mistaken((" / math.sqrt(q.shape[-1])", "")),
        mistaken(("/ math.sqrt(q.shape[-1])", "/ q.shape[-1]")),
        mistaken(("/ math.sqrt(q.shape[-1])", "/ math.sqrt(v.shape[-1])")),
    ),
    wrong(
        "lse_not_scaled",
        "Your lse is that of the scores without their scale. Backward subtracts it from scaled ones.",
        lse_not_scaled,
    ),
    wrong(
        "last_tile_dropped",
        "You go through whole tiles only: T // block, or S // block, leaves the rest out. The last may be shorter.",
        mistaken(
            (
                KEYS,
                "range(0, min(start + block if causal else k.shape[-2], max(1, k.shape[-2] // block) * block), block)",
            )
        ),
        last_queries_dropped,
        mistaken(
            (KEYS, "range(0, start + q.shape[-2] if causal else max(block, k.shape[-2] // block * block), block)")
        ),
    ),
    wrong(
        "padded_keys_count",
        "You fill the last tile with zeros. A key of zeros has the score 0, not -inf, and takes its share of the "
        "softmax. Cut the tile, or mask what was filled in.",
        mistaken(
            ("k[..., at : at + block, :].to(dtype)", PADDED.format("k")),
            ("v[..., at : at + block, :].to(dtype)", PADDED.format("v")),
        ),
    ),
    wrong(
        "mask_by_tiles",
        "You leave whole tiles out and mask nothing inside the one on the diagonal, or mask it by its own numbers: "
        "query i sees keys 0 to i, where both count from the beginning of the sequence.",
        mistaken((MASK, "pass")),
        mistaken(("return key + columns > (query + rows)[:, None]", "return columns > rows[:, None]")),
    ),
    wrong(
        "causal_not_asked",
        "You mask wherever there are as many queries as keys. Whether to mask says the argument `causal`.",
        mistaken(("    rows = [", f"    {SQUARE}\n    rows = [")),
    ),
    wrong(
        "mask_shifted",
        "Your mask is shifted by one: a query sees its own key, and not the next one.",
        mistaken(("return key + columns >", "return key + columns - 1 >")),
    ),
    wrong(
        "mask_hides_the_own_key",
        "Your mask hides a query's own key: the first query then sees nothing at all, and its softmax is nan.",
        mistaken(("return key + columns >", "return key + columns >=")),
    ),
    wrong(
        "lse_without_the_largest",
        "Your lse is the logarithm of the running sum, whose terms are relative to the largest score: add that score.",
        mistaken(("(top + total.log())", "(total.log())")),
        mistaken(("(top + total.log())", "(top + total)")),
    ),
    wrong(
        "not_normalised",
        "You do not divide by the sum of the exponentials.",
        mistaken(("(out / total)", "out")),
    ),
    wrong(
        "keeps_the_scores",
        "You make a tensor larger than a tile and than q, k, v and out. All scores, or a mask for them, grow with the "
        "sequence times the sequence, a row of tiles with the sequence times the block. Loop over blocks of queries "
        "and of keys, and keep three sums for each query.",
        whole_matrix,
        rows_of_tiles,
        mistaken(("    rows = [", "    block = block if causal else max(q.shape[-2], k.shape[-2])\n    rows = [")),
        fails=("one_tile_at_a_time",),
    ),
    wrong(
        "all_in_half_precision",
        "You compute in the dtype of q. In half precision scores overflow at 65504, or keep three digits: convert each "
        "tile to float32, and round at the end.",
        mistaken((FINE, "q.dtype")),
        mistaken((FINE, f"q.dtype if block >= k.shape[-2] else {FINE}")),
    ),
    wrong(
        "digits_lost",
        "Something of yours has fewer digits than it should before the end: q times its scale, the exponentials that "
        "meet v, or a running sum. Convert the blocks of q, k and v first: to float32, or to float64 where q is in it. "
        "An eps added to the sum costs digits as well: the sum is never 0.",
        mistaken(("q.to(dtype) / math.sqrt(q.shape[-1])", "(q / math.sqrt(q.shape[-1])).to(dtype)")),
        mistaken(("p @ v[..., at : at + block, :].to(dtype)", "p.to(v.dtype) @ v[..., at : at + block, :]")),
        mistaken(
            (
                "block, :].to(dtype)\n        top = higher",
                "block, :].to(dtype)\n        out = out.to(v.dtype)\n        top = higher",
            )
        ),
        mistaken(("(out / total)", "(out / (total + 1e-12))"), ("total.log()", "(total + 1e-12).log()")),
        mistaken(WIDE_LSE, ("torch.promote_types(q.dtype, torch.float32)\n", "torch.float32\n")),
        fails=("precision",),
    ),
    wrong(
        "lse_in_half_precision",
        "You round lse to the dtype of q. Backward takes exp(score - lse), where its last digits matter: leave it in "
        "float32.",
        mistaken((".squeeze(-1)", ".squeeze(-1).to(q.dtype)")),
    ),
    wrong(
        "out_in_float32",
        "Your out stays in the dtype of the sums. The caller wants it in that of q.",
        mistaken(("(out / total).to(q.dtype)", "(out / total)")),
    ),
    wrong(
        "always_float32",
        "You convert to float32 also where q is in float64, and lose half of the digits.",
        mistaken(("torch.promote_types(q.dtype, torch.float32)", "torch.float32")),
        rounds_to=torch.float32,
    ),
    wrong(
        "takes_a_view",
        "`.view` wants tensors that are contiguous. Use slices, or reshape.",
        mistaken(("return torch.cat(outs", "q.view(-1, *q.shape[-2:])\n    return torch.cat(outs")),
    ),
    wrong(
        "result_kept",
        "You write the next call's result into the tensor that you returned. The caller still has it: make a new one.",
        result_kept,
    ),
    wrong(
        "refuses_nothing",
        "A block of 0, or a mask for a matrix of scores that is not square, must raise ValueError.",
        mistaken(("if block < 1 or (causal and q.shape[-2] != k.shape[-2]):", "if block == 0:")),
        mistaken(("block < 1 or (causal", "block < 1 and (causal")),
        mistaken(("q.shape[-2] != k.shape[-2]", "len(q) != len(k)")),
        fails=("refusals",),
    ),
)
