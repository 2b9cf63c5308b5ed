"""Right and wrong ways to write `accumulate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm
from course.reference.ddp.accumulate import accumulate

Batch: TypeAlias = tuple[Tensor, Tensor]
LossOf: TypeAlias = Callable[[nn.Module, Batch], Tensor]


def averaged_by_numpy(comm: Comm, model: nn.Module, loss_of: LossOf, micro_batches: Sequence[Batch]) -> None:
    """A list of gradients, NumPy's weighted average of them, and that of the ranks' averages on rank 0."""
    trained = [each for each in model.parameters() if each.requires_grad]
    rows = [len(inputs) for inputs, _ in micro_batches]
    grads = [torch.autograd.grad(loss_of(model, batch), trained) for batch in micro_batches]
    counts = [torch.zeros((), dtype=torch.int64) for _ in range(comm.size)]
    comm.all_gather(counts, torch.tensor(sum(rows)))
    for place, each in enumerate(trained):
        own = torch.zeros_like(each.data)
        if rows:
            own += torch.as_tensor(np.average([row[place].double().numpy() for row in grads], axis=0, weights=rows))
        parts = [torch.empty_like(own) for _ in counts] if comm.rank == 0 else None
        comm.gather(own, parts)
        if parts:
            own = torch.as_tensor(np.average([part.double().numpy() for part in parts], axis=0, weights=counts)).to(own)
        comm.broadcast(own, 0)
        each.grad = own


def divides_at_the_end(comm: Comm, model: nn.Module, loss_of: LossOf, micro_batches: Sequence[Batch]) -> None:
    """Gradients of sums, in one flat tensor whose last number counts the rows; one call in all."""
    trained = list(filter(lambda parameter: parameter.requires_grad, model.parameters()))
    count = 0
    for inputs, targets in micro_batches:
        loss = loss_of(model, (inputs, targets))
        loss.backward(torch.full_like(loss, float(len(inputs))))  # type: ignore[no-untyped-call]
        count += len(inputs)
    flat = [torch.zeros_like(each).flatten() if each.grad is None else each.grad.flatten() for each in trained]
    everything = torch.cat([*flat, torch.tensor([count]).to(trained[0])])
    comm.all_reduce(everything)
    sums = everything[:-1] / everything[-1]
    for each, piece in zip(trained, torch.split(sums, [each.numel() for each in trained]), strict=True):
        each.grad = piece.view_as(each).clone()


RIGHT = (
    right(averaged_by_numpy, independent="numpy.average, twice"),
    right(divides_at_the_end),
)


def reduces_each_gradient(comm: Comm, model: nn.Module, loss_of: LossOf, micro_batches: Sequence[Batch]) -> None:
    """The right numbers, at the cost of a reduction for each micro-batch."""
    rows = torch.tensor(sum(len(inputs) for inputs, _ in micro_batches))
    comm.all_reduce(rows)
    most = torch.tensor(len(micro_batches))
    comm.all_reduce(most, "max")
    trained = [each for each in model.parameters() if each.requires_grad]
    totals = [torch.zeros_like(each.data) for each in trained]
    for at in range(int(most)):
        grads = [torch.zeros_like(each.data) for each in trained]
        if at < len(micro_batches):
            loss = loss_of(model, micro_batches[at]) * (len(micro_batches[at][0]) / rows.item())
            grads = list(torch.autograd.grad(loss, trained))
        for total, grad in zip(totals, grads, strict=True):
            comm.all_reduce(grad)
            total += grad
    for each, total in zip(trained, totals, strict=True):
        each.grad = total


edit, late = partial(edited, accumulate), partial(edited, divides_at_the_end)
SHARE, BACKWARD = "len(batch[0]) / rows.item()", "(loss_of(model, batch) * share).backward()"
REDUCED, LOOP = "        comm.all_reduce(p.grad)", "    for batch in micro_batches:\n"
MISSING = "        if p.grad is None:\n            p.grad = torch.zeros_like(p)\n"
COUNTED = "    comm.all_reduce(rows)\n"
FROZEN = "p.requires_grad or comm.all_reduce(torch.zeros_like(p))"
WEIGHED, TRAINED = "        share =", "    trained = ["

WRONG = (
    wrong(
        "sum_of_means",
        "You add up the gradients of all micro-batches and do not divide: the step grows with their number. Each "
        "counts by its share of all rows, and these shares add up to 1.",
        edit(("* share", "")),
    ),
    wrong(
        "mean_of_micro_batches",
        "You take the plain mean over micro-batches and over ranks. A row then counts for more where there are few. "
        "Weigh each micro-batch by its rows, over those of all ranks.",
        edit((SHARE, "1 / (len(micro_batches) * comm.size)")),
        edit(
            (SHARE, "1 / len(micro_batches)"),
            (COUNTED, ""),
            (MISSING, ""),
            ("if each.requires_grad]", "if each.grad is not None]"),
            (REDUCED, REDUCED.replace("p.grad", "p.grad, 'mean'")),
        ),
        edit(("sum(len(inputs) for inputs, _ in micro_batches)", "len(micro_batches)"), (SHARE, "1 / rows.item()")),
    ),
    wrong(
        "weighs_on_its_own_rank_only",
        "On each rank the rows count alike, but of the ranks you take the plain mean: those of a rank with few rows "
        "count for more. What you divide by must be the rows of all ranks.",
        edit((COUNTED, ""), (REDUCED, REDUCED.replace("p.grad", "p.grad, 'mean'"))),
    ),
    wrong(
        "divides_twice",
        "The shares of the rows add up to 1 over all ranks already. You divide once more, by the number of ranks or of "
        "micro-batches.",
        edit((REDUCED, REDUCED.replace("p.grad", "p.grad, 'mean'"))),
        edit((SHARE, f"{SHARE} / len(micro_batches)")),
    ),
    wrong(
        "last_micro_batch_only",
        "`.grad` is cleared before each micro-batch, and the last one's is all that is left. Backward adds to what is "
        "there: that is the accumulation.",
        edit(("        share =", "        model.zero_grad()\n        share =")),
        late(("        loss = ", "        model.zero_grad()\n        loss = ")),
    ),
    wrong(
        "never_reduced",
        "Every rank keeps the gradient of its own micro-batches, and the models drift apart.",
        edit((REDUCED, "        pass")),
    ),
    wrong(
        "reduces_what_was_reduced",
        "After each micro-batch you reduce `.grad`, which holds the sum of all ranks from the earlier ones already: it "
        "is added up P times more in each round. Reduce once, after the last micro-batch.",
        edit(
            ("    trained = [each for each in model.parameters() if each.requires_grad]\n", ""),
            (COUNTED, f"{COUNTED}    trained = [each for each in model.parameters() if each.requires_grad]\n"),
            (BACKWARD, f"{BACKWARD}\n        for p in trained:\n    {REDUCED}"),
            (f"    for p in trained:\n{MISSING}{REDUCED}\n", ""),
        ),
    ),
    wrong(
        "sends_too_much",
        "The gradient is right, but the ranks send too much: after every micro-batch, to each rank the gradients of "
        "every other, zeros for frozen parameters, or something more with each gradient. Let each rank add up its own "
        "micro-batches, and all_reduce their gradients once, which adds on the way.",
        reduces_each_gradient,
        edit((REDUCED, f"{REDUCED}\n    for p in model.parameters():\n        {FROZEN}")),
        edit((REDUCED, f"{REDUCED}\n        comm.all_reduce(rows.clone())")),
        edit(
            (
                REDUCED,
                "        parts = [torch.empty_like(p.grad) for _ in range(comm.size)]\n"
                "        comm.all_gather(parts, p.grad)\n        p.grad = torch.stack(parts).sum(0)",
            )
        ),
        fails=("one_reduction",),
    ),
    wrong(
        "one_backward_at_the_end",
        "The gradient is right, but in the end what every micro-batch's forward has saved is in memory: backward comes "
        "once, for the sum of all losses, or is told to retain the graphs of losses that you keep. Call backward for "
        "each, and let it free them.",
        edit(
            (LOOP, f"    total = torch.zeros(())\n{LOOP}"),
            (BACKWARD, "total = total + loss_of(model, batch) * share"),
            (
                "    for p in trained",
                "    if total.requires_grad:\n        total.backward()\n    for p in trained",
            ),
        ),
        edit(
            (LOOP, f"    losses = []\n{LOOP}"),
            (
                BACKWARD,
                "losses.append(loss_of(model, batch) * share)\n        losses[-1].backward(retain_graph=True)",
            ),
        ),
        fails=("one_at_a_time",),
    ),
    wrong(
        "retains_the_graph",
        "While one micro-batch is computed, what forward saved of the one before is still there: its backward comes "
        "later, or is told to retain the graph. Call backward first, which frees it.",
        edit((BACKWARD, "loss = loss_of(model, batch) * share\n        loss.backward(retain_graph=True)")),
        edit(
            (LOOP, f"    waiting = []\n{LOOP}"),
            (
                BACKWARD,
                "loss = loss_of(model, batch) * share\n        [each.backward() for each in waiting]\n"
                "        waiting = [loss]",
            ),
            ("    trained = [", "    [each.backward() for each in waiting]\n    trained = ["),
        ),
    ),
    wrong(
        "concatenates",
        "You put the micro-batches together to the batch that was too large for the memory.",
        edit((LOOP, "    for batch in [tuple(map(torch.cat, zip(*micro_batches)))] if micro_batches else []:\n")),
    ),
    wrong(
        "counts_wrap_around",
        "You count rows in a dtype that is too narrow for them: a uint8 ends at 255. Take int64, torch's own choice.",
        edit(("for inputs, _ in micro_batches))", "for inputs, _ in micro_batches), dtype=torch.uint8)")),
        fails=("unequal_numbers",),
    ),
    wrong(
        "calls_more_than_once",
        "You call loss_of more often than once for each micro-batch: for a log, or for each row. The value for a log "
        "is what you call backward of, `loss.item()`, and a micro-batch fits as a whole.",
        edit((BACKWARD, f"logged = loss_of(model, batch).item()\n        assert logged == logged\n        {BACKWARD}")),
        edit((BACKWARD, f"with torch.no_grad():\n            loss_of(model, batch)\n        {BACKWARD}")),
        edit(
            (
                BACKWARD,
                "share = 1 / rows.item()\n        for inputs, targets in zip(*(each.split(1) for each in batch)):\n"
                "            (loss_of(model, (inputs, targets)) * share).backward()",
            )
        ),
        fails=("each_once",),
    ),
    wrong(
        "gone_without_micro_batches",
        "A rank without micro-batches makes fewer calls than the others, which wait for it. It has to join every "
        "reduction, with zeros.",
        edit(("    rows =", "    if not micro_batches:\n        return\n    rows =")),
        edit((MISSING, ""), ("if each.requires_grad]", "if each.grad is not None]")),
    ),
    wrong(
        "none_without_micro_batches",
        "A rank without micro-batches adds its zeros, but keeps None where the others have a gradient. Everybody takes "
        "the result.",
        edit((MISSING, "        grad = torch.zeros_like(p) if p.grad is None else p.grad\n"), ("(p.grad)", "(grad)")),
    ),
    wrong(
        "share_in_float32",
        "Your share of the rows is in float32: whole numbers that are divided as tensors give that. A gradient in "
        "float64 loses half of its digits by it. Divide Python's numbers (`rows.item()`).",
        edit((SHARE, "len(batch[0]) / rows")),
        rounds_to=torch.float32,
    ),
    wrong(
        "zeros_in_float32",
        "Your zeros for a gradient that is missing are in float32, whatever the parameters are in. Take zeros_like(p).",
        edit(("torch.zeros_like(p)", "torch.zeros(p.shape)")),
    ),
    wrong(
        "counts_in_the_loop",
        "You all_reduce the number of rows once for each micro-batch, and ranks have different numbers of these. Count "
        "before the first of them, once.",
        edit((COUNTED, ""), (WEIGHED, f"    {COUNTED}{WEIGHED}")),
    ),
    wrong(
        "rows_of_the_first",
        "You take every micro-batch to have as many rows as the first one of its rank. Ask each.",
        edit((SHARE, "len(micro_batches[0][0]) / rows.item()")),
    ),
    wrong(
        "numbers_for_rows",
        "You weigh a micro-batch by its numbers, `numel()`. Where rows are longer a row then counts for more: its "
        "weight is its rows, `len(inputs)`.",
        edit(("sum(len(inputs)", "sum(inputs.numel()"), (SHARE, "batch[0].numel() / rows.item()")),
        edit(
            ("sum(len(inputs) for inputs, _", "sum(targets.numel() for _, targets"),
            (SHARE, "batch[1].numel() / rows.item()"),
        ),
    ),
    wrong(
        "length_of_the_pair",
        "len(batch) is 2 everywhere, because a micro-batch is a pair. Its rows are len(batch[0]).",
        edit((SHARE, "len(batch) / rows.item()")),
    ),
    wrong(
        "on_rank_0_only",
        "Only one rank gets the sum, and the others keep their own part of it: their models drift apart. An all_reduce "
        "gives it to all.",
        edit((REDUCED, REDUCED.replace("all_reduce(p.grad)", "reduce(p.grad, 0)"))),
    ),
    wrong(
        "makes_batches_require_gradients",
        "Afterwards the caller's inputs or targets require a gradient, and each has one in its memory. Gradients are "
        "wanted of the parameters alone.",
        edit((WEIGHED, f"        batch[0].requires_grad_()\n{WEIGHED}")),
        edit((WEIGHED, f"        batch[1].requires_grad_()\n{WEIGHED}")),
        edit((WEIGHED, f"        [each.requires_grad_() for each in batch]\n{WEIGHED}")),
    ),
    wrong(
        "sets_the_mode",
        "You set the mode of the model, with train() or eval(). That is the caller's choice.",
        edit((TRAINED, f"    model.train()\n{TRAINED}")),
        edit((TRAINED, f"    model.eval()\n{TRAINED}")),
        edit((WEIGHED, f"        model.train()\n{WEIGHED}")),
        edit((WEIGHED, f"        model.eval()\n{WEIGHED}")),
    ),
    wrong(
        "empties_the_list",
        "You take the micro-batches off the caller's list, and the next epoch has none.",
        edit((LOOP, "    while micro_batches:\n        batch = micro_batches.pop()\n")),
        edit((TRAINED, f"    micro_batches.clear()\n{TRAINED}")),
    ),
    wrong(
        "hooks_left",
        "Your hooks are still there after the call, and scale or reduce in the next one, too. Keep what registering "
        "returns, and call remove() of each.",
        edit((TRAINED, f"    [p.register_hook(abs) for p in model.parameters() if p.requires_grad]\n{TRAINED}")),
        edit((TRAINED, f"    model.register_forward_hook(lambda *_: None)\n{TRAINED}")),
        edit((TRAINED, f"    model.register_full_backward_pre_hook(lambda *_: None)\n{TRAINED}")),
    ),
    wrong(
        "switches_requires_grad",
        "Afterwards another parameter is frozen than before, or none. Ask requires_grad, and leave it as it is.",
        edit((REDUCED, f"{REDUCED}\n    model.requires_grad_()")),
        edit(("    rows =", "    model.requires_grad_()\n    rows =")),
        edit((REDUCED, f"{REDUCED}\n    model.requires_grad_(False)")),
    ),
    wrong(
        "takes_the_step",
        "You change the parameters. That is the optimizer's work: only the gradients are asked for.",
        edit((REDUCED, f"{REDUCED}\n        p.data -= 0.1 * p.grad")),
    ),
    wrong(
        "zeros_for_frozen",
        "A frozen parameter gets a gradient of zeros, everywhere or on ranks without micro-batches. Leave out what "
        "does not require a gradient.",
        edit((" if each.requires_grad]", "]")),
        edit((" if each.requires_grad]", " if each.requires_grad or not micro_batches]")),
    ),
)
