"""Each attack ends in the honest score, and the next student of the same runner is unharmed."""

from __future__ import annotations

import pytest

from attacks import FAMILIES
from attacks.grading import problems, traces
from attacks.scene import Machine


def cases(chosen, among=lambda attack: True) -> list:
    """The attacks; `make test` tries those that are chosen of the quick ones of each family."""
    found = []
    for family, attacks in FAMILIES.items():
        kept = chosen([each for each in attacks if among(each) and not each.costly])
        for attack in filter(among, attacks):
            marks = [pytest.mark.slow] * attack.heavy + [pytest.mark.soak] * (attack not in kept)
            found.append(pytest.param(attack, id=f"{family}-{attack.name}", marks=marks))
    return found


def not_in_the_class(attacks) -> list:
    """Those that need what a class lacks which is graded once and not displayed."""
    return [each for each in attacks if each.display or each.times > 1]


@pytest.fixture(scope="module")
def started(scene, runner):
    """The runner after its first submission, and what was there then."""
    assert problems(scene, FAMILIES["cells"][2], runner) == []
    return runner, Machine.now()


@pytest.mark.sandbox
@pytest.mark.parametrize("attack", cases(not_in_the_class))
def test_an_attack_gets_what_it_deserves_and_harms_nobody(attack, scene, started):
    runner, before = started
    assert problems(scene, attack, runner) == []
    assert before.left() == ""


@pytest.mark.parametrize("attack", cases(lambda attacks: attacks[:1], among=lambda attack: attack.bites))
def test_without_walls_the_same_attack_leaves_a_trace(attack, scene, unwalled):
    assert traces(scene, attack, unwalled) != []
