"""How a process of the autograder starts: without what takes long in imports and is not needed."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """For the imports of a process of our own.

    Nobody searches for reference cycles meanwhile, a quarter of the time, nor later among what was imported. And
    jsonschema, which nbformat imports, does without the package that checks international addresses (the format
    "iri"): it takes 0.8 s, and no schema of a notebook has such a format.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
