"""Wrong ways to write `adaptive_step`: state, memory, dtype and refusals here; the formulas in modules beside it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.optimizers import adaptive_step_adadelta, adaptive_step_squares
from autograder.misconceptions.optimizers.adaptive_step_parts import State, directions, kept, refuse
from course.exercise import Answer

Rule = dict[str, Any]  # what is handed over beside rule, param, grad and state


def _d(rule: str, grad: Tensor, state: State, numbers: Rule) -> Tensor:
    """The right direction, and the right refusals before it."""
    decay = numbers.get("decay", 0.9)
    refuse(rule, numbers["lr"], decay)
    return directions()[rule](grad, state, decay, numbers.get("eps", 1e-8))


def makes_a_new_parameter(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> Tensor:
    """`param = param - ...` gives the name to another tensor."""
    param = param - numbers["lr"] * _d(rule, grad, state, numbers)
    return param


def assigns_data(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """`param.data = ...` puts other memory under the tensor: who shares the old one sees nothing."""
    param.data = param.data - numbers["lr"] * _d(rule, grad, state, numbers)


def forgets(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """Accumulators in local variables: every step is the first."""
    param.sub_(numbers["lr"] * _d(rule, grad, {}, numbers))


def starts_anew(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """Zeros are made in every step."""
    state.clear()
    param.sub_(numbers["lr"] * _d(rule, grad, state, numbers))


def shared() -> Answer:
    """Accumulators beside the function: emptied where a state is empty, and the same for every parameter."""
    common: State = {}

    def answer(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
        if not state:
            common.clear()
            state["started"] = torch.ones(())
        param.sub_(numbers["lr"] * _d(rule, grad, common, numbers))

    return answer


def on_the_parameter(rule: str, param: Any, grad: Tensor, state: State, **numbers: Any) -> None:
    """Accumulators as an attribute of the tensor: they travel with it, but `state` is empty."""
    if not hasattr(param, "accumulators"):
        param.accumulators = {}
    param.sub_(numbers["lr"] * _d(rule, grad, param.accumulators, numbers))


def keeps_more(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """The last gradient as well."""
    param.sub_(numbers["lr"] * _d(rule, grad, state, numbers))
    state["last_gradient"] = grad.clone()


def keeps_the_direction(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """The last move as well."""
    state["d"] = _d(rule, grad, state, numbers)
    param.sub_(numbers["lr"] * state["d"])


def two_for_all(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """Both of Adadelta's accumulators are made for every rule."""
    kept(state, "u", param)
    param.sub_(numbers["lr"] * _d(rule, grad, state, numbers))


def with_state_in(dtype: torch.dtype) -> Answer:
    """Accumulators in one dtype, whatever that of the parameter."""

    def answer(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
        for name in ("v", "u") if rule == "adadelta" else ("v",):
            kept(state, name, torch.zeros(param.shape, dtype=dtype))
        param.sub_(numbers["lr"] * _d(rule, grad, state, numbers))

    return answer


def computes_in_float32(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """The step is rounded to float32, while the state has the right dtype."""
    param.sub_((numbers["lr"] * _d(rule, grad, state, numbers)).float())


def one_rate(mean: bool) -> Answer:
    """One square for the whole tensor: its mean, or the squared norm."""

    def answer(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
        size = ((grad * grad).mean() if mean else (grad * grad).sum()).sqrt()
        d = _d(rule, size, state, numbers)  # of a tensor that holds one number
        param.sub_(numbers["lr"] * d * grad / size)

    return answer


def steps_in_the_gradient(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
    """The step is made in the memory of the gradient."""
    grad.copy_(_d(rule, grad, state, numbers))
    param.sub_(grad, alpha=numbers["lr"])


def with_constants(**fixed: float) -> Answer:
    """Numbers of the signature's defaults written into the body."""

    def answer(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
        refuse(rule, numbers["lr"], numbers.get("decay", 0.9))
        param.sub_(numbers["lr"] * _d(rule, grad, state, {**numbers, **fixed}))

    return answer


def refuses(*what: str) -> Answer:
    """Everything right, but of the three things that make no sense it refuses only these."""

    def answer(rule: str, param: Tensor, grad: Tensor, state: State, **numbers: Any) -> None:
        lr, decay = numbers["lr"], numbers.get("decay", 0.9)
        refuse(
            rule if "rule" in what else "adagrad",
            lr if "lr" in what else 0.0,
            decay if "decay" in what else 0.0,
        )
        known = rule if rule in directions() else "adadelta"
        param.sub_(lr * directions()[known](grad, state, decay, numbers.get("eps", 1e-8)))

    return answer


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
        name="shared_between_parameters",
        witnesses=(shared(),),
        hint="Two parameters share their accumulators: they live outside of `state`. Each parameter has a state of "
        "its own, which the caller hands over; what you remember belongs there and nowhere else.",
    ),
    Misconception(
        name="state_elsewhere",
        witnesses=(on_the_parameter,),
        hint="Your steps are right, but `state` stays empty: the accumulators hang on the parameter. A checkpoint "
        "saves what is in `state`, so training would go on from zeros.",
    ),
    Misconception(
        name="keeps_too_much",
        witnesses=(keeps_more, keeps_the_direction, two_for_all),
        hint="Your state holds more tensors than the rule needs. What is used in this step only is a local variable; "
        "for a large model each further tensor is as many bytes as the model. One for Adagrad and RMSprop, two for "
        "Adadelta.",
    ),
    Misconception(
        name="state_in_another_dtype",
        witnesses=(with_state_in(torch.float32), with_state_in(torch.float64)),
        hint="Your accumulators have one dtype, whatever that of the parameter: torch.zeros(shape) makes float32. In "
        "float64 that loses half the digits, and with float64 for float32 parameters the state is twice as large. "
        "torch.zeros_like(param) takes shape, dtype and device from param.",
    ),
    Misconception(
        name="computes_in_float32",
        witnesses=(computes_in_float32,),
        hint="Somewhere your step passes through float32 (float(), a tensor made without a dtype), and the parameters "
        "are in float64. Python numbers take part in any dtype: no conversion is needed.",
    ),
    Misconception(
        name="one_rate_for_the_whole_tensor",
        witnesses=(one_rate(mean=True), one_rate(mean=False)),
        hint="You collect one number for the whole tensor, its norm or mean square. These rules are adaptive because "
        "every single number has its own: square element by element, and sum over time, not over the tensor.",
    ),
    Misconception(
        name="changes_the_gradient",
        witnesses=(steps_in_the_gradient,),
        fails=("gradients_unchanged",),
        hint="Your steps are right, but they are computed in the gradient's own memory. The caller may still need it: "
        "use operations without an underscore on grad.",
    ),
    Misconception(
        name="constants_written_in",
        witnesses=(with_constants(eps=1e-8), with_constants(decay=0.9), with_constants(decay=0.9, eps=1e-8)),
        hint="A number stands in your code where an argument belongs: decay is not always 0.9, eps not always 1e-8.",
    ),
    Misconception(
        name="not_refused",
        witnesses=(refuses(), refuses("lr", "decay"), refuses("rule", "decay"), refuses("rule", "lr")),
        fails=("refusals",),
        hint="Your steps are right, but something that makes no sense goes through: a rule of another name, an lr "
        "below 0, a decay of 1 (the average would never move) or below 0. Each raises ValueError for every rule, in a "
        "sentence that says what must hold and what came.",
    ),
    *adaptive_step_squares.MISCONCEPTIONS,
    *adaptive_step_adadelta.MISCONCEPTIONS,
)
