"""Right and wrong ways to write `backward_keep_none`."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.backward_keep_none import backward_keep_none


def by_folding(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """functools.reduce over ever fewer layers; and backward is a fold too."""

    def run(layers: tuple[Any, ...]) -> Any:
        return reduce(lambda at, layer: layer.forward(at), layers, x)

    return run(chain), reduce(lambda slope, i: chain[i].backward(run(chain[:i]), slope), range(len(chain))[::-1], dy)


def with_an_input_too_long(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """The input of the layer before is still in a variable while the next one is computed."""

    def run(count: int) -> Any:
        at = x
        for layer in chain[:count]:
            at = layer.forward(at)
        return at

    y = run(len(chain))
    for count in range(len(chain), 0, -1):
        given = run(count - 1)
        dy = chain[count - 1].backward(given, dy)
    return y, dy


RIGHT = (
    right(by_folding, independent="functools.reduce"),
    right(with_an_input_too_long),
)


def keeps_all(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """The answer to another exercise."""
    inputs = []
    for layer in chain:
        inputs.append(x)
        x = layer.forward(x)
    for layer in reversed(chain):
        dy = layer.backward(inputs.pop(), dy)
    return x, dy


def recurses(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """A call that has not returned yet holds its variables."""
    y = x
    for layer in chain:
        y = layer.forward(y)
    return y, _back(chain, x, dy)


def recurses_forward(chain: tuple[Any, ...], x: Any, dy: Any) -> tuple[Any, Any]:
    """y first, and then each call keeps its input until those behind it have returned."""
    y = x
    for layer in chain:
        y = layer.forward(y)
    return y, _forth(chain, x, dy)


def _forth(chain: tuple[Any, ...], x: Any, dy: Any) -> Any:
    return chain[0].backward(x, _forth(chain[1:], chain[0].forward(x), dy)) if chain else dy


def _back(chain: tuple[Any, ...], x: Any, dy: Any) -> Any:
    if not chain:
        return dy
    at = x
    for layer in chain[:-1]:
        at = layer.forward(at)
    return _back(chain[:-1], x, chain[-1].backward(at, dy))


edit = partial(edited, backward_keep_none)
BACK = "dy = chain[i].backward(at, dy)"

WRONG = (
    wrong(
        "keeps_a_list",
        "The evaluations are right, and their results lie in a list (or in calls that have not returned yet) until "
        "the end: as much memory as keeping all. Compute an input just before the layer needs it, and in a loop, so "
        "that the next one takes its place.",
        edit(
            (
                "    for i in reversed(range(len(chain))):\n        at = x\n",
                "    inputs = []\n    for i in range(len(chain)):\n        at = x\n",
            ),
            (
                f"        {BACK}",
                "        inputs.append(at)\n"
                "    for layer in reversed(chain):\n        dy = layer.backward(inputs.pop(), dy)",
            ),
        ),
        recurses,
        fails=("nothing_kept", "no_variable_too_many"),
    ),
    wrong(
        "one_variable_too_many",
        "Nothing grows with the chain, but a variable too many still names an activation while a layer is called. Let "
        "the next one take its place, or delete it.",
        edit(("at = x", "a = b = at = x"), ("at = layer.forward(at)", "a, b, at = b, at, layer.forward(at)")),
        fails=("no_variable_too_many",),
    ),
    wrong(
        "keeps_all",
        "Every input is kept until its layer's backward, in a list or in calls that have not returned yet, and the "
        "evaluations are others than those that are due: that is the other end. Here nothing but the chain's own input "
        "is kept, and each layer's input is computed from it.",
        keeps_all,
        recurses_forward,
        fails=("evaluations", "nothing_kept", "no_variable_too_many"),
    ),
    wrong(
        "evaluates_more",
        "You evaluate too much: layer i itself, where only the i layers before it give its input, or all layers once "
        "more for y, which was computed before.",
        edit((BACK, f"chain[i].forward(at)\n        {BACK}")),
        edit(("    y = x\n", "    y = x\n    for layer in chain:\n        y = layer.forward(y)\n    y = x\n")),
        edit((BACK, f"if chain[i] in chain[:i]:\n            chain[i].forward(at)\n        {BACK}")),
    ),
    wrong(
        "output_for_input",
        "You evaluate layers 0 to i and hand the result to layer i: that is its output. Its input is the output of "
        "the layer before.",
        edit(("chain[:i]", "chain[:i + 1]")),
    ),
    wrong(
        "one_layer_short",
        "The input of layer i is the output of layer i - 1, which you leave out: it is the end of `chain[:i]`, not of "
        "`chain[:i - 1]`.",
        edit(("chain[:i]", "chain[:max(i - 1, 0)]")),
        edit(("chain[:i]", "chain[:i - 1]")),
    ),
    wrong(
        "first_layer_first",
        "Your backward begins with the first layer. dy is the gradient with respect to the last layer's output, so the "
        "last layer comes first.",
        edit(("reversed(range(len(chain)))", "range(len(chain))")),
    ),
    wrong(
        "goes_on_from_the_last_input",
        "Each round must begin with the chain's input again. Yours begins where the round before ended.",
        edit(
            ("in reversed(range(len(chain))):\n        at = x", "in reversed(range(len(chain))):"),
            ("    y = x\n", "    at = y = x\n"),
        ),
    ),
    wrong(
        "leaves_out_the_first_layer",
        "Your loop ends before layer 0, or treats the chain's input as if nothing were to be differentiated there. dx "
        "is the gradient with respect to the chain's input: layer 0 has a backward too.",
        edit(("range(len(chain))", "range(1, len(chain))")),
    ),
    wrong(
        "returns_the_input_for_y",
        "The first result is the chain's input or an activation. Return what the last layer gives.",
        edit(("return y, dy", "return x, dy")),
        edit(("return y, dy", "return at, dy")),
    ),
)
