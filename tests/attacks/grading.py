"""Handing an attack in, grading it and the student after it, and what must hold then."""

from __future__ import annotations

import json
import time
from html.parser import HTMLParser
from pathlib import Path

from nbformat import NotebookNode

from attacks import lesson
from attacks.attack import Attack
from attacks.lesson import ASSIGNMENT, FILE
from attacks.markup import ALARM
from attacks.scene import Scene
from autograder.engine.grade import Graded, Submission, grade
from autograder.engine.record import show
from autograder.sandbox import Runner
from course.notebook.report import to_html

LARGEST = 12 * 2**20  # bytes of a graded notebook, which are a limit on outputs and what the student wrote


def hand_in(scene: Scene, student: str, attack: Attack | None) -> Path:
    """The file of a student: the attack, or the solved lesson."""
    folder = scene.folder / "submitted" / student / ASSIGNMENT
    if folder.is_symlink():
        folder.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(attack.make(scene.places) if attack else lesson.to_bytes(lesson.solved()))
    if attack and attack.beside:
        attack.beside(folder, scene.places)
    return folder / FILE


def graded(scene: Scene, runner: Runner, student: str, attack: Attack | None, *, display: bool) -> Graded:
    """One submission through the engine."""
    submission = Submission(student=student, path=hand_in(scene, student, attack))
    return grade(submission, lesson.release(), runner, display=display)


def points(result: Graded) -> dict[str, int]:
    """Points by exercise name."""
    return {verdict.exercise.partition(".")[2]: verdict.points for verdict in result.verdicts}


def dishonest(attack: Attack, result: Graded) -> dict[str, tuple[int, int]]:
    """(points that came, honest points) of each exercise where they differ."""
    pairs = {name: (came, attack.expected()[name]) for name, came in points(result).items()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def everything(result: Graded, notebook: NotebookNode) -> str:
    """All text that a student or a teacher gets to see of a result."""
    pages = "".join(to_html(verdict) for verdict in result.verdicts)
    told = repr((result.verdicts, result.repairs, result.problem, result.failed))
    return json.dumps(notebook, ensure_ascii=False) + pages + told


def problems(scene: Scene, attack: Attack, runner: Runner) -> list[str]:
    """What does not hold of an attack and the student after it; nothing where all does."""
    for _ in range(attack.times):
        attacker = graded(scene, runner, "attacker", attack, display=attack.display)
    after = graded(scene, runner, "next", None, display=attack.display)
    time.sleep(attack.wait)
    notebook, clean = show(attacker), show(after)
    wrong = dishonest(attack, attacker)
    found = scene.traces(everything(attacker, notebook) + everything(after, clean))
    found += [f"the score is dishonest (came, honest): {wrong}"] * bool(wrong)
    found += [f"grading broke: {attacker.failed}"] * bool(attacker.failed)
    found += ["the next student did not get what is honest"] * (points(after) != lesson.honest())
    found += ["the graded notebook is too large"] * (len(json.dumps(notebook)) > LARGEST)
    return found + [f"alive: {each}" for each in alive(notebook)]


def traces(scene: Scene, attack: Attack, runner: Runner) -> list[str]:
    """What an attack did outside, or got to know."""
    for _ in range(attack.times):
        attacker = graded(scene, runner, "attacker", attack, display=attack.display)
    return scene.traces(everything(attacker, show(attacker)))


# --- what a browser would run ------------------------------------------------------------------------


class Alarms(HTMLParser):
    """Places of a page where the alarm stands as a script, a handler or an address."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A handler, or an address that is a script."""
        self._inside = tag if tag in ("script", "style") else self._inside
        live = [name for name, value in attrs if ALARM in (value or "") and name not in ("title", "alt", "value")]
        self.found += [f"<{tag} {name}>" for name in live]

    def handle_endtag(self, tag: str) -> None:
        """The end of a script."""
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        """Text, harmless unless it stands in a script."""
        if self._inside and ALARM in data:
            self.found.append(f"<{self._inside}>")


def alive(notebook: NotebookNode) -> list[str]:
    """Places of a notebook where a viewer would run the alarm."""
    found = ["widget state"] if ALARM in json.dumps(notebook.metadata) else []
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and any(
            ALARM in line and not line.startswith("    ") for line in cell.source.splitlines()
        ):
            found.append(f"text {cell.id}")
        found += [f"metadata of {cell.id}"] * (
            ALARM in json.dumps(cell.metadata) and "verdict" not in str(cell.metadata)
        )
        for output in cell.get("outputs", []):
            for kind, data in output.get("data", {}).items():
                found += _in_output(kind, data if isinstance(data, str) else json.dumps(data))
    return found


def _in_output(kind: str, data: str) -> list[str]:
    if ALARM not in data or kind == "text/plain":
        return []
    return Alarms(data).found if kind in ("text/html", "image/svg+xml") else [kind]
