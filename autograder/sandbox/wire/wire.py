"""Messages between the grader and the process that runs a student's code. Never pickle.

    tree --send--> 8 bytes of length | frame (frame.py) --receive--> tree --to_observations, to_question, ...--> ours

    grader                                inside
    from_cases     --send, a token-->     receive_request, to_cases
    to_question    <--the same token--    from_question             any number of times
    to_observations <--the same token--   from_observations

The side that receives trusts nothing: length is capped before a byte is read, the deadline holds against a sender who
drips, and a frame that was sent before its question cannot know the token. What `receive` returns is plain data but
not clean; each `to_` function accepts only what its message may hold, and makes text printable. A ledger entry that
arrives here is `claimed`, whatever the sender says, because it was counted in the student's process.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from autograder.sandbox.wire.frame import DTYPES, MAX_NUMBER, check_size, decode, encode
from autograder.sandbox.wire.frame import BadFrame as BadFrame  # callers know one module
from course.errors import CourseError
from course.performing.exercise import Case, Failure, Observation
from course.tree import MAX_LEAVES, MAX_TEXT, Leaf, Tree, map_leaves

MAX_LINES = 20  # of a failure's own lines
MAX_RANK = 2**20
SEND_SECONDS = 60.0  # before the other side counts as gone
VERB = re.compile(r"[A-Za-z_]{1,64}", re.ASCII)


class Ended(CourseError):
    """The other side closed the connection."""


class Late(CourseError):
    """The deadline passed before the frame was complete."""


def new_token() -> str:
    """Something that nobody can guess."""
    return secrets.token_hex(8)


def send(sock: socket.socket, tree: Tree, *, token: str = "", deadline: float | None = None) -> None:
    """Send one tree. Raises BadFrame where it holds what no frame can, else Late or Ended.

    deadline  on the monotonic clock; it holds against a receiver who never reads. SEND_SECONDS from now at the latest
    """
    frame = encode(tree, token)
    left = SEND_SECONDS if deadline is None else min(SEND_SECONDS, deadline - time.monotonic())
    try:
        sock.settimeout(max(left, 1e-3))
        sock.sendall(len(frame).to_bytes(8, "big") + frame)
    except TimeoutError:
        raise Late("the message could not be sent in time") from None
    except OSError as error:
        raise Ended(f"the connection broke ({error.strerror})") from None


def receive(sock: socket.socket, deadline: float, *, token: str = "") -> Tree:
    """The next tree, read until `deadline` on the monotonic clock. Raises Ended, Late or BadFrame, nothing else.

    token  of the question that the tree must answer; a frame with another one is refused
    """
    tree, came = receive_request(sock, deadline)
    if came != token:
        raise BadFrame("a frame must answer the question that was asked, got one made for another")
    return tree


def receive_request(sock: socket.socket, deadline: float) -> tuple[Tree, str]:
    """The next tree, and the token that its answer must carry. Raises like `receive`."""
    size = int.from_bytes(_exactly(sock, 8, deadline), "big")
    check_size(size)
    token, tree = decode(_exactly(sock, size, deadline))
    return tree, token


def _exactly(sock: socket.socket, count: int, deadline: float) -> bytearray:
    """Exactly `count` bytes; memory grows only with what really arrives."""
    body = bytearray()
    while len(body) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Late("the reply did not come in time")
        try:
            sock.settimeout(min(left, SEND_SECONDS))  # C has no timeout as long as a distant deadline
            chunk = sock.recv(min(count - len(body), 2**20))
        except TimeoutError:
            continue
        except OSError as error:
            raise Ended(f"the connection broke ({error.strerror})") from None
        if not chunk:
            raise Ended("the process ended before it answered")
        body += chunk
    return body


# --- cases and questions ------------------------------------------------------------------------------


def from_cases(cases: Sequence[Case]) -> Tree:
    """Cases as a tree: names and inputs, and nothing that is hidden."""
    return [{"name": case.name, "inputs": dict(case.inputs)} for case in cases]


def to_cases(tree: Any) -> list[Case]:
    """The cases back again; the sender is trusted."""
    return [Case(name=case["name"], inputs=case["inputs"]) for case in tree]


def from_question(verb: str, arguments: Tree) -> Tree:
    """A question to the grader as a tree."""
    return {"ask": verb, "arguments": arguments}


def to_question(tree: Tree) -> tuple[str, Tree]:
    """Verb and arguments of a question from a sender who is not trusted. Raises BadFrame.

    The verb has at most 64 ASCII letters and underscores; the arguments are any tree, its text made clean.
    """
    if not isinstance(tree, dict) or tree.keys() != {"ask", "arguments"}:
        raise BadFrame("a question must hold a verb, its arguments and nothing else")
    verb = tree["ask"]
    if not isinstance(verb, str) or not VERB.fullmatch(verb):
        raise BadFrame("the verb of a question must be at most 64 letters and underscores")
    return verb, clean(tree["arguments"], clean_leaf)


def clean(tree: Tree, leaf: Callable[[Leaf], Leaf]) -> Any:
    """The same tree with clean keys, and `leaf` put on every leaf."""
    if isinstance(tree, dict):
        return {clean_text(key): clean(value, leaf) for key, value in tree.items()}
    if isinstance(tree, list):
        return [clean(value, leaf) for value in tree]
    return leaf(tree)


def clean_leaf(leaf: Leaf) -> Leaf:
    """The same leaf, text made clean."""
    return clean_text(leaf) if isinstance(leaf, str) else leaf


# --- observations -------------------------------------------------------------------------------------


def from_observations(seen: Sequence[Observation]) -> Tree:
    """Observations as a tree; a leaf that no frame carries becomes a string that says so."""
    return [_packed(each) for each in seen]


def _packed(seen: Observation) -> Tree:
    error = dataclasses.asdict(seen.error) if seen.error else None
    if error:
        error["where"] = list(error["where"])
    values, ledger = map_leaves(_carried, dict(seen.values)), map_leaves(_carried, dict(seen.ledger))
    return {"values": values, "ledger": ledger, "error": error, "printed": seen.printed}


def _carried(leaf: Leaf) -> Leaf:
    if isinstance(leaf, Tensor) and leaf.dtype not in DTYPES.values():
        return f"<tensor of {leaf.dtype}>"
    if isinstance(leaf, int) and leaf.bit_length() > 3 * MAX_NUMBER:  # 3 bits are less than a digit
        return f"<integer of {leaf.bit_length()} bits>"
    return leaf


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
        printed=clean_text(tree.get("printed")),
    )


def to_failure(tree: Tree) -> Failure | None:
    """A failure from a sender who is not trusted, or None. Raises BadFrame."""
    if tree is None:
        return None
    if not isinstance(tree, dict):
        raise BadFrame("a failure must be a dict")
    where, rank = tree.get("where"), tree.get("rank")
    lines = where if isinstance(where, list) else []
    return Failure(
        type=clean_text(tree.get("type"))[:100] or "Error",
        message=clean_text(tree.get("message")),
        where=tuple(clean_text(line) for line in lines[-MAX_LINES:]),
        rank=rank if type(rank) is int and 0 <= rank < MAX_RANK else None,
    )


def _leaves(tree: Tree) -> dict[str, Leaf]:
    if not isinstance(tree, dict) or len(tree) > MAX_LEAVES:
        raise BadFrame(f"values must be a dict of at most {MAX_LEAVES} leaves")
    leaves: dict[str, Leaf] = {}
    for key, value in tree.items():
        if isinstance(value, (list, dict)):
            raise BadFrame("a value must be a leaf")
        leaves[clean_text(key)] = clean_leaf(value)
    return leaves


def clean_text(value: object, limit: int = MAX_TEXT) -> str:
    """A string that every file and database can hold, and not a long one."""
    if not isinstance(value, str):
        return ""
    return value[:limit].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
