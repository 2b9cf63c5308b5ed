"""Right and wrong ways to write `reversible_backward`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.reversible_backward import reversible_backward

Pair = tuple[Tensor, Tensor]


def by_differentiating_the_block(block: Any, y: Pair, dy: Pair) -> tuple[Pair, Pair]:
    """Both halves evaluated first, then the whole block recorded once from values that are put in place of f and g."""
    y1, y2, dy1, dy2 = (each.detach() for each in (*y, *dy))
    with torch.enable_grad():
        middle = y1.clone().requires_grad_()
        g = block.g(middle)
        x2 = (y2 - g.detach()).requires_grad_()
        f = block.f(x2)
        x1 = y1 - f.detach()
        torch.autograd.backward([x2.detach() + g, middle], [dy2, dy1])
        torch.autograd.backward([x1 + f, x2], [middle.grad, dy2])
    return (x1, x2.detach()), (middle.grad, x2.grad)  # type: ignore[return-value]


def with_autograd_grad(block: Any, y: Pair, dy: Pair) -> tuple[Pair, Pair]:
    """torch.autograd.grad, and parameters' gradients added by hand."""

    def back(layer: Any, x: Tensor, d: Tensor) -> Pair:
        trained = [p for p in layer.parameters() if p.requires_grad]
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            out = layer(x)
            dx, *grads = torch.autograd.grad(out, [x, *trained], d)
        for p, grad in zip(trained, grads, strict=True):
            p.grad = grad if p.grad is None else p.grad + grad
        return out.detach(), dx

    (y1, y2), (d1, d2) = y, (each.detach() for each in dy)
    g, dg = back(block.g, y1, d2)
    x2 = y2.detach() - g
    f, df = back(block.f, x2, d1 + dg)
    return (y1.detach() - f, x2), (d1 + dg, d2 + df)


RIGHT = (
    right(by_differentiating_the_block, independent="torch.autograd.backward through x2 + g(y1) and x1 + f(x2)"),
    right(with_autograd_grad),
)


def rows_alone(block: Any, y: Pair, dy: Pair) -> tuple[Pair, Pair]:
    """f and g get two dimensions, whatever y has."""
    shape = y[0].shape
    (y1, y2), (dy1, dy2) = ([each.reshape(-1, shape[-1]) for each in pair] for pair in (y, dy))
    (x1, x2), (dx1, dx2) = reversible_backward(block, (y1, y2), (dy1, dy2))
    return (x1.reshape(shape), x2.reshape(shape)), (dx1.reshape(shape), dx2.reshape(shape))


mistaken = partial(edited, reversible_backward)
summed = partial(edited, with_autograd_grad)

DETACHED = "y1, y2, dy1, dy2 = (each.detach() for each in (*y, *dy))"
X2, DX1, F = "x2 = y2 - g_of_y1", "dx1 = dy1 + through_g", "f_of_x2, through_f = _both_ways(block.f, x2, dx1)"
RETURN = "return (y1 - f_of_x2, x2), (dx1, dy2 + through_f)"
SUM = "p.grad = grad if p.grad is None else p.grad + grad"
ADDED = f"for p, grad in zip(trained, grads, strict=True):\n            {SUM}"
LEAF, BACK, BOTH = (
    "leaf = x.detach().requires_grad_()",
    "torch.autograd.backward(y, dy)",
    "return y.detach(), leaf.grad",
)

WRONG = (
    wrong(
        "halves_swapped",
        "Your pairs have their halves in the wrong order: the half that f was added to comes first, in x and in dx.",
        mistaken((RETURN, "return (x2, y1 - f_of_x2), (dy2 + through_f, dx1)")),
        mistaken((RETURN, "return (y1 - f_of_x2, x2), (dy2 + through_f, dx1)")),
    ),
    wrong(
        "blocks_order_of_forward",
        "You undo f before g, in the order of forward. f needs x2, which is not known yet: y2 is not x2. Undo the last "
        "addition first: x2 = y2 - g(y1).",
        mistaken((F, "f_of_x2, through_f = _both_ways(block.f, y2, dx1)")),
    ),
    wrong(
        "f_and_g_exchanged",
        "You evaluate f where g belongs, and g where f does: y2 = x2 + g(y1), and y1 = x1 + f(x2).",
        mistaken(("block.g", "block.h"), ("block.f", "block.g"), ("block.h", "block.f")),
    ),
    wrong(
        "added_in_place_of_subtracted",
        "You add what forward added once more. The inputs come back by subtraction.",
        mistaken((RETURN, RETURN.replace("y1 - f", "y1 + f"))),
        mistaken((X2, "x2 = y2 + g_of_y1")),
    ),
    wrong(
        "path_through_g_missing",
        "dy1 alone is sent back through f, or returned as dx1. y1 also feeds g: what reaches y1 is dy1 and what dy2 "
        "becomes on its way back through g.",
        mistaken((F, F.replace("dx1", "dy1"))),
        mistaken((DX1, "dx1 = dy1")),
    ),
    wrong(
        "path_beside_the_layer_missing",
        "You return what comes back through f or g alone. Each half is also added to its output as it is, so its "
        "gradient passes unchanged too.",
        mistaken((DX1, "dx1 = through_g")),
        mistaken((RETURN, RETURN.replace("dy2 + ", ""))),
    ),
    wrong(
        "gradients_overwritten",
        "Parameters had gradients before your call, and they are gone. backward adds to .grad; do not clear or assign "
        "it.",
        mistaken((BACK, f"layer.zero_grad()\n    {BACK}")),
    ),
    wrong(
        "parameters_left_out",
        "Your dx is right, but f's and g's parameters get no gradients: torch.autograd.grad returns those of the "
        "inputs that you name and writes no .grad. torch.autograd.backward serves the parameters on its way.",
        mistaken((BACK, "(leaf.grad,) = torch.autograd.grad(y, leaf, dy)")),
    ),
    wrong(
        "counted_twice",
        "Parameters get their gradients more than once: you go back through f or g a second time.",
        mistaken(
            (BACK, f"torch.autograd.backward(y, dy, retain_graph=True)\n    {BACK}\n    leaf.grad = leaf.grad / 2")
        ),
    ),
    wrong(
        "evaluated_twice",
        "You evaluate f and g twice: once to rebuild the inputs, and once to go back. One recorded evaluation does "
        "both: its value, detached, rebuilds.",
        mistaken((BOTH, "with torch.no_grad():\n        return layer(x), leaf.grad")),
        fails=("each_called_once",),
    ),
    wrong(
        "graph_kept",
        "What you return requires a gradient, so it keeps its graph, and in a chain of blocks the graphs of all: the "
        "memory that reversible blocks are there to save. Detach the values, and record nothing but f and g.",
        mistaken((BOTH, "return y, leaf.grad")),
        mistaken((BACK, "torch.autograd.backward(y, dy, create_graph=True)")),
        mistaken((RETURN, RETURN.replace(", x2)", ", x2.requires_grad_())"))),
    ),
    wrong(
        "arguments_not_detached",
        "You use y or dy as they come. Where they require a gradient, what you compute from them is recorded, and its "
        "graph is kept.",
        mistaken((DETACHED, "y1, y2, dy1, dy2 = (*y, *dy)")),
    ),
    wrong(
        "recording_not_enabled",
        "Recording is off where you are called from inside a backward. Evaluate f and g under torch.enable_grad().",
        mistaken(("with torch.enable_grad():", "with torch.set_grad_enabled(torch.is_grad_enabled()):")),
    ),
    wrong(
        "requires_grad_of_the_callers_tensor",
        "You let y itself require a gradient, and its .grad fills. The tensor is the caller's: detach first.",
        mistaken(
            (DETACHED, "y1, (y2, dy1, dy2) = y[0], (each.detach() for each in (y[1], *dy))"),
            (LEAF, "leaf = x.requires_grad_()"),
            (RETURN, "return (y1.detach() - f_of_x2, x2.detach()), (dx1, dy2 + through_f)"),
        ),
    ),
    wrong(
        "gradient_added_in_place",
        "You add into dy, or subtract from y, in place. They are the caller's: make new tensors.",
        mistaken((DX1, "dx1 = dy1.add_(through_g)")),
        mistaken((X2, "x2 = y2.sub_(g_of_y1)")),
    ),
    wrong(
        "recording_left_on",
        "You switch recording on and leave it on. Use `with torch.enable_grad():`, which sets it back.",
        mistaken(("with torch.enable_grad():", "torch.set_grad_enabled(True)\n    if True:")),
    ),
    wrong(
        "frozen_parameters",
        "Some of a layer's parameters may be frozen, and others not. Ask each of them; torch.autograd.grad takes only "
        "those that require a gradient. A frozen one stays frozen, and its .grad None.",
        summed(("if p.requires_grad]", "]")),
        summed(("if p.requires_grad]", "if all(each.requires_grad for each in layer.parameters())]")),
        mistaken((LEAF, f"layer.requires_grad_()\n        {LEAF}")),
    ),
    wrong(
        "output_overwritten",
        "You compute in the tensor that g returned. It may be g's input itself, and so y1: make a new one.",
        mistaken((X2, "x2 = g_of_y1.neg_().add_(y2)")),
        mistaken((RETURN, f"torch.sub(y1, f_of_x2, out=f_of_x2)\n    {RETURN.replace('y1 - ', '')}")),
    ),
    wrong(
        "layers_inside_left_out",
        "f may hold other layers, and theirs are its parameters too: parameters(), with those of all layers inside.",
        summed(("layer.parameters()", "layer.parameters(recurse=False)")),
    ),
    wrong(
        "one_module_counted_once",
        "f and g may be one module. Its parameters then get two gradients, and you keep one for each parameter: add "
        "each to .grad as it comes.",
        summed(
            ("(y1, y2), (d1, d2) = y,", "found = {}\n    (y1, y2), (d1, d2) = y,"),
            (ADDED, "found.update(zip(trained, grads))"),
            ("    return (y1.detach()", f"    for p, grad in found.items():\n        {SUM}\n    return (y1.detach()"),
        ),
    ),
    wrong(
        "rows_folded",
        "You fold all dimensions but the last into one. f and g may mix what you folded: give them y's shape.",
        rows_alone,
    ),
    wrong(
        "takes_a_view",
        "`.view` wants tensors that are contiguous. y and dy may be views themselves.",
        mistaken((DETACHED, f"{DETACHED}\n    [each.view(-1, each.shape[-1]) for each in (y1, y2, dy1, dy2)]")),
    ),
    wrong(
        "callers_gradient_cleared",
        "You clear .grad of y or dy. What stands there is the caller's, and from before.",
        mistaken((RETURN, f"for each in (*y, *dy):\n        each.grad = None\n    {RETURN}")),
    ),
    wrong(
        "float32_inside",
        "You convert to float32. Where y is in float64, so is all that you return, with all of its digits.",
        mistaken((X2, "x2 = (y2 - g_of_y1).float().to(y2.dtype)")),
        rounds_to=torch.float32,
    ),
)
