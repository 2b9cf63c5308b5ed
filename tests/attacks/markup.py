"""Scripts for the browser of whoever looks at a graded notebook or a feedback page, in every place that shows text."""

from __future__ import annotations

from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output, new_raw_cell

from attacks.attack import SIGNATURE, VICTIM, Attack, answer, body, cell, changed

ALARM = "alert(4711)"  # what no page may run; tests parse for it
SCRIPT = f"<script>{ALARM}</script>"
ESCAPE, BELL = chr(27), chr(7)
WAYS = (
    SCRIPT,
    f"<img src=x onerror={ALARM}>",
    f"<svg onload={ALARM}></svg>",
    f'<a href="javascript:{ALARM}">x</a>',
    f'<iframe srcdoc="{SCRIPT}"></iframe>',
    f"<details open ontoggle={ALARM}>",
    f"</pre></code></div>{SCRIPT}",
    f"[x](javascript:{ALARM})",
    f'![x](x"onerror="{ALARM})',
    f"$$</script>{SCRIPT}$$",
    f"<style>@import 'javascript:{ALARM}';</style><base href='javascript:/*'>",
    f"```html\n{SCRIPT}\n```\n\n    x\n\n{SCRIPT}",
    "\r\n" + chr(11) + chr(12) + chr(0x2028) + SCRIPT,
    f"{ESCAPE}[31m{SCRIPT}{ESCAPE}]8;;javascript:{ALARM}{BELL}x{ESCAPE}]8;;{BELL}",
)
TYPES = (
    *("text/html", "text/markdown", "text/latex", "image/svg+xml", "application/javascript", "text/plain"),
    *("application/vnd.jupyter.widget-view+json", "application/json", "application/x-unknown", "image/png"),
)
WIDGET = {
    "application/vnd.jupyter.widget-state+json": {
        "version_major": 2,
        "version_minor": 0,
        "state": {
            "a": {"model_name": "HTMLModel", "model_module": "@jupyter-widgets/controls", "state": {"value": SCRIPT}}
        },
    }
}
SHOW = f"""\
from IPython.display import HTML, Javascript, Markdown, display

WAYS = {WAYS!r}
for way in WAYS:
    display(HTML(way), Markdown(way), Javascript(way))
    for kind in {TYPES!r}:
        display({{kind: way}}, raw=True)
    print(way)
display({WIDGET!r}, raw=True)
display({{"image/png": '"><script>{ALARM}</script>', "image/svg+xml": "<svg><script>{ALARM}</script></svg>"}}, raw=True)
display("x", display_id="{SCRIPT}")


class Shown:
    def _repr_html_(self):
        return WAYS[0]

    def __repr__(self):
        return WAYS[0]


Shown()
"""
WIDGETS = f"""\
import ipywidgets
from IPython.display import display

display(ipywidgets.HTML(value={SCRIPT!r}), ipywidgets.Label(value={SCRIPT!r}))
ipywidgets.HTML(value={SCRIPT!r}, description={SCRIPT!r})
"""
RAISES = f"""
kind = type("<img src=x onerror={ALARM}>", (Exception,), {{}})
raise kind({SCRIPT!r} + chr(10) + "    " + {SCRIPT!r})
"""


def _in_text(notebook: NotebookNode) -> None:
    for each in notebook.cells[:20]:
        if each.cell_type == "markdown":
            each.source = f"{each.source}\n\n{SCRIPT}"
            each["attachments"] = {f"x.svg{SCRIPT}": {"image/svg+xml": SCRIPT}}
    notebook.cells += [new_markdown_cell(way) for way in WAYS] + [new_raw_cell(way) for way in WAYS]


def _in_outputs(notebook: NotebookNode) -> None:
    notebook.metadata["widgets"] = WIDGET
    for each in notebook.cells:
        if each.cell_type == "code":
            shown = [new_output("display_data", {kind: way}) for kind in TYPES for way in WAYS[:2]]
            each.outputs = [*shown, new_output("error", ename=SCRIPT, evalue=SCRIPT, traceback=list(WAYS))]


def _in_metadata(notebook: NotebookNode) -> None:
    odd = {
        "title": SCRIPT,
        "authors": [{"name": SCRIPT}],
        "kernelspec": {"name": SCRIPT, "display_name": SCRIPT, "language": SCRIPT},
        "language_info": {"name": f"python{SCRIPT}", "pygments_lexer": SCRIPT, "mimetype": SCRIPT},
    }
    notebook.metadata.update(from_dict(odd))
    for number, each in enumerate(notebook.cells):
        each.metadata["tags"] = [SCRIPT]
        each.metadata["name"] = SCRIPT
        if each.id.startswith("text-"):
            each.id = f'x{number}"onclick={ALARM}'


def _in_code(notebook: NotebookNode) -> None:
    notebook.cells += [new_code_cell(f'r"""{way}"""') for way in WAYS]
    notebook.cells.append(new_code_cell(f"%%html\n{SCRIPT}"))


def _in_a_comment(notebook: NotebookNode) -> None:
    for each in notebook.cells:
        if each.id == f"answer-{VICTIM}":
            each.source += f"\n# {SCRIPT} </span></pre>{SCRIPT}"


ATTACKS: list[Attack] = [
    changed("script_in_text", _in_text),
    changed("script_in_outputs_and_widget_state", _in_outputs),
    changed("script_in_metadata", _in_metadata),
    changed("script_in_code", _in_code, display=True),
    changed("script_in_a_comment", _in_a_comment),
    cell("script_displayed", SHOW),
    cell("script_in_widgets", WIDGETS),
    cell("script_in_a_traceback", RAISES),
    body("script_in_a_message", RAISES),
    body("script_in_a_value", f"return {SCRIPT!r}, {WAYS[1]!r}, {{{SCRIPT!r}: 1.0}}"),
    body("script_printed", f"print({SCRIPT!r} * 10)\nreturn 0.0, 0.0, 0.0"),
    answer("script_in_a_failing_line", f"{SIGNATURE}    raise ValueError('x')  # {SCRIPT}\n"),
]
