"""Right and wrong ways to write `master_step`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.mixed_precision.master_step import master_step


def torchs_own(p16: list[Tensor], p32: list[Tensor], g16: list[Tensor], lr: float) -> None:
    """torch's SGD steps the masters."""
    for master, grad in zip(p32, g16, strict=True):
        master.grad = grad.float()
    if p32:
        torch.optim.SGD(p32, lr=lr).step()
    for param, master in zip(p16, p32, strict=True):
        master.grad = None
        param.data.copy_(master)


def all_at_once(p16: list[Tensor], p32: list[Tensor], g16: list[Tensor], lr: float) -> None:
    """The calls by which torch's optimizers step many tensors together."""
    with torch.no_grad():
        wide = [grad.to(torch.float32) for grad in g16]
        torch._foreach_add_(p32, wide, alpha=-lr)
        torch._foreach_copy_(p16, p32)


def in_float64(p16: list[Tensor], p32: list[Tensor], g16: list[Tensor], lr: float) -> None:
    """A finer product, and roundings by `.to`."""
    for index, grad in enumerate(g16):
        p32[index].copy_(p32[index].double() - lr * grad.double())
        p16[index].detach()[...] = p32[index].to(p16[index].dtype)


RIGHT = (
    right(torchs_own, independent="torch.optim.SGD"),
    right(all_at_once),
    right(in_float64),
)

mistaken = partial(edited, master_step)

STEP = "master -= lr * grad.float()"
CAST = "param.copy_(master)"


def through_numpy(p16: list[Tensor], p32: list[Tensor], g16: list[Tensor], lr: float) -> None:
    """numpy rounds float64 to float16 in one step."""
    for param, master, grad in zip(p16, p32, g16, strict=True):
        new = master.double() - lr * grad.double()
        master.copy_(new)
        with np.errstate(over="ignore"):
            exact = torch.from_numpy(np.asarray(new.numpy().astype(np.float16)))
        param.detach().copy_(exact if param.dtype == torch.float16 else master)


WRONG = (
    wrong(
        "product_in_half_precision",
        "You multiply lr and the gradient in half precision: a Python number does not change the dtype of a tensor. "
        "The product has lost digits, or is 0, before the master sees it. Widen the gradient first: lr * g.float().",
        mistaken(("grad.float()", "grad")),
        mistaken((STEP, "master -= (lr * grad).float()")),
    ),
    wrong(
        "rate_in_half_precision",
        "You round the rate to half precision: by a tensor of the parameter's dtype, or by torch.tensor(lr) * g, "
        "which has the dtype of g. Leave lr a Python number, and let it meet a gradient in float32.",
        mistaken((STEP, "master -= torch.tensor(lr, dtype=param.dtype).float() * grad.float()")),
        mistaken((STEP, "master -= torch.tensor(lr, dtype=grad.dtype).float() * grad.float()")),
        mistaken((STEP, "master -= torch.tensor(lr) * grad")),
    ),
    wrong(
        "gradient_rounded_first",
        "All is right but for gradients in float32: you round them to the parameter's dtype. Use them as they come.",
        mistaken(("grad.float()", "grad.to(param.dtype).float()")),
    ),
    wrong(
        "steps_the_parameters",
        "You step the parameters themselves, in half precision, where an update below half a gap is lost. The step "
        "belongs to the master, and the parameter is its rounding, nothing else.",
        mistaken((STEP, "param -= lr * grad"), (f"        {CAST}\n", "")),
        mistaken((CAST, "param -= lr * grad")),
        mistaken((CAST, "param -= (lr * grad.float()).to(param.dtype)")),
        mistaken((STEP, "param -= lr * grad.float()"), (CAST, "master.copy_(param)")),
    ),
    wrong(
        "master_made_from_the_parameter",
        "Your master is made anew from the rounded parameter: before the step, or after it. What the rounding cut off "
        "is then lost in every step. The master is written by the step alone, and read by the next one.",
        mistaken((STEP, "master.copy_(param.float() - lr * grad.float())")),
        mistaken((CAST, f"{CAST}\n        master.copy_(param)")),
    ),
    wrong(
        "rounded_before_the_step",
        "Your parameters are one step behind: you copy the masters first and move them after it. Step, then round.",
        mistaken((STEP, f"{CAST}; {STEP}"), (f"        {CAST}\n", "")),
    ),
    wrong(
        "parameters_not_written",
        "Your masters move, but the memory of the parameters does not, and the model computes with what is there. An "
        "assignment to a name makes a new tensor; an assignment to .data gives a tensor other memory, perhaps the "
        "master's. Copy each master into the parameter with copy_, which rounds.",
        mistaken((f"        {CAST}\n", "")),
        mistaken((CAST, "param = master.to(param.dtype)")),
        mistaken((CAST, "param.data = master.to(param.dtype)")),
        mistaken((CAST, "param.data = master")),
    ),
    wrong(
        "masters_not_in_place",
        "Your masters stay what they were: `m = m - ...` makes a new tensor and gives it a name. The caller holds the "
        "old one. Use `-=`, sub_ or copy_.",
        mistaken((STEP, "master = master - lr * grad.float()")),
        mistaken((STEP, "master.data = master - lr * grad.float()")),
    ),
    wrong(
        "the_wrong_way",
        "Your step goes along the gradient: the loss grows. lr times the gradient is subtracted.",
        mistaken(("master -=", "master +=")),
    ),
    wrong(
        "always_through_float16",
        "You round to float16, whatever the parameter's dtype. That ends at 65504, and rounds twice on the way to "
        "bfloat16. copy_ rounds to the dtype of the tensor that it writes to.",
        mistaken((CAST, "param.copy_(master.half())")),
    ),
    wrong(
        "cut_off_not_rounded",
        "You move only by whole gaps towards 0, or cut the lower bits off. The parameter is the number nearest to its "
        "master: copy_ and .to round to nearest.",
        mistaken(
            (
                CAST,
                "near = master.to(param.dtype)\n        param.copy_(torch.where(near.abs() > master.abs(), "
                "torch.nextafter(near, torch.zeros_like(near)), near))",
            )
        ),
    ),
    wrong(
        "rounded_from_float64",
        "You round the parameter from the number in float64, not from its master. At a tie of float16 the two may "
        "differ: then the parameter is not what its master rounds to. Write the master first, and round that.",
        through_numpy,
        fails=("parameters_are_roundings_of_masters",),
    ),
    wrong(
        "changes_the_gradient",
        "You scale the gradient in place. The caller still needs it: lr * g makes a new tensor, g.mul_(lr) does not.",
        mistaken((STEP, "master -= lr * grad.float()\n        grad.mul_(lr)")),
        mistaken((STEP, "master -= lr * grad.float()\n        grad.zero_()")),
    ),
    wrong(
        "a_step_that_is_skipped",
        "You leave out, or replace, an inf or nan. To skip such a step, for all tensors together, is the loss "
        "scaler's task. This function takes every number as it comes.",
        mistaken((STEP, f"if not grad.isfinite().all():\n            continue\n        {STEP}")),
        mistaken(("grad.float()", "grad.float().nan_to_num(0.0, 0.0, 0.0)")),
        mistaken((STEP, "master -= (lr * grad.float()).nan_to_num()")),
    ),
    wrong(
        "nothing_to_do_without_a_step",
        "You leave a parameter as it is where its rate or its gradient is 0. It may be out of step with its master: "
        "after each call it holds what the master rounds to.",
        mistaken((STEP, f"if not grad.any():\n            continue\n        {STEP}")),
        mistaken((STEP, f"if lr == 0:\n            continue\n        {STEP}")),
        mistaken((STEP, f"if lr == 0 or not grad.any():\n            continue\n        {STEP}")),
    ),
    wrong(
        "moved_by_a_difference",
        "You bring a parameter to its master by what it lacks, or by way of 0 times what it holds. What it holds does "
        "not matter, and may be inf or nan, from which no sum leads back. Copy the master into it.",
        mistaken((CAST, "param += master - param")),
        mistaken((CAST, "param.mul_(0).add_(master)")),
    ),
    wrong(
        "a_graph_is_recorded",
        "Parameters of a model require a gradient, and torch refuses to change such a tensor in place while it "
        "records. Put the function under torch.no_grad().",
        mistaken(("@torch.no_grad()\n", "")),
    ),
    wrong(
        "no_longer_trained",
        "You switch requires_grad off to write to a parameter: it gets no gradient any more. Write under "
        "torch.no_grad(), which is over at the end of its block.",
        mistaken(("@torch.no_grad()\n", ""), (CAST, "param.requires_grad_(False)\n        param.copy_(master)")),
    ),
)
