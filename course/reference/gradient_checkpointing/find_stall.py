"""How long the device is idle in a step, and which mark of the host to blame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any


def find_stall(events: Sequence[dict[str, Any]]) -> tuple[int, str | None]:
    """Between two neighbouring edges nothing begins or ends: there one look tells who runs."""
    spans = [(each["start"], each["start"] + each["duration"], each) for each in events]
    device = [(start, stop) for start, stop, each in spans if each["lane"] == "device"]
    host = [(stop - start, start, stop, each["name"]) for start, stop, each in spans if each["lane"] == "host"]
    begin, end = next((start, stop) for _, start, stop, name in host if name == "step")
    edges = sorted({edge for start, stop, _ in spans for edge in (start, stop) if begin <= edge <= end})
    idle: Counter[str] = Counter()
    for left, right in pairwise(edges):
        if not any(start <= left and right <= stop for start, stop in device):
            innermost = min(each for each in host if each[1] <= left and right <= each[2])
            idle[innermost[3]] += right - left
    return (idle.total(), max(idle, key=lambda name: idle[name])) if idle else (0, None)
