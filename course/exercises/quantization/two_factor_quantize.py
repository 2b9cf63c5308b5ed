"""`two_factor_quantize(w, q, bits)`: u and v of a weight, each with a small codebook.

Codebooks that differ in one entry differ in all: what is judged is the error of u + v q' as it comes back, or that of
both factors. (Errors of the two may cancel, so that better codebooks do not always give a smaller sum.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from course.exercises.quantization.kashin_split import split
from course.performing.compare import EPS, as_numbers, case_dtype
from course.performing.draws import integer, normal
from course.performing.exercise import (
    Case,
    Exercise,
    Inputs,
    Property,
    Values,
    every_form,
    in_the_dtype_of,
    one_call,
)
from course.performing.forms import in_dtype, strided

GAUSSIAN = ("Gaussian, 2 bits", "Gaussian, 3 bits")
OTHERS = ("heavy tails", "a basis of two signs", "4 bits", "1 bit", "two values", "one row")
SMALL = "small weights"
SLACK, ROUGH = 1.02, 2.0  # times our squared error
ALIKE, NOISE = 1.005, 1e-6  # of errors of weights that are off by so many of their own size
ROUNDINGS = 64  # of a number that comes back, where we have no error
FACTORS, SPLITS = ("u", "v"), 30


def cases(rng: torch.Generator) -> list[Case]:
    """Normal numbers and quotients of them, drawn until roundings do not decide where k-means ends; and two numbers, so
    that values of a codebook are left without entries.
    """

    def drawn(*shape: int) -> Tensor:
        return normal(rng, *shape, dtype=torch.float64)

    def case(name: str, draw: Callable[[], Tensor], bits: int, q: Tensor | None = None) -> Case:
        while True:
            w = draw()
            turn = torch.linalg.qr(drawn(w.shape[1], w.shape[1]))[0] if q is None else q
            noise = 1 + NOISE * drawn(2, *w.shape)
            if name == "two values" or _alike(
                [(w, turn), (w.float(), turn.float()), *((w * n, turn) for n in noise)], bits
            ):
                return Case(name=name, inputs={"w": w.float(), "q": turn.float(), "bits": bits})

    def heavy() -> Tensor:
        return drawn(32, 24) / drawn(3, 32, 24).square().mean(dim=0).sqrt()

    def both() -> Tensor:
        return torch.where(drawn(24, 16) > 0, 0.5, -0.5) * integer(rng, 1, 9)

    walsh = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(4):
        walsh = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), walsh)
    return [
        case("Gaussian, 2 bits", lambda: drawn(32, 24), 2),
        case("Gaussian, 3 bits", lambda: 2 * drawn(24, 32), 3),
        case("heavy tails", heavy, 2),
        case("a basis of two signs", lambda: drawn(40, 16), 2, walsh / 4),
        case("4 bits", lambda: drawn(32, 24), 4),
        case("1 bit", lambda: drawn(24, 20), 1),
        case("small weights", lambda: 1e-4 * drawn(24, 20), 2),
        case("two values", both, 2),
        case("one row", lambda: drawn(1, 48), 2),
    ]


def _alike(weights: list[tuple[Tensor, Tensor]], bits: int) -> bool:
    """Whether all these, which differ by roundings, get the same codes, and the same errors but for a part of what is
    allowed; and no value of a codebook is ever left without entries.
    """
    errors, codes = [], []
    for w, q in weights:
        (u, of_u), (v, of_v) = (_as_held(each, 2**bits) for each in split(w, q, SPLITS)[:2])
        errors.append(float((u + v @ q.T - w).double().square().sum()))
        if of_u is None or of_v is None:
            return False
        codes.append(torch.stack([of_u, of_v]))
    return max(errors) <= ALIKE * min(errors) and all(torch.equal(each, codes[0]) for each in codes)


def _as_held(factor: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
    """Each entry's value in a codebook by k-means, and its code; None where a value was left without entries."""
    flat, empty = factor.flatten(), False
    found = flat.quantile((torch.arange(count).to(flat) + 0.5) / count)
    for _ in range(50):
        places = torch.bucketize(flat, found.unfold(0, 2, 1).mean(1))
        held = places.bincount(minlength=count)
        empty |= bool((held == 0).any())
        before, sums = found, torch.zeros_like(found).index_add_(0, places, flat)
        found = torch.where(held > 0, sums / held, found)
        if torch.equal(found, before):
            break
    codes = torch.bucketize(flat, found.unfold(0, 2, 1).mean(1))
    return found[codes].view_as(factor), None if empty else codes


def returned(inputs: Inputs, values: Values) -> Tensor | str:
    """u + v q' from codes and codebooks, in float64, or what is wrong with them."""
    w, count, parts = inputs["w"], 2 ** inputs["bits"], []
    for name in FACTORS:
        codes, book = values[f"codes_{name}"], as_numbers(values[f"codebook_{name}"])
        if not isinstance(codes, Tensor) or codes.is_floating_point() or codes.shape != w.shape:
            return f"codes_{name} must be whole numbers {(*w.shape,)}"
        if book is None or book.shape != (count,) or not bool(book.isfinite().all()):
            return f"codebook_{name} must hold {count} numbers"
        if not 0 <= int(codes.min()) <= int(codes.max()) < count:
            return f"codes_{name} must lie from 0 to {count - 1}, got {int(codes.min())} to {int(codes.max())}"
        parts.append(book[codes.long()])
    whole: Tensor = parts[0] + parts[1] @ inputs["q"].detach().double().T
    return whole


def _form(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: codes and codebooks of the right shapes and dtypes."""
    if isinstance(found := returned(inputs, got), str):
        return found
    dtypes = {str(codes.dtype) for name in FACTORS if isinstance(codes := got[f"codes_{name}"], Tensor)}
    return None if dtypes == {"torch.uint8"} else f"codes must be uint8, got {', '.join(sorted(dtypes))}"


def _of_factors(inputs: Inputs, values: Values) -> float:
    """The squared error of u plus that of v."""
    error = 0.0
    u, v, _ = split(inputs["w"].detach(), inputs["q"].detach(), SPLITS)
    for name, factor in zip(FACTORS, (u, v), strict=True):
        codes, book = values[f"codes_{name}"], as_numbers(values[f"codebook_{name}"])
        assert isinstance(codes, Tensor)
        assert book is not None
        error += float((book[codes.long()] - factor.double()).square().sum())
    return error


def _at_most(times: float) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: a squared error of so many times ours at most, of what returns or of factors."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        found, ours = returned(inputs, got), returned(inputs, expected)
        if isinstance(found, str):
            return found
        assert isinstance(ours, Tensor)
        w = inputs["w"].detach().double()
        error, other = (float((each - w).square().sum() / w.square().sum()) for each in (found, ours))
        least = (ROUNDINGS * EPS[case_dtype(inputs)]) ** 2
        if error <= times * other + least or _of_factors(inputs, got) <= times * _of_factors(inputs, expected):
            return None
        return f"a squared error of {error:.4g} of |w|^2, where ours is {other:.4g}"

    return holds


near = _at_most(SLACK)

EXERCISE = Exercise(
    id="quantization.two_factor_quantize",
    cases=cases,
    probe=one_call("w", "q", "bits", gives=("codes_u", "codebook_u", "codes_v", "codebook_v")),
    properties=(
        Property(
            "two_factors",
            "The squared error is more than twice ours. Split w by `kashin_split`, and give the entries of each "
            "factor to the nearest value of a codebook made from that factor.",
            points=2,
            holds=_at_most(ROUGH),
            cases=GAUSSIAN,
        ),
        Property(
            "a_codebook_for_each",
            "The squared error of Gaussian weights is more than 2% above ours. u and v gather around other values: "
            "each needs its own codebook, whose values are the means of the entries that they stand for.",
            points=2,
            holds=near,
            cases=GAUSSIAN,
            needs=("two_factors",),
        ),
        Property(
            "other_weights",
            "The same for heavy tails, other bases, other numbers of bits, and weights of two values, with which a "
            "value of a codebook may have no entries.",
            points=2,
            holds=near,
            cases=OTHERS,
            needs=("two_factors",),
        ),
        Property(
            "any_size",
            "Weights of 0.0001 have codebooks as good: no bound of your own may count as small.",
            holds=near,
            cases=(SMALL,),
            needs=("two_factors",),
        ),
        Property(
            "form",
            "Codes are uint8 like w, below 2**bits, and each codebook has 2**bits values.",
            holds=_form,
            needs=("two_factors",),
        ),
        Property(
            "dtype_of_w",
            "Both codebooks come in the dtype of w.",
            holds=in_the_dtype_of("w", "codebook_u", "codebook_v"),
            cases=(*GAUSSIAN, "in float64"),
            needs=("two_factors",),
        ),
        dataclasses.replace(every_form(needs=("two_factors",)), keys=(), holds=near),
    ),
    hints=(
        "Four values stand for all entries of a factor. Which value stands best for a given set of entries?",
        "Split the whole matrix by `kashin_split` in 30 steps. Do the same with u and with v: begin at quantiles, "
        "give each entry to the nearest value, move each value to the mean of its entries, and again.",
        "(entries[:, None] - book).abs().argmin(dim=1) gives the codes. For each k: book[k] = entries[codes == "
        "k].mean(), unless none has this code. After the last round the codes are found once more.",
    ),
    keeps=("w", "q"),
    forms=(
        in_dtype(torch.float64, "w", "q"),
        strided("w", "q"),
    ),
    promises={
        "in float32 or float64": ("dtype_of_w", "in float64"),
        "in the dtype of w": ("dtype_of_w", "in float64"),
        "not changed": ("arguments_unchanged",),
        "from 1 to 4": ("1 bit", "4 bits"),
        "it stays where none came": ("two values",),
        "codes uint8 (m, n) from 0 to 2**bits - 1, codebooks (2**bits,)": ("form", "one row"),
        "at most 1.02 times ours": ("a_codebook_for_each", "other_weights"),
        "less than twice ours": ("two_factors",),
    },
)
