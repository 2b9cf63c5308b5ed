"""A reply of the broker to a rank, read into the tensors that wait for it.

    8 bytes of length | 4: length of the text | text | 8: length of the header | header | tensors --> their memory

It is a frame like all (wire/frame.py), but its sender is trusted, so that nothing is checked. Messages then need no
memory of a rank's own, and the kernel's peak of a rank is that of its tensors.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from autograder.sandbox.wire.frame import DTYPES
from autograder.sandbox.wire.stream import LENGTH, Closed
from course.tree import memory_of, unpack

PATIENCE = 24 * 3600.0  # the grader sets the limit


def receive(sock: socket.socket, takes: Sequence[Tensor]) -> dict[str, Any]:
    """The next reply, whose "takes" are written into these. Raises Closed."""
    try:
        sock.settimeout(PATIENCE)
        return _receive(sock, takes)
    except OSError as error:
        raise Closed(f"the connection broke ({error.strerror})") from None


def _receive(sock: socket.socket, takes: Sequence[Tensor]) -> dict[str, Any]:
    left = int.from_bytes(_read(sock, LENGTH), "big")
    size = int.from_bytes(_read(sock, 4), "big")
    _, packed = json.loads(_read(sock, size))
    names = [each["$tensor"] for each in packed["$dict"].get("takes", ())]
    tensors = _tensors(sock, _rooms(names, takes)) if left > 4 + size else {}
    reply: Any = unpack(packed, tensors)
    for tensor, value in zip(takes, reply.get("takes", ()), strict=bool(names)):
        tensor.detach().copy_(value)  # where it was read to its place, this does no more than say that it was written
    return dict(reply)


def _rooms(names: Sequence[str], takes: Sequence[Tensor]) -> dict[str, Tensor]:
    """Where each can be read to at once: nowhere if one does not lie in one piece and as it is, or two share memory."""
    spans = sorted((each.data_ptr(), each.data_ptr() + each.nbytes) for each in takes if each.numel())
    apart = all(end <= start for (_, end), (start, _) in pairwise(spans))
    plain = all(each.is_contiguous() and not each.is_conj() and not each.is_neg() for each in takes)
    return dict(zip(names, takes, strict=True)) if apart and plain else {}


def _tensors(sock: socket.socket, rooms: dict[str, Tensor]) -> dict[str, Tensor]:
    """All tensors of the reply by name, in the order in which they lie."""
    header = json.loads(_read(sock, int.from_bytes(_read(sock, 8), "little")))
    tensors = {}
    for name, kind in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        room = rooms.get(name)
        tensors[name] = torch.empty(kind["shape"], dtype=DTYPES[kind["dtype"]]) if room is None else room.detach()
        _fill(sock, memory_of(tensors[name]))
    return tensors


def _read(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    _fill(sock, memoryview(data))
    return data


def _fill(sock: socket.socket, memory: memoryview) -> None:
    """Receive until this memory is full. Raises Closed."""
    while len(memory):
        count = sock.recv_into(memory)
        if not count:
            raise Closed("the process ended before it answered")
        memory = memory[count:]
