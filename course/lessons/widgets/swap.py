"""What does the same model say with another adapter?

controls --adapter, strength, first word--> the model with these factors --> a text, and its loss on four dialects
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import ipywidgets as widgets
import torch
from torch import Tensor, nn

from course.lessons import grammar
from course.lessons.experiments.assembled_lora import Trained
from course.lessons.experiments.small_gpt import CONTEXT, judged, loss_on
from course.lessons.models import GPT

NONE = "none"
WRITTEN = 120  # characters
COUNT = 16  # windows that a loss is the mean of
MONO = "font-family: monospace; font-size: 15px; min-height: 4.5em; max-width: 800px; white-space: pre-wrap"


class Board:
    """The controls, the text under them, and the losses.

    model     whose Trained layers compute with their factors
    adapters  by name: factors by the names of the model's parameters
    dialects  on which losses are told
    """

    def __init__(
        self, model: GPT, adapters: Mapping[str, Mapping[str, Tensor]], dialects: Mapping[str, grammar.Dialect]
    ) -> None:
        self.model, self.adapters = model, {NONE: {}, **adapters}
        self.windows = {name: judged(each, COUNT) for name, each in dialects.items()}
        self.layers = [each for each in model.modules() if isinstance(each, Trained)]
        self.scales = [each.scale for each in self.layers]
        self.choice = widgets.ToggleButtons(options=list(self.adapters), value=NONE, description="adapter")
        self.strength = widgets.FloatSlider(
            value=1.0, min=0.0, max=2.0, step=0.25, description="scale x", continuous_update=False
        )
        self.words, self.losses = widgets.HTML(), widgets.HTML()
        self.draw()
        for control in (self.choice, self.strength):
            control.observe(lambda change: self.draw(), names="value")

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        return widgets.VBox([widgets.HBox([self.choice, self.strength]), self.words, self.losses])

    def draw(self) -> None:
        """Put the factors in, write a text and measure."""
        state = self.adapters[self.choice.value]
        strength = self.strength.value if state else 0.0
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if name in state:
                    parameter.copy_(state[name])
        for layer, scale in zip(self.layers, self.scales, strict=True):
            layer.rescale(scale * strength)
        found = {name: loss_on(self.model, each) for name, each in self.windows.items()}
        said = "; ".join(f"{name} {loss:.2f}" for name, loss in found.items())
        text = written(self.model, WRITTEN)
        self.words.value = f'<div style="{MONO}">{escape(text)}</div>'
        self.losses.value = f'<div role="status">loss, nats per character: {escape(said)}</div>'


@torch.no_grad()
def written(model: nn.Module, characters: int, seed: int = 0) -> str:
    """What the model writes after a full stop, drawn by its probabilities."""
    rng, tokens = torch.Generator().manual_seed(seed), grammar.encode(".")
    for _ in range(characters):
        logits = model(tokens[None, -CONTEXT:])[0, -1]
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(0), 1, generator=rng)])
    return grammar.decode(tokens[1:]).strip()


def swap(
    model: GPT, adapters: Mapping[str, Mapping[str, Tensor]], dialects: Mapping[str, grammar.Dialect]
) -> widgets.Widget:
    """One model, many adapters: choose one, and how strongly it counts.

    Answers: what does an adapter carry? The first frame, which a static export shows too, is the model without one.
    """
    return Board(model, adapters, dialects).box
