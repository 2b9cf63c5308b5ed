"""One frame: a tree as bytes, and back. The bytes may come from anybody, so every cost is bounded before it is paid.

    tree --encode--> 4 bytes: length of the text | text: JSON of [token, packed tree] | tensors: safetensors, or nothing
    bytes --decode--> token, tree        or BadFrame, and nothing else

The token says which question a frame answers; whoever asks makes it up.

JSON is small and made small: its length, nodes, nesting and longest number are counted on the bytes, before an object
is built. Tensors have the rest of the frame. safetensors checks its own offsets; dtypes and shapes are checked here,
because torch overflows on an empty tensor of shape (0, 2**62, 8) and a bool that is neither 0 nor 1 is undefined.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import safetensors
import torch
from torch import Tensor

from course.errors import CourseError
from course.tree import MAX_PACKED_DEPTH, Tree, memory_of, pack, places, unpack

# Bytes, three times what a rank gives in a measured case; also of all tensors in a tree, each wherever it stands.
MAX_FRAME = 24 * 2**20
MAX_EMPTY = 2**16  # rows of a tensor without a number, which takes no byte and becomes as long a list
MAX_JSON = 4 * 2**20  # bytes of JSON
MAX_NODES = 100_000  # keys and values in one JSON text: 20,000 leaves of 4, and some more
MAX_NESTING = 2 * MAX_PACKED_DEPTH  # a packed dict is two levels of JSON
MAX_NUMBER = 4_000  # characters; Python refuses integers of more than 4,300
MAX_TENSORS = 5_000
MAX_DIMS = 16

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class BadFrame(CourseError):
    """What arrived, or was to be sent, is no frame of ours."""


def encode(tree: Tree, token: str = "") -> bytes:
    """A frame that `decode` accepts. Raises BadFrame where the tree holds what no frame can."""
    return b"".join(encode_parts(tree, token))


def encode_parts(tree: Tree, token: str = "") -> list[bytes | memoryview]:
    """The same in parts: first all that is no tensor, then the memory of each, which is not copied."""
    tensors: dict[str, Tensor] = {}
    try:
        packed = pack(tree, tensors, copied=False)
        text = json.dumps([token, packed], allow_nan=False, separators=(",", ":")).encode()
        _check_text(text)
        _check_volume(tree)
        _check_tensors(tensors)
        header = _header(tensors)
        _check_header(header)
        first = len(text).to_bytes(4, "big") + text + header
        parts: list[bytes | memoryview] = [first, *map(memory_of, tensors.values())]
    except BadFrame:
        raise
    except Exception as error:
        raise BadFrame(f"a frame must hold plain data, got {type(error).__name__}") from None
    check_size(sum(map(len, parts)))
    return parts


def decode(frame: bytes | bytearray) -> tuple[str, Tree]:
    """The token and the tree in a frame from a sender who is not trusted. Raises BadFrame.

    Text is not cleaned: it may hold NUL and lone surrogates.
    """
    try:
        end = 4 + int.from_bytes(frame[:4], "big")
        if end > len(frame):
            raise BadFrame("a frame must hold all of its JSON")
        said = _parse(frame[4:end])
        if not isinstance(said, list) or len(said) != 2 or not isinstance(said[0], str):
            raise BadFrame("a frame must hold a token and a tree")
        tree = unpack(said[1], _tensors(bytes(memoryview(frame)[end:])))
        _check_volume(tree)
        return said[0], tree
    except (BadFrame, KeyboardInterrupt):
        raise
    except BaseException as error:  # a parser's own; a panic inside safetensors is no Exception
        raise BadFrame(f"a frame must hold a tree, got something else ({type(error).__name__})") from None


def check_size(size: int) -> None:
    """Raises BadFrame for a frame of more than MAX_FRAME bytes."""
    if size > MAX_FRAME:
        raise BadFrame(f"a frame must not be larger than {MAX_FRAME >> 20} MiB, got {size >> 20} MiB")


# --- JSON -------------------------------------------------------------------------------------------

_STRING = re.compile(rb'"[^"]*"')
_BRACKET = re.compile(rb"[\[{\]}]")
# Looked for once a number, not once a digit.
_LONG_NUMBER = re.compile(rb"(?<![-+.0-9eE])[-+.0-9eE]{%d}" % (MAX_NUMBER + 1))


def _parse(text: bytes | bytearray) -> Any:
    """What a JSON text says; UTF-8, no key twice in one object, finite literals only."""
    _check_text(text)
    return json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)


def _check_text(text: bytes | bytearray) -> None:
    """Raises BadFrame for a text that would cost too much to parse. 4 MiB take some 20 ms."""
    if len(text) > MAX_JSON:
        raise BadFrame(f"a frame must not hold more than {MAX_JSON >> 20} MiB of JSON")
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote that is left opens or closes a string
    if bare.count(b'"') > 2 * MAX_NODES:
        raise BadFrame(f"a frame must not hold more than {MAX_NODES} values")
    marks = _STRING.sub(b"", bare)
    if sum(marks.count(mark) for mark in (b"[", b"{", b",", b":")) > MAX_NODES:  # one stands before each key and value
        raise BadFrame(f"a frame must not hold more than {MAX_NODES} values")
    if _LONG_NUMBER.search(marks):
        raise BadFrame(f"a number in a frame must not be longer than {MAX_NUMBER} characters")
    depth = 0
    for bracket in _BRACKET.findall(marks):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_NESTING:
            raise BadFrame(f"a frame must not be nested deeper than {MAX_NESTING}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadFrame("an object in a frame must not hold a key twice")
    return found


def _refuse_constant(name: str) -> None:
    raise BadFrame(f"a number in a frame must be finite, got {name}")


# --- tensors ----------------------------------------------------------------------------------------


def _header(tensors: dict[str, Tensor]) -> bytes:
    """What stands in a safetensors file before these tensors, which follow one after the other; nothing for none."""
    if not tensors:
        return b""
    entries, end = {}, 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _tensors(data: bytes) -> dict[str, Tensor]:
    """Tensors by name from the bytes of a safetensors file; none from no bytes."""
    if not data:
        return {}
    _check_header(data)
    views = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    return {name: _tensor(view["dtype"], view["shape"], view["data"]) for name, view in views}


def _check_header(data: bytes) -> None:
    """Raises BadFrame for a header that is dear, or that names a tensor twice: safetensors would keep the last one."""
    size = int.from_bytes(data[:8], "little")
    if size > MAX_JSON:
        raise BadFrame(f"the header of tensors must not be larger than {MAX_JSON >> 20} MiB")
    if data and len(_parse(data[8 : 8 + size])) > MAX_TENSORS:
        raise BadFrame(f"a frame must not hold more than {MAX_TENSORS} tensors")


def _tensor(name: str, shape: list[int], data: bytearray) -> Tensor:
    """One tensor over `data`, whose length safetensors has compared with dtype and shape."""
    dtype = DTYPES.get(name)
    if dtype is None:
        raise BadFrame(f"a tensor in a frame must have a dtype that we read, got {name[:20]}")
    _check_shape(shape)
    if not data:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool and int(torch.frombuffer(data, dtype=torch.uint8).max()) > 1:
        raise BadFrame("a bool in a frame must be 0 or 1")
    return torch.frombuffer(data, dtype=dtype).reshape(shape)


def _check_tensors(tensors: dict[str, Tensor]) -> None:
    """What `_tensor` will demand of them."""
    for tensor in tensors.values():
        if tensor.dtype not in DTYPES.values():
            raise BadFrame(f"a tensor in a frame must have a dtype that we read, got {tensor.dtype}")
        _check_shape(tensor.shape)


def can_be_sent(shape: Sequence[int]) -> bool:
    """Whether a frame may hold a tensor of this shape, of however small a dtype."""
    return len(shape) <= MAX_DIMS and places(shape) <= (MAX_FRAME if math.prod(shape) else MAX_EMPTY)


def _check_shape(shape: Sequence[int]) -> None:
    if not can_be_sent(shape):
        raise BadFrame(
            f"a tensor in a frame must have at most {MAX_DIMS} dims and {MAX_FRAME} elements, and without elements at "
            f"most {MAX_EMPTY} rows"
        )


def _check_volume(tree: Tree) -> None:
    """A tensor is stored once however often it stands in the tree, but who reads the tree pays for each."""
    volume, rest = 0, [tree]
    while rest:
        each = rest.pop()
        if isinstance(each, Tensor):
            volume += each.numel() * each.element_size()
        elif isinstance(each, (list, dict)):
            rest.extend(each.values() if isinstance(each, dict) else each)
    if volume > MAX_FRAME:
        raise BadFrame(f"a tree in a frame must not hold more than {MAX_FRAME >> 20} MiB of tensors")
