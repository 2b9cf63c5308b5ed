"""A sharded GPT on real processes: torch's parts stand in for answers, and losses are those of one process."""

from __future__ import annotations

import pytest

from course.lessons.experiments import assembled_fsdp as assembled
from course.reference.fsdp.run_units import run_units
from course.reference.fsdp.shard_flat import shard_flat
from course.reference.fsdp.sharded_clip_ import sharded_clip_
from course.reference.fsdp.unshard import unshard
from course.reference.fsdp.zero1_step import zero1_step
from course.reference.fsdp.zero2_backward import zero2_backward

OURS = {each.__name__: each for each in (shard_flat, unshard, zero1_step, zero2_backward, run_units, sharded_clip_)}


@pytest.mark.parametrize(
    "yours", [pytest.param(OURS, id="ours"), pytest.param({}, id="torch's parts", marks=pytest.mark.soak)]
)
def test_every_stage_has_the_losses_of_one_process(yours):
    parts = assembled.PARTS.with_yours(yours)
    plain, clipped = (assembled.one_process(clipping=each, steps=2) for each in (False, True))
    for name, making in assembled.STEPS_OF.items():
        found = assembled.outcome(making, parts, steps=2)
        assert found.losses == pytest.approx(clipped if name == "and clipping" else plain, abs=1e-6), name


def test_stages_hold_less_and_send_what_they_must():
    parts = assembled.PARTS.with_yours(OURS)
    stages = [assembled.outcome(assembled.STEPS_OF[f"stage {stage}"], parts, steps=1) for stage in range(4)]
    whole = 4 * assembled.CONFIG.parameters
    assert [each.kept / whole for each in stages] == pytest.approx(
        [4, 1 + 2 / 4, 1 + 3 / 4, 3 / 4], rel=0.02
    )  # with DDP's buckets
    assert max(stages[2].peak, stages[3].peak) < 0.7 * stages[0].peak
    assert [each.sent / (whole * 3 / 4) for each in stages] == pytest.approx([2, 2, 2, 3], rel=0.01)


@pytest.mark.soak
def test_fully_shard_gathers_half_the_bytes_in_bfloat16():
    lines = [*assembled.dtypes_table()]
    assert len(lines) == 3
    assert all("all_gather" in each for each in lines)
