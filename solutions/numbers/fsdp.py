"""Numbers that the prose of lesson 06 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

from course.lessons.experiments import ledger_runs, thousand_ranks, unit_life
from course.planner.published import FINE_TUNING, batches_by_room
from course.planner.sharding import GPT3, TRILLION, training_hours

GIVEN = {
    "40": "microseconds that a question gives",
    "80": "the same",
    "30": "the same",
    "2,000": "a setting in the table of fine-tuning, whose source stands above it",
    "175": "the size of a model in a question",
    "2%": "said in the docstring below it",
    "20%": "how points are given",
}


def billions() -> float:
    """Parameters of the model on a thousand ranks."""
    return thousand_ranks.CONFIG.parameters / 1e9


def desk(setting: str) -> str:
    """Cells of the table of fine-tuning: the batch, that by formula where there is one, and minutes."""
    batch, minutes = FINE_TUNING[setting]
    planned = batches_by_room().get(setting)
    return f"{batch} | {'' if planned is None else f'{planned:.1f}'} | {minutes}"


def weights() -> int:
    """Of `masters`, as its memory is drawn."""
    return ledger_runs.UNITS * ledger_runs.RANKS * ledger_runs.PIECE * ledger_runs.COPIES


def longer() -> float:
    """How many times the hours of 175 billion parameters a trillion takes, at the speeds of the cell."""
    return training_hours(TRILLION, 1, share=0.27) / training_hours(GPT3, 1, share=0.51)


def inside_gb() -> float:
    """Bandwidth inside a server in the cell on hybrid sharding, GB/s."""
    return unit_life.INSIDE.bandwidth / 1e9


def between_gb() -> float:
    """Between servers."""
    return unit_life.BETWEEN.bandwidth / 1e9
