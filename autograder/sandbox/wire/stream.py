"""Frames over a socket, between the grader and the process that runs a student's code.

    tree --send--> 8 bytes of length | frame (frame.py) --Reader, receive--> tree

The side that receives trusts nothing: a length is capped before a byte of the frame is read, memory grows only with
what really arrives, the deadline holds against a sender who drips, and a frame that was sent before its question cannot
know the token. A tree that comes out is plain data but not clean: see messages.py.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence

from autograder.sandbox.wire.frame import BadFrame, check_size, decode, encode_parts
from course.errors import CourseError
from course.tree import Tree

SEND_SECONDS = 60.0  # before the other side counts as gone
LENGTH = 8  # bytes
CHUNK = 2**20  # bytes that are read at once
SMALL = 2**18  # bytes that are copied once more, so that one call sends them


class Closed(CourseError):
    """The other side closed the connection."""


class Late(CourseError):
    """The deadline passed before the frame was complete."""


def new_token() -> str:
    """Something that nobody can guess."""
    return secrets.token_hex(8)


def send(sock: socket.socket, tree: Tree, *, token: str = "", deadline: float | None = None) -> None:
    """Send one tree. Raises BadFrame where it holds what no frame can, else Late or Closed.

    deadline  on the monotonic clock; it holds against a receiver who never reads. SEND_SECONDS from now at the latest
    """
    parts = encode_parts(tree, token)
    size = sum(map(len, parts)).to_bytes(LENGTH, "big")
    last = time.monotonic() + SEND_SECONDS
    last = last if deadline is None else min(last, deadline)
    try:
        for part in _joined([size, *parts]):
            sock.settimeout(max(last - time.monotonic(), 1e-3))
            sock.sendall(part)
    except TimeoutError:
        raise Late("the message could not be sent in time") from None
    except OSError as error:
        raise Closed(f"the connection broke ({error.strerror})") from None


def _joined(parts: Sequence[bytes | memoryview]) -> Iterator[bytes | bytearray | memoryview]:
    """The same bytes in fewer parts: small ones are put together, large ones are left where they lie."""
    small = bytearray()
    for part in parts:
        if len(part) < SMALL:
            small += part
        if small and (len(part) >= SMALL or len(small) >= SMALL):
            yield small
            small = bytearray()
        if len(part) >= SMALL:
            yield part
    if small:
        yield small


def receive(sock: socket.socket, deadline: float, *, token: str = "", later: Callable[[], float] = lambda: 0.0) -> Tree:
    """The next tree, read until `deadline` on the monotonic clock. Raises Closed, Late or BadFrame, nothing else.

    token  of the question that the tree must answer; a frame with another one is refused
    later  asked when the deadline has come: the one that then holds
    """
    return next_of(Reader(sock, token), deadline, later)[0]


def receive_request(sock: socket.socket, deadline: float) -> tuple[Tree, str]:
    """The next tree, and the token that its answer must carry. Raises like `receive`."""
    return next_of(Reader(sock), deadline)


def next_of(reader: Reader, deadline: float, later: Callable[[], float] = lambda: 0.0) -> tuple[Tree, str]:
    """The next tree that a reader brings, and its token; see `receive`."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            left = later() - time.monotonic()
        if left <= 0:
            raise Late("the reply did not come in time")
        if (came := reader.read(left)) is not None:
            return came


class Reader:
    """The next frame of one sender, as far as it has come; it never reads beyond the end of a frame.

    token  of the question that every frame must answer; None: any
    bytes  all that came so far
    """

    def __init__(self, sock: socket.socket, token: str | None = None) -> None:
        self._sock, self._token = sock, token
        self._body, self._size = bytearray(), 0  # a size of 0: the length of the next frame comes first
        self._refused = False
        self.bytes = 0

    def read(self, seconds: float | None = None) -> tuple[Tree, str] | None:
        """Receive once: tree and token where a frame is complete now. Raises Closed or BadFrame.

        seconds  to wait at most; None: the socket is ready
        After one BadFrame nothing can be understood any more: every further call raises Closed.
        """
        if self._refused:
            raise Closed("what came before could not be read")
        try:
            return self._read(seconds)
        except BadFrame:
            self._refused = True
            raise

    @property
    def pending(self) -> int:
        """Bytes of a frame that has come in part."""
        return len(self._body)

    def has_more(self) -> bool:
        """Whether a socket that is ready has something to read; False where it was closed."""
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:  # the connection broke
            return False

    def _read(self, seconds: float | None) -> tuple[Tree, str] | None:
        wanted = self._size or LENGTH
        if not self._grow(wanted, seconds):
            return None
        body, self._body = self._body, bytearray()
        if not self._size:
            self._size = int.from_bytes(body, "big")
            check_size(self._size)
            if not self._size:
                raise BadFrame("a frame must hold something")
            return None
        self._size = 0
        token, tree = decode(body)
        if self._token is not None and token != self._token:
            raise BadFrame("a frame must answer the question that was asked, got one made for another")
        return tree, token

    def _grow(self, wanted: int, seconds: float | None) -> bool:
        """Receive once; whether so many bytes are there."""
        try:
            if seconds is not None:
                self._sock.settimeout(min(seconds, SEND_SECONDS))  # C has no timeout as long as a distant deadline
            chunk = self._sock.recv(min(wanted - len(self._body), CHUNK))
        except TimeoutError:
            return False
        except OSError as error:
            raise Closed(f"the connection broke ({error.strerror})") from None
        if not chunk:
            raise Closed("the process ended before it answered")
        self._body += chunk
        self.bytes += len(chunk)
        return len(self._body) == wanted
