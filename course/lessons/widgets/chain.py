"""Which activations are alive while a chain goes forward and back, and what does it cost to keep fewer?

layers, spacing --moments--> one row of boxes for each strategy at the step of the slider, and counters
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import ipywidgets as widgets

from course.lessons.experiments.chain import ALL, NONE, SOME, Moment, moments
from course.lessons.figures.chain import chain_at, doing
from course.lessons.figures.svg import Svg

HEARD = "position: absolute; clip-path: inset(50%)"  # by a screen reader: the picture shows it
PAUSE = 350  # milliseconds between two steps while it plays
MOST = 16  # layers


def strategies(layers: int, spacing: int | None) -> dict[str, Sequence[Moment]]:
    """The moments of each, by its name; with a spacing three, else two."""
    found: dict[str, Sequence[Moment]] = {name: moments(name, layers) for name in (ALL, NONE)}
    if spacing is not None:
        found[f"{SOME}, s = {spacing}"] = moments(SOME, layers, spacing)
    return found


def last_step(layers: int, spacing: int | None) -> int:
    """One after the end of the longest."""
    return 1 + max(len(each) for each in strategies(layers, spacing).values())


def picture(layers: int, spacing: int | None, step: int) -> Svg:
    """All strategies at this step."""
    title = f"Which activations of a chain of {layers} layers are alive?"
    return chain_at(strategies(layers, spacing), step, layers=layers, title=title)


def sentence(layers: int, spacing: int | None, step: int) -> str:
    """What each strategy does in this step."""
    found = strategies(layers, spacing).items()
    return f"Call {step}. " + "; ".join(f"{name}: {doing(each, step)}" for name, each in found) + "."


def watch_chain(layers: int = 12, spacing: int | None = None) -> widgets.Widget:
    """A chain that goes forward and back, keeping all, keeping none and, with a spacing, keeping checkpoints.

    Answers: which activations are alive at each call of a layer, how many at the highest, and after how many
    evaluations? The first frame, which a static export shows too, is the moment when y is there; the curves below go
    on to the end. The arrow keys move a slider that has the focus.
    """
    wide = widgets.Layout(width="46%")
    count = widgets.IntSlider(layers, 2, MOST, description="layers", layout=wide)
    every = widgets.IntSlider(spacing or 1, 1, layers, description="spacing s", layout=wide)
    step = widgets.IntSlider(
        layers, 1, last_step(layers, spacing), description="call", layout=widgets.Layout(width="70%")
    )
    play = widgets.Play(value=layers, min=1, max=step.max, interval=PAUSE, show_repeat=False)
    widgets.jslink((play, "value"), (step, "value"))
    image, words = widgets.HTML(), widgets.HTML()

    def draw(*_: object) -> None:
        settings = count.value, None if spacing is None else every.value, step.value
        image.value = picture(*settings)._repr_html_()
        words.value = f'<div role="status" style="{HEARD}">{escape(sentence(*settings))}</div>'

    def resize(*_: object) -> None:
        every.max = count.value
        step.max = play.max = last_step(count.value, None if spacing is None else every.value)
        step.value = count.value
        draw()

    for control, action in ((count, resize), (every, draw), (step, draw)):
        control.observe(action, names="value")
    draw()
    sliders = widgets.HBox([count] if spacing is None else [count, every])
    return widgets.VBox([sliders, widgets.HBox([play, step]), image, words])
