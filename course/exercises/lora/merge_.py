"""`merge_(layer)`: the adapter is added into the weight of its base, in place."""

from __future__ import annotations

from functools import partial

from course.exercises.lora import merging
from course.performing.exercise import Exercise

EXERCISE = Exercise(
    id="lora.merge_",
    cases=partial(merging.cases, merged=False),
    probe=merging.probe,
    properties=merging.properties("W + scale B A", "True"),
    hints=(
        "What has to be equal before and after, if the layer then says base(x) alone? Which tensor may change?",
        "A leaf that requires a gradient refuses an in-place change while autograd records, and one that does not gets "
        "a history from A and B. Which context ends both?",
        "Return if it is merged already. Without recording: B A in float32 or finer, times scale, plus the weight in "
        "the same dtype; copy_ the sum into the weight. Then set the flag.",
    ),
    forms=merging.FORMS,
    promises={
        **merging.PROMISES,
        "added to the weight": ("weight",),
        "merged already, nothing happens": ("twice_is_once",),
        "layer.merged is True": ("says_so",),
    },
)
