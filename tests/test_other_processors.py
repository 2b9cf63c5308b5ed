"""A committed sheet was made on one processor, and students have others, whose roundings differ.

Libraries can be told to compute as on an older processor; on the machine at hand they compute as nowhere else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from course.syllabus import UNITS

OLDER = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}

SCRIPT = """
import json, sys
from autograder import bank as banks
from autograder.prove import prove_recorded
from autograder.release.sheets import sheets_differ
from course.judging import sheet

misses = []
for unit in sys.argv[1:]:
    committed = sheet.load(unit)
    misses += sheets_differ(committed, {name: banks.record(banks.load(name)) for name in committed})
    misses += [each for name, record in committed.items() for each in prove_recorded(banks.load(name), record).misses]
print(json.dumps(misses))
"""


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("processor", [{}, OLDER], ids=["this one", "an older one"])
def test_committed_sheets_judge_and_name_alike(processor):
    units = [unit.slug for unit in UNITS if unit.entries]
    command = [sys.executable, "-c", SCRIPT, *units]
    done = subprocess.run(command, env=os.environ | processor, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
