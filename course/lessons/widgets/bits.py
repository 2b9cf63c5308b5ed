"""Which number do these bits mean, and what becomes of it in another format?

format, buttons for the bits, a number typed in --Shown--> the number, its neighbours, and its roundings
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.lessons.experiments.formats import FORMATS, Format, exact

COLOURS = {"sign": "#f4b6a0", "exponent": "#a9d3ef", "mantissa": "#b5e3d0"}  # pale, so that 0 and 1 stay readable
BIT = widgets.Layout(width="22px", min_width="22px", padding="0", margin="1px 0 1px 0")
SENTENCE = "margin: 6px 12px; min-height: 3em; font-size: 15px"
CELL = "padding: 0 12px 0 0; text-align: left; vertical-align: top; line-height: 1.4; white-space: nowrap"
LONG = CELL.replace("nowrap", "normal; overflow-wrap: anywhere; max-width: 300px")  # of an exact value


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Bits of a format."""

    format: Format
    code: int

    @property
    def value(self) -> float:
        """The number that they mean."""
        return self.format.value(self.code)

    def flipped(self, place: int) -> Shown:
        """With another bit at this place, counted from the sign."""
        return Shown(format=self.format, code=self.code ^ 1 << (self.format.bits - 1 - place))

    def meaning(self) -> str:
        """Sign, power of two and mantissa, multiplied out."""
        sign, exponent, mantissa = self.format.fields(self.code)
        kind = self.format.kind(self.code)
        if kind in ("inf", "nan"):
            which = "all bits but the sign" if self.format.name == "e4m3" else "the exponent's bits"
            return f"{which} are 1: {'-' if sign and kind == 'inf' else ''}{kind}"
        lead, power = (1, exponent - self.format.bias) if exponent else (0, 1 - self.format.bias)
        product = f"2^{power} × ({lead} + {mantissa:,}/{2**self.format.mantissa:,})"
        return f"{'-' if sign else ''}{product}"


def rows(shown: Shown) -> list[tuple[str, str]]:
    """What the table says of these bits: labels and texts."""
    kind, value = shown.format.kind(shown.code), shown.value
    above, below = shown.format.next(shown.code), shown.format.previous(shown.code)
    gap = "none" if above is None or math.isinf(above) else f"{abs(above - value):.6g}{_power(abs(above - value))}"
    return [
        ("exact value", exact(value)),
        ("class", kind),
        ("made of", shown.meaning()),
        ("next one towards 0", "none" if below is None else f"{below:.9g}"),
        ("next one away from 0", "none" if above is None else f"{above:.9g}"),
        ("gap to it", gap),
    ]


def roundings(shown: Shown) -> list[tuple[str, str, str]]:
    """The same number in every other format: name, what it becomes, and by how much that is off."""
    found = []
    for other in FORMATS.values():
        if other != shown.format:
            code = other.code(shown.value)
            there = other.value(code)
            beyond = abs(shown.value) > abs(there) and other.next(code) is None
            found.append((other.name, f"{there:.9g}", "saturates" if beyond else _off(shown.value, there)))
    return found


def sentence(shown: Shown) -> str:
    """One sentence on what is seen."""
    kept = [name for name, _, off in roundings(shown) if off == "exact"]
    number, name = f"{shown.value:.6g}", shown.format.name
    if not math.isfinite(shown.value):
        return f"These bits of {name} are {number}."
    others = f"held exactly by {', '.join(kept)}" if kept else "held exactly by no other format here"
    return f"These bits of {name} are the {shown.format.kind(shown.code)} number {number}, {others}."


def page(shown: Shown) -> str:
    """The tables and the sentence as HTML."""
    left = "".join(
        f'<tr><th style="{CELL}">{label}</th><td style="{LONG}">{text}</td></tr>' for label, text in rows(shown)
    )
    head = "".join(f'<th style="{CELL}">{each}</th>' for each in ("cast to", "gives", "off by"))
    right = "".join(
        "<tr>" + "".join(f'<td style="{CELL}">{escape(each)}</td>' for each in row) + "</tr>"
        for row in roundings(shown)
    )
    return (
        f'<div role="status" style="{SENTENCE}">{escape(sentence(shown))}</div>'
        '<div style="display: flex; flex-wrap: wrap; gap: 8px 32px; align-items: flex-start; margin: 0 12px">'
        f"<table>{left}</table><table><tr>{head}</tr>{right}</table></div>"
    )


def _power(gap: float) -> str:
    return f" = 2^{math.frexp(gap)[1] - 1}" if gap else ""


def _off(value: float, there: float) -> str:
    if value == there or (math.isnan(value) and math.isnan(there)):
        return "exact"
    if not math.isfinite(there):
        return "overflow"
    if there == 0:
        return "underflow"
    return f"{abs(there - value) / abs(value):.2g} of it"


class Explorer:
    """The controls and the tables under them."""

    def __init__(self, name: str, number: float) -> None:
        form = FORMATS[name]
        self.shown = Shown(format=form, code=form.code(number))
        self.name = widgets.Dropdown(options=list(FORMATS), value=name, description="format")
        self.number = widgets.Text(f"{number:g}", description="number", continuous_update=False)
        self.bits, self.text = widgets.HBox(layout=widgets.Layout(flex_flow="row wrap")), widgets.HTML()
        self.name.observe(lambda change: self._typed(), names="value")
        self.number.observe(lambda change: self._typed(), names="value")
        self._lay_out()
        self.draw()

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        return widgets.VBox([widgets.HBox([self.name, self.number]), self.bits, self.text])

    def draw(self) -> None:
        """Show the bits as they are now."""
        for place, button in enumerate(self.buttons):
            button.description = str(self.shown.code >> (self.shown.format.bits - 1 - place) & 1)
        self.text.value = page(self.shown)

    def _typed(self) -> None:
        """The number in the field, rounded to the format; what is no number leaves everything as it is."""
        form = FORMATS[self.name.value]
        try:
            number = float(self.number.value.replace(",", ""))
        except ValueError:
            number = self.shown.value
        other = form != self.shown.format
        self.shown = Shown(format=form, code=form.code(number))
        if other:
            self._lay_out()
        self.draw()

    def _flip(self, place: int) -> None:
        self.shown = self.shown.flipped(place)
        self.draw()

    def _lay_out(self) -> None:
        """A button for each bit, in three groups with their names above them."""
        form = self.shown.format
        widths = {"sign": 1, "exponent": form.exponent, "mantissa": form.mantissa}
        self.buttons: list[widgets.Button] = []
        groups = []
        for kind, width in widths.items():
            row = [self._button(kind, len(self.buttons) + place) for place in range(width)]
            self.buttons += row
            label = widgets.HTML(f"{kind}, {width} bit{'s' if width > 1 else ''}")
            groups.append(widgets.VBox([label, widgets.HBox(row)], layout=widgets.Layout(margin="0 8px 0 0")))
        self.bits.children = groups

    def _button(self, kind: str, place: int) -> widgets.Button:
        button = widgets.Button(layout=BIT, tooltip=f"flip bit {place + 1}, {kind}")
        button.style.button_color = COLOURS[kind]
        button.style.text_color = "#111111"
        button.on_click(lambda _: self._flip(place))
        return button


def bits(name: str = "fp16", number: float = 0.1) -> widgets.Widget:
    """The bits of a number: click one to flip it, type another number, or choose another format.

    Answers: which number do these bits mean, how far are its neighbours, and what does a cast to another format make
    of it? The first frame, which a static export shows too, is 0.1 in fp16.
    """
    return Explorer(name, number).box
