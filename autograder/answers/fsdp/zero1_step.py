"""Right and wrong ways to write `zero1_step`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import Parameter

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.fsdp.zero1_step import zero1_step


@torch.no_grad()
def torchs_adamw(comm: Comm, params: Sequence[Parameter], state: dict[str, Any], *, lr: float, **options: Any) -> None:
    """torch.optim.AdamW, given a parameter that is the shard, and its state."""
    trained = [p for p in params if p.requires_grad]
    grads = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained])
    values = torch.nn.utils.parameters_to_vector(p.contiguous() for p in trained)
    short = -len(values) % comm.size
    pieces = torch.cat([grads, grads.new_zeros(short)]).chunk(comm.size)
    padded = torch.cat([values, values.new_zeros(short)])
    own = Parameter(padded.chunk(comm.size)[comm.rank].clone())
    own.grad = torch.empty_like(own)
    comm.reduce_scatter(own.grad, pieces, "mean")
    optimizer = torch.optim.AdamW([own], lr=lr, **options)
    if state:
        optimizer.state[own] = {
            "step": torch.tensor(float(state["step"])),
            "exp_avg": state["m"],
            "exp_avg_sq": state["v"],
        }
    optimizer.step()
    kept = optimizer.state[own]
    state.update(step=kept["step"], m=kept["exp_avg"], v=kept["exp_avg_sq"])
    comm.all_gather(padded.chunk(comm.size), own.detach())
    for p, part in zip(trained, torch.split(padded[: len(values)], [p.numel() for p in trained]), strict=True):
        p.copy_(part.view_as(p))


def both_moments_in_one(
    comm: Comm,
    params: Sequence[Parameter],
    state: dict[str, Any],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """m and v are rows of one matrix, and everything is computed out of place."""
    trained = [p for p in params if p.requires_grad]
    n, size = sum(p.numel() for p in trained), comm.size
    m = (n + size - 1) // size
    grads, values = torch.zeros(2, size, m, dtype=trained[0].dtype)
    start = 0
    for p in trained:
        values.view(-1)[start : start + p.numel()] = p.detach().reshape(-1)
        if p.grad is not None:
            grads.view(-1)[start : start + p.numel()] = p.grad.reshape(-1) / size
        start += p.numel()
    g = torch.empty_like(grads[0])
    comm.reduce_scatter(g, list(grads))
    both = torch.stack([state["m"], state["v"]]) if state else torch.zeros(2, m, dtype=g.dtype)
    t = state.get("step", 0) + 1
    decays = torch.tensor(betas, dtype=torch.float64).unsqueeze(1)
    both = (decays * both + (1 - decays) * torch.stack([g, g * g])).to(g.dtype)
    mean, square = both / (1 - decays**t)
    own = values[comm.rank]
    new = ((1 - lr * weight_decay) * own - lr * mean / (square.sqrt() + eps)).to(g.dtype)
    state["step"], (state["m"], state["v"]) = t, both
    comm.all_gather(list(values), new)
    start = 0
    for p in trained:
        p.data.copy_(values.view(-1)[start : start + p.numel()].view(p.shape))
        start += p.numel()


RIGHT = (
    right(torchs_adamw, independent="torch.optim.AdamW of the shard"),
    right(both_moments_in_one),
    right(edited(zero1_step, ("step=0", "step=torch.tensor(0.0)"))),  # as torch counts
)


edit, stacked = partial(edited, zero1_step), partial(edited, both_moments_in_one)
TRAINED = "[p for p in params if p.requires_grad]"
M, ROW = "m = -(-sum(p.numel() for p in trained) // comm.size)", "row = trained[0].new_zeros(comm.size * m)"
GRAD, OWN = 'comm.reduce_scatter_single(grad, row, "mean")', "row[comm.rank * m : (comm.rank + 1) * m].clone()"
EMPTY = "grad = row.new_empty(m)"
MADE = "m=torch.zeros_like(shard), v=torch.zeros_like(shard)"
LERP = 'state["m"].lerp_(grad, 1 - beta1)'
COUNT = '    state["step"] += 1\n'
DECAY = "    shard *= 1 - lr * weight_decay\n"
STEP = "shard -= lr * m_hat / (v_hat.sqrt() + eps)"
FROZEN = "[p.sub_(lr * p.grad) for p in params if not p.requires_grad and p.grad is not None]"
GATHER, WRITE = "comm.all_gather_single(row, shard)", "p.copy_(part)\n\n\ndef"
WHOLE = (
    (EMPTY, "grad = row.clone()"),
    (GRAD, 'comm.all_reduce(grad, "mean")'),
    (OWN, "row.clone()"),
    (GATHER, "row = shard"),
)

WRONG = (
    wrong(
        "nothing_sharded",
        "The parameters are right, but every rank steps all of them and keeps the moments of all: nothing is saved. A "
        "rank steps its own shard alone.",
        edit(*WHOLE),
    ),
    wrong(
        "all_own_shard_0",
        "Every rank steps the first shard, and all others are overwritten with it, or never stepped. A rank's shard "
        "begins at rank * m.",
        edit((OWN, "row[:m].clone()")),
        edit(
            (EMPTY, "grad = row.clone()"),
            (GRAD, 'comm.all_reduce(grad, "mean")\n    grad = grad[:m].clone()'),
            (OWN, "row[:m].clone()"),
        ),
        edit(
            (EMPTY, "grad = row.clone()"),
            (GRAD, 'comm.all_reduce(grad, "mean")\n    grad = grad[:m].clone()'),
            (OWN, "row[:m].clone()"),
            (GATHER, "row[:m] = shard"),
        ),
    ),
    wrong(
        "all_reduced_then_cut",
        "The parameters are right, but one of your two collectives is an all-reduce: 3 (P - 1) / P of the bytes in "
        "all. A reduce-scatter leaves each rank its own slice of the gradients, and an all-gather brings all slices of "
        "the parameters, each for half the price of an all-reduce.",
        edit(
            (EMPTY, "grad = row.clone()"),
            (GRAD, 'comm.all_reduce(grad, "mean")\n    grad = grad[comm.rank * m : (comm.rank + 1) * m].clone()'),
        ),
        edit(
            (
                GATHER,
                "row.zero_()\n    row[comm.rank * m : (comm.rank + 1) * m] = shard\n    comm.all_reduce(row)",
            )
        ),
    ),
    wrong(
        "sums",
        "You add the gradients up and do not divide. AdamW's step hardly changes when all gradients are larger, so "
        "that it is easy to miss: eps and the moments tell. The gradient of the whole batch is the mean.",
        edit((GRAD, "comm.reduce_scatter_single(grad, row)")),
    ),
    wrong(
        "divides_twice",
        "You divide by the number of ranks twice: the mean of a reduce-scatter is the sum over P.",
        edit((GRAD, f"{GRAD}\n    grad /= comm.size")),
    ),
    wrong(
        "own_gradients_alone",
        "Each rank steps its shard with its own gradients, and those of the other ranks' samples are lost. Reduce "
        "them.",
        edit((EMPTY, ""), (GRAD, "grad = row[comm.rank * m : (comm.rank + 1) * m].clone()")),
    ),
    wrong(
        "own_shard_alone",
        "Each rank steps its own shard, and nobody learns of the others': the models drift apart. Gather the shards.",
        edit((GATHER, "row[comm.rank * m : (comm.rank + 1) * m] = shard")),
    ),
    wrong(
        "no_padding",
        "You cut the row as it is, so that the last shards are shorter, or missing. All ranks must have shards of one "
        "length: fill the row up with zeros.",
        edit(
            (M, "m = sum(p.numel() for p in trained) // comm.size + 1"),
            (
                OWN,
                "row[comm.rank * m : (comm.rank + 1) * m].clone()[: max(0, sum(p.numel() for p in trained) - "
                "comm.rank * m)]",
            ),
        ),
    ),
    wrong(
        "leaves_with_nothing_to_step",
        "A rank whose shard is all padding returns, or leaves out a call, and the others wait for it. It has nothing "
        "to step, and takes part all the same.",
        edit((GATHER, f"if comm.rank * m >= sum(p.numel() for p in trained):\n        return\n    {GATHER}")),
        edit((EMPTY, f"if comm.rank * m >= sum(p.numel() for p in trained):\n        return\n    {EMPTY}")),
    ),
    wrong(
        "skips_what_it_lacks",
        "You leave out parameters that have no gradient on this rank. The rows of the ranks then differ: zeros have to "
        "stand in their places.",
        edit((TRAINED, "[p for p in params if p.grad is not None]")),
    ),
    wrong(
        "keeps_what_it_lacks",
        "A parameter that has no gradient on this rank is not written, while the others write it: the models drift "
        "apart. Everybody takes all new numbers.",
        edit((WRITE, f"if p.grad is not None:\n            {WRITE}")),
    ),
    wrong(
        "leaves_out_what_nobody_has",
        "You ask which parameters have a gradient anywhere, and leave out the others. That is one more message in each "
        "step; and the row, and with it the shards and their moments, would be others in the next step. The rule here "
        "is simpler: None counts as zeros.",
        edit(
            (
                TRAINED,
                TRAINED + "\n    flags = torch.tensor([float(p.grad is not None) for p in trained])\n"
                "    comm.all_reduce(flags)\n"
                "    trained = [p for p, flag in zip(trained, flags.tolist(), strict=True) if flag]",
            )
        ),
    ),
    wrong(
        "nothing_to_do_without_gradients",
        "A rank on which no parameter has a gradient returns, or does not count the step. The others have gradients, "
        "of which a part belongs to its shard: it gives zeros, and steps as they do.",
        edit((M, f"if all(p.grad is None for p in trained):\n        return\n    {M}")),
        edit((COUNT, '    state["step"] += max(state["step"] == 0, any(p.grad is not None for p in trained))\n')),
    ),
    wrong(
        "moments_kept_where_the_gradient_is_0",
        "Where the mean gradient is 0 you leave the moments, and the parameter, as they are. That is what torch's "
        "SparseAdam does. In AdamW they fade, and the parameter goes on.",
        edit(
            (STEP, f"old = shard.clone()\n    {STEP}\n    shard = torch.where(grad == 0, old, shard)"),
            (LERP, LERP.replace("1 - beta1", "(1 - beta1) * (grad != 0)")),
            ('state["v"].mul_(beta2)', 'state["v"].mul_(torch.where(grad == 0, 1.0, beta2))'),
        ),
    ),
    wrong(
        "nothing_to_do_at_a_rate_of_0",
        "At a rate of 0 you return. The parameters stay, but it is a step: the moments take up the gradients, and the "
        "step counts.",
        edit((M, f"if lr == 0:\n        return\n    {M}")),
    ),
    wrong(
        "another_order",
        "Your row has the parameters in another order than the list: by size, from the end, or matrices first. Then "
        "the moments belong to other elements than those of `shard_flat`, and of whoever loads them.",
        edit((TRAINED, "sorted((p for p in params if p.requires_grad), key=lambda p: -p.numel())")),
        edit((TRAINED, "sorted((p for p in params if p.requires_grad), key=lambda p: p.numel())")),
        edit((TRAINED, "sorted((p for p in params if p.requires_grad), key=lambda p: -p.dim())")),
        edit((TRAINED, "[p for p in params if p.requires_grad][::-1]")),
    ),
    wrong(
        "frozen_too",
        "Frozen parameters stand in your row, or take a step: they are sent for nothing, and decay if you write them, "
        "and a gradient that was left over counts for nothing. Leave out what requires no gradient.",
        edit((TRAINED, "list(params)")),
        edit((TRAINED, "list(params)"), (WRITE, f"if p.requires_grad:\n            {WRITE}")),
        edit((WRITE, WRITE.replace("p.copy_(part)", f"p.copy_(part)\n    {FROZEN}"))),
    ),
    wrong(
        "new_memory",
        "The numbers are right, but stand in new memory, or in a view of the row. Who holds the old tensors sees "
        "nothing: write with `copy_`.",
        edit((WRITE, WRITE.replace("p.copy_(part)", "p.data = part"))),
        edit((WRITE, WRITE.replace("p.copy_(part)", "p.data = part.clone()"))),
    ),
    wrong(
        "more_than_two_shards",
        "Your state keeps more memory alive than two shards: slices of rows that are as long as the model, or a third "
        "tensor. A slice is a view; copy it, or make zeros of its length.",
        edit((MADE, "m=torch.zeros_like(row)[:m], v=torch.zeros_like(row)[:m]")),
        edit(
            (GATHER, f'state["gradients"] = [p.grad for p in trained]\n    {GATHER}'),
        ),
        edit((GATHER, f'state["shard"] = shard\n    {GATHER}')),
    ),
    wrong(
        "kept_outside",
        "Something leads from step to step besides the state and the parameters: a count, a shard of the parameters or "
        "moments that you keep in an attribute or a global. When a checkpoint is loaded, the caller brings the state "
        "and parameters of an earlier step, and what you kept is of a later one. Read everything from these two.",
        edit(
            (
                COUNT,
                '    counts = zero1_step.__dict__.setdefault("counts", {})\n'
                '    counts[comm.rank] = counts[comm.rank] + 1 if state["step"] else 1\n'
                '    state["step"] = counts[comm.rank]\n',
            )
        ),
        edit(
            (
                f"shard = {OWN}",
                'shards = zero1_step.__dict__.setdefault("shards", {})\n'
                f"    shard = shards[comm.rank] = shards[comm.rank] if state else {OWN}",
            )
        ),
        edit(
            (
                COUNT,
                '    moments = zero1_step.__dict__.setdefault("moments", {})\n'
                '    if state["step"]:\n        state.update(moments[comm.rank])\n'
                f'    moments[comm.rank] = {{name: state[name] for name in ("m", "v")}}\n{COUNT}',
            )
        ),
    ),
    wrong(
        "no_correction",
        "m and v start from 0, and are too small at first: divide by 1 - beta^t.",
        edit((' / (1 - beta1 ** state["step"])', ""), (' / (1 - beta2 ** state["step"])', "")),
    ),
    wrong(
        "old_and_new_swapped",
        "A moment keeps beta of what it was, and takes 1 - beta of what comes: m.lerp_(g, 1 - beta1). Yours has the "
        "two the wrong way round.",
        edit((LERP, 'state["m"].lerp_(grad, beta1)')),
        edit(
            ("mul_(beta2).addcmul_(grad, grad, value=1 - beta2)", "mul_(1 - beta2).addcmul_(grad, grad, value=beta2)")
        ),
    ),
    wrong(
        "always_step_1",
        "Your step does not count: every correction is that of the first step.",
        edit(('    state["step"] += 1\n', '    state["step"] = 1\n')),
    ),
    wrong(
        "starts_anew",
        "The moments start from 0 in every step. Keep them in the state.",
        edit(("    if not state:\n    ", "")),
    ),
    wrong(
        "decay_in_the_gradient",
        "You add weight decay to the gradient, so that it goes into m and v: that is Adam with an L2 penalty. AdamW "
        "shrinks the parameters alone.",
        edit((DECAY, "    grad += weight_decay * shard\n")),
    ),
    wrong(
        "decay_after_the_step",
        "You shrink the parameters after the step. The decay is that of the parameters before it.",
        edit((DECAY, ""), (STEP, f"{STEP}\n{DECAY}")),
    ),
    wrong(
        "eps_inside",
        "eps stands inside of the root. It is added to the root.",
        edit((STEP, "shard -= lr * m_hat / (v_hat + eps).sqrt()")),
    ),
    wrong(
        "in_float32",
        "You compute in float32 what the parameters have in float64. Make rooms like a parameter: p.new_zeros(n).",
        edit((MADE, "m=torch.zeros(m), v=torch.zeros(m)"), (GRAD, f"{GRAD}\n    grad = grad.float()")),
        edit((ROW, "row = torch.zeros(comm.size * m)")),
        edit(("part.copy_(p.grad)", "part.copy_(p.grad.float())")),
        edited(torchs_adamw, ("torch.zeros_like(p) if p.grad", "torch.zeros(p.shape) if p.grad")),
        rounds_to=torch.float32,
    ),
    wrong(
        "clears_gradients",
        "The step is right, but the gradients are gone or changed afterwards. The caller clears them.",
        edit((WRITE, WRITE.replace("p.copy_(part)", "p.copy_(part)\n        p.grad = None"))),
        edit((M, f"for p in params:\n        p.grad = p.grad if p.requires_grad else None\n    {M}")),
        edit(
            ("part.copy_(p.grad)", "part.copy_(p.grad.div_(comm.size))"),
            (GRAD, "comm.reduce_scatter_single(grad, row)"),
        ),
        fails=("gradients_unchanged",),
    ),
    wrong(
        "in_several_calls",
        "The numbers and the bytes are right, but you make more calls than one reduce-scatter and one all-gather, each "
        "with its own latency.",
        edit(
            (
                GATHER,
                "half = m // 2\n    rows = row.view(comm.size, m)\n"
                "    comm.all_gather(list(rows[:, :half]), shard[:half])\n"
                "    comm.all_gather(list(rows[:, half:]), shard[half:])",
            )
        ),
        fails=("messages",),
    ),
    wrong(
        "flattened_by_view",
        "`view(-1)` raises where a parameter or a gradient is not contiguous. `reshape(-1)` and `flatten()` copy it.",
        stacked(("p.grad.reshape(-1)", "p.grad.view(-1)")),
        stacked(("p.detach().reshape(-1)", "p.detach().view(-1)")),
    ),
)
