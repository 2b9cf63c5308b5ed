"""Instruments: what autograd saves, what stays alive, what each op costs, how often something is called.

with metered() as run: f(x).backward()     live bytes and their peak, FLOPs, dtypes, modules, op by op
with saved_bytes() as meter: y = f(x)      what was handed to autograd for backward, op by op
with kept_bytes() as meter: y = f(x)       what is alive afterwards, however it is kept
with memory_limit(2**20): f(x)             an error at the op that makes live bytes more than that
f = counted(f)                             calls of a function, with the shape of each call's argument
hooks_called(loss)                         hooks that a backward calls, those of autograd's nodes too
"""

from __future__ import annotations

from course.meter.calls import Counted, counted, forward_calls, hooks_called
from course.meter.kept import KeptBytes, cycles_freed, kept_bytes
from course.meter.limit import OverBudget, memory_limit
from course.meter.run import Allocator, Op, Run, metered
from course.meter.saved import SavedBytes, saved_bytes
from course.meter.storage import Row

__all__ = [
    "Allocator",
    "Counted",
    "KeptBytes",
    "Op",
    "OverBudget",
    "Row",
    "Run",
    "SavedBytes",
    "counted",
    "cycles_freed",
    "forward_calls",
    "hooks_called",
    "kept_bytes",
    "memory_limit",
    "metered",
    "saved_bytes",
]
