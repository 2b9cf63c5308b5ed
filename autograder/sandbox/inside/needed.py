"""Which cells of the lesson the student's own cells need, so that a display run can leave out the others.

    sources, which of them are the student's --parts--> for each cell SHOWN, QUIET, IMPORTS or LEFT

A cell is needed where it binds a name, or may have changed an object, that a needed cell may look up. Objects that may
hold one another count as one: whatever a cell touches, and whatever that was made of, may have been changed by it. Of
a cell that is needed only for what it imports, the imports are run. Where names may be reached that do not stand in
the source, everything is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from autograder.sandbox.inside import cell_names
from autograder.sandbox.inside.cell_names import CHANCE, READS_ALL, Names, Unknowable

Part = Literal["shown", "quiet", "imports", "left"]
SHOWN: Part = "shown"
QUIET: Part = "quiet"
IMPORTS: Part = "imports"
LEFT: Part = "left"


def parts(sources: Sequence[str], own: Sequence[bool]) -> list[Part]:
    """What to do with each cell; SHOWN everywhere where the source does not tell what is needed."""
    try:
        cells = [cell_names.parsed(source) for source in sources]
        if any(cell_names.dynamic(cell, own=mine) for cell, mine in zip(cells, own, strict=True)):
            return [SHOWN] * len(sources)
        needed = _needed(cells, own)
    except Unknowable:
        return [SHOWN] * len(sources)
    return [
        SHOWN if mine else QUIET if (number, False) in needed else IMPORTS if (number, True) in needed else LEFT
        for number, mine in enumerate(own)
    ]


def imports_of(source: str) -> str:
    """The imports at the left margin of a cell."""
    return "\n".join(map(ast.unparse, cell_names.imports_alone(cell_names.parsed(source))[0]))


# --- what is needed -----------------------------------------------------------------------------------

Unit = tuple[int, bool]  # a cell's number, and whether it stands for the cell's imports or for the rest


@dataclass(eq=False)
class _Thing:
    """What a name stands for from one binding to the next, or what one unit has touched.

    writers  units that bound or may have changed it
    made_of  what it may hold, or be held by
    later    names that its functions look up when they are called
    fixed    nothing can change it
    """

    writers: set[Unit] = field(default_factory=set)
    made_of: set[_Thing] = field(default_factory=set)
    later: frozenset[str] = frozenset()
    fixed: bool = False


def _needed(cells: Sequence[list[ast.stmt]], own: Sequence[bool]) -> set[Unit]:
    """The units that must run: the student's, those that set something for all, and whatever these need."""
    loose = {name for cell in cells for name in cell_names.loose(cell)}
    things, needs, pending = {CHANCE: _Thing()}, dict[Unit, set[Unit]](), list[Unit]()
    for number, (cell, mine) in enumerate(zip(cells, own, strict=True)):
        imports, rest = ([], cell) if mine else cell_names.imports_alone(cell)
        for unit, statements in (((number, True), imports), ((number, False), rest)):
            names = cell_names.names(statements)
            needs[unit] = _run(things, unit, names, loose)
            pending += [unit] if mine or names.sets else []
    needed = set[Unit]()
    while pending:
        unit = pending.pop()
        if unit not in needed:
            needed.add(unit)
            pending += needs[unit]
    return needed


def _run(things: dict[str, _Thing], unit: Unit, names: Names, loose: set[str]) -> set[Unit]:
    """What is known after the unit has run; returns the units that it needs."""
    touched = _reached(things, names.reads)
    needs = {writer for thing in touched for writer in thing.writers}
    made = _Thing(writers={unit}, made_of=touched, later=names.later)
    for thing in touched if names.changes else ():
        if not thing.fixed:
            thing.writers.add(unit)
            thing.made_of.add(made)
    for name in names.binds:
        fixed = name in names.fixed and name not in loose
        if name in names.surely and fixed:
            things[name] = _Thing(writers={unit}, later=names.fixed[name], fixed=True)
        elif name in names.surely:
            things[name] = _Thing(writers={unit}, made_of={made})
        else:
            thing = things.setdefault(name, _Thing())
            thing.fixed = False
            thing.writers.add(unit)
            thing.made_of.add(made)
    return needs


def _reached(things: dict[str, _Thing], names: Iterable[str]) -> set[_Thing]:
    """All that these names stand for now, what that is made of, and what its functions look up."""
    reached, pending = set[_Thing](), [_thing(things, name) for name in names]
    if READS_ALL in names:
        pending += things.values()
    while pending:
        thing = pending.pop()
        if thing not in reached:
            reached.add(thing)
            pending += thing.made_of
            pending += [_thing(things, name) for name in thing.later]
            if READS_ALL in thing.later:
                pending += things.values()
    return reached


def _thing(things: dict[str, _Thing], name: str) -> _Thing:
    """Of a name that no cell has bound yet: a builtin, which nothing changes."""
    return things.setdefault(name, _Thing(fixed=True))
