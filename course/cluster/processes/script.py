"""The caller's script, out of sight while multiprocessing starts a process: it would run the script again in there."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

_hiding = threading.Lock()


@contextlib.contextmanager
def hidden_script() -> Iterator[None]:
    """No script in `sys.modules["__main__"]`; one thread at a time, the others wait."""
    with _hiding:
        script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script
