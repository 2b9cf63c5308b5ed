"""What judge processes need, imported once by the process that they are forked from."""

from __future__ import annotations

from autograder.start import quick_imports

with quick_imports():
    import autograder.engine.judging  # noqa: F401
