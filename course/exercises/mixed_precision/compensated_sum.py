"""`compensated_sum(xs, dtype)`: a sum in few digits whose error does not grow with the number of terms.

The bound is judged, not bits: 3 u sum |x| for up to 1 / sqrt(u) terms, which every compensated sum keeps: 2 u + n u^2
those of Kahan's kind, u + (n u)^2 those that add the losses apart. Every case is built so that some other sum is
farther off: the 16 numbers of `MADE_FOR_PAIRS` were found by search against three rounds of pairs that are compensated
only then. What is added in more digits would pass, so the operations themselves are watched: in other dtypes, those of
integers too, only what adds no two numbers may run. Integers up to the size of xs are places, and free. What is added
outside of torch is not seen: a second call in which additions give 0 tells whether the sum came from them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course.errors import WrongOutput
from course.meter.kept import tensors
from course.performing.draws import integer
from course.performing.exercise import (
    EVERY_FORM,
    Answer,
    Case,
    Exercise,
    Form,
    Inputs,
    Observation,
    Property,
    Values,
    observe,
)
from course.performing.forms import cut, in_dtype, leaves, put, strided, transposed

BOUND = 3.0  # in u sum |x|
LEVELS = 7  # of the tree, so that the long sum has 2^7 terms
IN_CHUNKS = ("chunks that are too small together", "thousands of numbers in chunks")
WATCHED = 300  # numbers in a column at most: of more the sum alone is asked, in a tenth of the time
MADE_FOR_PAIRS = (
    *(0.004302978515625, -0.00121307373046875, 0.0013427734375, 0.006866455078125, 0.0025482177734375, 0.051513671875),
    *(0.0341796875, 0.042236328125, 0.8671875, 1.609375, 0.004180908203125, 0.003662109375, 1.2109375, 0.32421875),
    *(0.0120849609375, 0.00750732421875),
)
ADDITIONS = {"add", "add_", "sub", "sub_", "rsub", "_foreach_add", "_foreach_add_", "_foreach_sub", "_foreach_sub_"}
ADDS_NOTHING = {  # beside views; in place too, and for lists
    *("_to_copy", "copy", "clone", "fill", "zero", "zeros_like", "ones_like", "full_like", "empty_like", "rand_like"),
    *("new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided", "_unsafe_view", "resize", "set"),
    *("cat", "stack", "where", "masked_select", "masked_fill", "masked_scatter", "flip", "roll", "repeat", "tril"),
    *("index", "index_put", "index_select", "index_copy", "index_fill", "gather", "scatter", "take", "nonzero", "triu"),
    *("constant_pad_nd", "sort", "argsort", "topk", "kthvalue", "searchsorted", "unique_dim", "_unique2"),
    *("eq", "ne", "lt", "le", "gt", "ge", "equal", "isnan", "isinf", "any", "all", "signbit", "_local_scalar_dense"),
    *("max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "maximum", "minimum", "fmax", "fmin", "clamp"),
    *("abs", "neg", "sign", "copysign", "mul", "div", "reciprocal", "frexp", "ldexp", "pow", "exp2", "log2"),
    *("round", "floor", "ceil", "trunc", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "clamp_min", "clamp_max", "detach", "put", "median"),
    *("cummax", "cummin", "repeat_interleave", "bucketize", "select_scatter", "slice_scatter", "nanmedian", "mode"),
}


def cases(rng: torch.Generator) -> list[Case]:
    """For each sum that is not compensated one on which it is far off; nothing to add, and one number."""
    return [
        Case(name=name, inputs={"xs": xs, "dtype": dtype})
        for name, xs, dtype in (
            ("float16", _small_after_large(40, torch.float16, rng), "float16"),
            ("bfloat16 from float32", _small_after_large(16, torch.bfloat16, rng).float(), "bfloat16"),
            ("float64", _small_after_large(60, torch.float64, rng), "float64"),
            ("numbers of one size", _of_one_size(45, rng), "float16"),
            ("columns that differ", _side_by_side(rng), "bfloat16"),
            ("a long sum", _tree(rng), "float32"),
            (IN_CHUNKS[0], _chunks(64, 5, rng), "float64"),
            (IN_CHUNKS[1], _chunks(1024, 4, rng), "float64"),
            ("five numbers", torch.tensor([2048.0, 1, 1, 1, 1]), "float16"),
            ("no numbers", torch.zeros(0, 2, 3), "bfloat16"),
            ("one number", 1 + torch.rand(1, 3, generator=rng), "float16"),
        )
    ]


def _small_after_large(n: int, dtype: torch.dtype, rng: torch.Generator) -> Tensor:
    """(n, 3), one sum in each column: a large number, and others that are each less than half a distance at it.

    The second column has the other sign; in the third the large number is taken off again at the end.
    """
    large = (1 + torch.randint(0, 64, (3,), generator=rng) / 64).double() * (1 + 2.0**-30 / 3)  # all digits of float64
    steps = torch.finfo(dtype).eps * (0.3 + 0.15 * torch.rand(n, 3, generator=rng, dtype=torch.float64))
    steps[0] = large
    steps[-1, 2] = -large[2]
    return (steps * torch.tensor([1.0, -1.0, 1.0])).to(dtype)


def _of_one_size(n: int, rng: torch.Generator) -> Tensor:
    """(n, 2, 2) in float16, a little above 1 or below -1: added to a sum above 16, each loses 5 to 7 / 1024.

    Drawn until a sum is far off from which losses are taken once more.
    """
    while True:
        xs = ((1 + torch.randint(5, 8, (n, 2, 2), generator=rng) / 1024) * torch.tensor([1.0, -1.0])).half()
        total = lost = torch.zeros_like(xs[0])
        for x in xs:
            y = x - lost
            lost, total = y - (total + y - total), total + y
        off = (total.double() - xs.double().sum(0)).abs() / xs.double().abs().sum(0)
        if off.max() > 1.5 * BOUND * torch.finfo(torch.float16).eps / 2:
            return xs


def _side_by_side(rng: torch.Generator) -> Tensor:
    """(16, 3) in bfloat16: small numbers after a large one; each larger than the sum before; what pairs add badly."""
    growing = (-1.3) ** torch.arange(16.0)
    return torch.stack([_small_after_large(16, torch.bfloat16, rng)[:, 0], growing, torch.tensor(MADE_FOR_PAIRS)], 1)


def _tree(rng: torch.Generator) -> Tensor:
    """(2^LEVELS, 3) in float32: two of three sums in the tree of pairs are ties, and all are rounded down.

    Neighbours are paired in the first column, x[i] and x[i + n / 2] in the second. In the third each number is a little
    above 1 and loses that, added to a sum above 64.
    """
    columns = [(2**23 + torch.randint(20, 32, (2**LEVELS,), generator=rng)).tolist()]
    for order in (lambda place: place, lambda place: int(f"{place:0{LEVELS}b}"[::-1], 2)):
        top = 2 * integer(rng, 2**22 + 2**18, 2**22 + 2**19)
        leaves = _leaves(top, LEVELS, rng)
        columns.append([leaves[order(place)] for place in range(len(leaves))])
    return torch.tensor([*columns[1:], columns[0]], dtype=torch.float64).mul(2.0**-23).float().T.contiguous()


def _leaves(v: int, level: int, rng: torch.Generator) -> list[int]:
    """What is added to v 2^level by pairs, in units of 2^-23, v between 2^23 and 2^24: one more than that if v is even.

    The sum of two is then a tie, and goes to the even v. An odd v is the exact sum of two that are even, and rounded.
    """
    if level == 0:
        return [v]
    total = 2 * v + (v % 2 == 0)  # in units of the level below
    one = v + integer(rng, -(2**14), 2**14)
    one -= one % 2
    return _leaves(one, level - 1, rng) + _leaves(total - one, level - 1, rng)


def _chunks(chunk: int, chunks: int, rng: torch.Generator) -> Tensor:
    """(chunk chunks,) in float64: a 1, and numbers of which a chunk is still less than half a distance at it. They are
    lost where each chunk is compensated, and the sums of chunks are added as they are.
    """
    xs = 0.8 + 0.15 * torch.rand(chunk * chunks, generator=rng, dtype=torch.float64)
    xs *= torch.finfo(torch.float64).eps / 2 / chunk
    xs[0] = 1
    return xs


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Which dtypes numbers were added in, how many additions there were, and which operations add more at once.

    size  of xs, which places do not exceed
    lost  whether all that may be an addition gives 0: a sum that is the same then was not made of them
    """

    def __init__(self, dtype: torch.dtype, size: int, *, lost: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype, self.size, self.lost = dtype, size, lost
        self.others, self.reductions, self.additions = set[str](), set[str](), 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's compiler need not be kept out of this: to import it for that would take 2 s."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given, found = tensors((args, kwargs)), tensors(result)
        adds = name in ADDITIONS
        of_xs = not adds or len(given) + len(found) > 2  # a tensor and a Python number are no two numbers of xs
        free = func.is_view or name.removeprefix("_foreach_").removesuffix("_") in ADDS_NOTHING
        is_list = name.startswith("_foreach_") and name != "_foreach_norm"
        pointwise = adds or is_list or torch.Tag.pointwise in func.tags
        puts = name.removesuffix("_") in ("put", "index_put")
        accumulates = (puts and (*args, False)[3]) or "reduce" in func._overloadname
        if accumulates or (given and not free and not pointwise):  # of many numbers it may make one
            self.reductions.add(name)
        if given and of_xs and not free:
            dtypes = {each.dtype for each in (*given, *found) if not self._is_place(each)}
            self.others |= {str(each).removeprefix("torch.") for each in dtypes - {self.dtype, torch.bool}}
        if adds and of_xs:
            self.additions += sum(each.numel() for each in found)
        for each in found if self.lost and not free else ():
            each.zero_()
        return result

    def _is_place(self, tensor: Tensor) -> bool:
        """Whether it holds integers that may be places of numbers in xs, as indices and counts are."""
        integers = not tensor.is_floating_point() and not tensor.is_complex()
        return integers and (tensor.numel() == 0 or -self.size <= int(tensor.min()) <= int(tensor.max()) <= self.size)


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """The sum; what was added in which dtype; and whether there were additions enough."""
    xs, dtype = inputs["xs"], getattr(torch, inputs["dtype"])
    if len(xs) > WATCHED:
        return observe({"sum": _checked(answer(xs, dtype))})
    if "after" in inputs:
        answer(inputs["after"] * xs, dtype)
    with _Watch(dtype, xs.numel()) as watch:
        found = _checked(answer(xs, dtype))
    with _Watch(dtype, xs.numel(), lost=True):
        without = _checked(answer(xs, dtype)) if len(xs) > 1 else found
    operations = {
        "other dtypes": ", ".join(sorted(watch.others)),
        "reductions": ", ".join(sorted(watch.reductions)),
        "each number added": watch.additions >= xs.numel() - found.numel(),
        "beside the sum": len(xs) > 1 and torch.equal(found, without),
    }
    return observe({"sum": found, "operations": operations})


def _checked(found: object) -> Tensor:
    """A tensor. Raises WrongOutput on anything else."""
    if not isinstance(found, Tensor):
        raise WrongOutput(f"must return a tensor, got {type(found).__name__}: is there a `return`?")
    return found.detach()


def _within_the_bound(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: shape, and every sum at most `BOUND` u sum |x| from the exact one; one is exact."""
    xs, dtype = inputs["xs"], getattr(torch, inputs["dtype"])
    found = got["sum"]
    if not isinstance(found, Tensor) or found.shape != xs.shape[1:]:
        return f"a sum of shape {tuple(getattr(found, 'shape', ()))}, where {tuple(xs.shape[1:])} is due"
    most = BOUND if len(xs) > 1 else 0.0
    u, rounded = torch.finfo(dtype).eps / 2, xs.detach().to(dtype).double()
    columns, sums = rounded.reshape(len(xs), found.numel()).T.tolist(), found.double().flatten().tolist()
    for number, (column, total) in enumerate(zip(columns, sums, strict=True)):
        error, size = (
            abs(math.fsum([*column, -total])) if math.isfinite(total) else math.nan,
            math.fsum(map(abs, column)),
        )
        if not error <= most * u * size:
            return f"sum {number} is off by {error / u / size if size else error:.4g} u sum |x|, where {most:g} may be"
    return None


def _in_dtype(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the result has the dtype that was asked for."""
    found = got["sum"]
    dtype = str(found.dtype).removeprefix("torch.") if isinstance(found, Tensor) else type(found).__name__
    return None if dtype == inputs["dtype"] else f"a sum in {dtype}, where {inputs['dtype']} was asked for"


def _only_in_dtype(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: each number was added in the dtype, two at a time."""
    if got["operations/other dtypes"]:
        return f"numbers were added in {got['operations/other dtypes']}, where {inputs['dtype']} was asked for"
    if got["operations/reductions"]:
        return f"{got['operations/reductions']} adds many numbers at once, in more digits inside"
    if got["operations/beside the sum"]:
        return f"the additions in {inputs['dtype']} are not what the sum comes from: without them it is the same"
    return None if got["operations/each number added"] else f"too few numbers were added in {inputs['dtype']}"


HALVES = ("float16", "bfloat16 from float32")


def _last_column(case: Case) -> Case:
    """The sum of one column, of shape ()."""
    return dataclasses.replace(case, inputs={**case.inputs, "xs": cast(Tensor, case.inputs["xs"])[:, -1].clone()})


EXERCISE = Exercise(
    id="mixed_precision.compensated_sum",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "small_after_large",
            "Numbers that are too small for the sum they are added to are lost one by one. What a step has lost is "
            "s + y less the new sum, computed so that nothing is lost in that: the larger of s and y minus the new "
            "sum, plus the smaller one. It must come back into the sum with its own sign.",
            points=2,
            holds=_within_the_bound,
            cases=HALVES,
        ),
        Property(
            "whatever_the_order",
            "Every number loses a little, and no order helps: sorted or not, they are equally large. Keep what each "
            "step loses.",
            holds=_within_the_bound,
            cases=("numbers of one size",),
        ),
        Property(
            "each_column",
            "Every column is a sum of its own: whether its loss counts must not depend on the numbers in the others. "
            "And every addition loses something: if only some of them are made good, the rest adds up.",
            holds=_within_the_bound,
            cases=("columns that differ",),
            needs=("small_after_large",),
        ),
        Property(
            "does_not_grow",
            "In a long sum something is lost again and again. Adding by pairs makes this less, and it still "
            "grows like the logarithm of n; a compensated sum loses the same for any n.",
            points=3,
            holds=_within_the_bound,
            cases=("a long sum",),
        ),
        Property(
            "in_float64",
            "In float64 too the error stays below 3 u sum |x|. There is no wider dtype to compute in: an accurate sum "
            "comes from keeping what each addition loses, between chunks as well, in the same dtype.",
            holds=_within_the_bound,
            cases=("float64", *IN_CHUNKS),
        ),
        Property(
            "every_operation_in_dtype",
            "Somewhere numbers were added in another dtype, perhaps as integers, or by an operation that adds many at "
            "once in more digits inside, or outside of torch. Round xs to dtype first; then add and subtract tensors "
            "of this dtype only.",
            points=4,
            holds=_only_in_dtype,
            cases=(*HALVES, "float32 from float16", "float64", "a long sum", "five numbers"),
            needs=("small_after_large",),
        ),
        Property(
            "dtype_of_the_result",
            "The sum has the dtype that was asked for, whatever that of xs, and for n of 0 and 1 too: cast xs before "
            "you return anything.",
            holds=_in_dtype,
            cases=(*HALVES, "float64", "numbers of one size", "no numbers", "one number", "no columns"),
            needs=("small_after_large",),
        ),
        Property(
            "few_numbers",
            "The sum of no numbers is 0, of the shape that is left when the first dimension goes; the sum of one is "
            "that number, rounded. Five numbers are enough to lose 4 u.",
            holds=_within_the_bound,
            cases=("no numbers", "one number", "five numbers"),
            needs=("small_after_large",),
        ),
        Property(
            EVERY_FORM,
            "The docstring allows more than the usual call: one dimension or many, views, tensors that require a "
            "gradient, every floating dtype. The case says which of them breaks your code.",
            holds=_within_the_bound,
            needs=("small_after_large",),
        ),
    ),
    hints=(
        "Add 0.3 to 1024 in float16 on paper. How much of 0.3 arrives, and how could you find out with float16 alone?",
        "Keep a second tensor beside the sum: what the last addition lost. It can go into the next number before that "
        "is added, or into a sum of losses that is added at the end.",
        "y is x with the loss; the new total is s + y. Take the larger of s and y in size (torch.where), subtract the "
        "total from it, add the smaller: that is the new loss, exactly. (Kahan takes s for the larger always; his loss "
        "may be rounded, and the bound holds.) Start both from zeros of xs.shape[1:].",
    ),
    keeps=("xs",),
    forms=(
        strided("xs", of="float16"),
        transposed("xs", of="numbers of one size"),
        leaves("xs", of="bfloat16 from float32"),
        in_dtype(torch.float64, "xs", of="numbers of one size", name="float16 from float64"),
        put("float32 from float16", dtype="float32", of="numbers of one size"),
        in_dtype(torch.bfloat16, "xs", of="bfloat16 from float32", name="in bfloat16"),
        cut("one column", xs=(1, 1), of="bfloat16 from float32"),
        put("after a sum that is 256 times as large", after=256.0, of="float16"),
        cut("no columns", xs=(1, 0), of="float16"),
        Form(name="one dimension", change=_last_column, of="float16", alone=True),
    ),
    promises={
        "(n, ...), floating": (
            "float32 from float16",
            "float16",
            "bfloat16 from float32",
            "float64",
            "numbers of one size",
            "one dimension",
        ),
        "n may be 0 or 1": ("few_numbers", "dtype_of_the_result"),
        "it may be a view, and may require a gradient": (EVERY_FORM,),
        "It is not changed": ("arguments_unchanged",),
        "Each number is rounded to `dtype` first": ("bfloat16 from float32", "float16 from float64"),
        "torch.float16, bfloat16, float32 or float64; u is torch.finfo(dtype).eps / 2": (
            "float16",
            "bfloat16 from float32",
            "a long sum",
            "float64",
        ),
        "the sum over the first dimension, in `dtype`": ("dtype_of_the_result", "one dimension"),
        "at most 3 u sum |x|": (
            *("small_after_large", "whatever_the_order", "does_not_grow", "in_float64", "each_column", "five numbers"),
            *IN_CHUNKS,
        ),
        "0 for n = 0; for n = 1 the number, rounded": ("no numbers", "one number"),
        "with tensors of `dtype` only": ("every_operation_in_dtype",),
        "no wider dtype": ("every_operation_in_dtype",),
        "nor a reduction": ("every_operation_in_dtype",),
    },
)
