"""An exercise with ranks, performed in a notebook: on simulated ranks, with their costs and failures."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import toy_ranks

from course.errors import DeclarationError
from course.judging.judge import judge
from course.performing.exercise import Case, Observation
from course.performing.perform import in_float64, perform, perform_all

EXERCISE = toy_ranks.EXERCISE
CASES = EXERCISE.draw(2)


def ring():
    names: dict[str, object] = {}
    exec(toy_ranks.RING, names)
    return names["running_mean"]


def verdict(answer):
    expected = perform_all(EXERCISE, ring(), [in_float64(case) for case in CASES])
    return judge(EXERCISE, CASES, perform_all(EXERCISE, answer, CASES), expected, ())


def unwritten(comm, x):
    raise NotImplementedError(EXERCISE.id)


def on(ranks: int) -> Case:
    return next(case for case in CASES if case.name == f"{ranks} ranks")


def test_each_rank_is_observed_and_the_costs_are_claims():
    seen = perform(EXERCISE, ring(), on(3))
    assert set(seen.values) == {f"{rank}/total" for rank in range(3)} | {f"after/{rank}/x" for rank in range(3)}
    assert seen.ledger["messages"].tolist() == [[0, 4, 0], [0, 0, 4], [4, 0, 0]]
    assert set(seen.sources.values()) == {"claimed"}


def test_a_right_answer_gets_full_marks():
    assert verdict(ring()).points == EXERCISE.points


def test_a_stub_is_not_attempted_and_earns_nothing():
    found = verdict(unwritten)
    assert found.points == 0
    assert not found.attempted


def test_a_failure_names_its_rank_and_the_students_own_line():
    def answer(comm, x):
        if comm.rank == 1:
            raise KeyError("oh")
        comm.barrier()

    error = perform(EXERCISE, answer, on(2)).error
    assert (error.type, error.rank) == ("KeyError", 1)
    assert "raise KeyError" in error.where[-1]


def test_a_verb_that_the_exercise_does_not_offer_is_refused():
    error = perform(EXERCISE, lambda comm, x: comm.all_reduce(x), on(2)).error
    assert "all_reduce must not be used here" in error.message


def test_an_endless_answer_is_stopped_and_named():
    def answer(comm, x):
        if comm.rank == 1:
            while True:
                pass
        comm.barrier()

    seen = perform_all(dataclasses.replace(EXERCISE, seconds=0.3), answer, [on(2), on(3)])
    assert [each.error.type for each in seen] == ["TimeLimit"] * 2
    assert seen[0].error.rank == 1


def test_what_a_rank_prints_has_its_number():
    seen = perform(EXERCISE, lambda comm, x: print("here") or x, on(2))
    assert sorted(seen.printed.split("\n")) == ["", "[rank 0] here", "[rank 1] here"]


def test_memory_is_counted_where_it_is_measured():
    def keeping(comm, x):
        kept = [x + 1 for _ in range(5 * comm.rank + 5)]
        return kept[0]

    two = on(2)
    seen = perform(dataclasses.replace(EXERCISE, measured=(two.name,)), keeping, two)
    assert seen.ledger["live_bytes"].tolist() == [6 * 40, 11 * 40]  # the input, and each sum
    assert seen.sources["live_bytes"] == "claimed"
    assert "live_bytes" not in perform(EXERCISE, keeping, two).ledger


def test_on_a_rank_of_its_own_only_its_part_is_observed():
    class Alone:
        rank, size = 0, 1

    seen = perform(EXERCISE, lambda comm, x: x + comm.size, Case(name="", inputs={"x": torch.ones(2)}), comm=Alone())
    assert seen.values["total"].tolist() == [2.0, 2.0]
    assert isinstance(seen, Observation)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verbs": ()}, "must be declared together"),
        ({"oracle": lambda case: None}, "must not have an oracle"),
        ({"withheld": ("x",)}, "must not withhold inputs"),
    ],
)
def test_what_an_exercise_with_ranks_cannot_have_is_refused(changes, words):
    with pytest.raises(DeclarationError, match=words):
        dataclasses.replace(EXERCISE, **changes)
