"""Whether the grader's judgement of memory tells a right answer, a half-right one and a wrong one apart.

    python benchmarks/memory_judging.py [--runs 20]

Each differentiates a chain of 24 layers, 8 MiB each, in the sandbox, where the kernel's high-water mark is read as in
grading. The right one keeps the x of every sixth layer and computes the others again, the half-right one every
twelfth; the wrong one keeps all. Beside it stands the same with malloc as it comes: the sandbox leaves it so for an
exercise that measures nothing. All six take turns, each run in a process of its own; after five runs the warm process,
whose heap they inherit, is another one.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from measuring import machine, table
from rich.console import Console
from rich.table import Table

from autograder.sandbox import Runner, open_runner
from course import exercises
from course.performing.cells import CodeCell
from course.performing.exercise import PUBLIC_SEED, Exercise

MIB = 2**20
LAYERS, NUMBERS = 24, 2**21  # of float32
EVERY = {"right": 6, "half-right": 12, "wrong": LAYERS}
EXERCISES = {"as graded": "hvp", "as it comes": "running_mean"}  # the first is one that measures memory
FRESH = 5  # runs with one warm process

ANSWER = """
import torch

SIZES = [{numbers}, 64]  # of the second call, which is measured, and of the first

def {name}(*given):
    kept = [torch.full((SIZES.pop(),), 0.5)]
    with torch.no_grad():
        for _ in range({layers} // {every} - 1):
            kept.append(kept[-1])
            for _ in range({every}):
                kept[-1] = kept[-1].tanh()
    dy = torch.ones_like(kept[-1])
    while kept:
        x = y = kept.pop().requires_grad_()
        for _ in range({every}):
            y = y.tanh()
        (dy,) = torch.autograd.grad(y, x, dy)
    return given[-1]
"""

Found = Mapping[str, Sequence[float]]  # MiB of each run, by answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each answer")
    given = parser.parse_args()
    console = Console(width=130)
    console.print(f"{machine()}; load {os.getloadavg()[0]:.1f} at the start")
    found = measure(given.runs)
    console.print(shown(found))
    for title, peaks in found.items():
        console.print(f"{title}: {apart(list(peaks.values()))}")


def measure(runs: int) -> Mapping[str, Found]:
    """By malloc's settings, the peaks of each answer."""
    found: dict[str, dict[str, list[float]]] = {title: defaultdict(list) for title in EXERCISES}
    for done in range(0, runs, FRESH):
        with open_runner(display=False) as runner:
            for _ in range(min(FRESH, runs - done)):
                for answer, every in EVERY.items():
                    for title, name in EXERCISES.items():
                        found[title][answer].append(peak(runner, exercises.load(name), every) / MIB)
    return found


def peak(runner: Runner, exercise: Exercise, every: int) -> int:
    """Bytes at the highest, of one run in a new process. Raises RuntimeError where it fails."""
    source = ANSWER.format(name=exercise.name, layers=LAYERS, numbers=NUMBERS, every=every)
    drawn = exercise.draw(PUBLIC_SEED)
    case = next((each for each in drawn if each.name in exercise.measured), drawn[0])
    with runner.session([CodeCell(source=source, answers=exercise.name)]) as session:
        # A small call first: the pages of torch's libraries that it touches would count, as in no case but the first.
        _, seen = session.perform(dataclasses.replace(exercise, measured=(case.name,)), [case, case])
    if seen.error is not None:
        raise RuntimeError(f"an answer must run to its end, but {seen.error}")
    return int(seen.ledger["peak_bytes"])


def shown(found: Mapping[str, Found]) -> Table:
    """Least, median and greatest of each answer."""
    made = table("memory at its highest, MiB", "malloc, and answer", "least", "median", "greatest")
    for title, by_answer in found.items():
        for answer, peaks in by_answer.items():
            made.add_row(f"{title}, {answer}", *(f"{of(peaks):.1f}" for of in (min, statistics.median, max)))
    return made


def apart(found: Sequence[Sequence[float]]) -> str:
    """Whether each range lies above the one before it, and how far."""
    gap = min(min(above) - max(below) for below, above in pairwise(found))
    if gap <= 0:
        return "the ranges are not disjoint, or in another order than the answers"
    spread = max(max(each) - min(each) for each in found)
    return f"the ranges are disjoint: {gap:.1f} MiB apart, {gap / spread:.1f} times the largest spread ({spread:.1f})"


if __name__ == "__main__":
    main()
