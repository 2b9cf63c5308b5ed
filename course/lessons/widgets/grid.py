"""What does a grid of few values do to the weights of a matrix, and what to the loss?

controls --matrix, bits, where the grid ends--> histogram with the grid's values, and a sentence with the errors
"""

from __future__ import annotations

from dataclasses import dataclass

import ipywidgets as widgets
import torch
from torch import Tensor

from course.lessons.experiments.assembled_quantization import weights
from course.lessons.figures.charts import Picture
from course.lessons.figures.quantization import weights_and_grid

SENTENCE = "margin-left: 12px; min-height: 3em; font-size: 15px"  # two lines high, so that nothing jumps
DESCRIBED = {"description_width": "11em"}
WIDE = widgets.Layout(width="70%")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say; the grid's largest value is `end` percent of the largest weight."""

    matrix: str = "3.mlp.down"
    bits: int = 4
    end: int = 100

    @property
    def weight(self) -> Tensor:
        """The matrix, as one row."""
        return weights()[self.matrix].flatten()

    @property
    def step(self) -> float:
        """Between two values of the grid."""
        top: int = 2 ** (self.bits - 1) - 1
        return float(self.weight.abs().max()) * self.end / 100 / top

    def errors(self) -> tuple[float, float, float]:
        """Error over the weights (root mean square), and the shares of its square from rounding and from the rim."""
        top, w = 2 ** (self.bits - 1) - 1, self.weight
        off = (w - (w / self.step).round().clamp(-top, top) * self.step).square()
        beyond = w.abs() > (top + 0.5) * self.step
        whole = float(off.sum())
        return (
            (whole / float(w.square().sum())) ** 0.5,
            float(off[~beyond].sum()) / whole,
            float(off[beyond].sum()) / whole,
        )

    def picture(self) -> Picture:
        """The histogram and the grid."""
        top = 2 ** (self.bits - 1) - 1
        grid = torch.arange(-top, top + 1) * self.step
        return weights_and_grid(
            self.weight, grid, title=f"{self.matrix}: {2 * top + 1} values for {len(self.weight):,} weights"
        )

    def sentence(self) -> str:
        """The error, and where it comes from."""
        error, rounding, rim = self.errors()
        return (
            f"The error is {error:.1%} of the weights (root mean square). Rounding inside of the grid makes "
            f"{rounding:.0%} of its square, weights beyond the grid's end {rim:.0%}."
        )


def grid() -> widgets.Widget:
    """The weights of one matrix under a grid of few values; sliders set the bits and where the grid ends.

    Answers: where should the grid end? The first frame, which a static export shows too, has 4 bits and ends at the
    largest weight.
    """
    start = Settings()
    matrix = widgets.Dropdown(options=list(weights()), value=start.matrix, description="matrix", style=DESCRIBED)
    bits = widgets.IntSlider(start.bits, 2, 8, description="bits", style=DESCRIBED, layout=WIDE)
    end = widgets.IntSlider(start.end, 5, 100, 5, description="grid ends at (%)", style=DESCRIBED, layout=WIDE)
    image = widgets.Image(format="png", layout=widgets.Layout(width="100%", max_width="800px"))
    words = widgets.HTML()

    def draw(*_: object) -> None:
        settings = Settings(matrix=matrix.value, bits=bits.value, end=end.value)
        image.value = settings.picture()._repr_png_()[0]
        words.value = f'<div role="status" style="{SENTENCE}">{settings.sentence()}</div>'

    draw()
    for control in (matrix, bits, end):
        control.observe(draw, names="value")
    return widgets.VBox([matrix, bits, end, image, words])
