"""Feedback pages: nbconvert's, without what it does again for each student of a class.

    graded notebook --nbgrader's template--> page

Text and code of the lesson are rendered once for all pages. HTMLExporter parses each finished page and writes it anew,
three quarters of its time, only to say of pictures that nobody has described them. Here the template says so: who
parses our page finds the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters import Highlight2HTML, get_metadata
from nbconvert.filters.widgetsdatatypefilter import WidgetsDataTypeFilter
from nbformat import NotebookNode
from nbgrader.converters.base import BaseConverter

from autograder.nbgrader_bridge.folders import take_names_literally

KEPT = 512  # rendered texts: a lesson has some 150, which come again on every page
LONGEST = 20_000  # characters of a text that is rendered
UNDESCRIBED = "No description has been provided for this image"


class FeedbackExporter(HTMLExporter):
    """Makes the pages of one run of `nbgrader generate_feedback`, which then takes students' ids letter by letter."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        if isinstance(self.parent, BaseConverter):
            take_names_literally(self.parent, self.parent.coursedir.ignore)

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kwargs: Any) -> Any:
        """The page of a graded notebook."""
        language = nb.metadata.get("language_info", {})
        resources = self._init_resources(resources)  # type: ignore[no-untyped-call]
        form = WidgetsDataTypeFilter(  # type: ignore[no-untyped-call]
            notebook_metadata=self._nb_metadata, parent=self, resources=resources
        )
        self.register_filter("filter_data_type", form)  # type: ignore[no-untyped-call]
        highlight = self._highlight(language.get("pygments_lexer", language.get("name")))
        self.register_filter("highlight_code", highlight)  # type: ignore[no-untyped-call]
        return super(HTMLExporter, self).from_notebook_node(nb, resources, **kwargs)

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        """HTMLExporter's; the last one of a name counts."""
        yield from super().default_filters()  # type: ignore[no-untyped-call]
        yield "markdown2html", self._markdown()
        yield "get_metadata", _described

    def _markdown(self) -> Callable[[Context, str], str]:
        render = super().markdown2html
        plain = _remembering(lambda source: render({}, source))

        @pass_context
        def markdown(context: Context, source: str) -> str:
            own = self.embed_images or context.get("cell", {}).get("attachments")
            return render(context, source) if own else plain(source)

        return markdown

    @functools.cache  # noqa: B019 -- one exporter makes all pages of a command
    def _highlight(self, lexer: str | None) -> Callable[..., str]:
        render = Highlight2HTML(pygments_lexer=lexer, parent=self)  # type: ignore[no-untyped-call]
        plain = _remembering(render)

        def highlight(source: str, metadata: Any = None) -> str:
            own = metadata and "magics_language" in metadata
            return render(source, metadata=metadata) if own else plain(source)

        return highlight


def _remembering(render: Callable[[str], str]) -> Callable[[str], str]:
    """The same function, which does not render a short text again; a long one is shown as it was written: colours
    would make a page of 40 MB of a source of 2.
    """
    known = functools.lru_cache(KEPT)(render)
    return lambda text: (
        known(text) if len(text) <= LONGEST else f'<div class="highlight"><pre>{escape(text)}</pre></div>'
    )


def _described(output: Any, key: str, mimetype: str | None = None) -> Any:
    """nbconvert's filter; where neither a picture nor its cell has a description, one that says so."""
    found = get_metadata(output, key, mimetype)  # type: ignore[no-untyped-call]
    return UNDESCRIBED if found is None and key == "alt" and mimetype is None else found
