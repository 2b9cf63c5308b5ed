"""A chain at one moment under several strategies: which activations are alive, and how many were at each call.

boxes x_0 ... x_{n-1} of each strategy, with what its layer does and its counters; below, activations over time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course.lessons.experiments.chain import AGAIN, BACKWARD, Moment
from course.lessons.figures.svg import Svg, document, text

Lines = Mapping[str, Sequence[Moment]]

WIDTH, LEFT, RIGHT = 760, 20, 740
PANEL, TOP, CHART = 86, 58, 180  # heights
KEY = "filled: alive; with a bar: kept to recompute from; \u25b6 evaluates; \u25c0 goes back"
BLUE, ORANGE, INK, PALE = "var(--value)", "var(--slope)", "var(--ink)", "var(--pale)"
DASHES = ("", "7 4", "2 3")
COLOURS = (BLUE, INK, ORANGE)  # orange is what boxes with a checkpoint are


def chain_at(lines: Lines, step: int, *, layers: int, title: str) -> Svg:
    """The moment after so many calls, 1 the first; a strategy that has ended stays at its end."""
    body = [text("title", LEFT, 24, title), text("legend", LEFT, 46, KEY)]
    for number, (name, moments) in enumerate(lines.items()):
        body += _panel(name, moments, step, layers, TOP + PANEL * number)
    top = TOP + PANEL * len(lines)
    body += _chart(lines, step, layers, top + 30)
    said = "; ".join(f"{name}: {doing(moments, step)}; {counters(moments, step)}" for name, moments in lines.items())
    return document(WIDTH, top + CHART + 50, title=title, description=said, body=body)


def doing(moments: Sequence[Moment], step: int) -> str:
    """What happens in this call."""
    if step > len(moments):
        return "done"
    now = moments[step - 1]
    return f"{now.does.removesuffix(' again')} layer {now.layer}{' again' if now.does == AGAIN else ''}"


def counters(moments: Sequence[Moment], step: int) -> str:
    """Activations alive now and at the highest so far; evaluations so far and in all."""
    past = moments[:step]
    now = len(past[-1].alive) if step <= len(moments) else 0
    most = max(len(each.alive) for each in past)
    done, all_of_them = (sum(each.does != BACKWARD for each in some) for some in (past, moments))
    return f"alive {now}, highest {most}, evaluations {done} of {all_of_them}"


def _panel(name: str, moments: Sequence[Moment], step: int, layers: int, top: float) -> list[str]:
    """One row of boxes; the layer at work is the arrow between two of them."""
    now = moments[step - 1] if step <= len(moments) else None
    wide = (RIGHT - LEFT) / (layers + 1)
    lines = [
        f'<text x="{LEFT}" y="{top + 18}" style="font-weight: 700">{name}</text>',
        text("legend", LEFT + 165, top + 18, doing(moments, step)),
        text("legend", RIGHT, top + 18, counters(moments, step), anchor="end"),
    ]
    for at in range(layers):
        lines += _box(LEFT + wide * at, top + 30, wide * 0.66, f"x{at}", _state(now, at))
    lines.append(text("value", LEFT + wide * (layers + 0.33), top + 48, "y", anchor="middle"))
    for layer in range(1, layers + 1):
        lines.append(_arrow(LEFT + wide * (layer - 0.17), top + 43, now if now and now.layer == layer else None))
    return lines


def _state(now: Moment | None, at: int) -> str:
    if now is None or at not in now.alive:
        return "gone"
    return "checkpoint" if at in now.checkpoints else "alive"


def _box(x: float, y: float, wide: float, name: str, state: str) -> list[str]:
    """Filled where alive, with a bar below where it is a checkpoint; a dotted frame where it is gone."""
    fill = {"alive": BLUE, "checkpoint": ORANGE, "gone": "none"}[state]
    frame = f"stroke: {PALE}; stroke-dasharray: 2 3" if state == "gone" else f"stroke: {fill}"
    words = PALE if state == "gone" else "var(--page)"
    lines = [
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="26" rx="3" style="fill: {fill}; {frame}"/>',
        f'<text x="{x + wide / 2:g}" y="{y + 17:g}" text-anchor="middle" style="fill: {words}; font-size: 11px">'
        f"{name}</text>",
    ]
    if state == "checkpoint":
        lines.append(f'<rect x="{x:g}" y="{y + 30:g}" width="{wide:g}" height="4" style="fill: {ORANGE}"/>')
    return lines


def _arrow(x: float, y: float, now: Moment | None) -> str:
    """A dot for a layer that rests; where it works, a triangle in the direction in which it works."""
    if now is None:
        return f'<circle cx="{x:g}" cy="{y:g}" r="1.5" style="fill: {PALE}"/>'
    tip = -6 if now.does == BACKWARD else 6
    return f'<path d="M {x - tip:g} {y - 9:g} v 18 L {x + tip:g} {y:g} z" style="fill: {INK}"/>'


def _chart(lines: Lines, step: int, layers: int, top: float) -> list[str]:
    """Activations alive over calls: strong up to now, pale after."""
    longest = max(len(moments) for moments in lines.values())
    left, bottom, right = LEFT + 40, top + CHART - 20, RIGHT - 170

    def x(call: float) -> float:
        return left + (right - left) * call / longest

    def y(alive: float) -> float:
        return bottom - (bottom - top) * alive / (layers + 0.5)

    body = [f'<path d="M {left} {top:g} V {bottom:g} H {right}" style="fill: none; stroke: {PALE}"/>']
    for alive in sorted({0, layers // 2, layers}):
        body.append(text("legend", left - 8, y(alive) + 4, str(alive), anchor="end"))
    for call in range(0, longest + 1, 20 if longest > 60 else 10):
        body.append(text("legend", x(call), bottom + 16, str(call), anchor="middle"))
    body.append(
        text("legend", (left + right) / 2, bottom + 34, "calls of layers, forward and backward", anchor="middle")
    )
    body.append(text("legend", left, top - 8, "activations alive"))
    for number, (name, moments) in enumerate(lines.items()):
        style = f"fill: none; stroke: {COLOURS[number]}; stroke-dasharray: {DASHES[number] or 'none'}"
        for upto, look in ((len(moments), "stroke-width: 1.2; opacity: 0.45"), (step, "stroke-width: 2.6")):
            points = [f"H {x(at):g} V {y(len(each.alive)):g} H {x(at + 1):g}" for at, each in enumerate(moments[:upto])]
            body.append(f'<path d="M {left} {y(0):g} {" ".join(points)}" style="{style}; {look}"/>')
        at = top + 14 + 20 * number
        body.append(f'<path d="M {right + 12} {at - 4:g} h 26" style="{style}; stroke-width: 2.6"/>')
        body.append(text("legend", right + 44, at, name))
    body.append(f'<path d="M {x(step):g} {top:g} V {bottom:g}" style="stroke: {INK}; stroke-width: 1"/>')
    return body
