"""Large blocks of memory, which the C library would keep for later."""

from __future__ import annotations

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGE = -1, -3, 2**17  # bytes: what is larger is a block of its own


def return_large_blocks() -> None:
    """Let them go back to the system when they are freed, and what is free now at once.

    Of a process whose memory is measured the high-water mark tells nothing else: and a block that found its place in
    what the process that it was forked from had free would not count. A process that grades stays small.
    """
    with contextlib.suppress(OSError, AttributeError):  # no mallopt: not the GNU C library
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE)
        libc.malloc_trim(0)
