"""course/tree.py: plain data, there and back, and whatever came back made readable."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from conftest import same_leaf, same_tree
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from course import tree
from course.tree import MAX_BYTES, MAX_DEPTH, MAX_LEAVES, clone, flatten, map_leaves, pack, plain, to_float64, unpack

DTYPES = (np.float64, np.float32, np.float16, np.int64, np.int8, np.bool_, np.complex64)
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_side=3)))
TENSORS = ARRAYS.map(lambda array: torch.from_numpy(np.array(array)))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | TENSORS
KEYS = st.text("ab$", min_size=1, max_size=3)
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


@given(TREES)
def test_unpack_gives_back_what_pack_took_apart(value):
    tensors: dict[str, torch.Tensor] = {}
    assert same_tree(unpack(pack(value, tensors), tensors), value)


@given(st.dictionaries(KEYS, TREES, min_size=2, max_size=4))
def test_pack_does_not_depend_on_the_order_of_a_dict(value):
    one: dict[str, torch.Tensor] = {}
    two: dict[str, torch.Tensor] = {}
    assert pack(value, one) == pack(dict(reversed(value.items())), two)
    assert same_tree(one, two)


NO_PACKED_TREES = [
    {},
    {"$tensor": "t9"},
    {"$tensor": ["t0"]},
    {"$float": "x"},
    {"$float": 3},
    {"$dict": [1]},
    {"$dict": {"a": {"other": 1}}},
    {"$dict": {}, "more": 1},
    object(),
]


@pytest.mark.parametrize("packed", NO_PACKED_TREES, ids=lambda packed: type(packed).__name__)
def test_unpack_refuses_what_pack_does_not_write(packed):
    with pytest.raises((KeyError, TypeError, ValueError)):
        unpack(packed, {"t0": torch.zeros(1)})


@pytest.mark.parametrize("wrap", [lambda packed: [packed], lambda packed: {"$dict": {"a": packed}}])
def test_unpack_refuses_a_tree_deeper_than_any_of_ours(wrap):
    packed = 1
    for _ in range(300):
        packed = wrap(packed)
    with pytest.raises(ValueError, match="deep"):
        unpack(packed, {})


@given(TREES)
def test_clone_shares_nothing_and_is_equal(value):
    copied = clone(value)
    assert same_tree(copied, value)
    ours = {leaf.data_ptr() for leaf in _tensors(value) if leaf.numel()}
    assert ours.isdisjoint(leaf.data_ptr() for leaf in _tensors(copied) if leaf.numel())


def _tensors(value) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_leaves(lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None, value)
    return found


def test_to_float64_raises_floats_and_leaves_the_rest():
    raised = to_float64({"half": torch.ones(2).half(), "whole": torch.ones(2, dtype=torch.int8), "number": 1})
    assert raised["half"].dtype == torch.float64
    assert (raised["whole"].dtype, raised["number"]) == (torch.int8, 1)


def test_to_float64_copies_even_what_is_in_float64_already():
    x = torch.zeros(2, dtype=torch.float64)
    to_float64({"x": x})["x"].add_(1)
    assert x.sum() == 0


# flatten


def test_flatten_names_leaves_by_path():
    assert flatten({"a": ["x", None], "b": {"c": "y"}}) == {"a/0": "x", "a/1": None, "b/c": "y"}


def test_a_list_of_numbers_is_one_tensor():
    flat = flatten({"a": [1.5, 2, True], "b": [1, 2]}, "p")
    assert same_leaf(flat["p/a"], torch.tensor([1.5, 2, 1], dtype=torch.float64))
    assert same_leaf(flat["p/b"], torch.tensor([1, 2]))


def test_a_list_of_scalar_tensors_is_the_same_as_one_of_numbers():
    scalars = [torch.tensor(1.5, dtype=torch.float64), 2.0]
    assert same_leaf(flatten({"a": scalars})["a"], flatten({"a": [1.5, 2.0]})["a"])
    assert same_leaf(flatten({"a": plain(list(np.array([1.5, 2.0])))})["a"], flatten({"a": [1.5, 2.0]})["a"])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([torch.tensor(1.0), torch.tensor(0.5)], torch.float32),
        ([torch.tensor(1.0), 0.5], torch.float64),
        ([torch.tensor(1.0), torch.tensor(1.0).half()], torch.float64),
        ([torch.tensor(1), 2], torch.int64),
    ],
)
def test_scalars_keep_their_dtype_where_all_have_one(values, dtype):
    assert flatten({"a": values})["a"].dtype == dtype


def test_complex_scalars_stay_leaves():
    assert flatten({"a": [torch.tensor(1j), 0.5]}).keys() == {"a/0", "a/1"}


def test_an_integer_beyond_float64_is_infinite_in_a_list():
    assert flatten({"a": [1, 10**400, -(10**5000)]})["a"].tolist() == [1, math.inf, -math.inf]


def test_an_empty_list_keeps_its_length():
    assert flatten({"a": []}) == {"a/length": 0}
    assert flatten([]) == {"length": 0}


# plain


@given(TREES)
def test_plain_keeps_plain_data(value):
    assert same_tree(plain(value), value)


def test_plain_reads_tuples_and_arrays():
    read = plain((np.arange(3)[::-1], np.float32(2), (1,)))
    assert read[0].tolist() == [2, 1, 0]
    assert (read[1].item(), read[2]) == (2.0, [1])


class Refuses:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name):
        raise SystemExit(name)


class RefusingText(str):
    __slots__ = ()

    def __str__(self):
        raise SystemExit

    __getitem__ = __len__ = __iter__ = __str__


class RefusingList(list):
    def __iter__(self):
        raise KeyboardInterrupt

    __getitem__ = __len__ = __iter__


class RefusingDict(dict):
    def items(self):
        raise SystemExit

    __iter__ = __getitem__ = keys = items


class RefusingName(type):
    @property
    def __name__(cls):
        raise SystemExit


class Nameless(metaclass=RefusingName):
    pass


class RefusingTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise SystemExit


class Dispatching(torch.Tensor):
    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise SystemExit


def _odd() -> dict[str, tuple[object, object]]:
    """Something that an answer might return, and what is to be read of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
        compressed = torch.eye(2).to_sparse_csr()
    return {
        "object": (Refuses(), "<Refuses>"),
        "text": (RefusingText("abc"), "abc"),
        "list": (RefusingList([1]), [1]),
        "dict": (RefusingDict(a=1), {"a": 1}),
        "name": (Nameless(), "<Nameless>"),
        "key": ({Nameless(): 1, 2: 3, None: 4}, {"<Nameless>": 1, "2": 3, "None": 4}),
        "surrogate": ("a\ud800", "a?"),
        "function": (len, "<builtin_function_or_method>"),
        "subclass": (torch.ones(2).as_subclass(RefusingTensor), torch.ones(2)),
        "parameter": (torch.nn.Parameter(torch.ones(2)), torch.ones(2)),
        "dispatching": (Dispatching(), "<Dispatching that cannot be read>"),
        "sparse": (torch.eye(2).to_sparse(), torch.eye(2)),
        "compressed": (compressed, torch.eye(2)),
        "meta": (torch.ones(2, device="meta"), "<tensor without data>"),
        "conjugate": (torch.tensor([1j]).conj(), torch.tensor([complex(0, -1)])),
        "bits": (torch.empty(2, dtype=torch.bits8), "<Tensor that cannot be read>"),
        "quantized": (quantized, torch.ones(3)),
        "expanded": (torch.zeros(1).expand(2**40), f"<tensor of shape ({2**40},): larger than 16 MiB>"),
        "broadcast": (np.broadcast_to(0.0, 2**40), f"<tensor of shape ({2**40},): larger than 16 MiB>"),
        "objects": (np.array([len], dtype=object), "<ndarray that cannot be read>"),
        "texts": (np.array(["a"]), "<ndarray that cannot be read>"),
        "fraction": (Fraction(1, 3), 1 / 3),
        "decimal number": (Decimal("-0.1"), -0.1),
        "fraction beyond all floats": (Fraction(10**400), "<Fraction>"),
        "decimal number that signals": (Decimal("sNaN"), "<Decimal>"),
        "byte order": (np.arange(2, dtype=">f4"), "<ndarray that cannot be read>"),
    }


@pytest.mark.parametrize("name", sorted(_odd()))
@pytest.mark.filterwarnings("ignore")
def test_plain_reads_odd_things_without_their_own_methods(name):
    odd, read = _odd()[name]
    assert same_tree(plain({"x": odd}), {"x": read})


def test_plain_reads_a_tensor_subclass_as_a_tensor():
    assert type(plain(torch.ones(2).as_subclass(RefusingTensor))) is torch.Tensor


def test_plain_copies():
    x, array = torch.zeros(2, requires_grad=True), np.zeros(2)
    read = plain([x, array])
    read[0].add_(1)
    read[1].add_(1)
    assert (x.sum(), array.sum()) == (0, 0)


def test_plain_ends_on_a_list_that_holds_itself():
    cyclic: list = [1]
    cyclic.append(cyclic)
    read = plain(cyclic)
    for _ in range(MAX_DEPTH - 1):
        read = read[1]
    assert read == [f"<nested deeper than {MAX_DEPTH}>"] * 2


def test_plain_ends_on_a_dict_that_holds_itself():
    cyclic: dict = {}
    cyclic["a"] = cyclic
    assert list(flatten(plain(cyclic)).values()) == [f"<nested deeper than {MAX_DEPTH}>"]


def test_plain_ends_on_a_list_that_holds_itself_a_million_times():
    cyclic: list = []
    cyclic += [cyclic] * 1_000_000
    assert len(flatten(plain(cyclic))) <= MAX_LEAVES + 1


@pytest.mark.parametrize("many", [["a"] * (MAX_LEAVES * 2), {str(i): "a" for i in range(MAX_LEAVES * 2)}])
def test_plain_stops_at_the_limit_and_says_so(many):
    read = plain(many)
    last = read[-1] if isinstance(read, list) else list(read.values())[-1]
    assert (len(read), last) == (MAX_LEAVES, f"<more than {MAX_LEAVES} values>")


def test_plain_limits_all_tensors_together():
    large = torch.zeros(MAX_BYTES // 8, dtype=torch.uint8)
    read = plain([large] * 20)
    assert sum(isinstance(leaf, torch.Tensor) for leaf in read) == 8


def test_plain_cuts_long_text():
    assert len(plain("x" * 10**6)) == tree.MAX_TEXT


def test_plain_survives_where_nothing_more_can_be_called(monkeypatch):
    def broken(*args):
        raise RecursionError

    monkeypatch.setattr(tree, "_plain", broken)
    assert plain(1) == "<an object that cannot be read>"


def test_a_slice_of_one_number_is_packed_whatever_its_stride():
    slice_of_one = torch.arange(5).reshape(1, 5)[:, 2]
    assert slice_of_one.stride() == (5,)
    tensors: dict[str, torch.Tensor] = {}
    assert same_tree(unpack(pack(slice_of_one, tensors), tensors), torch.tensor([2]))
