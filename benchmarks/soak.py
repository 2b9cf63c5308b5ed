"""A long run: thousands of sample and hostile submissions to lesson 01, of which none may be lost and nothing may grow.

    autograder build; python benchmarks/soak.py [--count 2000] [--hostile 10] [--busy 0] [--jobs 2] [--no-display]

Every tenth submission (`--hostile`) is an attack of tests/attacks, the others are those of the sample class. Afterwards
every student must have a result that is no failure of grading, and who handed in the same file the same points; what
grew is told: the coordinator's memory and open files, the processes below it, temporary files, mounts. Exit 1 where
something was lost, differs or was left behind, or where a process that reads submissions took more than BOUND.

    python benchmarks/soak.py --count 500 --solved --busy 3 [--trusted]

looks for points that right answers lose where others keep the processors busy: loops beside it that only compute.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import classes
from measuring import ROOT, Cost, children, descendants, environment, machine, peak_bytes, resident_bytes, run, table
from rich.console import Console
from rich.table import Table

from autograder.nbgrader_bridge import results

MIB = 2**20
HOSTILE = "attack_"  # begins the ids of who attacks, after their number
BOUND = 600 * MIB  # of memory, whatever is handed in: the coordinator, and judges where there are several


@dataclass(frozen=True)
class Sample:
    """The coordinator at one moment: resident bytes, open files, processes below it; and the most that it or a child of
    its had taken so far.
    """

    resident: int
    highest: int
    files: int
    processes: int


class Watch:
    """Samples of the coordinator, from its start to its end."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def look(self, pid: int) -> None:
        """One more sample; none where the process is just ending."""
        try:
            files = len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return
        below = descendants(pid)
        highest = max(map(peak_bytes, (pid, *children(pid))))
        self.samples.append(Sample(resident_bytes(pid), highest, files, len(below)))

    def most(self, begin: float, end: float) -> Sample:
        """The highest values between two fractions of the run."""
        part = self.samples[int(begin * len(self.samples)) : int(end * len(self.samples))]
        return Sample(*(max(getattr(each, name) for each in part) for name in Sample.__annotations__))


@dataclass(frozen=True)
class Left:
    """What a run may leave on the machine: paths below the folder for temporary files, and mounts."""

    temporary: frozenset[str]
    mounts: int

    @classmethod
    def count(cls, temporary: Path) -> Left:
        """What is there now."""
        paths = frozenset(str(path.relative_to(temporary)) for path in temporary.rglob("*"))
        return cls(paths, len(Path("/proc/self/mountinfo").read_text().splitlines()))


def submissions(count: int, hostile: int, *, solved: bool) -> dict[str, bytes]:
    """By student, whose id says what it is."""
    kinds = classes.samples()
    usual = [("solved", kinds["solved"])] if solved else list(kinds.items())
    attacks = [(f"{HOSTILE}{name}", data) for name, data in _attacks()] if not solved else []
    made = {}
    for number in range(count):
        turn, rest = divmod(number, hostile)
        hit = attacks and rest == 0
        name, data = attacks[turn % len(attacks)] if hit else usual[(number - turn) % len(usual)]
        made[f"s{number:05d}_{name}"] = _numbered(data, number) if hit else data
    return made


def _attacks() -> list[tuple[str, bytes]]:
    """Name and file of each attack of the tests that fits into a soak."""
    sys.path.insert(0, str(ROOT / "tests"))
    from attacks import notebooks  # type: ignore[import-not-found,unused-ignore]

    found: list[tuple[str, bytes]] = notebooks()
    return found


def _numbered(data: bytes, number: int) -> bytes:
    """The same notebook with a number in each cell but magics, so that nothing of it was there before."""
    return re.sub(rb'"source": "(?!%%)', rb"\g<0>#%d\\n" % number, data)


def lost(root: Path, given: Mapping[str, bytes]) -> dict[str, str]:
    """By student: why there is no result."""
    found = {each.student: each.failed for each in results(root, classes.LESSON).students}
    return {student: found.get(student, "not recorded") for student in given if found.get(student, "not recorded")}


def unlike(root: Path) -> list[str]:
    """What is no attack, and has not the same points whoever hands it in."""
    points: dict[str, Counter[float]] = {}
    for each in results(root, classes.LESSON).students:
        kind = each.student.partition("_")[2]
        if not kind.startswith(HOSTILE):
            points.setdefault(kind, Counter())[each.score] += 1
    return [f"{kind}: {dict(found)}" for kind, found in points.items() if len(found) > 1]


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that only compute."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def growth(watch: Watch, before: Left, after: Left, cost: Cost) -> Table:
    """Early and late in the run, and what is left behind."""
    made = table("what grew", "what", "early (10% to 30%)", "late (80% to 100%)")
    early, late = watch.most(0.1, 0.3), watch.most(0.8, 1.0)
    made.add_row("coordinator's memory, MiB", f"{early.resident / MIB:.0f}", f"{late.resident / MIB:.0f}")
    highest = f"{watch.most(0.0, 1.0).highest / MIB:.0f}"
    made.add_row("most of it or a judge, at any time, MiB", "", highest)
    made.add_row("coordinator's open files", str(early.files), str(late.files))
    made.add_row("processes below it, at most", str(early.processes), str(late.processes))
    made.add_section()
    made.add_row("", "before", "after")
    made.add_row("temporary files", str(len(before.temporary)), str(len(after.temporary)))
    made.add_row("mounts", str(before.mounts), str(after.mounts))
    made.add_row("processes left behind", "0", str(cost.left))
    return made


def main() -> None:
    """Grade, count, print; exit 1 where something was lost or left behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="submissions")
    parser.add_argument("--hostile", type=int, default=10, help="every how many-th is an attack")
    parser.add_argument("--solved", action="store_true", help="the worked solutions only, and no attack")
    parser.add_argument("--busy", type=int, default=0, help="loops beside it that only compute")
    parser.add_argument("--trusted", action="store_true", help="without walls: with --solved only")
    parser.add_argument("--jobs", type=int, default=2, help="judge processes")
    parser.add_argument("--display", action=argparse.BooleanOptionalAction, default=True, help="with the display run")
    given = parser.parse_args()
    if given.trusted and not given.solved:
        parser.error("attacks must not run without walls: give --solved as well")
    console = Console(width=110)
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="hpml-soak-") as folder:
        root, temporary = Path(folder) / "build", Path(folder) / "tmp"
        temporary.mkdir()
        environment()["TMPDIR"] = str(temporary)
        handed_in = submissions(given.count, given.hostile, solved=given.solved)
        classes.make(root, handed_in)
        watch, before = Watch(), Left.count(temporary)
        command = classes.command(root, display=given.display, jobs=given.jobs, trusted=given.trusted)
        with busy(given.busy):
            cost = run(command, cwd=Path(folder), watch=watch.look, every=1.0)
        after, missing, differing = Left.count(temporary), lost(root, handed_in), unlike(root)
        console.print(f"{given.count} submissions in {cost.wall:.0f} s, {cost.cpu / given.count:.2f} CPU seconds each")
        console.print(growth(watch, before, after, cost))
    for path in sorted(after.temporary - before.temporary):
        console.print(f"LEFT {path}", markup=False)
    for reason, number in Counter(missing.values()).most_common():
        console.print(f"LOST {number}: {reason}", markup=False)
    for kind in differing:
        console.print(f"DIFFERS {kind}", markup=False)
    above = max(watch.most(0.0, 1.0).highest, cost.peak) > BOUND
    if above:
        console.print(f"ABOVE {BOUND // MIB} MiB", markup=False)
    sys.exit(1 if missing or differing or above or after != before or cost.left else 0)


if __name__ == "__main__":
    main()
