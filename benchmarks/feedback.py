"""How long people wait: from `check(...)` to its result, for imports, for the proof of unit 01 and for lesson 01.

    autograder build; python benchmarks/feedback.py [--repeats 7]

Prints one table per question, with the machine. Ratios are taken within this run. Imports run in fresh processes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table


def seconds(function: Callable[[], object], repeats: int) -> list[float]:
    """Wall seconds of each call."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            function()
        taken.append(time.perf_counter() - started)
    return taken


def process_seconds(code: str, repeats: int) -> float:
    """Median wall seconds of a fresh interpreter that runs `code`."""
    run = functools.partial(subprocess.run, [sys.executable, "-c", code], check=True)
    return statistics.median(seconds(run, repeats))


def checks(repeats: int) -> Table:
    """Median and worst time of a check, for the reference (nothing failed) and the slowest wrong answer."""
    from autograder import bank as banks
    from course.notebook.check import check
    from course.syllabus import entries

    table = Table(title=f"check(answer), milliseconds over {repeats} runs")
    for column in ("exercise", "right: median", "right: worst", "slowest wrong: median"):
        table.add_column(column, justify="left" if column == "exercise" else "right")
    for entry in entries():
        bank = banks.load(entry.id)
        right = seconds(functools.partial(check, bank.reference), repeats)
        wrong = 0.0
        for each in bank.misconceptions:
            for witness in each.witnesses:
                witness.__name__ = entry.name  # found by its name, like a student's
                wrong = max(wrong, statistics.median(seconds(functools.partial(check, witness), repeats)))
        row = (statistics.median(right), max(right), wrong)
        table.add_row(entry.id, *[f"{1000 * value:.0f}" for value in row])
    return table


def imports(repeats: int) -> Table:
    """`import course` beside `import torch`, both in fresh processes."""
    table = Table(title="imports, seconds (median)")
    for column in ("import torch", "import course", "difference"):
        table.add_column(column, justify="right")
    torch_alone = process_seconds("import torch", repeats)
    course = process_seconds("import course", repeats)
    table.add_row(f"{torch_alone:.2f}", f"{course:.2f}", f"{course - torch_alone:.2f}")
    return table


def whole_runs() -> Table:
    """The proof of unit 01 and the solved lesson 01, each in fresh processes."""
    prove = [sys.executable, "-m", "autograder", "prove", "computational_graphs", "--seeds", "3"]
    lesson = "build/source/01_computational_graphs/01_computational_graphs.ipynb"
    execute = f"import nbclient, nbformat; nbclient.execute(nbformat.read({lesson!r}, 4))"
    table = Table(title="whole runs, wall seconds")
    table.add_column("what")
    table.add_column("seconds", justify="right")
    for name, command in (
        ("autograder prove computational_graphs --seeds 3", prove),
        ("the solved lesson 01, every cell", [sys.executable, "-c", execute]),
    ):
        (taken,) = seconds(functools.partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL), 1)
        table.add_row(name, f"{taken:.1f}")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="hpml-benchmark-")  # not into the user's progress
    console = Console(width=110)
    console.print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for table in (imports(repeats), checks(repeats), whole_runs()):
        console.print(table)


if __name__ == "__main__":
    main()
