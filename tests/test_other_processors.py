"""A committed sheet was made on one processor, and students have others, whose roundings differ.

Libraries can be told to compute as on another processor: with narrower vectors, and so sums in another order, or with
several threads. What they compute then on the machine at hand they compute nowhere else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from course.syllabus import UNITS

ONE = {"OMP_NUM_THREADS": "1"}
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}  # threads that look for work on a busy machine take all the time of a case
PROCESSORS = {
    "no vectors": ONE | {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "vectors of 256 bits": ONE | {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "two threads": WAITING | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "MKL_DYNAMIC": "FALSE"},
    "four threads, no vectors": WAITING
    | {"OMP_NUM_THREADS": "4", "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "SSE4_2"},
}

SCRIPT = """
import json, sys
from autograder import bank as banks
from autograder import recording
from autograder.prove import prove
from autograder.release.sheets import sheets_differ
from course.judging import sheet
from course.performing.exercise import PUBLIC_SEED

misses = []
for name, committed in sheet.load(sys.argv[1]).items():
    bank = banks.load(name)
    recorded = recording.recorded(bank)
    misses += sheets_differ({name: committed}, {name: recorded.record})
    misses += prove(bank, [PUBLIC_SEED], public=recorded.beside(committed)).misses
print(json.dumps(misses))
"""


@pytest.mark.soak
@pytest.mark.parametrize("unit", [unit.slug for unit in UNITS if unit.entries])
@pytest.mark.parametrize("processor", PROCESSORS.values(), ids=PROCESSORS)
def test_a_committed_sheet_judges_and_names_alike(processor, unit):
    command = [sys.executable, "-c", SCRIPT, unit]
    done = subprocess.run(command, env=os.environ | processor, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
