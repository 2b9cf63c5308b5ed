"""When does a sum of many terms stop growing, if only two digits of it are kept?

sum, number of terms --Settings--> steps --> curve, the last additions in digits, one sentence
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from decimal import Decimal
from html import escape

import ipywidgets as widgets

from course.lessons.experiments.two_digits import MOST, TERMS, Step, running_sum, stalls_at
from course.lessons.figures.two_digits import sum_curve

LINES = 3  # additions that are written out
SENTENCE = "margin-left: 12px; min-height: 1.5em; font-size: 15px"
DIGITS = "margin: 4px 12px; font: 14px var(--jp-code-font-family, monospace); line-height: 1.5"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say."""

    terms: str  # a key of TERMS
    count: int

    def steps(self) -> list[Step]:
        """All additions."""
        return running_sum(TERMS[self.terms], self.count)


def additions(steps: list[Step]) -> list[str]:
    """The last additions in digits, and what is kept of each."""
    return [_written(number, step) for number, step in list(enumerate(steps, 1))[-LINES:]]


def sentence(steps: list[Step]) -> str:
    """What is kept in the end, what would be exact, and from where on nothing changed."""
    kept, exact = steps[-1].kept, steps[0].exact * len(steps)
    stall = stalls_at(steps)
    since = "." if stall is None else f": since term {stall:,} each sum is rounded back to {plain(kept)}."
    return f"After {len(steps):,} terms the machine has {plain(kept)}; the exact sum is {plain(exact)}{since}"


def plain(number: Decimal) -> str:
    """100 for 1.0E+2."""
    return f"{number.normalize():,f}"


def shown(settings: Settings) -> tuple[str, str]:
    """The picture and, under it, the additions and the sentence, both as HTML."""
    steps = settings.steps()
    said = sentence(steps)
    stall = stalls_at(steps)
    end = "beside the exact sum" if stall is None else f"stalls at {plain(steps[-1].kept)}"
    curve = sum_curve(
        [step.kept for step in steps], steps[0].exact, title=f"In two digits {settings.terms} {end}", stall=stall
    )
    image = base64.b64encode(curve._repr_png_()[0]).decode()
    lines = "<br>".join(map(escape, additions(steps)))
    return (
        f'<img src="data:image/png;base64,{image}" alt="{escape(said, quote=True)}" style="max-width: 100%; '
        'width: 800px">',
        f'<div style="{DIGITS}">{lines}</div><div role="status" style="{SENTENCE}">{escape(said)}</div>',
    )


def _written(number: int, step: Step) -> str:
    kept = "" if step.kept == step.exact else f" → {plain(step.kept)}"
    return f"term {number:,}: {plain(step.before)} + {plain(step.exact - step.before)} = {plain(step.exact)}{kept}"


def two_digits(terms: str = "1 + 1 + 1 + …", count: int = MOST) -> widgets.Widget:
    """A running sum of which two decimal digits are kept: choose the terms and how many.

    Answers: when does the sum stop growing? The first frame, which a static export shows too, is a thousand ones.
    """
    choice = widgets.Dropdown(options=list(TERMS), value=terms, description="sum")
    many = widgets.IntSlider(
        count, 1, MOST, description="terms", continuous_update=False, layout=widgets.Layout(width="60%")
    )
    image, words = widgets.HTML(), widgets.HTML()

    def show() -> None:
        image.value, words.value = shown(Settings(terms=choice.value, count=many.value))

    for control in (choice, many):
        control.observe(lambda change: show(), names="value")
    show()
    return widgets.VBox([widgets.HBox([choice, many]), image, words])
