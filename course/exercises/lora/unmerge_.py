"""`unmerge_(layer)`: the adapter is taken out of the weight of its base again, in place."""

from __future__ import annotations

from functools import partial

from course.exercises.lora import merging
from course.performing.exercise import Exercise

EXERCISE = Exercise(
    id="lora.unmerge_",
    cases=partial(merging.cases, merged=True),
    probe=merging.probe,
    properties=merging.properties("W - scale B A", "False"),
    hints=(
        "What does merge_ leave behind that tells what was added?",
        "The same product, in the same dtype, with another sign. Which layers must be left as they are?",
        "Return unless it is merged. Without recording: B A in float32 or finer, times scale, taken off the weight in "
        "the same dtype; copy_ the difference into the weight. Then clear the flag.",
    ),
    forms=merging.FORMS,
    promises={
        **merging.PROMISES,
        "taken off the weight": ("weight",),
        "not merged, nothing happens": ("twice_is_once",),
        "up to one rounding of the merged weight and one of its own": ("weight", "rounded_once"),
        "layer.merged is False": ("says_so",),
    },
)
