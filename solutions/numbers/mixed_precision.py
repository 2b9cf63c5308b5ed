"""Numbers that the prose of lesson 03 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations
