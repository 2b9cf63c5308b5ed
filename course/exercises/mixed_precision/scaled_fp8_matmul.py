"""`scaled_fp8_matmul(a, b, scales, *, formats, block)`: a product of two matrices in 8 bits.

Codes jump where a number passes the middle between two of them. Numbers are drawn at a distance from there, at which no
rounding of a scale matters: then every right answer has the same codes, and differs by the roundings of its sums alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor

from course.lessons.experiments.formats import dtypes
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.forms import in_dtype, leaves, strided, transposed
from course.performing.refusals import all_refused, refused, refused_in_time

FORMATS = dtypes("e4m3", "e5m2")
KEPT = 16  # of a history
CLEAR = 2.0**-17  # as a share of a number, its distance from the middle between two codes; scales differ by 2^-22
NONSENSE: dict[str, dict[str, Any]] = {
    "a of one dimension": {"a": torch.ones(3)},
    "b of three dimensions": {"b": torch.ones(3, 2, 1)},
    "lengths that differ": {"b": torch.ones(4, 2)},
    "b transposed": {"b": torch.ones(2, 3)},
    "a block of 0": {"block": 0, "scales": None},
    "a block below 0": {"block": -2, "scales": None},
    "a block and histories": {"block": 2},
    "a block and empty histories": {"block": 1},
}
REFUSED_CASE = "what is refused"
Draw = Callable[[], Tensor]


def cases(rng: torch.Generator) -> list[Case]:
    """One scale, two formats, blocks, histories; and numbers at the ends of what is allowed."""

    def draw(*shape: int, spread: float = 1.0, size: float = 1.0, dtype: torch.dtype = torch.float32) -> Draw:
        """Numbers whose sizes differ by some powers of e^spread."""
        return lambda: (size * normal(rng, *shape) * (spread * normal(rng, *shape)).exp()).to(dtype)

    def case(name: str, *pairs: tuple[Draw, Draw], formats: str = "e4m3 e4m3", **more: Any) -> Case:
        """A call for each pair, one after the other."""
        histories, block = more.get("histories"), more.get("block")
        inputs: dict[str, Any] = {"formats": formats.split(), "histories": histories, "block": block, "refusals": False}
        seen: list[list[float]] = [[*each] for each in histories] if histories else [[], []]
        for side, name_of_side in enumerate("ab"):
            inputs[name_of_side] = []
            for pair in pairs:
                past = seen[side] if histories else None
                x = _clear(pair[side], side, FORMATS[inputs["formats"][side]], block, past)
                inputs[name_of_side].append(x)
                seen[side] = [*seen[side], _amax(x)][-KEPT:]
        return Case(name=name, inputs=inputs)

    def uneven(*shape: int) -> Draw:
        """Rows each 100 times smaller than the one before: the last needs all exponents of e5m2."""
        return lambda: draw(*shape)() * 100.0 ** -torch.arange(shape[0])[:, None]

    def outlier(*shape: int, at: int, dim: int) -> Draw:
        def drawn() -> Tensor:
            x = draw(*shape)()
            x.select(dim, at)[0] = 1e6
            return x

        return drawn

    def zeros(*shape: int, rows: int = 0) -> Draw:
        """With `rows`, in those alone."""

        def drawn() -> Tensor:
            x = draw(*shape)()
            x[: rows or None] = 0.0
            return x

        return drawn

    def history(*sizes: float) -> list[float]:
        return [size * (1 + 0.2 * float(torch.rand((), generator=rng))) for size in sizes]

    small = draw(2, 6), draw(6, 3)
    two = (draw(2, 3), draw(3, 2))
    grown = (draw(2, 6, size=40.0), draw(6, 3, size=40.0))
    large = (draw(2, 6, size=1e7), draw(6, 3))
    first_is_largest = history(30.0, *(3.0 + step / 8 for step in range(KEPT + 3)))  # longer than what is kept
    second_is_largest = history(2.0, 50.0, *(4.0 - step / 8 for step in range(KEPT - 3)))
    refusals = case(REFUSED_CASE, two, histories=[history(4.0), history(4.0)])
    refusals.inputs["refusals"] = True
    return [
        case("one scale for each tensor", (draw(5, 12, size=30.0), draw(12, 7, size=1e-3))),
        case("a sum of 200", (draw(4, 200), draw(200, 4))),
        case("a gradient on the left", (uneven(5, 12), draw(12, 7)), formats="e5m2 e4m3"),
        case("a gradient on the right", (draw(5, 12), draw(12, 7, spread=3.0)), formats="e4m3 e5m2"),
        case("blocks of 4", (draw(5, 12, spread=2.0), draw(12, 7, spread=2.0)), formats="e5m2 e4m3", block=4),
        case("an outlier, blocks of 5", (outlier(3, 20, at=8, dim=1), outlier(20, 4, at=13, dim=0)), block=5),
        case("a ragged last block", (draw(5, 14), draw(14, 7, spread=2.0)), formats="e4m3 e5m2", block=4),
        case("blocks of 1", (draw(3, 5, spread=2.0), draw(5, 4, spread=2.0)), block=1),
        case("a block longer than k", (draw(3, 5), draw(5, 4)), block=128),
        case("an empty history", small, grown, small, histories=[[], history(8.0, 5.0)]),
        case("an empty history of b", small, histories=[history(8.0, 5.0), []]),
        case("two empty histories", large, grown, histories=[[], []]),
        case("grown beyond the history", grown, grown, formats="e5m2 e4m3", histories=[history(5.0, 9.0), history(6)]),
        case("full histories", grown, grown, grown, histories=[first_is_largest, second_is_largest]),
        case("zeros", (zeros(5, 12), draw(12, 7))),
        case("zeros in a block", (zeros(3, 8, rows=1), zeros(8, 4, rows=4)), block=4),
        case("a history of zeros", (zeros(2, 6), draw(6, 3)), small, histories=[[0.0], [0.0]]),
        case("k = 1", (draw(1, 1), draw(1, 1))),
        case(
            "small in float16, and bfloat16",
            (draw(3, 8, size=2e-4, dtype=torch.float16), draw(8, 4, dtype=torch.bfloat16)),
            formats="e5m2 e4m3",
        ),
        case(
            "in float16, in blocks",
            (draw(3, 8, size=1e-4, dtype=torch.float16), draw(8, 4, dtype=torch.bfloat16)),
            formats="e5m2 e4m3",
            block=4,
        ),
        case(
            "in float16, with histories",
            (draw(3, 8, size=50.0, dtype=torch.float16), draw(8, 4, size=50.0, dtype=torch.bfloat16)),
            histories=[history(1e5), history(1e4)],  # the first is inf in float16
        ),
        case("both in bfloat16", (draw(3, 8, dtype=torch.bfloat16), draw(8, 4, dtype=torch.bfloat16))),
        case("very small, very large", (draw(3, 8, size=3e-14), draw(8, 4, size=1e11)), formats="e5m2 e4m3"),
        case("small in blocks", (draw(3, 8, size=1e-13), draw(8, 4, size=1e10)), formats="e5m2 e4m3", block=4),
        refusals,
    ]


# --- the right codes, number by number in float64 -----------------------------------------------------------


def _amax(x: Tensor) -> float:
    return float(x.abs().max())


def _scale(x: Tensor, side: int, largest: float, block: int | None, past: list[float] | None) -> Tensor:
    """The scale of every number, float64 of x's shape."""
    x = x.double().abs()
    if not block:
        amax = torch.full_like(x, max(past) if past else float(x.max()))
    else:
        dim = 1 - side  # along k
        amax = torch.cat([part.amax(dim, keepdim=True).expand_as(part) for part in torch.split(x, block, dim)], dim)
    return torch.where(amax > 0, amax / largest, 1.0)


def _codes(scaled: Tensor, dtype: torch.dtype) -> Tensor:
    end = torch.finfo(dtype).max
    return scaled.clamp(-end, end).float().to(dtype).double()


def _clear(draw: Draw, side: int, dtype: torch.dtype, block: int | None, past: list[float] | None) -> Tensor:
    """What is drawn, its largest number negative and twice as large: what is too close to a tie is drawn again, and all
    of it in half precision where quotients that are rounded to it have the same codes.
    """
    x = draw()
    x = torch.where(x.abs() == x.abs().max(), -2 * x.abs(), x)  # else what forgets the sign clips too little
    while True:
        scaled = x.double() / _scale(x, side, torch.finfo(dtype).max, block, past)
        close = _codes(scaled * (1 - CLEAR), dtype) != _codes(scaled * (1 + CLEAR), dtype)
        if not close.any():
            break
        x = torch.where(close, draw(), x)
    rounded = _codes(scaled.to(x.dtype).double(), dtype) != _codes(scaled, dtype)
    return x if x.dtype == torch.float32 or rounded.any() else _clear(draw, side, dtype, block, past)


def _exact(inputs: Inputs) -> list[tuple[Tensor, Tensor]]:
    """For each call the product of the numbers that the codes stand for, and that of their sizes, in float64."""
    pasts = [[*each] for each in inputs["histories"]] if inputs["histories"] else [None, None]
    found = []
    for pair in zip(inputs["a"], inputs["b"], strict=True):
        near = []
        for side, x in enumerate(pair):
            dtype, past = FORMATS[inputs["formats"][side]], pasts[side]
            scale = _scale(x.detach(), side, torch.finfo(dtype).max, inputs["block"], past)
            near.append(_codes(x.detach().double() / scale, dtype) * scale)
            if past is not None:
                past.append(_amax(x.detach()))
                del past[:-KEPT]
        found.append((near[0] @ near[1], near[0].abs() @ near[1].abs()))
    return found


# --- probe and properties -----------------------------------------------------------------------------------


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each pair of matrices, on the same histories; what these hold after each; what is refused."""
    histories = inputs["histories"] and [[*each] for each in inputs["histories"]]
    formats = tuple(FORMATS[each] for each in inputs["formats"])
    given: dict[str, Any] = {"formats": formats} if inputs["formats"] != ["e4m3", "e4m3"] else {}
    given |= {"block": inputs["block"]} if inputs["block"] else {}
    values: dict[str, Any] = {"product": [], "rows": [], "histories": []}
    for a, b in zip(inputs["a"], inputs["b"], strict=True):
        product = answer(a, b, histories and tuple(histories), **given)
        values["product"].append(product.detach() if isinstance(product, Tensor) else product)
        values["rows"].append(_rows(product) if inputs["formats"][0] == "e5m2" else {})
        values["histories"] += [_numbers([_floats(each) for each in histories])] if histories else []
    values["left"] = _numbers([x.detach().flatten() for side in "ab" for x in inputs[side]])
    if inputs["refusals"]:
        values["refused"] = _refusals(answer, histories)
    return observe(values)


def _refusals(answer: Answer, histories: list[list[float]]) -> dict[str, Any]:
    """What came of each call that makes no sense, and the histories that were handed to it."""
    left: dict[str, tuple[list[float], list[float]]]
    left = {words: ([], []) if "empty" in words else ([*histories[0]], [*histories[1]]) for words in NONSENSE}
    calls = {}
    for words, changes in NONSENSE.items():
        call: dict[str, Any] = {"a": torch.ones(2, 3), "b": torch.ones(3, 2), "scales": left[words], **changes}
        positional = call.pop("a"), call.pop("b"), call.pop("scales")
        calls[words] = partial(answer, *positional, **call)
    return {
        **refused(calls),
        "left": {words: _numbers([_floats(each) for each in pair]) for words, pair in left.items()},
    }


def _floats(history: list[float]) -> Tensor:
    """The history as a tensor, with nan for what is no number of Python's or numpy's."""
    return torch.tensor([float(each) if isinstance(each, Real) else torch.nan for each in history])


def _numbers(parts: list[Tensor]) -> Tensor:
    """All of them end to end, behind their lengths."""
    return torch.cat([torch.tensor([float(len(each)) for each in parts]), *(each.float() for each in parts)])


def _rows(product: object) -> dict[str, float]:
    """The size of each row, by which a slip in small ones is recognised."""
    if not isinstance(product, Tensor) or product.dim() != 2:
        return {}
    return {f"row {at}": float(row.abs().sum()) for at, row in enumerate(product.detach().double())}


def _products(inputs: Inputs, got: Values) -> list[Tensor]:
    return [cast(Tensor, got[f"product/{call}"]) for call in range(len(inputs["a"]))]


def _the_codes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each product is that of the right codes, but for roundings of float32."""
    for call, ((exact, sizes), product) in enumerate(zip(_exact(inputs), _products(inputs, got), strict=True)):
        if not isinstance(product, Tensor) or product.shape != exact.shape:
            return f"call {call + 1}: shape {tuple(getattr(product, 'shape', ()))}, where {tuple(exact.shape)} is right"
        bound = (inputs["a"][call].shape[1] + 10) * 2.0**-23 * sizes
        off = (product.double() - exact).abs()
        if not bool((off <= bound).all()):
            worst = int((off - bound).nan_to_num(torch.inf).argmax())
            found, right = float(product.flatten()[worst]), float(exact.flatten()[worst])
            return f"call {call + 1}: {found:.6g}, where the 8-bit numbers have {right:.6g}"
    return None


def _within_the_bound(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no number of the one product is farther from a @ b than the formats explain.

    Each number may be off by eps / 2 of itself, and half a subnormal gap of its scale: |a'b' - ab| <= da |b| + |a| db +
    da db.
    """
    (a,), (b,), (product,) = inputs["a"], inputs["b"], _products(inputs, got)
    off = []
    for side, x in enumerate((a, b)):
        kept = torch.finfo(FORMATS[inputs["formats"][side]])
        gap = kept.smallest_normal * kept.eps * _scale(x, side, kept.max, inputs["block"], None)
        off.append((kept.eps / 2 + 2.0**-20) * x.double().abs() + gap / 2)
    a, b = a.double(), b.double()
    bound = off[0] @ b.abs() + a.abs() @ off[1] + off[0] @ off[1] + (a.shape[1] + 10) * 2.0**-23 * (a.abs() @ b.abs())
    if not isinstance(product, Tensor) or product.shape != bound.shape:
        return f"shape {tuple(getattr(product, 'shape', ()))}, where {tuple(bound.shape)} is right"
    error = (product.double() - a @ b).abs()
    worst = float((error / bound.clamp(min=1e-300)).nan_to_num(torch.inf).max())
    return None if worst <= 1 else f"a number is {worst:.3g} times as far from a @ b as the formats explain"


def _float32(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: every product is float32, and right."""
    dtypes = [each.dtype for each in _products(inputs, got) if each.dtype != torch.float32]
    return f"the product is {dtypes[0]}" if dtypes else _the_codes(inputs, got, expected)


def _grown(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: nothing is nan or inf, and what was clipped has the size of the largest code."""
    if not all(bool(each.isfinite().all()) for each in _products(inputs, got)):
        return "the product holds nan or inf"
    return _the_codes(inputs, got, expected)


ONE_SCALE = ("one scale for each tensor", "a sum of 200")
GRADIENTS = ("a gradient on the left", "a gradient on the right")
BLOCKS = ("blocks of 4", "an outlier, blocks of 5", "blocks of 1", "a block longer than k")
HISTORIES = ("an empty history", "an empty history of b", "two empty histories", "full histories", "a history of zeros")
HALF = ("small in float16, and bfloat16", "in float16, in blocks", "in float16, with histories", "both in bfloat16")
ZEROS_IN_HALF = "zeros in float16"

EXERCISE = Exercise(
    id="mixed_precision.scaled_fp8_matmul",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "within_the_formats_error",
            "The product is farther from a @ b than 8 bits explain. The scale is amax / largest, with the largest |x|. "
            "Codes are x / scale, and the sum of products of codes is multiplied by both scales at the end.",
            holds=_within_the_bound,
            cases=ONE_SCALE,
        ),
        Property(
            "the_right_codes",
            "Close to a @ b, but not the product of the right 8-bit numbers. Divide by the float32 scale, clamp, cast "
            "to the format; then multiply and add in float32, where products of codes are exact.",
            points=2,
            holds=_the_codes,
            cases=ONE_SCALE,
        ),
        Property(
            "each_in_its_format",
            "formats[0] is that of a, formats[1] that of b: each has its own largest number (torch.finfo) and its own "
            "cast.",
            holds=_the_codes,
            cases=GRADIENTS,
        ),
        Property(
            "a_scale_for_each_block",
            "A block is `block` neighbours along k: in a row of a, and in a column of b. Its products are multiplied "
            "by its own two scales before the blocks are added up.",
            points=2,
            holds=_the_codes,
            cases=BLOCKS,
        ),
        Property(
            "a_ragged_last_block",
            "k need not be a multiple of block: the last block has the numbers that are left. Zeros behind them do no "
            "harm.",
            holds=_the_codes,
            cases=("a ragged last block",),
        ),
        Property(
            "the_largest_of_the_history",
            "With histories the scale is known before the tensor is: it comes from the largest number of the list as "
            "it was handed in, and from the own amax only where the list is empty.",
            points=2,
            holds=_the_codes,
            cases=HISTORIES,
        ),
        Property(
            "histories_kept",
            "After each call the own amax stands last, a float, in the caller's own lists (append, del history[:-16]; "
            "a new list under the same name is not the caller's), and at most 16 are left.",
            keys=("histories/*",),
            roundings=0,
            cases=HISTORIES,
        ),
        Property(
            "clipped_where_it_grew",
            "A tensor that has outgrown its history must be clipped to the format's largest number before the cast: "
            "torch's cast to e5m2 gives inf, and inf - inf is nan.",
            holds=_grown,
            cases=("grown beyond the history",),
        ),
        Property(
            "zeros",
            "An amax of 0 must not divide by 0: its scale is 1. That goes for a block, and for a history of zeros.",
            holds=_the_codes,
            cases=("zeros", "zeros in a block"),
            needs=("the_right_codes",),
        ),
        Property(
            "half_precision",
            "amax, scale, quotient and sum are float32 whatever a and b are in: an amax of 1e-3 over 57,344 "
            "is 0 in float16. The product is float32.",
            holds=_float32,
            cases=(*HALF, ZEROS_IN_HALF),
        ),
        Property(
            "every_size",
            "From 1e-14 to 1e12 an amax is as good as any: add nothing to it, and put no lower bound on the scale. "
            "One number is a matrix too.",
            holds=_the_codes,
            cases=("k = 1", "very small, very large", "small in blocks"),
            needs=("the_right_codes",),
        ),
        Property(
            "matrices_unchanged",
            "a or b was changed in place (div_, clamp_, /=): the backward pass still needs them. `x.float()` of a "
            "float32 tensor is that very tensor, and a slice or a transpose shares its memory.",
            keys=("left",),
            roundings=0,
            hard=True,
            needs=("within_the_formats_error",),
        ),
        Property(
            "refusals",
            "Raise a ValueError where the shapes are not (m, k) and (k, n), and for a block below 1 or beside "
            "histories.",
            holds=all_refused,
            cases=(REFUSED_CASE,),
            needs=("the_largest_of_the_history",),
        ),
        refused_in_time(REFUSED_CASE),
        Property(
            "every_form",
            "A view, a transpose or a tensor that requires a gradient has the same product. `.view` needs contiguous "
            "numbers, reshape does not.",
            holds=_the_codes,
            needs=("the_right_codes",),
        ),
    ),
    hints=(
        "Which number of a tensor should become the format's largest, and what must the product be multiplied by "
        "for that?",
        "Write one helper that turns a matrix (rows, k) into codes and scales; b is handed to it transposed. Without "
        "blocks the whole of k is one block.",
        "Pad k, reshape to (rows, blocks, size); amax from the history, the tensor or the last dimension; scale; "
        "clamp; cast. Then an einsum that keeps the blocks apart, times both scales, and the sum over the blocks.",
    ),
    forms=(
        strided("a", "b", of="one scale for each tensor"),
        transposed("a", "b", of="a ragged last block"),
        leaves("a", "b", of="an empty history"),
        in_dtype(torch.float16, "a", "b", of="zeros", name=ZEROS_IN_HALF),
    ),
    promises={
        "float32, float16 or bfloat16, which may differ": ("half_precision",),
        "views too": ("every_form",),
        "They are not changed": ("matrices_unchanged",),
        "They may require a gradient": ("tensors that require a gradient",),
        "at least 1": ("k = 1",),
        "from 1e-14 to 1e12, or 0": ("every_size", "zeros"),
        "each tensor is scaled by its own amax": ("the_right_codes",),
        "the largest in the list": ("the_largest_of_the_history",),
        "own amax where the list is empty": ("an empty history",),
        "appended to the very list, and all but the last 16 are removed": ("histories_kept",),
        "torch.float8_e4m3fn or torch.float8_e5m2": ("each_in_its_format",),
        "so many neighbours along k share a scale": ("a_scale_for_each_block",),
        "The last block may be shorter": ("a_ragged_last_block", "a block longer than k"),
        "1 where that amax is 0": ("zeros", "a history of zeros"),
        "clipped to it, never inf or nan": ("clipped_where_it_grew",),
        "products are added in float32": ("a sum of 200",),
        "float32 (m, n)": ("half_precision", "the_right_codes"),
        "before a history changes": ("refused_before_any_change",),
        "shapes that are not (m, k) and (k, n)": ("refusals",),
        "a block below 1": ("refusals",),
        "a block beside histories": ("refusals",),
    },
    seconds=2.0,
)
