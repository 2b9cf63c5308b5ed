"""Numbers that the prose of lesson 04 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations
