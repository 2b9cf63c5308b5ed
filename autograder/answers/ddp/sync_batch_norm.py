"""Right and wrong ways to write `sync_batch_norm`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.ddp.sync_batch_norm import sync_batch_norm


class GatherStack(torch.autograd.Function):
    """(P, ...) of all ranks. Everybody's gradient of my row is summed: a reduce-scatter, made of an all-reduce."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor, comm: Comm) -> Tensor:
        ctx.comm = comm
        whole = torch.zeros((comm.size, *mine.shape), dtype=mine.dtype)
        comm.all_gather(list(whole), mine)
        return whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone()
        ctx.comm.all_reduce(grad, async_op=True).wait()
        return grad[ctx.comm.rank], None


def law_of_total_variance(comm: Comm, x: Tensor, eps: float) -> Tensor:
    """Only the gathering is a Function: the rest is autograd's, in float64."""
    dims = [dim for dim in range(x.dim()) if dim != 1]
    number = x.shape[0] * x[:1, :1].numel() if len(x) else 0
    wide = x.double()
    if number:
        variance, mean = torch.var_mean(wide, dims, correction=0)
    else:
        variance = mean = wide.sum(dims)
    weight = torch.full_like(mean, number).detach()
    gathered: Tensor = GatherStack.apply(torch.stack((weight, mean, variance)), comm)  # type: ignore[no-untyped-call]
    weights, means, variances = gathered.unbind(1)
    share = weights / weights.sum(0)
    middle = torch.einsum("rc,rc->c", share, means)
    inside = torch.einsum("rc,rc->c", share, variances)
    between = torch.einsum("rc,rc,rc->c", share, means - middle, means - middle)
    like = [1, -1] + [1] * (x.dim() - 2)
    return ((wide - middle.view(like)) / torch.sqrt(inside + between + eps).view(like)).type_as(x)


class Pairwise(torch.autograd.Function):
    """Chan's formula, rank by rank; x is kept, and normalised once more in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm, eps: float) -> Tensor:
        channels = x.shape[1]
        a = x.double().transpose(0, 1).flatten(1)
        own_mean = a.mean(1) if a.shape[1] else torch.zeros(channels, dtype=a.dtype)
        own_m2 = ((a - own_mean[:, None]) ** 2).sum(1)
        packed = torch.cat([own_mean, own_m2, torch.tensor([float(a.shape[1])], dtype=a.dtype)])
        box = [torch.empty_like(packed) for _ in range(comm.size)]
        comm.all_gather(box, packed)
        n, mean, m2 = 0.0, torch.zeros_like(own_mean), torch.zeros_like(own_mean)
        for part in box:
            other, other_mean, other_m2 = float(part[-1]), part[:channels], part[channels:-1]
            if other:
                delta = other_mean - mean
                mean = mean + delta * (other / (n + other))
                m2 = m2 + other_m2 + delta**2 * (n * other / (n + other))
                n += other
        ctx.comm, ctx.n = comm, n
        deviation = (m2 / n + eps) ** 0.5
        ctx.save_for_backward(x, mean, deviation)
        return Pairwise.unit(x, mean, deviation).to(x.dtype)

    @staticmethod
    def unit(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """x, normalised."""
        return ((x.double().transpose(1, -1) - mean) / deviation).transpose(1, -1)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        x, mean, deviation = ctx.saved_tensors
        z, g = Pairwise.unit(x, mean, deviation), dy.double()
        axes = [0, 2][: x.dim() - 1]
        both = torch.cat([g.sum(axes), (g * z).sum(axes)])
        box = [torch.empty_like(both) for _ in range(ctx.comm.size)]
        ctx.comm.all_gather(box, both)
        a, b = (torch.stack(box).sum(0) / ctx.n).chunk(2)
        flipped = g.transpose(1, -1) - a - z.transpose(1, -1) * b
        return (flipped / deviation).transpose(1, -1).to(x.dtype), None, None


def rank_by_rank(comm: Comm, x: Tensor, eps: float) -> Tensor:
    """Merged pair by pair, in float64."""
    y: Tensor = Pairwise.apply(x, comm, eps)  # type: ignore[no-untyped-call]
    return y


RIGHT = (
    right(law_of_total_variance, independent="torch.var_mean on each rank, and autograd for the gradient"),
    right(rank_by_rank),
)


def local_batch_norm(comm: Comm, x: Tensor, eps: float) -> Tensor:
    """Each rank for itself."""
    return torch.nn.functional.batch_norm(x, None, None, training=True, eps=eps)


def sums_in_place(comm: Comm, x: Tensor, eps: float) -> Tensor:
    """What autograd makes of an all-reduce of sums, which it does not see."""
    dims, like = [0, 2][: x.dim() - 1], [1, -1] + [1] * (x.dim() - 2)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    count = torch.full_like(wide.detach().sum(dims), x[:, 0].numel())
    sums = torch.stack([count, wide.sum(dims), wide.square().sum(dims)])
    comm.all_reduce(sums)
    total, first, second = sums
    mean = first / total
    variance = second / total - mean.square()
    y: Tensor = (wide - mean.view(like)) * (variance + eps).rsqrt().view(like)
    return y.to(x.dtype)


def distances_in_place(comm: Comm, x: Tensor, eps: float) -> Tensor:
    """The same, of the sum and then of the squared distances."""
    dims, like = [0, 2][: x.dim() - 1], [1, -1] + [1] * (x.dim() - 2)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    sums = torch.stack([torch.full_like(wide.detach().sum(dims), x[:, 0].numel()), wide.sum(dims)])
    comm.all_reduce(sums)
    centred = wide - (sums[1] / sums[0]).view(like)
    squares = centred.square().sum(dims)
    comm.all_reduce(squares)
    return (centred * (squares / sums[0] + eps).rsqrt().view(like)).to(x.dtype)


edit = partial(edited, sync_batch_norm)
VARIANCE = "(m2s + counts * (means - mean).square()).sum(0) / total"
GATHERED = "mine = torch.stack([torch.full_like(mean, len(rows)), mean, (rows - mean).square().sum(0)])"
UNPACKED = "counts, means, m2s = _gathered(comm, mine).unbind(1)"
DX = "dx = scale * (rows - by_mean - unit * by_variance)"
REDUCED = "ctx.comm.all_reduce(sums)"
OF_SQUARES = (GATHERED, GATHERED.replace("(rows - mean).square()", "rows.square()"))
LESS_SQUARE = "m2s.sum(0) / total - mean.square()"
TORCHS = "return torch.nn.functional.batch_norm(x, None, None, training=True, eps=eps)"
EMPTY = "rows.sum(0) / max(len(rows), 1)"
FLOAT32 = "x.to(torch.promote_types(x.dtype, torch.float32))"

WRONG = (
    wrong(
        "each_rank_alone",
        "Each rank normalises with its own mean and variance, as plain batch norm does under data parallelism. Gather "
        "what the others know of theirs.",
        edit((UNPACKED, "counts, means, m2s = mine.unsqueeze(0).unbind(1)"), (REDUCED, "pass")),
        edit((UNPACKED, "counts, means, m2s = mine.unsqueeze(0).unbind(1)")),
        edit((REDUCED, "pass"), (UNPACKED, "_gathered(comm, mine); counts, means, m2s = mine[:, None]")),
    ),
    wrong(
        "mean_of_variances",
        "Your variance is the mean of the ranks' variances. How far their means lie apart is missing: add, for each "
        "rank, its count times the squared distance of its mean from the mean of all.",
        edit((VARIANCE, "m2s.sum(0) / total")),
        edit((VARIANCE, "(m2s / counts.clamp(min=1)).mean(0)")),
    ),
    wrong(
        "mean_of_means",
        "You take the mean of the ranks' means, and ranks have different numbers of samples. Weigh each mean with its "
        "count.",
        edit(("(counts * means).sum(0) / total", "means.mean(0)")),
        edit(
            ("(counts * means).sum(0) / total", "means.mean(0)"),
            (VARIANCE, "(m2s / counts.clamp(min=1) + (means - mean).square()).mean(0)"),
        ),
    ),
    wrong(
        "between_not_weighted",
        "In the variance the squared distance between a rank's mean and the mean of all stands for each sample of that "
        "rank: multiply it by the rank's count before you add.",
        edit((VARIANCE, "m2s.sum(0) / total + (means - mean).square().mean(0)")),
    ),
    wrong(
        "mean_of_squares",
        "You compute E[x^2] - E[x]^2, also where you do so for the ranks' means only. Far from zero both are large and "
        "nearly equal, and their difference is rounding; float64 only moves the limit. Subtract a mean first, and "
        "square what is left.",
        edit(OF_SQUARES, (VARIANCE, LESS_SQUARE)),
        edit(OF_SQUARES, (VARIANCE, f"({LESS_SQUARE}).clamp(min=0)")),
        edit((VARIANCE, "(m2s + counts * means.square()).sum(0) / total - mean.square()")),
        edit(OF_SQUARES, (VARIANCE, LESS_SQUARE), (FLOAT32, "x.double()")),
        fails=("far_from_zero",),
    ),
    wrong(
        "unbiased_variance",
        "You divide the sum of squares by the number of samples minus 1. Batch norm divides by the number of samples.",
        edit((VARIANCE, VARIANCE.replace("/ total", "/ (total - 1)"))),
    ),
    wrong(
        "counts_samples_only",
        "In (n, C, L) a channel has n * L numbers. You divide what is summed over all of them by the number of "
        "samples, forward or backward.",
        edit(("torch.full_like(mean, len(rows))", "torch.full_like(mean, len(x))")),
        edit((REDUCED, f"{REDUCED}; total = total * len(dy) / max(len(rows), 1)")),
    ),
    wrong(
        "eps_not_as_it_is",
        "eps is added as it is, however small: a lower bound of your own on it, or on the variance, is another number.",
        edit(("(variance + eps).rsqrt()", "(variance + max(eps, 1e-5)).rsqrt()")),
        edit(("(variance + eps).rsqrt()", "(variance.clamp(min=1e-6) + eps).rsqrt()")),
    ),
    wrong(
        "eps_outside_the_root",
        "eps belongs under the root: 1 / sqrt(variance + eps). Outside of it a channel that hardly varies is "
        "divided by another number.",
        edit(("(variance + eps).rsqrt()", "1 / (variance.sqrt() + eps)")),
        edit(("(variance + eps).rsqrt()", "1 / variance.sqrt().clamp(min=eps)")),
        edit(("(variance + eps).rsqrt()", "variance.clamp(min=eps).rsqrt()")),
    ),
    wrong(
        "statistics_as_constants",
        "Your gradient takes the mean and the variance for constants: dy / sqrt(variance + eps). Every x moves both. "
        "Autograd, if you left it to it, does not know where numbers come from that a collective has written.",
        edit((DX, "dx = scale * rows")),
    ),
    wrong(
        "autograd_through_a_collective",
        "You leave the gradient to autograd, which does not see your collective: it takes the sums of all ranks for "
        "your own, and what the others' losses lose by your x is missing. Write a torch.autograd.Function, whose "
        "backward has a collective of its own.",
        sums_in_place,
        distances_in_place,
    ),
    wrong(
        "variance_as_a_constant",
        "Your gradient lacks what goes through the variance: the mean of dy times y over all samples, times y.",
        edit((DX, "dx = scale * (rows - by_mean)")),
    ),
    wrong(
        "mean_as_a_constant",
        "Your gradient lacks what goes through the mean: the mean of dy over all samples.",
        edit((DX, "dx = scale * (rows - unit * by_variance)")),
    ),
    wrong(
        "own_sums_in_backward",
        "Backward sums over the own samples only, yours or autograd's. The mean and the variance act on the y of all "
        "ranks, so what their losses lose by it must be summed over all ranks, in one collective.",
        edit((REDUCED, "pass")),
        edit((REDUCED, REDUCED.replace("sums", "sums[0]"))),
        edit((REDUCED, REDUCED.replace("sums", "sums[1]"))),
        edit((REDUCED, "total = torch.full_like(total, max(len(rows), 1))")),
    ),
    wrong(
        "mean_over_ranks_in_backward",
        "In backward you take the mean of the ranks' sums, and then divide by the number of samples of all: once too "
        "often.",
        edit((REDUCED, 'ctx.comm.all_reduce(sums, "mean")')),
    ),
    wrong(
        "nan_without_samples",
        "A rank without samples sends nan: the mean of nothing. Send 0 there, with the count 0.",
        edit((EMPTY, "rows.mean(0)")),
        edit((EMPTY, "rows.sum(0) / len(rows)")),
        fails=("few_samples", "half_precision", "half_precision_gradient"),
    ),
    wrong(
        "nothing_in_float32",
        "A rank without samples sends float32 beside the others' float64. Let what it sends have their dtype.",
        edit((UNPACKED, f"mine = mine if len(x) else mine.float()\n        {UNPACKED}")),
        edit((UNPACKED, f"mine = mine if len(x) else mine.to(x.dtype)\n        {UNPACKED}")),
        edit((REDUCED, f"sums = sums if len(dy) else sums.float()\n        {REDUCED}")),
    ),
    wrong(
        "leaves_without_samples",
        "A rank without samples returns at once, and the others wait for it in the collective for ever. It must join "
        "in, forward and backward.",
        edit(("y: Tensor = _", "if not len(x):\n        return x * 1.0\n    y: Tensor = _")),
        fails=(
            "few_samples",
            "half_precision",
            "half_precision_gradient",
            "dtype",
            "arguments_unchanged",
        ),
    ),
    wrong(
        "torchs_own_where_alone",
        "One rank alone takes another way: torch's batch norm, which refuses a single sample in training, where y is 0 "
        "as elsewhere; or x.mean(0), which leaves every position of (n, C, L) a mean of its own.",
        *(
            edit(("    y: Tensor = _", f"    if comm.size == 1:\n        {own}\n    y: Tensor = _"))
            for own in (TORCHS, "return (x - x.mean(0)) / (x.var(0, correction=0) + eps).sqrt()")
        ),
    ),
    wrong(
        "statistics_in_half",
        "The mean and the variance of half precision samples are computed in half precision, which keeps three digits. "
        "Compute and send them in float32, and round only y.",
        edit((FLOAT32, "x")),
        edit((FLOAT32, f"({FLOAT32} if x.dim() == 2 else x)")),
        edit(("_gathered(comm, mine).unbind", "_gathered(comm, mine.to(x.dtype)).to(mine).unbind")),
        fails=("half_precision", "half_precision_gradient"),
    ),
    wrong(
        "sums_in_half",
        "In backward you add up half precision numbers in half precision, or send such a sum: it is soon beyond "
        "65,504, and infinite. Convert dy to float32 before you add.",
        edit(("rows = _rows(dy)", "rows = _rows(dy).to(dy.dtype)")),
        edit((REDUCED, f"sums = sums.to(dy.dtype)\n        {REDUCED}\n        sums = sums.to(rows.dtype)")),
        fails=("half_precision_gradient",),
    ),
    wrong(
        "always_in_float32",
        "You compute in float32, or send it, whatever x is. Where x is in float64 that throws half of its digits away.",
        edit((FLOAT32, "x.float()")),
        edit(("_gathered(comm, mine).unbind", "_gathered(comm, mine.float()).to(mine).unbind")),
        rounds_to=torch.float32,
    ),
    wrong(
        "kept_for_all_calls",
        "You keep what backward needs in one place for all calls: the class, a global name. A second layer overwrites "
        "it before the first goes backward. Put tensors into ctx.save_for_backward, and the rest into ctx.",
        edit(
            (
                "ctx.save_for_backward(unit, scale, total)",
                "ctx.save_for_backward(unit, total)\n        KEPT[:] = [scale]",
            ),
            ("unit, scale, total = ctx.saved_tensors", "unit, total = ctx.saved_tensors\n        (scale,) = KEPT"),
            ("class _Normalise", "KEPT = []\n\n\nclass _Normalise"),
        ),
        edit(
            (
                "ctx.save_for_backward(unit, scale, total)",
                "ctx.save_for_backward(unit, total)\n        _Normalise.scale = scale",
            ),
            (
                "unit, scale, total = ctx.saved_tensors",
                "unit, total = ctx.saved_tensors\n        scale = _Normalise.scale",
            ),
        ),
        fails=("each_layer_for_itself",),
    ),
    wrong(
        "y_stays_wide",
        "Your y has another dtype than x: convert it at the end.",
        edit(("return _as(unit, x.shape).to(x.dtype)", "return _as(unit, x.shape)")),
        edit(("return _as(unit, x.shape).to(x.dtype)", "return _as(unit, x.shape).double()")),
        fails=("dtype",),
    ),
    wrong(
        "three_collectives",
        "The values are right, but counts, means and sums travel one by one, or two of them in backward. Pack them "
        "into one tensor: each collective has its own latency.",
        edit((UNPACKED, "counts, means, m2s = (_gathered(comm, each) for each in mine)")),
        edit((REDUCED, "ctx.comm.all_reduce(sums[0]), ctx.comm.all_reduce(sums[1])")),
        edit((REDUCED, f"{REDUCED} if ctx.dtype == torch.float32 else [ctx.comm.all_reduce(each) for each in sums]")),
        fails=("two_collectives",),
    ),
)
