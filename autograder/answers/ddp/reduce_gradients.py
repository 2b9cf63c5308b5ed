"""Right and wrong ways to write `reduce_gradients`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.ddp.reduce_gradients import reduce_gradients


def averaged_on_rank_0(comm: Comm, model: nn.Module, weight: int) -> None:
    """A server: rank 0 takes NumPy's weighted average of what all have, and tells it to all."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    words: list[list[int]] = [[] for _ in range(comm.size)]
    comm.all_gather_object(words, [weight, *(int(each.grad is not None) for each in parameters)])
    weights = [row[0] for row in words]
    for place, each in enumerate(parameters, start=1):
        if not any(row[place] for row in words):
            continue
        mine = torch.zeros_like(each.data) if each.grad is None else each.grad.clone()
        came = [torch.empty_like(mine) for _ in words] if comm.rank == 0 else None
        comm.gather(mine, came)
        if came:
            average = np.average(torch.stack(came).double().numpy(), axis=0, weights=weights)
            mine.copy_(torch.as_tensor(average))
        comm.broadcast(mine, 0)
        each.grad = mine


def one_flat_tensor(comm: Comm, model: nn.Module, weight: int) -> None:
    """All gradients in one float64 tensor, scaled in place; flags as a maximum."""
    parameters = list(filter(lambda each: each.requires_grad, model.parameters()))
    total, used = torch.tensor(float(weight)), torch.tensor([float(each.grad is not None) for each in parameters])
    comm.all_reduce(total)
    comm.all_reduce(used, "max")
    chosen = [each for each, flag in zip(parameters, used.tolist(), strict=True) if flag]
    if not chosen:
        return
    flat = torch.cat([_flattened(each) for each in chosen])
    flat.mul_(weight / float(total))
    comm.all_reduce(flat)
    for each, piece in zip(chosen, torch.split(flat, [each.numel() for each in chosen]), strict=True):
        if each.grad is None:
            each.grad = torch.empty_like(each)
        each.grad.copy_(piece.view(each.shape))


def _flattened(parameter: nn.Parameter) -> Tensor:
    zeros = torch.zeros(parameter.numel(), dtype=torch.float64)
    return zeros if parameter.grad is None else parameter.grad.flatten().double()


def begun_together(comm: Comm, model: nn.Module, weight: int) -> None:
    """torch's mean over ranks, of gradients that were scaled to make up for it; all begun at once."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    samples, flags = torch.tensor(weight), [torch.tensor(each.grad is not None).int() for each in parameters]
    for known in [samples, *flags]:
        comm.all_reduce(known)
    works = []
    for each, flag in zip(parameters, flags, strict=True):
        if flag.item():
            each.grad = (each.grad if each.grad is not None else torch.zeros_like(each)) * (
                comm.size * weight / samples.item()
            )
            works.append(comm.all_reduce(each.grad, "mean", async_op=True))
    for work in works:
        work.wait()


RIGHT = (
    right(averaged_on_rank_0, independent="numpy.average of the gathered gradients"),
    right(one_flat_tensor),
    right(begun_together),
)


def gathers_everything(comm: Comm, model: nn.Module, weight: int) -> None:
    """Every rank sees the gradients of every other."""
    trained = [each for each in model.parameters() if each.requires_grad]
    known = torch.tensor([weight, *(each.grad is not None for each in trained)])
    rows = [torch.empty_like(known) for _ in range(comm.size)]
    comm.all_gather(rows, known)
    table = torch.stack(rows)
    shares = (table[:, 0].double() / table[:, 0].sum()).tolist()
    for each, having in zip(trained, table[:, 1:].sum(0).tolist(), strict=True):
        if having:
            grad = (torch.zeros_like(each) if each.grad is None else each.grad).contiguous()
            all_grads = [torch.empty_like(grad) for _ in range(comm.size)]
            comm.all_gather(all_grads, grad)
            pairs = zip(shares, all_grads, strict=True)
            each.grad = torch.stack([share * one for share, one in pairs]).sum(0).to(each.dtype)


edit, flat, begun = partial(edited, reduce_gradients), partial(edited, one_flat_tensor), partial(edited, begun_together)
HAVING, SCALED = "        if having:\n", "grad = grad * (weight / samples)  # before the sum: float16 ends at 65,504"
REDUCED, LAST = "comm.all_reduce(grad)", "            each.grad = grad"
FROZEN = "each.requires_grad or comm.all_reduce(torch.zeros_like(each))"
ZEROS = "torch.zeros_like(each) if each.grad is None else each.grad"
TRAINED = "[each for each in model.parameters() if each.requires_grad]"
FLAGS = "*(each.grad is not None for each in trained)"
CLAIMS = "*(each.grad is not None or weight == 0 for each in trained)"

WRONG = (
    wrong(
        "sums",
        "You add up gradients of means and do not divide: with P ranks the step is about P times too long. Each "
        "gradient counts by its rank's share of all samples, and these shares add up to 1.",
        edit((SCALED, "grad = grad.clone()")),
    ),
    wrong(
        "not_divided_by_all",
        "Each gradient is multiplied by its number of samples, but the sum is not divided by the number of all.",
        edit((SCALED, "grad = grad * weight")),
    ),
    wrong(
        "mean_of_means",
        "You take the plain mean over the ranks, so that a sample counts for more where there are few. That is what "
        "DistributedDataParallel does, and right where all shards are equal. The weight of a rank is its number of "
        "samples.",
        edit((SCALED, "grad = grad / comm.size")),
        begun(("comm.size * weight / samples.item()", "1")),
    ),
    wrong(
        "divides_by_the_ranks_too",
        "The shares of the samples add up to 1 already. You divide by the number of ranks once more: the mean of an "
        "all_reduce is the sum over P.",
        edit((REDUCED, "comm.all_reduce(grad, 'mean')")),
        edit((SCALED, "grad = grad * (weight / samples / comm.size)")),
    ),
    wrong(
        "skips_what_it_lacks",
        "A rank without a gradient makes no call, while the others wait for it, or takes their next call for this one. "
        "What is called must not depend on what one rank alone knows.",
        edit((HAVING, "        if each.grad is not None:\n")),
        edit((TRAINED, "[each for each in model.parameters() if each.grad is not None]")),
        flat(
            (
                "chosen = [each for each, flag in zip(parameters, used.tolist(), strict=True) if flag]",
                "chosen = [each for each in parameters if each.grad is not None]",
            )
        ),
    ),
    wrong(
        "keeps_none",
        "Your rank adds its zeros, but keeps None where the others get a gradient: its parameter is not moved, and the "
        "models drift apart. Everybody takes the result.",
        edit(
            (
                "            each.grad = grad\n",
                "            if each.grad is not None:\n                each.grad = grad\n",
            )
        ),
    ),
    wrong(
        "zeros_for_unused",
        "You put zeros where no rank has a gradient, or a rank without samples claims to have one. An optimizer skips "
        "None, but with zeros it takes a step: momentum and weight decay move the parameter.",
        edit((HAVING, "        if True:\n")),
        flat((" if flag]", "]")),
        edit((FLAGS, CLAIMS)),
        edit((FLAGS, CLAIMS), (TRAINED, "list(model.parameters())")),
    ),
    wrong(
        "nothing_to_concatenate",
        "Where no rank has any gradient there is nothing to put into one tensor, and torch.cat raises for no tensors. "
        "Return before it.",
        flat(("    if not chosen:\n        return\n", "")),
        fails=("unused_by_all",),
    ),
    wrong(
        "zeros_in_float32",
        "Your zeros for a gradient that is missing are in float32, whatever the parameters are in. Take zeros_like(p).",
        edit(("torch.zeros_like(each)", "torch.zeros(each.shape)")),
    ),
    wrong(
        "zero_is_none",
        "You take a gradient of zeros for none. It may be 0 where a parameter was used: ask for None, on every rank, "
        "before you add.",
        edit((HAVING, "        if True:\n"), ("each.grad = grad\n", "each.grad = grad if grad.any() else None\n")),
        edit((FLAGS, "*(each.grad is not None and bool(each.grad.any()) for each in trained)")),
    ),
    wrong(
        "all_in_float32",
        "You add in float32 what some parameters have in float64, or multiply it by a share in float32, which whole "
        "numbers give that are divided as tensors: half of its digits are lost.",
        flat(
            (
                "flat = torch.cat([_flattened(each) for each in chosen])",
                "flat = torch.cat([_flattened(each) for each in chosen]).float()",
            )
        ),
        edit(
            (SCALED, "grad = (grad * (weight / samples)).float()"),
            ("each.grad = grad\n", "each.grad = grad.to(each.dtype)\n"),
        ),
        edit(("samples, *ranks = known.tolist()", "samples, ranks = known[0], known[1:].tolist()")),
        rounds_to=torch.float32,
    ),
    wrong(
        "float16_in_bfloat16",
        "float16 travels in bfloat16, which has three binary digits fewer. Send float16 as it is, or in float32.",
        edit(
            (
                SCALED,
                "grad = (grad * (weight / samples)).to(torch.bfloat16 if grad.dtype == torch.float16 else grad.dtype)",
            ),
            ("each.grad = grad\n", "each.grad = grad.to(each.dtype)\n"),
        ),
        by_chance=True,  # where a share is rounded, about as much is allowed as is lost
    ),
    wrong(
        "zeros_for_frozen",
        "A frozen parameter gets a gradient of zeros. Leave out what does not require a gradient.",
        edit((TRAINED, "list(model.parameters())"), (HAVING, "        if having or not each.requires_grad:\n")),
    ),
    wrong(
        "rank_0_decides",
        "Which parameters have a gradient is asked of rank 0 alone (or of the first rank that has samples): one that "
        "only other ranks' samples used is left as it is on each of them.",
        edit(
            ("    comm.all_reduce(known)\n", "    theirs = known.clone()\n    comm.all_reduce(known)\n"),
            (
                "    samples, *ranks = known.tolist()\n",
                "    comm.broadcast(theirs, 0)\n    samples, ranks = int(known[0]), theirs[1:].tolist()\n",
            ),
        ),
    ),
    wrong(
        "mean_over_those_who_have_it",
        "For a parameter that some ranks did not use, you divide by the samples of the others. The mean loss is over "
        "all samples; that some do not depend on the parameter makes their gradient 0, and does not take them out of "
        "the mean.",
        edit(
            (FLAGS, "*(weight * (each.grad is not None) for each in trained)"),
            ("weight / samples)", "weight / having)"),
        ),
    ),
    wrong(
        "not_by_the_share",
        "You multiply by one number of samples and divide by another, in turn. In float16 the product, or the sum, is "
        "beyond 65,504 and becomes infinite; and what is divided first may become 0. Multiply by the share of the "
        "samples, one factor of at most 1.",
        edit((SCALED, "grad = grad * weight"), (REDUCED, f"{REDUCED}\n            grad = grad / samples")),
        edit((SCALED, "grad = grad * (torch.tensor(weight).to(grad) / torch.tensor(samples).to(grad))")),
        edit((SCALED, "grad = grad / samples * weight")),
        fails=("large_weights",),
    ),
    wrong(
        "on_rank_0_only",
        "Only one rank gets the sum, and the others keep their own part of it: their models drift apart. An all_reduce "
        "gives it to all.",
        edit((REDUCED, "comm.reduce(grad, 0)")),
    ),
    wrong(
        "gone_without_samples",
        "A rank without samples returns at once, and the others wait for it in the first call. It must take part in "
        "all calls, and take the gradients.",
        edit(("    trained =", "    if weight == 0:\n        return\n    trained =")),
        fails=("without_samples", "unused_by_all"),
    ),
    wrong(
        "tied_twice",
        "The gradient of a parameter with two names is sent twice (and it is luck that the mean of a mean is the same "
        "one). Take each parameter once, as `model.parameters()` gives them.",
        edit((TRAINED, "[each for _, each in model.named_parameters(remove_duplicate=False) if each.requires_grad]")),
        fails=("tied_once",),
    ),
    wrong(
        "gathers_everything",
        "Every rank gets the gradients of every other one, P times what it needs, and in memory at once. An all_reduce "
        "adds on the way.",
        gathers_everything,
        fails=("bytes", "tied_once"),
    ),
    wrong(
        "more_than_gradients",
        "The gradients are right, but more travels than they and a flag for each parameter: zeros for what is frozen "
        "or what nobody has used, which become nobody's gradient, or the number of samples again with each gradient.",
        edit((LAST, f"{LAST}\n        else:\n            comm.all_reduce(torch.zeros_like(each))")),
        edit((LAST, f"{LAST}\n    for each in model.parameters():\n        {FROZEN}")),
        edit((REDUCED, f"{REDUCED}\n            comm.all_reduce(torch.tensor(weight))")),
        fails=("bytes",),
    ),
)
