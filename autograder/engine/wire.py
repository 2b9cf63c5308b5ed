"""Frames between the grader and the process that runs a student's code. Never pickle.

    tree --send--> 8 bytes of length | safetensors: tensors, and the rest as JSON in the header --receive--> tree

The side that receives trusts nothing: length is capped before a byte is read, safetensors checks its own bounds,
and `observations` accepts only what an observation may hold. A ledger entry that arrives here is `claimed`, whatever
the sender says, because it was counted in the student's process.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from course.errors import CourseError
from course.exercise import Case, Failure, Observation
from course.tree import MAX_LEAVES, MAX_TEXT, Leaf, Tree, pack, unpack

MAX_FRAME = 64 * 2**20
MAX_LINES = 20  # of a failure's own lines
SEND_SECONDS = 60.0  # before the other side counts as gone


class Ended(CourseError):
    """The other side closed the connection."""


class Late(CourseError):
    """The deadline passed before the frame was complete."""


class BadFrame(CourseError):
    """What arrived is no frame of ours."""


# --- frames -----------------------------------------------------------------------------------------


def send(sock: socket.socket, tree: Tree) -> None:
    """Sends one tree. Raises BadFrame where it holds what no frame can, OSError where the other side is gone."""
    tensors: dict[str, Tensor] = {}
    try:
        header = {"tree": json.dumps(pack(tree, tensors), allow_nan=False)}
        tensors.setdefault("none", torch.zeros(1))  # a file without tensors is refused by some readers
        body = safetensors.torch.save(tensors, header)
    except Exception as error:
        raise BadFrame(f"a frame must hold plain data, got {type(error).__name__}") from None
    if len(body) > MAX_FRAME:
        raise BadFrame(f"a frame must not be larger than {MAX_FRAME >> 20} MiB, got {len(body) >> 20} MiB")
    sock.settimeout(SEND_SECONDS)
    sock.sendall(len(body).to_bytes(8, "big") + body)


def receive(sock: socket.socket, deadline: float) -> Tree:
    """The next tree, read until `deadline` on the monotonic clock. Raises Ended, Late or BadFrame, nothing else."""
    size = int.from_bytes(_exactly(sock, 8, deadline), "big")
    if size > MAX_FRAME:
        raise BadFrame(f"a frame must not be larger than {MAX_FRAME >> 20} MiB, got {size >> 20} MiB")
    body = _exactly(sock, size, deadline)
    try:
        header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
        return unpack(json.loads(header["__metadata__"]["tree"]), safetensors.torch.load(bytes(body)))
    except Exception as error:  # whatever a hostile sender makes the parsers raise
        raise BadFrame(f"a frame must hold a tree, got something else ({type(error).__name__})") from None


def _exactly(sock: socket.socket, count: int, deadline: float) -> bytearray:
    """Exactly `count` bytes; memory grows only with what really arrives."""
    body = bytearray()
    while len(body) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Late("the reply did not come in time")
        sock.settimeout(left)
        try:
            chunk = sock.recv(min(count - len(body), 2**20))
        except TimeoutError:
            continue
        except OSError as error:
            raise Ended(f"the connection broke ({error.strerror})") from None
        if not chunk:
            raise Ended("the process ended before it answered")
        body += chunk
    return body


# --- cases and observations ---------------------------------------------------------------------------


def from_cases(cases: Sequence[Case]) -> Tree:
    """Cases as a tree; names and inputs, nothing else."""
    return [{"name": case.name, "inputs": dict(case.inputs)} for case in cases]


def to_cases(tree: Any) -> list[Case]:
    """The cases back again; the sender is trusted."""
    return [Case(name=case["name"], inputs=case["inputs"]) for case in tree]


def from_observations(seen: Sequence[Observation]) -> Tree:
    """Observations as a tree."""
    return [_packed(each) for each in seen]


def _packed(seen: Observation) -> Tree:
    error = dataclasses.asdict(seen.error) if seen.error else None
    if error:
        error["where"] = list(error["where"])
    return {"values": dict(seen.values), "ledger": dict(seen.ledger), "error": error, "printed": seen.printed}


def to_observations(tree: Tree, count: int) -> tuple[Observation, ...]:
    """`count` observations from a sender who is not trusted. Raises BadFrame."""
    if not isinstance(tree, list) or len(tree) != count:
        raise BadFrame(f"a reply must hold {count} observations")
    return tuple(_observation(each) for each in tree)


def _observation(tree: Tree) -> Observation:
    if not isinstance(tree, dict):
        raise BadFrame("an observation must be a dict")
    ledger = _leaves(tree.get("ledger"))
    return Observation(
        values=_leaves(tree.get("values")),
        ledger=ledger,
        sources=dict.fromkeys(ledger, "claimed"),
        error=to_failure(tree.get("error")),
        printed=_text(tree.get("printed")),
    )


def to_failure(tree: Tree) -> Failure | None:
    """A failure from a sender who is not trusted, or None. Raises BadFrame."""
    if tree is None:
        return None
    if not isinstance(tree, dict):
        raise BadFrame("a failure must be a dict")
    where = tree.get("where")
    lines = where if isinstance(where, list) else []
    return Failure(
        type=_text(tree.get("type"))[:100] or "Error",
        message=_text(tree.get("message")),
        where=tuple(_text(line) for line in lines[-MAX_LINES:]),
    )


def _leaves(tree: Tree) -> dict[str, Leaf]:
    if not isinstance(tree, dict) or len(tree) > MAX_LEAVES:
        raise BadFrame(f"values must be a dict of at most {MAX_LEAVES} leaves")
    leaves: dict[str, Leaf] = {}
    for key, value in tree.items():
        if isinstance(value, (list, dict)):
            raise BadFrame("a value must be a leaf")
        leaves[_text(key)] = _text(value) if isinstance(value, str) else value
    return leaves


def _text(value: object) -> str:
    """A string that every file and database can hold, and not a long one."""
    if not isinstance(value, str):
        return ""
    return value[:MAX_TEXT].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
