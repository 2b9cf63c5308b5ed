"""Right and wrong ways to write `training_bytes`."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from autograder.bank import right, wrong
from autograder.edits import edited

Recipe = dict[str, Any]


def weighed(n: int, recipe: Recipe) -> tuple[int, int]:
    """All tensors are made, without content, and weighed."""

    def kept(dtype: torch.dtype, numbers: int = n) -> torch.Tensor:
        return torch.empty(numbers, dtype=dtype, device="meta")

    param = kept(recipe["param"])
    tensors = [param, *map(kept, recipe["grads"])]
    if torch.finfo(param.dtype).bits < 32 and recipe["rounding"] != "stochastic":
        tensors.append(kept(torch.float32))
    for _ in ("mean", "mean of squares"):
        moment = kept(recipe["moments"])
        blocks = range(0, n, recipe["block"]) if recipe["block"] else ()
        tensors += [moment, kept(torch.float32, len(blocks))]
    cast = param if recipe["autocast"] is None else param.to(recipe["autocast"])
    return sum(each.nbytes for each in tensors), 0 if cast is param else cast.nbytes


def part_by_part(n: int, recipe: Recipe) -> tuple[int, int]:
    """Each part over all parameters."""
    param, moment = recipe["param"].itemsize, recipe["moments"].itemsize
    block, cast = recipe["block"], recipe["autocast"]
    parameters = n * param
    gradients = n * sum(each.itemsize for each in recipe["grads"])
    master = n * 4 if param < 4 and recipe["rounding"] == "nearest" else 0
    moments = 2 * n * moment
    scales = 2 * 4 * math.ceil(n / block) if block is not None else 0
    passing = n * cast.itemsize if cast is not None and cast != recipe["param"] else 0
    states = parameters + gradients + master + moments + scales
    return states, passing


def in_bits(n: int, recipe: Recipe) -> tuple[float, float]:
    """One sum, in bits: the division at the end makes floats."""
    narrow = {torch.float32, torch.float64}.isdisjoint({recipe["param"]})
    kept = [recipe["param"], *recipe["grads"], *[recipe["moments"]] * 2]
    kept += [torch.float32] * (narrow and recipe["rounding"] == "nearest")
    bits = n * sum(torch.finfo(each).bits for each in kept)
    if recipe["block"]:
        bits += 2 * 32 * (-(-n // recipe["block"]))
    cast = recipe["autocast"] not in (None, recipe["param"])
    return bits / 8, n * torch.finfo(recipe["autocast"]).bits / 8 if cast else 0.0


RIGHT = (
    right(weighed, independent="Tensor.nbytes"),
    right(part_by_part),
    right(in_bits),
)

parts = partial(edited, part_by_part)

NEEDED = 'param < 4 and recipe["rounding"] == "nearest"'
SIZES = 'sum(each.itemsize for each in recipe["grads"])'
SCALES = "2 * 4 * math.ceil(n / block)"
NARROWED = "(cast or recipe['param']).itemsize"
CAST = 'n * cast.itemsize if cast is not None and cast != recipe["param"] else 0'

WRONG = (
    wrong(
        "autocast_halves_the_states",
        "Autocast changes no state: parameters, gradients and both moments stay in float32, 16 bytes. It casts copies "
        "for the products, and these come on top while a pass runs.",
        parts(("parameters = n * param", f"parameters = n * {NARROWED}")),
        parts(
            ("parameters = n * param", f"parameters = n * {NARROWED}"),
            (f"gradients = n * {SIZES}", f"gradients = n * ({NARROWED} if cast else {SIZES})"),
        ),
        parts(("return states, passing", "return states // 2 if cast else states, passing")),
        parts((f"gradients = n * {SIZES}", f"gradients = n * ({NARROWED} if cast else {SIZES})")),
    ),
    wrong(
        "cast_copies_kept",
        "You count autocast's copies among the states. They are freed when backward has used them: they belong into "
        "the second number alone.",
        parts(("return states, passing", "return states + passing, passing")),
        parts(("return states, passing", "return states + passing, 0")),
    ),
    wrong(
        "cast_copies_forgotten",
        "The second number is missing: while a pass runs, autocast keeps a copy of the parameters in its dtype, so "
        "that each is cast once.",
        parts(("return states, passing", "return states, 0")),
    ),
    wrong(
        "nothing_to_cast",
        "You count a cast copy where nothing is cast: parameters that have autocast's dtype already are used as they "
        "are.",
        parts((' and cast != recipe["param"]', "")),
    ),
    wrong(
        "other_cast_copies",
        "A cast copy has autocast's dtype, and there is one of each parameter: neither in the dtype of the parameters "
        "nor the difference between both, nor are gradients and moments cast.",
        parts(("n * cast.itemsize", "n * param")),
        parts(("n * cast.itemsize", "2 * n * cast.itemsize")),
        parts(("n * cast.itemsize", "-n * cast.itemsize")),
    ),
    wrong(
        "parameters_forgotten",
        "The parameters themselves are missing. A master copy does not replace them: forward and backward use the "
        "narrow ones, the step changes the copy.",
        parts(("states = parameters + gradients", "states = gradients")),
        parts(("states = parameters +", "states = (0 if master else parameters) +")),
    ),
    wrong(
        "gradients_forgotten",
        "The gradients are missing. They are as many as the parameters, and those that the recipe names are there when "
        "the step begins.",
        parts(("parameters + gradients", "parameters")),
    ),
    wrong(
        "gradients_in_one_copy",
        'recipe["grads"] names a dtype for every copy of the gradients: add them all up, two of one dtype too, and '
        "take no other dtype, such as that of the parameters. An empty tuple means that none is kept.",
        parts((SIZES, 'max((each.itemsize for each in recipe["grads"]), default=0)')),
        parts((SIZES, '(recipe["grads"][0].itemsize if recipe["grads"] else 0)')),
        parts((SIZES, '(recipe["grads"][-1].itemsize if recipe["grads"] else 0)')),
        parts((SIZES, 'sum(each.itemsize for each in set(recipe["grads"]))')),
        parts((SIZES, "param")),
        parts((SIZES, 'len(recipe["grads"]) * param')),
        parts((SIZES, '(sum(each.itemsize for each in recipe["grads"]) or param)')),
    ),
    wrong(
        "master_copy_forgotten",
        "The master copy is missing. Parameters of fewer than 4 bytes that are rounded to nearest lose small steps, so "
        "these go to a copy in float32: 4 bytes more.",
        parts((" + master", "")),
    ),
    wrong(
        "another_master_copy",
        "A master copy is needed where two things come together: a parameter has fewer than 4 bytes, and a step is "
        "rounded to nearest. Float32 and float64 take small steps themselves; stochastic rounding takes them on "
        "average; autocast changes nothing in that. And the copy is in float32, whatever moments and gradients are.",
        parts((NEEDED, f"{NEEDED} or cast is not None")),
        parts((NEEDED, f"{NEEDED} and cast is None")),
        parts((NEEDED, "param < 4")),
        parts((NEEDED, 'recipe["rounding"] == "nearest"')),
        parts((NEEDED, "True")),
        parts((NEEDED, 'param < 4 and recipe["rounding"] == "stochastic"')),
        parts((NEEDED, 'param < 4 or recipe["rounding"] == "nearest"')),
        parts((NEEDED, 'param <= 4 and recipe["rounding"] == "nearest"')),
        parts((NEEDED, 'param != 4 and recipe["rounding"] == "nearest"')),
        parts((NEEDED, 'param == 2 and recipe["rounding"] == "nearest"')),
        parts((NEEDED, 'param < moment and recipe["rounding"] == "nearest"')),
        parts(
            (NEEDED, NEEDED + ' and 4 not in [each.itemsize for each in recipe["grads"]]'),
        ),
        parts(("n * 4 if", "n * moment if")),
        parts(("n * 4 if", "n * param if")),
    ),
    wrong(
        "one_moment",
        "Adam keeps two moments: the average of gradients and that of their squares.",
        parts(("2 * n * moment", "n * moment")),
        parts(("2 * n * moment", "n * moment"), (SCALES, "4 * math.ceil(n / block)")),
    ),
    wrong(
        "moments_in_another_dtype",
        'The moments have a dtype of their own, recipe["moments"]: neither that of the parameters nor always float32.',
        parts(("2 * n * moment", "2 * n * param")),
        parts(("2 * n * moment", "2 * n * 4")),
        parts(("2 * n * moment", "n * (4 + moment)")),
    ),
    wrong(
        "scales_forgotten",
        "The scales are missing. With a block each of the two moments also keeps a float32 for each of its blocks.",
        parts((" + scales", "")),
    ),
    wrong(
        "other_scales",
        "Each moment has n / block scales, rounded up, of 4 bytes: what is left over at the end is a block too. Both "
        "moments have scales of their own, and no block reaches from one into the other.",
        parts((SCALES, "4 * math.ceil(n / block)")),
        parts((SCALES, "2 * 4 * (n // block)")),
        parts((SCALES, "2 * 4 * (n // block + 1)")),
        parts((SCALES, "2 * 4 * max(1, n // block)")),
        parts((SCALES, "2 * 4 * n / block")),
        parts((SCALES, "4 * math.ceil(2 * n / block)")),
        parts((SCALES, "2 * moment * math.ceil(n / block)")),
        parts((SCALES, "2 * param * math.ceil(n / block)")),
        parts((SCALES, "2 * 4 * block")),
        parts(("if block is not None", "if block is not None and moment == 1")),
    ),
    wrong(
        "digits_lost",
        "Your parts are right, but the sum is not exact where parameters are many: float32 holds 7 digits, and int32 "
        "ends at two billion. Add up Python's numbers.",
        parts(("return states, passing", "import numpy\n    return float(numpy.float32(states)), passing")),
        parts(("return states, passing", "return (states + 2**31) % 2**32 - 2**31, passing")),
    ),
)
