"""The last line of `make test`: how long it took, how long it may take, and what this machine left out.

    python -m tools.ending SECONDS FILE    # since 1970, when it began; what was written when all was installed

The time rule: on two quiet cores, with everything installed, FIXED seconds and EACH for every exercise of the syllabus,
at most MOST. A busy or slower machine takes longer, so nothing fails here; whoever sees the rule broken on a quiet one
makes the slowest tests quicker.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from course.syllabus import UNITS
from tools import system

FIXED, EACH, MOST = 350, 6, 900


def allowed(exercises: int) -> int:
    """Seconds that `make test` may take on two quiet cores."""
    return min(FIXED + EACH * exercises, MOST)


def last_line(seconds: float, installing: float, exercises: int, left_out: str) -> str:
    """One line for whoever looks at the end only."""
    done = f"== all tests passed in {seconds:.0f} s (the rule for two quiet cores: {allowed(exercises)} s)"
    after = f", after {installing:.0f} s in which their tools were installed" if installing else ""
    return f"{done}{after}, but {left_out}" if left_out else done + after


def main(began: float, installed: Path) -> None:
    """Print the line."""
    installing = max(0.0, installed.stat().st_mtime - began)
    needs = system.missing(system.MARKERS)
    exercises = sum(len(unit.entries) for unit in UNITS)
    print(last_line(time.time() - began - installing, installing, exercises, system.sentence(needs) if needs else ""))


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
