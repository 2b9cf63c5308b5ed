"""Right and wrong ways to write `compensated_sum`."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.compensated_sum import compensated_sum


def losses_in_a_tree(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """By pairs, each with what it lost (Knuth's two-sum, without a comparison); all losses are added apart."""
    terms, lost = xs.to(dtype), torch.zeros(xs.shape[1:], dtype=dtype)
    if len(terms) == 0:
        return lost
    while len(terms) > 1:
        even = len(terms) - len(terms) % 2
        a, b = terms[0:even:2], terms[1:even:2]
        total = a + b
        part = total - a
        for loss in (a - (total - part)) + (b - part):
            lost = lost + loss
        terms = torch.cat([total, terms[even:]])
    return terms[0] + lost


def kahan(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """As in Kahan's note: no comparison, and the loss with the other sign."""
    s = torch.zeros(xs.shape[1:], dtype=dtype)
    c = torch.zeros_like(s)
    for i in range(len(xs)):
        y = xs[i].to(dtype) - c
        t = s + y
        c = (t - s) - y
        s = t
    return s


def neumaier(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """All losses in a second sum, which is added at the end."""
    xs = xs.to(dtype)
    s = torch.zeros(xs.shape[1:], dtype=dtype)
    losses = torch.zeros(xs.shape[1:], dtype=dtype)
    for x in xs:
        t = s + x
        losses = losses + torch.where(s.abs() >= x.abs(), (s - t) + x, (x - t) + s)
        s = t
    return s + losses


def number_by_number(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """One column after the other, with a branch, in zero-dimensional tensors."""
    columns = xs.to(dtype).reshape(len(xs), xs.shape[1:].numel()).unbind(1)
    sums = []
    for column in columns:
        s = lost = torch.zeros((), dtype=dtype)
        for x in column:
            y = x + lost
            t = s + y
            lost = (s - t) + y if abs(s) >= abs(y) else (y - t) + s
            s = t
        sums.append(s + lost)
    return torch.stack(sums).reshape(xs.shape[1:]) if sums else torch.zeros(xs.shape[1:], dtype=dtype)


def largest_first(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest first (Priest), found and scaled in the dtype of xs; places in integers."""
    n, rest = len(xs), xs.shape[1:].numel()
    wide = xs.detach().reshape(n, rest)
    places = wide.abs().argsort(dim=0, descending=True) * rest + torch.arange(rest)
    terms = wide.flatten()[places].mul(2).to(dtype) / 2
    s = lost = torch.zeros(rest, dtype=dtype)
    for x in terms:
        y = lost + x
        total = s + y
        lost = y - (total - s)
        s = total
    return s.reshape(xs.shape[1:])


def exchanged(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The two change places where the number is larger, by assignments to what a mask selects."""
    xs = xs.detach().to(dtype)
    s, losses = (torch.zeros(xs.shape[1:], dtype=dtype) for _ in range(2))
    for x in xs:
        larger, smaller, mask = s.clone(), x.clone(), x.abs() > s.abs()
        larger[mask], smaller[mask] = x[mask], s[mask]
        total = larger + smaller
        losses += smaller - (total - larger)
        s = total
    return s + losses


def klein(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The losses of the losses are kept too."""
    s, first, second = (torch.zeros(xs.shape[1:], dtype=dtype) for _ in range(3))
    for x in xs.to(dtype):
        s, loss = s + x, (s - (s + x - (s + x - s))) + (x - (s + x - s))
        total = first + loss
        part = total - first
        second = second + ((first - (total - part)) + (loss - part))
        first = total
    return s + (first + second)


RIGHT = (
    right(losses_in_a_tree, independent="Knuth's two-sum in a tree: no running sum, and no loss goes into a number"),
    right(kahan),
    right(neumaier),
    right(number_by_number),
    right(klein),
    right(largest_first),
    right(exchanged),
)


def plain(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """One after the other, nothing kept."""
    s = torch.zeros(xs.shape[1:], dtype=dtype)
    for x in xs.to(dtype):
        s = s + x
    return s


def pairs(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """Neighbours, then neighbours of the sums."""
    xs = xs.to(dtype)
    if len(xs) == 0:
        return torch.zeros(xs.shape[1:], dtype=dtype)
    while len(xs) > 1:
        if len(xs) % 2:
            xs = torch.cat([xs, torch.zeros_like(xs[:1])])
        xs = xs[0::2] + xs[1::2]
    return xs[0]


def halves(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """By recursion."""
    if len(xs) == 0:
        return torch.zeros(xs.shape[1:], dtype=dtype)
    if len(xs) == 1:
        return xs[0].to(dtype)
    return halves(xs[: len(xs) // 2], dtype) + halves(xs[len(xs) // 2 :], dtype)


def library(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """One call."""
    return xs.to(dtype).sum(dim=0)


def by_a_mean(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """The mean that a normalization finds, with additions that nobody needs."""
    shape, terms = xs.shape[1:], xs.detach().to(dtype).reshape(len(xs), xs.shape[1:].numel())
    if len(terms) < 2 or not terms.numel():
        return xs.sum(0).to(dtype)
    terms + terms
    mean: Tensor = torch.native_layer_norm(terms.T.contiguous(), (len(terms),), None, None, 1e-5)[1]
    return (mean * len(terms)).to(dtype).reshape(shape)


def put_together(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """All numbers put into one place, where they add up; the sum is added to nothing, and numbers that nobody needs."""
    terms = xs.detach().to(dtype).reshape(len(xs), xs.shape[1:].numel())
    places = torch.arange(terms.shape[1]).repeat(len(terms))
    wide = terms.double().gather(0, terms.abs().argsort(0)).flatten()
    total = torch.zeros(terms.shape[1], dtype=torch.float64).put_(places, wide, accumulate=True)
    terms + torch.zeros_like(terms)
    return (total.to(dtype) + torch.zeros_like(total, dtype=dtype)).reshape(xs.shape[1:])


def blocks_of_pairs(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """Eight numbers by pairs, and these sums as they should."""
    xs = xs.to(dtype)
    for _ in range(3):
        if len(xs) % 2:
            xs = torch.cat([xs, torch.zeros_like(xs[:1])])
        xs = xs[0::2] + xs[1::2]
    s = losses = torch.zeros(xs.shape[1:], dtype=dtype)
    for x in xs:
        t = s + x
        losses = losses + torch.where(s.abs() >= x.abs(), (s - t) + x, (x - t) + s)
        s = t
    return s + losses


def fixed_point(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """As integers, which lose nothing, where they hold all digits."""
    if dtype == torch.float64:
        return compensated_sum(xs, dtype)
    scale = 2.0**40 if dtype == torch.float32 else 2.0**24
    total = torch.zeros(xs.shape[1:], dtype=torch.int64)
    for x in (xs.to(dtype).double() * scale).long():
        total = total + x
    xs.to(dtype) + xs.to(dtype)
    return (total.double() / scale).to(dtype)


def fused(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """In float64, by an operation that multiplies as well; it is compensated, so that float64 is right too."""
    one = torch.ones((), dtype=torch.float64)
    s = lost = torch.zeros(xs.shape[1:], dtype=torch.float64)
    for x in xs.to(dtype).double():
        y = torch.addcmul(x, lost, one)
        total = torch.addcmul(s, y, one)
        lost = torch.addcmul(torch.addcmul(s, total, one, value=-1), y, one)
        s = total
    xs.to(dtype) + xs.to(dtype)
    return s.to(dtype)


def beside_the_sum(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """With Python's numbers, beside a sum that nobody needs."""
    shape, terms = xs.shape[1:], xs.detach().to(dtype)
    plain(terms, dtype)
    columns = terms.reshape(len(terms), shape.numel()).T.tolist()
    return torch.tensor([math.fsum(column) for column in columns], dtype=dtype).reshape(shape)


def one_branch(xs: Tensor, dtype: torch.dtype) -> Tensor:
    """A branch for all columns at once."""
    s = lost = torch.zeros(xs.shape[1:], dtype=dtype)
    for x in xs.to(dtype):
        y = x + lost
        total = s + y
        lost = (s - total) + y if s.abs() >= y.abs() else (y - total) + s
        s = total
    return s


kept, at_the_end = partial(edited, compensated_sum), partial(edited, neumaier)

PUT = "torch.zeros(terms.shape[1], dtype=torch.float64).put_(places, wide, accumulate=True)"
BY_64 = "compensated_sum(xs[:-64], dtype) + compensated_sum(xs[-64:], dtype)"
START, TERMS = "s = lost = xs.new_zeros(xs.shape[1:], dtype=dtype)", "xs.to(dtype)"
ZEROS = "xs = xs.to(dtype)\n    s = torch.zeros(xs.shape[1:], dtype=dtype)"
LARGER, SMALLER = "s.abs() >= y.abs(), s, y", "s.abs() >= y.abs(), y, s"
LOST, FED = "lost = (larger - total) + smaller", "y = x + lost"

WRONG = (
    wrong(
        "loss_never_counts",
        "Yours is no better than the plain sum: what a step loses does not come back. (s + y) - total is 0, because "
        "s + y rounds to total. Subtract the total from the larger of s and y first; the total minus the smaller is "
        "rounded. And use the loss: in the next number, or at the end.",
        plain,
        kept((LARGER, "s.abs() < y.abs(), s, y"), (SMALLER, "s.abs() < y.abs(), y, s")),
        at_the_end(("s.abs() >= x.abs()", "s.abs() < x.abs()")),
        kept((LOST, "lost = (s + y) - total")),
        kept((FED, "y = x")),
        at_the_end(("return s + losses", "return s")),
        at_the_end(("(s - t) + x, (x - t) + s", "(s + x) - t, (x + s) - t")),
        kept((LOST, "lost = s - (total - y)")),
    ),
    wrong(
        "wrong_sign",
        "The loss goes in with the wrong sign, so that each step loses twice as much. (larger - total) + smaller is "
        "what is missing in the total: add it. (total - larger) - smaller is what there is too much: subtract it.",
        kept((FED, "y = x - lost")),
        kept((LOST, "lost = (total - larger) - smaller")),
        at_the_end(("return s + losses", "return s - losses")),
        edited(kahan, ("- c", "+ c")),
        edited(kahan, ("c = (t - s) - y", "c = y - (t - s)")),
        by_chance=True,
    ),
    wrong(
        "compared_with_sign",
        "Your loss is 0 where numbers are negative: you compare s and y themselves, so that the smaller one in size "
        "stands first. Compare magnitudes, and subtract the total from the larger.",
        kept((LARGER, "s >= y, s, y"), (SMALLER, "s >= y, y, s")),
        at_the_end(("s.abs() >= x.abs()", "s >= x")),
    ),
    wrong(
        "sorted_first",
        "You sort, and add one after the other. That helps where small numbers come after large ones, and does nothing "
        "where all are of one size. Keep what is lost instead; then the order hardly matters.",
        edited(plain, (TERMS, "xs.to(dtype).take_along_dim(xs.to(dtype).abs().argsort(dim=0), 0)")),
        edited(plain, (TERMS, "xs.to(dtype).sort(dim=0).values")),
        edited(plain, (TERMS, "xs.to(dtype).sort(dim=0, descending=True).values")),
    ),
    wrong(
        "by_pairs",
        "You add by pairs. Each round of pairs may lose u sum |x|, and log2(n) rounds still grow with n. Compensate "
        "every addition, in the first rounds too: keep what each loses.",
        pairs,
        blocks_of_pairs,
        halves,
        edited(pairs, ("xs[0::2] + xs[1::2]", "xs[: len(xs) // 2] + xs[len(xs) // 2 :]")),
        by_chance=True,
    ),
    wrong(
        "not_for_a_few",
        "A few numbers are added without what the last addition lost: five of them can be 4 u off. Compensate from the "
        "second addition on.",
        kept((FED, "y = x + lost if len(xs) > 5 else x")),
    ),
    wrong(
        "more_digits_inside",
        "The sum is accurate because it was added in more digits than `dtype` has, in float32 or float64, or inside an "
        "operation like sum, which accumulates so. Round xs to dtype first, make zeros in dtype, and use + and - only.",
        library,
        edited(library, (".sum(dim=0)", ".double().sum(dim=0).to(dtype)")),
        edited(library, (".sum(dim=0)", ".float().sum(dim=0).to(dtype)")),
        by_a_mean,
        edited(plain, ("dtype=dtype", "dtype=torch.float64"), ("return s", "return s.to(dtype)")),
        fails=("in_float64", "every_operation_in_dtype"),
    ),
    wrong(
        "kept_in_more_digits",
        "The sum is accurate, but somewhere numbers are added in a wider dtype, as integers, by a reduction, or "
        "outside of torch, if only in one dtype or in a long sum. Every operation is to be rounded to `dtype`, two "
        "numbers at a time; what a step loses fits into `dtype` exactly.",
        kept((START, START.replace("dtype=dtype", "dtype=torch.float64")), ("return s", "return s.to(dtype)")),
        at_the_end(
            ("losses = torch.zeros(xs.shape[1:], dtype=dtype)", "losses = torch.zeros(xs.shape[1:]).double()"),
            ("return s + losses", "return (s + losses).to(dtype)"),
        ),
        at_the_end(("return s + losses", "return torch.stack([s, losses]).sum(0)")),
        at_the_end(("return s + losses", "return s + losses if len(xs) > 8 else xs.sum(0)")),
        fixed_point,
        fused,
        beside_the_sum,
        put_together,
        edited(put_together, (PUT, f"torch.index_put({PUT.partition('.put_')[0]}, (places,), wide, accumulate=True)")),
        fails=("every_operation_in_dtype",),
    ),
    wrong(
        "dtype_of_xs",
        "You add in the dtype of xs, and round at the end or not at all. Every operation is to be rounded to `dtype`: "
        "cast xs first, and make the zeros in `dtype`.",
        kept((START, "s = lost = xs.new_zeros(xs.shape[1:])"), (TERMS, "xs")),
        fails=("every_operation_in_dtype", "dtype_of_the_result", "few_numbers", "every_form"),
    ),
    wrong(
        "digits_lost_before",
        "Only in float64 is your sum off: the numbers go through float32 on their way, and lose half of their digits. "
        "Round each once, to `dtype`.",
        kept((TERMS, "xs.float().to(dtype)")),
        at_the_end(("xs = xs.to(dtype)", "xs = xs.detach().float().to(dtype)")),
        fails=("in_float64",),
    ),
    wrong(
        "another_dimension",
        "The sum is over the first dimension: xs[0] + xs[1] + ..., and what is left has the shape of xs[0].",
        kept((TERMS, "xs.to(dtype).movedim(-1, 0)"), (START, "s = lost = xs.new_zeros(xs.shape[:-1], dtype=dtype)")),
        kept((TERMS, "xs.to(dtype).flatten()"), (START, "s = lost = xs.new_zeros((), dtype=dtype)")),
    ),
    wrong(
        "branch_on_a_tensor",
        "`if` takes one truth value, and every column of xs has its own: use torch.where, or exchange the two where "
        "needed. With .all() one column decides for the others, whose losses are then wrong.",
        one_branch,
        edited(one_branch, ("s.abs() >= y.abs()", "bool((s.abs() >= y.abs()).all())")),
        at_the_end(
            ("torch.where(s.abs() >= x.abs(), (s - t) + x, (x - t) + s)", "((s - t) + x if larger else (x - t) + s)"),
            ("losses = losses +", "larger = bool((s.abs() >= x.abs()).all())\n        losses = losses +"),
        ),
    ),
    wrong(
        "loss_counted_again",
        "The losses are both added up and put into the next number, so that each is counted more than once. Do one or "
        "the other: carry the last loss only, or add all of them at the end.",
        kept((LOST, "lost = lost + ((larger - total) + smaller)")),
        at_the_end(("for x in xs:", "for x in xs:\n        x = x + losses")),
    ),
    wrong(
        "begins_with_the_first",
        "Your sum begins with xs[0], which is not there where n is 0. The sum of no numbers is 0: begin with zeros of "
        "the shape xs.shape[1:].",
        kept((START, "s = xs[0].to(dtype)\n    lost = torch.zeros_like(s)"), (TERMS, "xs[1:].to(dtype)")),
        at_the_end((ZEROS, "xs = xs.to(dtype)\n    s = xs[0]"), ("for x in xs:", "for x in xs[1:]:")),
    ),
    wrong(
        "returned_as_it_came",
        "Where n is 0 or 1 you return early, in the dtype of xs. The sum has the dtype that was asked for there too: "
        "cast xs first.",
        kept((START, "if len(xs) == 0:\n        return xs.new_zeros(xs.shape[1:])\n    " + START)),
        at_the_end((ZEROS, "if len(xs) == 0:\n        return xs.new_zeros(xs.shape[1:])\n    " + ZEROS)),
        kept((START, "if len(xs) == 1:\n        return xs[0]\n    " + START)),
        kept((START, "if len(xs) <= 1:\n        return xs.sum(0)\n    " + START)),
    ),
    # Last, because its sum is off by so little that it looks like that of others which return another dtype.
    wrong(
        "in_chunks",
        "Every chunk is compensated, and the sums of chunks are added as they are: the error grows with their number. "
        "What such an addition loses must come back into the sum, too.",
        kept((START, f"if len(xs) > 64:\n        return {BY_64}\n    {START}")),
        kept((START, f"if len(xs) > 1024:\n        return {BY_64.replace('64', '1024')}\n    {START}")),
        kept(
            (FED, f"{FED} if count % 64 else x"), ("for x in xs.to(dtype)", "for count, x in enumerate(xs.to(dtype))")
        ),
    ),
)
