"""The course's public cases as the data of an ordinary release: inputs, and what the right answer returns.

What the course hides until an answer has worked lies open here. Its forms of a case (other dtypes, views, sizes of 0)
are left out, as an ordinary release has none. What its probes draw from seeds, in the size that a
notebook gets, is drawn when the release is built.
"""

from __future__ import annotations

from typing import Any

import torch

from course import exercises
from course.exercises.computational_graphs import long_x, save_less
from course.judging import sheet
from course.performing.blocks import draw
from course.performing.exercise import Case

Row = dict[str, Any]


def rows(unit: str) -> dict[str, list[Row]]:
    """By exercise: each case's name, inputs and `want`."""
    return {
        exercise: [
            {"name": case.name, **case.inputs, **case.hidden, **_drawn(case), "want": dict(seen.values)}
            for case, seen in zip(record.cases, record.references, strict=True)
            if case.name not in {form.name for form in exercises.load(exercise).forms}
        ]
        for exercise, record in sheet.load(unit).items()
    }


def _drawn(case: Case) -> Row:
    """The tensors that a probe of the lesson makes of the seeds of this case; nothing where there are none."""
    given: Row = {**case.inputs, **case.hidden}
    if case.name == save_less.MEMORY:
        start, first = given["start"], given["block"]
        blocks = [first + layer * save_less.BLOCKS for layer in range(save_less.LAYERS)]
        own = torch.cat([draw(given["seed"], range(at, at + 1), save_less.BLOCK) for at in blocks])
        layers = own[:, None, start : start + save_less.PIECE].float() * given["scale"]
        return {"x": torch.zeros(1, save_less.PIECE), "layers": layers}
    if case.name == long_x.NAME:
        near = range(given["block"] - 1, given["block"] + 2)
        x, v = ((2 * draw(seed, near, long_x.BLOCK).flatten() - 1) * given["scale"] for seed in given["seeds"])
        return {"x": x, "v": v, "looked_at": torch.arange(long_x.BLOCK, 2 * long_x.BLOCK)}
    return {}
