"""What must a rank hold under each stage of ZeRO?

controls --Settings--> parameters, gradients and optimizer states of a rank, by the planner
         --> a bar for each stage against devices, and a sentence
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import ipywidgets as widgets

from course.lessons.figures.budget import DEVICES, budget_bars
from course.lessons.figures.charts import Picture, as_image
from course.planner.memory import GB, RECIPES
from course.planner.sharding import RANKS, SEVEN_AND_A_HALF, sharded_state_bytes

SENTENCE = "margin-left: 12px; min-height: 3em; font-size: 15px"  # two lines high, so that nothing jumps
DESCRIBED = {"description_width": "7em"}
MODELS = {
    "GPT-2 small, 124 million": 124_000_000,
    "GPT-2, 1.5 billion": 1_500_000_000,
    "7.5 billion": SEVEN_AND_A_HALF,
    "13 billion": 13 * 10**9,
    "70 billion": 70 * 10**9,
    "GPT-3, 175 billion": 175 * 10**9,
    "1 trillion": 10**12,
}
COUNTS = tuple(2**power for power in range(11))
BARS = {
    0: "stage 0: nothing sharded",
    1: "stage 1: optimizer states",
    2: "stage 2: and gradients",
    3: "stage 3: and parameters",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the controls say; their first values are those of ZeRO's figure 1 (arXiv 1910.02054)."""

    model: str = "7.5 billion"
    recipe: str = "fp16"
    ranks: int = RANKS

    def held(self, stage: int) -> dict[str, int]:
        """Bytes of a rank by name."""
        return sharded_state_bytes(MODELS[self.model], RECIPES[self.recipe], ranks=self.ranks, stage=stage)

    def picture(self) -> Picture:
        """A bar for each stage."""
        bars = {words: self.held(stage) for stage, words in BARS.items()}
        ranks = f"{self.ranks:,} ranks" if self.ranks > 1 else "one rank"
        title = f"{self.model} parameters, {ranks}: what each rank holds from step to step"
        return budget_bars(bars, chosen="", title=title)

    def sentence(self) -> str:
        """The least stage that fits on the smallest device and on the largest."""
        fits = {size: next((each for each in BARS if self.total(each) <= size * GB), None) for size in DEVICES}
        small, large = min(DEVICES), max(DEVICES)
        words = [f"a device of {size} GB " + _needs(fits[size]) for size in (small, large)]
        return f"Without activations and buffers, {words[0]}, and {words[1]}."

    def total(self, stage: int) -> int:
        """Bytes of a rank."""
        return sum(self.held(stage).values())


def _needs(stage: int | None) -> str:
    if stage is None:
        return "is too small under every stage"
    return f"needs stage {stage} at least" if stage else "needs no sharding"


class Board:
    """The controls, the bars under them, and the sentence."""

    def __init__(self) -> None:
        first = Settings()
        self.model = widgets.SelectionSlider(
            options=list(MODELS), value=first.model, description="parameters", style=DESCRIBED
        )
        self.ranks = widgets.SelectionSlider(options=COUNTS, value=first.ranks, description="ranks", style=DESCRIBED)
        self.recipe = widgets.Dropdown(options=list(RECIPES), value=first.recipe, description="recipe", style=DESCRIBED)
        self.model.layout.width = "420px"  # its longest name stands beside it
        self.image, self.words = widgets.HTML(), widgets.HTML()
        self.draw()
        for control in (self.model, self.ranks, self.recipe):
            control.observe(lambda change: self.draw(), names="value")

    @property
    def settings(self) -> Settings:
        """What the controls say now."""
        return Settings(model=self.model.value, recipe=self.recipe.value, ranks=self.ranks.value)

    @property
    def box(self) -> widgets.Widget:
        """All of it, from top to bottom."""
        return widgets.VBox([widgets.HBox([self.model, self.ranks]), self.recipe, self.image, self.words])

    def draw(self) -> None:
        """Show the bars of these settings."""
        said = self.settings.sentence()
        self.image.value = as_image(self.settings.picture(), said)
        self.words.value = f'<div role="status" style="{SENTENCE}">{escape(said)}</div>'


def stages() -> widgets.Widget:
    """Bytes of a rank under each stage: choose the model, the number of ranks and the recipe of the states.

    Answers: which stage do I need? The first frame, which a static export shows too, is ZeRO's figure 1: 7.5 billion
    parameters on 64 ranks. All controls can be worked with the keyboard.
    """
    return Board().box
