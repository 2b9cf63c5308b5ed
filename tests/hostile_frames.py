"""Frames as a hostile process might write them, by name. Each is small to write and meant to be dear to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autograder.sandbox.wire.frame import MAX_FRAME

FULL = 4 * 2**20 - 1_000  # bytes of JSON, just under what a frame may hold
MANY = 99_000  # values, just under what a frame may hold


def framed(text: str | bytes, tensors: bytes = b"") -> bytes:
    """A frame with these parts and the right length between them."""
    raw = text if isinstance(text, bytes) else text.encode()
    return len(raw).to_bytes(4, "big") + raw + tensors


def stored(header: str, data: bytes = b"") -> bytes:
    """A safetensors file with this header."""
    return len(header).to_bytes(8, "little") + header.encode() + data


def entry(dtype: str, shape: Sequence[int], start: int, end: int, name: str = "a") -> str:
    """One tensor of a header."""
    shown = ",".join(map(str, shape))
    return f'"{name}":{{"dtype":"{dtype}","shape":[{shown}],"data_offsets":[{start},{end}]}}'


def one_tensor(dtype: str, shape: Sequence[int], start: int, end: int, data: bytes = b"") -> bytes:
    """A frame whose tree is one tensor."""
    return framed('["",{"$tensor":"a"}]', stored("{" + entry(dtype, shape, start, end) + "}", data))


def tree(text: str) -> bytes:
    """A frame whose packed tree is this JSON."""
    return framed(f'["",{text}]')


def filled(unit: str, length: int = FULL) -> bytes:
    """A frame with a list of as many `unit`s as its text can hold."""
    return tree("[" + ",".join([unit] * (length // (len(unit) + 1))) + "]")


TWO = ",".join([entry("U8", [2], 0, 2), entry("U8", [2], 1, 3, "b")])
REFUSED = {
    "nothing": b"",
    "half a length": b"\0\0",
    "text beyond the frame": (100).to_bytes(4, "big") + b"[]",
    "text of 4 GiB": b"\xff\xff\xff\xff[]",
    "no token": framed("[1,2]"),
    "a token alone": framed('[""]'),
    "a word of two letters": framed('"ab"'),
    "a dict of two keys": framed('{"":0,"a":0}'),
    "not JSON": tree("{"),
    "more than JSON": tree("1]["),
    "not UTF-8": framed(b'["","\xff"]'),
    "UTF-16": framed('["",0]'.encode("utf-16")),
    "a byte order mark": framed('\ufeff["",0]'),
    "nan": tree("NaN"),
    "infinity": tree("-Infinity"),
    "a key twice": tree('{"$dict":{"a":1,"a":2}}'),
    "an unknown sign": tree('{"$pickle":"gASV"}'),
    "no sign": tree("{}"),
    "deep lists": tree("[" * 90_000),
    "deep lists, closed": tree("[" * 200 + "]" * 200),
    "deep dicts": tree('{"$dict":{"a":' * 100_000),
    "deep behind a false quote": framed('["\\\\",' + "[" * 90_000),
    "a huge integer": tree("9" * 100_000),
    "a long fraction": tree("0." + "1" * 100_000),
    "a million keys": tree('{"$dict":{' + ",".join(f'"{i}":0' for i in range(1_000_000)) + "}}"),
    "half a million short keys": tree('{"$dict":{' + ",".join(f'"{i:x}":0' for i in range(400_000)) + "}}"),
    "a million lists": tree("[" + "[]," * 1_000_000 + "0]"),
    "a million quotes": tree('"' * 1_000_000),
    "too much text": tree('"' + "a" * 2**23 + '"'),
    "a tensor that is not there": tree('{"$tensor":"a"}'),
    "half a header length": framed('["",0]', b"\1\0\0"),
    "a header beyond the frame": framed('["",0]', (1000).to_bytes(8, "little") + b"{}"),
    "a huge header length": framed('["",0]', b"\xff" * 8),
    "a huge header": framed('["",0]', stored("{" + " " * 2**23 + "}")),
    "a header that is a list": framed('["",0]', stored("[]")),
    "a deep header": framed('["",0]', stored('{"__metadata__":' + "[" * 100_000)),
    "metadata without end": framed('["",0]', stored('{"__metadata__":{' + '"a":"b",' * 300_000 + '"c":"d"}}')),
    "the same tensor twice": framed(
        '["",0]', stored("{" + ",".join([entry("U8", [0], 0, 0), entry("F64", [0], 0, 0)]) + "}")
    ),
    "too many tensors": framed(
        '["",0]', stored("{" + ",".join(entry("U8", [0], 0, 0, str(i)) for i in range(7_000)) + "}")
    ),
    "overlapping tensors": framed('["",0]', stored("{" + TWO + "}", b"abc")),
    "a hole between tensors": one_tensor("U8", [1], 2, 3, b"abc"),
    "bytes that no tensor has": one_tensor("U8", [1], 0, 1, b"abc"),
    "offsets beyond the data": one_tensor("U8", [100], 0, 100, b"abc"),
    "offsets backwards": one_tensor("U8", [1], 3, 2, b"abc"),
    "a negative offset": one_tensor("U8", [2], -1, 1, b"abc"),
    "an offset of 64 bits": one_tensor("U8", [1], 2**64 - 1, 2**64, b"a"),
    "an offset of 65 bits": one_tensor("U8", [1], 0, 2**65, b"a"),
    "a negative size": one_tensor("U8", [-1, -1], 0, 1, b"a"),
    "a giant shape with little data": one_tensor("F32", [2**40], 0, 4, b"abcd"),
    "a shape that overflows to the right size": one_tensor("U8", [2**32, 2**32, 0, 1], 0, 0),
    "an empty tensor of huge size": one_tensor("U8", [0, 2**62, 8], 0, 0),
    "an empty tensor of unsigned size": one_tensor("U8", [0, 2**63], 0, 0),
    "an empty tensor of 100 dims": one_tensor("U8", [0] * 100, 0, 0),
    "a tensor of a million dims": one_tensor("U8", [1] * 100_000, 0, 1, b"a"),
    "a dtype nobody knows": one_tensor("F7", [1], 0, 1, b"a"),
    "half a byte": one_tensor("F4", [2], 0, 1, b"a"),
    "an exponent without a number": one_tensor("F8_E8M0", [1], 0, 1, b"a"),
    "complex128": one_tensor("C128", [1], 0, 16, bytes(16)),
    "quantized": one_tensor("QINT8", [1], 0, 1, b"a"),
    "a bool that is neither": one_tensor("BOOL", [2], 0, 2, b"\1\2"),
    "one large tensor a hundred times": framed(
        '["",[' + ",".join(['{"$tensor":"a"}'] * 100) + "]]",
        stored("{" + entry("U8", [2**20], 0, 2**20) + "}", bytes(2**20)),
    ),
}


def _bools(size: int = MAX_FRAME - 2**20) -> bytes:
    return one_tensor("BOOL", [size], 0, size, bytes(size))


def _tensors(count: int = 4_900, size: int = MAX_FRAME // 5_000) -> bytes:
    header = ",".join(entry("U8", [size], size * i, size * i + size, str(i)) for i in range(count))
    references = ",".join(f'"{i}":{{"$tensor":"{i}"}}' for i in range(count))
    return framed('["",{"$dict":{' + references + "}}]", stored("{" + header + "}", bytes(size * count)))


def _metadata(count: int = 45_000) -> bytes:
    return framed('["",0]', stored('{"__metadata__":{' + ",".join(f'"{i}":"a"' for i in range(count)) + "}}"))


# Frames that are accepted, and cost more time or memory than any other that was found.
DEAR: dict[str, Callable[[], bytes]] = {
    "empty lists": lambda: filled("[]", MANY // 2 * 3),
    "dicts of one": lambda: filled('{"$dict":{"a":0}}', MANY // 5 * 18),
    "keys": lambda: tree('{"$dict":{' + ",".join(f'"{i}":{i}' for i in range(MANY // 2)) + "}}"),
    "long integers": lambda: filled("9" * 3_999),
    "long fractions": lambda: filled("0." + "1" * 3_990),
    "short texts": lambda: filled('"é"', MANY * 4),
    "wide text": lambda: tree('"' + "a" * (FULL - 100) + '\U0001f600"'),
    "backslashes": lambda: tree('"' + "\\\\" * (FULL // 2 - 100) + '"'),
    "metadata": _metadata,
    "bools": _bools,
    "tensors": _tensors,
}
