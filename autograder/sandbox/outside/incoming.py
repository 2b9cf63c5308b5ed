"""Frames from one of several senders, read as they come: nobody who sends slowly makes the others wait.

bytes that are there --read--> nothing yet, or one tree
"""

from __future__ import annotations

import socket

from autograder.sandbox.wire import wire
from autograder.sandbox.wire.frame import check_size, decode
from course.tree import Tree

HEAD = 8  # bytes of length
CHUNK = 2**20


class Incoming:
    """The next frame of one sender, as far as it has come. bytes: all that came so far."""

    def __init__(self, sock: socket.socket, token: str) -> None:
        self._sock, self._token = sock, token
        self._body = bytearray()
        self._size: int | None = None
        self._refused = False
        self.bytes = 0

    def read(self) -> Tree | None:
        """Read once, from a socket that is ready; the tree, where its frame is complete. Raises Ended or BadFrame.

        After one BadFrame nothing can be understood any more: every further call raises Ended.
        """
        if self._refused:
            raise wire.Ended("what came before could not be read")
        try:
            return self._read()
        except wire.BadFrame:
            self._refused = True
            raise

    def _read(self) -> Tree | None:
        wanted = HEAD if self._size is None else self._size
        chunk = self._receive(min(wanted - len(self._body), CHUNK))
        if not chunk:
            raise wire.Ended("the process ended")
        self._body += chunk
        self.bytes += len(chunk)
        if len(self._body) < wanted:
            return None
        if self._size is None:
            self._size = _checked(int.from_bytes(self._body, "big"))
            self._body.clear()
            return None
        token, tree = decode(self._body)
        self._body, self._size = bytearray(), None
        if token != self._token:
            raise wire.BadFrame("a frame must answer the question that was asked, got one made for another")
        return tree

    def has_more(self) -> bool:
        """Whether a socket that is ready has something to read; False where it was closed."""
        return bool(self._receive(1, socket.MSG_PEEK))

    def _receive(self, most: int, flags: int = 0) -> bytes:
        try:
            return self._sock.recv(most, flags)
        except OSError:  # the connection broke
            return b""


def _checked(size: int) -> int:
    check_size(size)
    if size == 0:
        raise wire.BadFrame("a frame must hold something")
    return size
