"""Pictures of computational graphs, drawn from the very nodes that the code computes with.

    root --arrange--> columns --_lay_out--> sizes and heights --_edge, _box--> Svg

Why SVG: its text stays text, for screen readers and to be copied; through CSS variables it takes on JupyterLab's
light or dark theme, also when the theme is switched later; and it is drawn in a few milliseconds, so that a slider
can move it. An image made by matplotlib has none of these. Curves and bars are drawn by matplotlib (`charts`).

A value is blue, bold and upright; a derivative is orange, slanted, behind the sign ∂ and on a tinted band: they
differ in form wherever they differ in colour.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from course.lessons.figures.layout import Arrangement, Bend, Place, arrange, heights
from course.lessons.figures.svg import Svg, document, text
from course.lessons.figures.words import label, local_words, names, number, slope_name
from course.lessons.graph import Node

# In pixels.
CHARACTER = 7.83  # width of one, in a monospaced font of 13 px
LINE = 19.0  # height of a line of text in a box
MARGIN = 12.0
GAP = 36.0  # between two columns: room for an arrow
SMALL = 6.62  # width of a character in a monospaced font of 11 px, which arrows carry
LANE = 16.0  # height of the lane that arrows get past a column of boxes
APART = 16.0  # between two places of a column
ARROW = 7.0
NARROWEST_PICTURE = 560.0  # so that title and legend have room
NARROWEST_BOX = 10  # characters: almost every number fits, so that nothing moves when it appears


@dataclass(frozen=True, kw_only=True)
class _Content:
    """What is written into the picture."""

    root: Node
    names: Mapping[Node, str]
    labels: Mapping[Node, str]
    hidden: frozenset[Node]  # nodes whose value is not shown
    derivatives: Mapping[Node, float] | None
    highlight: Node | None
    local: bool

    def heavy(self, source: Node, target: Node) -> bool:
        """Whether the arrow between them led to what the highlighted node shows last: value or derivative."""
        return self.highlight is (source if self.highlight in (self.derivatives or {}) else target)


@dataclass(frozen=True, kw_only=True)
class _Geometry:
    """Where everything stands, in pixels."""

    column: Mapping[Node, int]
    left: list[float]  # edge of each column
    right: list[float]
    y: Mapping[Place, float]  # of the middle of each place
    box: float  # height of a box
    bottom: float
    stub: float  # length of the straight end of an arrow, which carries its local derivative


def draw(
    root: Node,
    *,
    title: str,
    derivatives: Mapping[Node, float] | None = None,
    shown: int | None = None,
    highlight: Node | None = None,
    local: bool = False,
) -> Svg:
    """The graph of `root`: leaves left, root right, an arrow from each input to what is computed from it.

    title        what is to be seen; stands above the picture
    derivatives  d root / d node, written into the boxes of the nodes that it holds; `{}` keeps room for them
    shown        how many of the computed nodes show their value, column by column and from top to bottom; the others
                 show `?`. 0 shows the leaves' values alone, None all
    highlight    the node whose box has a thick frame; the arrows into it are thick too, or those out of it once its
                 derivative is shown
    local        whether each arrow carries its local derivative

    Nodes without a name are called v1, v2, ... Boxes stand at the same place, whatever is shown in them.
    Numbers have four significant digits, those on arrows three.
    Raises CannotDraw for what is no Node, and for more than 5,000 boxes and bends.
    """
    arrangement = arrange(root)
    nodes = arrangement.nodes()
    called = names(nodes)
    computed = [node for node in nodes if node.inputs]
    content = _Content(
        root=root,
        names=called,
        labels={node: label(node, called) for node in nodes},
        hidden=frozenset() if shown is None else frozenset(computed[max(shown, 0) :]),
        derivatives=derivatives,
        highlight=highlight,
        local=local,
    )
    return _compose(nodes, content, _lay_out(arrangement, content), title)


def _lay_out(arrangement: Arrangement, content: _Content) -> _Geometry:
    """Columns as wide as their longest label, boxes as high as their lines."""
    top = MARGIN + 34
    longest = max((len(words) for node in content.labels for words in local_words(node)), default=0)
    stub = round(SMALL * longest) if content.local else 0
    left, right = [], []
    x = MARGIN
    for column in arrangement.columns:
        widest = max(len(content.labels[place]) for place in column if isinstance(place, Node))
        left.append(x)
        right.append(x + round(CHARACTER * max(widest, NARROWEST_BOX)) + 16)
        x = right[-1] + GAP + stub
    box = LINE * (2 if content.derivatives is None else 3) + 6
    y = {place: top + middle for place, middle in heights(arrangement, box=box, bend=LANE, gap=APART).items()}
    bottom = max(middle + box / 2 for middle in y.values())
    return _Geometry(column=arrangement.column_of(), left=left, right=right, y=y, box=box, bottom=bottom, stub=stub)


def _compose(nodes: list[Node], content: _Content, geometry: _Geometry, title: str) -> Svg:
    """Title, arrows, boxes over them, legend."""
    width = max(geometry.right[-1] + MARGIN, NARROWEST_PICTURE)
    heading = textwrap.wrap(title, int((width - 2 * MARGIN) / 8.2))
    lift = 20.0 * (len(heading) - 1)
    edges = [line for node in nodes for line in _edges(node, content, geometry)]
    boxes = [_box(node, content, geometry) for node in nodes]
    height = geometry.bottom + lift + 34
    body = [
        *(text("title", MARGIN, 24 + 20 * row, words) for row, words in enumerate(heading)),
        f'<g transform="translate(0 {lift:g})">',
        *edges,
        *boxes,
        "</g>",
        text("legend", MARGIN, height - 10, _legend(content)),
    ]
    arrows = sum(len(node.inputs) for node in nodes)
    description = (
        f"A graph of {len(nodes)} boxes and {arrows} arrows, from its leaves to {content.names[content.root]}."
    )
    return document(width, height, title=title, description=description, body=body)


def _legend(content: _Content) -> str:
    parts = ["bold: value"]
    if content.derivatives is not None:
        parts.append(f"∂: derivative of {content.names[content.root]} with respect to the box")
    if content.local:
        parts.append("×: local derivative, of the arrow's end with respect to its start")
    return " · ".join(parts)


def _box(node: Node, content: _Content, geometry: _Geometry) -> str:
    """A box: label, value and, where there are derivatives, a band for the derivative. Leaves are rounder."""
    column = geometry.column[node]
    x, width = geometry.left[column], geometry.right[column] - geometry.left[column]
    y = geometry.y[node] - geometry.box / 2
    middle = x + width / 2
    value = None if node in content.hidden else number(node.value)
    slope = None if content.derivatives is None else content.derivatives.get(node)
    frame = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{geometry.box:g}" rx="{3 if node.inputs else 14}"'
    lines = [
        f'<g class="{"box now" if node is content.highlight else "box"}">',
        f"<title>{escape(_spoken(node, content, value, slope))}</title>",
        f'<rect class="frame" {frame}/>',
        text("name", middle, y + LINE - 4, content.labels[node], anchor="middle"),
        text("unknown" if value is None else "value", middle, y + 2 * LINE - 3, value or "?", anchor="middle"),
    ]
    if slope is not None:
        band = f'x="{x + 5:g}" y="{y + 2 * LINE + 2:g}" width="{width - 10:g}" height="{LINE:g}" rx="3"'
        lines += [
            f'<rect class="band" {band}/>',
            text("slope", middle, y + 3 * LINE - 2, f"∂ {number(slope)}", anchor="middle"),
        ]
    return "\n".join([*lines, "</g>"])


def _spoken(node: Node, content: _Content, value: str | None, slope: float | None) -> str:
    """The box in words: what a pointer held over it and a screen reader say."""
    words = f"{content.labels[node]}: value {value or 'not computed yet'}"
    if slope is None:
        return words
    return f"{words}, {slope_name(content.names[content.root], content.names[node])} = {number(slope)}"


def _edges(target: Node, content: _Content, geometry: _Geometry) -> list[str]:
    """The arrows into a box; they end one below the other, in the order in which they come."""
    arriving = sorted(
        zip(target.inputs, local_words(target), strict=True),
        key=lambda pair: geometry.y[_last_place(pair[0], target, geometry)],
    )
    top = geometry.y[target] - geometry.box / 2
    step = geometry.box / (len(arriving) + 1)
    return [
        _edge(source, target, top + step * (rank + 1), carried, content, geometry)
        for rank, (source, carried) in enumerate(arriving)
    ]


def _last_place(source: Node, target: Node, geometry: _Geometry) -> Place:
    before = geometry.column[target] - 1
    return source if geometry.column[source] == before else Bend(source, before)


def _edge(source: Node, target: Node, y: float, carried: str, content: _Content, geometry: _Geometry) -> str:
    """One arrow, from the middle of the source's right side past all columns between to the target's left side."""
    first, last = geometry.column[source], geometry.column[target]
    end = geometry.left[last]
    here = geometry.y[source]
    path = [f"M{geometry.right[first]:g} {here:g}"]
    for column in range(first + 1, last):
        lane = geometry.y[Bend(source, column)]
        path += [_curve(geometry.right[column - 1], here, geometry.left[column], lane), f"H{geometry.right[column]:g}"]
        here = lane
    turn = end - ARROW - geometry.stub
    path += [_curve(geometry.right[last - 1], here, turn, y), f"H{end - ARROW:g}"]
    tip = f"{end:g},{y:g} {end - ARROW:g},{y - 4:g} {end - ARROW:g},{y + 4:g}"
    lines = [
        f'<g class="{"edge now" if content.heavy(source, target) else "edge"}">',
        f"<title>{escape(content.names[source])} goes into {escape(content.names[target])}</title>",
        f'<path d="{" ".join(path)}"/>',
        f'<polygon points="{tip}"/>',
    ]
    if content.local:
        lines.append(text("local", end - ARROW - 1, y - 4, carried, anchor="end"))
    return "\n".join([*lines, "</g>"])


def _curve(x0: float, y0: float, x1: float, y1: float) -> str:
    """A path from where the pen is, (x0, y0), to (x1, y1), level at both ends."""
    middle = (x0 + x1) / 2
    return f"C{middle:g} {y0:g} {middle:g} {y1:g} {x1:g} {y1:g}"
