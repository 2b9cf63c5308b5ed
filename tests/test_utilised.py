"""The formula for FLOPs against the meter's count, and published shares."""

from __future__ import annotations

import pytest
import torch

from course.lessons.experiments.utilised import BATCH, CONFIG, MODEL, RUNS, train_step
from course.lessons.models import GPT
from course.meter.run import metered
from course.reference.gradient_checkpointing.utilization import utilization


def counted(*, checkpointed: bool) -> float:
    """FLOPs a token of one step, by the meter."""
    rng = torch.Generator().manual_seed(0)
    model = GPT(CONFIG, rng)
    tokens = torch.randint(CONFIG.vocabulary, (BATCH, CONFIG.context + 1), generator=rng)
    with metered() as run:
        train_step(model, tokens, checkpointed=checkpointed)
    return sum(run.flops.values()) / (BATCH * CONFIG.context)


SCORES_AGAIN = (
    2 * CONFIG.context * CONFIG.width * CONFIG.layers
)  # fused attention keeps no scores: backward repeats them


@pytest.mark.parametrize("word", ["nothing", "block"])
def test_the_meter_counts_what_the_formula_says_and_the_scores_of_fused_attention(word: str) -> None:
    _, hfu = utilization(MODEL, [word] * CONFIG.layers, 1.0, 1.0)
    assert counted(checkpointed=word == "block") == hfu + SCORES_AGAIN


def test_recomputation_lowers_the_share_that_the_model_uses() -> None:
    for run in RUNS:
        if run.mfu is None:
            mfu, hfu = utilization(run.model, [run.recomputed] * run.layers, 1.0, 1.0)
            assert 1.31 < hfu / mfu < 4 / 3


def test_published_shares_count_the_scores_three_times_as_often_as_one_forward_does() -> None:
    for run in RUNS:
        if run.mfu is not None:
            mfu, hfu = utilization(run.model, [run.recomputed] * run.layers, 1.0, 1.0)
            assert abs(run.mfu * (1 + 3 * (hfu - mfu) / mfu) - run.hfu) < 0.1
            assert abs(run.mfu * hfu / mfu - run.hfu) > 0.2
