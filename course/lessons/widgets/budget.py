"""Does GPT-2 with 1.5 billion parameters fit on a device, and what do checkpoints buy?

controls --Settings--> three budgets of the planner --> bars against devices, and a sentence
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.lessons.figures.budget import DEVICES, budget_bars
from course.lessons.figures.charts import Picture
from course.planner.memory import FORMULAS, GB, GPT2, RECIPES, ZERO, Batch, Budget, Checkpointing, budget

SENTENCE = "margin-left: 12px; min-height: 3em; font-size: 15px"  # two lines high, so that nothing jumps
SIZES = tuple(2**power for power in range(8))  # sequences in a batch
LENGTHS = tuple(2**power for power in range(7, 13))  # tokens
DESCRIBED = {"description_width": "11em"}
BARS = {
    Checkpointing.NONE: "nothing recomputed",
    Checkpointing.SELECTIVE: "selective",
    Checkpointing.FULL: "full",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say; their first values are ZeRO's setting (arXiv 1910.02054, section 3.2)."""

    sequence: int = 1024
    size: int = 32
    formula: str = ZERO.name
    recipe: str = "fp16"
    checkpointing: Checkpointing = Checkpointing.NONE

    def budget(self, checkpointing: Checkpointing) -> Budget:
        """The planner's, with a checkpoint for each layer where it is full."""
        batch = Batch(sequence=self.sequence, size=self.size)
        return budget(GPT2, batch, FORMULAS[self.formula], checkpointing, recipe=RECIPES[self.recipe])

    def picture(self) -> Picture:
        """A bar for each way of checkpointing."""
        bars = {words: self.budget(each).parts for each, words in BARS.items()}
        title = (
            f"GPT-2, 1.5 billion parameters, sequence {self.sequence:,}, batch {self.size}: "
            f"what each way of checkpointing needs ({self.formula}'s formula)"
        )
        return budget_bars(bars, chosen=BARS[self.checkpointing], title=title)

    def sentence(self) -> str:
        """What the chosen bar is made of, and the smallest device on which it fits."""
        whole = self.budget(self.checkpointing)
        fits = [size for size in DEVICES if whole.total <= size * GB]
        states, activations = sum(whole.states.values()) / GB, whole.activations.total / GB
        return (
            f"{BARS[self.checkpointing].capitalize()}: {states:.1f} GB of states, {activations:.1f} GB of activations "
            f"and {whole.buffer / GB:.1f} GB of buffers, {whole.total / GB:.1f} GB in all. "
            + (f"It fits into {fits[0]} GB, without the logits." if fits else "It fits on none of the three devices.")
        )


def budget_board() -> widgets.Widget:
    """The budget of GPT-2 1.5B: choose formula, checkpointing, recipe of states, sequence length and batch.

    Answers: on which device does a step fit, and what remains with checkpoints? The first frame, which a static export
    shows too, is ZeRO's setting: sequence 1,024, batch 32, nothing recomputed.
    """
    first = Settings()
    formula = widgets.Dropdown(options=list(FORMULAS), value=first.formula, description="formula", style=DESCRIBED)
    recompute = widgets.Dropdown(
        options=[(words, each) for each, words in BARS.items()], description="checkpointing", style=DESCRIBED
    )
    recipe = widgets.Dropdown(options=list(RECIPES), value=first.recipe, description="states", style=DESCRIBED)
    sequence = widgets.SelectionSlider(options=LENGTHS, value=first.sequence, description="sequence", style=DESCRIBED)
    size = widgets.SelectionSlider(options=SIZES, value=first.size, description="batch", style=DESCRIBED)
    image = widgets.Image(format="png", layout=widgets.Layout(width="100%", max_width="800px"))
    words = widgets.HTML()

    def draw(*_: object) -> None:
        settings = Settings(
            sequence=sequence.value,
            size=size.value,
            formula=formula.value,
            recipe=recipe.value,
            checkpointing=recompute.value,
        )
        image.value = settings.picture()._repr_png_()[0]
        words.value = f'<div role="status" style="{SENTENCE}">{escape(settings.sentence())}</div>'

    draw()
    for control in (formula, recompute, recipe, sequence, size):
        control.observe(draw, names="value")
    rows = [widgets.HBox([formula, recompute]), widgets.HBox([sequence, size]), recipe]
    return widgets.VBox([*rows, image, words])
