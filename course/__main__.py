"""`python -m course`: the same as the command `course`."""

from __future__ import annotations

from course.cli import main

main()
