"""When is a unit gathered and freed, and who waits for it?

controls --Settings--> a step of sharded GPT-2 small on the virtual clock --> schedule and bytes held, and a sentence
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.cluster import Ledger
from course.lessons.experiments.unit_life import BLOCKS, RANKS, cost, life
from course.lessons.figures.charts import Picture, as_image
from course.lessons.figures.timeline import timeline
from course.lessons.widgets.overlap import BANDWIDTHS, DESCRIBED, SENTENCE

SIZES = (1, 2, 3, 4, 6, BLOCKS)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say: blocks in a unit, bytes per second, and whether the next unit is gathered early."""

    blocks: int = 2
    bandwidth: float = 2.5e10
    prefetch: bool = False

    def run(self) -> Ledger:
        """The step, simulated."""
        return life(blocks=self.blocks, bandwidth=self.bandwidth, prefetch=self.prefetch)


def sentence(ledger: Ledger) -> str:
    """How long the step takes, how much of it is computed, and what is held and sent."""
    found = cost(ledger)
    computed = sum(each.end - each.start for each in ledger.events if each.rank == 0 and each.call is None)
    return (
        f"The step takes {found.seconds * 1e3:.1f} ms, and a rank computes for {computed * 1e3:.1f} ms of it. It holds "
        f"at most {found.peak / 2**20:.0f} MiB of parameters and gradients, and sends {found.sent / 1e6:.0f} MB in "
        f"{found.collectives} collectives."
    )


class Board:
    """The controls, the schedule under them, and the sentence."""

    def __init__(self) -> None:
        first = Settings()
        self.blocks = widgets.SelectionSlider(
            options=SIZES, value=first.blocks, description="blocks in a unit", style=DESCRIBED
        )
        self.bandwidth = widgets.SelectionSlider(
            options=list(BANDWIDTHS.items()), value=first.bandwidth, description="bandwidth", style=DESCRIBED
        )
        self.prefetch = widgets.Checkbox(value=first.prefetch, description="gather the next unit early")
        self.image, self.words = widgets.HTML(), widgets.HTML()
        self.draw()
        for control in (self.blocks, self.bandwidth, self.prefetch):
            control.observe(lambda change: self.draw(), names="value")

    @property
    def settings(self) -> Settings:
        """What the controls say now."""
        return Settings(blocks=self.blocks.value, bandwidth=self.bandwidth.value, prefetch=self.prefetch.value)

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        return widgets.VBox([widgets.HBox([self.blocks, self.bandwidth]), self.prefetch, self.image, self.words])

    def draw(self) -> None:
        """Show the schedule of these settings."""
        ledger = self.settings.run()
        said = sentence(ledger)
        figure = timeline(ledger, title=f"A step of GPT-2 small, whose units are sharded over {RANKS} ranks")
        assert isinstance(figure, Picture)
        self.image.value = as_image(figure, said)
        self.words.value = f'<div role="status" style="{SENTENCE}">{escape(said)}</div>'


def unit_life() -> widgets.Widget:
    """The schedule of a sharded step: choose the size of units, the bandwidth, and whether the next one comes early.

    Answers: what does a unit wait for, and what does it cost to wait less? The first frame, which a static export shows
    too, has units of two blocks, 25 GB/s, and no prefetch. All controls can be worked with the keyboard.
    """
    return Board().box
