"""What `hint` and `progress` show, as HTML and as text."""

from __future__ import annotations

import html

from course.notebook.progress_file import Row
from course.notebook.report import STYLE, prose
from course.performing.exercise import Exercise
from course.syllabus import Entry, Unit

STEPS = ("a question", "a pointer", "a sketch")
BAR_CELLS = 20

Progress = list[tuple[Unit, list[tuple[Entry, Row]]]]


def hint_text(exercise: Exercise, shown: int, note: str) -> str:
    """The first `shown` hints as lines."""
    lines = [f"Hint {i + 1} of 3 for {exercise.name}, {STEPS[i]}: {exercise.hints[i]}" for i in range(shown)]
    return "\n".join([*lines, *filter(None, [note])])


def hint_html(exercise: Exercise, shown: int, note: str) -> str:
    """The first `shown` hints, the newest last."""
    items = "".join(
        f'<div class="box said"><b>Hint {i + 1} of 3, {STEPS[i]}.</b> {prose(exercise.hints[i])}</div>'
        for i in range(shown)
    )
    return f'{STYLE}<div class="hpml">{items}{_tail(note)}</div>'


def _tail(note: str) -> str:
    return f'<div class="dim">{html.escape(note)}</div>' if note else ""


def progress_text(units: Progress, note: str) -> str:
    """A bar for each unit and a line for each exercise; the note, where there is one, comes last."""
    lines = []
    for unit, rows in units:
        points, possible, words = _totals(rows)
        filled = round(BAR_CELLS * points / max(possible, 1))
        bar = "#" * filled + "." * (BAR_CELLS - filled)
        lines.append(f"{unit.number:02d} {unit.title:24} [{bar}] {words}")
        lines += [f"     {_label(entry):28} {row.points:3} of {row.possible:3}   {_did(row)}" for entry, row in rows]
    return "\n".join([*lines, *filter(None, [note])])


def progress_html(units: Progress, note: str) -> str:
    """A bar for each unit and a table of its exercises."""
    return f'{STYLE}<div class="hpml">{"".join(_unit(unit, rows) for unit, rows in units)}{_tail(note)}</div>'


def _totals(rows: list[tuple[Entry, Row]]) -> tuple[int, int, str]:
    """Points, possible points, and both as words; a bonus is told apart and does not fill the bar."""
    points = sum(row.points for entry, row in rows if not entry.bonus)
    possible = sum(row.possible for entry, row in rows if not entry.bonus)
    bonus = sum(row.points for entry, row in rows if entry.bonus)
    return points, possible, f"{points} of {possible} points" + (f", bonus {bonus}" if bonus else "")


def _label(entry: Entry) -> str:
    return f"{entry.name} (bonus)" if entry.bonus else entry.name


def _did(row: Row) -> str:
    if not row.checks and not row.hints:
        return "not attempted"
    words = [f"{row.checks} check{'s' if row.checks != 1 else ''}"]
    return ", ".join([*words, f"{row.hints} hint{'s' if row.hints != 1 else ''}"] if row.hints else words)


def _unit(unit: Unit, rows: list[tuple[Entry, Row]]) -> str:
    points, possible, words = _totals(rows)
    share = 100 * points / max(possible, 1)
    bar = (
        '<svg width="240" height="12" role="img" aria-label="points of this unit">'
        '<rect width="240" height="12" fill="var(--jp-layout-color3, #d0d7de)"/>'
        f'<rect width="{2.4 * share:.1f}" height="12" fill="#0b6bcb"/></svg>'
    )
    body = "".join(
        f"<tr><td><code>{html.escape(_label(entry))}</code></td><td>{_did(row)}</td>"
        f'<td class="n">{row.points} / {row.possible}</td></tr>'
        for entry, row in rows
    )
    head = f"<b>{unit.number:02d} {html.escape(unit.title)}</b> {bar} {words}"
    return f'<div class="head">{head}</div><table>{body}</table>'
