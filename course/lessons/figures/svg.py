"""Inline SVG that JupyterLab shows, and the style sheet of graphs in it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

# Two colours of the palette by M. Okabe and K. Ito that readers with any colour vision tell apart, a darker and a
# lighter shade of each, so that text has a contrast of at least 4.5 to 1 on both of JupyterLab's backgrounds.
STYLE = """
.hpml-graph { --value: #0063a0; --slope: #a64200; --page: var(--jp-layout-color0, #fff);
  --ink: var(--jp-ui-font-color1, #222); --pale: var(--jp-ui-font-color2, #555);
  font: 13px var(--jp-code-font-family, Menlo, Consolas, "DejaVu Sans Mono", monospace); height: auto; }
[data-jp-theme-light="false"] .hpml-graph { --value: #6cc0f2; --slope: #f2a45c; }
.hpml-graph text { fill: var(--ink); stroke: none; }
.hpml-graph .page { fill: var(--page); }
.hpml-graph .title { font: 600 15px var(--jp-ui-font-family, sans-serif); }
.hpml-graph .legend { font: 12px var(--jp-ui-font-family, sans-serif); fill: var(--pale); }
.hpml-graph .box rect { fill: var(--jp-layout-color1, #fff); stroke: var(--pale); stroke-width: 1.2; }
.hpml-graph .box .band { fill: var(--slope); fill-opacity: 0.13; stroke: none; }
.hpml-graph .box.now .frame { stroke: var(--ink); stroke-width: 3.5; }
.hpml-graph .value { fill: var(--value); font-weight: 700; }
.hpml-graph .slope { fill: var(--slope); font-style: italic; }
.hpml-graph .unknown { fill: var(--pale); }
.hpml-graph .edge path { fill: none; stroke: var(--pale); stroke-width: 1.3; }
.hpml-graph .edge polygon { fill: var(--pale); stroke: none; }
.hpml-graph .edge.now path { stroke: var(--ink); stroke-width: 3; }
.hpml-graph .edge.now polygon { fill: var(--ink); stroke: var(--ink); stroke-width: 2; stroke-linejoin: round; }
.hpml-graph .edge text { font-size: 11px; font-style: italic; fill: var(--ink); paint-order: stroke;
  stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
"""


@dataclass(frozen=True, repr=False)
class Svg:
    """A picture as SVG text. A notebook shows it once, as HTML: as an image it could not follow the theme."""

    text: str

    def __repr__(self) -> str:
        return "<a picture of a graph>"

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x: auto">{self.text}</div>'


def document(width: float, height: float, *, title: str, description: str, body: list[str]) -> Svg:
    """The `body` as a picture of this size in pixels; shrinks to three quarters where there is less room.

    title, description   what a screen reader says first
    """
    size = f"width: 100%; max-width: {width:g}px; min-width: {0.75 * width:g}px"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hpml-graph" role="group" '
        f'viewBox="0 0 {width:g} {height:g}" style="{size}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(description)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width:g}" height="{height:g}"/>',
        *body,
        "</svg>",
    ]
    return Svg("\n".join(lines))


def text(kind: str, x: float, y: float, words: str, *, anchor: str = "start") -> str:
    """Words with their baseline at `y`, in the style `kind`; `anchor` is start, middle or end."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'
