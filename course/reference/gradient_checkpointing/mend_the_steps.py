"""The wrong line of each program of course/lessons/experiments/checkpoint_runs.py, and what it must be."""

from __future__ import annotations


def mend_the_steps() -> dict[str, tuple[int, str]]:
    """For each program's name the number of its wrong line, and that line mended; indentation is left out."""
    drawn_once = "mask=torch.rand(h.shape, generator=draw) < keep"
    return {
        "masked": (6, f"layer = lambda h, {drawn_once}: (h @ w).sin().exp().cos() * mask"),
        "watched": (9, "means.append(h.abs().mean().item())"),  # a number holds no graph
    }
