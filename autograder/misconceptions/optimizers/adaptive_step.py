"""Wrong ways to write `adaptive_step`: state, memory and dtype, then what is collected, then Adadelta."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers.adaptive_step_averages import AVERAGES
from autograder.misconceptions.optimizers.adaptive_step_parts import (
    State,
    average,
    bare_root,
    inside,
    kept,
    made,
    outside,
    quotient,
    total,
    two_averages,
    without_root,
)
from course.performing.exercise import Answer
from course.reference.optimizers.adaptive_step import adaptive_step as right


def makes_a_new_parameter(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> Tensor:
    """`param = param - ...` gives the name to another tensor."""
    param = param.clone()
    made()(rule, param, grad, state, **numbers)
    return param


def assigns_data(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """`param.data = ...` puts other memory under the tensor: who shares the old one sees nothing."""
    param.data = makes_a_new_parameter(rule, param, grad, state, **numbers)


def forgets(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """Accumulators in local variables: every step is the first."""
    made()(rule, param, grad, {}, **numbers)


def starts_anew(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """Zeros are made in every step."""
    state.clear()
    made()(rule, param, grad, state, **numbers)


def two_for_all(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """Both of Adadelta's accumulators are made for every rule."""
    kept(state, "u", param)
    made()(rule, param, grad, state, **numbers)


def with_state_in(dtype: torch.dtype) -> Answer:
    """Accumulators in one dtype, whatever that of the parameter."""

    def answer(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
        for name in ("v", "u") if rule == "adadelta" else ("v",):
            kept(state, name, torch.zeros(param.shape, dtype=dtype))
        made()(rule, param, grad, state, **numbers)

    return answer


def changes_the_gradient(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """The gradient is squared where it lies."""
    right(rule, param, grad, state, **numbers)
    grad.square_()


def upside_down(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """Gradients over moves."""
    v, u = kept(state, "v", g), kept(state, "u", g)
    v.copy_(average(v, g, decay))
    d = g * inside(v, eps) / inside(u, eps)
    u.copy_(average(u, d, decay))
    return d


def averages_gradients_twice(g: Tensor, state: State, decay: float, eps: float) -> Tensor:
    """u takes squared gradients, as v does; before it is used it is one step behind."""
    v, u = kept(state, "v", g), kept(state, "u", g)
    v.copy_(average(v, g, decay))
    d = g * inside(u, eps) / inside(v, eps)
    u.copy_(average(u, g, decay))
    return d


def lr_ignored(rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, **numbers: Any) -> None:
    """As in the paper, which has no learning rate."""
    made()(rule, param, grad, state, lr=1.0 if rule == "adadelta" else lr, **numbers)


def lr_in_the_moves(rule: str, param: Tensor, grad: Tensor, state: State, *, lr: float, **numbers: Any) -> None:
    """u averages what was really subtracted, lr included."""
    adadelta = two_averages(moves=lambda u, d, decay: average(u, lr * d, decay))
    made(adadelta=adadelta)(rule, param, grad, state, lr=lr, **numbers)


def makes_the_state_first(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """Looks at the numbers when the state is there."""
    kept(state, "v", param)
    if rule == "adadelta":
        kept(state, "u", param)
    given = {"squares": state["v"]} | ({"squared_moves": state["u"]} if rule == "adadelta" else {})
    right(rule, param, grad, given, **numbers)


MISCONCEPTIONS = (
    Misconception(
        name="not_in_place",
        witnesses=(makes_a_new_parameter, assigns_data),
        hint="The caller's parameter does not move. `param = param - ...` makes a new tensor and gives it the name; "
        "`param.data = ...` puts new memory under the old name. Change the memory itself: `-=`, sub_, copy_.",
    ),
    Misconception(
        name="nothing_is_remembered",
        witnesses=(forgets, starts_anew),
        hint="Every step of yours is a first step: the accumulators are made anew, or never come into `state`. Make "
        "them only where `state` does not have them yet, and leave in it what this step made of them.",
    ),
    Misconception(
        name="keeps_too_much",
        witnesses=(two_for_all,),
        hint="Your state holds more tensors than the rule needs: one for Adagrad and RMSprop, two for Adadelta. For a "
        "large model each further tensor is as many bytes as the model.",
    ),
    Misconception(
        name="state_in_another_dtype",
        witnesses=(with_state_in(torch.float32), with_state_in(torch.float64)),
        rounds_to=torch.float32,
        hint="Your accumulators have one dtype, whatever that of the parameter: torch.zeros(shape) makes float32. In "
        "float64 that loses half the digits, and with float64 for float32 parameters the state is twice as large. "
        "torch.zeros_like(param) takes shape, dtype and device from param.",
    ),
    Misconception(
        name="changes_the_gradient",
        witnesses=(changes_the_gradient,),
        fails=("gradients_unchanged",),
        hint="Your steps are right, but they are computed in the gradient's own memory. The caller may still need it: "
        "use operations without an underscore on grad.",
    ),
    Misconception(
        name="not_refused",
        witnesses=(made(),),
        fails=("refusals", "refused_before_any_change"),
        hint="Your steps are right, but something that makes no sense goes through: a rule of another name, an lr "
        "below 0, a decay of 1 (the average would never move) or below 0. Each raises ValueError for every rule, in a "
        "sentence that says what must hold and what came.",
    ),
    Misconception(
        name="refuses_too_late",
        witnesses=(makes_the_state_first,),
        fails=("refused_before_any_change",),
        hint="You refuse all that is to be refused, but `state` is no longer empty then, or more has changed. If the "
        "caller mends the call and goes on with this state, it holds tensors of a step that never was. All `raise` "
        "come first.",
    ),
    *AVERAGES,
    Misconception(
        name="eps_not_beside_the_root",
        witnesses=(
            made(quotient(total, inside)),
            made(rmsprop=quotient(average, inside)),
            made(quotient(total, inside), quotient(average, inside)),
            made(quotient(total, bare_root), quotient(average, bare_root)),
        ),
        hint="In torch's Adagrad and RMSprop eps stands outside of the root: sqrt(v) + eps. Under it sqrt(eps) is what "
        "small gradients are compared with, so that 1e-8 acts like 1e-4; only Adadelta has it there. Without eps a "
        "number that has had no gradient yet is moved by 0 / 0, which is nan.",
    ),
    Misconception(
        name="no_root_of_squares",
        witnesses=(
            made(quotient(total, without_root), quotient(average, without_root)),
            made(quotient(lambda v, g, decay: v + g), quotient(lambda v, g, decay: decay * v + (1 - decay) * g)),
        ),
        hint="All three rules collect squares, and divide by a root of what they have. Without the root g / v has the "
        "unit of 1 / g, and small gradients make enormous steps; without the squares gradients of both signs cancel, "
        "or their root is nan. g / sqrt(v) has no unit, so lr alone sets how far a number moves.",
    ),
    Misconception(
        name="divides_before_it_updates",
        witnesses=(
            made(quotient(total, stale=True), quotient(average, stale=True)),
            made(quotient(total, stale=True), quotient(average, stale=True), two_averages(stale=True)),
        ),
        hint="You divide by the squares as they were before this step. At the first step they are 0, and g / eps is "
        "enormous. Bring the squares up to date first: the gradient is measured by a root that knows it.",
    ),
    Misconception(
        name="ratio_upside_down",
        witnesses=(made(adadelta=upside_down),),
        hint="Your Adadelta has the gradients' root above and the moves' root below. Units tell: a move must come out "
        "in the unit of the parameter, so a root of moves stands above, and the gradient's unit cancels below.",
    ),
    Misconception(
        name="adadelta_eps_outside",
        witnesses=(
            made(adadelta=two_averages(numerator=outside, denominator=outside)),
            made(adadelta=two_averages(denominator=outside)),
            made(adadelta=two_averages(numerator=bare_root)),
            made(adadelta=two_averages(numerator=bare_root, denominator=outside)),
        ),
        hint="In Adadelta eps stands inside both roots, as its paper and torch have it: sqrt(u + eps) over "
        "sqrt(v + eps). It is more than a guard against 0: u starts from 0, so the first move is sqrt(eps) times a "
        "ratio. Outside the root it would be eps times that, and without eps above nothing ever moves.",
    ),
    Misconception(
        name="adadelta_lr_in_another_place",
        witnesses=(lr_ignored, lr_in_the_moves),
        hint="The paper's Adadelta has no lr; this function does as torch does: the move d is multiplied by lr when it "
        "is subtracted, and lr = 1 is the paper's. u takes d itself: with lr in it, lr would come back through the "
        "numerator and act again at each step.",
    ),
    Misconception(
        name="moves_never_kept",
        witnesses=(made(adadelta=two_averages(moves=lambda u, d, decay: u)), made(adadelta=averages_gradients_twice)),
        hint="Adadelta's second average takes the squares of the moves: after each step u must take that step's d^2, "
        "and be written into the state. If it stays 0, the numerator is sqrt(eps) for ever; if it takes g^2, the step "
        "has not the unit and size of a parameter.",
    ),
)
