"""Each attack ends in the honest score, and the next student of the same runner is unharmed."""

from __future__ import annotations

import pytest

from attacks import FAMILIES
from attacks.grading import problems, traces
from attacks.scene import Machine

CASES = [
    pytest.param(attack, id=f"{family}-{attack.name}", marks=[pytest.mark.slow] * attack.heavy)
    for family, attacks in FAMILIES.items()
    for attack in attacks
]
HARMLESS = [case for case in CASES if case.values[0].bites]


@pytest.fixture(scope="module")
def started(scene, runner):
    """The runner after its first submission, and what was there then."""
    assert problems(scene, FAMILIES["cells"][2], runner) == []
    return runner, Machine.now()


@pytest.mark.sandbox
@pytest.mark.parametrize("attack", CASES)
def test_an_attack_gets_what_it_deserves_and_harms_nobody(attack, scene, started):
    runner, before = started
    assert problems(scene, attack, runner) == []
    assert before.left() == ""


@pytest.mark.parametrize("attack", HARMLESS)
def test_without_walls_the_same_attack_leaves_a_trace(attack, scene, unwalled):
    assert traces(scene, attack, unwalled) != []
