"""The first step that a loss scaler skips, before anything is run.

amax of step t --times init_scale 2^((t - 1) // growth_interval)--> 65,520 or more? the first t where it is
"""

from __future__ import annotations

from collections.abc import Sequence

OVERFLOWS = 65_520.0  # halfway from 65,504, the largest float16 number, to 65,536: a tie, rounded to the even one


def first_overflow(amaxes: Sequence[float], init_scale: float, growth_interval: int) -> int | None:
    """The step, counted from 1, whose largest gradient times the scale overflows float16; None if there is none.

    amaxes  the largest magnitude of the unscaled gradients of each step
    Until then every step is a good one, so that the scale has doubled after each growth_interval of them.
    """
    for good, amax in enumerate(amaxes):  # so many good steps lie behind
        if amax * init_scale * 2.0 ** (good // growth_interval) >= OVERFLOWS:
            return good + 1
    return None
