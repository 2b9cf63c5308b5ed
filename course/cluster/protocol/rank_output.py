"""What ranks print: each line comes out with the number of its rank, whole."""

from __future__ import annotations

import io
import sys
import threading
from collections import deque
from typing import Self, TextIO


def numbered(rank: int, line: str) -> str:
    """`[rank 2] loss 0.31`: of a line that was written over and over, its last state."""
    line = line.rstrip("\r").rpartition("\r")[2]
    return f"[rank {rank}] {line}\n"


class RankOutput:
    """While it is entered, what threads named `rank N` print is kept, and `show` prints the lines that are whole.

    Others' prints go where they went. Only the thread that entered it writes: a notebook shows under a cell what the
    cell's own thread prints.
    """

    def __init__(self, ranks: int) -> None:
        self._numbers = {f"rank {rank}": rank for rank in range(ranks)}
        self._begun: dict[tuple[TextIO, int], str] = {}
        self._lines: deque[tuple[TextIO, int, str]] = deque()
        self._before: tuple[TextIO, TextIO] | None = None

    def __enter__(self) -> Self:
        self._before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (_Stream(self, each) for each in self._before)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            sys.stdout, sys.stderr = self._before
            self.show()
            rest = sorted(self._begun.items(), key=lambda item: item[0][1])
            self._lines.extend((stream, rank, line) for (stream, rank), line in rest if line)
            self.show()

    def show(self) -> None:
        """Print the lines that have come."""
        while self._lines:
            stream, rank, line = self._lines.popleft()
            stream.write(numbered(rank, line))

    def keep(self, stream: TextIO, text: str) -> bool:
        """Keep what a rank prints; False where somebody else does."""
        rank = self._numbers.get(threading.current_thread().name)
        if rank is None:
            return False
        *whole, self._begun[stream, rank] = (self._begun.get((stream, rank), "") + text).split("\n")
        self._lines.extend((stream, rank, line) for line in whole)
        return True


class _Stream(io.TextIOBase):
    """A stream that asks first whether a rank prints."""

    def __init__(self, output: RankOutput, stream: TextIO) -> None:
        self._output, self._stream = output, stream

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not self._output.keep(self._stream, text):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
