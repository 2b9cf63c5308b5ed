"""`gptq_quantize(w, hessian, step, bits, damp)`: codes whose rounding errors later columns make good.

One entry that is rounded the other way changes all codes after it, so that codes are not compared: what is judged is
the error of the outputs, tr((W - Q) H (W - Q)').
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from course.performing.draws import normal
from course.performing.exercise import Case, Exercise, Inputs, Property, Values, every_form, one_call
from course.performing.forms import at_once, cut, in_dtype, strided, transposed

USUAL = ("correlated inputs", "3 bits", "steps that differ")
SINGULAR = ("fewer inputs than columns", "an input that is always 0")
SCALES = ("tiny inputs", "large inputs")
CUT_OFF = ("values beyond the range", "2 bits")
ALONE, EIGHT, WIDE = "independent inputs", "8 bits", "more columns than the usual block of 128"
SLACK = 1.02  # times our error
CLEAR = 1e-3  # of a step
TOLD, USED = 1e-4, 0.01  # a damping, and the one that people use
LITTLE = 1e-3  # a damping of which still less would be too little
LOSES = 1.1  # times the error as told, which another damping leaves where it is to show
BETTER = 0.9  # times the error of plain rounding, which is far above ours in the usual cases


def cases(rng: torch.Generator) -> list[Case]:
    """Inputs are mixtures of a few numbers, with a little noise."""
    n = 20

    def inputs(count: int, n: int = n, noise: float = 0.3) -> Tensor:
        common = normal(rng, count, n // 4, dtype=torch.float64) @ normal(rng, n // 4, n, dtype=torch.float64)
        return common + noise * normal(rng, count, n, dtype=torch.float64)

    def case(
        name: str,
        x: Tensor,
        bits: int = 4,
        *,
        m: int = 24,
        fits: float = 1.0,
        damp: float = 0.01,
        far: int = 0,
        other: float = 0.0,
    ) -> Case:
        sizes = 10.0 ** (far * (torch.arange(m, dtype=torch.float64)[:, None] % 2))  # half of the rows make the error
        while True:
            w = normal(rng, m, x.shape[1], dtype=torch.float64) * sizes
            step = w.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1) * fits
            ours, clear = _error(w, x.T @ x, step, bits, damp)
            if clear and (not other or _error(w, x.T @ x, step, bits, other)[0] >= LOSES * ours):
                break
        tensors = {"w": w.float(), "hessian": (x.T @ x).float(), "step": step.float()}
        return Case(name=name, inputs={**tensors, "bits": bits, "damp": damp})

    dead = inputs(100)
    dead[:, 3] = 0
    uneven = 1e3 * inputs(n // 2) * torch.where(torch.arange(n) < n // 4, 10.0, 1.0)
    sizes = uneven.square().sum(dim=0)  # their median is far below their mean
    independent = torch.linalg.qr(normal(rng, 60, n, dtype=torch.float64))[0] * torch.linspace(1, 9, n)
    return [
        case("correlated inputs", inputs(100)),
        case("3 bits", inputs(80), 3, damp=0.02),
        case("steps that differ", inputs(120), far=2),
        case("fewer inputs than columns", inputs(n // 2), damp=0.01),
        case("an input that is always 0", dead),
        case("tiny inputs", 1e-3 * inputs(100), damp=TOLD, other=USED),
        case("large inputs", uneven, damp=LITTLE, other=LITTLE * float(sizes.median() / sizes.mean())),
        case("values beyond the range", inputs(100), fits=0.5),
        case("2 bits", inputs(100), 2, fits=0.7),
        case("independent inputs", independent),
        case(EIGHT, inputs(100), 8),
        case(WIDE, inputs(200, 140), m=2),  # few rows: of many some number would always lie near a tie
    ]


def _error(w: Tensor, hessian: Tensor, step: Tensor, bits: int, damp: float) -> tuple[float, bool]:
    """tr((W - Q) H (W - Q)'), and whether no number comes so near to a tie of rounding that float32 may turn it, and
    all codes after it.
    """
    last, more = 2 ** (bits - 1) - 1, damp * float(hessian.trace()) / len(hessian)
    inverse = torch.linalg.inv(hessian + more * torch.eye(len(hessian)).to(w))
    factor, values = torch.linalg.cholesky(inverse, upper=True), w / step
    codes, clear = torch.zeros_like(w), True
    for at, row in enumerate(factor):
        now = values[:, at].clone()
        clear = clear and not bool(((now % 1 - 0.5).abs() < CLEAR).any())
        codes[:, at] = now.round().clamp(-last, last)
        values -= torch.outer((now - codes[:, at]) / row[at], row)  # row is 0 before `at`
    left = w - step * codes
    return float((left @ hessian * left).sum()), clear


def output_error(inputs: Inputs, codes: Tensor) -> float:
    """tr((W - Q) H (W - Q)')."""
    left = inputs["w"].detach().double() - inputs["step"].detach().double() * codes.double()
    return float((left @ inputs["hessian"].detach().double() * left).sum())


def plainly_rounded(inputs: Inputs) -> Tensor:
    """Each number by itself."""
    top = 2 ** (inputs["bits"] - 1) - 1
    rounded: Tensor = (inputs["w"].detach() / inputs["step"].detach()).round().clamp(-top, top)
    return rounded


def _off_the_grid(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: int8, (m, n), and no code beyond the last."""
    codes, shape, top = got["codes"], tuple(inputs["w"].shape), 2 ** (inputs["bits"] - 1) - 1
    if not isinstance(codes, Tensor) or codes.dtype != torch.int8 or tuple(codes.shape) != shape:
        came = f"{codes.dtype} {(*codes.shape,)}" if isinstance(codes, Tensor) else type(codes).__name__
        return f"codes must be int8 {shape}, got {came}"
    most = int(codes.short().abs().max())
    return None if most <= top else f"a code of size {most}, where {inputs['bits']} bits end at {top}"


def _at_most(times: float, ours: bool) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: on the grid, and an error of so many times ours, or plain rounding's, or less."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        if sentence := _off_the_grid(inputs, got, expected):
            return sentence
        codes, reference = got["codes"], expected["codes"] if ours else plainly_rounded(inputs)
        assert isinstance(codes, Tensor)
        assert isinstance(reference, Tensor)
        error, other = output_error(inputs, codes), output_error(inputs, reference)
        whose = "ours" if ours else "that of plain rounding"
        return None if error <= times * other else f"an error of {error:.5g}, and {whose} is {other:.5g}"

    return holds


as_good = _at_most(SLACK, ours=True)

EXERCISE = Exercise(
    id="quantization.gptq_quantize",
    cases=cases,
    probe=one_call("w", "hessian", "step", "bits", "damp", gives=("codes",)),
    properties=(
        Property(
            "better_than_rounding",
            "Rounding each number by itself leaves as small an error of the outputs. What later columns can still make "
            "good of a column's error says the Hessian.",
            points=2,
            holds=_at_most(BETTER, ours=False),
            cases=USUAL,
        ),
        Property(
            "as_good_as_ours",
            "The error of the outputs is more than 2% above ours. After column j the columns behind it move to where "
            "the whole error is least, given all that is rounded: by the row of U, the upper Cholesky factor of the "
            "inverse, over its diagonal entry.",
            points=3,
            holds=as_good,
            cases=(*USUAL, EIGHT, WIDE),
            needs=("better_than_rounding",),
        ),
        Property(
            "on_the_grid",
            "Codes are int8 and lie from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1, also where a correction has pushed "
            "a value beyond.",
            holds=_off_the_grid,
            needs=("better_than_rounding",),
        ),
        Property(
            "singular_hessian",
            "Where an input is always 0, or there are fewer inputs than columns, the Hessian has no inverse: add the "
            "damping to its diagonal before you invert it.",
            points=2,
            holds=as_good,
            cases=SINGULAR,
        ),
        Property(
            "damping_is_relative",
            "The damping is a part of the mean of the Hessian's diagonal. As a number of its own it would be "
            "everything for tiny inputs, and nothing for large ones. How large a part says `damp`.",
            holds=as_good,
            cases=SCALES,
            needs=("better_than_rounding",),
        ),
        Property(
            "what_is_cut_off",
            "A value beyond the range has an error larger than half a step. It is fed to later columns like any other.",
            holds=as_good,
            cases=CUT_OFF,
        ),
        Property(
            "nothing_to_make_good",
            "With independent inputs the Hessian is diagonal, and no column can make good what another one has lost: "
            "the codes are those of plain rounding.",
            holds=as_good,
            cases=(ALONE,),
            needs=("better_than_rounding",),
        ),
        dataclasses.replace(every_form(needs=("better_than_rounding",)), keys=(), holds=as_good),
    ),
    hints=(
        "Two inputs are always equal. Their weights are 0.4 and 0.4, and the step is 1. Which codes are best?",
        "Column j was rounded, and its error is e. Where do the columns after it have to go, so that the sum of "
        "(e, d) H (e, d)' over the rows is least? Look at the inverse of the part of H that is not rounded yet.",
        "Damp, invert, take the upper Cholesky factor U. For each j: round what is there by now, divide the error by "
        "U[j, j], and take it times U[j, j + 1:] off the later columns.",
    ),
    keeps=("w", "hessian", "step"),
    forms=(
        in_dtype(torch.float64, "w", "hessian", "step"),
        strided("w", "hessian"),
        transposed("w"),
        at_once("one row", cut("", w=(0, 1), step=(0, 1))),
        at_once("one column", cut("", w=(1, 1), hessian=(0, 1)), cut("", hessian=(1, 1))),
    ),
    promises={
        "(m, n), one row for each output": ("as_good_as_ours", "one row", "one column"),
        "not changed": ("arguments_unchanged",),
        "perhaps singular": ("singular_hessian",),
        "what a code of 1 stands for in each row": ("steps that differ",),
        "from 2 to 8": ("2 bits", EIGHT),
        "codes lie from -(2**(bits - 1) - 1) to 2**(bits - 1) - 1": ("on_the_grid",),
        "this part of the mean of hessian's diagonal": ("damping_is_relative",),
        "also of values that the range cuts off": ("what_is_cut_off",),
        "Columns are rounded from the first to the last": ("as_good_as_ours", WIDE),
        "at most 1.02 times ours": ("as_good_as_ours",),
        "less than rounding each number by itself leaves": ("better_than_rounding",),
    },
)
