"""What goes between processes: single bytes, with a socket beside them where one is handed over, and outputs."""

from __future__ import annotations

from typing import Any, TypeAlias

Output: TypeAlias = dict[str, Any]  # one output of a cell, as nbformat 4 has it

LOAD, PERFORM, WITHOUT_AUTOGRAD, DISPLAY, SWEEP, READY = b"l", b"p", b"w", b"d", b"s", b"r"
LONGEST = 2**16  # bytes of a control message to the warm process, which is JSON
