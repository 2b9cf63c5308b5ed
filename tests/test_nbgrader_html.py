"""Nothing that a student hands in is live in a page that teachers or students open."""

from __future__ import annotations

import functools
import html
import re
import weakref
from collections import Counter
from html.parser import HTMLParser

import pytest
from conftest import soak
from hypothesis import given
from hypothesis import strategies as st
from nbconvert.filters import markdown2html
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell
from plain_nbgrader import autograde, formgrader_page, make_feedback, open_course, page
from small_class import RIGHT, hand_in, notebook

from autograder.engine.cells import verbatim
from autograder.nbgrader_bridge import exporters
from autograder.nbgrader_bridge import pages as pages_of_feedback
from autograder.nbgrader_bridge.pages import COLOURED, KEPT, ON_A_PAGE, FeedbackExporter

ATTACKS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</pre></code></div><img src=x onerror=alert(1)>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<a href='javascript:alert(1)' onclick=alert(1)>x</a> [x](javascript:alert(1)) ![x](x' onerror='alert(1))",
    "<svg onload=alert(1)><style>@import 'http://127.0.0.1/';</style></svg>",
    "$$</span><img src=x onerror=alert(1)>$$ \\(<script>alert(1)</script>\\)",
    "\n\n<details open ontoggle=alert(1)>\n\n```\n</code></pre><script>alert(1)</script>\n```\n",
    "- a\n\n    <object data='data:text/html,<script>alert(1)</script>'>\n1. <form action=//x><button>x",
    "<!-- --><meta http-equiv=refresh content='0;url=//x'><base href=//x><link rel=stylesheet href=//x>",
    "\x0b\x0c\x1c\u2028<embed src=//x>\r<script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}<script>alert(1)</script>",
]
SHOWN = """\
from IPython.display import HTML, SVG, Javascript, Markdown, display
attack = {attack!r}
print(attack)
display(HTML(attack), Markdown(attack), Javascript("alert(1)"))
display({{"text/html": attack, "image/svg+xml": attack, "text/latex": attack}}, raw=True)
"""
ALIVE = {"script", "iframe", "object", "embed", "form", "meta", "base", "link", "svg", "img", "button", "style"}
ADDRESSES = {"href", "src", "data", "action", "formaction", "xlink:href", "srcdoc"}
REMOTE = re.compile(r"\s*(javascript:|data:|https?:|//)", re.IGNORECASE)


class Elements(HTMLParser):
    """All elements of a page with their attributes, in order."""

    def __init__(self, page_text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page_text)
        self.close()

    def handle_starttag(self, tag, attrs):
        """One more."""
        self.found.append((tag, {name: value or "" for name, value in attrs}))


def alive(page_text: str) -> Counter[str]:
    """How often a page holds what loads or runs something: elements, event handlers, addresses."""
    found: Counter[str] = Counter()
    for tag, attributes in Elements(page_text).found:
        found.update([tag] if tag in ALIVE else [])
        found.update(name for name in attributes if name.startswith("on"))
        found.update(value[:20] for name, value in attributes.items() if name in ADDRESSES and REMOTE.match(value))
    return found


def tempting(attack: str):
    """A notebook with one attack wherever a student may write."""
    book = notebook({
        "quadratic_grads": f"def quadratic_grads(*args):\n    print({attack!r})\n    raise ValueError({attack!r})",
        "hinge_backward": f"def hinge_backward(*args):\n    return {attack!r}\n# {attack.splitlines()[0]}",
        "hvp": RIGHT["hvp"],
    })  # fmt: skip
    book.cells += [new_markdown_cell(attack), new_raw_cell(attack), new_code_cell(SHOWN.format(attack=attack))]
    book.cells[0].source = attack
    book.metadata["title"] = attack
    book.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {"x": attack}}}
    return book


@pytest.fixture(scope="module")
def pages(tmp_path_factory, warm):
    """Feedback and formgrader page of a notebook with these words wherever a student may write, made when asked for."""
    root = open_course(tmp_path_factory.mktemp("html") / "build")

    @functools.cache
    def of(words: str) -> tuple[str, str]:
        name = f"s{of.cache_info().misses}"
        hand_in(root, name, tempting(words))
        autograde(root, student=name)
        make_feedback(root)
        return page(root, name), formgrader_page(root, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm, "close", lambda: None)
        patch.setattr(exporters, "open_runner", lambda **trust: warm)
        yield of


@pytest.mark.parametrize("number", [0, 4, 6, 9, *map(soak, (1, 2, 3, 5, 7, 8, 10, 11))])
def test_an_attack_adds_nothing_live_to_a_page(pages, number):
    for harmless, attacked in zip(pages("harmless"), pages(ATTACKS[number]), strict=True):
        assert alive(attacked) - alive(harmless) == Counter()


def test_a_live_page_would_be_seen(pages):
    harmless, _ = pages("harmless")
    for attack in ATTACKS:
        assert alive(attack + harmless) - alive(harmless) != Counter()


def test_what_a_student_wrote_can_still_be_read(pages):
    assert html.unescape(pages(ATTACKS[0])[0]).count("<script>alert(1)</script>") >= 4


@given(st.text(st.sampled_from(list("<>!-/[]()`~*_#$\\&;:=\"' \t\n\r\x0c\u2028abijps1.")), max_size=80))
def test_verbatim_text_is_a_block_of_code_whatever_it_holds(text):
    tags = {tag for tag, _ in Elements(markdown2html(verbatim(text))).found}
    assert tags <= {"div", "pre", "code", "span"}


def test_a_long_source_is_shown_without_colours_which_would_make_it_twenty_times_as_long():
    source = "<1>+" * (COLOURED // 4)
    coloured, plain = (FeedbackExporter()._highlight(each) for each in (source, source + "1"))
    assert "<span" in coloured
    assert plain == f'<div class="highlight"><pre>{"&lt;1&gt;+" * (COLOURED // 4)}1</pre></div>'


@pytest.mark.parametrize("line", [" \t\n", " \r", "\x0c\r\n"])
def test_lines_of_blanks_get_no_colours_which_would_take_minutes(line):
    source = line * 1_000
    assert FeedbackExporter()._highlight(source) == f'<div class="highlight"><pre>{source}</pre></div>'


def codes(*sources: str, language: str = "python") -> list[str]:
    """What stands on a page for cells of code."""
    cells = [new_code_cell(source) for source in sources]
    text, _ = FeedbackExporter().from_notebook_node(
        new_notebook(cells=cells, metadata={"language_info": {"name": language}})
    )
    return re.findall(r"<pre>.*?</pre>", text, re.DOTALL)


def test_no_notebook_chooses_the_lexer_of_its_code_some_of_which_never_end():
    source = "%%bash\necho 'a' | cat"
    assert codes(source) == codes(source, language="ipython3")


@pytest.mark.parametrize("code", ["1+", "<"])
def test_colours_of_code_take_no_more_of_a_page_than_they_may(code):
    source = code * (COLOURED // len(code))
    found = codes(*[source] * (ON_A_PAGE // COLOURED))
    coloured = [each for each in found if "<span" in each]
    assert found[: len(coloured)] == coloured
    assert 0.9 * ON_A_PAGE < sum(map(len, coloured)) - len(source) * len(coloured) < 1.1 * ON_A_PAGE


def test_a_page_has_colours_up_to_a_time(monkeypatch):
    monkeypatch.setattr(pages_of_feedback, "SECONDS", 0.0)
    assert codes("1+1") == ["<pre>1+1</pre>"]


class Rendered(str):
    """HTML that can be seen to be forgotten."""


def test_of_what_students_wrote_few_characters_are_kept_for_other_pages(monkeypatch):
    def render(source):
        made = Rendered(f"<pre>{24 * source}</pre>")
        alive.add(weakref.ref(made, alive.discard))
        return made

    alive = set()
    monkeypatch.setattr(pages_of_feedback, "Highlight2HTML", lambda **_: render)
    exporter = FeedbackExporter()
    for student in range(30):
        cells = [new_code_cell(f"{student}.{number}".ljust(COLOURED, "+")) for number in range(12)]
        exporter.from_notebook_node(new_notebook(cells=cells))
        assert 0 < sum(len(each()) for each in alive) <= KEPT


def test_what_stands_on_every_page_is_rendered_once(monkeypatch):
    rendered = []
    monkeypatch.setattr(pages_of_feedback, "Highlight2HTML", lambda **_: lambda source: rendered.append(source) or "")
    exporter = FeedbackExporter()
    for student in range(5):
        cells = [new_code_cell("lesson = 1"), new_code_cell(f"own = {student}")]
        exporter.from_notebook_node(new_notebook(cells=cells))
    assert rendered == ["lesson = 1", *(f"own = {student}" for student in range(5))]
