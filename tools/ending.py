"""The last line of `make test`: how long it took, how long it may take, and what this machine left out.

    python -m tools.ending SECONDS     # since 1970, when it began

The time rule: on two quiet cores, FIXED seconds and EACH for every exercise of the syllabus, at most MOST. A busy or
slower machine takes longer, so nothing fails here; whoever sees the rule broken on a quiet one makes the slowest tests
quicker.
"""

from __future__ import annotations

import sys
import time

from course.syllabus import UNITS
from tools import system

FIXED, EACH, MOST = 350, 6, 900


def allowed(exercises: int) -> int:
    """Seconds that `make test` may take on two quiet cores."""
    return min(FIXED + EACH * exercises, MOST)


def last_line(seconds: float, exercises: int, left_out: str) -> str:
    """One line for whoever looks at the end only."""
    done = f"== all tests passed in {seconds:.0f} s (the rule for two quiet cores: {allowed(exercises)} s)"
    return f"{done}, but {left_out}" if left_out else done


def main(began: float) -> None:
    """Print the line."""
    needs = system.missing(system.MARKERS)
    exercises = sum(len(unit.entries) for unit in UNITS)
    print(last_line(time.time() - began, exercises, system.sentence(needs) if needs else ""))


if __name__ == "__main__":
    main(float(sys.argv[1]))
