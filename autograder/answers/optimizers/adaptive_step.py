"""Right and wrong ways to write `adaptive_step`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.optimizers.adaptive_step import adaptive_step

State = dict[str, Tensor]


def _refuse(rule: str, lr: float, decay: float) -> None:
    if rule not in ("adagrad", "rmsprop", "adadelta"):
        raise ValueError(f"unknown rule {rule}")
    if lr < 0 or decay < 0 or decay >= 1:
        raise ValueError(f"lr must be at least 0 and decay in [0, 1), got {lr} and {decay}")


def torchs_own(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """An optimizer of torch's for each step, which takes its state from the dict. Only Adagrad's begins with some."""
    _refuse(rule, lr, decay)
    leaf = param.detach()
    leaf.grad = grad.clone()
    own: torch.optim.Optimizer
    if rule == "adagrad":
        own = torch.optim.Adagrad([leaf], lr=lr, eps=eps)
    elif rule == "rmsprop":
        own = torch.optim.RMSprop([leaf], lr=lr, alpha=decay, eps=eps)
    else:
        own = torch.optim.Adadelta([leaf], lr=lr, rho=decay, eps=eps)
    state.update({**own.state[leaf], **state})
    own.state[leaf] = state
    own.step()


def a_branch_for_each_rule(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """Formulas, of which no rule shares a line with another but the last."""
    _refuse(rule, lr, decay)
    if rule == "adagrad":
        total = state.setdefault("total", torch.zeros_like(param))
        total += grad**2
        d = grad / (total.sqrt() + eps)
    elif rule == "rmsprop":
        mean = state.setdefault("mean", torch.zeros_like(param))
        mean.copy_(decay * mean + (1 - decay) * grad**2)
        d = grad / (mean.sqrt() + eps)
    else:
        v = state.setdefault("v", torch.zeros_like(param))
        u = state.setdefault("u", torch.zeros_like(param))
        v.copy_(decay * v + (1 - decay) * grad**2)
        d = grad * (u + eps).sqrt() / (v + eps).sqrt()
        u.copy_(decay * u + (1 - decay) * d**2)
    param -= lr * d


def keeps_roots(
    rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, decay: float = 0.9, eps: float = 1e-8
) -> None:
    """Keeps roots in place of squares, and a Python number beside them: `hypot` adds up the squares of two roots."""
    _refuse(rule, lr, decay)
    loose: Any = state
    loose["age"] = loose.get("age", 0) + 1
    root = state.setdefault("root", torch.zeros_like(param))
    if rule == "adagrad":
        torch.hypot(root, grad, out=root)
    else:
        torch.hypot(decay**0.5 * root, (1 - decay) ** 0.5 * grad, out=root)
    d = grad / (root + eps)
    if rule == "adadelta":
        moved = state.setdefault("moved", torch.zeros_like(param))
        floor = torch.full_like(param, eps**0.5)
        d = torch.hypot(moved, floor) / torch.hypot(root, floor) * grad
        torch.hypot(decay**0.5 * moved, (1 - decay) ** 0.5 * d, out=moved)
    param[...] = param - lr * d


RIGHT = (
    right(torchs_own, independent="torch.optim.Adagrad, RMSprop and Adadelta"),
    right(a_branch_for_each_rule),
    right(keeps_roots),
)

together = partial(edited, adaptive_step)
branches = partial(edited, a_branch_for_each_rule)
TORCHS_EPS = (
    "    _refuse(",
    '    eps = {"adagrad": 1e-10, "adadelta": 1e-6}.get(rule, 1e-8) if eps is None else eps\n    _refuse(',
)

STEP = "param -= lr * d"
TOTAL, TOTAL_ROOT = "total += grad**2", "(total.sqrt() + eps)"
MEAN, MEAN_ROOT = "decay * mean + (1 - decay) * grad**2", "(mean.sqrt() + eps)"
SQUARES = "v.mul_(decay).addcmul_(grad, grad, value=1 - decay)"  # in RMSprop and Adadelta
MOVE = "param.addcdiv_(grad, root, value=-lr)"  # in Adagrad and RMSprop
MOVES = "u.mul_(decay).addcmul_(d, d, value=1 - decay)"
ROOT = "v.sqrt().add_(eps)"  # in both too
ABOVE, BELOW = "(u + eps).sqrt()", "(v + eps).sqrt()"
CHECKS = "    at_least_zero(lr=lr, eps=eps)\n    below_one(decay=decay, momentum=momentum)\n"
FIRST = '    v = state["squares"]\n'
OLD = FIRST, f"{FIRST}    old = v.clone()\n"

WRONG = (
    wrong(
        "not_in_place",
        "The memory of the caller's parameter is never written to. `param = param - ...` makes a new tensor and gives "
        "it the name; `param.data = ...` puts new memory under the old name. Change the memory itself: `-=`, sub_, "
        "copy_.",
        branches((STEP, "param = param - lr * d")),
        branches((STEP, "param.data = param - lr * d")),
    ),
    wrong(
        "nothing_is_remembered",
        "Every step of yours is a first step: it finds no accumulator of the steps before it, because they are made "
        "anew each time, or never come into `state`. Make them only where `state` does not have them yet, and leave "
        "in it what this step made of them.",
        together(("        if name not in state:\n            state", "        state")),
        together(("    for name in", "    state = {}\n    for name in")),
    ),
    wrong(
        "remembers_outside_the_state",
        "What you remember is not in `state`, which only says where it is. Two copies of one state then write into the "
        "same memory, and a state that is loaded in another process finds none. Put the tensors themselves into it.",
        together(
            ("@torch.no_grad()", "MEMORY = {}\n\n\n@torch.no_grad()"),
            (
                "    for name in",
                '    state = MEMORY.setdefault(state.setdefault("key", len(MEMORY)), {})\n    for name in',
            ),
        ),
    ),
    wrong(
        "keeps_too_much",
        "Your state holds more tensors than the rule needs: one for Adagrad and RMSprop, two for Adadelta. For a "
        "large model each further tensor is as many bytes as the model.",
        together(("*ACCUMULATORS[rule]", '"squares", "squared_moves"')),
    ),
    wrong(
        "state_in_another_dtype",
        "Your accumulators have another dtype than the parameter: torch.zeros(shape) makes float32. In "
        "float64 that loses half the digits, and with float64 for float32 parameters the state is twice as large. "
        "torch.zeros_like(param) takes shape, dtype and device from param.",
        together(("torch.zeros_like(param)", "torch.zeros(param.shape)")),
        together(("torch.zeros_like(param)", "torch.zeros(param.shape, dtype=torch.float64)")),
        rounds_to=torch.float32,
    ),
    wrong(
        "changes_the_gradient",
        "All else is right, but a gradient is not what it was before the step. The caller may still need it: use "
        "operations without an underscore on grad.",
        together((MOVE, "param.sub_(grad.div_(root), alpha=lr)")),
        fails=("gradients_unchanged",),
    ),
    wrong(
        "not_refused",
        "All else is right, but something that makes no sense goes through, or raises another error than a ValueError. "
        "A rule of another name, an lr below 0, a decay of 1 (the average would never move), above 1 or below 0: each "
        "raises ValueError for every rule, in a sentence that says what must hold and what came.",
        branches(("    _refuse(rule, lr, decay)\n", "")),
        fails=("refusals", "refused_before_any_change"),
    ),
    wrong(
        "refuses_too_late",
        "You refuse all that is to be refused, but after one of these calls the parameter, the gradient or the state "
        "is not what it was. If the caller mends the call and goes on with them, they hold something of a step that "
        "never was. All `raise` come first.",
        together((CHECKS, ""), (FIRST, CHECKS + FIRST)),
        fails=("refused_before_any_change",),
    ),
    wrong(
        "adagrad_averages",
        "Your Adagrad averages the squares, or lets the old ones fade. Adagrad adds them up and never forgets "
        "one: its steps become shorter the longer it runs, and that is how it can reach a minimum in spite of noise. "
        "The average is RMSprop's.",
        branches((TOTAL, "total.copy_(decay * total + (1 - decay) * grad**2)")),
        branches((TOTAL, "total.copy_(decay * total + grad**2)")),
    ),
    wrong(
        "rmsprop_sums",
        "Your RMSprop adds up the squares without forgetting any, which is Adagrad. RMSprop was made to forget: "
        "v = decay v + (1 - decay) g^2.",
        branches((MEAN, "mean + grad**2")),
    ),
    wrong(
        "no_moving_average",
        "A moving average is decay times the old value *plus* (1 - decay) times the new square: with decay = 0.9 "
        "it remembers about ten steps. Exchanged, the weights forget at once; without 1 - decay it settles at 1 / (1 - "
        "decay) times the mean square.",
        branches((MEAN, "decay * mean + grad**2")),
        branches((MEAN, "(1 - decay) * mean + decay * grad**2")),
        together((SQUARES, "v.mul_(decay).addcmul_(grad, grad)")),
        together((SQUARES, "v.mul_(1 - decay).addcmul_(grad, grad, value=decay)")),
        together((SQUARES, "v.mul_(decay).addcmul_(grad, grad)"), (MOVES, "u.mul_(decay).addcmul_(d, d)")),
        together(
            (SQUARES, "v.mul_(1 - decay).addcmul_(grad, grad, value=decay)"),
            (MOVES, "u.mul_(1 - decay).addcmul_(d, d, value=decay)"),
        ),
    ),
    wrong(
        "root_of_something_negative",
        "In RMSprop your parameters become nan where there is a gradient. Print v: it is a mean of squares, and "
        "nothing in it is below 0, of which the root would be nan. v = decay v + (1 - decay) g^2, with a plus.",
        branches((MEAN, "decay * mean - (1 - decay) * grad**2")),
        together((SQUARES, "v.mul_(decay).addcmul_(grad, grad, value=decay - 1)")),
    ),
    wrong(
        "mean_of_sizes",
        "You collect |g| in place of g^2, and divide by that without a root. The root of the mean square is more than "
        "the mean of |g|: large gradients count for more in it.",
        branches((MEAN, "decay * mean + (1 - decay) * grad.abs()"), (MEAN_ROOT, "(mean + eps)")),
        branches((TOTAL, "total += grad.abs()"), (TOTAL_ROOT, "(total + eps)")),
        branches(
            (TOTAL, "total += grad.abs()"),
            (TOTAL_ROOT, "(total + eps)"),
            (MEAN, "decay * mean + (1 - decay) * grad.abs()"),
            (MEAN_ROOT, "(mean + eps)"),
        ),
    ),
    wrong(
        "steps_uphill",
        "Your steps go uphill: the gradient points to where the loss grows. lr d is *subtracted* from the parameter.",
        branches((STEP, "param += lr * d")),
    ),
    wrong(
        "not_from_zero",
        "Your average begins with the first square. Here, as in torch, it begins with 0: the first v is (1 - "
        "decay) g^2, and the first step of RMSprop is longer than lr by 1 / sqrt(1 - decay).",
        branches(('"mean", torch.zeros_like(param)', '"mean", grad**2')),
        branches(
            ('"mean", torch.zeros_like(param)', '"mean", grad**2'), ('"v", torch.zeros_like(param)', '"v", grad**2')
        ),
    ),
    wrong(
        "eps_not_beside_the_root",
        "In torch's Adagrad and RMSprop eps stands outside of the root: sqrt(v) + eps. Under it sqrt(eps) is what "
        "small gradients are compared with, so that 1e-8 acts like 1e-4; only Adadelta has it there. A floor, the "
        "larger of sqrt(v) and eps, is no sum. Without eps a number that has had no gradient yet is moved by 0 / 0, "
        "which is nan.",
        together((ROOT, "v.sqrt().clamp_(min=eps)")),
        together((ROOT, "(v + eps).sqrt()")),
        together((ROOT, "v.sqrt()")),
        branches((TOTAL_ROOT, "(total + eps).sqrt()")),
        branches((MEAN_ROOT, "(mean + eps).sqrt()")),
        together((ROOT, f"{ROOT}.clamp_(min=1e-12)")),
    ),
    wrong(
        "no_root_of_squares",
        "All three rules collect squares, and divide by a root of what they have. Without the root g / v has the "
        "unit of 1 / g, and small gradients make enormous steps; without the squares gradients of both signs cancel, "
        "or their root is nan. g / sqrt(v) has no unit, so lr alone sets how far a number moves.",
        together((ROOT, "(v + eps)")),
        branches((TOTAL, "total += grad"), (MEAN, "decay * mean + (1 - decay) * grad")),
    ),
    wrong(
        "divides_before_it_updates",
        "You divide by the squares as they were before this step, in one of the rules at least. At the first step they "
        "are 0, and g / eps is enormous. Bring the squares up to date first: the gradient is measured by a root that "
        "knows it.",
        branches((f"{TOTAL}\n        d = grad / {TOTAL_ROOT}", f"d = grad / {TOTAL_ROOT}\n        {TOTAL}")),
        branches(
            (
                f"mean.copy_({MEAN})\n        d = grad / {MEAN_ROOT}",
                f"d = grad / {MEAN_ROOT}\n        mean.copy_({MEAN})",
            )
        ),
        together(OLD, ("((v + eps)", "((old + eps)")),
        together(OLD, (ROOT, "old.sqrt().add_(eps)")),
        together(OLD, (ROOT, "old.sqrt().add_(eps)"), ("((v + eps)", "((old + eps)")),
    ),
    wrong(
        "ratio_upside_down",
        "Your Adadelta has the gradients' root above and the moves' root below. Units tell: a move must come out "
        "in the unit of the parameter, so a root of moves stands above, and the gradient's unit cancels below.",
        branches((f"{ABOVE} / {BELOW}", f"{BELOW} / {ABOVE}")),
    ),
    wrong(
        "adadelta_eps_outside",
        "In Adadelta eps stands inside both roots, as its paper and torch have it: sqrt(u + eps) over "
        "sqrt(v + eps). It is more than a guard against 0: u starts from 0, so the first move is sqrt(eps) times a "
        "ratio. Outside the root it would be eps times that, and without eps above nothing ever moves.",
        branches((ABOVE, "(u.sqrt() + eps)"), (BELOW, "(v.sqrt() + eps)")),
        branches((BELOW, "(v.sqrt() + eps)")),
        branches((ABOVE, "u.sqrt()")),
        branches((ABOVE, "u.sqrt()"), (BELOW, "(v.sqrt() + eps)")),
    ),
    wrong(
        "adadelta_lr_in_another_place",
        "The paper's Adadelta has no lr; this function does as torch does: the move d is multiplied by lr when it "
        "is subtracted, and lr = 1 is the paper's. u takes d itself: with lr in it, lr would come back through the "
        "numerator and act again at each step.",
        branches((STEP, 'param -= d if rule == "adadelta" else lr * d')),
        branches(("(1 - decay) * d**2", "(1 - decay) * (lr * d) ** 2")),
    ),
    wrong(
        "moves_never_kept",
        "Adadelta's second average takes the squares of the moves: after each step u must take that step's d^2, "
        "and be written into the state. If it stays 0, the numerator is sqrt(eps) for ever; if it takes g^2, the step "
        "has not the unit and size of a parameter.",
        together((MOVES, "pass")),
        together((MOVES, "u.mul_(decay).addcmul_(g, g, value=1 - decay)")),
    ),
    wrong(
        "other_defaults",
        "Where the caller names no decay or no eps, yours is another than the signature's: 0.9 and 1e-8.",
        branches(("decay: float = 0.9", "decay: float = 0.99")),
        branches(("eps: float = 1e-8", "eps: float = 1e-6")),
        branches(("eps: float = 1e-8", "eps: float | None = None"), TORCHS_EPS),
    ),
    wrong(
        "refuses_0",
        "You refuse an lr or a decay of 0. Both are allowed: with lr = 0 the state alone is brought up to date, and an "
        "average with decay = 0 remembers the present square alone.",
        branches(("if lr < 0", "if lr <= 0")),
        branches(("decay < 0 or", "decay <= 0 or")),
        branches(("lr < 0 or decay < 0 or", "lr <= 0 or decay <= 0 or")),
    ),
    wrong(
        "skips_a_gradient_of_zeros",
        "You do nothing where all of a gradient is 0. In RMSprop and Adadelta the averages go down all the same.",
        together((FIRST, f"    if not grad.any():\n        return\n{FIRST}")),
    ),
    wrong(
        "nothing_noted_at_a_rate_of_0",
        "Where lr is 0 you leave not only the parameter alone but the state too. A schedule may begin with 0, and its "
        "later steps divide by squares of all gradients so far: bring the state up to date at every rate.",
        branches(("    _refuse(rule, lr, decay)\n", "    _refuse(rule, lr, decay)\n    if lr == 0:\n        return\n")),
    ),
)
