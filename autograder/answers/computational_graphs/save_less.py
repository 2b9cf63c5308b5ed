"""Right and wrong ways to write `SaveLess`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.computational_graphs.save_less import SaveLess


class TorchsOwn(torch.autograd.Function):
    """torch's silu in both halves; backward runs it again and records it, as checkpointing does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.nn.functional.silu(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = torch.nn.functional.silu(x)
        return torch.autograd.grad(y, x, dy, create_graph=torch.is_grad_enabled())[0]


class WithSetupContext(torch.autograd.Function):
    """torch's newer style, a sigmoid of one's own, and y' = y + s (1 - y)."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x / (1 + torch.exp(-x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        s = 1 / (1 + torch.exp(-x))
        y = x * s
        return dy * (y + s * (1 - y))


class KeepsXAsAnAttribute(torch.autograd.Function):
    """Saved-tensor hooks do not see x, its storage is one all the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x
        return x.clone().mul_(x.sigmoid())

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return torch.sigmoid(ctx.x) * (1 + ctx.x * torch.sigmoid(-ctx.x)) * dy


class SavesYToo(torch.autograd.Function):
    """y beside x: it costs nothing, because the caller holds it, and like x it has a history. y' = s + y (1 - s)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        y = x * s
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, y = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * (s + y * (1 - s))


class ComputesInFloat64(torch.autograd.Function):
    """Both halves on a copy in float64 that ends with the call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        wide = x.double()
        return (wide * torch.sigmoid(wide)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        wide = ctx.saved_tensors[0].double()
        s = torch.sigmoid(wide)
        return (dy.double() * torch.addcmul(s, wide * s, 1 - s)).to(dy.dtype)


RIGHT = (
    right(TorchsOwn, independent="torch.nn.functional.silu"),
    right(WithSetupContext),
    right(KeepsXAsAnAttribute),
    right(SavesYToo),
    right(ComputesInFloat64),
)


class KeepsTheGraph(torch.autograd.Function):
    """forward turns recording on and keeps the graph of its own computation, which holds x and s."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            ctx.x = x = x.detach().requires_grad_()
            ctx.y = y = x * torch.sigmoid(x)
        return y.detach()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return torch.autograd.grad(ctx.y, ctx.x, dy)[0]


class CallsSilu:
    """torch's own operation under the name that a Function would have."""

    apply = staticmethod(torch.nn.functional.silu)


class ReplacesApply(SaveLess):
    """A Function for show."""

    apply = staticmethod(torch.nn.functional.silu)


class Shown(type(torch.autograd.Function)):  # type: ignore[misc]
    """A class whose classes have another apply than the one they were given."""

    apply = property(lambda cls: torch.nn.functional.silu)


class HidesApply(SaveLess, metaclass=Shown):
    """A Function for show, too."""


class HasNoBackward(torch.autograd.Function):
    """Half of a Function."""

    forward = staticmethod(SaveLess.forward)


only_x = partial(edited, SaveLess)
with_y = partial(edited, SavesYToo)

SAVE, VALUE = "ctx.save_for_backward(x)", "return x * torch.sigmoid(x)"
TAKE, S, SLOPE = "x: Tensor = ctx.saved_tensors[0]", "s = torch.sigmoid(x)", "(s + x * s * (1 - s))"
NOT_AGAIN = (f"        {S}\n        return dy", "        return dy")
SAVE_Y = (SAVE, "y = x * torch.sigmoid(x)\n        ctx.save_for_backward(y)"), (VALUE, "return y")
SAVE_S = (SAVE, f"{S}\n        ctx.save_for_backward(x, s)")
HIDE_S = (SAVE, f"{SAVE}\n        ctx.{S}")
DX = f"return dy * {SLOPE}"
WIDE = "wide = x.float() if x.itemsize == 2 else x"
OWN_SIGMOID = (S, "s = torch.exp(x) / (1 + torch.exp(x))")

WRONG = (
    wrong(
        "keeps_intermediates",
        "Besides x you keep another tensor of its size (mostly sigmoid(x)) until backward: as many bytes again for "
        "each layer, whether it lies in save_for_backward, in an attribute of ctx or in a graph of your own. Keep x; "
        "one sigmoid in backward is cheaper than a tensor of memory. What forward computed is also a constant to a "
        "second derivative.",
        only_x(SAVE_S, (TAKE, "x, s = ctx.saved_tensors"), NOT_AGAIN),
        only_x(HIDE_S, (f"  {S}", "  s = ctx.s")),
        with_y(("(x, y)", "(x, s, y)"), ("x, y = ctx", "x, s, y = ctx"), NOT_AGAIN),
        only_x(SAVE_S),
        only_x(HIDE_S),
        only_x((SAVE, f"{SAVE}\n        ctx.copy = x.double()")),
        only_x((SAVE, f"{SAVE}\n        ctx.copy = torch.sigmoid(x).bfloat16()")),
        KeepsTheGraph,
    ),
    wrong(
        "keeps_a_finer_copy",
        "In half precision you keep a copy of x in float32, beside x or in its place: two or three times the bytes of "
        "x. Keep x itself, and convert it again in backward.",
        only_x((SAVE, f"{WIDE}\n        ctx.save_for_backward(x, wide)")),
        only_x((SAVE, f"{WIDE}\n        ctx.save_for_backward(wide)"), (DX, f"{DX}.to(dy.dtype)")),
        only_x((SAVE, f"{SAVE}\n        ctx.s = torch.sigmoid(x) if x.itemsize != 4 else None")),
    ),
    wrong(
        "keeps_sigmoid_for_x",
        "With y in the caller's hands, sigmoid(x) is as few bytes as x, and the first derivative is right. But forward "
        "runs without recording, so the saved sigmoid is a constant afterwards, and its share of the second derivative "
        "is missing. Save the input itself and compute the rest in backward.",
        with_y(("(x, y)", "(s, y)"), ("x, y = ctx", "s, y = ctx"), NOT_AGAIN),
    ),
    wrong(
        "breaks_double_backward",
        "The first derivative is right, but when yours is differentiated again, x, dy or a factor made of x counts as "
        "a constant: no_grad, once_differentiable, detach, or a tensor made in forward (which does not record) cuts it "
        "off. Save the very x that was given, and let backward be ordinary torch operations on it and on dy.",
        only_x((TAKE, f"{TAKE}.detach()")),
        only_x((S, f"{S}.detach()")),
        only_x(("dy *", "dy.detach() *")),
        only_x((SAVE, "ctx.save_for_backward(x.clone())")),
        only_x((SAVE, "ctx.save_for_backward(x.contiguous())")),
        only_x((SAVE, "ctx.save_for_backward(x.reshape(-1))"), (TAKE, f"{TAKE}.reshape(dy.shape)")),
        only_x((SAVE, f"{S}\n        ctx.save_for_backward{SLOPE}"), NOT_AGAIN, (f"dy * {SLOPE}", "dy * x")),
        only_x(("return dy", "with torch.no_grad():\n            return dy")),
        only_x(("    def backward", "    @torch.autograd.function.once_differentiable\n    def backward")),
    ),
    wrong(
        "inverts_sigmoid",
        "You keep sigmoid(x) and compute x back from it. For large x it is rounded to 1, and no x comes back from "
        "that; and what forward computed is a constant to a second derivative. Keep x: sigmoid can be computed from "
        "it at any time.",
        only_x(
            (SAVE, "ctx.save_for_backward(torch.sigmoid(x))"), (TAKE, "(s,) = ctx.saved_tensors"), (S, "x = s.logit()")
        ),
    ),
    wrong(
        "exp_overflows",
        "Your formulas are right, but exp is infinite in float32 above 88. Where it stands above and below the "
        "fraction bar, or next to a factor that is 0, the result is nan, and one nan spoils every weight of a model. "
        "Where a torch.where hides it, the second derivative is nan all the same. torch.sigmoid never overflows: make "
        "the derivative of it.",
        only_x((S, "e = torch.exp(-x)"), (SLOPE, "(1 / (1 + e) + x * e / (1 + e) ** 2)")),
        only_x(OWN_SIGMOID),
        only_x((S, "s = torch.where(x < 0, torch.exp(x) / (1 + torch.exp(x)), 1 / (1 + torch.exp(-x)))")),
        only_x(OWN_SIGMOID, (VALUE, "return x * torch.exp(x) / (1 + torch.exp(x))")),
    ),
    wrong(
        "half_a_product_rule",
        "x sigmoid(x) is a product of two functions of x, so its derivative has two terms: sigmoid(x) times 1, plus x "
        "times the derivative of sigmoid, s (1 - s). Part of that is missing in yours: a term, or a factor of one.",
        only_x((SLOPE, "s")),
        only_x((SLOPE, "x * s * (1 - s)")),
        only_x((SLOPE, "s * (1 - s)")),
        only_x((SLOPE, "(s + s * (1 - s))")),
        only_x((SLOPE, "(s + x * s)")),
        only_x((SLOPE, "(s + x * (1 - s))")),
        only_x((SLOPE, "(1 + x * (1 - s))")),
    ),
    wrong(
        "sign_in_the_slope",
        "Your derivative has the right terms, and a sign in the second one is wrong. Sigmoid rises everywhere, and its "
        "slope s (1 - s) is positive; so is the sign of the product rule.",
        only_x((SLOPE, "(s - x * s * (1 - s))")),
        only_x((SLOPE, "(s + x * s * (1 + s))")),
    ),
    wrong(
        "s_taken_out_twice",
        "You take s = sigmoid(x) out of both terms of the product rule. It then stands in front and no longer inside: "
        "divide each term by s once, also the second.",
        only_x((SLOPE, "s * (1 + x * s * (1 - s))")),
    ),
    wrong(
        "slope_of_sigmoid_in_x",
        "The rule s' = s (1 - s) holds for s = sigmoid(x), the result. You put x in its place.",
        only_x((SLOPE, "(s + x * x * (1 - x))")),
    ),
    wrong(
        "ignores_dy",
        "backward gets dy, the derivative of some loss with respect to y, and returns that loss's derivative with "
        "respect to x: the local derivative times dy. Yours is right only where dy is 1.",
        only_x((f"dy * {SLOPE}", SLOPE)),
    ),
    wrong(
        "overwrites_x",
        "A method with a trailing underscore (`sigmoid_`, `mul_`) writes into the caller's x. After it x is gone: what "
        "is computed from it afterwards, in forward or in backward, is computed from something else. Make a new "
        "tensor.",
        only_x((SAVE, f"s = x.detach().sigmoid_()\n        {SAVE}"), (VALUE, "return x * s")),
        only_x((VALUE, "return x.mul_(torch.sigmoid(x))")),
    ),
    wrong(
        "overwrites_dy",
        "backward writes its result into dy (`mul_`, `*=`, out=). dy is not yours: the caller, or another branch of "
        "the graph, still needs it, and where dy requires a gradient, or is one number expanded, torch refuses. "
        "Return a new tensor.",
        only_x((DX, f"return dy.mul_{SLOPE}")),
        only_x((DX, f"return torch.mul(dy, {SLOPE}, out=dy)")),
    ),
    wrong(
        "divides_y_by_x",
        "y / x is sigmoid(x), except at x = 0: 0 / 0 is nan, and behind a torch.where its derivative still is. "
        "torch.sigmoid(x) costs no more than the division, and is right everywhere.",
        with_y((f"  {S}\n        return dy", "  s = y / x\n        return dy")),
        with_y((f"  {S}\n        return dy", "  s = torch.where(x == 0, 0.5, y / x)\n        return dy")),
    ),
    wrong(
        "kink_at_zero",
        "Your sigmoid is made of exp(-|x|), which never overflows. But torch takes 0 for the slope of |x| at x = 0, "
        "where sigmoid has the slope 1/4: your second derivative is wrong there. torch.sigmoid is right everywhere.",
        only_x((S, "e = torch.exp(-x.abs())\n        s = torch.where(x >= 0, 1 / (1 + e), e / (1 + e))")),
    ),
    wrong(
        "another_dtype",
        "y does not always come in the dtype of x: `.double()` makes float64 of any x, and `.float()` makes float32, "
        "which loses digits where x is in float64. Compute in the dtype of x, or in a finer one, and round what "
        "forward returns back: `.to(x.dtype)`.",
        only_x((VALUE, "return x.double() * torch.sigmoid(x.double())")),
        only_x((VALUE, "return x.float() * torch.sigmoid(x.float())")),
        only_x((VALUE, "x = x.float() if x.dtype == torch.float16 else x\n        return x * torch.sigmoid(x)")),
    ),
    wrong(
        "rounds_to_float32",
        "Where x is in float64, part of your computation runs in float32 (`.float()`, a constructor without dtype) and "
        "keeps 7 of 16 digits. Compute in the dtype of x or in a finer one.",
        only_x(
            (VALUE, "return (x.float() * torch.sigmoid(x.float())).to(x.dtype)"), (S, f"x = x.float()\n        {S}")
        ),
        only_x((SAVE, "ctx.save_for_backward(x.float())")),
        rounds_to=torch.float32,
    ),
    wrong(
        "keeps_y_for_x",
        "You keep y and use it in backward as if it were x. y costs no memory, because the caller holds it, but it "
        "does not tell which x it came from: x sigmoid(x) first falls and then rises, so two x have one y. Keep x.",
        only_x(*SAVE_Y),
        only_x(*SAVE_Y, (SLOPE, "(s + x * (1 - s))")),
    ),
    wrong(
        "one_place_for_all_calls",
        "Each call keeps its x in the same place, an attribute of the class or a global, and overwrites what the call "
        "before has kept: with two layers, backward of the first sees the x of the second. ctx belongs to one call: "
        "save x there.",
        only_x((SAVE, "SaveLess.x = x"), (TAKE, "x = SaveLess.x")),
        fails=("keeps_only_x",),
    ),
    wrong(
        "no_function_of_its_own",
        "SaveLess must be a class below torch.autograd.Function: its forward says what is computed, its backward how "
        "that is differentiated, both as static methods. apply comes from Function and calls them.",
        CallsSilu,
        ReplacesApply,
        HidesApply,
        HasNoBackward,
    ),
)
