"""What moves over a stage that is drawn once: the paths of a race, as SVG that CSS reveals step by step.

    stage --backdrop--> image, and Panels: where its axes lie
    tracks + Panels --overlay--> SVG of all steps, and a rule for each: "while the slider says 37, --step is 37"

The rules look at the slider's handle, so that a browser plays the race alone, at its own frame rate, without
waiting for the kernel. Where no rule fits, the whole paths are shown. Lengths are CSS pixels, 100 to the inch.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course.lessons.figures.charts import DPI
from course.lessons.figures.race import FLOOR, Stage, Style, Track, called, styled

Place = tuple[float, float]
FAR = 4000.0  # pixels; a point further off is drawn there, outside of every panel
HEAD = 6  # pixels from the middle of a path's head to its corners
ROW, COLUMNS = 22, 3  # of the legend
STEP = "race-step"  # class of the slider whose handle says the step
# Group n of a trail is the line from step n - 1 to n. It shows as soon as --step has reached n.
STYLE = """
.{scope} .race {{ display: block; width: 100%; font: 13px sans-serif; --step: {last}; }}
.{scope} .trail path {{ fill: none; stroke-width: 1.8; }}
.{scope} .head {{ stroke: white; }}
.{scope} .trail g {{ opacity: clamp(0, var(--step) - var(--n) + 1, 1); }}
.{scope} .curtain {{ transform: scaleX(calc(var(--step) / {last})); }}
"""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Where axes lie in the image, and which numbers stand at their ends.

    left, top, width, height   pixels; x0, x1, y0, y1: the data at the left, right, bottom and top end
    log                        whether y is logarithmic
    """

    left: float
    top: float
    width: float
    height: float
    x0: float
    x1: float
    y0: float
    y1: float
    log: bool

    def places(self, xs: Tensor, ys: Tensor) -> list[Place]:
        """Pixels to the right of `left` and below `top`, for each pair of data."""
        low, high = (math.log(self.y0), math.log(self.y1)) if self.log else (self.y0, self.y1)
        ys = ys.clamp(min=self.y0).log() if self.log else ys
        right = (xs - self.x0) / (self.x1 - self.x0) * self.width
        down = (high - ys) / (high - low) * self.height
        return [(_near(x), _near(y)) for x, y in zip(right.tolist(), down.tolist(), strict=True)]


def _near(pixel: float) -> float:
    return min(max(pixel, -FAR), FAR)


def panel(figure: Figure, axes: Axes) -> Panel:
    """Where these axes of a figure lie, once it has been drawn."""
    width, height = (figure.get_size_inches() * DPI).tolist()
    left, bottom, right, top = map(float, axes.get_position().extents)
    x0, x1, y0, y1 = map(float, (*axes.get_xlim(), *axes.get_ylim()))
    return Panel(
        left=left * width,
        top=(1 - top) * height,
        width=(right - left) * width,
        height=(top - bottom) * height,
        x0=x0,
        x1=x1,
        y0=y0,
        y1=y1,
        log=axes.get_yscale() == "log",
    )


@dataclass(frozen=True, kw_only=True)
class Backdrop:
    """A stage as an image, `width` by `height` pixels, and the panels in it."""

    image: str  # a data address
    width: int
    height: int
    plane: Panel
    course: Panel


def backdrop(stage: Stage) -> Backdrop:
    """Draw the stage, once."""
    png, size = stage.figure._repr_png_()
    image = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    plane, course = panel(stage.figure, stage.plane), panel(stage.figure, stage.course)
    return Backdrop(image=image, plane=plane, course=course, **size)


@dataclass(frozen=True, kw_only=True)
class Runner:
    """One path in pixels: `plane` and `course` have a place for its start and one for each of its steps."""

    style: Style
    words: str
    plane: list[Place]
    course: list[Place]


def overlay(ground: Backdrop, tracks: Mapping[str, Track], *, steps: int, scope: str) -> str:
    """The paths over their backdrop and a legend under it: one SVG with its own style sheet.

    steps   of the longest path
    scope   class of an element around the SVG and around the slider, which has the class STEP
    """
    runners = [_runner(ground, name, style, tracks[name], steps) for name, style in styled(tracks)]
    height = ground.height + ROW * -(-len(runners) // COLUMNS) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="race" viewBox="0 0 {ground.width} {height}" role="img" '
        f'aria-label="{escape("; ".join(each.words for each in runners))}">',
        f"<style>{_style(runners, steps, scope)}</style>",
        f'<rect y="{ground.height}" width="100%" height="{height - ground.height}" fill="white"/>',
        _window(ground.plane, _trail(runners, steps) + _heads(runners, "plane")),
        _window(ground.course, _curves(runners, ground.course, steps, scope) + _heads(runners, "course")),
        *(_entry(ground, place, runner) for place, runner in enumerate(runners)),
        "</svg>",
    ]
    return "".join(parts)


def _runner(ground: Backdrop, name: str, style: Style, track: Track, steps: int) -> Runner:
    plane = ground.plane.places(track.points[:, 0], track.points[:, 1])
    course = ground.course.places(track.values.new_tensor(range(len(track.values))), track.values.clamp(min=FLOOR))
    return Runner(style=style, words=called(name, track, steps), plane=plane, course=course)


def _style(runners: list[Runner], steps: int, scope: str) -> str:
    """Colours and dashes, and for each step the rule that sets --step and says where the heads are."""
    rules = [STYLE.format(scope=scope, last=steps)]
    for number, runner in enumerate(runners):
        dashes = " ".join(map(str, runner.style.dashes)) or "none"
        line = f"{{ stroke: {runner.style.colour}; stroke-dasharray: {dashes}; }}"
        rules.append(f".{scope} .trail path:nth-child({number + 1}) {line}\n")
    rules.append(f".{scope} .race {{ {_heads_at(runners, steps)} }}\n")
    for step in range(steps + 1):
        when = f'.{scope}:has(.{STEP} [aria-valuenow="{step}.0"]) .race'
        rules.append(f"{when} {{ --step: {step}; {_heads_at(runners, step)} }}\n")
    return "".join(rules)


def _heads_at(runners: list[Runner], step: int) -> str:
    """Where the head of each path is after a step; the head of one that has ended stays at its end."""
    heads = []
    for number, runner in enumerate(runners):
        for panel, places in (("plane", runner.plane), ("course", runner.course)):
            x, y = places[min(step, len(places) - 1)]
            heads.append(f"--{panel}{number}: {x:.1f}px {y:.1f}px;")
    return " ".join(heads)


def _window(box: Panel, body: str) -> str:
    """The body in the panel's own pixels; what lies outside of the panel is cut off."""
    place = f'x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    return f'<svg {place} overflow="hidden">{body}</svg>'


def _trail(runners: list[Runner], steps: int) -> str:
    """For each step a group with a piece of each path; dashes go on from one piece to the next."""
    pieces = [_pieces(runner.plane) for runner in runners]
    groups = []
    for step in range(steps):
        body = "".join(each[step] if step < len(each) else "<path/>" for each in pieces)
        groups.append(f'<g style="--n: {step + 1}">{body}</g>')
    return f'<g class="trail">{"".join(groups)}</g>'


def _pieces(places: list[Place]) -> list[str]:
    pieces, run = [], 0.0
    for here, there in pairwise(places):
        (x, y), (u, v) = here, there
        pieces.append(f'<path d="M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}" stroke-dashoffset="{run:.0f}"/>')
        run += math.dist(here, there)
    return pieces


def _curves(runners: list[Runner], box: Panel, steps: int, scope: str) -> str:
    """The heights as whole lines behind a curtain that opens with the step."""
    whole = box.width * steps / (box.x1 - box.x0)
    lines = "".join(
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in each.course)}" {_look(each.style)}/>'
        for each in runners
    )
    return (
        f'<clipPath id="{scope}"><rect class="curtain" width="{whole:.1f}" height="{box.height:.1f}"/></clipPath>'
        f'<g clip-path="url(#{scope})">{lines}</g>'
    )


def _heads(runners: list[Runner], panel: str) -> str:
    """The sign of each path, which the rules move."""
    return "".join(
        f'<polygon class="head" points="{_corners(each.style)}" fill="{each.style.colour}" '
        f'style="translate: var(--{panel}{number})"/>'
        for number, each in enumerate(runners)
    )


def _entry(ground: Backdrop, place: int, runner: Runner) -> str:
    """A line of the legend: a piece of the path, its sign, and what it came to."""
    x = 30 + place % COLUMNS * (ground.width - 30) / COLUMNS
    y = ground.height + ROW * (place // COLUMNS + 0.5)
    return (
        f'<g transform="translate({x:.0f} {y:.0f})"><path d="M0 0H44" {_look(runner.style)}/>'
        f'<polygon class="head" points="{_corners(runner.style)}" fill="{runner.style.colour}" '
        f'transform="translate(22 0)"/><text x="56" y="4.5" fill="#222">{escape(runner.words)}</text></g>'
    )


def _look(style: Style) -> str:
    dashes = f' stroke-dasharray="{" ".join(map(str, style.dashes))}"' if style.dashes else ""
    return f'fill="none" stroke-width="1.8" stroke="{style.colour}"{dashes}'


def _corners(style: Style) -> str:
    return " ".join(f"{HEAD * right:.1f},{-HEAD * up:.1f}" for right, up in style.marker)
