"""What does the small GPT write when its weights have few bits?

controls --way to quantize, bits--> the small GPT with such weights --> its perplexity, and a text
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as widgets

from course.lessons.experiments import assembled_quantization as assembled
from course.lessons.experiments.one_taken_away import NOTHING, layers, made
from course.lessons.experiments.small_gpt import loss_on
from course.lessons.models import GPT
from course.lessons.widgets.swap import MONO, WRITTEN, written

WAYS = {
    "one step for each matrix": NOTHING,
    "a step for each row": replace(NOTHING, shared="row"),
    "rotated, a step for each row": replace(NOTHING, shared="row", rotate=True),
    "rotated, errors made good": replace(NOTHING, shared="row", rotate=True, hessian=True),
}


class Board:
    """The controls, the text and the perplexity; `parts` quantize."""

    def __init__(self, parts: Mapping[str, Callable[..., Any]]) -> None:
        self.parts = parts
        self.way = widgets.Dropdown(options=list(WAYS), description="way", layout=widgets.Layout(width="320px"))
        self.bits = widgets.IntSlider(4, 2, 8, description="bits", continuous_update=False)
        self.words, self.line = widgets.HTML(), widgets.HTML()
        self.draw()
        for control in (self.way, self.bits):
            control.observe(lambda change: self.draw(), names="value")

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        return widgets.VBox([widgets.HBox([self.way, self.bits]), self.words, self.line])

    def model(self) -> GPT:
        """The small GPT as the controls say."""
        recipe = WAYS[self.way.value]
        return assembled.with_weights(
            {name: made(self.parts, recipe, self.bits.value, layer) for name, layer in layers(1).items()}
        )

    def draw(self) -> None:
        """Quantize, judge and write."""
        model = self.model()
        perplexity, least = math.exp(loss_on(model, assembled.windows())), math.exp(assembled.least())
        self.words.value = f'<div style="{MONO}">{escape(written(model, WRITTEN))}</div>'
        self.line.value = f'<div role="status">perplexity {perplexity:,.3f} (a perfect model: {least:.3f})</div>'


def few_bits(parts: Mapping[str, Callable[..., Any]]) -> widgets.Widget:
    """The small GPT at few bits: choose how many, and how they are made.

    Answers: what survives? The first frame, which a static export shows too, has 4 bits and one step for each matrix.
    """
    return Board(parts).box
