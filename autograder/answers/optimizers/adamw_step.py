"""Right and wrong ways to write `adamw_step`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import Alternative, right, wrong
from autograder.edits import edited
from course.reference.optimizers.adamw_step import adamw_step

Betas = tuple[float, float]


def _refuse(params: list[Tensor], grads: list[Tensor | None], lr: float, betas: Betas) -> None:
    if lr < 0:
        raise ValueError(f"lr must be at least 0, got {lr}")
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must lie in [0, 1), got {betas}")
    if any(g is not None and g.shape != p.shape for p, g in zip(params, grads, strict=True)):
        raise ValueError("gradients must have the shapes of their parameters")


def formulas_with_a_step_tensor(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[Any],
    *,
    lr: float,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """The paper's lines, each a new tensor; the step is a float32 tensor, and so are the corrections."""
    _refuse(params, grads, lr, betas)
    for p, g, kept in zip(params, grads, state, strict=True):
        if g is None:
            continue
        if not kept:
            kept.update(t=torch.tensor(0.0), mean=torch.zeros_like(p), square=torch.zeros_like(p))
        kept["t"] = kept["t"] + 1
        kept["mean"] = betas[0] * kept["mean"] + (1 - betas[0]) * g
        kept["square"] = betas[1] * kept["square"] + (1 - betas[1]) * g**2
        m_hat = kept["mean"] / (1 - betas[0] ** kept["t"])
        v_hat = kept["square"] / (1 - betas[1] ** kept["t"])
        p -= lr * (m_hat / (v_hat.sqrt() + eps) + weight_decay * p)


def corrections_in_the_rate(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[Any],
    *,
    lr: float,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """The form before section 2.1 of the Adam paper, with eps scaled so that the value is Algorithm 1's; lerp_."""
    _refuse(params, grads, lr, betas)
    for i, g in enumerate(grads):
        if g is not None:
            kept, p = state[i], params[i]
            kept["t"] = kept.get("t", 0) + 1
            m = kept.setdefault("m", torch.zeros_like(p)).lerp_(g, 1 - betas[0])
            v = kept.setdefault("v", torch.zeros_like(p)).lerp_(g.square(), 1 - betas[1])
            scale = (1 - betas[1] ** kept["t"]) ** 0.5
            rate = lr * scale / (1 - betas[0] ** kept["t"])
            p.mul_(1 - lr * weight_decay)
            p.addcdiv_(m, v.sqrt().add_(eps * scale), value=-rate)


def torchs_own(
    params: list[Tensor],
    grads: list[Tensor | None],
    state: list[Any],
    *,
    lr: float,
    betas: Betas = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """An optimizer of torch's for each parameter and step, which takes its state from the dict."""
    _refuse(params, grads, lr, betas)
    for p, g, kept in zip(params, grads, state, strict=True):
        if g is not None:
            leaf = p.detach()
            leaf.grad = g.clone()
            own = torch.optim.AdamW([leaf], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
            own.state[leaf] = kept
            own.step()


RIGHT = (
    right(torchs_own, independent="torch.optim.AdamW"),
    right(formulas_with_a_step_tensor),
    right(corrections_in_the_rate),
    # torch's order of operations, with the step as a tensor: the rate and both corrections are float32 tensors.
    Alternative(
        name="rate_with_a_step_tensor",
        answer=edited(
            corrections_in_the_rate,
            ('kept.get("t", 0)', 'kept.get("t", torch.tensor(0))'),
            ("rate = lr * scale /", "rate = lr /"),
            ("v.sqrt().add_(eps * scale)", "(v.sqrt() / scale).add_(eps)"),
        ),
    ),
)

torch_like = partial(edited, adamw_step)
formulas = partial(edited, formulas_with_a_step_tensor)

DECAY = "param.mul_(1 - lr * weight_decay)"
STEP = "param.addcdiv_(m, root.add_(eps), value=-lr / (1 - beta1**t))"
M, V = "m.lerp_(grad, 1 - beta1)", "v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)"
NO_M_HAT, NO_V_HAT = (" / (1 - beta1**t)", ""), ("math.sqrt(1 - beta2**t)", "1.0")
COUNT = '        kept["t"] = kept["t"] + 1\n'
NONE = "if grad is None:\n            continue\n"
REFUSED = "    below_one(beta1=beta1, beta2=beta2)\n    same_shapes(params, grads)\n"
ZEROS = "m=torch.zeros_like(param), v=torch.zeros_like(param)"

OLD_MEAN = ('kept["mean"] = betas', 'old = kept["mean"]\n        kept["mean"] = betas')
OLD_SQUARE = ('kept["square"] = betas', 'old = kept["square"]\n        kept["square"] = betas')
USES_OLD_MEAN, USES_OLD_SQUARE = ('m_hat = kept["mean"]', "m_hat = old"), ('v_hat = kept["square"]', "v_hat = old")
LOOK_AHEAD = ('m_hat = kept["mean"]', 'm_hat = (betas[0] * kept["mean"] + (1 - betas[0]) * g)')

WRONG = (
    wrong(
        "decay_through_the_moments",
        "You add wd p to the gradient: Adam with an L2 penalty. There the decay is divided by sqrt(v_hat) like "
        "everything else, and parameters with large gradients hardly decay. The W of AdamW takes it out: the moments "
        "see the plain gradient, and p shrinks by lr wd p beside them.",
        torch_like((DECAY, "grad = grad + weight_decay * param")),
        torch_like((DECAY, "grad.add_(param, alpha=weight_decay)")),
    ),
    wrong(
        "decay_of_another_size",
        "The parameter loses lr wd times what it was before the step: multiply it by 1 - lr wd, first of all. "
        "Yours loses wd p, whatever the rate (as Algorithm 2 of the AdamW paper says where its schedule is 1; "
        "libraries multiply by the rate), or lr^2 wd p, or it shrinks when it has already moved.",
        torch_like(("1 - lr * weight_decay", "1 - lr * lr * weight_decay")),
        torch_like(("1 - lr * weight_decay", "1 - weight_decay")),
        torch_like((DECAY, "pass"), (STEP, f"{STEP}.mul_(1 - lr * weight_decay)")),
    ),
    wrong(
        "decay_of_the_other_sign",
        "Your decay makes parameters larger: its sign is the wrong one. The parameter *loses* lr wd p.",
        torch_like(("1 - lr * weight_decay", "1 + lr * weight_decay")),
    ),
    wrong(
        "steps_uphill",
        "Your steps go uphill: the gradient points to where the loss grows. The parameter *loses* lr m_hat / "
        "(sqrt(v_hat) + eps).",
        torch_like(("value=-lr", "value=lr")),
    ),
    wrong(
        "no_bias_correction",
        "m, v or both go into the step uncorrected: m_hat and v_hat are missing, or they are computed and not "
        "used. Both averages start at 0 and are too small at first, v more than m: with the usual betas the first step "
        "without any correction is 0.1 / sqrt(0.001) = 3 times too long. Use m / (1 - beta1^t) and v / (1 - beta2^t).",
        torch_like(NO_M_HAT, NO_V_HAT),
        torch_like(NO_V_HAT),
        torch_like(NO_M_HAT),
    ),
    wrong(
        "correction_frozen",
        "Your correction is that of t = 1 in every step: the count is not kept from step to step, or beta stands "
        "without its power. As t grows, 1 - beta^t approaches 1 and the correction ends. Count up and store the count.",
        torch_like(('int(kept["step"])', "1")),
    ),
    wrong(
        "correction_off_by_one",
        "In the first step your t is 2, and you correct too little; or in the second it still is 1. t counts the "
        "gradients that are in the average, the present one too: begin at 0 and count up first, or begin at 1 and "
        "count up last.",
        torch_like(('int(kept["step"])', 'max(1, int(kept["step"]) - 1)')),
        torch_like(('int(kept["step"])', 'int(kept["step"]) + 1')),
    ),
    wrong(
        "nan_in_every_step",
        "Your parameters are nan after the first step, those whose gradient is 0 too. Something is divided by 0: with "
        "t = 0 the corrections 1 - beta^t are 0. What is t in your first step? Begin at 0 and count up first.",
        formulas((COUNT, ""), ("weight_decay * p)\n", "weight_decay * p)\n" + COUNT)),
    ),
    wrong(
        "nan_where_there_is_a_gradient",
        "Your parameters are nan after the first step, unless their gradient is 0. Print v: a root of something "
        "negative is nan. v is a mean of squares, v = beta2 v + (1 - beta2) g^2, so nothing in it is below 0.",
        formulas(("+ (1 - betas[1])", "- (1 - betas[1])")),
    ),
    wrong(
        "corrected_moments_stored",
        "You keep a corrected moment (div_ does so too), and the next step averages it and corrects it once "
        "more. What is kept is m and v; m_hat and v_hat live for one step.",
        formulas(("m_hat =", 'm_hat = kept["mean"] ='), ("v_hat =", 'v_hat = kept["square"] =')),
        formulas(("m_hat =", 'm_hat = kept["mean"] =')),
    ),
    wrong(
        "eps_inside_the_root",
        "eps stands in the wrong place: sqrt(v_hat) + eps means correct v, take the root, then add eps. Under the "
        "root 1e-8 acts like 1e-4; added to sqrt(v) before the correction it is 32 times as large at the first step; "
        "a floor, the larger of sqrt(v_hat) and eps, is no sum, nor is a default in place of an eps of 0; and without "
        "eps a gradient of 0 gives 0 / 0, which is nan. (The Adam paper's more efficient form, before section 2.1, has "
        "that other eps, and calls it by another name.)",
        formulas(("v_hat.sqrt() + eps", "(v_hat + eps).sqrt()")),
        torch_like(("v.sqrt()", "v.sqrt().add_(eps)"), ("root.add_(eps)", "root")),
        torch_like(("root.add_(eps)", "root.clamp_(min=eps)")),
        torch_like(("root.add_(eps)", "root")),
        torch_like(("root.add_(eps)", "root.add_(eps).clamp_(min=1e-12)")),
        formulas(("v_hat.sqrt() + eps", "v_hat.sqrt() + (eps or 1e-8)")),
    ),
    wrong(
        "no_root_of_the_squares",
        "v is the mean of the *squares* of the gradients, and the step divides by its root. Without the squares v "
        "is negative here and there, and its root nan. Without the root the ratio has the unit of 1 / g; with it the "
        "ratio has none, and the step is about lr, however the loss is scaled.",
        formulas(("v_hat.sqrt()", "v_hat")),
        formulas(("* g**2", "* g")),
    ),
    wrong(
        "mean_of_sizes",
        "Your steps are divided by the mean of |g|. Adam divides by the root of the mean of g^2, in which large "
        "gradients count for more.",
        formulas(("* g**2", "* g.abs()"), ("v_hat.sqrt() + eps", "v_hat + eps")),
    ),
    wrong(
        "nothing_divides_the_step",
        "Your step is lr m_hat: v does not take part. That is momentum. Adam divides m_hat by sqrt(v_hat) + eps, so "
        "that each number moves by about lr, however large its gradients are.",
        formulas(("(v_hat.sqrt() + eps)", "1"), (", square=torch.zeros_like(p)", ", square=0"), ("* g**2", "* 0")),
    ),
    wrong(
        "largest_v",
        "Your v never falls: where it would, the largest so far is used. That is AMSGrad. Adam lets v fall when "
        "gradients become small: v = beta2 v + (1 - beta2) g^2, and no maximum.",
        formulas(("v_hat =", 'kept["square"] = torch.maximum(kept["square"], old)\n        v_hat ='), OLD_SQUARE),
        formulas(
            (
                "v_hat =",
                'kept["top"] = torch.maximum(kept["square"], kept.get("top", kept["square"]))\n        v_hat =',
            ),
            ('v_hat = kept["square"]', 'v_hat = kept["top"]'),
        ),
    ),
    wrong(
        "nesterov_in_adam",
        "Your m_hat looks one step ahead: the present gradient enters it a second time. That is NAdam. In Adam m_hat "
        "is m / (1 - beta1^t), and m has taken the gradient in once.",
        formulas(LOOK_AHEAD),
    ),
    wrong(
        "step_before_the_averages",
        "Your step divides or is divided by an average that does not have the present gradient in it yet. Bring m and "
        "v up to date first; then correct both, then move the parameter.",
        formulas(OLD_MEAN, USES_OLD_MEAN),
        formulas(OLD_SQUARE, USES_OLD_SQUARE),
    ),
    wrong(
        "rate_in_the_average",
        "Your m averages lr times the gradients. While the rate stays the same nobody sees it, but when the rate "
        "falls, old gradients go on moving the parameter with the rate of their own day. Keep m free of lr.",
        formulas(
            ("(1 - betas[0]) * g", "lr * (1 - betas[0]) * g"),
            ("lr * (m_hat", "(m_hat"),
            ("+ weight_decay", "+ lr * weight_decay"),
        ),
    ),
    wrong(
        "other_weights_in_an_average",
        "Your average weighs old and new in another way than beta m + (1 - beta) g. Where the new gradient enters "
        "in full it is a sum, as in SGD's momentum, and where beta belongs to the new it forgets at once. (torch's "
        "lerp_ takes the weight of the new.)",
        formulas(("(1 - betas[0]) * g", "g"), ("(1 - betas[1]) * g**2", "g**2")),
        formulas(("(1 - betas[0]) * g", "g")),
        torch_like((M, "m.lerp_(grad, beta1)"), (V, "v.lerp_(grad * grad, beta2)")),
        torch_like((M, "m.lerp_(grad, beta1)")),
    ),
    wrong(
        "betas_mixed_up",
        "A beta stands where the other belongs, as happens when a line is copied. beta1 (0.9) is in the average "
        "and in the correction of m, beta2 (0.999) in both of v.",
        torch_like(("beta1, beta2 = betas", "beta2, beta1 = betas")),
        torch_like(("beta1, beta2 = betas", "beta1, beta2 = betas[0], betas[0]")),
        torch_like((V, "v.mul_(beta1).addcmul_(grad, grad, value=1 - beta1)")),
        torch_like(("1 - beta2**t", "1 - beta1**t")),
    ),
    wrong(
        "averages_not_kept",
        "A new average has no place in `state`: the next step begins from zeros, or from the old average, again. "
        "Store it under its key, or change the kept tensor itself. (mul makes a new tensor, mul_ changes the old.)",
        formulas(
            ('kept["mean"] = betas[0] * kept["mean"]', 'mean = betas[0] * kept["mean"]'),
            ('kept["square"] = betas[1] * kept["square"]', 'square = betas[1] * kept["square"]'),
            ('kept["mean"] / (1', "mean / (1"),
            ('kept["square"] / (1', "square / (1"),
        ),
        torch_like((M, "m.mul(beta1).add_((1 - beta1) * grad)")),
        formulas(("        if not kept:", "        kept = {}\n        if not kept:")),
    ),
    wrong(
        "begins_with_the_gradient",
        "Your moments begin as g and g^2. The corrections are made for averages that begin at 0: divided by "
        "1 - beta^t, a mean that has no such bias becomes too large; and without a correction the first gradient keeps "
        "too much weight. Begin with zeros.",
        torch_like((ZEROS, "m=grad.clone(), v=grad * grad")),
    ),
    wrong(
        "one_counter_for_all",
        "Your t also counts what this parameter took no part in: one counter serves all parameters, or each has "
        "its own, which goes up before None is noticed. A parameter whose first gradient comes late is then corrected "
        "as if its moments were old, and its first steps are wrong. Keep t in each dict, and count gradients.",
        torch_like((NONE, "pass\n"), ("t = int(", "if grad is None:\n            continue\n        t = int(")),
        torch_like(
            ('kept["step"] += 1', 'state[0]["count"] = state[0].get("count", 0) + 1'),
            ('int(kept["step"])', 'state[0]["count"]'),
        ),
    ),
    wrong(
        "none_is_not_skipped",
        "None means that this step does not concern the parameter: ask for it first of all, and go on to the next "
        "with `continue`. With zeros in its place the moments fade, and the old m goes on moving a parameter that was "
        "not used; decay before the question shrinks it; `return` or `break` robs those after it of their step.",
        torch_like((NONE, "if grad is None:\n            grad = torch.zeros_like(param)\n")),
        torch_like((NONE, f"if grad is None:\n            {DECAY}\n            continue\n")),
        torch_like(("continue", "break")),
    ),
    wrong(
        "none_breaks_it",
        "Where a gradient is None your function stops with an error: None has neither a shape nor numbers. Ask whether "
        "it is None before anything else, and where you look at the shapes too.",
        torch_like(("grad is not None and ", "")),
        torch_like((NONE, "pass\n")),
    ),
    wrong(
        "not_in_place",
        "The memory of the tensors in `params` is never written to. `p = p - ...` makes a new tensor and gives it the "
        "name p, `params[i] = ...` puts one into the list, `p.data = ...` puts new memory under the old name; the "
        "model still holds the old. Write into it: `p -= ...`, copy_, or another operation that ends in an underscore.",
        torch_like((DECAY, "param = param * (1 - lr * weight_decay)")),
        formulas(("p -= lr * (", "p.data = p - lr * (")),
    ),
    wrong(
        "keeps_more_than_two",
        "The values are right. But `state` keeps more than m and v, and no later step reads it. What only this "
        "step needs is a local name; each kept tensor costs as much memory as the model.",
        formulas(("m_hat =", 'kept["m_hat"] = m_hat ='), ("v_hat =", 'kept["v_hat"] = v_hat =')),
        formulas(("m_hat =", 'kept["mean"].grad = m_hat =')),
    ),
    wrong(
        "age_beside_the_state",
        "Your step count is not in `state`, but stands elsewhere under the parameter's address. A model that is "
        "loaded, copied or moved has another address and begins at t = 1 again, with moments that are old. Keep in "
        "its dict all that the next step of a parameter needs.",
        formulas(
            ("def formulas_with", "AGES = {}\n\n\ndef formulas_with"),
            ("kept.update(t=torch.tensor(0.0), ", "kept.update("),
            ('kept["t"] = kept["t"] + 1', "age = AGES.setdefault(p.data_ptr(), [0, p])\n        age[0] += 1"),
            ('betas[0] ** kept["t"]', "betas[0] ** age[0]"),
            ('betas[1] ** kept["t"]', "betas[1] ** age[0]"),
        ),
    ),
    wrong(
        "gradient_changed",
        "All else is right, but a gradient is not what it was before the step: square_, mul_, `**=` and the like write "
        "into the caller's tensor. Anyone who adds up two backward passes, or reports the norm of the gradients, then "
        "reads something else.",
        torch_like(("addcmul_(grad, grad, value=1 - beta2)", "add_(grad.square_(), alpha=1 - beta2)")),
        fails=("gradients_unchanged",),
    ),
    wrong(
        "not_refused",
        "All else is right, but something that makes no sense is accepted, or raises another error than a "
        "ValueError. Check rate, betas and every shape at the top, before anything is changed; `assert` is for one's "
        "own mistakes, and vanishes under `python -O`.",
        formulas(("    _refuse(params, grads, lr, betas)\n", "")),
        fails=("refusals", "refused_before_any_change"),
    ),
    wrong(
        "refuses_too_late",
        "You refuse all that is to be refused. But after one of these calls a parameter, a gradient or a state is not "
        "what it was: the model has taken part of a step, and its caller does not know which. Look at all pairs of "
        "parameter and gradient first, in a loop of its own, then step.",
        torch_like(
            (REFUSED, ""), (NONE, f"{NONE}        same_shapes([param], [grad]), below_one(b1=beta1, b2=beta2)\n")
        ),
        fails=("refused_before_any_change",),
    ),
    wrong(
        "moments_in_float32",
        "Your moments are in float32 where their parameter is not: torch.zeros makes float32, and `.float()` "
        "converts. In float64 that loses half the digits, in float16 or bfloat16 the state is twice as large. Take "
        "zeros_like(p), and keep no result in another dtype.",
        formulas(
            (
                "mean=torch.zeros_like(p), square=torch.zeros_like(p)",
                "mean=torch.zeros(p.shape), square=torch.zeros(p.shape)",
            )
        ),
        formulas(
            ("(1 - betas[0]) * g\n", "(1 - betas[0]) * g.float()\n"),
            ("* g**2", "* g.float()**2"),
            (
                "mean=torch.zeros_like(p), square=torch.zeros_like(p)",
                "mean=torch.zeros(p.shape), square=torch.zeros(p.shape)",
            ),
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "root_in_float32",
        "You take a root in float32, or convert something else to it on the way. Where parameters are in float64, that "
        "loses half the digits. For half precisions convert to float32 or finer: torch.promote_types(v.dtype, "
        "torch.float32) says which.",
        formulas(("v_hat.sqrt()", "v_hat.float().sqrt()")),
        formulas(("v_hat.sqrt()", "v_hat.float().sqrt().to(p.dtype)")),
        fails=("every_form",),
        rounds_to=torch.float32,
    ),
    wrong(
        "refuses_too_much",
        "You refuse a rate or a weight_decay that is allowed. A schedule may begin with a rate of 0, and that step "
        "brings the moments up to date as any other; neither has a largest value. Refuse a rate below 0.",
        formulas(("if lr < 0", "if lr <= 0")),
        formulas(("if lr < 0", "if lr > 1 or lr < 0")),
        formulas(("    _refuse(", "    if weight_decay > 1:\n        raise ValueError\n    _refuse(")),
    ),
    wrong(
        "refuses_a_beta_of_0",
        "You refuse a beta of 0, which is allowed: an average that remembers nothing but the present gradient.",
        formulas(("0 <= beta < 1", "0 < beta < 1")),
    ),
)
