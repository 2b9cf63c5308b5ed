"""course/performing/exercise.py and course/exercises: an exercise is declared once, and contradictions are refused."""

from __future__ import annotations

import dataclasses
import sys
import types

import pytest
import torch
import toy
from conftest import same_tree

from course import exercises
from course.cluster import run_ranks
from course.errors import CourseError, DeclarationError, UnknownExercise, WrongOutput
from course.exercises.computational_graphs import save_less
from course.exercises.fsdp import flat, unshard
from course.exercises.lora import adapter_state
from course.exercises.quantization import adam8_step
from course.performing.exercise import (
    Case,
    Observation,
    Property,
    arguments_unchanged,
    entries_of,
    observe,
    one_call,
    outputs,
    sent,
)
from course.tree import flatten

FIRST = Property(name="first", points=1, keys=("a",), hint="-")


def declare(*properties: Property, **fields):
    return dataclasses.replace(toy.EXERCISE, properties=properties, keeps=(), **fields)


# declaration


def test_names_points_and_minutes_come_from_one_place():
    exercise = toy.EXERCISE
    assert (exercise.unit, exercise.name, exercise.points) == ("start_here", "running_mean", 8)
    assert (exercise.entry.id, exercise.entry.minutes) == (toy.ID, 5)


@pytest.mark.parametrize(
    ("properties", "fields", "sentence"),
    [
        ([], {}, "at least one property"),
        ([FIRST], {"hints": ("a", "", "c")}, "three hints"),
        ([FIRST], {"hints": ("a", "b")}, "three hints"),
        ([FIRST, FIRST], {}, "`first` is declared twice"),
        ([dataclasses.replace(FIRST, points=0)], {}, "at least 1 point, got 0"),
        ([dataclasses.replace(FIRST, hint="")], {}, "must have a hint"),
        ([dataclasses.replace(FIRST, holds=lambda *a: None)], {}, "keys or holds, not both"),
        ([dataclasses.replace(FIRST, needs=("later",))], {}, "which must stand before it"),
        ([dataclasses.replace(FIRST, needs=("first",))], {}, "which must stand before it"),
        ([dataclasses.replace(FIRST, evidence="ledger")], {}, "is a cost and must need a value"),
        ([dataclasses.replace(FIRST, beside=("b",))], {}, "is a value and stands beside nothing"),
        ([FIRST, arguments_unchanged(needs=("first",))], {}, "must be named in `keeps`"),
        ([FIRST], {"id": "running_mean"}, "the id must be the syllabus's `start_here.running_mean`"),
    ],
)
def test_a_contradiction_is_refused_with_a_sentence(properties, fields, sentence):
    with pytest.raises(DeclarationError, match=sentence) as caught:
        declare(*properties, **fields)
    assert "\n" not in str(caught.value)


def test_inputs_that_must_stay_bring_the_property_that_says_so():
    exercise = dataclasses.replace(toy.EXERCISE, properties=(FIRST,), keeps=("x",))
    assert exercise.properties == (FIRST, arguments_unchanged(needs=("first",)))


def test_one_call_hands_the_inputs_over_in_order_and_names_what_comes_back():
    probe = one_call("a", "b", gives=("sum", "difference"))
    seen = probe(lambda a, b: (a + b, a - b), {"b": 2.0, "a": 5.0})
    assert seen.values == {"sum": 7.0, "difference": 3.0}
    assert one_call("b", gives=("same",))(lambda b: b, {"b": 2.0, "a": 5.0}).values == {"same": 2.0}


def test_one_call_refuses_another_number_of_values():
    with pytest.raises(WrongOutput, match=r"must return 2 values \(sum, difference\), got None"):
        one_call("a", gives=("sum", "difference"))(lambda a: None, {"a": 1.0})


class Anywhere(torch.Tensor):
    """Says of its memory what it likes."""

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: 1, nbytes=lambda: 0)


def test_tensors_of_a_class_of_somebodys_own_are_refused_where_their_memory_is_looked_at():
    lying, (case, *_) = torch.zeros(2).as_subclass(Anywhere), exercises.load("adapter_state").draw(0)
    with pytest.raises(WrongOutput, match="must return one tensor, got Anywhere"):
        flat.one_tensor(lying)
    with pytest.raises(WrongOutput, match="must return a list of tensors, got one with Anywhere in it"):
        unshard._checked([torch.zeros(2), lying])
    with pytest.raises(WrongOutput, match="must return a dict of tensors, got dict with Anywhere in it"):
        adapter_state.probe(lambda model: {"A": lying}, case.inputs)


def test_of_containers_of_a_class_of_somebodys_own_what_they_hold_is_looked_at():
    kinds = {
        kind: type("Silent", (kind,), dict.fromkeys(("__iter__", "items", "values"))) for kind in (list, tuple, dict)
    }
    assert entries_of(kinds[list]([1, 2])) == entries_of(kinds[tuple]([1, 2])) == [1, 2]
    assert entries_of(kinds[dict]({"a": 1})) == [("a", 1)]
    shard, shapes = torch.ones(4), [(2,), (2,)]
    seen = run_ranks(
        lambda comm: unshard.probe(
            lambda *given: kinds[list]([torch.ones(2), torch.ones(2)]),
            comm,
            {"shard": shard, "shapes": shapes, "lies": "", "again": False},
        ),
        1,
    ).values[0]
    assert (seen.values["storages"], seen.values["held"], seen.values["in_a"]) == (2, 4, "list")


class Shows(torch.autograd.Function):
    """Its apply says that it is torch's."""

    @staticmethod
    def forward(ctx, x):
        return -x

    @staticmethod
    def backward(ctx, dy):
        return -dy


class _Apply:
    def __init__(self):
        self.__func__ = save_less.APPLY

    def __call__(self, x):
        return x * torch.sigmoid(x)


Shows.apply = _Apply()


def test_a_function_is_called_by_torchs_own_apply_whatever_it_shows():
    (case,) = [each for each in exercises.load("SaveLess").draw(0) if each.name == "value"]
    seen = save_less.probe(Shows, dict(case.inputs), None)
    assert torch.equal(seen.values["y"], -case.inputs["x"])


def test_where_adamw_ends_is_said_by_the_reference_alone():
    (case,) = [each for each in exercises.load("adam8_step").draw(0) if each.name == adam8_step.LONG]
    param, right = case.inputs["param"], {"param": case.inputs["param"] + 1, "adamw": case.inputs["param"] + 1.0}
    assert adam8_step._close(case.inputs, right, right) is None
    assert adam8_step._close(case.inputs, {"param": param, "adamw": param}, right) is not None


def test_an_id_that_the_syllabus_does_not_hold_is_refused():
    with pytest.raises(UnknownExercise, match="did you mean `backward`"):
        declare(FIRST, id="computational_graphs.backwards")


def test_an_exercise_that_nobody_has_written_is_told_with_its_file(monkeypatch):
    entry = dataclasses.replace(toy.EXERCISE.entry, name="Unwritten")
    monkeypatch.setattr(exercises, "find_entry", lambda name: entry)
    with pytest.raises(DeclarationError, match=r"must be declared in course/exercises/start_here/unwritten.py"):
        exercises.load("Unwritten")


def test_an_exercise_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        toy.EXERCISE.seconds = 1


# cases


def test_the_same_seed_draws_the_same_cases():
    one, two, other = (toy.EXERCISE.draw(seed) for seed in (1, 1, 2))
    assert same_tree([case.inputs for case in one], [case.inputs for case in two])
    assert not same_tree([case.inputs for case in one], [case.inputs for case in other])


def test_drawing_cases_does_not_touch_the_global_random_state():
    before = torch.get_rng_state()
    toy.EXERCISE.draw(1)
    assert torch.equal(before, torch.get_rng_state())


def test_a_case_hides_nothing_unless_it_says_so():
    assert [case.hidden for case in toy.EXERCISE.draw(1)] == [{}, {}]
    assert (toy.EXERCISE.oracle, toy.EXERCISE.measured) == (None, ())


# observing


def test_an_observation_holds_values_costs_and_where_costs_were_counted():
    seen = observe({"a": [1.0, 2.0], "b": {"c": "text"}}, {"calls": 3}, "tick")
    assert same_tree(seen.values, {"a": torch.tensor([1.0, 2.0], dtype=torch.float64), "b/c": "text"})
    assert (seen.ledger, seen.sources, seen.error) == ({"calls": 3}, {"calls": "tick"}, None)


def test_costs_are_claims_unless_said_otherwise():
    assert observe({}, {"calls": 3}).sources == {"calls": "claimed"}
    assert observe({}) == Observation()


def test_a_live_tensor_is_observed_as_it_was():
    x = torch.zeros(2, requires_grad=True)
    seen = observe({"x": x})
    with torch.no_grad():
        x.add_(1)
    assert seen.values["x"].sum() == 0


@pytest.mark.parametrize("result", [(1, 2), [1, 2]])
def test_the_parts_of_a_result_get_names(result):
    assert outputs(result, "a", "b") == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("result", "came"),
    [
        (None, "None: is there a `return`?"),
        (torch.ones(2), "one Tensor"),
        ("ab", "one str"),
        ((1,), "1 values"),
        ((1, 2, 3), "3 values"),
    ],
)
def test_another_number_of_parts_is_told(result, came):
    with pytest.raises(WrongOutput) as caught:
        outputs(result, "loss", "grad")
    assert str(caught.value) == f"must return 2 values (loss, grad), got {came}"


# finding exercises


@pytest.mark.parametrize("name", ["backward", "computational_graphs.backward"])
def test_an_exercise_is_found_by_name_and_by_id(name):
    assert exercises.load(name).id == "computational_graphs.backward"


def test_a_class_lies_in_a_module_in_snake_case():
    assert exercises.module_name("SaveLess") == "save_less"
    assert exercises.module_name("linear_vjp") == "linear_vjp"


@pytest.mark.parametrize("declared", [None, 3, toy.EXERCISE])
def test_a_module_that_declares_another_exercise_is_refused(monkeypatch, declared):
    module = types.ModuleType("course.exercises.computational_graphs.hvp")
    module.EXERCISE = declared
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(DeclarationError, match=r"hvp must declare EXERCISE with the id computational_graphs\.hvp"):
        exercises.load("hvp")


def test_every_error_of_the_course_is_one_sentence_in_a_notebook():
    error = UnknownExercise("no such exercise; the exercises are: a.")
    assert isinstance(error, CourseError)
    assert error._render_traceback_() == ["UnknownExercise: no such exercise; the exercises are: a."]


def test_a_list_that_is_kept_has_the_keys_of_the_property():
    kept = flatten({"x": torch.ones(1), "numbers": [1.0], "rows": [[1], ["a"]]}, "after")
    assert all(key.startswith("after/") for key in kept)


def test_what_is_withheld_is_sent_to_nobody_at_any_depth():
    exercise = dataclasses.replace(toy.EXERCISE, withheld=("best",))
    asked = Case(name="asked", inputs={"x": 1, "best": 2, "rows": [{"best": 3, "w": 4}, [5]]})
    assert sent(exercise, asked).inputs == {"x": 1, "rows": [{"w": 4}, [5]]}
    assert sent(toy.EXERCISE, asked) is asked
