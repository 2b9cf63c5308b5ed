"""Right and wrong ways to write `sgd_step`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.optimizers.sgd_step import sgd_step


def _refuse(params: list[Tensor], grads: list[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
    if lr < 0 or weight_decay < 0 or not 0 <= momentum < 1:
        raise ValueError(f"lr {lr}, momentum {momentum} or weight_decay {weight_decay} is out of range")
    if [p.shape for p in params] != [g.shape for g in grads]:
        raise ValueError("gradients must have the shapes of their parameters")


def torchs_own(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """An optimizer of torch's for each parameter and step, which takes its state from the dict."""
    _refuse(params, grads, lr, momentum, weight_decay)
    for p, g, kept in zip(params, grads, state, strict=True):
        leaf = p.detach()
        leaf.grad = g.clone()
        own = torch.optim.SGD(
            [leaf], lr=lr, momentum=momentum, nesterov=nesterov and momentum > 0, weight_decay=weight_decay
        )
        own.state[leaf] = kept
        own.step()


def buffers_from_zeros(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """mu 0 + g is the first gradient, so zeros are as good as a copy; the buffer is changed in place."""
    _refuse(params, grads, lr, momentum, weight_decay)
    for p, grad, kept in zip(params, grads, state, strict=True):
        g = grad + weight_decay * p
        if momentum > 0:
            b = kept.setdefault("b", torch.zeros_like(p))
            b.mul_(momentum).add_(g)
            g = g + momentum * b if nesterov else b
        p -= lr * g


def new_buffers_each_time(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """Formulas that make new tensors, stored again under their key; the parameter is copied into."""
    _refuse(params, grads, lr, momentum, weight_decay)
    for p, grad, kept in zip(params, grads, state, strict=True):
        g = grad + weight_decay * p
        if momentum != 0:
            if "b" in kept:
                b = momentum * kept["b"] + g
                kept["b"] = b
            else:
                b = kept["b"] = g.clone()
            g = g + momentum * b if nesterov else b
        p.copy_(p - lr * g)


RIGHT = (
    right(torchs_own, independent="torch.optim.SGD"),
    right(buffers_from_zeros),
    right(new_buffers_each_time),
)

torch_like = partial(edited, sgd_step)
in_place = partial(edited, buffers_from_zeros)
formulas = partial(edited, new_buffers_each_time)

NO_DECAY = (" + weight_decay * p", "")
STEP = "p -= lr * g"
KEPT = 'kept["momentum"].mul_(momentum).add_(g)'
UPDATE = "b.mul_(momentum).add_(g)"

WRONG = (
    wrong(
        "decay_beside_the_momentum",
        "You shrink the parameter beside the momentum: the buffer knows nothing of the decay. (AdamW does that, "
        "and calls it decoupled.) In SGD the decay is part of the gradient, g + wd p, before the buffer takes it in.",
        in_place(NO_DECAY, (STEP, "p -= lr * (g + weight_decay * p)")),
        in_place(NO_DECAY, (STEP, "p -= lr * g\n        p *= 1 - lr * weight_decay")),
    ),
    wrong(
        "decay_with_another_rate",
        "Your decay is multiplied by lr twice, or never. It is part of the gradient: g + wd p, without a rate of "
        "its own, and the step multiplies that by lr like everything else. A step of size 0 moves nothing.",
        in_place(("weight_decay * p", "lr * weight_decay * p")),
        in_place(NO_DECAY, (STEP, "p -= lr * g + weight_decay * p")),
    ),
    wrong(
        "decay_of_the_other_sign",
        "Your decay makes parameters larger: its sign is the wrong one. wd p is *added* to the gradient, and the step, "
        "which is subtracted, then leads towards 0.",
        in_place(("grad + weight_decay", "grad - weight_decay")),
    ),
    wrong(
        "first_step_damped",
        "Your first buffer is (1 - mu) g, and what is missing there is missing in all later ones. Here, as in "
        "torch.optim.SGD, the first gradient counts in full: b = g.",
        formulas(("g.clone()", "(1 - momentum) * g")),
    ),
    wrong(
        "first_gradient_lost_or_twice",
        "After the first step the buffer must be g. Yours is zeros, which this step never adds to, or it becomes "
        "g and then mu g + g on top. Begin with zeros and add in every step, or begin with g and add from the next "
        "step on (`else`).",
        torch_like(("g.clone()", "torch.zeros_like(g)")),
        torch_like(("else:\n                kept", "kept")),
    ),
    wrong(
        "a_mean_for_a_sum",
        "You average: mu b + (1 - mu) g, which is what Adam does. Momentum in SGD is a running sum, mu b + g: on "
        "a steady slope it grows to 1 / (1 - mu) gradients, and that is its gain.",
        in_place((UPDATE, "b.mul_(momentum).add_((1 - momentum) * g)")),
        formulas(('kept["b"] + g', 'kept["b"] + (1 - momentum) * g')),
    ),
    wrong(
        "steps_uphill",
        "Your steps go uphill: the gradient points to where the loss grows. Either the direction is added to the "
        "parameter, or the buffer subtracts the gradient and the step subtracts the buffer. The buffer adds; the only "
        "minus is in the parameter's line.",
        in_place((STEP, "p += lr * g")),
        in_place((UPDATE, "b.mul_(momentum).sub_(g)")),
        formulas(('kept["b"] + g', 'kept["b"] - g')),
    ),
    wrong(
        "sum_not_kept",
        "No step of yours uses the sum that the step before it has made: it knows its own gradient, or the first one, "
        "alone. Store the new sum in `state` under its key, or change the kept tensor in place, and begin anew only "
        "where there is none. (mul and add make a new tensor, mul_ and add_ change the old.)",
        formulas(('                kept["b"] = b\n', "")),
        torch_like((KEPT, 'kept["momentum"].mul(momentum).add_(g)')),
        torch_like((KEPT, 'kept["momentum"].mul_(momentum).add(g)')),
        torch_like(('"momentum" not in kept', '"b" not in kept')),
        formulas(('b = kept["b"] = g.clone()', "b = g.clone()")),
    ),
    wrong(
        "rate_in_the_buffer",
        "Your buffer sums lr times the gradients. While the rate stays the same nobody sees it, but under a "
        "schedule old gradients go on moving the parameter with the rate of their own day. Keep the buffer free of lr "
        "and multiply the direction.",
        in_place(("grad + weight_decay * p", "lr * (grad + weight_decay * p)"), (STEP, "p -= g")),
    ),
    wrong(
        "nesterov_looks_back",
        "With nesterov your steps are those of momentum alone. Is the option used? g plus mu times the *old* buffer is "
        "just the new buffer. Make the new buffer first, then go one step further: g + mu b with b as it is now.",
        in_place((UPDATE, f"old = b.clone()\n            {UPDATE}"), ("momentum * b if", "momentum * old if")),
    ),
    wrong(
        "nesterov_with_other_weights",
        "Your Nesterov direction is mu b, g + b or (1 + mu) b. It is g + mu b: mu stands at the buffer, and nowhere "
        "else. The new gradient already is in b; together it counts 1 + mu times. So the name g must still stand for "
        "the gradient when you get there, and not for the buffer.",
        in_place(("g + momentum * b if", "momentum * b if")),
        in_place(("g + momentum * b if", "g + b if")),
        formulas(("b = momentum", "b = g = momentum")),
    ),
    wrong(
        "not_in_place",
        "The memory of the tensors in `params` is never written to. `p = p - ...` makes a new tensor and gives it "
        "the name p, `params[i] = ...` puts one into the list, `p.data = ...` puts new memory under the old name; the "
        "model still holds the old. Write into it: `p -= ...`, copy_, or another operation that ends in an underscore.",
        in_place((STEP, "p = p - lr * g")),
        in_place((STEP, "p.data = p - lr * g")),
    ),
    wrong(
        "one_state_for_all",
        "All parameters share one buffer, so each goes where the others were going. `state` has a dict for each "
        "parameter: walk through parameters, gradients and dicts together.",
        torch_like(("        g = grad.add", "        kept = state[0]\n        g = grad.add")),
    ),
    wrong(
        "buffer_is_the_gradient",
        "Your first buffer is not equal to the gradient, it *is* the gradient: one tensor with two names. When "
        "the caller writes the next gradient into it, the buffer is lost. Start from a copy: clone().",
        torch_like(("g.clone()", "g")),
        torch_like(("g.clone()", "g"), (KEPT, 'kept["momentum"] = momentum * kept["momentum"] + g')),
    ),
    wrong(
        "keeps_more_than_the_buffer",
        "The values are right. But `state` keeps a tensor that no later step reads: without momentum nothing need "
        "be kept, with momentum the buffer alone. What only this step needs is a local name; each kept tensor costs as "
        "much memory as the model.",
        in_place(("if momentum > 0", "if True")),
        in_place((UPDATE, f'{UPDATE}\n            kept["last"] = g')),
        in_place((UPDATE, f"{UPDATE}\n            p.grad = g.clone()")),
    ),
    wrong(
        "buffer_in_the_default_dtype",
        "Your buffer is in float32 where its parameter is not, perhaps from the second step on. torch.zeros makes "
        "float32, whatever the parameter is, and `.float()` converts. A buffer takes shape, dtype and device from its "
        "parameter, in every step: zeros_like, or a copy of the gradient.",
        in_place(("torch.zeros_like(p)", "torch.zeros(p.shape)")),
        in_place(("torch.zeros_like(p)", "torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32))")),
        formulas(('momentum * kept["b"]', 'momentum * (kept["b"].float() if p.itemsize == 2 else kept["b"])')),
        formulas(
            (
                "g = grad + weight_decay * p",
                "g = grad\n        if weight_decay:\n            g = g.float() + weight_decay * p",
            )
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "gradient_changed",
        "All else is right, but a gradient is not what it was before the step: `g += ...`, add_ and the like write "
        "into the caller's tensor. Anyone who adds up two backward passes, or reports the norm of the gradients, then "
        "reads something else. `g = g + ...` makes a new tensor.",
        torch_like(("grad.add(", "grad.add_(")),
        fails=("gradients_unchanged",),
    ),
    wrong(
        "not_refused",
        "All else is right, but something that makes no sense is accepted, or raises another error than a "
        "ValueError. Check rate, momentum, decay and every shape at the top, before anything is changed; `assert` is "
        "for one's own mistakes, and vanishes under `python -O`.",
        in_place(("    _refuse(params, grads, lr, momentum, weight_decay)\n", "")),
        fails=("refusals", "refused_before_any_change"),
    ),
    wrong(
        "refuses_too_late",
        "You refuse all that is to be refused. But after one of these calls a parameter, a gradient or a state is not "
        "what it was: the model has taken part of a step, and its caller does not know which. Look at all pairs of "
        "parameter and gradient first, in a loop of its own, then step.",
        torch_like(
            ("    same_shapes(params, grads)\n", ""),
            ("        g = grad.add", "        same_shapes([param], [grad])\n        g = grad.add"),
        ),
        fails=("refused_before_any_change",),
    ),
    wrong(
        "refuses_too_much",
        "You refuse a rate or a weight_decay that is allowed. A schedule may begin with a rate of 0, and that step "
        "feeds the buffer as any other; neither has a largest value. Refuse what is below 0.",
        in_place(("if lr < 0", "if lr <= 0")),
        in_place(("if lr < 0", "if lr > 1 or lr < 0")),
        in_place(("weight_decay < 0 or", "not 0 <= weight_decay <= 1 or")),
    ),
    wrong(
        "refuses_nesterov_without_momentum",
        "You refuse nesterov where the momentum is 0 (as torch.optim.SGD does). Here the option then is of no effect, "
        "and the step is the plain one.",
        in_place(("    _refuse(", "    if nesterov and not momentum:\n        raise ValueError\n    _refuse(")),
    ),
)
