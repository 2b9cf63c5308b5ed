"""`course lab | check | hint | progress | doctor`: what a student runs in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from course.errors import CourseError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The course, from a terminal.")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(context: typer.Context) -> None:
    """Open JupyterLab on the start page; further arguments go to JupyterLab."""
    from course.notebook import lab as launcher

    raise typer.Exit(launcher.run(context.args))


@app.command()
def check(
    notebook: Path,
    exercise: Annotated[list[str] | None, typer.Argument(help="names of exercises; all if left out")] = None,
) -> None:
    """Check the answers of a notebook. Exit 1 where one lacks points."""
    from course.notebook.check import check as judge
    from course.notebook.from_file import answers
    from course.syllabus import find_entry

    wanted = {find_entry(name).name for name in exercise or ()}
    held = answers(notebook)
    found = {name: loaded for name, loaded in held.items() if not wanted or name in wanted}
    full = len(found) == len(wanted or found)
    for name in sorted(wanted - found.keys()):
        typer.echo(f"{name}: it must be in the notebook, whose exercises are {', '.join(held)}; check another notebook")
    for name, loaded in found.items():
        if loaded.failure:
            typer.echo(f"{name}: cannot be loaded, {loaded.failure.type}: {loaded.failure.message}")
            full = False
        else:
            verdict = judge(loaded.answer).verdict
            full = full and verdict.points == verdict.possible
    raise typer.Exit(0 if full else 1)


@app.command()
def hint(
    exercise: str,
    step: Annotated[int | None, typer.Option(min=1, max=3, help="which of the three; the next one if left out")] = None,
) -> None:
    """Show the next hint for an exercise."""
    from course.notebook.check import hint as show

    typer.echo(repr(show(exercise, step)))


@app.command()
def progress() -> None:
    """Show what you have reached."""
    from course.notebook.check import progress as show

    typer.echo(repr(show()))


@app.command()
def doctor() -> None:
    """Say what works on this machine, and what to do about the rest."""
    from course.notebook import doctor as examination

    findings = examination.examine()
    typer.echo(examination.to_text(findings))
    raise typer.Exit(0 if all(each.good for each in findings if each.needed) else 1)


def main() -> None:
    """Run the command; an error of the course, and one of the disk, is one sentence and exit code 2."""
    try:
        app()
    except (CourseError, OSError) as error:
        typer.echo(f"course: {error}", err=True)
        raise SystemExit(2) from None
