"""Feedback pages: a summary, then what the student wrote and what it shows, the lesson folded between.

    graded notebook --nbgrader's steps--> with scores and comments --view--> template --> page

The page is ours, because nbconvert's has scripts and begins with the lesson. Text and code of the lesson are rendered
once for many pages of a class.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from html import escape
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup
from nbconvert.exporters import HTMLExporter, TemplateExporter
from nbconvert.filters import Highlight2HTML, ansi2html
from nbformat import NotebookNode
from nbgrader.converters.base import BaseConverter
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

from autograder.engine.cells import role_of
from autograder.nbgrader_bridge.feedback import view
from autograder.nbgrader_bridge.feedback_template import COLOURS, PAGE, STYLE
from autograder.nbgrader_bridge.folders import take_names_literally

KEPT = 2_000_000  # characters of texts and their HTML: a lesson has 350,000, which come again on every page
LONGEST, COLOURED = 20_000, 5_000  # characters of a text that is rendered, and of code that gets colours
ON_A_PAGE, SECONDS = 1_500_000, 10.0  # characters that colours of code may add to a page; time for it
BLANK = re.compile(r"(?:[^\S\n\r]*[\n\r]){50}")  # over them the search for magics takes the square of their number
UNDESCRIBED = "No description has been provided for this image"


class FeedbackExporter(HTMLExporter):
    """Makes the pages of one run of `nbgrader generate_feedback`, which then takes students' ids letter by letter."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        if isinstance(self.parent, BaseConverter):
            take_names_literally(self.parent, self.parent.coursedir.ignore)
        render = super().markdown2html
        self._plain = _remembering(lambda source: render({}, source))
        self._coloured = _remembering(Highlight2HTML(pygments_lexer="python", parent=self))  # type: ignore[no-untyped-call]
        self._page = _page()

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kwargs: Any) -> Any:
        """The page of a graded notebook."""
        given = self._init_resources(resources)  # type: ignore[no-untyped-call]
        nb, given = super(TemplateExporter, self).from_notebook_node(nb, given, **kwargs)
        highlight = _sparing(self._highlight)
        html = self._page.render(
            page=view(nb, given),
            style=f"{STYLE}{COLOURS}{HtmlFormatter().get_style_defs('.highlight')}",
            markdown=lambda cell: Markup(self._markdown(cell)),
            comment=lambda given: Markup(self._plain(given.comment)),
            code=lambda cell: Markup(highlight(cell.source)),
            is_check=lambda cell: role_of(cell)[1] == "check",
            undescribed=UNDESCRIBED,
        )
        return html, given

    def _markdown(self, cell: NotebookNode) -> str:
        """Text as HTML; pictures that a cell of the lesson brings along are put into it."""
        if cell.get("attachments"):
            return str(super().markdown2html({"cell": cell}, cell.source))
        return self._plain(cell.source)

    def _highlight(self, source: str) -> str:
        """Code as HTML. It is Python's, whatever a notebook says: lexers of other languages can be made to hang."""
        return _as_written(source) if len(source) > COLOURED or BLANK.search(source) else self._coloured(source)


def _remembering(render: Callable[[str], str]) -> Callable[[str], str]:
    """The same function, which does not render a short text again, until what it remembers is too much and all of it is
    forgotten; a long one is shown as it was written: colours would make a page of 40 MB of a source of 2.
    """
    known = dict[str, str]()
    held = 0

    def remembering(text: str) -> str:
        nonlocal held
        if len(text) > LONGEST:
            return _as_written(text)
        if text not in known:
            html = render(text)
            held += len(text) + len(html)
            if held > KEPT:
                known.clear()
                held = len(text) + len(html)
            known[text] = html
        return known[text]

    return remembering


def _sparing(highlight: Callable[[str], str]) -> Callable[[str], str]:
    """The same function for one page, on which code is shown as it was written where colours have added so much: a
    hundred cells of them would make a page of 10 MB, and lexers may be slow.
    """
    left, until = ON_A_PAGE, time.thread_time() + SECONDS

    def sparing(source: str) -> str:
        nonlocal left
        if left <= 0 or time.thread_time() >= until:
            return _as_written(source)
        html = highlight(source)
        left -= len(html) - len(source)
        return html

    return sparing


def _as_written(text: str) -> str:
    return f'<div class="highlight"><pre>{escape(text)}</pre></div>'


def _page() -> Template:
    environment = Environment(autoescape=True)
    environment.filters["ansi2html"] = lambda text: Markup(ansi2html(text))  # type: ignore[no-untyped-call]
    return environment.from_string(PAGE)
