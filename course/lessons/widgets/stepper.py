"""In which order are the values of a graph computed, and in which order its derivatives?

    step 0: leaves --one value a step--> root --one derivative a step--> leaves

`Walk` knows what each step shows and says; `step_through` puts a slider under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.lessons.figures.graph import draw
from course.lessons.figures.layout import arrange
from course.lessons.figures.replay import derivatives
from course.lessons.figures.svg import Svg
from course.lessons.figures.words import bracketed, formula, names, number, slope_name
from course.lessons.graph import Node

SENTENCE = "margin-left: 12px; min-height: 3em; font-size: 15px"  # two lines high, so that nothing jumps
PAUSE = 1500  # milliseconds between two steps while it plays


@dataclass(frozen=True, kw_only=True)
class Walk:
    """A graph, step by step. Steps are 0 to `last`."""

    root: Node
    title: str
    nodes: tuple[Node, ...]  # in an order in which they can be computed
    names: Mapping[Node, str]
    derivatives: Mapping[Node, float]  # of the root with respect to each node

    @property
    def computed(self) -> tuple[Node, ...]:
        """The nodes that are no leaves: one step forward for each."""
        return tuple(node for node in self.nodes if node.inputs)

    @property
    def last(self) -> int:
        """The last step: every node has its value and its derivative."""
        return len(self.computed) + len(self.nodes)

    def node(self, step: int) -> Node | None:
        """The node of which this step shows the value or the derivative; None at step 0."""
        return None if step == 0 else (*self.computed, *reversed(self.nodes))[step - 1]

    def picture(self, step: int) -> Svg:
        """The graph with all that is known after this step."""
        back = max(0, step - len(self.computed))
        known = {node: self.derivatives[node] for node in self.nodes[len(self.nodes) - back :]}
        return draw(self.root, title=self.title, derivatives=known, shown=step, highlight=self.node(step))

    def sentence(self, step: int) -> str:
        """What this step computed, with its numbers."""
        node = self.node(step)
        if node is None:
            return "Only the leaves have values. Move the slider, or press play: values flow forward first."
        return self._forward(node) if step <= len(self.computed) else self._back(node)

    def _forward(self, node: Node) -> str:
        numbers = formula(node, lambda each: number(each.value))
        return f"{self.names[node]} = {formula(node, self.names.__getitem__)} = {numbers} = {number(node.value)}"

    def _back(self, node: Node) -> str:
        name = self.names[node] if node.name or node.inputs else f"({self.names[node]})"
        of = slope_name(self.names[self.root], name)
        if node is self.root:
            return f"{of} = 1: here the way back begins."
        gets = [
            f"{number(self.derivatives[user])} * {bracketed(number(local))} = "
            f"{number(self.derivatives[user] * local)} from {self.names[user]}"
            for user in self.nodes
            for each, local in zip(user.inputs, user.local_derivatives(), strict=True)
            if each is node
        ]
        total = "" if len(gets) == 1 else f", together {number(self.derivatives[node])}"
        return f"{of} gets {' and '.join(gets)}{total}"


def walk(root: Node, title: str) -> Walk:
    """The steps through the graph of `root`. Raises CannotDraw or UnknownOperation for what cannot be shown."""
    nodes = arrange(root).nodes()
    return Walk(root=root, title=title, nodes=tuple(nodes), names=names(nodes), derivatives=derivatives(root))


def step_through(root: Node, title: str) -> widgets.Widget:
    """A slider over the steps of forward and backward pass, with the graph and a sentence on what was computed.

    Answers: in which order are values and derivatives computed, and from which numbers? The first frame, which a
    static export shows too, has the values of the leaves alone. The arrow keys move the slider when it has the
    focus; the play button takes a step every 1.5 s.
    """
    steps = walk(root, title)
    slider = widgets.IntSlider(
        0, 0, steps.last, description="step", continuous_update=True, layout=widgets.Layout(width="60%")
    )
    play = widgets.Play(max=steps.last, interval=PAUSE, description="play", show_repeat=False)
    widgets.jslink((play, "value"), (slider, "value"))
    picture, sentence = widgets.HTML(), widgets.HTML()

    def show(step: int) -> None:
        picture.value = steps.picture(step)._repr_html_()
        sentence.value = f'<div role="status" style="{SENTENCE}">{escape(steps.sentence(step))}</div>'

    slider.observe(lambda change: show(change["new"]), names="value")
    show(0)
    return widgets.VBox([widgets.HBox([play, slider]), picture, sentence])
