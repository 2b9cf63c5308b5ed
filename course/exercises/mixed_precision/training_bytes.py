"""`training_bytes(n, recipe)`: what parameters, gradients and Adam keep in a recipe, and what a pass adds.

One number holds all parts at once, so each part is judged by a difference between two recipes in which the others are
the same. Only "whole recipes" is judged as it comes.
"""

from __future__ import annotations

from typing import Any

import torch

from course.performing.differences import right_differences
from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe, outputs

STATES, PASSING = "/states", "/passing"  # end the keys of what one call returned
WIDTHS = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn")
GRADS: tuple[list[str], ...] = (
    [],
    ["float16"],
    ["float16", "float32"],
    ["float32"],
    ["float64"],
    ["float8_e5m2", "float32", "float32"],  # two of one dtype
)
LARGE = 2**40
Asked = dict[str, Any]


def cases(rng: torch.Generator) -> list[Case]:
    """Every case asks several questions: label -> n and a recipe in words. All numbers of parameters are drawn, those
    of whole recipes so large that float32 and int32 do not hold the bytes.
    """

    def size() -> int:
        return integer(rng, 2_000, 60_000) * 2 + 1  # odd: no block below divides it

    n, block = size(), integer(rng, 20, 500) * 2
    return [
        Case(name="parameters", inputs=_parameters(n)),
        Case(name="gradients", inputs=_gradients(size())),
        Case(name="master copy", inputs=_master_copy(size())),
        Case(name="moments", inputs=_moments(size())),
        Case(name="scales", inputs=_scales(block)),
        Case(name="autocast", inputs=_autocast(size())),
        Case(name="whole recipes", inputs=_named(LARGE + size()) | _mixed(LARGE + n, block)),
        Case(name="one parameter or none", inputs=_few(block)),
    ]


def _asked(n: int, **changed: Any) -> Asked:
    """A question about n parameters: all in float32, but for what is changed."""
    plain = {"param": "float32", "grads": ["float32"], "rounding": "nearest", "moments": "float32"}
    return {"n": n, **plain, "block": None, "autocast": None, **changed}


def _parameters(n: int) -> Inputs:
    """Other parameters and nothing else: with stochastic rounding none of them has a master copy."""
    return {
        f"moments {moments}/{param}": _asked(n, param=param, moments=moments, rounding="stochastic")
        for moments in ("float32", "bfloat16")
        for param in WIDTHS
    }


def _gradients(n: int) -> Inputs:
    """No copy of them, one, and several."""
    return {
        f"parameters {param}/{', '.join(grads) or 'none'}": _asked(n, param=param, grads=grads)
        for param in ("float16", "float32", "float64")
        for grads in GRADS
    }


def _master_copy(n: int) -> Inputs:
    """Both roundings of each: the stochastic one comes first, which has no master copy."""
    return {
        f"{param}, moments {moments}, gradients {grads[-1]}/{rounding}": _asked(
            n, param=param, moments=moments, grads=grads, rounding=rounding
        )
        for param in (*WIDTHS, "float8_e5m2")
        for moments, grads in (
            ("float32", ["float32"]),
            ("bfloat16", ["bfloat16"]),
            ("float64", ["float16", "float32"]),
        )
        for rounding in ("stochastic", "nearest")
    }


def _moments(n: int) -> Inputs:
    """Other moments under the same parameters."""
    return {
        f"parameters {param}/{moments}": _asked(n, param=param, moments=moments)
        for param in ("float32", "bfloat16", "float64")
        for moments in WIDTHS
    }


def _scales(block: int) -> Inputs:
    """Each asked without a block first: a last block of one number, one that is nearly full, none, and no other."""
    sizes = {
        "one number left over": 9 * block + 1,
        "one number short": 7 * block - 1,
        "even blocks": 8 * block,
        "less than a block": block - 3,
    }
    return {
        f"{words}, parameters {param}, moments {moments}/{each or 'no block'}": _asked(
            count, param=param, moments=moments, block=each
        )
        for words, count in sizes.items()
        for param, moments in (("bfloat16", "float8_e4m3fn"), ("float32", "float8_e5m2"), ("float32", "bfloat16"))
        for each in (None, block)
    }


def _autocast(n: int) -> Inputs:
    """Each asked without it first: on float32 parameters, and on those that have its dtype already."""
    parameters = {
        "float32": (None, "bfloat16", "float16"),
        "bfloat16": (None, "bfloat16"),
        "float16": (None, "float16"),
    }
    return {
        f"parameters {param}, moments {moments}, {rounding}/{autocast or 'none'}": _asked(
            n, param=param, moments=moments, rounding=rounding, autocast=autocast
        )
        for param, dtypes in parameters.items()
        for moments, rounding in (("float32", "nearest"), ("bfloat16", "stochastic"))
        for autocast in dtypes
    }


def _named(n: int) -> Inputs:
    """The recipes of the lesson's table."""
    half = {"param": "float16"}
    brain = {"param": "bfloat16"}
    return {
        "all in float32": _asked(n),
        "autocast": _asked(n, autocast="bfloat16"),
        "float16": _asked(n, **half, grads=["float16"]),
        "bfloat16, gradients in float32": _asked(n, **brain),
        "float16, gradients twice": _asked(n, **half, grads=["float16", "float32"]),
        "stochastic rounding": _asked(n, **brain, grads=["bfloat16"], rounding="stochastic", moments="bfloat16"),
        "moments in 8 bits": _asked(n, **brain, grads=["bfloat16"], moments="float8_e4m3fn", block=256),
    }


def _mixed(n: int, block: int) -> Inputs:
    """Recipes that nobody has a name for."""
    return {
        f"{param}, {rounding}, moments {moments}, {len(grads)} gradients": _asked(
            n, param=param, rounding=rounding, moments=moments, grads=grads, block=block if "8" in moments else None
        )
        for param in (*WIDTHS, "float8_e5m2")
        for rounding in ("nearest", "stochastic")
        for moments, grads in zip(("float64", "float8_e5m2", "bfloat16"), GRADS[:3], strict=True)
    }


def _few(block: int) -> Inputs:
    """Nothing to keep; one number, and its scales."""
    narrow = {"param": "bfloat16", "moments": "float8_e4m3fn"}
    recipes: dict[str, Asked] = {
        "float32": {},
        "8 bits": {**narrow, "grads": [], "block": block},
        "blocks of 1": {**narrow, "block": 1},
        "autocast": {"autocast": "float16"},
    }
    return {
        f"{count} parameters, {words}": _asked(count, **recipe) for count in (0, 1) for words, recipe in recipes.items()
    }


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question; both numbers under the questions' labels."""

    def ask(n: int, grads: list[str], **words: Any) -> dict[str, Any]:
        recipe: dict[str, Any] = {"grads": tuple(getattr(torch, each) for each in grads), **words}
        for key in ("param", "moments", "autocast"):
            recipe[key] = None if words[key] is None else getattr(torch, words[key])
        return outputs(answer(n, recipe), "states", "passing")

    return observe({label: ask(**asked) for label, asked in inputs.items()})


RIGHT = right_differences(STATES)

EXERCISE = Exercise(
    id="mixed_precision.training_bytes",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "parameters",
            'n numbers in recipe["param"], the parameters themselves. They are there beside a master copy too.',
            holds=RIGHT,
            cases=("parameters",),
        ),
        Property(
            "gradients",
            'Of the gradients n numbers for every dtype in recipe["grads"], whatever the parameters are; for an empty '
            "tuple nothing.",
            holds=RIGHT,
            cases=("gradients",),
        ),
        Property(
            "master_copy",
            "n numbers in float32, where both hold: a parameter has fewer than 4 bytes, and steps are rounded to "
            "nearest.",
            points=2,
            holds=RIGHT,
            cases=("master copy",),
        ),
        Property(
            "moments",
            'Adam keeps two moments, each of n numbers in recipe["moments"], whatever the parameters are.',
            holds=RIGHT,
            cases=("moments",),
        ),
        Property(
            "scales",
            "With a block, each of the two moments is cut into blocks of that many numbers, and each block has a scale "
            "of 4 bytes, the last one too, which may be smaller.",
            holds=RIGHT,
            cases=("scales",),
        ),
        Property(
            "autocast_keeps_the_states",
            "Autocast changes no byte of the states: parameters, gradients and moments stay in their dtypes, and its "
            "casts are copies beside them.",
            points=2,
            holds=RIGHT,
            cases=("autocast",),
            needs=("parameters",),
        ),
        Property(
            "passing",
            "The second number: n numbers in autocast's dtype, one cast copy of each parameter; 0 without autocast, "
            "and where the parameters have that dtype already.",
            roundings=0,
            keys=(f"*{PASSING}",),
            cases=("autocast", "whole recipes", "one parameter or none"),
        ),
        Property(
            "whole_recipes",
            "Parameters, gradients, master copy, moments and scales, added up; for no parameters nothing. Every byte "
            "counts, also of a trillion parameters: Python's integers hold them, float32 and int32 do not.",
            roundings=0,
            keys=(f"*{STATES}",),
            cases=("whole recipes", "one parameter or none"),
        ),
    ),
    hints=(
        "Which tensors, each as long as all parameters together, exist when the step begins? How many bytes has a "
        "number of each?",
        "A dtype knows its size, dtype.itemsize. Add up the bytes for one parameter first; the scales are what does "
        "not grow with every single parameter.",
        "The sum of five parts, two of them conditional: param + all of grads + two moments, times n; 4 n where param "
        "is below 4 bytes and rounding is to nearest; two moments' blocks, rounded up, times 4. The second number "
        "depends on param and autocast alone.",
    ),
    promises={
        "may be 0": ("one parameter or none",),
        "is below 2**53": ("whole_recipes",),
        "Every dtype is a floating one of 1 to 8 bytes a number": ("parameters", "gradients", "moments"),
        "dtype of the parameters": ("parameters",),
        "the dtype of each copy of the gradients": ("gradients",),
        "It may be empty": ("gradients",),
        '"nearest" or "stochastic"': ("master_copy",),
        "dtype of each of Adam's two moments": ("moments",),
        "how many numbers of a moment share a scale": ("scales",),
        "the dtype to which autocast casts, of 2 bytes": ("passing",),
        "or have that dtype already": ("passing",),
        "floats that hold them will do": ("whole_recipes",),
        "the parameters, every copy of the gradients and both moments": ("whole_recipes",),
        "a float32 master copy where parameters of fewer than 4 bytes are rounded to nearest": ("master_copy",),
        "one float32 scale for each block of each moment, of which the last may be smaller": ("scales",),
        "not in them": ("autocast_keeps_the_states",),
        "one for each parameter that does not have autocast's dtype": ("passing",),
    },
)
