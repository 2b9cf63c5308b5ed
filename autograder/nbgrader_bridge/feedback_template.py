"""The feedback page as a template: no script, no other file, and what is put into it is escaped."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light; --text: #1f2328; --dim: #57606a; --line: #d0d7de; --soft: #f6f8fa; --own: #0b6bcb; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: #fff; margin: 24px auto; max-width: 1000px;
  padding: 0 20px; overflow-wrap: break-word; }
h1 { font-size: 23px; margin: 0 0 6px; } h2 { font-size: 18px; margin: 26px 0 8px; } p { margin: 6px 0; }
.dim { color: var(--dim); } a { color: #0550ae; }
.summary { width: 100%; margin-top: 10px; border-collapse: collapse; border: 1px solid var(--line); }
.summary > tbody > tr > td { padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
.summary .n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; width: 1%; }
.summary .name { width: 1%; min-width: 200px; font-weight: 600; }
.summary ul { margin: 4px 0; padding-left: 20px; }
.full .n { background: #d7ebff; } .part .n { background: #fff1c9; } .none .n { background: #ffdcd2; }
.summary .box { border-left: 4px solid #b35900; background: var(--soft); padding: 6px 12px; margin: 6px 0; }
.own { border-left: 4px solid var(--own); padding-left: 14px; margin: 16px 0; }
details.lesson { margin: 10px 0; border: 1px solid var(--line); border-radius: 6px; padding: 6px 12px;
  color: var(--dim); }
details.lesson { overflow-x: auto; } details.lesson > summary { cursor: pointer; } .anchor-link { display: none; }
 details.lesson[open] { color: var(--text); }
.cell { margin: 10px 0; } .label { font-size: 13px; color: var(--dim); display: flex; justify-content: space-between; }
.source { border: 1px solid var(--line); background: var(--soft); border-radius: 4px; padding: 8px 10px; }
pre { margin: 0; font: 13px/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.output { padding: 4px 10px; overflow-x: auto; } .output img { max-width: 100%; height: auto; }
.stderr { background: #fff3f0; }
.comment { border-left: 4px solid #1a7f37; background: var(--soft); padding: 6px 12px; }
.cell table { border-collapse: collapse; } .cell th, .cell td { padding: 3px 8px; }
.hpml { max-width: 100% !important; }
@media (max-width: 640px) { body { margin: 10px auto; padding: 0 10px; } .own { padding-left: 8px; }
  .summary > tbody > tr > td { display: block; width: auto !important; border: 0; padding: 3px 8px; }
  .summary > tbody > tr { display: block; border-bottom: 1px solid var(--line); } .summary .n { text-align: left; } }
@media print { body { margin: 0; max-width: none; font-size: 12px; } a { color: inherit; text-decoration: none; }
  .summary tr, .cell .label, .output img { break-inside: avoid; } details.lesson:not([open]), .folds { display: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
ANSI = (  # the classes of nbconvert's colours, in its order
    *(("black", "#3e424d"), ("red", "#b3261e"), ("green", "#1a7f37"), ("yellow", "#8a6100"), ("blue", "#0550ae")),
    *(("magenta", "#8250df"), ("cyan", "#176f8a"), ("white", "#57606a")),
)
COLOURS = "".join(
    f".ansi-{name}{strong}-fg {{ color: {colour}; }} .ansi-{name}{strong}-bg {{ background: {colour}; color: #fff; }}\n"
    for name, colour in ANSI
    for strong in ("", "-intense")
)

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ page.title }}</title>
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="script-src 'none'; object-src 'none'; frame-src 'none'">
<style>{{ style|safe }}</style></head><body><a id="top"></a>

<h1>{{ page.title }} (Score: {{ page.score|round(2) }} / {{ page.max_score|round(2) }})</h1>
{% if page.late_penalty > 0 %}<p>Late submission penalty: {{ page.late_penalty|round(2) }} points were taken off.</p>
{% endif %}{% for cell in page.notes %}{{ markdown(cell) }}{% endfor %}
<table class="summary"><tbody>{% for row in page.rows %}
<tr class="{{ row.kind }}"><td class="name"><a href="#{{ row.anchor }}">
{{- row.name|replace("_", "_<wbr>"|safe) }}</a></td>
<td class="n">{{ row.score|round(2) }} / {{ row.possible|round(2) }}{{ " bonus" if row.bonus }}</td>
<td>{% if row.told %}{{ row.told|safe }}{% else %}<span class="dim">
{{- {"full": "all of it holds", "": "not attempted"}.get(row.kind, "") }}</span>{% endif %}</td></tr>{% endfor %}
</tbody></table>

<h2>What you wrote</h2>
<p class="dim folds">The lesson's own cells are folded: open one to see what stood there. All of it stands, to be run,
in <a href="{{ page.lesson }}">the lesson's notebook</a>, which lies two folders above the one that this page was
fetched into.</p>
{% macro shown(output, check) %}<div class="output{{ " stderr" if output.name == "stderr" }}">
{%- if output.output_type == "stream" %}<pre>{{ output.text|ansi2html }}</pre>
{%- elif output.output_type == "error" %}<pre>{{ output.traceback|join("\n")|ansi2html }}</pre>
{%- elif check and "text/html" in output.data %}{{ output.data["text/html"]|safe }}
{%- elif "image/png" in output.data %}<img alt="{{ undescribed }}" src="data:image/png;base64,
{{- output.data["image/png"]|replace("\n", "") }}"/>
{%- else %}<pre>{{ output.data["text/plain"]|default("")|ansi2html }}</pre>{% endif %}</div>{% endmacro %}
{% macro one(cell) %}{% set given = cell.metadata.nbgrader|default({}) %}{% set check = is_check(cell) %}
<div class="cell">{% if given.grade or given.task %}<div class="label" id="{{ given.grade_id }}"><span>
{{- given.grade_id }}</span><span>{% if check and not given.points %}Bonus: {{ given.score|float|round(2) }}{% else -%}
Score: {{ given.score|float|round(2) }} / {{ given.points|float|round(2) }}{% endif %}
<a href="#top">(Top)</a></span></div>{% endif %}
{% if cell.cell_type == "markdown" %}{{ markdown(cell) }}
{% elif cell.cell_type == "raw" %}<pre>{{ cell.source }}</pre>
{% elif not check %}<div class="source">{{ code(cell) }}</div>{% endif %}
{% for output in cell.outputs|default([]) %}{{ shown(output, check) }}{% endfor %}
{% if (given.solution or given.task) and given.comment %}<div class="comment"><b>Comments:</b>
{{ comment(given) }}</div>{% endif %}</div>{% endmacro %}
{% for block in page.blocks %}{% if block.own %}<div class="own">
{%- for cell in block.cells %}{{ one(cell) }}{% endfor %}
</div>{% else %}<details class="lesson"><summary>{{ block.title }}</summary>{% for cell in block.cells %}
{{- one(cell) }}{% endfor %}</details>{% endif %}
{% endfor %}</body></html>
"""
