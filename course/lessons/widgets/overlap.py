"""When do gradients travel, and who waits for them?

controls --Settings--> a step of GPT-2 small on the virtual clock --> the schedule of four workers, and a sentence
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.cluster import Ledger, Link
from course.lessons.experiments.worker_step import simulated
from course.lessons.figures.charts import Picture, as_image
from course.lessons.figures.timeline import timeline

SENTENCE = "margin-left: 12px; min-height: 3em; font-size: 15px"  # two lines high, so that nothing jumps
WORKERS = 4
LATENCIES = {"1 µs": 1e-6, "10 µs": 1e-5, "100 µs": 1e-4, "1 ms": 1e-3}
BANDWIDTHS = {"1 GB/s": 1e9, "5 GB/s": 5e9, "10 GB/s": 1e10, "25 GB/s": 2.5e10, "100 GB/s": 1e11}
CAPS = {"one per gradient": 0.0, "1 MB": 1e6, "5 MB": 5e6, "25 MB": 25e6, "100 MB": 1e8, "all in one": 1e12}
DESCRIBED = {"description_width": "9em"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say: seconds, bytes per second, bytes of a group, and whether it leaves during backward."""

    latency: float = 1e-5
    bandwidth: float = 2.5e10
    cap: float = 25e6
    overlaps: bool = True

    def run(self) -> Ledger:
        """The step, simulated."""
        link = Link(latency=self.latency, bandwidth=self.bandwidth)
        return simulated(WORKERS, link, cap=self.cap, overlaps=self.overlaps)


def sentence(ledger: Ledger) -> str:
    """How long the step takes, how much of it is computed, and how many collectives it makes."""
    own = [each for each in ledger.events if each.rank == 0]
    computed = sum(each.end - each.start for each in own if each.call is None)
    count = sum(each.call is not None for each in own)
    hidden = ledger.makespan - computed
    return (
        f"The step takes {ledger.makespan * 1e3:.1f} ms, and a worker computes for {computed * 1e3:.1f} ms of it; for "
        f"{hidden * 1e3:.1f} ms it waits for gradients. {count} collective{'s' if count > 1 else ''}, in which each "
        f"worker sends {ledger.bytes_sent(0) / 1e6:.0f} MB."
    )


class Board:
    """The controls, the schedule under them, and the sentence."""

    def __init__(self) -> None:
        first = Settings()
        self.latency = _slider("latency", LATENCIES, first.latency)
        self.bandwidth = _slider("bandwidth", BANDWIDTHS, first.bandwidth)
        self.cap = _slider("bucket", CAPS, first.cap)
        self.overlaps = widgets.Checkbox(value=True, description="send during backward")
        self.image, self.words = widgets.HTML(), widgets.HTML()
        self.draw()
        for control in (self.latency, self.bandwidth, self.cap, self.overlaps):
            control.observe(lambda change: self.draw(), names="value")

    @property
    def settings(self) -> Settings:
        """What the controls say now."""
        return Settings(
            latency=self.latency.value,
            bandwidth=self.bandwidth.value,
            cap=self.cap.value,
            overlaps=self.overlaps.value,
        )

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        rows = [widgets.HBox([self.latency, self.bandwidth]), widgets.HBox([self.cap, self.overlaps])]
        return widgets.VBox([*rows, self.image, self.words])

    def draw(self) -> None:
        """Show the schedule of these settings."""
        ledger = self.settings.run()
        said = sentence(ledger)
        figure = timeline(
            ledger, title=f"A step of GPT-2 small on {WORKERS} workers: who computes, sends and waits when"
        )
        assert isinstance(figure, Picture)
        self.image.value = as_image(figure, said)
        self.words.value = f'<div role="status" style="{SENTENCE}">{escape(said)}</div>'


def _slider(words: str, options: dict[str, float], value: float) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(options=list(options.items()), value=value, description=words, style=DESCRIBED)


def overlap() -> widgets.Widget:
    """The schedule of a step: choose latency and bandwidth of the links, the size of a bucket, and when it is sent.

    Answers: what must a worker wait for, and which bucket is best? The first frame, which a static export shows too,
    has 10 µs, 25 GB/s and buckets of 25 MB. All controls can be worked with the keyboard.
    """
    return Board().box
