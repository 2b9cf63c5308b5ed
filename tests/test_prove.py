"""autograder/prove.py: a bank with a defect is told so, and the course's own banks have none."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import tempfile
from pathlib import Path

import pytest
import torch
import toy
from threadpoolctl import threadpool_info, threadpool_limits
from typer.testing import CliRunner

from autograder import bank as banks
from autograder.bank import Alternative, Bank, Misconception, right
from autograder.cli import app
from autograder.edits import edited
from autograder.garbage import garbage, stub
from autograder.prove import prove, prove_all, seeds, with_worked
from autograder.undisturbed import IN_MEMORY, files_in_memory, undisturbed
from course.errors import CourseError
from course.performing.exercise import PUBLIC_SEED, Property, observe
from course.performing.forms import leaves, strided
from course.syllabus import find_unit

ROOT = Path(__file__).resolve().parent.parent
SEEDS = (PUBLIC_SEED, 1, 2)

FULL_MARKS = "gets full marks; draw a case, or add a property, that shows it"
UNBROKEN = "is broken by no misconception; add a wrong answer that fails it"


def misses(bank: Bank, **parts) -> list[str]:
    """What the proof of a changed bank has to say, for one seed."""
    return prove(dataclasses.replace(bank, **parts), [1]).misses


def with_misconceptions(*more: Misconception) -> dict:
    return {"misconceptions": (*toy.BANK.misconceptions, *more)}


# the machinery


def test_a_sound_bank_has_no_misses():
    proof = prove(toy.BANK, SEEDS)
    assert proof.misses == []
    assert (proof.points, proof.alternatives, proof.misconceptions) == (8, 2, 4)
    assert proof.broken == {each.name for each in toy.EXERCISE.properties}


def test_the_confusion_matrix_counts_every_witness_and_seed():
    proof = prove(toy.BANK, SEEDS)
    assert dict(proof.confusion) == {(each.name, each.name): 3 for each in toy.BANK.misconceptions}
    garbage_runs = len(list(garbage(toy.BANK, 1)))
    assert proof.runs == 3 * (3 + 1 + garbage_runs + 4)


def test_an_alternative_that_fails_is_a_miss():
    bad = Alternative(name="bad", answer=toy.cubes)
    found = misses(toy.BANK, alternatives=(*toy.BANK.alternatives, bad))
    assert "seed 1: alternative bad must get full marks, but fails squares, one_call, arguments_unchanged" in found
    assert "seed 1: alternative bad is diagnosed as cubes" in found


def test_a_reference_that_fails_in_the_dtype_of_the_case_is_a_miss():
    def only_in_float64(x, numbers, square):
        return square(x) + (x.dtype == torch.float32), sum(numbers)

    assert any("the reference must get full marks" in each for each in misses(toy.BANK, reference=only_in_float64))


def _forgiving(answer, inputs):
    """A probe that swallows what the answer raises, and observes a constant."""
    try:
        return toy.probe(answer, inputs)
    except Exception:
        return observe({"squares": inputs["x"] * inputs["x"], "total": 0.0}, {"calls": 1})


def test_a_stub_that_passes_is_a_miss():
    found = misses(toy.BANK, exercise=dataclasses.replace(toy.EXERCISE, probe=_forgiving))
    assert "seed 1: the stub must earn nothing, but holds squares, one_call" in found
    assert "seed 1: the stub must count as not attempted" in found


def test_a_misconception_with_full_marks_is_a_miss():
    found = misses(toy.BANK, **with_misconceptions(toy.wrong("harmless", toy.with_sum)))
    assert f"seed 1: misconception harmless (witness 1) {FULL_MARKS}" in found


def test_temporary_files_lie_in_memory_where_nobody_names_another_place(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/elsewhere")
    monkeypatch.delenv("TMPDIR", raising=False)
    with files_in_memory():
        assert tempfile.tempdir == (IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else "/elsewhere")
    assert tempfile.tempdir == "/elsewhere"
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    with files_in_memory():
        assert tempfile.tempdir == "/elsewhere"


def test_answers_have_one_thread_of_torch_and_of_numpys_linear_algebra():
    def threads() -> list[int]:
        own = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
        return [torch.get_num_threads(), *own]

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threadpool_limits(2, user_api="blas"):
            with undisturbed():
                meanwhile = threads()
            assert threads() == [2, 2]
    finally:
        torch.set_num_threads(before)
    assert meanwhile == [1, 1]


def test_every_witness_is_tried():
    found = misses(toy.BANK, **with_misconceptions(toy.wrong("mixed", toy.row_by_row, toy.with_sum)))
    assert f"seed 1: misconception mixed (witness 2) {FULL_MARKS}" in found


def test_a_misconception_that_is_diagnosed_as_another_is_a_miss():
    found = misses(toy.BANK, **with_misconceptions(toy.wrong("twin", toy.cubes)))
    words = "misconception twin (witness 1) is diagnosed as cubes; if nothing can tell them apart, declare same_as"
    assert f"seed 1: {words}" in found


def quickly_proven(wrong: Misconception, seeds=SEEDS):
    return prove(dataclasses.replace(toy.BANK, **with_misconceptions(wrong)), seeds, quick=True)


def test_a_quick_proof_performs_what_is_wrong_in_one_case_of_fresh_inputs():
    performed = []

    def cubes_and_tells(x, numbers, square):
        performed.append(x)
        return toy.cubes(x, numbers, square)

    wrong = toy.wrong("told", cubes_and_tells, toy.cubes, same_as=("cubes",))
    assert quickly_proven(wrong, SEEDS[:1]).misses == []
    of_the_first = len(performed)
    assert quickly_proven(wrong).misses == []
    assert len(performed) == 2 * of_the_first + 2


def test_a_quick_proof_tells_what_is_caught_on_the_first_inputs_alone():
    first = [case.inputs["x"] for case in toy.EXERCISE.draw(PUBLIC_SEED)]

    def wrong_at_first(x, numbers, square):
        return square(x) + any(torch.equal(x, each) for each in first), sum(numbers)

    (miss,) = quickly_proven(toy.wrong("at_first", wrong_at_first)).misses
    assert miss == "seed 1, 2: misconception at_first must fail squares, as on the first seed"


def now_and_then(x, numbers, square):
    """Wrong only where the first number of x is large: a matter of what was drawn."""
    return square(x) * (2 if float(x.flatten()[0]) > 1.5 else 3), sum(numbers) + (float(x.flatten()[0]) > 1.5)


@pytest.mark.parametrize("by_chance", [False, True])
def test_a_draw_that_decides_what_fails_is_a_miss_unless_it_is_declared(by_chance):
    chance = toy.wrong("chance", now_and_then, fails=("squares",), by_chance=by_chance)
    bank = dataclasses.replace(toy.BANK, misconceptions=(*toy.BANK.misconceptions, chance))
    found = [each for each in prove(bank, range(8)).misses if "on every seed" in each]
    fails = "must fail the same properties on every seed, but fails arguments_unchanged, total on some only"
    assert [fails in each for each in found] == [] if by_chance else [True]


def test_a_miss_on_several_seeds_is_told_once():
    bank = dataclasses.replace(toy.BANK, **with_misconceptions(toy.wrong("harmless", toy.with_sum)))
    assert f"seed 1, 2, 3: misconception harmless (witness 1) {FULL_MARKS}" in prove(bank, [1, 2, 3]).misses


FORMED = dataclasses.replace(toy.EXERCISE, forms=(strided("x", of="matrix"), leaves("x", of="matrix")))


def views_or_leaves(x, numbers, square):
    """Right in each hard form alone."""
    if x.requires_grad and not x.is_contiguous():
        raise RuntimeError("both at once")
    return square(x), sum(numbers)


def test_right_answers_are_tried_where_several_forms_meet():
    found = misses(toy.BANK, exercise=FORMED, alternatives=(*toy.BANK.alternatives, right(views_or_leaves)))
    (miss,) = (each for each in found if "several forms meet" in each)
    assert "alternative views_or_leaves must be right where several forms meet" in miss


def test_a_declared_collision_is_none():
    twin = toy.wrong("twin", toy.cubes, same_as=("cubes",))
    assert misses(toy.BANK, **with_misconceptions(twin)) == []


def test_a_misconception_that_is_not_recognised_is_a_miss():
    lost = toy.wrong("lost", toy.last_number_dropped, fails=("squares",))
    others = tuple(each for each in toy.BANK.misconceptions if each.name != "last_number_dropped")
    found = misses(toy.BANK, misconceptions=(*others, lost))
    assert "seed 1: misconception lost (witness 1) is diagnosed as none" in found


def zeros(x, numbers, square):
    return torch.zeros_like(square(x)), 0.0


def test_garbage_that_is_diagnosed_is_a_miss():
    found = misses(toy.BANK, **with_misconceptions(toy.wrong("all_zero", zeros)))
    assert "seed 1: zeros is diagnosed as all_zero" in found


ALWAYS = Property("always", "-", holds=lambda inputs, got, expected: None)


def test_garbage_that_earns_is_a_miss():
    exercise = dataclasses.replace(toy.EXERCISE, properties=(*toy.EXERCISE.properties, ALWAYS))
    found = misses(toy.BANK, exercise=exercise)
    assert "seed 1: zeros must earn nothing, but holds always" in found
    assert "seed 1: noise must earn nothing, but holds always" in found
    assert "seed 1: nothing must earn nothing, but holds always" in found
    assert "seed 1: argument 0 returned must earn nothing, but holds always" in found


def test_a_property_that_nothing_breaks_is_a_miss():
    few = tuple(each for each in toy.BANK.misconceptions if each.name != "row_by_row")
    assert misses(toy.BANK, misconceptions=few) == [f"property one_call {UNBROKEN}"]


def test_a_property_that_only_waits_is_not_broken():
    assert f"property one_call {UNBROKEN}" in misses(toy.BANK, misconceptions=(toy.wrong("cubes", toy.cubes),))


def test_right_answers_that_share_the_reference_s_formula_are_too_few():
    found = misses(toy.BANK, alternatives=toy.BANK.alternatives[1:])
    assert found == ["one right answer must be independent: the library's own call, numpy or a closed form"]


def test_a_miss_shows_the_line_that_was_edited():
    harmless = edited(toy.running_mean, ("square(x), ", "square(x.clone()), "))
    (found,) = misses(toy.BANK, **with_misconceptions(toy.wrong("harmless", harmless)))
    assert found == (
        "seed 1: misconception harmless (witness 1; - return square(x), math.fsum(numbers); "
        f"+ return square(x.clone()), math.fsum(numbers)) {FULL_MARKS}"
    )


def test_the_worked_solution_is_a_right_answer():
    bank = with_worked(banks.load("running_mean"), ROOT)
    assert (bank.alternatives[-1].name, bank.alternatives[-1].answer([1.0, 3.0])) == ("worked", [1.0, 2.0])


def test_an_exercise_without_a_worked_solution_is_told_where_to_write_one(tmp_path):
    lesson = find_unit("start_here").notebook
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / f"{lesson}.py").write_text("# %% [markdown]\n# # Empty\n")
    with pytest.raises(CourseError, match=f"solutions/{lesson}.py"):
        with_worked(banks.load("running_mean"), tmp_path)


def test_a_property_of_a_case_that_nobody_draws_is_a_miss():
    odd = dataclasses.replace(toy.EXERCISE.properties[0], cases=("vectro",))
    exercise = dataclasses.replace(toy.EXERCISE, properties=(odd, *toy.EXERCISE.properties[1:]))
    assert "properties and `measured` must speak of cases that are drawn, got vectro" in misses(
        toy.BANK, exercise=exercise
    )


# stubs and garbage


def test_a_stub_raises_the_id_of_its_exercise():
    with pytest.raises(NotImplementedError, match=f"^{toy.ID}$"):
        stub(toy.BANK)(1, 2)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def test_the_stub_of_a_class_is_a_class_whose_methods_raise():
    made = stub(dataclasses.replace(toy.BANK, reference=Doubled))
    assert issubclass(made, torch.autograd.Function)
    with pytest.raises(NotImplementedError, match=f"^{toy.ID}$"):
        made.apply(torch.ones(1))


def test_garbage_has_the_form_of_the_right_output():
    x, numbers = torch.ones(2), [1.0, 2.0]
    made = dict(garbage(toy.BANK, 1))
    for name in ("zeros", "noise"):
        squares, total = made[name](x, numbers, lambda x: x * x)
        assert (squares.shape, squares.dtype, type(total)) == (x.shape, x.dtype, float)
    assert made["zeros"](x, numbers, lambda x: x * x)[1] == 0.0
    assert made["argument 1 returned"](x, numbers) is numbers
    assert made["argument 2 returned"](x, numbers) is None
    assert (x.tolist(), numbers) == ([1.0, 1.0], [1.0, 2.0])


def test_garbage_in_place_of_whole_numbers_is_other_whole_numbers():
    def bytes_of(shape: tuple[int, ...]) -> int:
        return 5_000_000

    made = dict(garbage(dataclasses.replace(toy.BANK, reference=bytes_of), 1))
    assert made["zeros"]((2,)) == 0
    assert type(made["noise"]((2,))) is int
    assert made["noise"]((2,)) < 1000


def test_garbage_never_does_the_work_of_an_answer_in_place():
    def fills(x: torch.Tensor) -> None:
        x.fill_(7)

    x = torch.zeros(1)
    for _, answer in garbage(dataclasses.replace(toy.BANK, reference=fills), 1):
        with contextlib.suppress(ValueError):
            answer(x)
    assert x.item() == 0


@pytest.mark.parametrize(("name", "value"), [("zeros", 0.0), ("input returned", 3.0)])
def test_garbage_for_a_class_is_a_class(name, value):
    made = dict(garbage(dataclasses.replace(toy.BANK, reference=Doubled), 1))
    x = torch.tensor([3.0], requires_grad=True)
    result = made[name].apply(x)
    result.sum().backward()
    assert (result.item(), x.grad.item()) == (value, 0.0 if name == "zeros" else 1.0)


def test_noise_for_a_class_is_not_its_input():
    made = dict(garbage(dataclasses.replace(toy.BANK, reference=Doubled), 1))
    assert made["noise"].apply(torch.tensor([3.0])).item() != 3.0


def test_the_public_seed_comes_first_and_the_others_are_fresh():
    drawn = seeds(3, torch.Generator().manual_seed(1))
    assert (drawn[0], len(set(drawn))) == (PUBLIC_SEED, 3)
    assert seeds(1, torch.Generator()) == [PUBLIC_SEED]


def test_a_right_answer_that_is_nearly_too_far_off_is_told():
    def off_by(roundings):
        def totals(x, numbers, square):
            squares, total = toy.running_mean(x, numbers, square)
            return squares, total * (1 + roundings * 2**-23)

        return prove(dataclasses.replace(toy.BANK, alternatives=(Alternative(name="off", answer=totals),)), [1])

    (told,) = off_by(6).near
    assert re.fullmatch("seed 1: alternative off, vector is off by 0[.][6-9][0-9] of what total allows", told)
    assert off_by(2).near == []


def test_a_long_proof_tells_what_it_has_found_before_it_ends(monkeypatch):
    def broken_off(*given, **more):
        yield dataclasses.replace(prove(toy.BANK, [1]), runs=14, misses=["one miss"])
        raise KeyboardInterrupt

    monkeypatch.setattr("autograder.prove.prove_all", broken_off)
    shown = CliRunner().invoke(app, ["prove"])
    assert (shown.exit_code, shown.stdout) == (130, "")
    assert shown.stderr.startswith(f"{toy.BANK.exercise.id}: 14 runs, 1 miss\n  one miss\n")


@pytest.mark.soak
def test_proofs_by_several_processes_come_in_the_order_of_the_names():
    names = ["quadratic_grads", "running_mean"]
    assert [proof.exercise for proof in prove_all(names, [1], root=ROOT, jobs=2)] == [
        banks.load(name).exercise.id for name in names
    ]
