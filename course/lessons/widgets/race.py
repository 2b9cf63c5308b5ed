"""Which optimizer gets down first, and which setting makes it overshoot, or leave the picture?

    controls --Settings--> paths --overlay--> SVG of all steps; the step slider or the play button moves in it

The contours are drawn once for each surface, a race once for each setting. For a step nothing is computed: the browser
shows more or less of what it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape

import ipywidgets as widgets

from course.lessons.experiments.race import RATES, STEPS, Path, best_rates
from course.lessons.experiments.race import race as run_race
from course.lessons.experiments.surfaces import SURFACES, grid, named
from course.lessons.figures.race import FLOOR, called, stage
from course.lessons.figures.race_overlay import STEP, Backdrop, backdrop, overlay

SENTENCE = "margin-left: 12px; min-height: 4.5em; font-size: 15px"  # three lines high, so that nothing jumps
PAUSE = 33  # milliseconds between two steps while it plays
DESCRIBED = {"description_width": "11em"}
HALF, WHOLE = widgets.Layout(width="46%"), widgets.Layout(width="70%")
SAME_PLACE = widgets.Layout(grid_area="1 / 1 / 2 / 2", margin="0")  # one over the other
PAGE = widgets.Layout(width="100%", max_width="800px", grid_template_columns="100%")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say.

    own   each optimizer takes the best of RATES for itself, and lr is not used
    """

    surface: str
    lr: float
    momentum: float
    betas: tuple[float, float]
    own: bool

    def run(self) -> dict[str, Path]:
        """The paths of all optimizers."""
        momentum, betas = self.momentum, self.betas
        lr = best_rates(self.surface, momentum=momentum, betas=betas) if self.own else self.lr
        return run_race(self.surface, lr=lr, momentum=momentum, betas=betas)


def settled(path: Path) -> float:
    """The step from which on the path stays below FLOOR; infinity if it does not."""
    above = (path.values > FLOOR).nonzero()
    last = int(above[-1]) if len(above) else -1
    return last + 1 if last + 1 < len(path.values) else math.inf


def sentence(settings: Settings, paths: Mapping[str, Path]) -> str:
    """What is raced on, who is down first, who left, and the rates where they differ."""
    words = [f"f(x, y) = {named(settings.surface).formula}."]
    stayed = {name: path for name, path in paths.items() if path.left is None}
    if stayed:
        first = min(stayed, key=lambda name: (settled(stayed[name]), float(stayed[name].values[-1])))
        step = settled(stayed[first])
        low = f"Lowest of all, {called(first, stayed[first], STEPS)}."
        words.append(low if step > STEPS else f"First below {FLOOR:.0e} for good: {first}, at step {step}.")
    gone = [f"{name} at step {path.left}" for name, path in paths.items() if path.left is not None]
    if gone:
        words.append(f"Stopped far out of the picture: {', '.join(gone)}.")
    if settings.own:
        rates = ", ".join(f"{name} {path.lr:g}" for name, path in paths.items())
        words.append(f"The best of {len(RATES)} rates for each: {rates}.")
    return " ".join(words)


@cache
def ground(surface: str) -> Backdrop:
    """The contours of a surface and the empty axes beside them, as an image; takes half a second."""
    return backdrop(stage(grid(surface), title=named(surface).title, steps=STEPS))


class Board:
    """The controls, the picture under them, and the frames of the race that it shows now."""

    def __init__(self, surface: str) -> None:
        start = named(surface)
        self.surface = widgets.Dropdown(options=list(SURFACES), value=surface, description="surface", style=DESCRIBED)
        self.own = widgets.Checkbox(False, description="each at its own best rate", indent=False)
        self.lr = widgets.FloatLogSlider(
            start.rate, min=-4, max=0.5, step=0.05, description="learning rate", readout_format=".2g"
        )
        self.momentum = widgets.FloatSlider(0.9, min=0, max=0.99, step=0.01, description="momentum")
        self.beta1 = widgets.FloatSlider(0.9, min=0, max=0.99, step=0.01, description="β1", tooltip="of Adam")
        self.beta2 = widgets.FloatSlider(
            0.999, min=0.5, max=0.999, step=0.001, description="β2", tooltip="of Adam and RMSprop", readout_format=".3f"
        )
        self.step = widgets.IntSlider(STEPS, 0, STEPS, description="step", layout=WHOLE)
        self.play = widgets.Play(value=STEPS, max=STEPS, interval=PAUSE, show_repeat=False)
        self.picture, self.lines = widgets.HTML(layout=SAME_PLACE), widgets.HTML(layout=SAME_PLACE)
        self.words = widgets.HTML()
        for slider in (self.lr, self.momentum, self.beta1, self.beta2):
            slider.layout, slider.style = HALF, DESCRIBED
        self.scope = f"race-{self.step.model_id}"  # so that each widget listens to its own slider
        self.step.add_class(STEP)
        self._look(surface)
        self.draw()
        self._listen()

    @property
    def settings(self) -> Settings:
        """What the controls say now."""
        betas = self.beta1.value, self.beta2.value
        numbers = {"lr": self.lr.value, "momentum": self.momentum.value, "betas": betas}
        return Settings(surface=self.surface.value, own=self.own.value, **numbers)

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        rows = [[self.surface, self.own], [self.lr, self.momentum], [self.beta1, self.beta2], [self.play, self.step]]
        page = widgets.GridBox([self.picture, self.lines], layout=PAGE)
        return widgets.VBox([*map(widgets.HBox, rows), page, self.words]).add_class(self.scope)

    def draw(self) -> None:
        """Run the race of these settings, and show it up to the step at which the slider stands."""
        settings = self.settings
        paths = settings.run()
        self.lines.value = overlay(ground(settings.surface), paths, steps=STEPS, scope=self.scope)
        said = escape(sentence(settings, paths))
        self.words.value = f'<div role="status" style="{SENTENCE}">{said}</div>'

    def _look(self, surface: str) -> None:
        """Show the contours of this surface."""
        name = escape(named(surface).title, quote=True)
        self.picture.value = f'<img src="{ground(surface).image}" alt="{name}" style="display: block; width: 100%">'

    def _listen(self) -> None:
        widgets.jslink((self.play, "value"), (self.step, "value"))
        self.surface.observe(lambda change: self._change(change["new"]), names="value")
        self.own.observe(lambda change: setattr(self.lr, "disabled", change["new"]), names="value")
        for control in (self.own, self.lr, self.momentum, self.beta1, self.beta2):
            control.observe(lambda change: self.draw(), names="value")

    def _change(self, surface: str) -> None:
        """Another surface, at a rate at which there is something to see."""
        self._look(surface)
        if self.lr.value == named(surface).rate:
            self.draw()
        else:
            self.lr.value = named(surface).rate  # draws


def race(surface: str = "ravine") -> widgets.Widget:
    """Six optimizers race over a surface: choose it, set rate and decays, and play the 150 steps.

    Answers: which optimizer gets down first, and which setting makes it overshoot, or leave? The first frame, which a
    static export shows too, has the whole paths. All controls can be worked with the keyboard. Raises BadArgument
    for a surface that is not in `course.lessons.experiments.surfaces.SURFACES`.
    """
    return Board(surface).box
