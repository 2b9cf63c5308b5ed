"""What an answer leaves on its arguments besides their numbers: whether they require a gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from course.performing.exercise import AFTER, Answer, Inputs, Observation

Probe = Callable[[Answer, Inputs], Observation]


def flagged(probe: Probe, *names: str) -> Probe:
    """The probe, which then also tells of each of these inputs whether it requires a gradient after the call."""

    def probed(answer: Answer, inputs: Inputs) -> Observation:
        seen = probe(answer, inputs)
        flags = {f"{AFTER}{name}.requires_grad": inputs[name].requires_grad for name in names}
        return dataclasses.replace(seen, values={**seen.values, **flags})

    return probed
