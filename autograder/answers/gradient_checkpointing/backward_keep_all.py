"""Right and wrong ways to write `backward_keep_all`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.backward_keep_all import backward_keep_all


class _Step(torch.autograd.Function):
    """A layer, and a node of torch's graph that calls its backward. What flows in the graph itself is a number."""

    @staticmethod
    def forward(ctx: Any, flow: torch.Tensor, layer: Any, x: Any, dy: list[Any], y: list[Any]) -> torch.Tensor:
        ctx.layer, ctx.x, ctx.dy = layer, x, dy
        y[:] = [layer.forward(x)]
        return flow.clone()

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> Any:
        ctx.dy[:] = [ctx.layer.backward(ctx.x, ctx.dy[0])]
        return slope, None, None, None, None


def by_torchs_graph(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """torch records the chain and goes back through it."""
    flow = torch.zeros((), requires_grad=True)
    at, slope = [x], [dy]
    end = flow
    for layer in chain:
        end = _Step.apply(end, layer, at[0], slope, at)  # type: ignore[no-untyped-call]
    end.backward()  # type: ignore[no-untyped-call]
    return at[0], slope[0]


def by_recursion(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """Each call that has not returned keeps its input."""
    if not chain:
        return x, dy
    y, slope = by_recursion(chain[1:], chain[0].forward(x), dy)
    return y, chain[0].backward(x, slope)


RIGHT = (right(by_torchs_graph, independent="torch.autograd"), right(by_recursion))

edit = partial(edited, backward_keep_all)
BACK = "dy = layer.backward(inputs.pop(), dy)"
LOOP = "    for layer in reversed(chain):\n"

WRONG = (
    wrong(
        "output_for_input",
        "You hand backward the output of its layer. The derivative is taken at the input: keep what goes into a layer, "
        "before you evaluate it.",
        edit(
            (
                "        inputs.append(x)\n        x = layer.forward(x)",
                "        x = layer.forward(x)\n        inputs.append(x)",
            )
        ),
    ),
    wrong(
        "first_layer_first",
        "Your backward begins with the first layer. dy is the gradient with respect to the last layer's output, so the "
        "last layer comes first.",
        edit(("reversed(chain)", "chain"), ("inputs.pop()", "inputs.pop(0)")),
    ),
    wrong(
        "inputs_in_the_wrong_order",
        "You take the layers from the last to the first, and their inputs from the first to the last: each layer gets "
        "another's. Take the inputs from the end of the list.",
        edit(("inputs.pop()", "inputs.pop(0)")),
    ),
    wrong(
        "dy_for_every_layer",
        "Every layer gets the dy of the chain's output. What one layer's backward gives is the dy of the layer before.",
        edit((BACK, "dx = layer.backward(inputs.pop(), dy)"), ("return x, dy", "return x, dx")),
    ),
    wrong(
        "forward_or_backward_not_once",
        "Each call of yours must call each layer's forward once and its backward once, at every place of the chain. "
        "What the way to y gives is all that backward needs: keep the inputs on that way, evaluate nothing again, and "
        "keep nothing from one call to the next.",
        edit(("layer.backward(inputs.pop(), dy)", "(layer.backward(inputs[-1], dy), layer.forward(inputs.pop()))[0]")),
        edit((LOOP, f"    x = inputs[0]\n    for layer in chain:\n        x = layer.forward(x)\n{LOOP}")),
        edit(
            ("x: Any, dy: Any)", "x: Any, dy: Any, known={})"),
            ("    inputs = []", "    if chain not in known:\n        known[chain] = [x]"),
            (
                "    for layer in chain:\n        inputs.append(x)\n        x = layer.forward(x)\n",
                "        for layer in chain:\n            known[chain].append(layer.forward(known[chain][-1]))\n"
                "    *inputs, x = known[chain]\n",
            ),
        ),
        edit((LOOP, f"    chain[-1].backward(inputs[-1], dy)\n{LOOP}")),
        edit(
            (
                BACK,
                f"{BACK}\n        if inputs and chain.index(layer) < len(inputs):\n"
                "            chain[len(inputs) - 1].forward(inputs[-1])",
            )
        ),
        fails=("each_layer_once",),
    ),
    wrong(
        "one_input_for_each_layer_object",
        "You look up a layer's input by the layer. One that stands in the chain twice has two inputs, and the second "
        "has taken the place of the first: look it up by the layer's place in the chain.",
        edit(
            ("inputs = []", "inputs = {}"),
            ("inputs.append(x)", "inputs[layer] = x"),
            ("inputs.pop()", "inputs[layer]"),
        ),
    ),
    wrong(
        "returns_the_input_for_y",
        "The first of the two results is what you put in, or the last layer's input. Return what the last layer gives.",
        edit(("return x, dy", "return y, dy"), ("inputs = []", "inputs, y = [], x")),
        edit(("x = layer.forward(x)", "y, x = x, layer.forward(x)"), ("return x, dy", "return y, dy")),
    ),
)
