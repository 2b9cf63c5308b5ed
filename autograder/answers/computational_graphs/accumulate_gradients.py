"""Right and wrong ways to write `accumulate_gradients`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.computational_graphs.accumulate_gradients import accumulate_gradients

MicroBatches = Sequence[tuple[Tensor, Tensor]]
Optimizer = torch.optim.Optimizer


def softmax_minus_one_hot(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """The derivative of the group's loss by the logits, by hand in float64; the loss as a mean over all tokens."""
    losses = []
    for start in range(0, len(micro_batches), every):
        group = micro_batches[start : start + every]
        count = int(torch.cat([targets.flatten() for _, targets in group]).ne(-100).sum())
        optimizer.zero_grad()
        of_tokens = []
        for inputs, targets in group:
            known = targets != -100
            logits, label = model(inputs)[known], targets[known][:, None]
            p = logits.detach().double().softmax(-1)
            of_tokens.append(-p.gather(1, label).log())
            slope = p.scatter_add(1, label, -torch.ones_like(p)) / count
            logits.backward(slope.to(logits.dtype))
        optimizer.step()
        losses.append(torch.cat(of_tokens).mean().item())
    return losses


def divides_gradients_before_the_step(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Sums are accumulated, and gradients are divided by the count that is known at the end of the group."""
    losses: list[float] = []
    total, count = 0.0, 0
    optimizer.zero_grad(set_to_none=False)
    for index, (inputs, targets) in enumerate(micro_batches, start=1):
        loss = F.cross_entropy(model(inputs).transpose(1, 2), targets, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        total, count = total + float(loss), count + int((targets >= 0).sum())
        if index % every == 0 or index == len(micro_batches):
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= count
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            losses.append(total / count)
            total, count = 0.0, 0
    return losses


def means_weighted_by_tokens(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Means, each weighted by its share of the group's tokens; micro-batches of padding only are left out."""
    losses = []
    for start in range(0, len(micro_batches), every):
        group = [(x, t) for x, t in micro_batches[start : start + every] if (t != -100).any()]
        counts = [int((targets != -100).sum()) for _, targets in group]
        optimizer.zero_grad()
        total = torch.zeros(())
        for (inputs, targets), count in zip(group, counts, strict=True):
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()) * (count / sum(counts))
            loss.backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()
        optimizer.step()
        losses.append(total.item())
    return losses


def gradients_of_each_sequence(
    model: nn.Module, optimizer: Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """torch.func: a gradient for each sequence of a micro-batch, from one forward pass; their sums go into `.grad`."""
    of_each = torch.func.vmap(torch.func.grad_and_value(_summed), in_dims=(None, None, 0, 0))
    losses, trained = [], {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for start in range(0, len(micro_batches), every):
        group = micro_batches[start : start + every]
        count = sum(int((targets != -100).sum()) for _, targets in group)
        sums = {name: torch.zeros_like(parameter) for name, parameter in trained.items()}
        total = 0.0
        for inputs, targets in group:
            values = {name: parameter.detach() for name, parameter in trained.items()}
            grads, shares = of_each(values, model, inputs[:, None], targets[:, None])
            for name, each in sums.items():
                each += grads[name].sum(0) / count
            total += shares.sum().item() / count
        optimizer.zero_grad()
        for name, parameter in trained.items():
            parameter.grad = sums[name]
        optimizer.step()
        losses.append(total)
    return losses


def _summed(parameters: dict[str, Tensor], model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    logits = torch.func.functional_call(model, parameters, (inputs,))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


RIGHT = (
    right(softmax_minus_one_hot, independent="the closed form of the loss's derivative by the logits"),
    right(divides_gradients_before_the_step),
    right(means_weighted_by_tokens),
    right(gradients_of_each_sequence),
)

by_group = partial(edited, accumulate_gradients)
by_index = partial(edited, divides_gradients_before_the_step)
weighted = partial(edited, means_weighted_by_tokens)

TOKENS, EACH = "int((targets != PADDED).sum())", "        for inputs, targets in group:"
CLEAR, FORWARD, STEP = "        optimizer.zero_grad()\n", "logits = model(inputs)", "        optimizer.step()"
MEAN, OVER = (', reduction="sum"', ""), "loss = summed / count"
ROWS, VALUE, REPORT = "logits.flatten(0, 1), targets.flatten()", "total += loss.item()", "losses.append(total)"
COUNT = f"        count = sum({TOKENS} for _, targets in group)\n"
SKIP = FORWARD, f"if bool((targets == PADDED).all()):\n                continue\n            {FORWARD}"
FROM_0 = ", start=1", ""
FORWARD_BY_INDEX = "loss = F.cross_entropy"
COUNT_NOW = (OVER, f"count += {TOKENS}\n            {OVER}")
PADDING_TOO = (" if (t != -100).any()", "")
NO_LAST_GROUP = (" or index == len(micro_batches)", "")
TUTORIAL = (
    ('reduction="sum")', 'reduction="mean") / every'),
    NO_LAST_GROUP,
    ("parameter.grad /= count", "pass"),
    ("total / count", "total"),
)
NOT_CLEAN = ("    optimizer.zero_grad(set_to_none=False)\n    for", "    for")
TORCH = ("losses = []", "import torch\n\n    losses = []")
CROPPED = """\
known = (targets != PADDED).any(dim=0).nonzero().flatten().tolist()
            inputs, targets = (each[:, : max(known, default=0) + 1] for each in (inputs, targets))
            logits = model(inputs)"""
BIG_BATCH = (
    EACH,
    """\
        by_length = {}
        for each in group:
            by_length.setdefault(each[1].shape[1], []).append(each)
        for inputs, targets in [map(torch.cat, zip(*alike)) for alike in by_length.values()]:""",
)
COPY_GRADIENTS = """\
        for parameter, other in zip(model.parameters(), twin.parameters()):
            parameter.grad = other.grad"""
OVERWRITE = """\
known = targets.flatten() != PADDED
            targets[targets == PADDED] = 0
            """
AGAIN = f"""\
with torch.no_grad():
                logits = model(inputs)
            total += F.cross_entropy({ROWS}, reduction="sum").item() / count"""

CLEAR_FIRST = """\
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = None
"""
CLEAR_TRAINED = """\
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.grad = None
"""
AFTERWARDS = """\
with torch.no_grad():
            again = [F.cross_entropy(model(x).flatten(0, 1), t.flatten(), reduction="sum") for x, t in group]
        losses.append(sum(again).item() / count)"""

WRONG = (
    wrong(
        "mean_of_means",
        "You average the means of the micro-batches, so a token in a small micro-batch weighs more than one in a "
        "large one. Sum the losses of all tokens in the group and divide once, by the number of tokens.",
        by_group(MEAN, (OVER, "loss = summed / len(group)")),
        by_group(MEAN, (OVER, "loss = summed / len(group)"), SKIP),
        weighted(("(count / sum(counts))", "(1 / len(group))")),
    ),
    wrong(
        "divides_by_every",
        "Dividing each mean by `every` is right only where all micro-batches have the same number of tokens and the "
        "group is full. The last group may be smaller, and its step comes out too short. Divide sums by the group's "
        "tokens.",
        by_group(MEAN, (OVER, "loss = summed / every")),
        by_group(MEAN, (OVER, "loss = summed / every"), SKIP),
        by_group(MEAN, (OVER, "loss = summed / every"), (REPORT, "losses.append(total * every / len(group))")),
    ),
    wrong(
        "tutorial_loop",
        "This is the loop of many tutorials: mean / every, backward, and a step when the index says so. It equals the "
        "big batch only where all micro-batches have the same number of tokens and the list ends with a full group. "
        "Take the group first: sums over its own count, and a step at its end, however many it has.",
        by_index(*TUTORIAL, NOT_CLEAN),
        by_index(*TUTORIAL),
        by_index(*TUTORIAL, ("/ every", "/ every\n        loss = loss.nan_to_num()")),
    ),
    wrong(
        "counts_sequences",
        "You count sequences: `len(targets)` is n, and targets is (n, T). The loss has one term for each token, and "
        "with padding sequences have different numbers of them. Divide or weight by tokens: the targets that are not "
        "-100.",
        by_group((TOKENS, "len(targets)")),
        weighted(("int((targets != -100).sum())", "len(targets)")),
        weighted(("int((targets != -100).sum())", "len(targets)"), PADDING_TOO),
    ),
    wrong(
        "padding_counts_as_tokens",
        "Padded tokens contribute no loss, but you count them when you divide, so the loss and the step shrink with "
        "the padding. Count the targets that are not -100.",
        by_group((TOKENS, "targets.numel()")),
    ),
    wrong(
        "takes_class_0_for_padding",
        "You count the targets above 0, but 0 is a class like any other; -100 alone marks padding.",
        by_group((TOKENS, "int((targets > 0).sum())")),
    ),
    wrong(
        "mean_of_no_tokens",
        "Your weights are right. But in a micro-batch of padding only, the mean is 0/0 = nan, and nan times its weight "
        "0 is nan still, so the loss of the whole step is nan. (The parameters survive: torch sends no gradient to "
        "ignored targets.) Use reduction='sum' and divide by the group's count.",
        weighted(PADDING_TOO),
    ),
    wrong(
        "adds_means",
        "`.grad` adds up what each backward brings. If each brings the gradient of a mean, also of one by hand, their "
        "sum is as many times too long as there are micro-batches. Divide each sum by the tokens of the whole group.",
        by_group(MEAN, (OVER, "loss = summed")),
        by_group(MEAN, (OVER, "loss = summed"), (REPORT, "losses.append(total / len(group))")),
        by_group(MEAN, (OVER, "loss = summed"), SKIP),
        by_group((OVER, f"loss = summed / max(1, {TOKENS})")),
    ),
    wrong(
        "counts_while_it_goes",
        "You count in the same loop in which you divide: the first micro-batch is divided by its own tokens, the next "
        "by more, so the same token weighs less the later it comes. Count the group before its first backward.",
        by_group((f"sum({TOKENS} for _, targets in group)", "0"), COUNT_NOW),
        by_group(("losses = []", "losses, count = [], 0"), (COUNT, ""), COUNT_NOW),
    ),
    wrong(
        "counts_all_groups",
        "You divide by the tokens of the whole list. Each step is the mean over its own group, so each group has a "
        "count of its own; yours makes the steps shorter the more groups there are.",
        by_group(("_, targets in group", "_, targets in micro_batches")),
    ),
    wrong(
        "last_group_dropped",
        "You step when `every` micro-batches are complete, and the list may end before that: the last, smaller group "
        "is computed for nothing or not at all. It needs a step too.",
        by_group(("len(micro_batches), every", "len(micro_batches) - every + 1, every")),
        by_index(NO_LAST_GROUP),
    ),
    wrong(
        "clears_in_the_loop",
        "zero_grad before each micro-batch throws away what the ones before it have accumulated: your step sees only "
        "the last. Clear once per group, before its first backward.",
        by_group((FORWARD, f"optimizer.zero_grad()\n            {FORWARD}")),
    ),
    wrong(
        "never_clears",
        "backward adds to `.grad`, and nothing clears it for you: your second step contains the first group's "
        "gradients once more, of all parameters or of those that you forget, such as the optimizer's second group. "
        "Call zero_grad at the start of each group.",
        by_group((CLEAR, "")),
        by_group((CLEAR, CLEAR_FIRST)),
    ),
    wrong(
        "clears_only_after_steps",
        "Between groups you clear, but what the caller had left in `.grad` goes into your first step. Clear before the "
        "first backward of a group, not only after the step.",
        by_group((CLEAR, ""), (STEP, f"{STEP}\n{CLEAR}")),
    ),
    wrong(
        "steps_each_time",
        "You step after every micro-batch. Then the second one is computed at other parameters than the first, and "
        "momentum decays too often: many small steps are not one big one. Step once, after the group.",
        by_group((FORWARD, f"optimizer.zero_grad()\n            {FORWARD}"), (STEP, f"    {STEP}")),
        by_group((STEP, f"    {STEP}")),
    ),
    wrong(
        "steps_once_more",
        "After the loop you step once more, whether a group was left or not. Where gradients are None nothing moves, "
        "but where they are zeros momentum does, and a schedule that counts steps is one ahead. Step only for a group.",
        by_group(("return losses", "optimizer.zero_grad()\n    optimizer.step()\n    return losses")),
        by_index(("return losses", "optimizer.step()\n    return losses")),
    ),
    wrong(
        "steps_at_the_wrong_index",
        "You step where `index % every == 0`, and your index begins with 0: there a group begins, none ends. Your "
        "first step comes after one micro-batch, and all groups after it are shifted. Count from 1, or take the "
        "groups as slices of the list.",
        by_index(FROM_0),
        by_index(FROM_0, ("== len(micro_batches)", "== len(micro_batches) - 1")),
        by_index(FROM_0, NO_LAST_GROUP),
        by_index(FROM_0, *TUTORIAL),
    ),
    wrong(
        "skips_the_step_with_the_padding",
        "A micro-batch of padding only is left out, and with it all that your loop does afterwards. If it is the last "
        "of its group, that is the step. Leave out the forward and backward pass alone, or nothing: a sum over no "
        "tokens is 0.",
        by_index(
            (FORWARD_BY_INDEX, f"if bool((targets < 0).all()):\n            continue\n        {FORWARD_BY_INDEX}")
        ),
    ),
    wrong(
        "loss_after_the_step",
        "The steps are right, but you compute the loss that you return at the parameters after the step. The loss of a "
        "step is the one whose gradient it took; you have its parts from the forward passes that were needed anyway.",
        by_group(TORCH, (REPORT, AFTERWARDS)),
    ),
    wrong(
        "changes_the_mode",
        "The model came in a mode, train or eval, and your function sets another, or sets one and restores it at the "
        "end. Dropout and batch norm compute something else meanwhile. Which mode is right is the caller's choice: "
        "leave it alone.",
        by_group(("losses = []", "losses = []\n    model.train()")),
        by_group(("losses = []", "losses = []\n    model.eval()")),
        by_group(
            ("losses = []", "losses = []\n    model.eval()"), ("return losses", "model.train()\n    return losses")
        ),
        by_group(
            ("losses = []", "losses, was = [], model.training\n    model.train()"),
            ("return losses", "model.train(was)\n    return losses"),
        ),
    ),
    wrong(
        "returns_tensors",
        "Your losses are right, but not all of them are Python floats, as the docstring promises: take a number out of "
        "a tensor with .item(), and return a list.",
        by_group((VALUE, "total = total + loss.detach()")),
        fails=("losses_are_floats",),
    ),
    wrong(
        "returns_nothing",
        "The steps are right, but the function returns None: the losses that it has collected must be returned at its "
        "end.",
        by_group(("return losses", "pass")),
    ),
    wrong(
        "clears_what_is_trained",
        "You clear the gradients of the parameters that require one. A frozen parameter can hold one from before, and "
        "the optimizer steps wherever there is one. optimizer.zero_grad() clears all that it holds.",
        by_group((CLEAR, CLEAR_TRAINED)),
    ),
    wrong(
        "expects_a_gradient_everywhere",
        "You use `.grad` of every parameter. It is None where no backward pass brought one: before the first, and in "
        "parameters that are frozen or that the model does not use. Ask for None, or leave that to "
        "optimizer.zero_grad(), and divide the loss instead of gradients.",
        by_index(("if parameter.grad is not None:", "if parameter is not None:")),
    ),
    wrong(
        "loss_of_the_last_micro_batch",
        "The step is right. The loss that you return is what your variable held at the end, the share of the last "
        "micro-batch. Add up the shares of the group.",
        by_group((REPORT, "losses.append(loss.item())")),
    ),
    wrong(
        "loss_of_each_micro_batch",
        "The steps are right, but you return a number for each micro-batch. One for each step is asked for: add up the "
        "shares of a group, and append their sum after the step.",
        by_group((VALUE, "losses.append(loss.item())"), (f"        {REPORT}\n", "")),
    ),
    wrong(
        "reports_another_loss",
        "The steps are right, but the losses that you return are not those whose gradients you took. The loss of a "
        "step is the mean over the tokens of its group, neither their sum nor a mean of means: add up the values of "
        "the very losses on which you call backward.",
        by_group((VALUE, f"total += F.cross_entropy({ROWS}).item() / len(group)")),
        by_group((VALUE, "total += summed.item()")),
    ),
    wrong(
        "classes_come_last",
        "F.cross_entropy wants the classes in dimension 1. Your logits are (n, T, C), so it takes T for the number of "
        "classes, and the targets do not fit. Make each token a row, with flatten(0, 1) of the logits and flatten() of "
        "the targets.",
        by_group((ROWS, "logits, targets")),
    ),
    wrong(
        "no_sequences_for_the_model",
        "Your model gets no batch of sequences: tokens of several in one row, or the padding left out, or sequences "
        "and tokens in each other's place. A token may depend on others of its sequence. Hand `inputs` over as they "
        "came, and make rows of the logits.",
        by_group((FORWARD, "logits = model(inputs.flatten(0, 1)[None])")),
        by_group((FORWARD, "logits = model(inputs.transpose(0, 1)).transpose(0, 1)")),
        by_group((FORWARD, CROPPED)),
        by_group((FORWARD, "logits = model(inputs.flatten(0, 1))"), (ROWS, "logits, targets.flatten()")),
        by_group(
            (FORWARD, "known = targets != PADDED\n            logits = model(inputs[known])"),
            (ROWS, "logits, targets[known]"),
        ),
    ),
    wrong(
        "number_of_classes_typed",
        "You write down how many classes there are. The logits know: flatten(0, 1) keeps their last dimension.",
        by_group((ROWS, "logits.view(-1, 4), targets.flatten()")),
    ),
    wrong(
        "reshaped_for_moved",
        "Your logits have the shape (n, C, T), but by reshape, which fills it with the numbers in the order in which "
        "they lie: logits of different tokens are mixed. Move the dimension with transpose(1, 2), or make each token a "
        "row with flatten(0, 1).",
        by_group((ROWS, "logits.reshape(len(logits), logits.shape[2], -1), targets")),
    ),
    wrong(
        "concatenates",
        "The numbers are those of the big batch because you built it: its activations are in memory all at once, which "
        "is what accumulation is there to avoid. Run the model on one micro-batch at a time.",
        by_group(TORCH, (EACH, "        for inputs, targets in [map(torch.cat, zip(*group))]:")),
        by_group(TORCH, BIG_BATCH),
        by_group(  # out of sight, on a copy of the model
            ("losses = []", "import copy\n    import torch\n\n    losses = []"),
            BIG_BATCH,
            (CLEAR, "        twin = copy.deepcopy(model)\n        twin.zero_grad()\n"),
            (FORWARD, "logits = twin(inputs)"),
            (STEP, f"{COPY_GRADIENTS}\n{STEP}"),
        ),
    ),
    wrong(
        "one_backward_at_the_end",
        "You call the model on one micro-batch at a time, but its graph stays alive until the group ends, so that "
        "memory is that of the big batch: backward comes only once, for the summed loss, or something else holds the "
        "graphs. Call backward right after each forward, and keep numbers only.",
        by_group(
            ("loss.backward()", "pass"),
            (VALUE, "total = total + loss"),
            (STEP, f"        total.backward()\n{STEP}"),
            (REPORT, "losses.append(total.item())"),
        ),
    ),
    wrong(
        "retains_the_graph",
        "backward frees what forward saved, unless it is told to retain the graph. Yours is: one micro-batch's "
        "activations are still there while the next one's are computed. Leave retain_graph out; each graph is "
        "differentiated once.",
        by_group(("loss.backward()", "loss.backward(retain_graph=True)")),
    ),
    wrong(
        "runs_the_model_twice",
        "Each micro-batch goes through the model twice, where one forward pass is enough: the loss whose backward you "
        "call is also the number that you return. Add up its value as you go.",
        by_group(TORCH, (VALUE, AGAIN)),
    ),
    wrong(
        "overwrites_padding",
        "The step is right, but you wrote classes over the -100 in the caller's own targets: in the next epoch nobody "
        "can tell padding from tokens. Let the loss ignore them, or write into a new tensor.",
        by_group((FORWARD, OVERWRITE + FORWARD), ('reduction="sum")', 'reduction="none")[known].sum()')),
    ),
    wrong(
        "empties_the_list",
        "The step is right, but you take the micro-batches out of the caller's list: nothing is left for a second "
        "epoch. Take slices of the list, or copy it first.",
        by_group(
            ("for start in range(0, len(micro_batches), every):", "while micro_batches:"),
            ("micro_batches[start : start + every]", "[micro_batches.pop(0) for _ in micro_batches[:every]]"),
        ),
    ),
)
