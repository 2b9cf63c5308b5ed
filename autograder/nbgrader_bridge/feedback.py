"""What a feedback page shows, in its order: a plain view of a graded notebook, for the template.

graded notebook --view--> summary, an exercise a row; blocks of cells: the student's own, and folded the lesson's
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nbformat import NotebookNode

from autograder.engine.cells import role_of
from autograder.engine.grade import Graded
from autograder.engine.record import read_back
from autograder.nbgrader_bridge.gradebook import comment_on
from course.judging.verdict import Verdict
from course.notebook.report import to_brief_html

HEADING = re.compile(r"^#{1,4}[ \t]+(.+)$", re.MULTILINE)
MARKS = re.compile(r"[*`$\\]|\[(?=[^]]*\]\()|\]\([^)]*\)")  # of Markdown, which stand in no plain heading


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the summary. told: HTML of ours; kind: full, part, none, or "" where nothing was attempted."""

    name: str
    anchor: str
    score: float
    possible: float
    bonus: bool
    kind: str
    told: str


@dataclass(frozen=True, kw_only=True)
class Block:
    """Cells that stand together: the student's with all that belongs to them, or some of the lesson's, to be folded."""

    own: bool
    cells: tuple[NotebookNode, ...]
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class View:
    """A page. lesson: an address of the notebook, from where nbgrader puts the page for the student."""

    title: str
    lesson: str
    score: float
    max_score: float
    late_penalty: float
    rows: tuple[Row, ...]
    notes: tuple[NotebookNode, ...]
    blocks: tuple[Block, ...]


def view(notebook: NotebookNode, resources: Any) -> View:
    """The page of a graded notebook. resources: with what nbgrader knows of its scores."""
    known = resources.get("nbgrader", {})
    graded = read_back(str(known.get("student", "")), notebook)
    verdicts = {verdict.exercise: verdict for verdict in graded.verdicts} if graded else {}
    for cell in notebook.cells if graded else ():
        _drop_our_comment(cell, graded, verdicts)
    name = str(known.get("notebook", ""))
    cells = [cell for cell in notebook.cells if role_of(cell)[1] != "notes"]
    return View(
        title=name,
        lesson=f"../../{quote(name)}.ipynb",
        score=float(known.get("score", 0)),
        max_score=float(known.get("max_score", 0)),
        late_penalty=float(known.get("late_penalty", 0)),
        rows=tuple(_rows(cells, verdicts)),
        notes=tuple(cell for cell in notebook.cells if role_of(cell)[1] == "notes"),
        blocks=tuple(_blocks(cells, verdicts)),
    )


def _drop_our_comment(cell: NotebookNode, graded: Graded | None, verdicts: dict[str, Verdict]) -> None:
    """Of the comments below answers those of people are shown: ours say what stands in the table below."""
    verdict = verdicts.get(role_of(cell)[0])
    if graded and verdict and cell.metadata.get("nbgrader", {}).get("comment") == comment_on(graded, verdict):
        cell.metadata.nbgrader.comment = None


def _rows(cells: Sequence[NotebookNode], verdicts: dict[str, Verdict]) -> Iterator[Row]:
    for cell in cells:
        given = cell.metadata.get("nbgrader", {})
        if not (given.get("grade") or given.get("task")):
            continue
        verdict = verdicts.get(role_of(cell)[0]) if role_of(cell)[1] == "check" else None
        score, points = float(given.get("score") or 0), float(given.get("points") or 0)
        possible = float(verdict.possible) if verdict else points
        attempted = verdict is None or verdict.attempted or score > 0
        yield Row(
            name=verdict.exercise.partition(".")[2] if verdict else str(given.get("grade_id")),
            anchor=str(given.get("grade_id")),
            score=score,
            possible=possible,
            bonus=verdict is not None and points == 0,
            kind=("full" if score >= possible else "part" if score > 0 else "none") if attempted else "",
            told=to_brief_html(verdict) if verdict else "",
        )


def _blocks(cells: Sequence[NotebookNode], verdicts: dict[str, Verdict]) -> Iterator[Block]:
    """The notebook's cells in their order."""
    for own, group in itertools.groupby(cells, key=lambda cell: _is_own(cell, verdicts)):
        together = tuple(group)
        yield Block(own=own, cells=together, title="" if own else _title(together))


def _is_own(cell: NotebookNode, verdicts: dict[str, Verdict]) -> bool:
    """Whether the student has written it, or somebody has judged what the student wrote."""
    (exercise, role), given = role_of(cell), cell.metadata.get("nbgrader", {})
    if role == "check" and exercise in verdicts:
        return verdicts[exercise].attempted or bool(given.get("score"))
    judged = given.get("comment") or (given.get("grade") and role != "check") or given.get("task")
    return bool(cell.metadata.get("hpml", {}).get("written") or judged)


def _title(cells: Sequence[NotebookNode]) -> str:
    """The first heading among these cells, and how many they are."""
    texts = (HEADING.search(cell.source) for cell in cells if cell.cell_type == "markdown")
    found = next(filter(None, texts), None)
    count = f"{len(cells)} cell{'s' * (len(cells) > 1)} of the lesson"
    return f"{count}: {MARKS.sub('', found[1]).strip()}" if found else count
