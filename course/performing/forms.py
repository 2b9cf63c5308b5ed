"""Hard forms of a case: what a docstring allows, and a usual call never brings.

    strided("x", "w")                      views into wider tensors: not contiguous, with an offset in their storage
    transposed("x", "w")                   all numbers of a tensor, in the reverse order of dimensions, as clone() keeps
    offset("x", "w")                       views into longer tensors, contiguous
    leaves("x")                            tensors that require a gradient already
    in_dtype(torch.float16, "x", "w")      the same numbers, rounded to another dtype
    cut("a batch of 1", x=(0, 1))          the first entry of dimension 0 of x alone
    equal("equal rows", x=0)               along dimension 0 of x the first entry everywhere
    put("a rate of 0", lr=0.0)             a boundary value that is allowed, in place of what was drawn; a list too
    times("large", 2.0**20, "x")           all numbers multiplied
    between_calls("x")                     the answer is called with other numbers before and after
    at_once("a view at 0", ...)            several of these under one name
    alone(put(...))                        never together with another one

A path names an input, or what lies in it: `params` is each tensor of that list, `options/lr` one entry of a dict. Each
function makes a Form; `of` names the case that is changed, the first if left out.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from course.errors import DeclarationError
from course.performing.exercise import Case, Exercise, Form, in_form, scaled
from course.tree import Leaf, Tree

FINE = 1 + 2.0**-30  # a number of float32, multiplied by it, takes float64


def strided(*paths: str, of: str = "", name: str = "views that are not contiguous") -> Form:
    """Tensors at these paths lie scattered in wider ones: neither `.view` nor the start of the storage is theirs."""
    return _lying("strided", paths, of, name)


def transposed(*paths: str, of: str = "", name: str = "transposed tensors") -> Form:
    """Tensors at these paths are transposes: dense, but with their dimensions in reverse order in memory.

    Of one that is strided, `clone()` and `empty_like` make a contiguous one; of a transpose they keep the order.
    """
    return _lying("transposed", paths, of, name)


def offset(*paths: str, of: str = "", name: str = "pieces of a longer tensor") -> Form:
    """Tensors at these paths are contiguous pieces of a longer one, as parameters in a flat buffer are."""
    return _lying("offset", paths, of, name)


def leaves(*paths: str, of: str = "", name: str = "tensors that require a gradient") -> Form:
    """Tensors at these paths require a gradient, as parameters do."""
    return _lying("leaf", paths, of, name)


def in_dtype(dtype: torch.dtype, *paths: str, of: str = "", name: str = "") -> Form:
    """Floating tensors at these paths in another dtype: in float64 with digits that no coarser one has."""

    def convert(leaf: Leaf) -> Leaf:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.to(dtype) * FINE if dtype == torch.float64 != leaf.dtype else leaf.to(dtype)

    return _changing(dict.fromkeys(paths, convert), of, name or f"in {str(dtype).removeprefix('torch.')}")


def alone(form: Form) -> Form:
    """The form, but never together with another one of its case."""
    return dataclasses.replace(form, alone=True)


def times(name: str, factor: float, *paths: str, of: str = "") -> Form:
    """Floating numbers and tensors at these paths, multiplied by a factor."""
    return _changing(dict.fromkeys(paths, lambda leaf: scaled(leaf, factor)), of, name)


def between_calls(*paths: str, of: str = "") -> Form:
    """Two other calls, one before and one after, by `call_once`: what an answer keeps between calls shows.

    What lies at the paths is halved: else a memory would hold the right result, of the case that is changed.
    """
    parts = put("others", between=True), times("half", 0.5, *paths)
    return at_once("between two other calls", *parts, of=of)


def cut(name: str, *, of: str = "", **paths: tuple[int, int]) -> Form:
    """Of the tensor at each path, only the first `length` entries of a dimension: `path=(dimension, length)`."""

    def shorten(dim: int, length: int) -> Callable[[Leaf], Leaf]:
        return lambda leaf: (
            leaf.narrow(dim, 0, min(length, leaf.shape[dim])).clone() if isinstance(leaf, Tensor) else leaf
        )

    return _changing({path: shorten(*where) for path, where in paths.items()}, of, name)


def equal(name: str, *, of: str = "", **paths: int) -> Form:
    """Along this dimension of the tensor at each path, its first entry everywhere."""

    def repeat(dim: int) -> Callable[[Leaf], Leaf]:
        return lambda leaf: (
            leaf.narrow(dim, 0, min(1, leaf.shape[dim])).expand(leaf.shape).clone()
            if isinstance(leaf, Tensor)
            else leaf
        )

    return _changing({path: repeat(dim) for path, dim in paths.items()}, of, name)


def put(name: str, values: Mapping[str, Tree] | None = None, /, *, of: str = "", **more: Tree) -> Form:
    """These values at their paths. A path with a stroke stands in the mapping: `{"options/momentum": 0.0}`."""
    settings = {**(values or {}), **more}

    def change(case: Case) -> Case:
        inputs = case.inputs
        for path, value in settings.items():
            inputs = cast(dict[str, Tree], _put(inputs, path.split("/"), value))
        return dataclasses.replace(case, inputs=inputs)

    return Form(name=name, change=change, of=of)


def at_once(name: str, *forms: Form, of: str = "") -> Form:
    """All of these, one after the other, under one name."""
    return Form(name=name, change=lambda case: in_form(case, *forms), of=of)


def together(exercise: Exercise, cases: Sequence[Case], seed: int, count: int) -> list[Case]:
    """Of cases that were drawn: in two or more hard forms of one case at once, chosen by chance; none where no two
    forms fit together.
    """
    rng, drawn = random.Random(seed), {case.name: case for case in cases}
    by_base: dict[str, list[Form]] = {}
    for form in (each for each in exercise.forms if not each.alone):
        by_base.setdefault(form.of or next(iter(drawn)), []).append(form)
    bases = [base for base, forms in by_base.items() if len(forms) > 1]
    found: dict[str, Case] = {}
    for _ in range(count if bases else 0):
        base = rng.choice(bases)
        chosen = rng.sample(by_base[base], rng.randint(2, len(by_base[base])))
        case = in_form(drawn[base], *chosen)
        found[case.name] = case
    return list(found.values())


def _put(tree: Tree, parts: list[str], value: Tree) -> Tree:
    """The tree with a value in the place of what was there; a dict may get a new entry."""
    if not parts:
        return value
    if isinstance(tree, list):
        return [_put(each, parts[1:], value) if str(at) == parts[0] else each for at, each in enumerate(tree)]
    if isinstance(tree, dict):
        return {**tree, parts[0]: _put(tree.get(parts[0]), parts[1:], value)}
    raise DeclarationError(f"a hard form puts a value under {'/'.join(parts)}, where no list or dict is")


def _changing(paths: Mapping[str, Callable[[Leaf], Leaf]], of: str, name: str) -> Form:
    def change(case: Case) -> Case:
        inputs = case.inputs
        for path, function in paths.items():
            inputs = cast(dict[str, Tree], _at(path, function, inputs))
        return dataclasses.replace(case, inputs=inputs)

    return Form(name=name, change=change, of=of)


def _lying(how: str, paths: tuple[str, ...], of: str, name: str) -> Form:
    def change(case: Case) -> Case:
        return dataclasses.replace(case, lies={**case.lies, **{path: _together(case, path, how) for path in paths}})

    return Form(name=name, change=change, of=of)


def _together(case: Case, path: str, how: str) -> str:
    """Two ways to lie go together: views that require a gradient."""
    return " ".join(sorted({how, *case.lies.get(path, "").split()}, reverse=True))


# --- where a case is performed -------------------------------------------------------------------------


def laid_out(inputs: dict[str, Tree], lies: Mapping[str, str]) -> dict[str, Tree]:
    """Inputs whose tensors lie in memory as `Case.lies` says. Raises DeclarationError on another word."""
    for path, words in lies.items():
        for word in words.split():
            if word not in LAYOUTS:
                raise DeclarationError(f"a tensor may lie as {', '.join(LAYOUTS)}, got {word[:40]}")
            inputs = cast(dict[str, Tree], _at(path, LAYOUTS[word], inputs))
    return inputs


def _at(path: str, function: Callable[[Leaf], Leaf], tree: Tree, here: str = "") -> Tree:
    """The tree with the function put on each leaf at the path or below it."""
    if isinstance(tree, dict):
        return {key: _at(path, function, value, f"{here}/{key}" if here else key) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_at(path, function, value, f"{here}/{number}") for number, value in enumerate(tree)]
    return function(tree) if here == path or here.startswith(f"{path}/") else tree


def _scattered(leaf: Leaf) -> Leaf:
    """Every second number of a tensor that is twice as wide, from the second on, with its dimensions in reverse order.

    Reversed, because `.view` may still fold the first dimensions of one whose numbers are only farther apart.
    """
    if not isinstance(leaf, Tensor):
        return leaf
    *outer, inner = leaf.shape[::-1] or (1,)
    wide = torch.zeros(*outer, 2 * inner + 1, dtype=leaf.dtype)[..., 1::2]
    view = wide.permute(*range(leaf.dim() - 1, -1, -1)) if leaf.dim() else wide[0]
    return view.copy_(leaf)


def _turned(leaf: Leaf) -> Leaf:
    if not isinstance(leaf, Tensor):
        return leaf
    order = [*reversed(range(leaf.dim()))]
    return leaf.permute(order).clone(memory_format=torch.contiguous_format).permute(order)


def inside(tensor: Tensor) -> Tensor:
    """A contiguous copy that is a piece of a longer tensor."""
    return tensor.new_zeros(tensor.numel() + 2)[1:-1].view(tensor.shape).copy_(tensor)


def _requiring(leaf: Leaf) -> Leaf:
    floating = isinstance(leaf, Tensor) and leaf.is_floating_point()
    return leaf.detach().requires_grad_() if isinstance(leaf, Tensor) and floating else leaf


LAYOUTS: dict[str, Callable[[Leaf], Leaf]] = {
    "strided": _scattered,
    "transposed": _turned,
    "offset": lambda leaf: inside(leaf) if isinstance(leaf, Tensor) else leaf,
    "leaf": _requiring,
}
