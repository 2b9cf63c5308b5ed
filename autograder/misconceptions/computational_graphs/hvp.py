"""Wrong ways to write `hvp`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autograder.bank import Misconception

Function = Callable[[Tensor], Tensor]


def _leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


def _gradient(f: Function, x: Tensor) -> Tensor:
    leaf = _leaf(x)
    return torch.autograd.grad(f(leaf), leaf)[0]


def no_create_graph(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The gradient is made without a graph of its own."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf)
    return torch.autograd.grad((g * v).sum(), leaf)[0]


def x_without_grad(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """x does not require grad."""
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad((g * v).sum(), x)[0]


def forward_difference(f: Function, x: Tensor, v: Tensor, step: float = 1e-5) -> Tensor:
    """The change of the gradient along v, over the step."""
    return (_gradient(f, x + step * v) - _gradient(f, x)) / step


def central_difference(f: Function, x: Tensor, v: Tensor, step: float = 1e-3) -> Tensor:
    """The same on both sides, with a larger step."""
    return (_gradient(f, x + step * v) - _gradient(f, x - step * v)) / (2 * step)


def five_points_then_float32(f: Function, x: Tensor, v: Tensor, step: float = 1e-3) -> Tensor:
    """A difference of fourth order, rounded to hide its error."""
    near = _gradient(f, x + step * v) - _gradient(f, x - step * v)
    far = _gradient(f, x + 2 * step * v) - _gradient(f, x - 2 * step * v)
    return ((8 * near - far) / (12 * step)).float()


def double_backward_then_float32(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """Exact, and then rounded."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    return torch.autograd.grad((g * v).sum(), leaf)[0].float()


def v_in_float32(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The same, with v rounded."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    return torch.autograd.grad((g * v.float()).sum(), leaf)[0]


def hessian_times_v(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The whole Hessian in one call."""
    hessian: Tensor = torch.func.hessian(f)(x).reshape(x.numel(), x.numel())
    return (hessian @ v.flatten()).reshape(x.shape)


def row_by_row(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The Hessian's rows, stacked."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    rows = [torch.autograd.grad(each, leaf, retain_graph=True)[0].flatten() for each in g.flatten()]
    return (torch.stack(rows) @ v.flatten()).reshape(x.shape)


def entry_by_entry(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """One row at a time, each multiplied by v and let go."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    flat = g.flatten()
    entries = [(torch.autograd.grad(flat[i], leaf, retain_graph=True)[0] * v).sum() for i in range(x.numel())]
    return torch.stack(entries).reshape(x.shape)


def diagonal_only(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """Second derivatives by each entry alone, times v."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    rows = [torch.autograd.grad(each, leaf, retain_graph=True)[0].flatten() for each in g.flatten()]
    return torch.stack(rows).diagonal().reshape(x.shape) * v


def diagonal_of_the_hessian(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The same from the whole Hessian."""
    hessian: Tensor = torch.func.hessian(f)(x).reshape(x.numel(), x.numel())
    return hessian.diagonal().reshape(x.shape) * v


def multiplies_too_late(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The gradient of sum(g), times v: row sums of the Hessian."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    return torch.autograd.grad(g.sum(), leaf)[0] * v


def adds_the_gradient(f: Function, x: Tensor, v: Tensor) -> Tensor | None:
    """The second backward adds to the grad field that still holds the gradient."""
    leaf = _leaf(x)
    f(leaf).backward(create_graph=True)  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    (leaf.grad * v).sum().backward()  # type: ignore[no-untyped-call]
    return leaf.grad


def marks_the_callers_x(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """Right, and the caller's x requires grad afterwards."""
    x.requires_grad_()
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad((g * v).sum(), x)[0]


def vectors_only(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """`@` on matrices is another product, and on numbers none."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    return torch.autograd.grad(g @ v, leaf)[0]


def v_forgotten(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """Row sums of the Hessian."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    return torch.autograd.grad(g.sum(), leaf)[0]


def curvature_along_v(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """v.H v, a number."""
    leaf = _leaf(x)
    (g,) = torch.autograd.grad(f(leaf), leaf, create_graph=True)
    return (torch.autograd.grad((g * v).sum(), leaf)[0] * v).sum()


def gradient_times_v(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """Differentiates once: the slope along v, a number."""
    return (_gradient(f, x) * v).sum()


def gradient_times_v_by_entry(f: Function, x: Tensor, v: Tensor) -> Tensor:
    """The same without the sum."""
    return _gradient(f, x) * v


MISCONCEPTIONS = (
    Misconception(
        name="graph_detached",
        witnesses=(no_create_graph, x_without_grad),
        hint="torch found no graph from the gradient back to x. Two things must hold: x requires grad "
        "before f is called, and the first gradient is made with create_graph=True, so that it is itself "
        "the root of a graph.",
    ),
    Misconception(
        name="finite_difference_or_float32",
        witnesses=(
            forward_difference,
            central_difference,
            five_points_then_float32,
            double_backward_then_float32,
            v_in_float32,
        ),
        fails=("exact_to_rounding",),
        hint="Your result is near, not exact. A difference of two gradients does that, whatever the step; so does "
        "float32 inside, which keeps 7 digits. Differentiate the gradient itself, which costs no more than a "
        "difference, and stay in the dtype of x.",
    ),
    Misconception(
        name="builds_the_hessian",
        witnesses=(hessian_times_v, row_by_row, entry_by_entry),
        fails=("never_builds_the_hessian",),
        hint="Your result is right, and the price is n times too high: you build the Hessian, or go through its rows "
        "one after the other. For a model of a million parameters it has 10^12 entries. Multiply the gradient by v "
        "first, and differentiate the one number that this gives.",
    ),
    Misconception(
        name="diagonal_only",
        witnesses=(diagonal_only, diagonal_of_the_hessian),
        hint="You use the diagonal of the Hessian alone. Entry i of H v is a sum over all j of H_ij v_j: "
        "also how g_i changes when another entry of x moves.",
    ),
    Misconception(
        name="multiplies_too_late",
        witnesses=(multiplies_too_late,),
        hint="You differentiate sum(g) and multiply by v afterwards: that is v_i times the sum of row i. v "
        "must be inside, before the second derivative: differentiate sum(g * v).",
    ),
    Misconception(
        name="adds_the_gradient",
        witnesses=(adds_the_gradient,),
        hint="Your result is H v plus the gradient: `backward` adds to x.grad, which still held the "
        "gradient. Clear the field between the two passes, or use torch.autograd.grad, which returns and "
        "adds nothing.",
    ),
    Misconception(
        name="marks_the_callers_x",
        witnesses=(marks_the_callers_x,),
        hint="Your result is right, but afterwards the caller's x requires grad, and whatever is computed from it "
        "records a graph. Mark a tensor of your own: `x.detach()` makes one.",
    ),
    Misconception(
        name="vectors_only",
        witnesses=(vectors_only,),
        hint="Right for a vector. `@` and `torch.dot` multiply vectors; for two matrices, or two numbers, `@` is "
        "another product or none. Multiply entry by entry and sum over all: that works in every shape.",
    ),
    Misconception(
        name="v_forgotten",
        witnesses=(v_forgotten,),
        hint="v has no part in your result: it is the derivative of sum(g), which is H times a vector of ones. "
        "Multiply g by v before you sum and differentiate.",
    ),
    Misconception(
        name="curvature_along_v",
        witnesses=(curvature_along_v,),
        hint="Your result is one number, v.H v: the curvature along v. H v was in your hands, in the shape of x; it is "
        "not multiplied by v once more.",
    ),
    Misconception(
        name="differentiates_once",
        witnesses=(gradient_times_v, gradient_times_v_by_entry),
        hint="Gradient times v is the slope of f along v, a first derivative. H v is how the gradient "
        "changes along v: differentiate the sum of g * v once more by x.",
    ),
)
