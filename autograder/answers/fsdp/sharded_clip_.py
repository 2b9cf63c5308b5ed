"""Right and wrong ways to write `sharded_clip_`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.fsdp.sharded_clip_ import sharded_clip_


def norms_gathered(comm: Comm, grads: list[Tensor], max_norm: float) -> Tensor:
    """numpy's norm of each rank's long vector; the norm of these norms, in Python's numbers."""
    mine = np.concatenate([np.zeros(1), *(each.double().numpy().ravel() for each in grads)])
    norms = torch.empty(comm.size, dtype=torch.float64)
    comm.all_gather([*norms.chunk(comm.size)], torch.tensor([np.linalg.norm(mine)]))
    norm = np.linalg.norm(norms.numpy())
    factor = np.minimum(max_norm / (norm + 1e-6), 1.0)  # numpy's minimum keeps a nan
    for each in grads:
        each.copy_(each * float(factor))
    return torch.tensor(norm)


def torchs_norms(comm: Comm, grads: list[Tensor], max_norm: float) -> Tensor:
    """The norms of the tensors, in float32; nothing is multiplied where the factor is 1."""
    norms = [torch.linalg.vector_norm(each, dtype=torch.float32) for each in grads if each.dtype != torch.float64]
    norms += [torch.linalg.vector_norm(each).float() for each in grads if each.dtype == torch.float64]
    total = torch.stack([torch.zeros(()), *norms]).square().sum().reshape(1)
    comm.all_reduce(total)
    norm = total[0] ** 0.5
    if not max_norm >= norm + 1e-6:
        torch._foreach_mul_(grads, max_norm / (norm + 1e-6)) if grads else None
    return norm


RIGHT = (
    right(norms_gathered, independent="numpy.linalg.norm"),
    right(torchs_norms),
)


def gathers_everything(comm: Comm, grads: list[Tensor], max_norm: float) -> Tensor:
    """Every rank sees the gradients of every other."""
    flat = torch.cat([torch.zeros(1, dtype=torch.float64), *(each.double().flatten() for each in grads)])
    counts = [torch.empty((), dtype=torch.int64) for _ in range(comm.size)]
    comm.all_gather(counts, torch.tensor(len(flat)))
    longest = int(max(counts))
    rows = [torch.empty(longest, dtype=torch.float64) for _ in counts]
    comm.all_gather(rows, torch.nn.functional.pad(flat, (0, longest - len(flat))))
    norm: Tensor = torch.cat(rows).norm()
    for each in grads:
        each.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


edit = partial(edited, sharded_clip_)
ADDED = "squares += grad.double().square().sum()"
REDUCED, ROOT = "comm.all_reduce(squares)", "norm = squares.sqrt()"
FACTOR = "(max_norm / (norm + 1e-6)).clamp(max=1.0)"
SCALED = "grad.mul_(factor)"
STARTED = "torch.zeros((), dtype=torch.float64)"
IN_FLOAT32 = (STARTED, "torch.zeros(())")
LEAVES = ("    squares =", "    if not grads:\n        return torch.zeros(())\n    squares =")
NO_LOOP = (f"    for grad in grads:\n        {ADDED}\n", "")
SQUARES, FLATS = "[g.double().square().sum() for g in grads]", "[g.double().square().flatten() for g in grads]"

WRONG = (
    wrong(
        "local_norm",
        "Each rank takes the norm of its own shards, and clips by a factor of its own: the pieces of one gradient are "
        "shortened differently, which bends the step. All-reduce the sum of squares before the root.",
        edit((REDUCED, "pass")),
    ),
    wrong(
        "returns_the_local_norm",
        "The factor is right, but what you return is the norm of this rank's shards.",
        edit((REDUCED, f"own = squares.sqrt(); {REDUCED}"), ("return norm", "return own")),
    ),
    wrong(
        "sum_of_norms",
        "You add up the ranks' norms. Norms of pieces add by Pythagoras: add the squares, and take the root of the "
        "sum of all.",
        edit((REDUCED, "squares.sqrt_()"), (ROOT, "norm = squares; comm.all_reduce(norm)")),
        edit((REDUCED, f"squares.sqrt_(); {REDUCED}")),
    ),
    wrong(
        "mean_over_the_ranks",
        "You take the mean over the ranks, of squares or of norms. Shards are pieces of one gradient, not gradients of "
        "different samples: their squares are added.",
        edit((REDUCED, "comm.all_reduce(squares, 'mean')")),
        edit((REDUCED, "squares.sqrt_()"), (ROOT, "norm = squares; comm.all_reduce(norm, 'mean')")),
    ),
    wrong(
        "largest_norm",
        "You take the largest norm of any rank. The norm of all is above it.",
        edit((REDUCED, "comm.all_reduce(squares, 'max')")),
    ),
    wrong(
        "root_missing",
        "The square of the norm stands where the norm should: the root is missing.",
        edit((ROOT, "norm = squares")),
    ),
    wrong(
        "clips_each_tensor",
        "You clip each tensor by its own norm (of all ranks, or of this one). There is one norm and one factor for all "
        "tensors together.",
        edit((SCALED, "grad.mul_((max_norm / (grad.double().norm() + 1e-6)).clamp(max=1.0))")),
    ),
    wrong(
        "returns_no_tensor",
        "You return a number of Python (or of numpy) where a tensor () is promised: leave out .item() and float().",
        edit(("return norm", "return norm.item()")),
    ),
    wrong(
        "returns_the_norm_after",
        "You return the norm after clipping, which is never above max_norm and tells nothing. Keep what it was before.",
        edit(("return norm", "return norm * factor")),
        edit(("return norm", "return norm.clamp(max=max_norm)")),
    ),
    wrong(
        "scales_up",
        "You lengthen gradients that are short enough. The factor is at most 1.",
        edit((FACTOR, "max_norm / (norm + 1e-6)")),
    ),
    wrong(
        "not_in_place",
        "The memory of the caller's tensors is unchanged: `g = g * factor` makes a new tensor and gives it a name. An "
        "operation in place ends in an underscore.",
        edit((SCALED, "grad = grad * factor")),
        edit((SCALED, "grad.data = grad * factor")),
    ),
    wrong(
        "rounded_to_half",
        "Your squares, their sum, a norm, the factor or what you return is in half precision: float16 ends at 65,504, "
        "and bfloat16 keeps three digits. Convert to float32 before you square, and stay there until a shard is "
        "multiplied: mul_ takes the factor in float32, whatever the shard's dtype.",
        edit((ADDED, "squares += grad.square().sum()")),
        edit((ADDED, "squares += torch.dot(grad.flatten(), grad.flatten())")),
        edit((ADDED, "squares += grad.norm().double().square()")),
        edit(
            (ADDED, "squares += (grad.norm() if grad.dtype == torch.bfloat16 else grad.double().norm()).double() ** 2")
        ),
        edit((SCALED, "grad.mul_(factor.to(grad.dtype))")),
        edit((SCALED, "grad.copy_(grad.to(torch.promote_types(grad.dtype, torch.float32)) * factor.to(grad.dtype))")),
        edit(("return norm", "return norm.to(grads[0].dtype) if grads else norm")),
        fails=("half_precision",),
    ),
    wrong(
        "float64_made_coarser",
        "A float64 shard goes through float32 or half precision on its way, and comes back with fewer digits. mul_ "
        "keeps its dtype, whatever the factor's.",
        edit((SCALED, "grad.copy_((grad.float() * factor.float()).to(grad.dtype))")),
        edit((SCALED, "grad.copy_(grad.half() * factor if grad.dtype == torch.float64 else grad * factor)")),
    ),
    wrong(
        "float64_left_out",
        "Shards in float64 are left as they are, or are missing in the norm, perhaps where there is no other dtype. "
        "Every shard counts, and every shard is multiplied.",
        edit((SCALED, f"{SCALED} if grad.dtype != torch.float64 else grad")),
        edit((ADDED, f"{ADDED} if grad.dtype != torch.float64 else 0")),
        edit((ROOT, "norm = squares.sqrt() * (not grads or any(grad.dtype != torch.float64 for grad in grads))")),
    ),
    wrong(
        "leaves_before_the_call",
        "A rank without shards returns before the all-reduce, in which the others wait for it. It has a sum of squares "
        "too: 0. Let it make the same call, and return the same norm.",
        edit(LEAVES),
        edit(LEAVES, IN_FLOAT32),
        edit((REDUCED, f"if grads:\n        {REDUCED}")),
    ),
    wrong(
        "numbers_left_out",
        "A shard of shape () is missing in your norm. It has one element, and its square counts.",
        edit((ADDED, f"{ADDED} if grad.dim() else 0")),
    ),
    wrong(
        "breaks_without_shards",
        "On a rank without shards your sum of squares cannot be formed: torch.stack and torch.cat want at least one "
        "tensor, and Python's sum of nothing is the int 0, not a tensor. Begin with a tensor that is 0.",
        edit(NO_LOOP, (STARTED, f"torch.stack({SQUARES}).sum(0)")),
        edit(NO_LOOP, (STARTED, f"torch.stack({SQUARES}).sum(0).float()")),
        edit(NO_LOOP, (STARTED, f"torch.cat({FLATS}).sum()")),
        edit(NO_LOOP, (STARTED, f"torch.cat({FLATS}).float().sum()")),
        edit(NO_LOOP, (STARTED, f"sum({SQUARES})")),
        edit(NO_LOOP, (STARTED, f"sum({SQUARES})"), (REDUCED, f"squares = squares.float(); {REDUCED}")),
    ),
    wrong(
        "dtype_of_its_own",
        "What you all-reduce has the dtype of this rank's shards, and another rank may hold other dtypes, or nothing. "
        "The call needs the same dtype everywhere: choose one.",
        edit(
            (
                STARTED,
                STARTED.replace("64", "64 if any(g.dtype == torch.float64 for g in grads) else torch.float32"),
            )
        ),
        edit((ADDED, "squares = squares + grad.double().square().sum()"), IN_FLOAT32),
    ),
    wrong(
        "another_eps",
        "Under the fraction stands norm + 1e-6: not the norm alone, and no other small number. Compare this fraction "
        "with 1, and not the norm with max_norm.",
        edit((FACTOR, "(max_norm / norm).clamp(max=1.0)")),
        edit((FACTOR, "(max_norm / (norm + 1e-8)).clamp(max=1.0)")),
        edit((FACTOR, "torch.where(norm < max_norm, 1.0, max_norm / (norm + 1e-6))")),
        fails=("every_digit_of_the_factor",),
    ),
    wrong(
        "nan_slips_through",
        "With a nan on one rank the gradients stay as they are: a comparison with nan is false, in an `if` and in "
        "Python's min. Here the factor is then nan on all ranks. A tensor's clamp(max=1.0) keeps a nan.",
        edit((FACTOR, "min(torch.tensor(1.0), max_norm / (norm + 1e-6))")),
        edit((FACTOR, f"{FACTOR} if norm > max_norm else torch.ones(())")),
        edit((FACTOR, f"{FACTOR}.nan_to_num(1.0)")),
    ),
    wrong(
        "leaves_what_is_not_finite",
        "You treat inf and nan apart. This function does what torch's does by default: the same arithmetic for every "
        "norm, and inf * 0 is nan.",
        edit((ROOT, f"{ROOT}\n    if not norm.isfinite():\n        return norm")),
    ),
    wrong(
        "a_call_for_each_tensor",
        "The value is right where all ranks have as many tensors, but the ranks talk once for each tensor. Add up the "
        "squares of all tensors first, and all-reduce once.",
        edit(
            (ADDED, "one = grad.double().square().sum()\n        comm.all_reduce(one)\n        squares += one"),
            (f"    {REDUCED}\n", ""),
        ),
    ),
    wrong(
        "gathers_everything",
        "Your ranks say more than they must: several collectives, or more than one number from each rank. Where every "
        "rank gets the gradients of all others, that is P times the memory, which sharding avoids. One all-reduce of "
        "one number is enough.",
        gathers_everything,
        fails=("one_small_all_reduce",),
    ),
)
