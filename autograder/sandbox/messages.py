"""Single bytes that processes of ours send each other, with a socket beside them where one is handed over."""

from __future__ import annotations

LOAD, PERFORM, WITHOUT_AUTOGRAD, DISPLAY, SWEEP, READY = b"l", b"p", b"w", b"d", b"s", b"r"
LONGEST = 2**16  # bytes of a control message to the warm process, which is JSON
