"""course/performing/forms.py: a case in a hard form holds the same numbers, and is performed as it says."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import toy
from conftest import same_tree

from autograder.release.promises import NAME_IT, unkept
from autograder.sandbox.wire import messages
from course.errors import DeclarationError
from course.judging.judge import judge
from course.performing.exercise import EVERY_FORM, Case, call_once, observe
from course.performing.forms import (
    FINE,
    between_calls,
    cut,
    equal,
    in_dtype,
    laid_out,
    leaves,
    offset,
    put,
    strided,
    times,
    together,
    transposed,
)
from course.performing.perform import in_float64, perform, perform_all

X = torch.arange(6.0).reshape(2, 3)
CASE = Case(name="usual", inputs={"x": X, "params": [X, X[0], X[0, 0]], "options": {"lr": 0.1}})


def test_views_that_are_not_contiguous_hold_the_same_numbers_somewhere_in_a_wider_tensor():
    case = strided("x", "params").change(CASE)
    found = laid_out(case.inputs, case.lies)
    assert same_tree(found, CASE.inputs)
    assert not found["x"].is_contiguous()
    assert all(each.storage_offset() > 0 for each in [found["x"], *found["params"]])
    for tensor, shape in ((found["x"], (-1,)), (laid_out({"x": torch.zeros(2, 5, 3)}, {"x": "strided"})["x"], (-1, 3))):
        with pytest.raises(RuntimeError, match="view"):
            tensor.view(shape)


def test_a_copy_of_a_transposed_tensor_is_not_contiguous_either():
    case = transposed("x", "params").change(CASE)
    found = laid_out(case.inputs, case.lies)
    assert same_tree(found, CASE.inputs)
    assert (found["x"].clone().is_contiguous(), found["x"].storage_offset()) == (False, 0)


def test_a_piece_of_a_longer_tensor_is_contiguous_and_begins_later():
    case = offset("params").change(CASE)
    found = laid_out(case.inputs, case.lies)
    assert same_tree(found, CASE.inputs)
    assert {(each.is_contiguous(), each.storage_offset()) for each in found["params"]} == {(True, 1)}


def test_a_call_between_two_others_shows_what_is_kept():
    kept = []
    answer = lambda x, y: kept.append(x) or kept  # noqa: E731
    assert len(call_once(answer, CASE.inputs, 1.0, 2)) == 1
    assert call_once(answer, between_calls("x").change(CASE).inputs, 3.0, 2) == [1.0, 6.0, 3.0, 6.0]


def test_leaves_require_a_gradient_and_whole_numbers_cannot():
    whole = dataclasses.replace(CASE, inputs={"x": X, "indices": torch.tensor([1])})
    case = leaves("x", "indices").change(whole)
    found = laid_out(case.inputs, case.lies)
    assert [each.requires_grad for each in found.values()] == [True, False]


def test_a_view_may_require_a_gradient_too():
    case = leaves("x").change(strided("x").change(CASE))
    found = laid_out(case.inputs, case.lies)["x"]
    assert (found.requires_grad, found.is_leaf, found.is_contiguous()) == (True, True, False)


def test_numbers_in_float64_have_digits_that_float32_has_not():
    x = in_dtype(torch.float64, "x").change(CASE).inputs["x"]
    assert same_tree(x.float() == x, X == 0)


@pytest.mark.parametrize(
    ("form", "path", "expected"),
    [
        (in_dtype(torch.float16, "x"), "x", X.half()),
        (in_dtype(torch.float64, "x"), "x", X.double() * FINE),
        (cut("one row", x=(0, 1)), "x", X[:1]),
        (cut("no columns", x=(1, 0)), "x", X[:, :0]),
        (equal("equal rows", x=0), "x", X[[0, 0]]),
        (times("large", 8.0, "x"), "x", 8 * X),
        (put("a rate of 0", {"options/lr": 0.0}), "options", {"lr": 0.0}),
        (put("another x", x=1.0), "x", 1.0),
        (put("another list", params=[1.0, 2.0]), "params", [1.0, 2.0]),
    ],
)
def test_a_form_changes_what_it_names_and_nothing_else(form, path, expected):
    found = form.change(CASE).inputs
    assert same_tree(found[path], expected)
    assert all(same_tree(found[key], CASE.inputs[key]) for key in found if key != path)


def test_a_value_is_put_only_where_something_is():
    with pytest.raises(DeclarationError, match="puts a value under"):
        put("nowhere", {"x/deep": 1.0}).change(CASE)


def test_a_layout_that_nobody_knows_is_refused():
    with pytest.raises(DeclarationError, match="strided, transposed, offset, leaf, got upside-down"):
        laid_out(CASE.inputs, {"x": "upside-down"})


def test_a_form_survives_the_way_to_the_sandbox_and_into_float64():
    case = strided("x").change(CASE)
    (came,) = messages.to_cases(messages.from_cases([case]))
    assert came.lies == in_float64(case).lies == {"x": "strided"}


# --- exercises that have forms ------------------------------------------------------------------------


FORMED = dataclasses.replace(
    toy.EXERCISE, forms=(strided("x", of="matrix"), leaves("x", of="matrix"), cut("one number", x=(0, 1)))
)


def test_forms_bring_the_property_that_judges_them_and_no_other_speaks_of_them():
    *_, last = FORMED.properties
    assert (last.name, last.needs) == (EVERY_FORM, ("squares",))
    assert last.cases == ("views that are not contiguous", "tensors that require a gradient", "one number")
    assert [case.name for case in FORMED.draw(1)] == ["vector", "matrix", *last.cases]


def _views_only(x, numbers, square):
    return square(x.view(-1)).view(x.shape), sum(numbers)


@pytest.mark.parametrize(
    ("answer", "failed", "case"),
    [(toy.with_sum, [], ""), (_views_only, [EVERY_FORM], "views that are not contiguous")],
)
def test_an_answer_that_breaks_in_a_hard_form_loses_that_property_alone(answer, failed, case):
    cases = FORMED.draw(1)
    references = [perform(FORMED, toy.running_mean, in_float64(each)) for each in cases]
    verdict = judge(FORMED, cases, perform_all(FORMED, answer, cases), references)
    found = [each for each in verdict.findings if not each.held]
    assert [each.property for each in found] == failed
    assert [each.case for each in found] == [case] * len(failed)


def test_forms_come_together_by_chance_and_the_same_seed_draws_the_same():
    cases = together(FORMED, FORMED.draw(3), 3, 20)
    assert {case.name for case in cases} == {
        "views that are not contiguous, tensors that require a gradient",
        "tensors that require a gradient, views that are not contiguous",
    }
    assert all(case.lies == {"x": "strided leaf"} and case.hard for case in cases)
    assert together(toy.EXERCISE, toy.EXERCISE.draw(3), 3, 20) == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"forms": (strided("x"), strided("x"))}, "two hard forms have one name"),
        ({"forms": (strided("x"),), "split": lambda inputs: [inputs], "verbs": ("send",)}, "must not have hard forms"),
    ],
)
def test_a_contradiction_is_refused(fields, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        dataclasses.replace(toy.EXERCISE, **fields)


# --- promises -------------------------------------------------------------------------------------------

DOCSTRING = """Squares.

x         any floating dtype; it is not changed
Refused   with a ValueError: a negative x, an x of 0
Returns   the squares
Example   2 gives 4; nothing judges this.
"""
KEPT = {
    "any floating dtype": ("vector",),
    "it is not changed": ("arguments_unchanged",),
    "a negative x": ("squares",),
    "an x of 0": ("squares",),
    "the squares": ("squares",),
}


def _unkept(**changed):
    promises = {words: judges for words, judges in {**KEPT, **changed}.items() if judges is not None}
    return unkept(dataclasses.replace(toy.EXERCISE, promises=promises), DOCSTRING)


def test_a_docstring_whose_promises_are_all_judged_is_kept():
    assert _unkept() == []


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"it is not changed": None}, "nothing judges `changed` in: x ...; it is not changed" + NAME_IT),
        ({"the squares": None}, "nothing judges: Returns the squares" + NAME_IT),
        ({"an x of 0": None}, "nothing judges the refusal of `an x of 0`" + NAME_IT),
        ({"the cubes": ("squares",)}, "`the cubes` is declared as a promise and does not stand in the docstring"),
        ({"the squares": ("cubes",)}, "`the squares` must name cases or properties, got cubes"),
        ({"the squares": ()}, "`the squares` must name cases or properties, got none"),
    ],
)
def test_a_promise_that_nothing_judges_is_named(changed, sentence):
    assert _unkept(**changed) == [sentence]


def test_what_was_laid_out_is_what_the_probe_gets():
    shown = dataclasses.replace(FORMED, probe=lambda answer, inputs: observe({"view": answer(inputs["x"])}))
    *_, view, leaf, _ = shown.draw(1)
    assert perform(shown, torch.Tensor.is_contiguous, view).values["view"] is False
    assert perform(shown, lambda x: x.requires_grad, leaf).values["view"] is True
