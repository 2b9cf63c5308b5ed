"""Answers and cells that hide from who counts what they use, or have names that are no text; all of them in vain."""

from __future__ import annotations

from attacks.attack import Attack, answer, body, cell

PRCTL = """
import ctypes
import time

LIBC = ctypes.CDLL(None, use_errno=True)
SET_DUMPABLE, SET_NAME = 4, 15
"""
NO_TEXT = f"{PRCTL}LIBC.prctl(SET_NAME, bytes([255, 254]) + b') R 1 \\n1', 0, 0, 0)\ntime.sleep(0.3)\n"
HIDDEN = f"{PRCTL}LIBC.prctl(SET_DUMPABLE, 0, 0, 0, 0)\ntime.sleep(0.2)\n"
SAVES_TOO_MUCH = """
import torch


class SaveLess(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s, s * 2, s * 3)
        return x * s

    @staticmethod
    def backward(ctx, dy):
        x, _, _, _ = ctx.saved_tensors
        s = torch.sigmoid(x)
        return dy * s * (1 + x * (1 - s))
"""
ALL_CORES = f"""{PRCTL}
cores = os.sysconf("SC_NPROCESSORS_CONF")
mask = (ctypes.c_ulong * 16)(*[2**64 - 1] * 16)
if LIBC.sched_setaffinity(0, ctypes.sizeof(mask), mask) == 0:
    won("any core")
if LIBC.setpriority(0, 0, 0) == 0:
    won("a priority")
try:
    os.setsid()
    won("a session")
except PermissionError:
    pass
"""

ATTACKS: list[Attack] = [
    body("a_name_that_is_no_text", NO_TEXT),
    cell("a_name_that_is_no_text_in_the_display", NO_TEXT),
    answer("unreadable_while_it_is_measured", f"{HIDDEN}{SAVES_TOO_MUCH}", exercise="SaveLess", earns=10),
    body("a_larger_share_of_the_processors", ALL_CORES),
]
