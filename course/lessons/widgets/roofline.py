"""What limits an operator on this machine, and what would a narrower format or fusion change?

    controls --Settings--> operators on the roof --> picture and sentence

Nothing is measured here: each operator stands where its machine's roof allows no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.lessons.experiments.roofline import A100, Machine, Point, planned
from course.lessons.figures.charts import Picture, as_image
from course.lessons.figures.roofline import roofs

SENTENCE = "margin-left: 12px; min-height: 4.5em; font-size: 15px"  # three lines high, so that nothing jumps
SIZES = tuple(2**power for power in range(5, 14))
CHAINS = (1, 2, 4, 8, 16, 32)
DESCRIBED = {"description_width": "11em"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A machine, a format that it knows, the side n of square matrices, and how many multiplications are chained."""

    machine: Machine
    form: str
    n: int
    k: int

    @property
    def points(self) -> list[Point]:
        """The operators, as fast as the roof allows."""
        return planned(self.machine, self.form, n=self.n, k=self.k)

    @property
    def picture(self) -> Picture:
        """The roofs, and the operators on them."""
        title = (
            f"{self.machine.name}, {self.n:,} x {self.n:,} matrices in {self.form}: where each operator stops at best"
        )
        return roofs(self.machine, self.points, title=title)


def sentence(settings: Settings) -> str:
    """What limits the product, what limits the others, and what fusing the chain gains."""
    matmul, *others, apart, fused = settings.points
    machine, form = settings.machine, settings.form
    ridge = machine.ridge(form)
    side, limit = ("right", "arithmetic") if matmul.intensity >= ridge else ("left", "memory")
    words = [
        f"The product does {matmul.intensity:,.3g} FLOP/byte, {side} of the ridge at {ridge:,.3g}: {limit} limits it, "
        f"and it takes at least {_time(matmul.seconds)}.",
        _of_the_others(others, ridge),
        f"{settings.k} multiplications take {_time(apart.seconds)} one by one and {_time(fused.seconds)} fused.",
    ]
    return " ".join(words)


def _of_the_others(others: Sequence[Point], ridge: float) -> str:
    bound = all(each.intensity < ridge for each in others)
    most = max(each.intensity for each in others)
    return f"The element-wise operators reach {most:.2g} FLOP/byte at most" + (
        ": memory limits them." if bound else "."
    )


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


class Board:
    """The controls, the picture under them, and the sentence."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = {each.name: each for each in machines}
        first = machines[0]
        self.machine = widgets.Dropdown(options=list(self.machines), description="machine", style=DESCRIBED)
        self.form = widgets.ToggleButtons(
            options=list(first.peaks), value="bf16", description="format", style=DESCRIBED
        )
        self.n = widgets.SelectionSlider(options=SIZES, value=512, description="side n", style=DESCRIBED)
        self.k = widgets.SelectionSlider(options=CHAINS, value=8, description="chain of k", style=DESCRIBED)
        self.image, self.words = widgets.HTML(), widgets.HTML()
        self.draw()
        self.machine.observe(lambda change: self._change(), names="value")
        for control in (self.form, self.n, self.k):
            control.observe(self._redraw, names="value")

    @property
    def settings(self) -> Settings:
        """What the controls say now."""
        machine = self.machines[self.machine.value]
        return Settings(machine=machine, form=self.form.value, n=self.n.value, k=self.k.value)

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        rows = [widgets.HBox([self.machine, self.form]), widgets.HBox([self.n, self.k])]
        return widgets.VBox([*rows, self.image, self.words])

    def draw(self) -> None:
        """Show the operators of these settings."""
        settings = self.settings
        said = sentence(settings)
        self.image.value = as_image(settings.picture, said)
        self.words.value = f'<div role="status" style="{SENTENCE}">{escape(said)}</div>'

    def _change(self) -> None:
        """Another machine: the format stays where it knows it."""
        forms, before = list(self.machines[self.machine.value].peaks), self.form.value
        self.form.unobserve(self._redraw, names="value")
        if list(self.form.options) != forms:
            self.form.options = forms  # chooses the first
            self.form.value = before if before in forms else forms[0]
        self.form.observe(self._redraw, names="value")
        self.draw()

    def _redraw(self, change: object) -> None:
        self.draw()


def roofline(*machines: Machine) -> widgets.Widget:
    """Operators on a machine's roof: choose machine, format, size, and how many element-wise operations are chained.

    Answers: what limits each operator, and does a narrower format or fusion help? The first frame, which a static
    export shows too, is the A100, bf16, n = 512. All controls can be worked with the keyboard.
    """
    return Board((A100, *machines)).box
