"""Rebuilding, not repairing: the graded notebook is the release copy with the student's sources in it.

    release cells + submitted cells --rebuild--> notebook, one sentence per repair

| cell of the release | what the student gives                                              |
| ------------------- | ------------------------------------------------------------------- |
| answer              | its source                                                          |
| check, locked       | nothing: the release's source stands                                |
| other code          | its source: it was theirs to change                                 |
| other text          | nothing: the release's text stands                                  |

Cells that are no release cell are free; they follow the release cell that they followed in the submission.
Metadata, tags, outputs, attachments and ids of the submission are dropped. Free text is shown as it was typed, never
rendered: HTML and links in it would run in the grader's browser.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from autograder.engine.read import Cell


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """A notebook to be graded, and what had to be repaired on the way."""

    notebook: NotebookNode
    repairs: tuple[str, ...]


def role_of(cell: NotebookNode) -> tuple[str, str]:
    """(exercise id, "answer" or "check") of a cell of ours; two empty strings for every other cell."""
    hpml = cell.metadata.get("hpml", {})
    return hpml.get("exercise", ""), hpml.get("role", "")


def defines(source: str, name: str) -> bool:
    """Whether a function or class of this name is defined at the left margin."""
    return re.search(rf"^(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b", source, re.MULTILINE) is not None


def rebuild(release: NotebookNode, submitted: Sequence[Cell]) -> Rebuilt:
    """The release notebook with the student's sources; never raises on any list of cells."""
    work = _Work(release=release, submitted=submitted)
    _match(work)
    for index, cell in enumerate(release.cells):
        if role_of(cell)[1] == "answer":
            _take_answer(work, index)
        elif _fixed(cell):
            _put_back(work, index)
        elif work.matched[index] and cell.cell_type == "code":
            work.sources[index] = submitted[work.matched[index][0]].source
    _count_missing(work)
    notebook = copy.deepcopy(release)
    notebook.cells = list(_assemble(work))
    return Rebuilt(notebook=notebook, repairs=tuple(work.repairs))


@dataclass(kw_only=True)
class _Work:
    """A rebuild in progress. Numbers of release cells are `index`, those of submitted cells `number`.

    matched  by index: the submitted cells that claim to be this release cell, in order
    sources  by index: the source that replaces the release's
    dropped  submitted cells that do not come back, not even as free cells
    """

    release: NotebookNode
    submitted: Sequence[Cell]
    matched: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    sources: dict[int, str] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    repairs: list[str] = field(default_factory=list)


def _fixed(cell: NotebookNode) -> bool:
    """A check cell, or one that the release locks."""
    nbgrader = cell.metadata.get("nbgrader", {})
    return role_of(cell)[1] == "check" or (nbgrader.get("locked", False) and not nbgrader.get("solution", False))


def _grade_id(cell: NotebookNode) -> str:
    return str(cell.metadata.get("nbgrader", {}).get("grade_id", ""))


# --- which submitted cell is which ------------------------------------------------------------------


def _match(work: _Work) -> None:
    """Matches by exercise and role, then nbgrader's name, then cell id, then equal source."""
    roles = {role_of(cell): index for index, cell in enumerate(work.release.cells) if role_of(cell)[1]}
    names = {_grade_id(cell): index for index, cell in enumerate(work.release.cells) if _grade_id(cell)}
    plain = {index: cell for index, cell in enumerate(work.release.cells) if index not in roles.values()}
    ids = {(cell.get("id"), cell.cell_type): index for index, cell in plain.items()}
    texts = {(cell.source.strip(), cell.cell_type): index for index, cell in reversed(plain.items())}
    for number, cell in enumerate(work.submitted):
        named = roles.get((cell.exercise, cell.role), names.get(cell.grade_id))
        if named is not None:
            work.matched[named].append(number)
            continue
        like = ids.get((cell.id, cell.kind), texts.get((cell.source.strip(), cell.kind)))
        if like is not None and not work.matched[like]:
            work.matched[like].append(number)


def _free(work: _Work) -> list[int]:
    """Submitted cells that are no release cell and were not dropped."""
    taken = {number for numbers in work.matched.values() for number in numbers}
    return [number for number in range(len(work.submitted)) if number not in taken | work.dropped]


# --- answers ----------------------------------------------------------------------------------------


def _take_answer(work: _Work, index: int) -> None:
    """Finds the source of one answer: its own cell, else a cell that defines its name."""
    cell = work.release.cells[index]
    name = role_of(cell)[0].partition(".")[2]
    chosen = _own_cell(work, index, name)
    if chosen is None or not _written(work, chosen, cell, name):
        elsewhere = _elsewhere(work, cell, name)
        if elsewhere is not None:
            work.repairs.append(f"`{name}` was not written in its answer cell; it was found in another cell.")
            if chosen is not None and work.submitted[chosen].source.strip() != cell.source.strip():
                work.matched[index].remove(chosen)  # helpers may stand there: it stays as a free cell
            chosen = elsewhere
    if chosen is None:
        work.repairs.append(f"The answer cell of `{name}` was missing; it was put back as released.")
        return
    if work.submitted[chosen].kind != "code":
        work.repairs.append(f"The answer cell of `{name}` had become a text cell; it was read as code.")
    work.sources[index] = work.submitted[chosen].source


def _own_cell(work: _Work, index: int, name: str) -> int | None:
    """The answer cell; of several, the last that is written. Copies that define nothing of it become free cells."""
    cell, numbers = work.release.cells[index], work.matched[index]
    if not numbers:
        return None
    written = [number for number in numbers if _written(work, number, cell, name)]
    chosen = (written or numbers)[-1]
    if len(numbers) > 1:
        work.repairs.append(
            f"The answer cell of `{name}` stood in the notebook {len(numbers)} times; the last one written was graded."
        )
        work.dropped |= {number for number in numbers if defines(work.submitted[number].source, name)}
        work.matched[index] = [chosen]
    return chosen


def _written(work: _Work, number: int, cell: NotebookNode, name: str) -> bool:
    """Whether a submitted cell defines the answer and is no longer what was released."""
    source = work.submitted[number].source
    return source.strip() != cell.source.strip() and defines(source, name)


def _elsewhere(work: _Work, cell: NotebookNode, name: str) -> int | None:
    """The last code cell of the student's that defines the name: a free cell moves, any other stays where it is."""
    code = [number for number in _free(work) if work.submitted[number].kind == "code"]
    free = [number for number in code if _written(work, number, cell, name)]
    if free:
        work.dropped.add(free[-1])
        return free[-1]
    others = [
        number
        for index, numbers in work.matched.items()
        for number in numbers
        if not _fixed(work.release.cells[index])
        and work.release.cells[index].cell_type == work.submitted[number].kind == "code"
        and _written(work, number, work.release.cells[index], name)
    ]
    return max(others, default=None)


# --- fixed cells and the whole -----------------------------------------------------------------------


def _put_back(work: _Work, index: int) -> None:
    """The release's own cell stands; what differed is told."""
    cell = work.release.cells[index]
    exercise, role = role_of(cell)
    label = f"check cell of `{exercise.partition('.')[2]}`" if role == "check" else f"locked cell `{_grade_id(cell)}`"
    numbers = work.matched[index]
    if not numbers:
        work.repairs.append(f"The {label} was missing; it was put back.")
    if len(numbers) > 1:
        work.repairs.append(f"The {label} stood in the notebook {len(numbers)} times; its copies were dropped.")
    changed = [
        work.submitted[number].source.strip() != cell.source.strip() or work.submitted[number].kind != cell.cell_type
        for number in numbers
    ]
    if any(changed):
        work.repairs.append(f"The {label} had been changed; the release's was put back.")
    work.dropped |= set(numbers)


def _count_missing(work: _Work) -> None:
    """One sentence for all the cells without a role that were deleted."""
    missing = [
        index
        for index, cell in enumerate(work.release.cells)
        if not work.matched[index] and not _fixed(cell) and role_of(cell)[1] != "answer"
    ]
    if missing:
        work.repairs.append(f"{len(missing)} other cell(s) of the release were missing; they were put back.")


def _assemble(work: _Work) -> Iterator[NotebookNode]:
    """The release's cells in order, each followed by the free cells that followed it."""
    place = {number: index for index, numbers in work.matched.items() for number in numbers}
    following: dict[int, list[int]] = defaultdict(list)
    last = -1
    free = set(_free(work))
    for number in range(len(work.submitted)):
        last = place.get(number, last)
        if number in free:
            following[last].append(number)
    yield from (_free_cell(work, number) for number in following[-1])
    for index, released in enumerate(work.release.cells):
        yield _release_cell(released, work.sources.get(index))
        yield from (_free_cell(work, number) for number in following[index])


def _release_cell(released: NotebookNode, source: str | None) -> NotebookNode:
    cell = copy.deepcopy(released)
    cell.source = released.source if source is None else source
    if cell.cell_type == "code":
        cell.outputs, cell.execution_count = [], None
    return cell


def _free_cell(work: _Work, number: int) -> NotebookNode:
    """A student's own cell: code as code, anything else as text that nothing renders."""
    cell = work.submitted[number]
    make: Callable[..., NotebookNode] = new_code_cell if cell.kind == "code" else new_markdown_cell
    source = cell.source if cell.kind == "code" else verbatim(cell.source)
    return make(source, id=f"free-{number}", metadata={"hpml": {"role": "free"}})


def verbatim(text: str) -> str:
    """Markdown that shows `text` letter by letter: a block indented by four spaces, which no text can end."""
    return "\n".join(f"    {line}" for line in text.splitlines())
