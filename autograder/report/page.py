"""`report.html`: one page, no script, no other file, light or dark as the reader's system is.

The template escapes whatever is put into it: names, messages and repairs may come from students.
"""

from __future__ import annotations

import os
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from autograder.engine.results import ClassResult, ExerciseResult
from autograder.report import words

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

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ result.assignment }}: who got what, and why</title>
<meta name="viewport" content="width=device-width"><style>{{ style|safe }}</style></head><body>
<h1>{{ result.assignment }}: who got what, and why</h1><div>{{ words.summary(result) }}</div>
{% if result.runner %}<div class="notice">How it was run: {{ result.runner }}.</div>{% endif %}

<h2>Misconceptions</h2>
{% set misconceptions = result.misconceptions() %}{% if not misconceptions %}<p>None was recognised.</p>{% else %}
<p class="dim">Number of students, and their share of the class; below each, an edit that makes a right answer this
wrong one.</p><div class="bars">
{% for exercise, name, count in misconceptions %}<div><span class="n">{{ count }}</span>
<svg width="100" height="12" aria-hidden="true"><rect width="100" height="12" fill="var(--soft)"/>
<rect width="{{ "%.1f" % [2, 100 * count / result.students|length]|max }}" height="12" fill="var(--bar)"/></svg>
<span>{{ words.spaced(name) }} <span class="dim">{{ exercise }}</span>
{%- set slip = words.slip(exercise, name) %}{% if slip %}<pre>{{ slip }}</pre>{% endif %}</span></div>
{% endfor %}</div>{% endif %}

{% if result.students %}<h2>Students</h2><div class="wide"><table>
<thead><tr><th>student</th><th class="n">score</th>{% for each in result.students[0].exercises %}
<th class="name">{{ each.name|replace("_", "_<wbr>"|safe) }}{{ "+" if each.bonus }}<br>
<span class="dim">{{ each.possible }}</span></th>{% endfor %}<th>remarks</th></tr></thead><tbody>
{% for student in result.students %}<tr><th>{{ student.student }}</th>
<td class="n">{{ words.number(student.score) }} <span class="dim">/ {{ words.number(student.max_score) }}</span></td>
{% for each in student.exercises %}{% set why = words.reason(each)[:words.LONGEST] %}<td class="n {{ kind(each) }}">
{{- words.number(each.score) }}{{ "*" if each.manual }}
{%- if why not in ("", "not attempted") %}<span class="why">{{ why }}</span>{% endif %}</td>{% endfor %}
<td class="remarks">{% for line in words.remarks(student) %}{{ line }}{% if not loop.last %}<br>{% endif %}{% endfor %}
</td></tr>{% endfor %}</tbody></table></div>{% endif %}

<p class="dim">Blue: full marks. Yellow: some. Red: none. White: not attempted. + marks a bonus, which raises no
maximum; * a score that a person gave or changed. The names under points are misconceptions that were recognised, or
what broke.</p></body></html>
"""


def write(result: ClassResult, path: Path) -> Path:
    """Write the page to `path`, whole or not at all, and return it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(to_html(result), encoding="utf-8")
    os.replace(part, path)
    return path


def to_html(result: ClassResult) -> str:
    """The page."""
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(PAGE)
    return page.render(result=result, style=STYLE, words=words, kind=_kind)


def _kind(result: ExerciseResult) -> str:
    """The colour of a cell."""
    attempted = result.verdict is not None and result.verdict.attempted
    return "full" if result.score >= result.possible else "part" if result.score > 0 else "none" if attempted else ""
