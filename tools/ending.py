"""The last line of `make test`: how long it took, how long it may take, and what this machine left out.

    python -m tools.ending SECONDS FILE    # since 1970, when it began; what was written when all was installed

The time rule: on two quiet cores, with everything installed, FIXED seconds and EACH for every exercise of the syllabus,
at most MOST, where torch is imported in IMPORT seconds of processor time. On other machines it is as much more or
less as that import takes there, measured when all tests have passed. A busy machine takes longer, so nothing fails
here; whoever sees the rule broken on a quiet one makes the slowest tests quicker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from course.syllabus import UNITS
from tools import system

FIXED, EACH, MOST = 350, 6, 900
IMPORT = 0.93  # of the machine for which the rule was made


def allowed(exercises: int, torch: float = IMPORT) -> int:
    """Seconds that `make test` may take on two quiet cores that import torch in so many."""
    return round(min(FIXED + EACH * exercises, MOST) * torch / IMPORT)


def import_of_torch() -> float:
    """Seconds of processor time, the less of two."""

    def once() -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])

    return min(once(), once())


def last_line(seconds: float, installing: float, exercises: int, left_out: str, torch: float = IMPORT) -> str:
    """One line for whoever looks at the end only."""
    rule = f"the rule for two quiet cores that import torch in {torch:.2f} s: {allowed(exercises, torch)} s"
    done = f"== all tests passed in {seconds:.0f} s ({rule})"
    after = f", after {installing:.0f} s in which their tools were installed" if installing else ""
    return f"{done}{after}, but {left_out}" if left_out else done + after


def main(began: float, installed: Path) -> None:
    """Print the line."""
    installing = max(0.0, installed.stat().st_mtime - began)
    seconds, needs = time.time() - began - installing, system.missing(system.MARKERS)
    exercises = sum(len(unit.entries) for unit in UNITS)
    left_out = system.sentence(needs) if needs else ""
    print(last_line(seconds, installing, exercises, left_out, import_of_torch()))


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
