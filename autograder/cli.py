"""`autograder prove | build | release | grade | report | demo | doctor`: what an author and an instructor run.

Commands import what they alone need: to read and write notebooks takes a second to import.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from course.errors import CourseError
from course.syllabus import entries, find_entries, find_unit

if TYPE_CHECKING:
    from autograder.engine.results import ClassResult
    from autograder.nbgrader_bridge import How
    from autograder.prove import Proof

JOBS = min(2, os.cpu_count() or 1)  # judges where nobody says how many: each keeps one core busy

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Prove, build, release and grade the course.")


@app.command()
def prove(
    what: Annotated[list[str] | None, typer.Argument(help="units and exercises; all if left out")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="seeds per exercise, the public one included")] = 20,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**64 - 1, help="draws the fresh seeds; random if left out")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="processes that share the exercises")] = os.cpu_count() or 1,
    right: Annotated[
        bool, typer.Option("--right", help="only that right answers pass: for thousands of seeds")
    ] = False,
    root: Annotated[Path, typer.Option(help="the checkout")] = Path(),
) -> None:
    """Prove the grader: right answers pass, wrong ones are caught and named. Exit 1 on any miss."""
    from autograder import prove as prover

    rng = torch.Generator()
    rng.manual_seed(rng.seed() if seed is None else seed)
    drawn = prover.seeds(seeds, rng)
    names = [entry.id for name in what for entry in find_entries(name)] if what else [each.id for each in entries()]
    proofs = []
    for proof in prover.prove_all(names, drawn, root=root.resolve(), jobs=jobs, right=right):
        proofs.append(proof)
        _tell_proof(proof)
    _print_proofs(proofs, drawn)
    raise typer.Exit(1 if any(proof.misses for proof in proofs) else 0)


@app.command()
def build(
    lesson: Annotated[str, typer.Argument(help="one lesson, such as 01_computational_graphs")] = "*",
    *,
    check: Annotated[
        bool, typer.Option("--check", help="leave committed files alone; exit 1 where one differs")
    ] = False,
    sheets: Annotated[bool, typer.Option(help="record answer sheets, too, which takes most of the time")] = True,
    root: Annotated[Path, typer.Option(help="the checkout")] = Path(),
) -> None:
    """Make notebooks, nbgrader's trees and answer sheets from solutions/."""
    from autograder import release as building

    made = building.build(root.resolve(), lesson, check=check, with_sheets=sheets)
    for name in made.written:
        typer.echo(f"wrote {name}")
    for sentence in made.differing:
        typer.echo(f"differs: {sentence}")
    typer.echo(f"{len(made.lessons)} lessons: {', '.join(made.lessons)}")
    raise typer.Exit(1 if made.differing else 0)


@app.command()
def release(
    to: Annotated[Path, typer.Option(help="folder of the bundle; new, empty or an earlier bundle")],
    root: Annotated[Path, typer.Option(help="the checkout")] = Path(),
) -> None:
    """Write the student bundle: notebooks, the course without its references, environment files."""
    from autograder import release as building

    building.release(to, root=root.resolve())
    typer.echo(f"the student bundle lies in {to}")


@app.command()
def grade(
    assignment: Annotated[str, typer.Option(help="name of the lesson, such as 01_computational_graphs")],
    student: Annotated[list[str] | None, typer.Option(help="ids to grade; all who handed in if left out")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="processes that judge, each with a sandbox of its own")] = JOBS,
    seed: Annotated[
        int | None, typer.Option(min=0, help="the same cases for everyone; secret ones if left out")
    ] = None,
    same_seeds: Annotated[
        bool, typer.Option("--same-seeds", help="each unchanged file's cases as they were last time")
    ] = False,
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--fresh",
            help="go on with the last run: only who is new, changed or failed; or begin anew. "
            "If left out, a run that did not end is taken up, and else a new one begins",
        ),
    ] = None,
    display: Annotated[bool, typer.Option(help="run what students wrote once more, for people to look at")] = True,
    trust_submissions: Annotated[
        bool, typer.Option("--trust-submissions", help="run students' code as yourself, without a sandbox")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="name=number, seconds with s or min, bytes with KiB, MiB or GiB: load_seconds, spare_seconds, "
            "submission_seconds, display_seconds, memory, tasks, file, scratch, files, open_files or output of one "
            "submission; may be given several times"
        ),
    ] = None,
    root: Annotated[Path, typer.Option(help="folder of source, release, submitted")] = Path("build"),
) -> None:
    """Grade nbgrader's submitted/ tree: scores, comments, feedback, grades.csv and report.html.

    Exit 1 if a submission could not be graded or recorded, 130 after Ctrl-C, 143 after SIGTERM.
    """
    from autograder import nbgrader_bridge as bridge
    from autograder.sandbox import Limits

    if same_seeds and seed is not None:
        raise typer.BadParameter("--seed and --same-seeds exclude each other")
    how = bridge.How(
        jobs=jobs,
        trusted=trust_submissions,
        display=display,
        limits=Limits.parse(limit or []),
        resume=resume,
        repeat=same_seeds,
    )
    _grade(root.resolve(), find_unit(assignment).notebook, students=student, seed=seed, how=how)


@app.command()
def report(
    assignment: Annotated[str, typer.Option(help="name of the lesson")],
    root: Annotated[Path, typer.Option(help="folder of the gradebook")] = Path("build"),
) -> None:
    """Print the class table and write report.html from what the gradebook holds now."""
    from autograder import nbgrader_bridge as bridge

    _report(root.resolve(), bridge.results(root.resolve(), find_unit(assignment).notebook))


@app.command()
def demo(
    assignment: Annotated[str, typer.Option(help="name of the lesson")] = "01_computational_graphs",
    everyone: Annotated[bool, typer.Option("--all", help="a student for each known misconception")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="processes that judge")] = JOBS,
    trust_submissions: Annotated[
        bool, typer.Option("--trust-submissions", help="run students' code as yourself, without a sandbox")
    ] = False,
    root: Annotated[Path, typer.Option(help="the checkout")] = Path(),
) -> None:
    """Make a class of sample submissions and grade it, from end to end."""
    from autograder import classroom
    from autograder import nbgrader_bridge as bridge
    from autograder import release as building

    folder, name = root.resolve() / "build", find_unit(assignment).notebook
    building.build(root.resolve(), name, with_sheets=False)
    students = classroom.make(folder, name, everyone=everyone)
    typer.echo(f"{len(students)} sample submissions to {name} lie in {folder / 'submitted'}")
    _grade(folder, name, students=students, how=bridge.How(jobs=jobs, trusted=trust_submissions))


@app.command()
def doctor() -> None:
    """Say which protections of the sandbox are active here, tried from inside. Exit 1 where one is missing."""
    from autograder.sandbox.outside.doctor import protections

    table = Table(title="Protections")
    for column in ("protection", "active", "seen", "what to do"):
        table.add_column(column)
    found = protections()
    for each in found:
        table.add_row(each.name, "yes" if each.active else "NO", each.detail, "" if each.active else each.remedy)
    Console(width=max(Console().width, 110)).print(table)
    raise typer.Exit(0 if all(each.active for each in found) else 1)


def _grade(root: Path, assignment: str, *, students: Sequence[str] | None, seed: int | None = None, how: How) -> None:
    """Grade, tell each result as it comes, then report, export and feedback."""
    from autograder import nbgrader_bridge as bridge
    from autograder.report import ProgressReport

    try:
        with ProgressReport() as shown:
            watcher = bridge.Watcher(planned=shown.planned, told=shown.told, said=shown.said)
            result = bridge.grade(root, assignment, students, seed, how=how, watcher=watcher)
        _report(root, result)
        typer.echo(f"grades:   {bridge.export(root, assignment, root / 'grades.csv')}")
        typer.echo(f"feedback: {bridge.feedback(root, assignment)}")  # last: nothing waits for it
    except KeyboardInterrupt as asked:
        typer.echo("stopped; what is recorded stays, and the same command with --resume goes on from there", err=True)
        raise typer.Exit(128 + getattr(asked, "number", signal.SIGINT)) from None
    if any(student.failed for student in result.students):
        raise typer.Exit(1)


def _report(root: Path, result: ClassResult) -> None:
    from autograder import report as class_report

    class_report.show(result)
    typer.echo(f"report:   {class_report.write(result, root / 'report.html')}")


def _tell_proof(proof: Proof) -> None:
    """Lines on stderr, one for each miss and for what nearly is one: the tables come at the end, perhaps in hours."""
    found = len(proof.misses)
    typer.echo(f"{proof.exercise}: {proof.runs} runs, {found} miss{'' if found == 1 else 'es'}", err=True)
    for miss in (*proof.misses, *proof.near):
        typer.echo(f"  {miss}", err=True)


def _print_proofs(proofs: list[Proof], drawn: list[int]) -> None:
    console = Console(width=max(Console().width, 110))
    table = Table(title=f"Proof over {len(drawn)} seeds")
    for column in ("exercise", "points", "alternatives", "misconceptions", "runs", "misses"):
        table.add_column(column, justify="left" if column == "exercise" else "right")
    for proof in proofs:
        counts = (proof.points, proof.alternatives, proof.misconceptions, proof.runs, len(proof.misses))
        table.add_row(proof.exercise, *[str(count) for count in counts])
    console.print(table)
    console.print(_confusion(proofs))
    for proof in proofs:
        for miss in proof.misses:
            console.print(f"MISS {proof.exercise}: {miss}", style="bold red", markup=False)


def _confusion(proofs: list[Proof]) -> Table:
    """Rows: what was wrong; columns: how often it was diagnosed as itself, as another, or not at all."""
    table = Table(title="Confusion matrix (witness runs)")
    for column in ("exercise", "misconception", "as itself", "as another", "as nothing"):
        table.add_column(column, justify="right" if column.startswith("as ") else "left")
    for proof in proofs:
        for name in dict.fromkeys(wrong for wrong, _ in proof.confusion):
            row = {named: count for (wrong, named), count in proof.confusion.items() if wrong == name}
            others = {named: count for named, count in row.items() if named not in (name, "none")}
            told = ", ".join(f"{named}: {count}" for named, count in others.items()) or "0"
            table.add_row(proof.exercise.partition(".")[2], name, str(row.get(name, 0)), told, str(row.get("none", 0)))
    return table


def main() -> None:
    """Run the command; an error of the course, and one of the disk, is one sentence and exit code 2.

    A name that the terminal cannot show is shown in another way: it ends no batch.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    torch.set_num_threads(1)  # tiny tensors: a second thread only waits
    try:
        app()
    except (CourseError, OSError) as error:
        typer.echo(f"autograder: {error}", err=True)
        raise SystemExit(2) from None
