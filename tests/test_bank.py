"""autograder/bank.py: what is known of an exercise, and how it is recorded."""

from __future__ import annotations

import dataclasses
import random
import sys
import types

import numpy as np
import pytest
import torch
import toy
import toy_ranks
from conftest import same_record, same_tree

from autograder import bank as banks
from autograder import recording
from autograder.bank import Misconception
from autograder.edits import edited
from course.errors import DeclarationError, UnknownExercise
from course.performing.compare import EPS
from course.performing.exercise import ARGUMENTS_UNCHANGED, PUBLIC_SEED, Case
from course.performing.perform import in_float64, perform_all
from course.syllabus import find_unit

CASES = tuple(toy.EXERCISE.draw(1))


def recorded(*witnesses, cases=CASES, **fields):
    """A misconception of the toy as a sheet holds it."""
    bank = dataclasses.replace(toy.BANK, misconceptions=(toy.wrong("it", *witnesses, **fields),))
    return recording.suspects(bank, cases)[0]


# loading


def test_a_bank_is_found_by_name_and_by_id():
    assert banks.load("backward").exercise.id == banks.load("computational_graphs.backward").exercise.id
    assert banks.load("backward").reference.__name__ == "backward"


def test_the_banks_of_a_unit_come_in_the_syllabus_order():
    names = [bank.exercise.name for bank in banks.load_unit("optimizers")]
    assert names == [entry.name for entry in find_unit("optimizers").entries]


def test_an_unknown_exercise_is_a_sentence():
    with pytest.raises(UnknownExercise, match="did you mean `backward`"):
        banks.load("backwards")


@pytest.mark.parametrize(
    ("package", "name"),
    [("autograder.answers", "WRONG"), ("course.reference", "backward")],
)
def test_a_missing_part_is_named_with_its_place(monkeypatch, package, name):
    place = f"{package}.computational_graphs.backward"
    monkeypatch.setitem(sys.modules, place, types.ModuleType(place))
    with pytest.raises(DeclarationError, match=rf"backward must have `{name}` in {place}, but: "):
        banks.load("backward")


def test_a_missing_module_is_named_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "autograder.answers.computational_graphs.backward", None)
    with pytest.raises(DeclarationError, match=r"must have `WRONG` in autograder\.answers\."):
        banks.load("backward")


# the misconception that every exercise with kept arguments shares


def _spoils() -> Misconception:
    return banks._changes_arguments(toy.EXERCISE, toy.running_mean)


def test_the_argument_spoiler_returns_the_right_result():
    seen = perform_all(toy.EXERCISE, _spoils().witnesses[0], CASES)
    right = perform_all(toy.EXERCISE, toy.running_mean, CASES)
    for key in ("squares", "total"):
        assert same_tree([each.values[key] for each in seen], [each.values[key] for each in right])


@pytest.mark.parametrize("key", ["after/x", "after/numbers"])
def test_the_argument_spoiler_changes_every_argument(key):
    seen = perform_all(toy.EXERCISE, _spoils().witnesses[0], CASES)
    right = perform_all(toy.EXERCISE, toy.running_mean, CASES)
    assert not any(same_tree(one.values[key], two.values[key]) for one, two in zip(seen, right, strict=True))


def test_the_argument_spoiler_reaches_into_lists_and_leaves_whole_numbers():
    arguments = [[torch.zeros(1), torch.zeros(1, dtype=torch.int64), 1.0], [1.0, 2]]
    banks._changes_arguments(toy.EXERCISE, toy.running_mean).witnesses[0](*arguments, lambda x: x)
    assert same_tree(arguments, [[torch.ones(1), torch.zeros(1, dtype=torch.int64), 2.0], [2.0, 2]])


def test_the_argument_spoiler_is_recognised_by_what_fails():
    found, property = _spoils(), toy.EXERCISE.properties[-1]
    assert (found.name, found.fails, found.hint) == ("changes_its_arguments", (ARGUMENTS_UNCHANGED,), property.hint)


# recording


def test_references_are_recorded_in_float64():
    seen = recording.references(toy.BANK, CASES)
    assert {each.values["squares"].dtype for each in seen} == {torch.float64}
    assert {each.values["after/x"].dtype for each in seen} == {torch.float64}


def test_misconceptions_are_recorded_in_the_dtype_of_the_case():
    witness = recorded(toy.cubes).witnesses[0]
    assert {each.values["squares"].dtype for each in witness.observations} == {torch.float32}


def test_a_reference_that_breaks_is_a_sentence_with_its_case():
    bank = dataclasses.replace(toy.BANK, reference=lambda *args: 1 / 0)
    with pytest.raises(DeclarationError, match=r"must run on case `vector`, but raised ZeroDivisionError"):
        recording.references(bank, CASES)


def test_the_public_record_is_drawn_from_the_public_seed():
    record = recording.record(toy.BANK)
    assert same_tree([case.inputs for case in record.cases], [case.inputs for case in toy.EXERCISE.draw(PUBLIC_SEED)])


def test_recording_twice_gives_the_same():
    assert same_record(recording.record(toy.BANK, 5), recording.record(toy.BANK, 5))


def test_recording_does_not_touch_the_global_random_state():
    before = torch.get_rng_state()
    recording.record(toy.BANK)
    assert torch.equal(before, torch.get_rng_state())


def test_a_suspect_carries_what_the_misconception_declares():
    found = recorded(toy.cubes, toy.row_by_row, same_as=("other",))
    assert (found.name, found.hint, len(found.witnesses)) == ("it", "Cure of it.", 2)
    assert found.same_as == {"other"}


def test_a_misconception_that_is_recognised_by_what_fails_records_no_witness():
    found = recorded(toy.in_place, fails=("arguments_unchanged",))
    assert (found.fails, found.witnesses) == ({"arguments_unchanged"}, ())


@pytest.mark.parametrize(
    "draw", [lambda: torch.rand(()), random.random, np.random.rand], ids=["torch", "python", "numpy"]
)
def test_what_chance_decides_is_free_and_recorded_alike_each_time(draw):
    def randomly(x, numbers, square):
        return square(x) * draw(), sum(numbers)

    one, two = (recorded(randomly).witnesses[0] for _ in range(2))
    assert one.free == (frozenset({"squares"}),) * 2
    assert same_tree(one.observations, two.observations)


def test_what_chance_does_not_decide_is_not_free():
    assert recorded(toy.cubes).witnesses[0].free == (frozenset(),) * 2


@pytest.mark.parametrize(("draw", "times"), [(lambda: 2.0, 2), (random.random, 3)], ids=["no draw", "a draw"])
def test_only_what_draws_is_performed_under_a_second_random_state(draw, times):
    called = []

    def wrong(x, numbers, square):
        called.append(numbers)
        return square(x) * draw(), sum(numbers)

    recorded(wrong)
    assert len(called) == times * len(CASES)


@pytest.mark.parametrize(
    ("draw", "times"),
    [(lambda: 2.0, 2), (random.random, 3), (lambda: torch.rand(()), 3), (lambda: 1 / 0, 3)],
    ids=["no draw", "Python's", "torch's", "it breaks"],
)
def test_the_same_holds_of_ranks_but_who_breaks_may_have_drawn(draw, times):
    called = []

    def wrong(comm, x):
        called.append(comm.rank)
        comm.barrier()
        return x * (draw() if comm.rank == comm.size - 1 else 1.0)

    bank = dataclasses.replace(toy.BANK, exercise=toy_ranks.EXERCISE, misconceptions=(toy.wrong("it", wrong),))
    recording.suspects(bank, toy_ranks.EXERCISE.draw(1))
    assert len(called) == times * sum(toy_ranks.SIZES)


def test_a_cost_that_chance_decides_is_free_under_its_own_name():
    def sometimes(x, numbers, square):
        for _ in range(int(torch.randint(1, 10**6, ())) % 1000):
            square(x)
        return square(x), sum(numbers)

    assert recorded(sometimes).witnesses[0].free[0] == {"ledger/calls"}


def test_sensitivity_is_how_far_a_value_moves_with_one_rounding_of_the_inputs():
    row = recorded(toy.cubes).witnesses[0].sensitivity[0]
    x = CASES[0].inputs["x"]
    assert 0 < row["squares"] < 10 * float(x.max() ** 3) * 2**-23
    assert "ledger/calls" not in row
    assert list(row) == sorted(row)


def test_an_amplified_rounding_is_seen():
    def cancels(x, numbers, square):
        return (square(x) - x) * 1e6 - (square(x) - x).mean() * 1e6, sum(numbers)

    calm, sharp = (recorded(each).witnesses[0].sensitivity[0]["squares"] for each in (toy.cubes, cancels))
    assert sharp > 1e4 * calm


def test_a_sheet_shows_what_only_some_ways_to_move_inputs_do():
    def of_the_first_two(x, numbers, square):
        return square(x) + (x[0] / CASES[0].inputs["x"][0] < x[1] / CASES[0].inputs["x"][1]), sum(numbers)

    bank = dataclasses.replace(toy.BANK, misconceptions=(toy.wrong("it", of_the_first_two),))
    one, several = (
        recording.recorded(bank, 1, moved=ways).record.suspects[0].witnesses[0].sensitivity[0]["squares"]
        for ways in (1, recording.WAYS)
    )
    assert one < 1e-3 < 0.5 < several


def test_inputs_move_by_one_rounding_up_and_down():
    moved = recording._moved(CASES[0], 0.0).inputs
    ratio = moved["x"].double() / CASES[0].inputs["x"].double() - 1
    assert ((ratio.abs() - 2**-23).abs() < 2**-24).all()
    assert ratio.sign().tolist() == [1, -1, 1]
    assert moved["numbers"][0] == CASES[0].inputs["numbers"][0] * (1 + 2**-52)


@pytest.mark.parametrize("dtype", EPS)
def test_numbers_of_every_dtype_move(dtype):
    case = Case(name="", inputs={"x": torch.ones(3, 2, dtype=dtype)})
    eps = EPS[dtype]
    by_column = recording._moved(case, 0.0).inputs["x"].double().T
    assert (by_column[0] == 1 + eps).all()
    assert ((1 - eps <= by_column[1]) & (by_column[1] < 1)).all()


def test_numbers_move_by_the_roundings_of_what_a_mistake_computes_in():
    case = Case(name="", inputs={"x": torch.ones(1, dtype=torch.float64), "y": torch.ones(1, dtype=torch.bfloat16)})
    moved = recording._moved(case, 2.0**-23).inputs
    assert (float(moved["x"]), float(moved["y"])) == (1 + 2**-23, 1 + 2**-7)


def test_a_mistake_that_rounds_is_as_uncertain_as_its_roundings():
    def rounds(x, numbers, square):
        return square(x).float().double(), sum(numbers)

    fine, rough = (
        recorded(rounds, cases=[in_float64(CASES[0])], **fields).witnesses[0].sensitivity[0]
        for fields in ({}, {"rounds_to": torch.float32})
    )
    assert "squares" not in fine
    assert 2**-24 < rough["squares"] < 2**-18


def test_hidden_numbers_move_too():
    case = dataclasses.replace(CASES[0], hidden={"m": torch.ones(2), "n": [2.0], "row": 3})
    moved = recording._moved(case, 0.0)
    assert moved.hidden["m"].tolist() == [1 + 2**-23, 1 - 2**-23]
    assert (moved.hidden["n"], moved.hidden["row"], moved.name) == ([2 + 2**-51], 3, "vector")


def test_a_witness_that_breaks_in_some_case_is_recorded_with_its_failure():
    def vectors_only(x, numbers, square):
        return square(x)[:, None].view(x.shape[0]), sum(numbers)

    witness = recorded(vectors_only).witnesses[0]
    assert [each.error and each.error.type for each in witness.observations] == [None, "RuntimeError"]


def test_an_edit_that_uses_a_name_which_its_source_does_not_have_is_refused():
    adamw_step = banks.load("adamw_step").reference
    with pytest.raises(DeclarationError, match="uses np"):
        edited(adamw_step, ("math.sqrt(1 - beta2**t)", "np.sqrt(1 - beta2**t)"))
    edited(adamw_step, ("root = v", "import numpy as np\n        root = v"), ("math.sqrt(", "np.sqrt("))


def _cancels(x, numbers, square):
    """Three times a tenth, less three tenths: what is left are roundings."""
    return square(x), float(x[0] * 3 - x[1]) + 1e-9


def test_a_value_that_drowns_in_its_roundings_is_free():
    case = Case(name="cancels", inputs={"x": torch.tensor([0.1, 0.3]), "numbers": [1.0]})
    witness = recorded(_cancels, cases=(case,)).witnesses[0]
    assert 0 < abs(witness.observations[0].values["total"]) <= witness.sensitivity[0]["total"]
    assert witness.free[0] == {"total"}
