"""Right and wrong ways to write `two_factor_quantize`."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.answers.quantization.kashin_split import greedy_in_a_frame
from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.kashin_split import kashin_split
from course.reference.quantization.two_factor_quantize import two_factor_quantize

Found = tuple[Tensor, Tensor, Tensor, Tensor]


def sorted_runs(w: Tensor, q: Tensor, bits: int) -> Found:
    """NumPy: a codebook cuts the sorted entries into runs, whose means are differences of cumulated sums."""
    found: list[Tensor] = []
    for factor in greedy_in_a_frame(w, q, 30):
        entries = np.sort(factor.double().numpy(), axis=None)
        sums = np.concatenate([[0.0], np.cumsum(entries)])
        book = np.quantile(entries, (np.arange(2**bits) + 0.5) / 2**bits)
        for _ in range(50):
            cuts = np.concatenate(
                [[0], np.searchsorted(entries, (book[1:] + book[:-1]) / 2, side="right"), [entries.size]]
            )
            held = np.diff(cuts)
            book = np.where(held > 0, np.diff(sums[cuts]) / np.maximum(held, 1), book)
        codes = np.abs(factor.double().numpy()[..., None] - book).argmin(axis=-1)
        found += [torch.from_numpy(codes.astype(np.uint8)), torch.from_numpy(book).to(w.dtype)]
    return found[0], found[1], found[2], found[3]


def by_membership(w: Tensor, q: Tensor, bits: int) -> Found:
    """A table of which entry has which code."""
    found: list[Tensor] = []
    for factor in kashin_split(w, q, 30):
        entries = factor.reshape(-1)
        ends = torch.linspace(0, 1, 2 ** (bits + 1) + 1, dtype=w.dtype)
        book = entries.quantile(ends[1::2])
        for _ in range(50):
            member = torch.nn.functional.one_hot(torch.cdist(entries[:, None], book[:, None]).argmin(1), 2**bits).to(
                w.dtype
            )
            count = member.sum(0)
            book = torch.where(count == 0, book, (member.T @ entries) / count.clamp(min=1))
        codes = torch.cdist(entries[:, None], book[:, None]).argmin(1)
        found += [codes.to(torch.uint8).view(w.shape), book]
    return found[0], found[1], found[2], found[3]


def least_of_all(w: Tensor, q: Tensor, bits: int) -> Found:
    """The best codebooks that there are, by dynamic programming over sorted entries."""
    found: list[Tensor] = []
    for factor in kashin_split(w, q, 30):
        entries = np.sort(factor.double().numpy(), axis=None)
        size = entries.size
        sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (entries, entries**2))
        counts = np.maximum(np.arange(size + 1)[None, :] - np.arange(size + 1)[:, None], 1)
        cost = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / counts  # of a run from, to
        cost[np.tril_indices(size + 1, -1)] = np.inf
        least, cuts = cost[0], []
        for _ in range(2**bits - 1):
            ways = least[:, None] + cost
            cuts.append(ways.argmin(axis=0))
            least = ways.min(axis=0)
        ends = [size]
        for cut in reversed(cuts):
            ends.append(int(cut[ends[-1]]))
        places = [0, *reversed(ends)]
        means = [entries[a:b].mean() if b > a else entries[min(a, size - 1)] for a, b in itertools.pairwise(places)]
        book = torch.tensor(means, dtype=w.dtype)
        found += [(factor[..., None] - book).abs().argmin(dim=-1).to(torch.uint8), book]
    return found[0], found[1], found[2], found[3]


RIGHT = (
    right(sorted_runs, independent="NumPy, runs of sorted entries"),
    right(by_membership),
    right(least_of_all),
)

edit = partial(edited, two_factor_quantize)
SPLIT = "u, v = kashin_split(w, q, STEPS)"
RETURN = "return *clustered(u, bits), *clustered(v, bits)"
BOOK = "book = torch.quantile(values, places)"
MEANS = "book = torch.where(held > 0, sums / held.clamp(min=1), book)"

WRONG = (
    wrong(
        "one_codebook_for_both",
        "u and v share a codebook. They were made by different steps, and gather around different values.",
        edit(
            (
                RETURN,
                "codes, book = clustered(torch.stack([u, v]), bits)\n    return codes[0], book, codes[1], book.clone()",
            )
        ),
        edit(
            (
                RETURN,
                "codes, book = clustered(u, bits)\n    near = (v[..., None] - book).abs().argmin(dim=-1)\n"
                "    return codes, book, near.to(torch.uint8), book.clone()",
            )
        ),
        by_chance=True,
    ),
    wrong(
        "uniform_grid",
        "Your codebook lies on a uniform grid from the smallest entry to the largest. Move each value to the mean of "
        "its entries.",
        edit(
            (BOOK, "book = torch.linspace(0, 1, count, dtype=x.dtype) * (values.max() - values.min()) + values.min()"),
            (MEANS, "pass"),
        ),
        by_chance=True,
    ),
    wrong(
        "quantiles_only",
        "You leave the codebook at the quantiles. They are where k-means begins.",
        edit((MEANS, "pass")),
        edit(("ROUNDS = 30, 50", "ROUNDS = 30, 1")),
        by_chance=True,
    ),
    wrong(
        "not_split",
        "You quantize w itself, and the second factor does nothing. Split it first.",
        edit((SPLIT, "u, v = w, torch.zeros_like(w)")),
        by_chance=True,
    ),
    wrong(
        "one_factor_dropped",
        "One of the two factors comes back as zeros.",
        edit((RETURN, RETURN.replace("clustered(v", "clustered(0 * v"))),
        edit((RETURN, RETURN.replace("clustered(u", "clustered(0 * u"))),
    ),
    wrong(
        "too_few_steps",
        "You split in one step or two. What is left then is in neither factor.",
        edit(("STEPS, ROUNDS = 30", "STEPS, ROUNDS = 1")),
        by_chance=True,
    ),
    wrong(
        "factors_swapped",
        "You return v first. codebook_u[codes_u] + codebook_v[codes_v] q' must be near w.",
        edit((RETURN, "return *clustered(v, bits), *clustered(u, bits)")),
    ),
    wrong(
        "v_turned_back",
        "You quantize v q', which lies in the basis of w. Its entries gather nowhere: quantize v.",
        edit((RETURN, RETURN.replace("clustered(v", "clustered(v @ q.T"))),
        by_chance=True,
    ),
    wrong(
        "q_for_its_transpose",
        "You split in the basis of the rows of q. Its columns are the basis: w is near u + v q'.",
        edit((SPLIT, SPLIT.replace("q,", "q.T,"))),
        by_chance=True,
    ),
    wrong(
        "codes_of_another_codebook",
        "Your codes count from 1, or from the other end.",
        edit(("_nearest(values, book).to(torch.uint8)", "(_nearest(values, book) + 1).to(torch.uint8)")),
        edit(("_nearest(values, book).to(torch.uint8)", "(count - 1 - _nearest(values, book)).to(torch.uint8)")),
    ),
    wrong(
        "half_the_values",
        "Your codebook has 2**(bits - 1) values, as if a bit were kept for a sign.",
        edit(("count = 2**bits", "count = 2 ** (bits - 1)")),
    ),
    wrong(
        "empty_values_are_nan",
        "A value without entries has no mean: let it stay.",
        edit((MEANS, "book = sums / held")),
    ),
    wrong(
        "another_dtype",
        "Your codebooks have another dtype than w.",
        edit((".reshape(x.shape), book", ".reshape(x.shape), book.double()")),
        edit((".reshape(x.shape), book", ".reshape(x.shape), book.float()")),
    ),
    wrong(
        "row_squeezed_away",
        "w may have one row, and codes are (m, n) all the same: `.squeeze` takes this dimension away.",
        edit((".reshape(x.shape)", ".reshape(x.shape).squeeze(0)")),
    ),
    wrong(
        "codes_too_wide",
        "Your codes take more than a byte each, as the int64 of argmin. Codes are uint8.",
        edit((".to(torch.uint8)", ".to(torch.int64)")),
        edit((".to(torch.uint8)", ".to(torch.int16)")),
    ),
    wrong(
        "trains_what_came",
        "w or q requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. detach() makes one of your own.",
        edit((SPLIT, SPLIT.replace("w,", "w.requires_grad_().detach(),"))),
        edit((SPLIT, SPLIT.replace("q,", "q.requires_grad_().detach(),"))),
    ),
)
