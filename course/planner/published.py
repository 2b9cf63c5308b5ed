"""Figures that papers give, and what the planner says of the same settings.

published.tsv --figures--> name, setting, value, unit, source;  planned() --> the same names, by formula
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from course.planner.memory import (
    GB,
    GPT2,
    RECIPES,
    ZERO,
    Batch,
    activation_bytes,
    fused_buffer_bytes,
    recomputation_overhead,
    state_bytes,
)

FILE = Path(__file__).with_name("published.tsv")
SETTING = Batch(sequence=1024, size=32)  # of ZeRO's section 3.2


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A published figure: `value` in `unit`, and where it stands."""

    name: str
    setting: str
    value: float
    unit: str
    source: str


def figures() -> dict[str, Figure]:
    """All of them, by name."""
    found = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, setting, value, unit, source = line.split("\t")
            found[name] = Figure(name=name, setting=setting, value=float(value), unit=unit, source=source)
    return found


def planned() -> dict[str, float]:
    """What the formulas give for each figure, in its unit.

    checkpointed  all activations divided by the square root of the number of layers. The paper says "approximately the
                  square root of the total activations", which has no unit: this is one reading of it.
    """
    activations = activation_bytes(GPT2, SETTING, ZERO).total
    return {
        "states": sum(state_bytes(GPT2.parameters, RECIPES["fp16"]).values()) / GB,
        "activations": activations / GB,
        "checkpointed": activations / math.sqrt(GPT2.layers) / GB,
        "recomputation": 100 * recomputation_overhead(),
        "buffer": fused_buffer_bytes(GPT2.parameters) / GB,
    }
