"""The wrong line of each program of course/lessons/experiments/adapter_runs.py, and what it must be."""

from __future__ import annotations


def mend_the_adapters() -> dict[str, tuple[int, str]]:
    """For each program's name the number of its wrong line, and that line mended; indentation is left out."""
    return {
        "classifier": (  # A and B stay as they are
            5,
            "p.requires_grad_(any(p is factor for a in (model.up, model.down) for factor in (a.A, a.B)))",
        ),
        "matrices": (3, "if True:"),  # every parameter, of any dimension
        "largest": (12, "optimizer.zero_grad()"),  # None: Adam passes over it, and over zeros it does not
    }
