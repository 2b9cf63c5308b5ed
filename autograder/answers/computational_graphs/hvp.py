"""Right and wrong ways to write `hvp`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited

Function = Callable[[Tensor], Tensor]


def torchs_own(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The library's function, which differentiates the gradient's product with v by another vector."""
    product: Tensor = torch.autograd.functional.hvp(f, x, v)[1]  # type: ignore[no-untyped-call]
    return product


def forward_over_reverse(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The gradient's derivative along v, in forward mode."""
    product: Tensor = torch.func.jvp(torch.func.grad(f), (x.detach(),), (v.detach(),))[1]
    return product


def linearized(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The gradient's derivative at x as a function, which is then asked for v."""
    _, along = torch.func.linearize(torch.func.grad(f), x.detach())
    product: Tensor = along(v.detach())
    return product


def v_as_upstream_gradient(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """v is what flows into the second backward pass."""
    point = x.detach().clone().requires_grad_()
    (g,) = torch.autograd.grad(f(point), point, create_graph=True)
    return torch.autograd.grad(g, point, grad_outputs=v)[0]


def through_the_grad_field(f: Function, x: Tensor, v: Tensor) -> Tensor | None:
    """Two calls of backward, with the field cleared between them."""
    x = x.detach().requires_grad_()
    f(x).backward(create_graph=True)  # type: ignore[no-untyped-call]
    g, x.grad = x.grad, None
    assert g is not None
    g.backward(v)  # type: ignore[no-untyped-call]
    return x.grad


RIGHT = (
    right(torchs_own, independent="torch.autograd.functional.hvp"),
    right(forward_over_reverse),
    right(linearized),
    right(v_as_upstream_gradient),
    right(through_the_grad_field),
)


def forward_difference(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The change of the gradient along v, over the step."""
    gradient, step = torch.func.grad(f), 1e-5
    product: Tensor = (gradient(x + step * v) - gradient(x)) / step
    return product.detach()


def complex_step(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The gradient at a complex point, next to x by so little that its imaginary part is the derivative along v."""
    point = torch.complex(x.detach().double(), 1e-30 * v.detach().double()).requires_grad_()
    value = f(point)
    (g,) = torch.autograd.grad(value, point, torch.ones_like(value))
    return (-g.imag / 1e-30).to(x.dtype)


def hessian_times_v(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The whole Hessian in one call."""
    hessian: Tensor = torch.func.hessian(f)(x).reshape(x.numel(), x.numel())
    return (hessian @ v.flatten()).reshape(x.shape).detach()


def gradient_times_v(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """Right, but for a linear f, which no case has: there torch finds no second graph, and neither do slips of this."""
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    (product,) = torch.autograd.grad((g * v).sum(), x)
    return product


double_backward = partial(edited, gradient_times_v)

MARK, RETURN = "x = x.detach().requires_grad_()", "return product"
IN_DTYPE = (RETURN, "return product.to(given.dtype)")
FLAT = "x, shape = x.detach().flatten().requires_grad_(), x.shape"
AGAIN = "(product,) = torch.autograd.grad((g * v).sum(), x)"
ROWS = "(torch.autograd.grad(each, x, retain_graph=True)[0] for each in g.flatten())"

WRONG = (
    wrong(
        "graph_detached",
        "torch found no graph from the gradient back to x. Two things must hold: x requires grad before f is called, "
        "and the first gradient is made with create_graph=True, so that it is itself the root of a graph.",
        double_backward((", create_graph=True", "")),
        double_backward((MARK, "pass")),
    ),
    wrong(
        "near_but_not_exact",
        "Your result is right to a percent or better, and not to the last digits. What is computed in float32 on the "
        "way keeps 7 of 15; a difference of two gradients loses digits, whatever the step; so do an epsilon and a "
        "rounded constant. Differentiate the gradient itself, in the dtype of x.",
        double_backward(("g * v", "g * v.float()")),
        double_backward((MARK, "x, v, given = x.detach().float().requires_grad_(), v.float(), x"), IN_DTYPE),
        forward_difference,
        edited(forward_difference, ("1e-5", "1e-3"), ("gradient(x)) /", "gradient(x - step * v)) / 2 /")),
        fails=("exact_to_rounding", "never_builds_the_hessian", "every_form"),
    ),
    wrong(
        "complex_step",
        "You take f at a complex point, and call an imaginary part a derivative. That holds for polynomials and "
        "sines; |x| has another derivative there, and relu and most of what models are made of none. Differentiate "
        "twice, at x itself.",
        complex_step,
    ),
    wrong(
        "rounded_result",
        "Your result is right to a percent or better, neither exact nor a tensor in the dtype of x. float32 keeps 7 "
        "digits of float64's 15: compute in the dtype of x, and return in it.",
        double_backward((RETURN, "return product.float()")),
        fails=("exact_to_rounding", "never_builds_the_hessian", "dtype_of_x", "every_form"),
    ),
    wrong(
        "another_dtype",
        "Your numbers are right, but what you return is not a tensor in the dtype of x. `.double()` makes float64 "
        "where x may be float32, and what is multiplied by a float64 tensor becomes float64 too.",
        double_backward((RETURN, "return product.double()")),
        fails=("dtype_of_x",),
    ),
    wrong(
        "keeps_the_graph",
        "Your result is right and still carries a graph, which holds everything that both passes saved as long as the "
        "result lives. Only the first derivative needs create_graph=True. Where the caller's x or v requires grad, "
        "forward mode records one too: give it x.detach() and v.detach().",
        edited(v_as_upstream_gradient, ("grad_outputs=v", "grad_outputs=v, create_graph=True")),
        edited(forward_over_reverse, ("(x.detach(),), (v.detach(),)", "(x,), (v,)")),
        fails=("result_without_a_graph",),
    ),
    wrong(
        "builds_the_hessian",
        "Your result is right, and the price is n times too high: you build the Hessian, or go through its rows one "
        "after the other. For a model of a million parameters it has 10^12 entries. Multiply the gradient by v first, "
        "and differentiate the one number that this gives.",
        hessian_times_v,
        double_backward(
            (AGAIN, f"product = torch.stack([(row * v).sum() for row in {ROWS}]).reshape(x.shape).detach()")
        ),
        fails=("never_builds_the_hessian",),
    ),
    wrong(
        "builds_the_hessian_with_a_graph",
        "Your numbers are right, and the price is n times too high: you build the Hessian, or go through its rows one "
        "after the other. What you return also carries a graph where the caller's x or v requires grad. Multiply the "
        "gradient by v first, and differentiate the one number that this gives by an x of your own, `x.detach()`.",
        edited(hessian_times_v, (".reshape(x.shape).detach()", ".reshape(x.shape)")),
        double_backward((AGAIN, f"product = torch.stack([(row * v).sum() for row in {ROWS}]).reshape(x.shape)")),
        fails=("never_builds_the_hessian", "result_without_a_graph"),
    ),
    wrong(
        "multiplies_too_late",
        "You differentiate sum(g), and v comes afterwards or not at all: entry i is the sum of row i of the Hessian, "
        "times v_i at most. v must be inside, before the second derivative: differentiate sum(g * v).",
        double_backward(("(g * v).sum()", "g.sum()"), (RETURN, "return product * v")),
        double_backward(("(g * v).sum()", "g.sum()")),
    ),
    wrong(
        "adds_the_gradient",
        "Your result is H v plus the gradient: `backward` adds to x.grad, which still held the gradient. Clear the "
        "field between the two passes, or use torch.autograd.grad, which returns and adds nothing.",
        edited(through_the_grad_field, ("g, x.grad = x.grad, None", "g = x.grad")),
    ),
    wrong(
        "marks_the_callers_x",
        "Your result is right, but afterwards the caller's x requires grad, and whatever is computed from it records a "
        "graph. Mark a tensor of your own: `x.detach()` makes one.",
        double_backward((MARK, "x.requires_grad_()")),
    ),
    wrong(
        "unmarks_the_callers_x",
        "Your result is right. But where the caller's x required grad it does not any more: you call "
        "`requires_grad_(False)` on it. Mark a tensor of your own: `x.detach()` makes one.",
        double_backward((MARK, "x.requires_grad_()"), (RETURN, f"x.requires_grad_(False)\n    {RETURN}")),
    ),
    wrong(
        "fills_the_callers_grad",
        "Your result is right. But where the caller's x requires grad, `backward` leaves something in its `grad`, and "
        "the caller's next step adds it up. Work on a tensor of your own, `x.detach()`, or use torch.autograd.grad.",
        edited(through_the_grad_field, (MARK, f"{MARK} if not x.requires_grad else x")),
    ),
    wrong(
        "flattens_x",
        "You call f with a flat tensor. f takes one in the shape of x: a matrix, a number. Differentiate by x as it "
        "is; sum(g * v) works in every shape.",
        double_backward((MARK, FLAT), ("g * v", "g * v.flatten()"), (RETURN, "return product.reshape(shape)")),
    ),
    wrong(
        "vectors_only",
        "Right for a vector. `@` and `torch.dot` multiply vectors; for two matrices, or two numbers, `@` is another "
        "product or none. Multiply entry by entry and sum over all: that works in every shape.",
        double_backward(("(g * v).sum()", "g @ v")),
    ),
    wrong(
        "nothing_where_v_is_0",
        "A number of v that is 0 leaves out a column of the Hessian, not a row: in H v each entry is a sum over all of "
        "v. With one number of v that is not 0 you get a whole column.",
        double_backward((RETURN, "return product * (v != 0)")),
    ),
    wrong(
        "curvature_along_v",
        "Your result is one number, v.H v: the curvature along v. H v was in your hands, in the shape of x; it is not "
        "multiplied by v once more.",
        double_backward((RETURN, "return (product * v).sum()")),
    ),
    wrong(
        "differentiates_once",
        "Gradient times v is the slope of f along v, a first derivative. H v is how the gradient changes along v: "
        "differentiate the sum of g * v once more by x.",
        double_backward((AGAIN, "product = (g * v).sum()")),
        double_backward((AGAIN, "product = g * v")),
    ),
)
