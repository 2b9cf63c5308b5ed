"""`report.html`: one page, no script, no other file, light or dark as the reader's system is."""

from __future__ import annotations

import html
import os
from pathlib import Path

from autograder.engine.results import ClassResult, ExerciseResult, StudentResult
from autograder.report.words import number, reason, remarks, slip, spaced, summary

STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --dim: #57606a; --back: #ffffff; --line: #d0d7de; --soft: #f3f4f6;
  --full: #d7ebff; --part: #fff1c9; --none: #ffdcd2; --bar: #0b6bcb; --warn: #b35900; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --dim: #9da7b3; --back: #12161c; --line: #39424e;
  --soft: #1c222b; --full: #12395f; --part: #4a3b0a; --none: #5c2418; --bar: #4c9be8; --warn: #e0a050; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 24px auto;
  max-width: 1500px; padding: 0 20px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 28px 0 8px; }
.notice { border-left: 4px solid var(--warn); background: var(--soft); padding: 8px 14px; margin: 14px 0; }
.wide { overflow-x: auto; border: 1px solid var(--line); }
table { border-collapse: collapse; } th, td { padding: 5px 9px; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
.wide table { width: 100%; } .wide thead th { background: var(--soft); font-size: 13px; }
.wide th:first-child { position: sticky; left: 0; background: var(--soft); font-size: 13px; min-width: 190px;
  overflow-wrap: anywhere; }
.name { text-align: right; } .n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.full { background: var(--full); } .part { background: var(--part); } .none { background: var(--none); }
.why { display: block; font-size: 12px; color: var(--dim); min-width: 72px; overflow-wrap: anywhere;
  white-space: normal; text-align: left; } .full .why, .part .why, .none .why { color: inherit; }
.remarks { font-size: 12px; min-width: 220px; overflow-wrap: anywhere; } .dim { color: var(--dim); }
.bars { columns: 420px; column-gap: 40px; } .bars div { display: grid; grid-template-columns: 3ch 100px 1fr; gap: 10px;
  align-items: center; break-inside: avoid; line-height: 1.35; padding: 2px 0; } .bars svg { display: block; }
.bars pre { margin: 0; font-size: 11px; color: var(--dim); white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def write(result: ClassResult, path: Path) -> Path:
    """Write the page to `path`, whole or not at all, and return it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(to_html(result), encoding="utf-8")
    os.replace(part, path)
    return path


def to_html(result: ClassResult) -> str:
    """The page. Everything that may come from a student is escaped."""
    title = f"{html.escape(result.assignment)}: who got what, and why"
    head = f'<meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">'
    body = [
        f"<h1>{title}</h1><div>{html.escape(summary(result))}</div>",
        _notice(result),
        _histogram(result),
        _students(result),
        '<p class="dim">Blue: full marks. Yellow: some. Red: none. White: not attempted. + marks a bonus, which raises '
        "no maximum; * a score that a person gave or changed. The names under points are misconceptions that were "
        "recognised, or what broke.</p>",
    ]
    return (
        f'<!DOCTYPE html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"".join(body)}</body></html>\n'
    )


def _notice(result: ClassResult) -> str:
    return f'<div class="notice">How it was run: {html.escape(result.runner)}.</div>' if result.runner else ""


# --- misconceptions ---------------------------------------------------------------------------------


def _histogram(result: ClassResult) -> str:
    """Which misconception hit how many students; a full bar is the whole class."""
    rows = result.misconceptions()
    if not rows:
        return "<h2>Misconceptions</h2><p>None was recognised.</p>"
    bars = "".join(_bar(exercise, name, count, len(result.students)) for exercise, name, count in rows)
    return (
        '<h2>Misconceptions</h2><p class="dim">Number of students, and their share of the class; below each, '
        "an edit that makes a right answer this wrong one.</p>"
        f'<div class="bars">{bars}</div>'
    )


def _bar(exercise: str, name: str, count: int, everyone: int) -> str:
    share = max(2.0, 100 * count / everyone)
    bar = (
        '<svg width="100" height="12" aria-hidden="true"><rect width="100" height="12" fill="var(--soft)"/>'
        f'<rect width="{share:.1f}" height="12" fill="var(--bar)"/></svg>'
    )
    edit = slip(exercise, name)
    code = f"<pre>{html.escape(edit)}</pre>" if edit else ""
    words = f'{html.escape(spaced(name))} <span class="dim">{html.escape(exercise)}</span>{code}'
    return f'<div><span class="n">{count}</span>{bar}<span>{words}</span></div>'


# --- students ---------------------------------------------------------------------------------------


def _students(result: ClassResult) -> str:
    if not result.students:
        return ""
    columns = "".join(_heading(each) for each in result.students[0].exercises)
    rows = "".join(_row(student) for student in result.students)
    return (
        '<h2>Students</h2><div class="wide"><table><thead><tr><th>student</th><th class="n">score</th>'
        f"{columns}<th>remarks</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _heading(result: ExerciseResult) -> str:
    name = html.escape(result.name).replace("_", "_<wbr>") + ("+" if result.bonus else "")
    return f'<th class="name">{name}<br><span class="dim">{result.possible}</span></th>'


def _row(student: StudentResult) -> str:
    score = f"{number(student.score)} <span class='dim'>/ {number(student.max_score)}</span>"
    told = "<br>".join(html.escape(line) for line in remarks(student))
    cells = "".join(_cell(each) for each in student.exercises)
    name = html.escape(student.student)
    return f'<tr><th>{name}</th><td class="n">{score}</td>{cells}<td class="remarks">{told}</td></tr>'


def _cell(result: ExerciseResult) -> str:
    why = reason(result)
    attempted = result.verdict is not None and result.verdict.attempted
    kind = "full" if result.score >= result.possible else "part" if result.score > 0 else "none" if attempted else ""
    shown = "" if why == "not attempted" else f'<span class="why">{html.escape(why[:120])}</span>' if why else ""
    star = "*" if result.manual else ""
    return f'<td class="n {kind}">{number(result.score)}{star}{shown}</td>'
