"""A tree as bytes, and bytes that are no tree: each is refused in one way, and cheaply."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import same_tree
from hostile_frames import DEAR, REFUSED, entry, framed, one_tensor, stored, tree
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autograder.sandbox.wire.frame import DTYPES, MAX_FRAME, BadFrame, decode, encode

NUMPY = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8")
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
ARRAYS = st.sampled_from(NUMPY).flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))
CONTIGUOUS = torch.contiguous_format  # NumPy gives an empty array strides of 0
NARROW = st.sampled_from([torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
TENSORS = ARRAYS.map(lambda array: torch.from_numpy(array).clone(memory_format=CONTIGUOUS)) | st.builds(
    lambda dtype: torch.ones(3, 2).to(dtype), NARROW
)
INTEGERS = st.integers() | st.sampled_from([10**3_998, -(10**3_998)])
TEXTS = st.text(st.characters(), max_size=5)  # of every kind, lone surrogates and NUL too
LEAVES = st.none() | st.booleans() | INTEGERS | st.floats() | TEXTS | TENSORS
KEYS = TEXTS | st.sampled_from(["$tensor", "$dict", "$float", "__metadata__"])
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))
SMALL = {name: frame for name, frame in REFUSED.items() if len(frame) < 10_000}


@given(TREES, st.text(max_size=20))
def test_a_tree_arrives_as_it_was_sent(sent, token):
    came, received = decode(encode(sent, token))
    assert came == token
    assert same_tree(received, sent)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_is_carried(dtype):
    sent = torch.ones(2, 3).to(dtype)
    assert same_tree(decode(encode(sent))[1], sent)
    assert same_tree(decode(encode(sent[:0]))[1], sent[:0])


def test_a_tensor_that_stands_twice_is_sent_once():
    x = torch.zeros(100_000)
    assert len(encode([x, x.clone()])) < 500_000


# What is refused


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_frame_is_refused(name):
    with pytest.raises(BadFrame):
        decode(REFUSED[name])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a million lists", "100000 values"),
        ("a million keys", "4 MiB of JSON"),
        ("half a million short keys", "100000 values"),
        ("deep lists", "nested deeper"),
        ("deep behind a false quote", "nested deeper"),
        ("a huge integer", "longer than 4000"),
        ("too much text", "4 MiB of JSON"),
        ("a huge header", "4 MiB"),
        ("a key twice", "key twice"),
        ("the same tensor twice", "key twice"),
        ("too many tensors", "5000 tensors"),
        ("an empty tensor of huge size", "16 dims"),
        ("an empty tensor of 100 dims", "16 dims"),
        ("half a byte", "dtype that we read"),
        ("a bool that is neither", "0 or 1"),
        ("one large tensor a hundred times", "24 MiB of tensors"),
    ],
)
def test_what_is_dear_is_refused_before_it_is_built(name, message):
    with pytest.raises(BadFrame, match=message):
        decode(REFUSED[name])


CYCLIC: list = []
CYCLIC.append(CYCLIC)
NO_TREES = {
    "an object": object(),
    "a set": [{1}],
    "itself": CYCLIC,
    "complex128": torch.ones(1, dtype=torch.complex128),
    "bits": torch.empty(2, dtype=torch.bits8),
    "without data": torch.ones(2, device="meta"),
    "sparse": torch.eye(2).to_sparse(),
    "many dims": torch.ones([1] * 17),
    "large": torch.zeros(MAX_FRAME + 1, dtype=torch.uint8),
    "rows without numbers": torch.empty(2**16 + 1, 0),
    "large together": [torch.zeros(2**22)] * 2,
    "many": [0] * 300_000,
    "long text": "a" * 2**23,
    "a huge integer": 10**4_100,
    "a larger integer": 10**100_000,
}


@pytest.mark.parametrize("name", NO_TREES)
def test_what_no_frame_can_hold_is_refused_by_the_sender(name):
    with pytest.raises(BadFrame):
        encode(NO_TREES[name])


def test_commas_and_brackets_in_text_are_text():
    sent = ['[{"' * 30_000, "\\" * 1_001, '\\"', "," * 300_000, "9" * 5_000]
    assert decode(encode(sent))[1] == sent


# Frames that hardly differ from good ones


def _tolerated(frame: bytes) -> None:
    """Whatever is accepted is a tree, and can be sent again."""
    try:
        token, received = decode(frame)
    except BadFrame:
        return
    assert same_tree(decode(encode(received, token))[1], received)


@given(TREES, st.data())
def test_flipped_bits_do_no_harm(sent, data):
    frame = bytearray(encode(sent))
    for place in data.draw(st.lists(st.integers(0, 8 * len(frame) - 1), max_size=8)):
        frame[place // 8] ^= 1 << place % 8
    _tolerated(frame)


@given(TREES, st.data())
def test_a_cut_frame_does_no_harm(sent, data):
    frame = encode(sent)
    _tolerated(frame[: data.draw(st.integers(0, len(frame)))])


@given(TREES, st.sampled_from(sorted(SMALL)), st.data())
def test_a_spliced_frame_does_no_harm(sent, name, data):
    frame = encode(sent)
    at = data.draw(st.integers(0, len(frame)))
    _tolerated(frame[:at] + SMALL[name] + frame[at:])
    _tolerated(frame[:at] + SMALL[name][at:])


SIZES = st.sampled_from([0, 1, 2, 3, 16, 2**26, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1])
ENTRIES = st.builds(
    entry,
    st.sampled_from([*DTYPES, "F4", "F6_E2M3", "F8_E8M0", "C128", ""]),
    st.lists(SIZES, max_size=4),
    SIZES,
    SIZES,
    st.sampled_from(["a", "b", "__metadata__"]),
)


@given(st.lists(ENTRIES, max_size=3), st.binary(max_size=64))
def test_a_hostile_header_does_no_harm(entries, data):
    _tolerated(framed('["",{"$tensor":"a"}]', stored("{" + ",".join(entries) + "}", data)))


@given(st.sampled_from(list(DTYPES)), st.lists(st.integers(0, 3), max_size=4), st.integers(0, 64))
def test_a_tensor_whose_data_have_another_size_does_no_harm(dtype, shape, size):
    _tolerated(one_tensor(dtype, shape, 0, size, bytes(size)))


SIGNS = [*'[]{},:"\\1', '"a"', '"$dict"', '"$tensor"', '"$float"', "1e999", "NaN"]


@given(st.lists(st.sampled_from(SIGNS) | st.text(max_size=3), max_size=30).map("".join))
def test_hostile_json_does_no_harm(text):
    _tolerated(tree(text))
    _tolerated(framed(text.encode("utf-8", "surrogatepass")))


# What it costs

_PEAK = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from hostile_frames import DEAR, REFUSED
from autograder.sandbox.wire.frame import BadFrame, decode, encode
import torch
decode(encode([torch.ones(2)]))
makers = [*DEAR.values(), *[lambda frame=frame: frame for frame in REFUSED.values()]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for make in makers:
    try:
        decode(make())
    except BadFrame:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_no_frame_takes_more_memory_than_four_of_the_largest():
    command = [sys.executable, "-c", _PEAK, str(Path(__file__).parent)]
    kibibytes = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert kibibytes * 2**10 < 4 * MAX_FRAME  # the frame, its tensors' bytes, the tensors, and JSON


@pytest.mark.parametrize("name", DEAR)
def test_the_dearest_frames_are_not_refused(name):
    decode(DEAR[name]())
