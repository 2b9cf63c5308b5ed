"""`optimizer_bytes(shapes, name, dtypes)`: what an optimizer keeps beside parameters and gradients.

One number holds moments, master copy and step counters at once, so each is judged by a difference between two answers
in which the others are the same: more numbers in as many tensors; as many numbers in more tensors; another dtype of
the parameters. Only "whole models" is judged as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from course.exercises.optimizers.refusals import all_refused, refused
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

FULL = ("sgd", "momentum", "adagrad", "rmsprop", "adamw", "muon")
NAMES = (*FULL, "adafactor")
Shapes = list[list[int]]


def cases(rng: torch.Generator) -> list[Case]:
    """Every case asks several questions: label -> name, shapes and dtypes. All sizes are drawn."""

    def size(low: int = 3, high: int = 40) -> int:
        return int(torch.randint(low, high, (), generator=rng))

    a, b, c = size(), size(), size()
    matrix = [size(5), size(5)]
    refused_shape = [size(), size(), size()][: 1 + 2 * int(torch.randint(2, (), generator=rng))]
    return [
        Case(name="moments", inputs=_moments(a, b, c)),
        Case(name="master copy", inputs=_master_copy([[a, b], [c, 2]])),
        Case(name="step counters", inputs=_step_counters(a, b, c)),
        Case(name="matrices", inputs=_shapes_of_one([[a, b + 30], [a, b + 50], [c + 60, b + 30]])),
        Case(name="other dimensions", inputs=_shapes_of_one([matrix, [], [a], [a, b, c], [a, 3, 4, 5], [b, c, 1, 1]])),
        Case(name="whole models", inputs=_whole_models([a, b, c, *matrix])),
        Case(name="what is refused", inputs={"refused shape": [*refused_shape], "fine": [a, b]}),
    ]


def _asked(name: str, shapes: Shapes, param: str, state: str) -> dict[str, Any]:
    return {"name": name, "shapes": shapes, "param": param, "state": state}


def _moments(a: int, b: int, c: int) -> dict[str, Any]:
    """One matrix, and one with b c numbers more. No master copy in either."""
    sizes = {"few": [[a, c]], "many": [[a + b, c]]}
    dtypes = [("float32", "float32"), ("float32", "bfloat16"), ("float64", "float64")]
    return {
        f"{name}/{param} {state}/{which}": _asked(name, shapes, param, state)
        for name in FULL
        for param, state in dtypes
        for which, shapes in sizes.items()
    }


def _master_copy(shapes: Shapes) -> dict[str, Any]:
    """The same parameters in all dtypes; the moments keep theirs."""
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


def _whole_models(sizes: list[int]) -> dict[str, Any]:
    """A few layers: matrices for Muon, biases and a convolution beside them for the others."""
    a, b, c, d, e = sizes
    matrices = [[a, b], [b, c], [d, e]]
    rest = [[b], [c], [a, 3, 3, 2], []]
    dtypes = [("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")]
    return {
        f"{name}/{param} {state}": _asked(name, matrices if name == "muon" else matrices + rest, param, state)
        for name in NAMES
        for param, state in dtypes
    }


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question; the numbers under the questions' labels."""

    def ask(name: str, shapes: Shapes, param: str, state: str) -> Any:
        dtypes = {"param": getattr(torch, param), "state": getattr(torch, state)}
        return answer([tuple(shape) for shape in shapes], name, dtypes)

    if "fine" in inputs:
        calls: dict[str, Callable[[], object]] = {
            "an unknown name": lambda: ask("adam2", [inputs["fine"]], "float32", "float32"),
            "no matrix for muon": lambda: ask("muon", [inputs["fine"], inputs["refused shape"]], "float32", "float32"),
        }
        return observe({"refused": {**refused(calls)}})
    return observe({label: ask(**asked) for label, asked in inputs.items()})


def _bytes(value: Any) -> float:
    """A float holds integers up to 2**53. Raises where it is no number."""
    if isinstance(value, Tensor) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return float(value)
    raise TypeError(f"{type(value).__name__} is no number of bytes")


def _differences(values: Values) -> Iterator[tuple[str, float]]:
    """The labels of one stem differ in what the case is about: each of them less the first of its stem."""
    first: dict[str, float] = {}
    for key, value in values.items():
        stem, _, last = key.rpartition("/")
        if stem in first:
            yield f"{stem}: {last}", _bytes(value) - first[stem]
        else:
            first[stem] = _bytes(value)


def _right_differences(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: every difference is the reference's."""
    ordered = {key: got[key] for key in expected}
    for (label, ours), (_, wanted) in zip(_differences(ordered), _differences(expected), strict=True):
        if ours != wanted:
            return f"{label}: {ours:+.0f} bytes, where {wanted:+.0f} are right"
    return None


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
            holds=_right_differences,
            cases=("moments",),
        ),
        Property(
            "master_copy",
            "Parameters of fewer than 4 bytes a number have a second copy in float32, whatever optimizer and "
            "state; parameters in float32 or float64 have none.",
            points=2,
            holds=_right_differences,
            cases=("master copy",),
        ),
        Property(
            "step_counters",
            "Four bytes for each tensor, however large, in Adagrad, RMSprop, AdamW and Adafactor; none in SGD, "
            "with or without momentum, and in Muon.",
            holds=_right_differences,
            cases=("step counters",),
        ),
        Property(
            "factored_matrices",
            "Of a matrix (r, c) Adafactor keeps a mean for each row and one for each column: r + c numbers.",
            holds=_right_differences,
            cases=("matrices",),
        ),
        Property(
            "other_dimensions",
            "With fewer than 2 dimensions there is nothing to factor: all numbers are kept. With more, each "
            "matrix of the last two dimensions is factored by itself.",
            holds=_right_differences,
            cases=("other dimensions",),
            needs=("factored_matrices",),
        ),
        Property(
            "whole_models",
            "Moments, master copy and step counters of all tensors, added up; parameters and gradients "
            "themselves are not counted.",
            points=2,
            cases=("whole models",),
        ),
        Property(
            "refusals",
            "A name that is not in the list, and for muon a shape that is not 2-D, raise ValueError.",
            holds=all_refused,
            cases=("what is refused",),
            needs=("moments",),
        ),
    ),
    hints=(
        "Which parts of the total grow with the number of numbers, and which only with the number of tensors?",
        "Go through the shapes and add three parts for each: moments, master copy, step counter. A dtype knows its "
        "size: dtype.itemsize.",
        "A table from name to the number of full moments (0, 1 or 2), and a set of names that count steps. Adafactor "
        "is apart: from 2 dimensions on, the product without the last dimension plus the product without the last but "
        "one.",
    ),
    removes=("torch.optim",),
)
