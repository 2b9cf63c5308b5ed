"""Right and wrong ways to write `backward_checkpointed`."""

from __future__ import annotations

from functools import partial
from typing import Any

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.backward_checkpointed import backward_checkpointed


def when_needed(chain: tuple[Any, ...], x: Any, dy: Any, every: int) -> tuple[Any, Any]:
    """One dictionary of what is alive, by index. Where an input is missing, its segment is filled in."""
    n = len(chain)
    alive, y = {0: x}, x
    for i in range(n):
        alive[i], y = y, chain[i].forward(y)
        if i % every and i - i % every + every < n:
            del alive[i]
    for i in reversed(range(n)):
        if i not in alive:
            for j in range(i - i % every, i):
                alive[j + 1] = chain[j].forward(alive[j])
        dy = chain[i].backward(alive.pop(i), dy)
    return y, dy


def keeps_checkpoints_to_the_end(chain: tuple[Any, ...], x: Any, dy: Any, every: int) -> tuple[Any, Any]:
    """Checkpoints in a dictionary that nothing is taken out of; the inputs of a segment in another, and a variable."""
    checkpoints, starts, y = {}, range(0, len(chain), every), x
    for start in starts:
        checkpoints[start], inputs = y, {}
        for i in range(start, min(start + every, len(chain))):
            if start == starts[-1]:
                inputs[i] = y
            y = chain[i].forward(y)
    for start in reversed(starts):
        if start != starts[-1]:
            inputs = {start: checkpoints[start]}
            for i in range(start, start + every - 1):
                inputs[i + 1] = chain[i].forward(inputs[i])
        for i in sorted(inputs, reverse=True):
            given = inputs.pop(i)
            dy = chain[i].backward(given, dy)
    return y, dy


def by_recursion(chain: tuple[Any, ...], x: Any, dy: Any, every: int) -> tuple[Any, Any]:
    """A checkpoint is the argument of a call that has not returned."""
    first, rest = chain[:every], chain[every:]
    if not rest:
        return _keep_all(first, x, dy, first)
    at = x
    for layer in first:
        at = layer.forward(at)
    later = [at]
    del at
    y, dy = by_recursion(rest, later.pop(), dy, every)
    return y, _keep_all(first[:-1], x, dy, first)[1]


def _keep_all(evaluated: tuple[Any, ...], x: Any, dy: Any, chain: tuple[Any, ...]) -> tuple[Any, Any]:
    inputs = [x]
    for layer in evaluated:
        inputs.append(layer.forward(inputs[-1]))
    y = inputs[-1]
    for layer, given in zip(reversed(chain), reversed(inputs[: len(chain)]), strict=True):
        dy = layer.backward(given, dy)
    return y, dy


RIGHT = (
    right(when_needed, independent="an on-demand cache by index arithmetic"),
    right(keeps_checkpoints_to_the_end),
    right(by_recursion),
)

edit = partial(edited, backward_checkpointed)
cached = partial(edited, when_needed)
SEGMENTS = "*segments, last = [chain[start : start + every] for start in range(0, len(chain), every)]"
CHECKPOINT = "        checkpoints.append(x)\n        for layer in segment:\n            x = layer.forward(x)\n"
LAST = "        inputs.append(x)\n        x = layer.forward(x)\n"
START = "        inputs = [checkpoints.pop()]\n"
ROUND = (
    "        for layer in segment[:-1]:  # the output of the last one is the next checkpoint, whose segment is done\n"
)
AGAIN = "            inputs.append(layer.forward(inputs[-1]))\n"
BACK = "        for layer in reversed(segment):\n            dy = layer.backward(inputs.pop(), dy)\n"


def beginning_at(starts: str) -> Any:
    """Segments that begin at these layers."""
    between = "[chain[a:b] for a, b in zip(starts, [*starts[1:], len(chain)], strict=True)]"
    return edit((SEGMENTS, f"starts = {starts}\n    *segments, last = {between}"))


WRONG = (
    wrong(
        "recomputes_the_last_segment",
        "You evaluate the last segment twice. Backward begins with it as soon as y is there, so keep its inputs while "
        "you compute y: recomputing them saves nothing.",
        edit(
            (LAST, "        x = layer.forward(x)\n"),
            ("    inputs = []\n", "    inputs = [x]\n"),
            (
                "    for layer in reversed(last)",
                "    for layer in last[:-1]:\n        inputs.append(layer.forward(inputs[-1]))\n"
                "    for layer in reversed(last)",
            ),
        ),
    ),
    wrong(
        "recomputes_what_is_kept",
        "You recompute an activation that is not needed any more: the output of a segment's last layer is the next "
        "checkpoint, and backward has been through it. A segment of length s takes s - 1 evaluations.",
        edit(("segment[:-1]", "segment"), (BACK, f"        inputs.pop()\n{BACK}")),
        edit(
            (LAST, "        x = layer.forward(x)\n"),
            ("    inputs = []\n", "    checkpoints.append(x)\n    segments.append(last)\n"),
            ("    for layer in reversed(last):\n        dy = layer.backward(inputs.pop(), dy)\n", ""),
            ("segment[:-1]", "segment"),
            (BACK, f"        inputs.pop()\n{BACK}"),
        ),
        edit((BACK, f"        if chain.count(segment[-1]) > 1:\n            segment[-1].forward(inputs[-1])\n{BACK}")),
    ),
    wrong(
        "recomputes_from_the_start",
        "Each segment is recomputed from the chain's input. Begin with its own checkpoint: that is what it is for.",
        edit(
            ("    checkpoints = []\n", "    checkpoints, first = [], x\n"),
            (
                START,
                "        checkpoints.pop()\n        inputs = [first]\n"
                "        for layer in chain[: every * len(checkpoints)]:\n"
                "            inputs = [layer.forward(inputs[0])]\n",
            ),
        ),
    ),
    wrong(
        "from_the_checkpoint_for_each_layer",
        "Inside a segment you recompute each layer's input from the checkpoint, which takes about s^2 / 2 evaluations. "
        "Go through the segment once, keep its inputs, then go back through it.",
        edit(
            (
                START + ROUND + AGAIN + BACK,
                "        start = checkpoints.pop()\n"
                "        for i in reversed(range(len(segment))):\n"
                "            at = start\n"
                "            for layer in segment[:i]:\n"
                "                at = layer.forward(at)\n"
                "            dy = segment[i].backward(at, dy)\n",
            ),
        ),
    ),
    wrong(
        "drops_the_short_last_segment",
        "Where `every` does not divide n, you leave out the layers after the last full segment. A segment ends at n at "
        "the latest.",
        edit((SEGMENTS, f"chain = chain[: len(chain) // every * every] or chain\n    {SEGMENTS}")),
        edit(
            (SEGMENTS, "segments = [chain[end - every : end] for end in range(every, len(chain) + 1, every)]"),
            ("    inputs = []\n", "    last, inputs = segments.pop(), []\n"),
            ("in segments:", "in segments[:-1]:"),
        ),
    ),
    wrong(
        "keeps_all",
        "Every activation is kept, in a list or a dictionary beside the checkpoints, and nothing is recomputed. While "
        "you compute y, keep only what enters a segment.",
        cached(("            del alive[i]", "            pass")),
        fails=("evaluations", "activations_alive"),
    ),
    wrong(
        "keeps_all_and_recomputes",
        "You recompute as you should, but every activation of the first pass still lies in some list, so no memory is "
        "saved.",
        edit(
            ("    checkpoints = []\n", "    checkpoints, every_x = [], []\n"),
            (CHECKPOINT, f"{CHECKPOINT}            every_x.append(x)\n"),
        ),
    ),
    wrong(
        "never_lets_go",
        "Activations of a segment are still alive, in a list or another variable, while the one before it is "
        "recomputed; perhaps until the end, when all are there at once. Take an input out of the list when its layer "
        "is done, or empty the list before the next segment.",
        cached(("alive.pop(i)", "alive[i]")),
        edit(
            ("    for segment in reversed(segments)", "    done = []\n    for segment in reversed(segments)"),
            (BACK, f"        done.extend(inputs)\n{BACK}"),
        ),
        edit(
            (START, "        before, inputs = inputs, [checkpoints.pop()]\n"),
            (BACK, BACK.replace("inputs.pop()", "given").replace("(segment)", "([*zip(segment, inputs)])")),
            ("        for layer in reversed([", "        for layer, given in reversed(["),
        ),
        fails=("activations_alive",),
    ),
    wrong(
        "short_segment_first",
        "You count segments from the end, so that the first one is short. They begin at layers 0, `every`, "
        "2 `every` and so on, and the last one takes what is left.",
        beginning_at("[0, *range(len(chain) % every or every, len(chain), every)]"),
    ),
    wrong(
        "checkpoints_one_layer_off",
        "Your checkpoints lie one layer beside the beginning of a segment: what chain[every - 1] gives is the input of "
        "chain[every], and that is the one to keep.",
        beginning_at("[0, *range(max(every - 1, 1), len(chain), every)]"),
        beginning_at("[0, *range(every + 1, len(chain), every)]"),
    ),
    wrong(
        "every_is_the_number_of_segments",
        "You make `every` segments. `every` is the length of a segment in layers.",
        edit((SEGMENTS, f"every = -(-len(chain) // every)\n    {SEGMENTS}")),
    ),
    wrong(
        "output_for_input",
        "You hand backward the output of its layer. The derivative is taken at the input.",
        edit(("segment[:-1]", "segment"), (LAST, "        x = layer.forward(x)\n        inputs.append(x)\n")),
    ),
    wrong(
        "segments_in_forward_order",
        "After the last segment your backward begins again with the first. The derivative flows from the last layer to "
        "the first, so the segments come in reverse order as well.",
        edit(("reversed(segments)", "segments"), ("checkpoints.pop()", "checkpoints.pop(0)")),
    ),
    wrong(
        "layers_in_forward_order",
        "Inside a segment your backward goes from the first layer to the last. It must go from the last to the first, "
        "in each segment.",
        edit((BACK, BACK.replace("reversed(segment)", "segment").replace("pop()", "pop(0)"))),
    ),
    wrong(
        "one_checkpoint_for_all",
        "Every segment is recomputed from the same checkpoint. Take each one's own: the last that is left.",
        edit(("checkpoints.pop()", "checkpoints[0]")),
        edit(("checkpoints.pop()", "checkpoints[-1]")),
    ),
    wrong(
        "always_two_segments",
        "Your code expects a checkpoint before the last segment. Where `every` is n or more, all layers are one "
        "segment, and there is no other.",
        edit((SEGMENTS, f"every = min(every, len(chain) - 1)\n    {SEGMENTS}")),
    ),
)
