"""`python -m autograder`: the same as the command `autograder`."""

from __future__ import annotations

from autograder.cli import main

main()
