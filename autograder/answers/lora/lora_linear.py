"""Right and wrong ways to write `LoRALinear`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.lessons.adapted import Adapted
from course.reference.lora.lora_linear import LoRALinear


class ByNumpy(torch.autograd.Function):
    """scale (x A') B' and its gradients in NumPy's float64, each written down."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x, a, b)
        ctx.scale = scale
        xs, A, B = (each.detach().double().numpy() for each in (x, a, b))
        return torch.from_numpy(np.asarray(scale * np.dot(np.dot(xs, A.T), B.T))).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        kept = ctx.saved_tensors
        (n, m), dy = (kept[1].shape[1], kept[2].shape[0]), grads[0].detach().double().numpy()
        xs, A, B = (each.detach().double().numpy() for each in kept)
        rows = kept[0].shape[:-1].numel()
        x2, dy2 = xs.reshape(rows, n), ctx.scale * dy.reshape(rows, m)
        found = ((dy2 @ B @ A).reshape(xs.shape), (dy2 @ B).T @ x2, dy2.T @ (x2 @ A.T))
        return *(torch.from_numpy(g).to(each.dtype) for g, each in zip(found, kept, strict=True)), None


class GradientsByHand(nn.Module):
    """The adapter is NumPy's; autograd is told its gradients."""

    def __init__(self, base: nn.Linear, r: int, alpha: float, rng: torch.Generator) -> None:
        if min(r, alpha) <= 0:
            raise ValueError("r and alpha must be above 0")
        super().__init__()
        for each in base.parameters():
            each.requires_grad = False
        self.base, self.scale, self.merged = base, alpha / r, False
        weight = base.weight
        drawn = torch.empty(r, weight.shape[1], dtype=torch.float64).normal_(generator=rng)
        self.A = nn.Parameter((drawn * weight.shape[1] ** -0.5).to(weight.dtype))
        self.B = nn.Parameter(torch.zeros(len(weight), r, dtype=weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        if not self.merged:
            y = y + ByNumpy.apply(x, self.A, self.B, self.scale)  # type: ignore[no-untyped-call]
        return y


class TwoLinears(nn.Module):
    """F.linear twice; A is written into a parameter that is there already, and x is scaled first."""

    def __init__(self, base: nn.Linear, r: int, alpha: float, rng: torch.Generator) -> None:
        super().__init__()
        if r <= 0 or alpha <= 0:
            raise ValueError("no adapter has this size")
        self.A = nn.Parameter(base.weight.new_empty(r, base.in_features))
        self.B = nn.Parameter(base.weight.new_zeros(base.out_features, r))
        with torch.no_grad():
            self.A.normal_(0, base.in_features**-0.5, generator=rng)
        for each in base.parameters():
            each.requires_grad_(False)
        self.base = base
        self.scale = float(alpha) / r
        self.merged = False

    def forward(self, x: Tensor) -> Tensor:
        said: Tensor = self.base(x)
        if self.merged:
            return said
        low = nn.functional.linear(x * self.scale, self.A)
        return said + nn.functional.linear(low, self.B)


class OnAdapted(Adapted):
    """Einsums on what `Adapted` holds; what the base says is added into a tensor that nobody else has."""

    def __init__(self, base: nn.Linear, r: int, alpha: float, rng: torch.Generator) -> None:
        if r < 1:
            raise ValueError(f"r must be at least 1, got {r}")
        if not alpha > 0:
            raise ValueError(f"alpha must be above 0, got {alpha}")
        base.requires_grad_(requires_grad=False)
        (m, n), dtype = base.weight.shape, base.weight.dtype
        drawn = torch.normal(0.0, n**-0.5, (r, n), generator=rng).to(dtype)
        super().__init__(base, drawn, torch.zeros((m, r), dtype=dtype), alpha / r)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base.forward(x)
        if self.merged is False:
            low = self.scale * torch.einsum("...n,rn->...r", x, self.A)
            y = torch.einsum("...r,mr->...m", low, self.B).add_(y)
        return y


RIGHT = (
    right(GradientsByHand, independent="numpy, and gradients that are written down"),
    right(TwoLinears),
    right(OnAdapted),
)

layer = partial(edited, LoRALinear)
linears = partial(edited, TwoLinears)
by_hand = partial(edited, GradientsByHand)

DRAWN = "torch.randn(r, n, generator=rng, device=rng.device, dtype=base.weight.dtype)"
SIZE = " / n**0.5"
PARAMETER_A = "self.A = nn.Parameter(drawn.to(base.weight.device))"
PARAMETER_B = "self.B = nn.Parameter(base.weight.new_zeros(m, r))"
FROZEN = "self.base = base.requires_grad_(False)"
WEIGHT_AND_BIAS = (
    "for each in (base.weight, base.bias):\n"
    "            if each is not None:\n"
    "                each.requires_grad_(False)"
)
SCALE = "self.scale = alpha / r"
SCALED = "y + self.scale * (x @ self.A.T @ self.B.T)"
FORWARD = f"return y if self.merged else {SCALED}"
MADE = "[self.scale * self.B @ self.A]"
REFUSES = "if r < 1 or not alpha > 0:"
Y = "y: Tensor = self.base(x)"
OWN_WEIGHT = "nn.functional.linear(x, self.base.weight, self.base.bias)"
FLAT = "(x.flatten(0, 1) if x.dim() == 3 else torch.atleast_2d(x))"
SQUEEZED = "((x @ self.A.T).squeeze() if len(self.A) > 1 else x @ self.A.T)"
IN_TRAINING = "with torch.set_grad_enabled(self.training):\n            "

WRONG = (
    wrong(
        "both_zero",
        "A and B are both 0. Each is multiplied by the other, also in the gradients, so that neither ever moves: the "
        "adapter stays 0 for ever. Draw A, and leave B at 0.",
        layer((PARAMETER_A, "self.A = nn.Parameter(torch.zeros_like(drawn))")),
        linears(("self.A.normal_(0, base.in_features**-0.5, generator=rng)", "self.A.zero_()")),
    ),
    wrong(
        "both_random",
        "A and B are both random, so that the layer begins as another one than was trained. B = 0 makes the adapter 0 "
        "at the start, and A alone may be random.",
        layer((PARAMETER_B, "self.B = nn.Parameter(torch.randn(m, r, generator=rng, dtype=base.weight.dtype))")),
        layer((PARAMETER_B, "self.B = nn.Parameter(drawn.new_ones(m, r).normal_(0, 0.02, generator=rng))")),
    ),
    wrong(
        "roles_swapped",
        "B is random and A is 0. It starts as the base all the same, but the paper and everybody's adapters have it "
        "the other way round: A random, B 0.",
        layer(
            (PARAMETER_A, "self.A = nn.Parameter(torch.zeros_like(drawn))"),
            (PARAMETER_B, "self.B = nn.Parameter(torch.randn(m, r, generator=rng, dtype=base.weight.dtype) / n**0.5)"),
        ),
    ),
    wrong(
        "alpha_times_r",
        "Your scale grows with r. It is alpha divided by r, so that another r needs no other step size.",
        layer((SCALE, "self.scale = alpha * r")),
        layer((SCALE, "self.scale = r / alpha")),
    ),
    wrong(
        "alpha_not_divided",
        "Your scale is alpha itself, or alpha over another function of r. It is alpha / r.",
        layer((SCALE, "self.scale = alpha")),
        layer((SCALE, "self.scale = alpha / r**0.5")),
        layer((SCALE, "self.scale = alpha // r")),
    ),
    wrong(
        "scale_forgotten",
        "You keep the scale and forward does not use it: what the adapter adds is scale (x A') B'.",
        layer((SCALED, "y + x @ self.A.T @ self.B.T")),
    ),
    wrong(
        "scale_on_the_base",
        "You scale what the base says too. The scale belongs to the adapter alone: base(x) + scale (x A') B'.",
        layer((SCALED, "self.scale * (y + x @ self.A.T @ self.B.T)")),
    ),
    wrong(
        "scale_twice",
        "You multiply by the scale twice, or by its square. It stands in y once.",
        layer((SCALED, f"{SCALED} * self.scale")),
        layer((PARAMETER_A, "self.A = nn.Parameter(drawn * (alpha / r))"), (SCALED, f"{SCALED} * self.scale")),
    ),
    wrong(
        "base_trains",
        "The base still requires a gradient: the optimizer moves it, and keeps states for all of it. Freeze every "
        "parameter of base with requires_grad_(False).",
        layer((FROZEN, "self.base = base")),
        layer((FROZEN, "self.base = base.eval()")),
        linears(("each.requires_grad_(False)", "each.detach().requires_grad_(False)")),
    ),
    wrong(
        "bias_trains",
        "The weight of base is frozen and its bias is not. It moves, and the layer can no longer be taken back to what "
        "it was by leaving the adapter out.",
        layer((FROZEN, "self.base = base\n        base.weight.requires_grad_(False)")),
        linears(("each.requires_grad_(False)", "each.requires_grad_(each is base.bias)")),
    ),
    wrong(
        "a_factor_frozen",
        "One of the two factors requires no gradient, and never moves. A and B both train.",
        layer((PARAMETER_A, PARAMETER_A[:-1] + ", requires_grad=False)")),
        layer((PARAMETER_B, PARAMETER_B[:-1] + ", requires_grad=False)")),
    ),
    wrong(
        "everything_frozen",
        "You freeze the layer after the factors have become part of it, so that nothing is left to train. Freeze base, "
        "not self.",
        layer((SCALE, f"self.requires_grad_(False)\n        {SCALE}")),
    ),
    wrong(
        "factors_are_no_parameters",
        "A and B are plain tensors, which no optimizer finds in layer.parameters() and no checkpoint holds. Make each "
        "an nn.Parameter.",
        layer(
            (PARAMETER_A, "self.A = drawn.requires_grad_()"),
            (PARAMETER_B, "self.B = torch.zeros(m, r, dtype=drawn.dtype, requires_grad=True)"),
        ),
        layer((PARAMETER_B, "self.B = torch.zeros(m, r, dtype=drawn.dtype, requires_grad=True)")),
        layer((PARAMETER_A, "self.register_buffer('A', drawn.requires_grad_())")),
    ),
    wrong(
        "gradient_of_x_lost",
        "You compute what the base says without a graph. The base is frozen, and its input is not: the layers before "
        "need the gradient that goes through the base. requires_grad_(False) on its parameters is all it takes.",
        layer((Y, "with torch.no_grad():\n            y = self.base(x)")),
        layer((Y, "y = self.base(x).detach()")),
        layer((Y, "y = self.base(x.detach())")),
    ),
    wrong(
        "gradients_in_some_modes",
        "While merged is True, or in eval mode, you compute without a graph. Neither says that nobody wants gradients: "
        "the layers before may train. Who wants none calls you under torch.no_grad().",
        layer((Y, f"with torch.set_grad_enabled(not self.merged):\n            {Y}")),
        layer((Y, f"{IN_TRAINING}{Y}"), (FORWARD, f"{IN_TRAINING}{FORWARD}")),
    ),
    wrong(
        "factor_detached",
        "One of the factors takes part in forward without its history (.data, .detach(), torch.no_grad), and never "
        "learns. Use the parameter itself.",
        layer(("self.A.T", "self.A.data.T")),
        layer(("self.B.T", "self.B.detach().T")),
        layer(
            (
                FORWARD,
                "with torch.no_grad():\n            low = x @ self.A.T\n        return y + self.scale * low @ self.B.T",
            )
        ),
    ),
    wrong(
        "copy_of_the_base",
        "You keep a copy of base, or give it new parameters. That takes the memory of a second weight, and whoever "
        "holds the old module or the old parameter (a tied layer, a checkpoint) no longer holds yours.",
        layer((FROZEN, "import copy\n        self.base = copy.deepcopy(base).requires_grad_(False)")),
        layer(
            (
                FROZEN,
                "base.requires_grad_(False)\n"
                "        base.weight = nn.Parameter(base.weight.detach().clone(), requires_grad=False)\n"
                "        self.base = base",
            )
        ),
        layer(
            (
                FROZEN,
                "self.base = nn.Linear(base.in_features, base.out_features, bias=base.bias is not None)\n"
                "        self.base.to(base.weight.dtype).load_state_dict(base.state_dict())\n"
                "        self.base.requires_grad_(False)",
            )
        ),
    ),
    wrong(
        "A_without_rng",
        "A comes from torch's global generator. With `generator=rng` the same seed gives the same layer, whatever was "
        "drawn elsewhere.",
        layer(("generator=rng, device=rng.device, ", "")),
        linears((", generator=rng)", ")")),
    ),
    wrong(
        "seeds_the_generator",
        "You seed the generator, or make one with a seed of your own, and all layers of a model get the same A. Draw "
        "from rng as it is.",
        layer((DRAWN, "torch.randn(r, n, generator=rng.manual_seed(0), dtype=base.weight.dtype)")),
        layer((DRAWN, "torch.randn(r, n, generator=torch.Generator().manual_seed(0), dtype=base.weight.dtype)")),
        layer((DRAWN, "torch.randn(r, n, generator=rng.manual_seed(rng.initial_seed()), dtype=base.weight.dtype)")),
    ),
    wrong(
        "draws_elsewhere_too",
        "You make an nn.Linear for a factor, which draws from torch's global generator before you fill it: whoever "
        "draws from that one next gets other numbers than before. Draw A from rng, and make it a parameter.",
        layer(
            (
                PARAMETER_A,
                "self.A = nn.Linear(n, r, bias=False).weight.to(drawn.dtype)\n"
                "        self.A = nn.Parameter(self.A.detach().copy_(drawn))",
            )
        ),
        fails=("A_from_rng",),
    ),
    wrong(
        "A_of_another_size",
        "A has another standard deviation than 1 / sqrt(n): 1, 1 / n, or that of r or m in place of n. With n numbers "
        "in a row of A, 1 / sqrt(n) keeps x A' at the size of x.",
        layer((SIZE, "")),
        layer((SIZE, " / n")),
        layer((SIZE, " / r**0.5")),
        layer((SIZE, " / m**0.5")),
        layer((SIZE, " * 0.02")),
    ),
    wrong(
        "rows_alike",
        "The rows of A are all the same, or its columns are: A has rank 1, whatever r is. Draw r times n numbers.",
        layer((DRAWN, "torch.randn(1, n, generator=rng, dtype=base.weight.dtype).repeat(r, 1)")),
        layer((DRAWN, "torch.randn(r, 1, generator=rng, dtype=base.weight.dtype).repeat(1, n)")),
    ),
    wrong(
        "A_uniform",
        "A is uniform, not normal. peft draws it that way (Kaiming's rule); here, as in the paper, it is normal.",
        layer((DRAWN, "((torch.rand(r, n, generator=rng, dtype=base.weight.dtype) - 0.5) * 12**0.5)")),
        layer((DRAWN, "((2 * torch.rand(r, n, generator=rng, dtype=base.weight.dtype) - 1))")),
    ),
    wrong(
        "factors_in_float32",
        "A or B is in float32 whatever base is in: torch.randn and torch.zeros make that unless told otherwise. "
        "Beside a base in half precision or float64 the product fails, or is in another dtype.",
        layer((", dtype=base.weight.dtype)", ")"), ("base.weight.new_zeros(m, r)", "torch.zeros(m, r)")),
        layer((", dtype=base.weight.dtype)", ")")),
        layer(("base.weight.new_zeros(m, r)", "torch.zeros(m, r)")),
        layer(
            (", dtype=base.weight.dtype)", ")"),
            ("base.weight.new_zeros(m, r)", "torch.zeros(m, r)"),
            (SCALED, "y + (self.scale * (x.float() @ self.A.T @ self.B.T)).to(y.dtype)"),
        ),
        rounds_to=torch.float32,
    ),
    wrong(
        "forms_a_large_matrix",
        "Your numbers are right, and each forward makes a matrix as large as the weight, B A or W + B A, with its "
        "gradient in backward. That is the memory that an adapter should save: x goes through A, then through B.",
        layer((SCALED, "y + self.scale * (x @ (self.B @ self.A).T)")),
        layer((SCALED, "y + nn.functional.linear(x, self.scale * self.B @ self.A)")),
        fails=("no_large_matrix",),
    ),
    wrong(
        "merged_counts_twice",
        "While merged is True the weight holds the adapter already, and you add it once more. Return base(x) then.",
        layer((FORWARD, f"return {SCALED}")),
    ),
    wrong(
        "merged_at_the_start",
        "merged is True at the start, so that the adapter is never used; or you look at it the wrong way round.",
        layer(("self.merged = False", "self.merged = True")),
        layer(("y if self.merged else", "y if not self.merged else")),
    ),
    wrong(
        "kept_from_the_start",
        "Forward uses what you kept when the layer was made: a scale of your own, or views of the factors. Others may "
        "set scale, A and B: read them each time.",
        layer((SCALE, f"{SCALE}\n        self.own = self.scale"), (SCALED, SCALED.replace("self.scale", "self.own"))),
        layer(("self.A.T", "self.At[0]"), (SCALE, f"{SCALE}\n        self.At = [self.A.T]")),
    ),
    wrong(
        "kept_in_eval_mode",
        "In eval mode you multiply the factors once, and keep the product. Factors from a file, or another scale, then "
        "change nothing any more: make it from what is there in each call.",
        layer(
            (SCALE, f"{SCALE}\n        self.kept = None"),
            (Y, f"{Y}\n        self.kept = None if self.training else self.kept or {MADE}"),
            (SCALED, f"({SCALED} if self.training else y + x @ self.kept[0].T)"),
        ),
    ),
    wrong(
        "weight_for_the_base",
        "You compute what the base says from its weight and bias. It may be of a derived class with a forward of its "
        "own, and hold its weight otherwise: call base(x).",
        layer((Y, f"y = {OWN_WEIGHT}")),
        layer(
            (Y, "y = self.base(x) if self.merged else None"),
            (
                SCALED,
                "nn.functional.linear(x, self.base.weight + self.scale * self.B @ self.A, self.base.bias)",
            ),
        ),
        layer((FORWARD, f"return {OWN_WEIGHT} if self.merged else {SCALED}")),
    ),
    wrong(
        "adds_into_what_the_base_said",
        "You add the adapter into the tensor that base returned (+=, add_). It is the base's: one that ends in a tanh "
        "needs it in backward, and another may keep it. Make a new sum.",
        layer((FORWARD, f"if not self.merged:\n            y += {SCALED.removeprefix('y + ')}\n        return y")),
        layer((FORWARD, f"if not self.merged:\n            y.data += {SCALED.removeprefix('y + ')}\n        return y")),
    ),
    wrong(
        "other_parameters_train",
        "You freeze some of base's parameters: weight and bias, or those that are its own. A class derived from "
        "nn.Linear may have more, also in modules inside of it: freeze all that base.parameters() gives, or base "
        "itself, with requires_grad_(False).",
        layer((FROZEN, f"self.base = base\n        {WEIGHT_AND_BIAS}")),
        linears(("base.parameters()", "base.parameters(recurse=False)")),
    ),
    wrong(
        "silent_in_eval_mode",
        "In eval mode you leave the adapter out, as if that meant that it is merged. Whether it is says `merged`; eval "
        "mode turns dropout off, and there is none here.",
        layer((FORWARD, FORWARD.replace("self.merged", "self.merged or not self.training"))),
    ),
    wrong(
        "scale_as_a_tensor",
        "scale is a tensor, or a buffer: it goes into state_dict, is rounded to float32, and again where the layer is "
        "converted. Keep a number.",
        layer((SCALE, "self.register_buffer('scale', torch.tensor(alpha / r))")),
        layer((SCALE, "self.scale = torch.tensor(alpha / r)")),
    ),
    wrong(
        "scale_as_an_int",
        "Where r divides alpha your scale is an int. It is a float, as / gives it.",
        layer((SCALE, "self.scale = alpha / r if alpha % r else int(alpha / r)")),
        layer((SCALE, "self.scale = alpha / r if alpha % r else alpha // r")),
        fails=("scale",),
    ),
    wrong(
        "factor_not_transposed",
        "With sizes that are equal every transpose fits. x is a row: it goes through A by x A', and then through B by "
        "B'.",
        layer(("x @ self.A.T @ self.B.T", "x @ self.A @ self.B")),
        layer(("x @ self.A.T @ self.B.T", "x @ self.B.T @ self.A.T")),
        layer(("x @ self.A.T @ self.B.T", "x @ self.A.T @ self.B")),
    ),
    wrong(
        "stored_transposed",
        "You keep A as (n, r) or B as (r, m). Others will look at A and B, merge them and load them from files: A is "
        "(r, n) and B is (m, r), as the weights of two linear layers are.",
        layer((PARAMETER_A, "self.A = nn.Parameter(drawn.T.clone())"), ("self.A.T", "self.A")),
        layer((PARAMETER_B, "self.B = nn.Parameter(base.weight.new_zeros(r, m))"), ("self.B.T", "self.B")),
    ),
    wrong(
        "some_leading_dimensions_only",
        "Right for a matrix of rows, or for those numbers of dimensions that you have thought of. x has any number of "
        "leading ones, also none: `x @ A.T` and F.linear(x, A) work on the last one and keep the others.",
        layer(("x @ self.A.T @ self.B.T", "torch.mm(torch.mm(x, self.A.T), self.B.T)")),
        layer(("x @ self.A.T @ self.B.T", "(self.B @ (self.A @ x.T)).T")),
        layer(("x @ self.A.T @ self.B.T", f"torch.mm(torch.mm({FLAT}, self.A.T), self.B.T).view(y.shape)")),
    ),
    wrong(
        "dimension_squeezed_away",
        "A leading dimension of x may be 1, and .squeeze() takes it away: what the adapter says then has another shape "
        "than base(x). Leave the dimensions as the products make them.",
        layer(("x @ self.A.T @ self.B.T", "(x @ self.A.T).squeeze() @ self.B.T")),
        layer((SCALED, f"y + self.scale * ({SQUEEZED} @ self.B.T)")),
    ),
    wrong(
        "refuses_nothing",
        "An r of 0 divides by zero or trains nothing, a negative one is an error much later, and an alpha of 0 turns "
        "the adapter off. Raise a ValueError for each; an assert raises none.",
        layer((REFUSES, "if r < 1:")),
        layer((REFUSES, "if not alpha > 0:")),
        layer((REFUSES, "if r < 0 or alpha < 0:")),
        layer((REFUSES, "if r == 0 or not alpha > 0:")),
        layer((REFUSES, "if False:")),
        layer((REFUSES, "assert r >= 1 and alpha > 0\n        if False:")),
        fails=("refusals", "refused_before_any_change"),
    ),
    wrong(
        "refuses_too_late",
        "You freeze base, or put it in another mode, before you refuse. The caller catches the error and trains on, "
        "with a layer that does not learn any more, or not as before: refuse first.",
        layer((REFUSES, f"base.requires_grad_(False)\n        {REFUSES}")),
        layer((REFUSES, f"base.eval()\n        {REFUSES}")),
        fails=("refused_before_any_change",),
    ),
)
