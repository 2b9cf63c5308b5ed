"""Plain data: what cases, observations and sheets are made of.

A tree is a tensor, a number, a string, None, or a list or dict (with string keys) of trees.

    tree --clone-->   an independent copy
    tree --flatten--> {"grads/0": leaf, ...}
    tree --pack-->    (JSON, named tensors) --unpack--> tree
    anything --plain--> tree        whatever an answer returned, made readable
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

Leaf: TypeAlias = Tensor | bool | int | float | str | None
Tree: TypeAlias = "Leaf | list[Tree] | dict[str, Tree]"

# Dtypes that convert to float64 or complex128, among them all that usual answers return.
NUMBERS = frozenset(
    (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.complex64)
)

MAX_BYTES = 16 * 2**20  # of all tensors in an observation
MAX_LEAVES = 20_000
MAX_DEPTH = 16
MAX_TEXT = 10_000
MAX_PACKED_DEPTH = 64


def map_leaves(function: Callable[[Leaf], Leaf], tree: Tree) -> Tree:
    """The same tree with `function` put on every leaf."""
    if isinstance(tree, dict):
        return {key: map_leaves(function, value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [map_leaves(function, value) for value in tree]
    return function(tree)


def leaves(tree: Tree) -> Iterator[Leaf]:
    """Every leaf, in order."""
    if isinstance(tree, (dict, list)):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(each)
    else:
        yield tree


def clone(tree: Tree) -> Tree:
    """An independent copy: no tensor shares storage with the original."""
    return map_leaves(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, tree)


def to_float64(tree: Tree) -> Tree:
    """The same tree with every floating point tensor in float64."""

    def up(leaf: Leaf) -> Leaf:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf.detach().to(torch.float64, copy=True)
        return leaf

    return map_leaves(up, tree)


def flatten(tree: Tree, prefix: str = "") -> dict[str, Leaf]:
    """Leaves by path: `{"a": [x, y]}` becomes `{"a/0": x, "a/1": y}`; an empty list keeps its length.

    A list of numbers only (tensors of shape () are numbers) becomes one tensor, so that long lists compare in one
    step, and a list of torch or NumPy scalars is the same as a list of Python's.
    """
    if isinstance(tree, dict):
        items = [(key, value) for key, value in tree.items()]
    elif isinstance(tree, list):
        if tree and all(_is_number(value) for value in tree):
            return {prefix: _numbers(tree)}
        if not tree:
            return {f"{prefix}/length" if prefix else "length": 0}
        items = [(str(index), value) for index, value in enumerate(tree)]
    else:
        return {prefix: tree}
    flat: dict[str, Leaf] = {}
    for key, value in items:
        flat.update(flatten(value, f"{prefix}/{key}" if prefix else str(key)))
    return flat


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float)) or (
        isinstance(value, Tensor) and value.dim() == 0 and not value.is_complex()
    )


def _numbers(values: list[Any]) -> Tensor:
    """One tensor of numbers; tensors of shape () keep their dtype where all are of one."""
    dtypes = {value.dtype if isinstance(value, Tensor) else None for value in values}
    if len(dtypes) == 1 and None not in dtypes:
        return torch.stack(values)
    items = [value.item() if isinstance(value, Tensor) else value for value in values]
    whole = all(isinstance(value, int) for value in items)
    try:
        return torch.tensor(items, dtype=torch.int64 if whole else torch.float64)
    except (OverflowError, RuntimeError, ValueError):  # an integer beyond 64 bits
        return torch.tensor([as_float(value) for value in items], dtype=torch.float64)


def as_float(value: bool | int | float) -> float:
    """The nearest float; an integer beyond the largest float is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# --- pack and unpack -------------------------------------------------------------------------------


def pack(tree: Tree, tensors: dict[str, Tensor], *, copied: bool = True) -> Any:
    """JSON-ready form of a tree; its tensors go into `tensors`, in place of each stands a reference.

    copied  whether they get memory of their own; else those of the tree must stay as they are until they are stored
    """
    if isinstance(tree, Tensor):
        layout, values = torch.contiguous_format, tree.detach().resolve_conj().resolve_neg()
        stored = values.clone(memory_format=layout) if copied else values.contiguous()
        name = _digest(stored)  # equal tensors are stored once
        tensors[name] = stored
        return {"$tensor": name}
    if isinstance(tree, dict):
        return {"$dict": {key: pack(tree[key], tensors, copied=copied) for key in sorted(tree)}}
    if isinstance(tree, list):
        return [pack(value, tensors, copied=copied) for value in tree]
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"$float": repr(tree)}
    return tree


def _digest(tensor: Tensor) -> str:
    """A name for what a contiguous tensor holds: dtype, shape and bytes."""
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(memory_of(tensor))
    return digest.hexdigest()[:20]


def places(shape: Sequence[int]) -> int:
    """Numbers of a tensor of this shape; of one without any the rows, which a list of it has all the same."""
    return math.prod(size or 1 for size in shape)


def memory_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor as they lie in its memory, which lives as long as they do.

    Raises TypeError for one without memory. An array of NumPy over it would forbid for ever to resize its storage.
    """
    if not tensor.nbytes:
        return memoryview(b"")
    if not tensor.data_ptr() or tensor.is_conj() or tensor.is_neg():
        raise TypeError("a tensor must have its numbers in memory")
    memory = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    memory.tensor = tensor  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


def unpack(packed: Any, tensors: Mapping[str, Tensor], depth: int = MAX_PACKED_DEPTH) -> Tree:
    """The tree that `pack` took apart. Raises KeyError, TypeError or ValueError on anything else."""
    if depth == 0:
        raise ValueError(f"a packed tree may be nested {MAX_PACKED_DEPTH} deep")
    if isinstance(packed, list):
        return [unpack(value, tensors, depth - 1) for value in packed]
    if packed is None or isinstance(packed, (bool, int, float, str)):
        return packed
    if not isinstance(packed, dict) or len(packed) != 1:
        raise TypeError(f"a packed tree must hold JSON values, got {type(packed).__name__}")
    (sign, content), *_ = packed.items()
    if sign == "$tensor" and isinstance(content, str):
        return tensors[content]
    if sign == "$float" and isinstance(content, str):
        return float(content)
    if sign == "$dict" and isinstance(content, dict):
        return {str(key): unpack(value, tensors, depth - 1) for key, value in content.items()}
    raise TypeError(f"a packed tree must name a tensor, a float or a dict, got {sign}")


# --- plain: whatever came back, made readable ------------------------------------------------------


@dataclass
class _Budget:
    """What may still be read."""

    leaves: int = MAX_LEAVES
    bytes: int = MAX_BYTES


def plain(value: object) -> Tree:
    """A tree with what `value` holds; what is no plain data becomes a string such as `<generator>`.

    Never raises, and calls no method of the value's own class. Tensors are detached copies on the CPU; tensor
    subclasses become tensors; fractions and decimal numbers become floats; more than `MAX_BYTES` of tensors,
    `MAX_LEAVES` leaves or `MAX_DEPTH` levels become a string that says so.
    """
    try:
        return _plain(value, _Budget(), MAX_DEPTH)
    except Exception:
        return "<an object that cannot be read>"


def readable(text: str, limit: int = MAX_TEXT) -> str:
    """The first `limit` characters of a text, as a plain string that every output can encode."""
    return str.__str__(text)[:limit].encode("utf-8", "replace").decode("utf-8")


def _plain(value: Any, budget: _Budget, depth: int) -> Tree:
    budget.leaves -= 1
    kind = type(value)
    if budget.leaves < 0:
        return f"<more than {MAX_LEAVES} values>"
    if depth == 0:
        return f"<nested deeper than {MAX_DEPTH}>"
    if value is None or kind in (bool, int, float):
        return value  # type: ignore[no-any-return]
    if kind in (Fraction, Decimal):
        return _nearest(value)
    if issubclass(kind, str):
        return readable(value)
    if issubclass(kind, (Tensor, np.ndarray, np.generic)):
        return _plain_tensor(value, budget)
    if issubclass(kind, (list, tuple)):
        items = list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)
        return [_plain(item, budget, depth - 1) for item in _within(items, budget)]
    if issubclass(kind, dict):
        pairs = _within(dict.items(value), budget)
        return {_key(key): _plain(item, budget, depth - 1) for key, item in pairs}
    return f"<{_name(kind)}>"


def _nearest(value: Fraction | Decimal) -> float | str:
    """The float next to it; a string where none is: beyond the largest, or a decimal number that signals."""
    try:
        return float(value)
    except (OverflowError, ValueError):
        return f"<{type(value).__name__}>"


def _within(items: Iterable[Any], budget: _Budget) -> Iterator[Any]:
    """The items up to the first one that is beyond the budget."""
    for item in items:
        yield item
        if budget.leaves < 0:
            return


def _key(key: object) -> str:
    if issubclass(type(key), str):
        return readable(cast(str, key))
    return str(key) if key is None or type(key) in (bool, int, float) else f"<{_name(type(key))}>"


def _name(kind: type) -> str:
    """A class's name, not what its metaclass makes of it."""
    return str(type.__dict__["__name__"].__get__(kind))


def _plain_tensor(value: Any, budget: _Budget) -> Leaf:
    """A copy of a tensor or an array, made without the methods of a subclass."""
    try:
        with torch._C.DisableTorchFunctionSubclass():
            found = value if isinstance(value, Tensor) else np.asarray(value)
            size = found.numel() * found.element_size() if isinstance(found, Tensor) else found.nbytes
            if size > budget.bytes:
                return f"<tensor of shape {tuple(found.shape)}: larger than {MAX_BYTES >> 20} MiB>"
            budget.bytes -= size
            return _dense(found) if isinstance(found, Tensor) else torch.from_numpy(np.array(found))
    except BaseException:  # a subclass that dispatches in Python runs code of its own
        return f"<{_name(type(value))} that cannot be read>"


def _dense(tensor: Tensor) -> Leaf:
    if tensor.is_meta:
        return "<tensor without data>"
    dense = tensor.detach()
    if dense.layout != torch.strided:
        dense = dense.to_dense()
    if dense.is_quantized:
        dense = dense.dequantize()
    if dense.dtype not in NUMBERS:
        dense.reshape(-1)[:1].to(torch.complex128)  # raises where the dtype knows no arithmetic
    return dense.as_subclass(Tensor).cpu().resolve_conj().clone(memory_format=torch.contiguous_format)
