"""A verdict as people read it: an HTML table for notebooks and feedback pages, the same as text elsewhere.

The HTML uses JupyterLab's own colour variables, so that it follows the light and the dark theme, and falls back to
plain colours on pages without them. Everything that came from an answer is escaped.
"""

from __future__ import annotations

import html
import math
import re

from course.judging.judge import BROKE
from course.judging.verdict import Finding, Verdict
from course.performing.compare import number
from course.performing.exercise import Failure

STYLE = """<style>
.hpml { font-family: var(--jp-content-font-family, sans-serif); font-size: 14px; line-height: 1.45;
  color: var(--jp-content-font-color1, #1f2328); max-width: 860px; }
.hpml .head { font-size: 15px; margin: 4px 0 6px; }
.hpml summary.head { cursor: pointer; }
.hpml table { border-collapse: collapse; width: 100%; margin: 0; color: inherit; table-layout: auto; }
.hpml th, .hpml td { text-align: left !important; vertical-align: top; padding: 4px 10px 4px 0; white-space: normal;
  border-bottom: 1px solid var(--jp-border-color2, #d0d7de); background: transparent; color: inherit; font-size: 13px; }
.hpml td.n, .hpml th.n { text-align: right !important; white-space: nowrap; padding-right: 0; }
.hpml td.s { white-space: nowrap; }
.hpml td:first-child { min-width: 180px; }
.hpml code { background: transparent; color: inherit; overflow-wrap: anywhere; font-size: 12.5px; }
.hpml .box { border-left: 4px solid; padding: 6px 12px; margin: 8px 0; background: var(--jp-layout-color2, #f3f4f6); }
.hpml .why { border-color: #b35900; } .hpml .broke { border-color: #b3261e; } .hpml .said { border-color: #6e7781; }
.hpml .yes { font-weight: 600; color: var(--jp-success-color1, #1a7f37); }
.hpml .no { font-weight: 600; color: var(--jp-error-color1, #b3261e); }
.hpml .dim { color: var(--jp-content-font-color2, #57606a); }
.hpml pre { margin: 4px 0 0; white-space: pre-wrap; background: transparent; color: inherit; font-size: 12.5px; }
</style>"""


def to_text(verdict: Verdict, note: str = "") -> str:
    """The verdict as lines of text: one line where all holds, otherwise what failed before what holds."""
    lines = [_headline(verdict)]
    if not verdict.attempted:
        return "\n".join([*lines, *filter(None, [note])])
    for each in [] if _full(verdict) else _failed_first(verdict):
        lines.append(f"  {_mark(each):8} {_title(each)}  ({each.points} of {each.possible} points)")
        if not each.held:
            lines += [f"           {line}" for line in _why(each, verdict)]
    lines += [f"  {line}" for line in _failure_lines(verdict)]
    if verdict.diagnosis:
        lines += ["", f"  Diagnosis: {_words(verdict.diagnosis.name)}.", f"  {verdict.diagnosis.hint}"]
    if verdict.printed:
        lines += ["", "  Your code printed:", *[f"  | {line}" for line in verdict.printed.splitlines()[:20]]]
    return "\n".join([*lines, *filter(None, ["", note] if note else [])])


def to_html(verdict: Verdict, note: str = "") -> str:
    """The verdict as one self-contained HTML fragment: where all holds, the table is folded under its headline."""
    head, table = prose(_headline(verdict)), _table(verdict) if verdict.attempted else ""
    opening = f'<div class="head">{head}</div>{table}'
    if _full(verdict):
        opening = f'<details><summary class="head">{head}</summary>{table}</details>'
    parts = [STYLE, '<div class="hpml">', opening]
    if verdict.attempted:
        parts += [_diagnosis_box(verdict), _failure_box(verdict), _hints(verdict), _printed(verdict)]
    if note:
        parts.append(f'<div class="box said">{prose(note)}</div>')
    return "".join([*parts, "</div>"])


def to_brief_html(verdict: Verdict) -> str:
    """What failed, why, and what to do about it, as a fragment of HTML; nothing where all holds."""
    if not verdict.attempted or _full(verdict):
        return ""
    failed = [each for each in _failed_first(verdict) if not each.held]
    broken = _failure_lines(verdict)[:1]
    told = [f"Not held: {', '.join(map(_title, failed))}."] if failed else []
    paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in [*told, *broken])
    return paragraphs + _diagnosis_box(verdict) + _hints(verdict)


# --- words shared by both forms --------------------------------------------------------------------


def _headline(verdict: Verdict) -> str:
    name = verdict.exercise.partition(".")[2]
    if not verdict.attempted:
        return f"{name}: not attempted, 0 of {verdict.possible} points (its `raise NotImplementedError` is still there)"
    full = ". All of it holds." if _full(verdict) else ""
    return f"{name}: {verdict.points} of {verdict.possible} points{full}"


def _full(verdict: Verdict) -> bool:
    return verdict.attempted and verdict.points == verdict.possible


def _failed_first(verdict: Verdict) -> list[Finding]:
    """What does not hold, then what waits for it, then what holds; each group in the exercise's own order."""
    return sorted(verdict.findings, key=lambda each: ("not held", "waits", "held").index(_mark(each)))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _title(each: Finding) -> str:
    return _words(each.property) + (" (cost)" if each.evidence == "ledger" else "")


def _mark(each: Finding) -> str:
    return "held" if each.held else "waits" if each.blocked_by else "not held"


def _difference(each: Finding) -> str:
    """`0.5 (allowed 4e-06)`, or nothing where no numbers were compared."""
    if each.error is None or math.isinf(each.error):
        return ""
    if each.held and each.error == 0:
        return "0"
    return f"{number(float(f'{each.error:.2g}'))} (allowed {number(float(f'{each.tolerance or 0.0:.1g}'))})"


def _place(each: Finding) -> str:
    parts = [f"case {each.case}" if each.case else "", each.where]
    return ", ".join(part for part in parts if part)


def _why(each: Finding, verdict: Verdict) -> list[str]:
    if each.blocked_by:
        return [f"Earns points once this holds: {_words(each.blocked_by)}."]
    difference = _difference(each)
    first = f"{_place(each)}: expected {each.expected}, got {each.got}" if each.case else each.expected
    told = first + (f"; worst difference {difference}" if difference else "")
    told += f"; {each.remark}" if each.remark else ""
    return [told, each.hint] if each in _told(verdict) else [told]


def _failure_lines(verdict: Verdict) -> list[str]:
    failure = verdict.failure
    if failure is None:
        return []
    return [f"In case {verdict.failure_case}: {_broken(failure)}", *[f"  {line}" for line in failure.where]]


def _broken(failure: Failure) -> str:
    other = failure.message.partition(".")[2]
    if failure.type == "NotImplementedError" and other.isidentifier():
        return f"your code called {other}, which is not written yet; write it first, or do without it"
    return failure.message if failure.type in ("TimeLimit", "RemovedError") else f"{failure.type}: {failure.message}"


# --- HTML pieces -----------------------------------------------------------------------------------


def prose(text: str) -> str:
    """Escaped text in which `code` between backticks stands as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _table(verdict: Verdict) -> str:
    columns = (
        "<th>property</th><th></th><th>got</th><th>expected</th><th>worst difference</th><th class='n'>points</th>"
    )
    return f"<table><tr>{columns}</tr>{''.join(_row(each) for each in _failed_first(verdict))}</table>"


def _row(each: Finding) -> str:
    place = f'<br><span class="dim">{html.escape(_place(each))}</span>' if _place(each) else ""
    state = {"held": "yes", "waits": "dim", "not held": "no"}[_mark(each)]
    return (
        f"<tr><td>{html.escape(_title(each))}{place}</td>"
        f'<td class="s"><span class="{state}">{_symbol(each)}</span></td>'
        f"<td>{_code(each.got)}{_remark(each)}{_bars(each)}</td><td>{_code(each.expected)}</td>"
        f'<td class="s">{html.escape(_difference(each)).replace(" (", "<br>(")}</td>'
        f'<td class="n">{each.points} / {each.possible}</td></tr>'
    )


def _symbol(each: Finding) -> str:
    return {"held": "&#10003; held", "waits": "&#8230; waits", "not held": "&#10007; not held"}[_mark(each)]


def _code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>" if text else ""


def _remark(each: Finding) -> str:
    return f'<br><span class="dim">{html.escape(each.remark)}</span>' if each.remark and not each.blocked_by else ""


def _bars(each: Finding) -> str:
    """Two bars, the answer's cost over ours, where a property shows one: how much too much is seen at once."""
    if each.measured is None or min(each.measured) < 0 or max(each.measured) == 0:
        return ""
    top = max(each.measured)
    rows = [("yours", "#b35900", each.measured[0]), ("ours", "#0b6bcb", each.measured[1])]
    bars = "".join(
        f'<rect y="{16 * i + 3}" width="{max(1.0, 120 * value / top):.1f}" height="9" fill="{colour}"/>'
        f'<text x="126" y="{16 * i + 12}" font-size="11" fill="currentColor">{name} {number(value)}</text>'
        for i, (name, colour, value) in enumerate(rows)
    )
    words = " and ".join(f"{name} {number(value)}" for name, _, value in rows)
    return f'<br><svg width="230" height="34" role="img" aria-label="{words}">{bars}</svg>'


def _failure_box(verdict: Verdict) -> str:
    if verdict.failure is None:
        return ""
    first, *rest = _failure_lines(verdict)
    lines = f"<pre>{html.escape(chr(10).join(line.strip() for line in rest))}</pre>" if rest else ""
    return f'<div class="box broke">{html.escape(first)}{lines}</div>'


def _diagnosis_box(verdict: Verdict) -> str:
    if verdict.diagnosis is None:
        return ""
    name = html.escape(_words(verdict.diagnosis.name))
    return f'<div class="box why"><b>Diagnosis: {name}.</b> {prose(verdict.diagnosis.hint)}</div>'


def _hints(verdict: Verdict) -> str:
    """A hint for each property that failed and does not only wait; none where the diagnosis already says it."""
    told = _told(verdict)
    if verdict.diagnosis or not told:
        return ""
    items = "".join(f"<li><b>{html.escape(_words(each.property))}</b>: {prose(each.hint)}</li>" for each in told)
    return f"<ul>{items}</ul>"


def _told(verdict: Verdict) -> list[Finding]:
    """The failed properties whose hints help: where an exception leaves no value to judge, only the first of them."""
    failed = [each for each in verdict.findings if not each.held and not each.blocked_by]
    broke = [each for each in failed if _broke(each, verdict)]
    return [each for each in failed if each not in broke[1:]]


def _broke(each: Finding, verdict: Verdict) -> bool:
    return verdict.failure is not None and (each.got == verdict.failure.type or each.got.startswith(BROKE))


def _printed(verdict: Verdict) -> str:
    if not verdict.printed:
        return ""
    return f'<div class="box said">Your code printed:<pre>{html.escape(verdict.printed)}</pre></div>'
