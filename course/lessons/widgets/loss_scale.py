"""Which gradients does a format of few bits lose, and which loss scale brings them into its range?

settings --frame--> a histogram under the bands of the format, and a sentence with the shares
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.lessons.experiments.gradient_range import FORMATS, limits, magnitudes, shares
from course.lessons.figures.charts import Picture
from course.lessons.figures.loss_scaling import gradient_histogram

SENTENCE = "margin-left: 12px; min-height: 3em; font-size: 15px"  # two lines high, so that nothing jumps
LARGEST = 24  # power of two of the slider
KINDS = ("activations", "weights")
DESCRIBED = {"description_width": "11em"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say; the scale is 2^power."""

    kind: str = "activations"
    format: str = "fp16"
    power: int = 0

    def picture(self) -> Picture:
        """The histogram."""
        title = f"Gradients of {self.kind}, times 2^{self.power}: what falls outside of {self.format}'s range?"
        return gradient_histogram(magnitudes(self.kind), 2.0**self.power, limits(self.format), title=title)

    def sentence(self) -> str:
        """The three shares."""
        found = shares(self.kind, 2.0**self.power, self.format)
        parts = {
            "are rounded to 0": found.lost,
            "are subnormal and keep fewer bits": found.subnormal,
            "overflow": found.overflow,
        }
        return "Of the gradients " + ", ".join(f"{percent(each)} {words}" for words, each in parts.items()) + "."


def percent(share: float) -> str:
    """`12%`, `0.3%`, `less than 0.1%`, `none`."""
    if share == 0:
        return "none"
    return "less than 0.1%" if share < 0.001 else f"{100 * share:.{0 if share >= 0.0995 else 1}f}%"


def loss_scale() -> widgets.Widget:
    """The gradients of the tiny GPT before training, under the range of a format; a slider multiplies them.

    Answers: which share is lost, and which scale brings it back before anything overflows? The first frame is fp16
    with a scale of 1, and a static export shows it too.
    """
    kind = widgets.Dropdown(options=KINDS, description="gradients of", style=DESCRIBED)
    format_ = widgets.Dropdown(options=list(FORMATS), description="format", style=DESCRIBED)
    power = widgets.IntSlider(
        0, 0, LARGEST, description="scale: 2 to the", style=DESCRIBED, layout=widgets.Layout(width="70%")
    )
    image = widgets.Image(format="png", layout=widgets.Layout(width="100%", max_width="800px"))
    words = widgets.HTML()

    def draw(*_: object) -> None:
        settings = Settings(kind=kind.value, format=format_.value, power=power.value)
        image.value = settings.picture()._repr_png_()[0]
        words.value = f'<div role="status" style="{SENTENCE}">{escape(settings.sentence())}</div>'

    draw()
    for control in (kind, format_, power):
        control.observe(draw, names="value")
    return widgets.VBox([widgets.HBox([kind, format_]), power, image, words])
