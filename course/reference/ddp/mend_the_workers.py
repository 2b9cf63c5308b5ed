"""The wrong line of each of the three programs for several workers, and how it must read."""

from __future__ import annotations


def mend_the_workers() -> dict[str, tuple[int, str]]:
    """Whether to go on, or to update, is decided by what all ranks have; who has begun something goes on."""
    return {
        "stops": (7, "if mean < enough:"),
        "branches": (9, "if g.any():"),
        "waits": (8, "works[-2].wait()"),
    }
