"""The three programs of the lesson on sharding hold too much; what they return does not depend on their size."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from course.cluster import run_ranks
from course.lessons.experiments import ledger_runs
from course.reference.fsdp.mend_the_ledgers import mend_the_ledgers


@pytest.mark.parametrize("name", ledger_runs.PROGRAMS)
def test_a_mended_program_holds_less_and_returns_the_same(name):
    mended = ledger_runs.PROGRAMS.mended(name, *mend_the_ledgers()[name])
    held = [ledger_runs.seen(name, program).peak_bytes(0) for program in ("", mended)]
    assert held[1] < 0.65 * held[0]

    def returned(program, copies):
        worker = partial(ledger_runs.run, name=name, program=program, seed=1, copies=copies)
        return run_ranks(worker, 2).values[1]

    torch.testing.assert_close(returned("", 1), returned(mended, 50))
