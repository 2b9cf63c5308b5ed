"""Instruments: what autograd saves, what stays alive, how often something is called.

with saved_bytes() as meter: y = f(x)      what was handed to autograd for backward, op by op
with kept_bytes() as meter: y = f(x)       what is alive afterwards, however it is kept
f = counted(f)                             calls of a function, with the shape of each call's argument
"""

from __future__ import annotations

from course.meter.calls import Counted, counted, forward_calls
from course.meter.kept import KeptBytes, kept_bytes
from course.meter.saved import SavedBytes, saved_bytes
from course.meter.storage import Row

__all__ = [
    "Counted",
    "KeptBytes",
    "Row",
    "SavedBytes",
    "counted",
    "forward_calls",
    "kept_bytes",
    "saved_bytes",
]
