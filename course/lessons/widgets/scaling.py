"""How much faster do 64 workers train than one?

controls --Settings--> steps of GPT-2 small on 1 to 64 simulated workers, and the steps that larger batches save
                   --> speed-up curves, and a sentence

The critical batch size comes from lesson 02's recorded experiment with digits: only its shape is used, with the
worker's own batch as a share of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.cluster import Link
from course.lessons.experiments import critical_batch, worker_step
from course.lessons.figures.charts import as_image
from course.lessons.figures.workers import speedups
from course.lessons.widgets.overlap import BANDWIDTHS, DESCRIBED, LATENCIES, SENTENCE

WORKERS = (1, 2, 4, 8, 16, 32, 64)
SHARES = {"1/64": 1 / 64, "1/16": 1 / 16, "1/4": 1 / 4, "1": 1.0}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say: seconds, bytes per second, and a worker's batch over the critical batch size."""

    latency: float = 1e-5
    bandwidth: float = 2.5e10
    share: float = 1 / 16

    def examples(self) -> dict[int, float]:
        """How many times as many examples a second, by the number of workers."""
        link = Link(latency=self.latency, bandwidth=self.bandwidth)
        alone = worker_step.seconds(1, link)
        return {workers: workers * alone / worker_step.seconds(workers, link) for workers in WORKERS}

    def lines(self) -> Mapping[str, Mapping[int, float]]:
        """Ideal, by examples per second, and by the time to the same loss."""
        law = critical_batch.fit(critical_batch.recorded().data.runs)
        own = self.share * law.critical
        examples = self.examples()
        steps = {workers: law.steps(own) / law.steps(workers * own) for workers in WORKERS}
        return {
            "ideal": {workers: float(workers) for workers in WORKERS},
            "examples per second": examples,
            "speed to the same loss": {each: examples[each] / each * steps[each] for each in WORKERS},
        }


def sentence(lines: Mapping[str, Mapping[int, float]]) -> str:
    """What the most workers gain."""
    most = max(WORKERS)
    return (
        f"{most} workers do {lines['examples per second'][most]:.1f} times as many examples a second as one, and reach "
        f"the same loss {lines['speed to the same loss'][most]:.1f} times as fast."
    )


class Board:
    """The controls, the curves under them, and the sentence."""

    def __init__(self) -> None:
        first = Settings()
        self.latency, self.bandwidth, self.share = (
            widgets.SelectionSlider(options=list(options.items()), value=value, description=words, style=DESCRIBED)
            for words, options, value in (
                ("latency", LATENCIES, first.latency),
                ("bandwidth", BANDWIDTHS, first.bandwidth),
                ("batch / critical", SHARES, first.share),
            )
        )
        self.image, self.words = widgets.HTML(), widgets.HTML()
        self.draw()
        for control in (self.latency, self.bandwidth, self.share):
            control.observe(lambda change: self.draw(), names="value")

    @property
    def settings(self) -> Settings:
        """What the controls say now."""
        return Settings(latency=self.latency.value, bandwidth=self.bandwidth.value, share=self.share.value)

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        return widgets.VBox([widgets.HBox([self.latency, self.bandwidth]), self.share, self.image, self.words])

    def draw(self) -> None:
        """Show the curves of these settings."""
        lines = self.settings.lines()
        said = sentence(lines)
        drawn = speedups(lines, title="More workers: links bound the examples per second, the batch bounds the rest")
        self.image.value = as_image(drawn, said)
        self.words.value = f'<div role="status" style="{SENTENCE}">{escape(said)}</div>'


def scaling() -> widgets.Widget:
    """Speed over the number of workers: choose the links, and the worker's batch as a share of the critical one.

    Answers: what bounds many workers, links or the batch? The first frame, which a static export shows too, has 10 µs,
    25 GB/s and a sixteenth. All controls can be worked with the keyboard.
    """
    return Board().box
