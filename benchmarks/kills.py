"""SIGKILL for the grading process at random moments; the run that takes it up must end as an undisturbed one.

    autograder build; python benchmarks/kills.py [--kills 20] [--count 12] [--seed N]

Each time the same class of mixed submissions is graded on the same cases, by one judge and by two in turn. Compared are
the results of all students and the comments of the gradebook; and no process and no temporary file may be left. Exit 1
where anything differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import classes
from measuring import LEAVING_SECONDS, POLL_SECONDS, descendants, environment, machine, table
from rich.console import Console

from autograder.nbgrader_bridge import results

DRAWN = 5  # the seed of all cases
RUN_SECONDS = 600.0  # at most
COMMENTS = """
    select student.id, base_cell.name, comment.auto_comment from comment
    join submitted_notebook on comment.notebook_id = submitted_notebook.id
    join submitted_assignment on submitted_notebook.assignment_id = submitted_assignment.id
    join student on submitted_assignment.student_id = student.id
    join base_cell on comment.cell_id = base_cell.id
    order by student.id, base_cell.name
"""


def grades(root: Path) -> tuple[list[Any], list[Any]]:
    """What a run decides: every student's result, but for its seconds, and every comment."""
    found = [dataclasses.replace(each, seconds=0.0) for each in results(root, classes.LESSON).students]
    with closing(sqlite3.connect(root / "gradebook.db")) as book:
        return found, book.execute(COMMENTS).fetchall()


def grade(root: Path, jobs: int, kill_after: float = RUN_SECONDS) -> int:
    """Grade, and kill the process (not those below it) after so many seconds. Returns how many processes stayed."""
    command = classes.command(root, display=False, jobs=jobs, seed=DRAWN)
    process = subprocess.Popen(command, cwd=root, env=environment(), stdout=subprocess.DEVNULL)
    deadline, below = time.monotonic() + kill_after, set[int]()
    while process.poll() is None and time.monotonic() < deadline:
        below |= set(descendants(process.pid))
        time.sleep(POLL_SECONDS)
    below |= set(descendants(process.pid))
    process.kill()
    process.wait()
    deadline = time.monotonic() + LEAVING_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return sum(Path(f"/proc/{pid}").exists() for pid in below)


def trial(root: Path, given: Mapping[str, bytes], jobs: int, kill_after: float) -> tuple[int, int]:
    """Grade, kill, take up. Returns how many submissions were recorded at the kill, and how many processes stayed."""
    classes.make(root, given)
    stayed = grade(root, jobs, kill_after)
    recorded = len(list((root / "autograded").rglob("*.ipynb")))
    return recorded, stayed + grade(root, jobs)


def main() -> None:
    """Kill, compare, print; exit 1 where anything differs or stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many runs are killed")
    parser.add_argument("--count", type=int, default=12, help="submissions")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the moments")
    given = parser.parse_args()
    console, moments = Console(width=110), random.Random(given.seed)
    console.print(machine())
    handed_in = {f"s{number:03d}": data for number, data in enumerate(classes.mixed(classes.samples(), given.count))}
    made = table(
        f"{given.kills} runs with {given.count} submissions, killed at moments drawn from seed {given.seed}",
        *("jobs", "killed after, s", "recorded by then", "processes that stayed", "files that stayed", "grades"),
    )
    bad = 0
    with tempfile.TemporaryDirectory(prefix="hpml-kills-") as folder:
        root, temporary = Path(folder) / "build", Path(folder) / "tmp"
        temporary.mkdir()
        environment()["TMPDIR"] = str(temporary)
        classes.make(root, handed_in)
        began = time.monotonic()
        grade(root, 1)
        whole, wanted = time.monotonic() - began, grades(root)
        for number in range(given.kills):
            jobs, after = 1 + number % 2, moments.uniform(0.1, 1.0) * whole
            recorded, stayed = trial(root, handed_in, jobs, after)
            same, files = grades(root) == wanted, len(list(temporary.iterdir()))
            made.add_row(
                *(str(jobs), f"{after:.1f}", str(recorded), str(stayed), str(files)), "same" if same else "DIFFER"
            )
            bad += stayed > 0 or files > 0 or not same
    console.print(made)
    console.print(f"undisturbed: {whole:.1f} s; {bad} of {given.kills} runs ended otherwise")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
