"""`optimizer_bytes(shapes, name, dtypes, block)`: what an optimizer keeps beside parameters and gradients.

One number holds moments, scales, master copy and step counters at once, so each is judged by a difference between two
answers in which the others are the same: more numbers in as many tensors; as many numbers in more tensors; another
dtype of the parameters; a block. Only "whole models" is judged as it comes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from course.performing.differences import right_differences
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe
from course.performing.refusals import all_refused, refused

FULL = ("sgd", "momentum", "adagrad", "rmsprop", "adamw", "muon")
NAMES = (*FULL, "adafactor")
STRANGERS = ("Adam", "AdamW", "SGD", "ada", "", "lion", "muon ")
Shapes = list[list[int]]


def cases(rng: torch.Generator) -> list[Case]:
    """Every case asks several questions: label -> name, shapes and dtypes. All sizes are drawn."""

    def size(low: int = 3, high: int = 40) -> int:
        return integer(rng, low, high)

    a, b, c = size(), size(), size()
    matrix = [size(5), size(5)]
    return [
        Case(name="moments", inputs=_moments(a, b, c)),
        Case(name="master copy", inputs=_master_copy([[a, b], [c, 2]])),
        Case(name="step counters", inputs=_step_counters(a, b, c)),
        Case(name="matrices", inputs=_shapes_of_one([[a, b + 30], [a, b + 50], [c + 60, b + 30]])),
        Case(
            name="other dimensions",
            inputs=_shapes_of_one(
                [matrix, [], [a], [1], [1, b], [c, 1], [a, b, c], [a, 3, 4, 5], [b, c, 1, 1], [2, 3, a, 1, b]]
            ),
        ),
        Case(name="blocks", inputs=_blocks(size(7))),
        Case(name="whole models", inputs=_whole_models([a, b, c, *matrix])),
        Case(name="one shape or none", inputs=_few([[a, b], [1, c], [c, 1], [1, 1]])),
        Case(name="what is refused", inputs={"numbers": [a, b, c, *matrix]}),
    ]


def _asked(name: str, shapes: Shapes, param: str, state: str, **block: int | None) -> dict[str, Any]:
    return {"name": name, "shapes": shapes, "param": param, "state": state, **block}


def _moments(a: int, b: int, c: int) -> dict[str, Any]:
    """One matrix, and one with b c numbers more. No master copy in either."""
    sizes = {"few": [[a, c]], "many": [[a + b, c]]}
    dtypes = [("float32", "bfloat16"), ("float64", "float32"), ("float32", "float64")]
    return {
        f"{name}/{param} {state}/{which}": _asked(name, shapes, param, state)
        for name in FULL
        for param, state in dtypes
        for which, shapes in sizes.items()
    }


def _master_copy(shapes: Shapes) -> dict[str, Any]:
    """The same parameters in all dtypes, of 1, 2, 4 and 8 bytes; the moments keep theirs."""
    params = ("float32", "float64", "bfloat16", "float16", "float8_e4m3fn")
    return {
        f"{name}/{state}/{param}": _asked(name, shapes, param, state)
        for name in NAMES
        for state in ("float32", "bfloat16")
        for param in params
    }


def _step_counters(a: int, b: int, c: int) -> dict[str, Any]:
    """As many numbers in one tensor as in two and in three; for Adafactor vectors, which it does not factor."""

    def split(name: str) -> dict[str, Shapes]:
        beside = [] if name == "adafactor" else [4]
        return {
            "one": [[a + b + c, *beside]],
            "two": [[a + b, *beside], [c, *beside]],
            "three": [[a, *beside], [b, *beside], [c, *beside]],
        }

    return {
        f"{name}/{state}/{which}": _asked(name, shapes, "float32", state)
        for name in NAMES
        for state in ("float32", "bfloat16", "float64")
        for which, shapes in split(name).items()
    }


def _shapes_of_one(shapes: Shapes) -> dict[str, Any]:
    """Adafactor on one tensor at a time."""
    return {
        f"adafactor/{state}/{tuple(shape)}": _asked("adafactor", [shape], "float32", state)
        for state in ("float32", "bfloat16")
        for shape in shapes
    }


def _blocks(block: int) -> dict[str, Any]:
    """Each asked without a block first. Tensors, moments and factors that shared blocks would have fewer."""
    matrices = {
        "less than a block": [[1, block - 1]],
        "one block": [[1, block]],
        "three blocks": [[3, block]],
        "a bit more than blocks": [[block + 1, block + 1]],
        "three tensors": [[1, block - 1], [block + 1, 3], [2, 2]],
    }
    others = matrices | {"other dimensions": [[], [block + 1], [2, block + 1, 3]]}
    return {
        f"{name}/{param}/{words}/{label}": _asked(name, shapes, param, "float8_e4m3fn", block=each)
        for name in NAMES
        for param in ("bfloat16", "float32")
        for words, shapes in (matrices if name == "muon" else others).items()
        for label, each in (("no block", None), (f"block of {block}", block), ("block of 1", 1))
    }


def _whole_models(sizes: list[int]) -> dict[str, Any]:
    """A few layers, some of one shape: matrices for Muon, biases and a convolution beside them for the others. And a
    large one, of an odd number of bytes above 2**24: a sum in float32 does not hold it.
    """
    a, b, c, d, e = sizes
    matrices = [[a, b], [b, c], [d, e], [d, e]]
    rest = [[b], [c], [c], [a, 3, 3, 2], []]
    dtypes = [("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")]
    large = {"momentum/a large layer": _asked("momentum", [[1851 + 2 * a, 1851]], "bfloat16", "float8_e5m2")}
    return large | {
        f"{name}/{param} {state}": _asked(name, matrices if name == "muon" else matrices + rest, param, state)
        for name in NAMES
        for param, state in dtypes
    }


def _few(matrices: Shapes) -> dict[str, Any]:
    """No shape at all; one matrix, with a 1 or without, and moments of one byte a number."""
    asked = {f"{name}/no shapes": _asked(name, [], "bfloat16", "float32") for name in NAMES}
    return asked | {
        f"{name}/{param}/{tuple(shape)}": _asked(name, [shape], param, "float8_e5m2")
        for name in ("momentum", "adamw", "muon", "adafactor")
        for param in ("float8_e4m3fn", "float64")
        for shape in matrices
    }


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question; the numbers under the questions' labels."""

    def ask(name: str, shapes: Shapes, param: str, state: str, **block: int | None) -> Any:
        dtypes = {"param": getattr(torch, param), "state": getattr(torch, state)}
        return answer([tuple(shape) for shape in shapes], name, dtypes, **block)

    if "numbers" in inputs:
        nonsense = _nonsense(*inputs["numbers"])
        calls = {words: partial(ask, **asked) for words, asked in nonsense.items()}
        return observe({"refused": {**refused(calls)}})
    return observe({label: ask(**asked) for label, asked in inputs.items()})


def _nonsense(a: int, b: int, c: int, d: int, e: int) -> dict[str, dict[str, Any]]:
    """Names that only look known; for Muon every rank but 2, alone, between matrices and behind them."""
    names = {f"the name {name!r}": _asked(name, [[a, b]], "float32", "float32") for name in STRANGERS}
    unknown = {"an unknown name for no shapes": _asked("lion", [], "float32", "float32")}
    shapes: dict[str, list[int]] = {"()": [], "1-D": [a], "3-D": [a, b, c], "4-D": [a, b, 3, 3]}
    muon = {
        f"muon with a shape that is {words}, number {place + 1}": _asked("muon", among, "float32", "float32")
        for words, shape in shapes.items()
        for place, among in enumerate(([shape], [[b, c], shape, [d, e]], [[b, c], [d, e], shape]))
    }
    return names | unknown | muon


RIGHT = right_differences()

EXERCISE = Exercise(
    id="optimizers.optimizer_bytes",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "moments",
            "Plain SGD keeps no moment, AdamW two, the others one: as many numbers as the parameter has, in "
            'dtypes["state"].',
            points=2,
            holds=RIGHT,
            cases=("moments",),
        ),
        Property(
            "master_copy",
            "Parameters of fewer than 4 bytes a number have a second copy in float32, whatever optimizer and "
            "state; parameters in float32 or float64 have none.",
            points=2,
            holds=RIGHT,
            cases=("master copy",),
        ),
        Property(
            "step_counters",
            "Four bytes for each tensor, however large, in Adagrad, RMSprop, AdamW and Adafactor; none in SGD, "
            "with or without momentum, and in Muon.",
            holds=RIGHT,
            cases=("step counters",),
        ),
        Property(
            "factored_matrices",
            "Of a matrix (r, c) Adafactor keeps a mean for each row and one for each column: r + c numbers.",
            holds=RIGHT,
            cases=("matrices",),
        ),
        Property(
            "other_dimensions",
            "With fewer than 2 dimensions there is nothing to factor: all numbers are kept. With more, each "
            "matrix of the last two dimensions is factored by itself.",
            holds=RIGHT,
            cases=("other dimensions",),
        ),
        Property(
            "scales",
            "With a block, each moment of each tensor is cut into blocks of its own, and each of these has a scale of "
            "4 bytes, the last one too, which may be smaller. Without a block there are none.",
            holds=RIGHT,
            cases=("blocks",),
        ),
        Property(
            "whole_models",
            "Moments, master copy and step counters of all tensors, added up, 0 where there is no tensor; parameters "
            "and gradients themselves are not counted.",
            cases=("whole models", "one shape or none"),
        ),
        Property(
            "refusals",
            "A name that is not in the list, be there shapes or not, and for muon a shape that is not 2-D, wherever it "
            "stands, raise ValueError. A dict without the name raises a KeyError, which is another exception.",
            holds=all_refused,
            cases=("what is refused",),
            needs=("moments",),
        ),
    ),
    hints=(
        "Which parts of the total grow with the number of numbers, and which only with the number of tensors?",
        "Go through the shapes and add four parts for each: moments, scales, master copy, step counter. A dtype knows "
        "its size: dtype.itemsize.",
        "A table from name to the number of full moments (0, 1 or 2), and a set of names that count steps. With a list "
        "of the sizes of all moments of a shape, moments and scales are a sum each. Adafactor's list is apart: from 2 "
        "dimensions on, the product without the last dimension, and the product without the last but one.",
    ),
    promises={
        "in any number of dimensions": ("other_dimensions", "whole_models"),
        "() is one number": ("other dimensions", "whole models"),
        "The list may be empty": ("one shape or none",),
        "a size may be 1": ("other dimensions", "one shape or none"),
        '"sgd" (without momentum), "momentum" (SGD with it)': ("moments",),
        '{"param": dtype of the parameters, "state": dtype of the moments}': ("moments", "master_copy"),
        "a dtype knows its `itemsize` in bytes": ("moments", "master_copy"),
        "floating dtypes of 1 to 8 bytes": ("moments", "master copy", "one shape or none"),
        "with moments of 1 byte a number, how many numbers of a moment share a scale": ("scales",),
        "the sum of four parts over all shapes": ("whole_models", "scales"),
        'moments, in dtypes["state"]': ("moments",),
        "a tensor with fewer than 2 dimensions in full": ("other_dimensions",),
        "one of (r, c) as r + c numbers": ("factored_matrices",),
        "r + c numbers for each of the matrices": ("other_dimensions",),
        "of which the last may be smaller, and each block has one float32 scale": ("scales",),
        "Each moment of each tensor has blocks of its own": ("scales",),
        "the row means of a tensor are one moment, and the column means another": ("scales", "blocks"),
        'where a number in dtypes["param"] has fewer than 4, for every optimizer': ("master_copy",),
        "4 bytes a tensor for adagrad, rmsprop, adamw and adafactor": ("step_counters",),
        "whatever the other dtypes": ("step_counters", "step counters"),
        "none for sgd, momentum and muon": ("step_counters",),
        "another name": ("refusals",),
        "as torch.optim.Muon does": ("refusals",),
        "a shape for muon that is not 2-D": ("refusals",),
    },
    removes=("torch.optim",),
)
