"""Right and wrong ways to write `fake_quant`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.quantization.fake_quant import fake_quant


def torchs_own(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """torch's operation, channel after channel, on x in units of step: it keeps steps in float32."""
    low = -(2 ** (bits - 1))
    if not step.numel():
        return x.clone()
    if step.numel() == 1:
        size, at = float(step.detach()), int(zero)
        return torch.fake_quantize_per_tensor_affine(x / size, 1.0, at, low, -low - 1) * size
    axis = x.dim() - step.dim() + max(range(step.dim()), key=lambda each: step.shape[each])
    channels = zip(x.unbind(axis), step.flatten(), zero.flatten(), strict=True)
    return torch.stack([torchs_own(each, size, at, bits) for each, size, at in channels], axis)


def clamped_first(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """torch.clamp has the right gradient at both ends."""
    half, size = 2 ** (bits - 1), step.detach()
    near = torch.clamp(x, (-half - zero) * size, (half - 1 - zero) * size)
    return near + ((near / size).round() * size - near).detach()


class _Rounding(torch.autograd.Function):
    """A rounding whose gradient is masked."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: Tensor, zero: Tensor, low: int) -> Tensor:
        """The grid's value, and whether x is on it."""
        codes = torch.round(x / step) + zero
        ctx.save_for_backward((codes >= low) & (codes < -low))
        return (codes.clamp(low, -low - 1) - zero) * step

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        """Through where x was on the grid."""
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None, None


def own_function(x: Tensor, step: Tensor, zero: Tensor, bits: int) -> Tensor:
    """A torch.autograd.Function."""
    return _Rounding.apply(x, step, zero, -(2 ** (bits - 1)))  # type: ignore[no-any-return,no-untyped-call]


RIGHT = (
    right(torchs_own, independent="torch.fake_quantize_per_tensor_affine"),
    right(clamped_first),
    right(own_function),
)

fake = partial(edited, fake_quant)
clamping = partial(edited, clamped_first)
own = partial(edited, own_function)
RAW = "raw = (x.detach() / step).round() + zero"
MASK = "inside = (raw >= low) & (raw <= -low - 1)"
Y = "y = (raw.clamp(low, -low - 1) - zero) * step"
ONCE = "@torch.autograd.function.once_differentiable"
THROUGH = "torch.where(inside, x - x.detach(), 0.0)"
HOOK = "x.register_hook(lambda gradient: torch.where(inside, gradient, 0.0))"

WRONG = (
    wrong(
        "a_hook_on_x",
        "You register a hook on the caller's x: that fails where x needs no gradient, and stays there where it does: "
        "gradients that come to x from elsewhere go through it, too. Put the mask into what you return.",
        fake((f"return y + {THROUGH}", f"{HOOK}\n    return x + (y - x).detach()")),
        fake((f"return y + {THROUGH}", f"if x.requires_grad:\n        {HOOK}\n    return x + (y - x).detach()")),
    ),
    wrong(
        "gradient_everywhere",
        "The gradient passes also where x is cut off. A move of such a number changes nothing: its gradient is 0.",
        fake((THROUGH, "(x - x.detach())")),
    ),
    wrong(
        "gradient_nowhere",
        "The gradient of round is 0, or x is not part of the graph at all, and training would stand still. Let the "
        "gradient pass beside the rounding.",
        fake((THROUGH, "0.0 * x")),
        fake(("return y + " + THROUGH, "return y")),
        fake(("x.detach() / step", "x / step"), ("return y + " + THROUGH, "return y")),
    ),
    wrong(
        "gradient_over_step",
        "A step has got into the gradient. y moves as x does: the factor is 1.",
        fake((THROUGH, THROUGH.replace("x - x.detach()", "(x - x.detach()) / step"))),
        fake((THROUGH, THROUGH.replace("x - x.detach()", "(x - x.detach()) * step"))),
    ),
    wrong(
        "one_end_only",
        "You look at one end of the grid only. Numbers beyond the other one are cut off, too.",
        fake((MASK, "inside = raw <= -low - 1")),
        fake((MASK, "inside = raw >= low")),
    ),
    wrong(
        "mask_without_zero",
        "You compare x / step with the ends of the codes. The zero point moves them.",
        fake((MASK, "inside = (raw - zero >= low) & (raw - zero <= -low - 1)")),
        fake((MASK, "inside = x.detach().abs() <= step * (-low - 1)")),
    ),
    wrong(
        "ends_left_out",
        "At the first and at the last value x is on the grid, and its gradient passes: <=, not <.",
        fake((MASK, "inside = (raw > low) & (raw < -low - 1)")),
    ),
    wrong(
        "not_cut_off",
        "y goes on beyond the ends of the grid: there are only 2**bits codes.",
        fake((Y, "y = (raw - zero) * step")),
    ),
    wrong(
        "off_by_one_level",
        "The codes of your grid are not -2**(bits - 1) to 2**(bits - 1) - 1: one is missing, or there is one more.",
        fake((MASK, "inside = (raw > low) & (raw <= -low - 1)"), (Y, Y.replace("(low,", "(low + 1,"))),
        fake((MASK, "inside = (raw >= low) & (raw <= -low)"), (Y, Y.replace("-low - 1", "-low"))),
    ),
    wrong(
        "mask_of_the_last_call",
        "Your mask is an attribute of the class, or a global: backward meets that of the last call, whichever tensor "
        "that was for. ctx.save_for_backward keeps each call's own.",
        own(
            (
                "ctx.save_for_backward((codes >= low) & (codes < -low))",
                "_Rounding.kept = (codes >= low) & (codes < -low)",
            ),
            ("(inside,) = ctx.saved_tensors", "inside = _Rounding.kept"),
        ),
    ),
    wrong(
        "truncates",
        "You cut off what follows the point, or go to the next integer below. Round to the nearest one.",
        fake((RAW, RAW.replace(".round()", ".trunc()"))),
        fake((RAW, RAW.replace(".round()", ".floor()"))),
    ),
    wrong(
        "gradient_for_the_step",
        "step gets a gradient from the product at the end. It is given, and stays as it is: detach it.",
        fake(("step = step.detach()", "pass")),
        clamping(("size = 2 ** (bits - 1), step.detach()", "size = 2 ** (bits - 1), step")),
        fake(("step = step.detach()", "step = step.detach() if x.requires_grad else step")),
        fails=("none_for_step",),
    ),
    wrong(
        "differentiable_once",
        "Backward takes the gradient out of the graph, so that nobody can differentiate it again.",
        own(("return grad * inside", "return grad.detach() * inside")),
        own(("    def backward", f"    {ONCE}\n    def backward")),
        fails=("twice",),
    ),
    wrong(
        "writes_into_the_gradient",
        "Your backward writes into the gradient that it is given (mul_, masked_fill_, an assignment). It belongs to "
        "others in the graph, too: return a new tensor.",
        own(("return grad * inside", "return grad.mul_(inside)")),
        own(("return grad * inside", "return grad.masked_fill_(~inside, 0)")),
        own(("return grad * inside", "grad[~inside] = 0\n        return grad")),
    ),
    wrong(
        "another_dtype",
        "The numbers are right, and y is in another dtype than x.",
        fake(("return y + " + THROUGH, f"return (y + {THROUGH}).double()")),
        fake((RAW, f"if not x.numel():\n        return torch.zeros(x.shape)\n    {RAW}")),
        fails=("dtype",),
    ),
    wrong(
        "steps_in_float32",
        "You compute, or only divide, in float32 where x and step are in float64. Half of their digits are lost, a "
        "number beside a tie may get another code, and one below 1e-45 is 0.",
        fake(("step = step.detach()", "step = step.detach() if step.dim() == 0 else step.detach().float()")),
        fake(("step = step.detach()", "step = step.detach().float()")),
        fake((RAW, "raw = (x.detach().float() / step.float()).round().to(x.dtype) + zero")),
        fake((RAW, RAW.replace(").round()", ").float().round()"))),
    ),
    wrong(
        "times_the_inverse",
        "You multiply by 1 / step, which is infinite for a step below 2**-128. Divide by step.",
        fake((RAW, RAW.replace("/ step", "* (1 / step)"))),
    ),
    wrong(
        "trains_what_came",
        "step requires a gradient after the call, and did not before: requires_grad_() changes the caller's own "
        "tensor. detach() makes one of your own.",
        fake(("step = step.detach()", "step = step.requires_grad_().detach()")),
    ),
)
