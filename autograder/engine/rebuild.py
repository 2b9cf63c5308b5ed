"""Rebuilding, not repairing: the graded notebook is the release copy with the student's sources in it.

    release cells + submitted cells --rebuild--> cells, one sentence per repair

| cell of the release | what the student gives                                              |
| ------------------- | ------------------------------------------------------------------- |
| answer              | its source                                                          |
| check, locked       | nothing: the release's source stands                                |
| other code          | its source: it was theirs to change                                 |
| other text          | nothing: the release's text stands                                  |

Cells that are no release cell are free, and what stands beside a check in its cell is one; they follow the release
cell that they followed in the submission, and whatever was missing behind it up to the next check: they may be what the
student made of that. Of copies of an answer cell one is the answer, and the others are free. An answer may stand in a
free cell: it counts where it stands, since it may need what stands above it, and no cell is moved. What a cell defines
is told from its text alone: a parser can be made to take more time and memory than a judge has. Metadata, tags,
outputs, attachments and ids of the submission are dropped. Free text is shown as it was typed, never rendered: HTML and
links in it would run in the grader's browser.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autograder.engine import slim
from autograder.engine.cells import Cell
from course.performing.cells import CodeCell, without_cell_magics


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """The cells of a notebook to be graded, and what had to be repaired on the way."""

    cells: tuple[Cell, ...]
    repairs: tuple[str, ...]


DEFINES = r"^(?:async[ \t]+)?(?:def|class)[ \t]+{name}\b"  # at the left margin
BINDS = r"^[ \t]*(?:(?:async[ \t]+)?(?:def|class)[ \t]+{name}\b|{name}[ \t]*(?::[^=\n]*)?=(?!=))"  # or in another way
PERHAPS = (  # anywhere in a line, as after a prompt: what may be no more than a keyword of a call
    r"(?<![\w.(]){name}[ \t]*(?::[^=\n]{{0,200}})?=(?!=)|\b{name}[ \t]*:=|\b(?:as|for|def|class)[ \t\\\n]+{name}\b"
    # and what is in it, or beside it in a row
    r"|^[ \t(\[*]*(?:\w+[ \t]*,[ \t]*)*{name}[ \t]*[.,)\]\[][^=\n(]{{0,200}}(?<![!<>])=(?!=)"
)
CLEARLY = (  # neither a keyword of a call nor a part of a line
    r"^(?:[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{name}\b|{name}[ \t]*(?::[^=\n]{{0,200}})?=(?!=))"
)
ENDS = r"^[ \t]*(?:return|yield)\b"
OFF = r"\s*%%(?:script|bash|sh|html|svg|latex|markdown|javascript|js|writefile|file)\b"  # how a cell is switched off
OURS = re.compile(rf"(?:# )?({re.escape(slim.LEFT_OUT)}; this one held [\d,]{{1,20}})")  # nothing that a student wrote


def defines(source: str, name: str, how: str = DEFINES) -> bool:
    """Whether a function or class of this name is defined."""
    return re.search(how.format(name=re.escape(name)), source, re.MULTILINE) is not None


def rebuild(release: Sequence[Cell], submitted: Sequence[Cell]) -> Rebuilt:
    """The release's cells with the student's sources; never raises on any list of cells."""
    work = _Work(release=release, submitted=submitted)
    work.changed = _changed(release, submitted)
    work.submitted = submitted = [part for cell in submitted for part in _apart(work, cell)]
    _match(work)
    for index, cell in enumerate(release):
        if cell.role == "answer":
            _take_answer(work, index)
        elif cell.fixed:
            _put_back(work, index)
        elif work.matched[index] and cell.kind == "code":
            work.sources[index] = submitted[work.matched[index][0]].source
    _count_missing(work)
    return Rebuilt(cells=tuple(_assemble(work)), repairs=tuple(work.repairs))


@dataclass(kw_only=True)
class _Work:
    """A rebuild in progress. Numbers of release cells are `index`, those of submitted cells `number`.

    matched  by index: the submitted cells that claim to be this release cell, in order
    sources  by index: the source that replaces the release's
    dropped  submitted cells that do not come back, not even as free cells
    changed  exercises whose check stands nowhere as it was released
    holds    by number: exercises whose answers stand there, and not in their own cells
    """

    release: Sequence[Cell]
    submitted: Sequence[Cell]
    matched: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    sources: dict[int, str] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    changed: frozenset[str] = frozenset()
    holds: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    repairs: list[str] = field(default_factory=list)


# --- which submitted cell is which ------------------------------------------------------------------


def _apart(work: _Work, cell: Cell) -> list[Cell]:
    """The submitted cell; a check cell without what was written above and below the check, which is a free cell, and so
    is all of it where the check's own line was changed.
    """
    if cell.kind != "code" or cell.role != "check":
        return [cell]
    ours = next((each for each in work.release if (each.exercise, each.role) == (cell.exercise, "check")), None)
    if ours is None:
        return [cell]
    check = ours.source.strip()
    above, found, below = f"\n{cell.source}\n".partition(f"\n{check}\n")
    beside = [Cell(kind="code", source=each.strip("\n")) if each.strip() else None for each in (above, below)]
    if not any(beside) or not (found or cell.exercise in work.changed):
        return [cell]
    how = "held more than the check; that" if found else "had been changed; the release's was put back, and the other"
    work.repairs.append(f"The check cell of `{ours.name}` {how} was read as a cell of its own.")
    first, last = beside
    return [each for each in (first, dataclasses.replace(cell, source=check), last) if each is not None]


def _changed(release: Sequence[Cell], submitted: Sequence[Cell]) -> frozenset[str]:
    """The exercises whose check stands in none of these cells as it was released."""
    checks = {cell.exercise: f"\n{cell.source.strip()}\n" for cell in release if cell.role == "check"}
    cells = [cell for cell in submitted if cell.role == "check" and cell.exercise in checks]
    whole = (cell.exercise for cell in cells if checks[cell.exercise] in f"\n{cell.source}\n")
    return frozenset(checks).difference(whole)


def _match(work: _Work) -> None:
    """Matches by exercise and role, then nbgrader's name, then cell id, then equal source."""
    roles = {(cell.exercise, cell.role): index for index, cell in enumerate(work.release) if cell.role}
    names = {cell.grade_id: index for index, cell in enumerate(work.release) if cell.grade_id}
    plain = {index: cell for index, cell in enumerate(work.release) if index not in roles.values()}
    ids = {(cell.id, cell.kind): index for index, cell in plain.items()}
    texts = {(cell.source.strip(), cell.kind): index for index, cell in reversed(plain.items())}
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
    gone = {number for numbers in work.matched.values() for number in numbers} | work.dropped
    return [number for number in range(len(work.submitted)) if number not in gone]


# --- answers ----------------------------------------------------------------------------------------


def _take_answer(work: _Work, index: int) -> None:
    """Finds the source of one answer: its own cell, and the cell that defines its name where that is another one."""
    cell = work.release[index]
    name, chosen = cell.name, _own_cell(work, index)
    holder = _holder(work, cell, chosen)
    if holder is not None:
        work.holds[holder].append(cell.exercise)
    if chosen is None:
        if holder is None:
            work.repairs.append(f"The answer cell of `{name}` was missing; it was put back as released.")
        return
    if work.submitted[chosen].kind != "code":
        work.repairs.append(f"The answer cell of `{name}` had become a text cell; it was read as code.")
    source = work.submitted[chosen].source
    if said := OURS.fullmatch(source):
        work.repairs.append(f"The answer cell of `{name}` was {said[1]}.")
    work.sources[index] = source


def _own_cell(work: _Work, index: int) -> int | None:
    """The answer cell; of several, the last above the check that is written, or that leaves it to a free cell there.
    None where there is none, or where it no longer runs and the answer stands in such a cell.

    The others become free cells, since what counts may need what stands in them, but for those that are as released.
    """
    cell, numbers = work.release[index], work.matched[index]
    if not numbers:
        return None
    checked, written = _checked(work, cell), [each for each in numbers if _written(work, each, cell, cell, BINDS)]
    chosen, above = _last_above(written or numbers, checked), _last_above(numbers, checked)
    if chosen > above and _seen(work, cell, CLEARLY):
        chosen = above
    if len(numbers) > 1:
        which = "the last one written" if chosen == (written or numbers)[-1] else "the last one above its check"
        work.repairs.append(
            f"The answer cell of `{cell.name}` stood in the notebook {len(numbers)} times; {which} was graded."
        )
        work.dropped |= {n for n in numbers if work.submitted[n].source.strip() == cell.source.strip()}
        work.matched[index] = [chosen]
    ours = work.submitted[chosen]
    off = ours.kind != "code" or re.match(OFF, ours.source) is not None
    return None if off and _seen(work, cell, DEFINES) else chosen


def _checked(work: _Work, cell: Cell) -> int:
    """The number of the last check cell of this answer; -1 where there is none."""
    checks = [at for at, each in enumerate(work.release) if (each.exercise, each.role) == (cell.exercise, "check")]
    return max((number for at in checks for number in work.matched[at]), default=-1)


def _seen(work: _Work, cell: Cell, how: str) -> list[int]:
    """The free code cells above its check in which the answer is written."""
    checked = _checked(work, cell)
    above = [number for number in _free(work) if number < checked and work.submitted[number].kind == "code"]
    return [number for number in above if _written(work, number, cell, cell, how)]


def _last_above(numbers: Sequence[int], checked: int) -> int:
    """The last of these cells that stands above the check, else the last one."""
    return ([number for number in numbers if number < checked] or numbers)[-1]


def _written(work: _Work, number: int, cell: Cell, like: Cell, how: str = DEFINES) -> bool:
    """Whether a submitted cell defines the answer of `cell`, and is no longer what was released, `like`."""
    source = work.submitted[number].source
    if source.strip() == like.source.strip() or not defines(source, cell.name, how):
        return False
    stub, ours = _definition(cell.source, cell.name), _definition(source, cell.name)
    raises = rf'^[ \t]*raise NotImplementedError\("{re.escape(cell.exercise)}"\)'
    there, before = (len(re.findall(raises, each, re.MULTILINE)) for each in (ours, stub))
    still = there >= before > 0 or (before > 0 and _lines(ours) <= _lines(stub))
    return not still or len(re.findall(ENDS, ours, re.MULTILINE)) > len(re.findall(ENDS, stub, re.MULTILINE))


def _lines(source: str) -> set[str]:
    """Its lines but for comments and what does nothing."""
    lines = (line.strip() for line in source.splitlines())
    return {line for line in lines if not line.startswith("#")} - {"", "pass", "..."}


def _definition(source: str, name: str) -> str:
    """From the last line that defines the name to the next one at the margin that begins another statement."""
    *_, last = re.split(f"(?={DEFINES.format(name=re.escape(name))})", source, flags=re.MULTILINE)
    head, line, rest = last.partition("\n")
    return head + line + re.split(r"^(?=[\w@])", rest, maxsplit=1, flags=re.MULTILINE)[0]


def _holder(work: _Work, cell: Cell, chosen: int | None) -> int | None:
    """The cell that holds the answer instead of its own one, `chosen`: what its check sees, if the check sees one."""
    name, code = cell.name, [number for number in _free(work) if work.submitted[number].kind == "code"]
    free = [number for number in code if _written(work, number, cell, cell)]
    checked = _checked(work, cell)
    seen = [number for number in free if number < checked]
    if chosen is None or not _written(work, chosen, cell, cell, BINDS):
        found = seen or _seen(work, cell, CLEARLY) or sorted([*free, *_others(work, cell)])
        untouched = chosen is None or work.submitted[chosen].source.strip() == cell.source.strip()
        maybe = (number for number in code if untouched or number < checked)
        found = found or [number for number in maybe if _written(work, number, cell, cell, PERHAPS)]
        holder = _last_above(found, checked) if found else None
        if holder is not None:
            work.repairs.append(f"`{name}` was not written in its answer cell; it was found in another cell.")
        return holder
    seen, free = ([each for each in found if _is_run(work.submitted[each].source)] for found in (seen, free))
    if seen and seen[-1] > chosen:
        work.repairs.append(f"`{name}` was defined again between its answer cell and its check; that one was graded.")
        return seen[-1]
    if free and free[-1] > chosen:
        work.repairs.append(f"`{name}` was defined again below its check; the one in its answer cell was graded.")
    return None


def _is_run(source: str) -> bool:
    """Whether Jupyter runs the cell as Python, here: no `%%script`, `%%writefile` and the like makes a text of it."""
    return not without_cell_magics(CodeCell(source=source)).lstrip().startswith("%%")


def _others(work: _Work, cell: Cell) -> list[int]:
    """Cells of the release that were the student's to change, and in which the name is defined now."""
    return [
        number
        for index, numbers in work.matched.items()
        for number in numbers
        if not work.release[index].fixed
        and work.release[index].kind == work.submitted[number].kind == "code"
        and _written(work, number, cell, work.release[index])
    ]


# --- fixed cells and the whole -----------------------------------------------------------------------


def _put_back(work: _Work, index: int) -> None:
    """The release's own cell stands; what differed is told."""
    cell = work.release[index]
    label = f"check cell of `{cell.name}`" if cell.role == "check" else f"locked cell `{cell.grade_id}`"
    same = [n for n in work.matched[index] if work.submitted[n].source.strip() == cell.source.strip()]
    numbers = work.matched[index] = same or work.matched[index]  # a changed copy is a cell of the student's
    if not numbers:
        work.repairs.append(f"The {label} was missing; it was put back.")
    if len(numbers) > 1:
        work.repairs.append(f"The {label} stood in the notebook {len(numbers)} times; its copies were dropped.")
    changed = [
        work.submitted[number].source.strip() != cell.source.strip() or work.submitted[number].kind != cell.kind
        for number in numbers
    ]
    if any(changed):
        work.repairs.append(f"The {label} had been changed; the release's was put back.")
    work.dropped |= set(numbers)


def _count_missing(work: _Work) -> None:
    """One sentence for all the cells without a role that were deleted."""
    missing = [
        index
        for index, cell in enumerate(work.release)
        if not work.matched[index] and not cell.fixed and cell.role != "answer"
    ]
    if missing:
        work.repairs.append(f"{len(missing)} other cell(s) of the release were missing; they were put back.")


def _assemble(work: _Work) -> Iterator[Cell]:
    """The release's cells in order, each followed by the free cells that followed it or what was missing behind it."""
    place = {numbers[0]: index for index, numbers in work.matched.items() if numbers}
    following: dict[int, list[int]] = defaultdict(list)
    last = -1
    free = set(_free(work))
    for number in range(len(work.submitted)):
        last = place.get(number, last)
        if number in free:
            following[_past_missing(work, last)].append(number)
    yield from (_free_cell(work, number) for number in following[-1])
    for index, released in enumerate(work.release):
        holds = tuple(exercise for number in work.matched[index] for exercise in work.holds[number])
        yield dataclasses.replace(released, source=work.sources.get(index, released.source), holds=holds)
        yield from (_free_cell(work, number) for number in following[index])


def _past_missing(work: _Work, index: int) -> int:
    """The last code cell that was missing behind this cell of the release and before the next check, else this cell.

    A free cell there may be what the student made of it, which the release's own would undo if it came after it.
    """
    last = index
    for at in range(index + 1, len(work.release)):
        if work.matched[at] or work.release[at].role == "check":
            break
        last = at if work.release[at].kind == "code" else last
    return last


def _free_cell(work: _Work, number: int) -> Cell:
    """A student's own cell: nothing of it comes along but what kind it is, and its source."""
    cell = work.submitted[number]
    kind = "code" if cell.kind == "code" else "markdown"
    holds = tuple(work.holds[number])
    return Cell(kind=kind, source=cell.source, id=f"free-{number}", role="free", holds=holds)
