"""The wrong line of each program of course/lessons/experiments/half_runs.py, and what it must be."""

from __future__ import annotations


def mend_the_runs() -> dict[str, tuple[int, str]]:
    """For each program's name the number of its wrong line, and that line mended; indentation is left out."""
    return {
        "clipped": (8, "g = g * (max_norm * scale / g.norm()).clamp(max=1)"),  # g is still scaled there
        "growing": (11, "good = good + 1 if finite else 0"),  # good steps in a row
        "cached": (9, "casts.clear()"),  # the next pass casts anew; the old cast's gradient goes with it
    }
