"""Other right ways to write `accumulate_gradients`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autograder.bank import Alternative

MicroBatches = Sequence[tuple[Tensor, Tensor]]


def divides_gradients_before_the_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Sums are accumulated, and gradients are divided by the count that is known at the end of the group."""
    losses: list[float] = []
    summed, count = 0.0, 0
    optimizer.zero_grad(set_to_none=False)
    for index, (inputs, targets) in enumerate(micro_batches, start=1):
        loss = F.cross_entropy(model(inputs).transpose(1, 2), targets, reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        summed, count = summed + float(loss), count + int((targets >= 0).sum())
        if index % every == 0 or index == len(micro_batches):
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= count
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            losses.append(summed / count)
            summed, count = 0.0, 0
    return losses


def keeps_sums_outside_of_grad(
    model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """torch.autograd.grad returns each gradient; their sums are put into `.grad` only for the step."""
    parameters = list(model.parameters())
    losses, queue = [], list(micro_batches)
    while queue:
        group, queue = queue[:every], queue[every:]
        sums = [torch.zeros_like(parameter) for parameter in parameters]
        count = int(torch.cat([targets.flatten() for _, targets in group]).ne(-100).sum())
        loss = 0.0
        for inputs, targets in group:
            known = targets != -100
            log_p = model(inputs).log_softmax(-1)[known]
            share = -log_p.gather(1, targets[known][:, None]).sum() / count
            for each, grad in zip(sums, torch.autograd.grad(share, parameters), strict=True):
                each += grad
            loss += share.item()
        for parameter, each in zip(parameters, sums, strict=True):
            parameter.grad = each
        optimizer.step()
        losses.append(loss)
    return losses


def means_weighted_by_tokens(
    model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """Means, each weighted by its share of the group's tokens; micro-batches of padding only are left out."""
    losses = []
    for start in range(0, len(micro_batches), every):
        group = [(x, t) for x, t in micro_batches[start : start + every] if (t != -100).any()]
        counts = [float((targets != -100).sum()) for _, targets in group]
        optimizer.zero_grad()
        step_loss = torch.zeros(())
        for (inputs, targets), tokens in zip(group, counts, strict=True):
            mean = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            (mean * (tokens / sum(counts))).backward()  # type: ignore[no-untyped-call]
            step_loss = step_loss + mean.detach() * (tokens / sum(counts))
        optimizer.step()
        losses.append(step_loss.item())
    return losses


def gradients_as_a_function(
    model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """torch.func: the loss as a function of the parameters, which returns its gradient beside its value."""
    losses = []
    for start in range(0, len(micro_batches), every):
        group = micro_batches[start : start + every]
        count = int(sum((targets != -100).sum() for _, targets in group))
        optimizer.zero_grad(set_to_none=False)
        total = 0.0
        for inputs, targets in group:
            values = {name: parameter.detach() for name, parameter in model.named_parameters()}
            grads, share = torch.func.grad_and_value(_share)(values, model, inputs, targets)
            for name, parameter in model.named_parameters():
                grad = grads[name] / count
                parameter.grad = grad if parameter.grad is None else parameter.grad + grad
            total += share.item() / count
        optimizer.step()
        losses.append(total)
    return losses


def gradients_of_each_sequence(
    model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: MicroBatches, every: int
) -> list[float]:
    """torch.func.vmap: a gradient for each sequence of a micro-batch, from one forward pass; then their sum."""
    of_each = torch.func.vmap(torch.func.grad_and_value(_share), in_dims=(None, None, 0, 0))
    losses = []
    for start in range(0, len(micro_batches), every):
        group = micro_batches[start : start + every]
        count = sum(int((targets != -100).sum()) for _, targets in group)
        sums = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
        total = 0.0
        for inputs, targets in group:
            values = {name: parameter.detach() for name, parameter in model.named_parameters()}
            grads, shares = of_each(values, model, inputs[:, None], targets[:, None])
            for name, each in sums.items():
                each += grads[name].sum(0) / count
            total += shares.sum().item() / count
        for name, parameter in model.named_parameters():
            parameter.grad = sums[name]
        optimizer.step()
        losses.append(total)
    return losses


def _share(parameters: dict[str, Tensor], model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    logits = torch.func.functional_call(model, parameters, (inputs,))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


ALTERNATIVES = (
    Alternative(name="divides_gradients_before_the_step", answer=divides_gradients_before_the_step),
    Alternative(name="keeps_sums_outside_of_grad", answer=keeps_sums_outside_of_grad),
    Alternative(name="means_weighted_by_tokens", answer=means_weighted_by_tokens),
    Alternative(name="gradients_as_a_function", answer=gradients_as_a_function),
    Alternative(name="gradients_of_each_sequence", answer=gradients_of_each_sequence),
)
