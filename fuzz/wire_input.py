"""One fuzzed input: what the grader reads from a process that nobody trusts.

    data --frame--> a frame --socket--> receive --> tree --to_observations, to_question, to_outputs--> ours

Data with an odd first byte are a frame as they stand. Else they are lines: the text of a frame, the header of its
tensors, and their bytes; the lengths between them are put in here, because a mutation hardly ever keeps one right.
`one_input` returns whatever comes, and raises only for what must not happen. It needs no atheris.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from autograder.sandbox.wire import messages, stream
from autograder.sandbox.wire.frame import BadFrame, encode


def frame(data: bytes) -> bytes:
    """The frame that fuzzed data stand for."""
    if data[:1] and data[0] % 2:
        return data[1:]
    text, _, rest = data[1:].partition(b"\n")
    header, found, values = rest.partition(b"\n")
    tensors = len(header).to_bytes(8, "little") + header + values if found else b""
    return len(text).to_bytes(4, "big") + text + tensors


def one_input(data: bytes) -> None:
    """Receive and use one frame. Raises only where the grader could be harmed."""
    tree = received(frame(data))
    if tree is NOTHING:
        return
    encode(tree)  # whatever was accepted can be sent again
    parts = [tree, *tree.values()] if isinstance(tree, dict) else [tree]
    for part in parts:
        count = len(part) if isinstance(part, list) else 1
        seen = _tried(partial(messages.to_observations, part, count))
        if seen is not NOTHING:
            encode(messages.from_observations(seen))
        shown = _tried(partial(messages.to_outputs, part, count))
        if shown is not NOTHING:
            json.dumps(shown, ensure_ascii=False, allow_nan=False).encode()
    asked = _tried(partial(messages.to_question, tree))
    if asked is not NOTHING:
        encode(messages.from_question(*asked))
    _tried(partial(messages.to_failure, tree))


NOTHING: Any = object()


def received(body: bytes) -> Any:
    """What the grader makes of a frame, or NOTHING."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.setblocking(False)  # what a connection cannot hold is cut, and has then ended
            theirs.send(len(body).to_bytes(8, "big") + body)
        return _tried(partial(stream.receive, ours, time.monotonic() + 10))


def _tried(use: Callable[[], Any]) -> Any:
    """What `use` gives, or NOTHING where it refuses."""
    try:
        return use()
    except (BadFrame, stream.Closed):
        return NOTHING
