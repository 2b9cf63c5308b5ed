"""What a display run showed cannot harm those who open it, and stays a valid notebook."""

from __future__ import annotations

import base64
import functools
import json
import re
import struct
import sysconfig
import tracemalloc
import weakref
import zlib
from collections import Counter
from pathlib import Path

import nbformat
import nbgrader
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.ansi import ansi2html
from nbformat.v4 import new_code_cell, new_notebook
from traitlets.config import Config

from autograder.engine import outputs
from autograder.engine.outputs import safe
from autograder.nbgrader_bridge.pages import FeedbackExporter

SCRIPT = "<script>alert(1)</script>"
FORMGRADER = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 2, height: int = 1, *extra: bytes) -> bytes:
    """A grey picture with `extra` chunks in it."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress((b"\0" + b"\x80" * min(width, 100)) * min(height, 100)))
    return outputs.SIGNATURE + header + b"".join(extra) + rows + chunk(b"IEND", b"")


def stream(text: object, name: object = "stdout") -> dict:
    return {"output_type": "stream", "name": name, "text": text}


def display(**data: object) -> dict:
    """A display of forms: html="..." is text/html."""
    names = {"plain": "text/plain", "html": "text/html", "png": "image/png", "svg": "image/svg+xml"}
    forms = {names.get(form, f"application/{form}"): value for form, value in data.items()}
    return {"output_type": "display_data", "data": forms, "metadata": {}}


def pictured(data: bytes) -> dict:
    return display(plain="<Figure>", png=base64.b64encode(data).decode())


def error(*traceback: str, ename: str = "E", evalue: str = "v") -> dict:
    return {"output_type": "error", "ename": ename, "evalue": evalue, "traceback": list(traceback)}


def alone(output: object) -> dict:
    """What is made of one output in one cell."""
    ((made,),) = safe([[output]], 1)
    return made


def as_notebook(cells):
    found = [new_code_cell("x", outputs=[nbformat.from_dict(each) for each in shown]) for shown in cells]
    return new_notebook(cells=found)


@functools.cache
def exporter(template: str) -> HTMLExporter:
    """As nbconvert (`lab`), our feedback (`feedback`) and formgrader (`formgrade`) have it."""
    styles = FORMGRADER / "static" / "node_modules" / "bootstrap" / "dist" / "css"
    places = {"extra_template_basedirs": [str(FORMGRADER / "templates")], "extra_template_paths": [str(styles)]}
    kind = FeedbackExporter if template == "feedback" else HTMLExporter
    return kind(template_name=template, config=Config(HTMLExporter=places))


def page(shown, template: str) -> str:
    """The HTML page of one cell with these outputs."""
    numbers = dict.fromkeys(("score", "max_score", "late_penalty", "index", "total"), 0)
    words = ("notebook", "assignment_id", "notebook_id", "notebook_path", "submission_id", "base_url", "student")
    names = dict.fromkeys((*words, "first_name", "last_name", "mathjax_url"), "a")
    html, _ = exporter(template).from_notebook_node(as_notebook([shown]), {**numbers, **names, "nbgrader": numbers})
    return html


def tags(html: str) -> Counter[str]:
    """Every tag of a page as it stands there, but those that text and pictures are shown with."""
    shows = r'</?(pre|div)\b[^>]*>|</?span( class="[\w -]*")?( style="[\w():;, -]*")?>'
    source, words = r'src="data:image/png;base64,[\w+/=]*"', r'alt="[\w ]*"'
    plain = re.compile(rf'{shows}|<img {words} (class="" )?{source}/>|<img {source}\s{words}\s>')
    return Counter(tag for tag in re.findall(r"<[a-zA-Z!/][^>]*>", html) if not plain.fullmatch(tag))


HOSTILE = {
    "script in a stream": stream(f"</pre>{SCRIPT}"),
    "script on stderr": stream(SCRIPT, "stderr"),
    "script in an unknown stream": stream(SCRIPT, f"x{SCRIPT}"),
    "html between colours": stream(f"\x1b[31m{SCRIPT}\x1b[0m</pre><img src=x onerror=alert(1)>"),
    "html inside an escape sequence": stream(f"\x1b[{SCRIPT}m\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07"),
    "a colour that ends nbconvert": stream("\x1b[38m \x1b[48;5m \x1b[38;2;1;1m"),
    "an exception": error(SCRIPT, f"\x1b[31m</pre>{SCRIPT}", ename=SCRIPT, evalue=SCRIPT),
    "html": display(plain="x", html=SCRIPT),
    "svg": display(svg=f"<svg onload='alert(1)'>{SCRIPT}</svg>"),
    "javascript": display(javascript="alert(1)"),
    "markdown": {**display(), "data": {"text/markdown": SCRIPT}},
    "a diagram": {**display(), "data": {"text/vnd.mermaid": f"</pre>{SCRIPT}"}},
    "a widget": {**display(), "data": {outputs.WIDGET: {"model_id": SCRIPT}}},
    "a name of a form": {**display(), "data": {f"text/x-{SCRIPT}": "x", "text/plain": SCRIPT}},
    "text that is no picture": display(png=f'" onerror="alert(1)">{SCRIPT}'),
    "a page behind a picture": pictured(png() + SCRIPT.encode()),
    "metadata": {**pictured(png()), "metadata": {"image/png": {"width": SCRIPT}, "filenames": {"image/png": SCRIPT}}},
    "an unknown kind": {"output_type": f"x{SCRIPT}", "text": SCRIPT},
}


@pytest.mark.parametrize("template", ["lab", "feedback", "formgrade"])
@pytest.mark.parametrize("what", HOSTILE)
def test_no_output_brings_a_tag_of_its_own_into_a_page(what, template):
    cell = safe([[HOSTILE[what]]], 1)[0]
    assert tags(page(cell, template)) == tags(page([stream("x")], template))


# --- whatever comes -----------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)
texts = st.text(st.sampled_from("ab\n\r\x1b[]();0123456789mK\x07\ud800\u202e<>")) | anything
forms = st.sampled_from(["text/plain", "image/png", "text/html", "image/svg+xml", outputs.WIDGET, "x"])
nearly = st.fixed_dictionaries(
    {"output_type": st.sampled_from(["stream", "error", "display_data", "execute_result", "update_display_data"])},
    optional={
        "name": st.sampled_from(["stdout", "stderr", "stdin"]) | anything,
        "text": texts,
        "data": st.dictionaries(forms, texts | st.just(base64.b64encode(png()).decode())) | anything,
        "metadata": anything,
        "ename": texts,
        "evalue": texts,
        "traceback": st.lists(texts) | anything,
        "execution_count": anything,
    },
)


@given(anything | st.lists(st.lists(nearly) | anything), st.integers(0, 4))
def test_whatever_comes_back_becomes_a_valid_notebook(displayed, count):
    cells = safe(displayed, count)
    assert len(cells) == count
    nbformat.validate(as_notebook(cells))
    written = json.dumps(cells, allow_nan=False, ensure_ascii=False).encode()
    assert json.loads(written) == [list(cell) for cell in cells]


@given(
    st.lists(st.sampled_from(["\x1b[", ";", "m", "3", "8", "5", "2", "255", "256", "1", "48", "38", "a"]), max_size=30)
)
def test_colours_that_are_kept_are_colours_to_nbconvert(parts):
    text = alone(stream("".join(parts)))["text"]
    assert "\x1b" not in ansi2html(text)
    assert re.sub(r"\x1b\[[\d;]*m", "", text).count("\x1b") == 0


def test_no_list_at_all_is_a_run_that_ended_before_the_first_cell():
    cells = safe(None, 3)
    assert "ended here" in cells[0][0]["text"]
    assert cells[1:] == ((), ())


def test_a_short_list_is_a_run_that_ended_after_its_last_cell():
    first, second, third = safe([[stream("a")]], 3)
    assert first == (stream("a"),)
    assert "ended here" in second[0]["text"]
    assert third == ()


def test_more_cells_than_there_are_do_not_count():
    assert safe([[stream("a")], [stream("b")]], 1) == ((stream("a"),),)


# --- text -----------------------------------------------------------------------------------------------


def test_colours_of_a_traceback_are_kept():
    coloured = "\x1b[31mE\x1b[39m \x1b[38;5;28;01mdef\x1b[39;00m \x1b[30;43mx\x1b[39;49m \x1b[38;2;1;2;3my\x1b[m"
    assert alone(error(coloured))["traceback"] == [coloured]


@pytest.mark.parametrize("module", [nbformat, json, outputs])
def test_a_traceback_does_not_tell_where_the_grader_has_its_libraries(module):
    (text,) = alone(error(f"File \x1b[32m{module.__file__}:3\x1b[39m"))["traceback"]
    assert (
        text
        == f"File \x1b[32m{module.__name__.replace('.', '/')}{'' if module is outputs else '/__init__'}.py:3\x1b[39m"
    )


@pytest.mark.parametrize(
    "sequence", ["\x1b[2K", "\x1b[10A", "\x1b[38m", "\x1b]0;title\x07", "\x1b", "\x9b", "\0", "\x7f"]
)
def test_what_moves_a_terminal_is_removed(sequence):
    assert alone(stream(f"a{sequence}b"))["text"] == "ab"


def test_characters_that_reorder_a_line_are_removed():
    assert alone(stream("a\u202eb\u2066c"))["text"] == "abc"


def test_a_progress_bar_is_shown_as_its_last_state():
    assert alone(stream("10%\r50%\r100%\ndone\r\n50%\r"))["text"] == "100%\ndone\n50%"


def test_a_long_text_keeps_its_beginning_and_says_so():
    text = alone(stream("a" * outputs.TEXT + "b" * 7))["text"]
    assert text == "a" * outputs.TEXT + "\n[7 more characters were left out]\n"


def test_a_long_traceback_keeps_its_end():
    (text,) = alone(error("a" * outputs.TEXT, "the message"))["traceback"]
    assert text.startswith("[12 more characters were left out]\naaa")
    assert text.endswith("a\nthe message")


def test_no_more_of_a_traceback_is_searched_than_could_be_shown():
    line = "\U0001f600" + "a" * 2**20
    texts = [line, f"{sysconfig.get_path('purelib')}/{line}"]
    tracemalloc.start()
    try:
        (text,) = alone(error(*texts))["traceback"]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert text.endswith("a" * outputs.TEXT)


def test_text_with_thousands_of_colours_is_shown_without():
    text = alone(stream("\x1b[31ma\x1b[0m" * (outputs.COLOURS // 2 + 1)))["text"]
    assert text == "a" * (outputs.COLOURS // 2 + 1)


def test_name_and_message_of_an_exception_are_one_short_line_each():
    made = alone(error(ename="\x1b[31mE\nF" + "x" * 500, evalue="a\n\tb" + "c" * 5_000))
    assert made["ename"].startswith("E Fxxx")
    assert made["evalue"].startswith("a bccc")
    assert len(made["ename"]) <= outputs.ENAME
    assert len(made["evalue"]) <= outputs.EVALUE


# --- pictures and other forms -----------------------------------------------------------------------------


def test_a_picture_is_kept_without_what_only_describes_it():
    made = alone(pictured(png(2, 1, chunk(b"tEXt", b"Software\0x"), chunk(b"iCCP", b"x\0\0"))))
    assert base64.b64decode(made["data"]["image/png"]) == png()
    assert made["data"]["text/plain"] == "<Figure>"


UNSOUND = {
    "gif": b"GIF89a",
    "cut": png()[:-1],
    "headless": png()[8:],
    "no rows": png().replace(b"IDAT", b"IDOT"),
    "checksum": png()[:30] + b"?" + png()[31:],
    "short header": outputs.SIGNATURE + chunk(b"IHDR", struct.pack(">II", 2, 1)) + png()[33:],
    "no pixels": png(0, 1),
    "too many pixels": png(3_000, 3_000),
    "too wide": png(10_001, 1),
    "too high": png(1, 10_001),
    "two headers": png(2, 1, chunk(b"IHDR", bytes(13))),
    "too many bytes": png(2, 1, chunk(b"tEXt", bytes(outputs.PNG))),
    "signature": outputs.SIGNATURE,
}


LEFT_OUT = (
    "<Figure>\n[not shown here: a picture that is no PNG of at most 1 MiB and 8 megapixels "
    "(10,000 a side, 64 megapixels in a notebook)]"
)


@pytest.mark.parametrize("what", UNSOUND)
def test_what_is_no_sound_small_png_is_left_out_and_told(what):
    assert alone(pictured(UNSOUND[what]))["data"] == {"text/plain": LEFT_OUT}


def test_what_is_shown_in_another_form_keeps_its_text_and_says_what_is_missing():
    made = alone(display(plain="a table", html="<table>", svg="<svg>", odd="x"))
    assert made["data"] == {"text/plain": "a table\n[not shown here: HTML, SVG, another form]"}


def test_a_widget_becomes_a_line_of_text():
    made = alone({**display(plain="VBox(children=...)"), "data": {outputs.WIDGET: {"model_id": "1"}}})
    assert made["data"] == {"text/plain": "[a widget, which works only in a running notebook]"}


@pytest.mark.parametrize(("count", "kept"), [(3, 3), (-1, None), (True, None), ("1", None), (10**9, None)])
def test_a_result_keeps_its_number_if_it_is_one(count, kept):
    made = alone({**display(plain="3"), "output_type": "execute_result", "execution_count": count})
    assert made["execution_count"] == kept


# --- how much ---------------------------------------------------------------------------------------------


def test_of_a_cell_nothing_is_kept_but_what_is_shown():
    class Cell(list):
        pass

    def came():
        for _ in range(5):
            cell = Cell([stream("a")])
            cells.append(weakref.ref(cell))
            yield cell
        alive.extend(filter(None, (each() for each in cells)))

    cells, alive = [], []
    assert safe(came(), 6)[:5] == ((stream("a"),),) * 5
    assert len(alive) == 1


def test_a_cell_keeps_its_first_outputs_and_says_how_many_more_there_were():
    (cell,) = safe([[stream(str(number)) for number in range(outputs.OUTPUTS + 2)]], 1)
    assert [each["text"] for each in cell[-2:]] == ["39", "[2 more outputs of this cell were left out]\n"]


def test_all_outputs_together_stay_below_a_limit():
    cells = safe([[stream("a" * outputs.TEXT)] * outputs.OUTPUTS] * 20, 20)
    assert 0.99 * outputs.TOTAL < len(json.dumps(cells)) < 1.01 * outputs.TOTAL
    assert cells[0][-1]["text"] == "a" * outputs.TEXT
    assert cells[-1][-1]["text"] == "[left out: all outputs of a notebook may together hold 4 MiB]\n"


def test_pixels_of_all_pictures_together_stay_below_a_limit():
    large, small = pictured(png(3_000, 2_000)), pictured(png())
    shown = [output["data"] for cell in safe([[large, large, small]] * 8, 8) for output in cell]
    kept = [data["text/plain"] == "<Figure>" for data in shown]
    assert kept == [True] * 15 + [False, False, True] * 3
    assert {data["text/plain"] for data in shown} == {"<Figure>", LEFT_OUT}


SWELLING = {  # what is longer on a page than in a notebook
    "colours": stream("\x1b[38;2;255;255;255;48;2;255;255;255;1;3;4m" + "a\x1b[1m" * 998),
    "inverse colours": stream("\x1b[7;95;105;1;4m" + "a\x1b[7m" * 998),
    "ampersands": display(plain="&" * outputs.TEXT),
    "quotes": error("\"'" * (outputs.TEXT // 2)),
    "letters of four bytes": stream("\U0001f4da" * outputs.TEXT),
    "nothing": display(plain=""),
}


@pytest.mark.parametrize("what", SWELLING)
def test_what_outputs_take_of_a_page_is_bounded_as_it_stands_there(what, monkeypatch):
    monkeypatch.setattr(outputs, "TOTAL", 2**20)
    monkeypatch.setattr(outputs, "OUTPUTS", 10_000)
    (cell,) = safe([[SWELLING[what]] * outputs.OUTPUTS], 1)
    assert cell[-1]["text"] == "[left out: all outputs of a notebook may together hold 1 MiB]\n"
    assert len(page(cell, "feedback").encode()) - len(page([], "feedback").encode()) < outputs.TOTAL
