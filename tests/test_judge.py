"""course/judging/judge.py: any observation gives a verdict; right ones give full marks; mistakes are named."""

from __future__ import annotations

import dataclasses
import functools
import math

import pytest
import torch
import toy
from conftest import same_tree
from hypothesis import given
from hypothesis import strategies as st

from autograder import recording
from course.errors import CourseError
from course.judging.diagnosis import BLOWN_UP, could_explain, diagnose, looks_right, shows_a_slip
from course.judging.judge import _is_named, judge
from course.judging.verdict import Suspect, Verdict, Witness
from course.performing.exercise import EVERY_FORM, Case, Exercise, Failure, Observation, Property
from course.performing.perform import perform_all
from course.performing.refusals import all_refused, refused
from course.tree import clone

RECORD = toy.record()
NAMES = [each.name for each in toy.EXERCISE.properties]
BROKE = Failure(type="ValueError", message="wrong")


def verdict(answer, suspects=RECORD.suspects, **options) -> Verdict:
    """The verdict on an answer to the toy."""
    seen = perform_all(toy.EXERCISE, answer, RECORD.cases)
    return judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references, suspects, **options)


def failed(found: Verdict) -> list[str]:
    return [each.property for each in found.findings if not each.held]


def finding(found: Verdict, name: str):
    return next(each for each in found.findings if each.property == name)


def one(*properties: Property, got: Observation, expected: Observation, suspects=(), x=None) -> Verdict:
    """The verdict on one observation of one case."""
    exercise = dataclasses.replace(toy.EXERCISE, properties=properties, keeps=())
    case = Case(name="only", inputs={"x": torch.ones(2) if x is None else x})
    return judge(exercise, [case], [got], [expected], suspects)


def values(**named) -> Observation:
    return Observation(values=named)


# right answers


@given(st.integers(0, 2**40))
def test_the_references_own_observation_gets_full_marks(seed):
    cases = toy.EXERCISE.draw(seed)
    seen = recording.references(toy.BANK, cases)
    found = judge(toy.EXERCISE, cases, seen, seen, RECORD.suspects)
    assert found.points == found.possible == 8
    assert found.attempted
    assert found.diagnosis is None


@pytest.mark.parametrize("right", [toy.running_mean, toy.with_sum, toy.from_a_copy])
def test_right_answers_get_full_marks_in_the_dtype_of_the_case(right):
    found = verdict(right)
    assert (found.points, found.diagnosis, found.failure) == (8, None, None)


def test_points_add_up_over_properties():
    found = verdict(toy.last_number_dropped)
    assert [(each.points, each.possible) for each in found.findings] == [(3, 3), (0, 2), (2, 2), (0, 1)]
    assert (found.points, found.possible) == (5, 8)


# any observation

ODD_TENSORS = st.sampled_from(
    [
        torch.ones(3, requires_grad=True),
        torch.ones(3, device="meta"),
        torch.eye(3).to_sparse(),
        torch.empty(3, dtype=torch.bits8),
        torch.tensor([1j, math.nan, 0]),
        torch.ones(3).to(torch.float8_e4m3fn),
        torch.ones(3, dtype=torch.bool),
        torch.full((3,), 3e38),
        torch.full((2, 3), 1.7e308, dtype=torch.float64),
        torch.ones(0),
        torch.zeros(1).expand(10**6),
    ]
)
SHAPES = st.sampled_from([(), (1,), (3,), (4,), (2, 3), (0,)])
FILLED = st.tuples(SHAPES, st.floats(), st.sampled_from([torch.float16, torch.float32, torch.float64])).map(
    lambda row: torch.full(row[0], row[1], dtype=torch.float64).to(row[2])
)
ODD_LEAVES = st.sampled_from([10**5000, [1, 2], {}, object(), 1j])
SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
LEAVES = SIMPLE | FILLED | ODD_TENSORS | ODD_LEAVES
KEYS = st.sampled_from(["squares", "total", "calls", "after/x", "after/numbers", "squares/0", "*", "", "extra"])
SOURCES = st.sampled_from(["claimed", "tick", "broker", "kernel", "forged", "", None, 3, [], {}, torch.ones(2)])
FAILURES = st.builds(
    Failure, type=st.text(max_size=3) | st.just("NotImplementedError"), message=st.just(toy.ID) | st.text(max_size=3)
)
OBSERVATIONS = st.builds(
    Observation,
    values=st.dictionaries(KEYS, LEAVES, max_size=6),
    ledger=st.dictionaries(KEYS, LEAVES, max_size=3),
    sources=st.dictionaries(KEYS, SOURCES, max_size=3),
    error=st.none() | FAILURES,
    printed=st.text(max_size=3),
)
ROWS = st.lists(OBSERVATIONS | st.sampled_from(RECORD.references), max_size=4)


@pytest.mark.filterwarnings("ignore:Sparse")
@given(ROWS)
def test_any_observations_give_a_verdict_within_bounds(seen):
    found = judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references, RECORD.suspects)
    assert 0 <= found.points <= found.possible == 8
    assert [each.property for each in found.findings] == NAMES
    assert found.points == sum(each.points for each in found.findings)
    assert all(each.points == (each.possible if each.held else 0) for each in found.findings)
    assert repr(found)


@given(ROWS, OBSERVATIONS)
def test_odd_witnesses_do_not_break_the_judge_either(seen, odd):
    witness = Witness(observations=(odd, odd), free=(frozenset(),) * 2, sensitivity=({"squares": math.nan}, {}))
    judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references, [Suspect(name="odd", hint="", witnesses=(witness,))])


@given(st.sampled_from(["squares", "total", "after/x"]), LEAVES)
def test_one_odd_value_among_right_ones_costs_at_least_its_property(key, leaf):
    seen = [dataclasses.replace(each, values={**each.values, key: leaf}) for each in RECORD.references]
    found = judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references)
    assert found.points < found.possible or all(same_tree(leaf, each.values[key]) for each in RECORD.references)


@given(st.sampled_from(["values", "ledger", "sources"]), st.data())
def test_a_missing_part_is_a_failed_property(part, data):
    whole = RECORD.references[0]
    key = data.draw(st.sampled_from(sorted(getattr(whole, part))))
    seen = [dataclasses.replace(each, **{part: _without(getattr(each, part), key)}) for each in RECORD.references]
    assert judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references).points < 8


def _without(named: dict, key: str) -> dict:
    return {name: value for name, value in named.items() if name != key}


def test_values_that_nobody_asked_for_cost_nothing():
    seen = [dataclasses.replace(each, values={**each.values, "more": 1}) for each in RECORD.references]
    assert judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references).points == 8


def test_a_property_never_goes_through_a_tensor_much_larger_than_what_was_asked_for():
    seen = []
    looks = Property("looks", "Look.", holds=lambda inputs, got, expected: seen.append(got["x"]))
    for count in (40_000, 20_000):
        one(looks, got=values(x=torch.zeros(count)), expected=values(x=torch.zeros(2_600)))
    assert seen[0] == "<tensor of shape (40000,): larger than any asked for>"
    assert seen[1].shape == (20_000,)


@pytest.mark.parametrize("shape", [(40_000, 0), (1,) * 9])
def test_nor_through_one_whose_list_would_be_large(shape):
    seen = []
    looks = Property("looks", "Look.", holds=lambda inputs, got, expected: seen.append(got["x"]))
    one(looks, got=values(x=torch.empty(shape)), expected=values(x=torch.zeros(2_600)))
    assert seen[0].endswith("larger than any asked for>")


def test_nor_does_it_for_a_cost():
    seen = []
    looks = Property(
        "looks", "Look.", evidence="ledger", needs=("a",), holds=lambda inputs, got, expected: seen.append(got["x"])
    )
    counted = [
        Observation(values={"a": 1}, ledger={"x": torch.zeros(count)}, sources={"x": "tick"}) for count in (40_000, 1)
    ]
    one(Property("a", "A.", keys=("a",)), looks, got=counted[0], expected=counted[1])
    assert seen == ["<tensor of shape (40000,): larger than any asked for>"]


def test_missing_observations_count_as_empty():
    found = judge(toy.EXERCISE, RECORD.cases, RECORD.references[:1], RECORD.references)
    assert failed(found) == ["squares", "one_call", "arguments_unchanged"]
    assert judge(toy.EXERCISE, RECORD.cases, [], RECORD.references).points == 0


def test_further_observations_are_ignored():
    seen = [*RECORD.references, Observation(error=BROKE)]
    assert judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references).points == 8


@pytest.mark.parametrize("references", [RECORD.references[:0], RECORD.references[:1], RECORD.references * 2])
def test_a_case_without_its_reference_is_an_error_and_never_left_out(references):
    with pytest.raises(CourseError, match=rf"each of the 2 cases .* must have its reference, got {len(references)}"):
        judge(toy.EXERCISE, RECORD.cases, RECORD.references, references)


def test_the_judge_changes_nothing_and_repeats_itself():
    seen = perform_all(toy.EXERCISE, toy.cubes, RECORD.cases)
    before = [clone(dict(each.values)) for each in seen]
    twice = [judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references, RECORD.suspects) for _ in range(2)]
    assert twice[0] == twice[1]
    assert same_tree([each.values for each in seen], before)


# what a finding says


def test_a_finding_tells_the_worst_value_of_all_cases():
    seen = [clone(dict(each.values)) for each in RECORD.references]
    seen[0]["squares"][1] += 1e-3
    seen[1]["squares"][1, 2] += 2.0
    found = judge(toy.EXERCISE, RECORD.cases, [Observation(values=each) for each in seen], RECORD.references)
    told = finding(found, "squares")
    assert (told.case, told.where, told.held) == ("matrix", "squares[1, 2]", False)
    assert told.error == pytest.approx(2.0)
    assert told.tolerance == pytest.approx(32 * 2**-23 * float(seen[1]["squares"].max()))


def test_a_failure_outranks_a_larger_error_that_is_allowed():
    wide, sharp = (Property(name=name, points=1, keys=(f"{name}*",), hint="-") for name in ("a", "b"))
    expected = values(a1=torch.tensor([1e6, 0.0]), a2=torch.tensor(1.0), b=1.0)
    got = values(a1=torch.tensor([1e6 + 1, 0.0]), a2=torch.tensor(1.1), b=1.0)
    assert one(wide, sharp, got=got, expected=expected).findings[0].where == "a2"


def test_a_value_that_is_missing_because_of_an_exception_says_so():
    told = verdict(lambda *args: 1 / 0).findings[0]
    assert (told.got, told.expected) == ("ZeroDivisionError", "a value for squares")


def test_a_value_that_is_missing_without_one_says_so():
    only = Property(name="p", points=1, keys=("a",), hint="-")
    assert one(only, got=values(), expected=values(a=1)).findings[0].got == "nothing"


def test_a_property_whose_pattern_matches_nothing_does_not_hold():
    only = Property(name="p", points=1, keys=("b", "c/*"), hint="-")
    told = one(only, got=values(a=1), expected=values(a=1)).findings[0]
    assert (told.held, told.expected) == (False, "a value named b or c/*")


def test_patterns_speak_of_every_value_they_match():
    only = Property(name="p", points=1, keys=("g/*",), hint="-")
    expected = {"g/a": 1.0, "g/b/0": 2.0, "other": 3.0}
    got = Observation(values={**expected, "other": 9.0})
    assert one(only, got=got, expected=Observation(values=expected)).points == 1
    got = Observation(values={**expected, "g/b/0": 9.0})
    assert one(only, got=got, expected=Observation(values=expected)).points == 0


def test_a_pattern_speaks_of_what_nobody_expects_there_too():
    only = Property(name="p", points=1, keys=("g/*",), hint="-")
    expected = {"g/0": torch.ones(2), "other": 3.0}
    got = Observation(values={**expected, "g/1": 2.0})
    told = one(only, got=got, expected=Observation(values=expected)).findings[0]
    assert (told.held, told.got, told.expected) == (False, "a value", "nothing at g/1")


def test_a_finding_and_the_judge_keep_little_of_what_a_student_names():
    long = "g/" + "x" * 9_000
    only = (Property(name="p", points=1, keys=("g/*",), hint="-"), Property("q", "-", holds=lambda *_: long))
    got = Observation(values={"g/0": 1.0, long: 2.0})
    before = _is_named.cache_info()
    for each in only:
        told = one(each, got=got, expected=Observation(values={"g/0": 1.0})).findings[0]
        assert not told.held
        assert len(told.got) + len(told.expected) < 2_200
    assert _is_named.cache_info().currsize - before.currsize <= 1


def test_without_keys_a_property_speaks_of_all_values_but_arguments_and_refusals():
    expected = {"g/a": 1.0, "other": 3.0, "after/x": 1.0, "refused/nothing": "ValueError"}
    spoilt = Observation(values={**expected, "after/x": 9.0, "refused/nothing": "nothing"})
    assert one(Property("p", "-"), got=spoilt, expected=Observation(values=expected)).points == 1
    wrong = Observation(values={**expected, "other": 9.0})
    assert one(Property("p", "-"), got=wrong, expected=Observation(values=expected)).points == 0


def test_a_property_speaks_of_its_own_cases_only():
    seen = list(RECORD.references)
    seen[1] = dataclasses.replace(seen[1], values={**seen[1].values, "total": -1.0})
    assert "total" not in failed(judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references))


# predicates


def stated(holds) -> Property:
    return Property(name="is_sorted", points=1, holds=holds, hint="-")


def test_a_predicate_holds_where_it_has_nothing_to_say():
    told = one(stated(lambda inputs, got, expected: None), got=values(a=1), expected=values()).findings[0]
    assert (told.held, told.got, told.error) == (True, "as stated", None)


def test_a_predicate_sees_inputs_observation_and_reference():
    def holds(inputs, got, expected):
        return f"{inputs['x'].tolist()} {got['a']} {expected['a']}"

    told = one(stated(holds), got=values(a=1), expected=values(a=2)).findings[0]
    assert (told.held, told.got, told.expected) == (False, "[1.0, 1.0] 1 2", "is sorted")


def test_a_coarser_dtype_is_asked_about_in_the_finding():
    got, expected = values(a=torch.tensor([1 / 3]).double()), values(a=torch.tensor([1 / 3], dtype=torch.float64))
    told = one(Property("a", "Hint.", keys=("a",), roundings=4), got=got, expected=expected, x=torch.ones(1).double())
    assert told.findings[0].remark == "agrees to about 8 digits only: was it computed in float32?"


def test_what_could_not_be_refused_because_the_case_broke_says_so():
    told = one(stated(all_refused), got=Observation(error=BROKE), expected=values(**{"refused/a rate": "ValueError"}))
    assert told.findings[0].got == "the case broke first, with ValueError: wrong"
    told = one(
        stated(all_refused), got=values(**{"refused/a": "nothing"}), expected=values(**{"refused/a": "ValueError"})
    )
    assert told.findings[0].got == "a: nothing was raised"


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_predicate_must_hold_in_every_case(bad):
    only = stated(lambda inputs, got, expected: "too large" if got["a"] == bad else None)
    exercise = dataclasses.replace(toy.EXERCISE, properties=(only,), keeps=())
    cases = [Case(name=f"n{n}", inputs={}) for n in range(3)]
    seen = [values(a=n) for n in range(3)]
    told = judge(exercise, cases, seen, seen).findings[0]
    assert (told.held, told.case, told.got) == (False, f"n{bad}", "too large")


@pytest.mark.parametrize(
    ("error", "words"),
    [(None, "a value that cannot be read"), (BROKE, "the case broke first, with ValueError: wrong")],
    ids=["value", "failure"],
)
def test_a_predicate_that_cannot_read_the_observation_does_not_hold(error, words):
    got = Observation(error=error)
    told = one(stated(lambda inputs, got, expected: got["a"]), got=got, expected=values(a=1)).findings[0]
    assert (told.held, told.got) == (False, words)


# needs and sources


def test_a_cost_earns_nothing_where_the_value_is_wrong():
    found = verdict(toy.cubes)
    told = finding(found, "one_call")
    assert (told.held, told.points, told.blocked_by) == (False, 0, "squares")


def test_needs_reach_through_each_other():
    a = Property(name="a", points=1, keys=("a",), hint="-")
    b = Property(name="b", points=1, keys=("b",), needs=("a",), hint="-")
    c = Property(name="c", points=1, keys=("c",), needs=("b",), hint="-")
    found = one(a, b, c, got=values(a=0, b=1, c=1), expected=values(a=1, b=1, c=1))
    assert [each.blocked_by for each in found.findings] == ["", "a", "b"]
    assert found.points == 0


def test_properties_that_ask_for_one_value_each_have_their_own_roundings():
    rows = {"exact": 1, "usual": 32, "again": 32}
    asks = [Property(name=name, points=1, keys=("a",), roundings=count, hint="-") for name, count in rows.items()]
    assert failed(one(*asks, got=values(a=1 + 2**-21), expected=values(a=1.0))) == ["exact"]


@pytest.mark.parametrize(("source", "points"), [("claimed", 6), ("tick", 8), ("broker", 8), ("forged", 6), ([], 6)])
def test_what_is_claimed_earns_nothing_where_claims_do_not_count(source, points):
    seen = [dataclasses.replace(each, sources={"calls": source}) for each in RECORD.references]
    trusted = frozenset({"tick", "broker", "kernel"})
    found = judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references, sources=trusted)
    assert found.points == points


def test_a_notebook_counts_every_source_but_no_unknown_one():
    seen = [dataclasses.replace(each, sources={"calls": "forged"}) for each in RECORD.references]
    assert judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references).points == 6
    assert verdict(toy.running_mean).points == 8


def test_a_value_does_not_count_as_a_cost():
    moved = [dataclasses.replace(each, values={**each.values, **each.ledger}, ledger={}) for each in RECORD.references]
    assert failed(judge(toy.EXERCISE, RECORD.cases, moved, RECORD.references)) == ["one_call"]


BESIDE = Property(
    name="cheap", points=1, evidence="ledger", needs=("value",), beside=("b",), holds=lambda *_: None, hint="-"
)


@pytest.mark.parametrize(("b", "points"), [(1.0, 2), (7.0, 1), (None, 1)])
def test_a_cost_earns_nothing_where_the_values_beside_it_are_wrong(b, points):
    value = Property(name="value", points=1, keys=("a",), hint="-")
    got = values(a=1.0) if b is None else values(a=1.0, b=b)
    found = one(value, BESIDE, got=got, expected=values(a=1.0, b=1.0))
    assert found.points == points
    assert found.findings[1].where == ("b" if b == 7.0 else "")


def test_values_beside_a_cost_are_no_costs_themselves():
    value = Property(name="value", points=1, keys=("a",), hint="-")
    calls = dataclasses.replace(BESIDE, keys=("calls",), holds=None)
    both = values(a=1.0, b=1.0, calls=3)
    counted = dataclasses.replace(both, ledger={"calls": 3}, sources={"calls": "claimed"})
    assert one(value, calls, got=counted, expected=counted).points == 2
    assert one(value, calls, got=both, expected=counted).points == 1


# not attempted


def test_a_stub_is_not_attempted():
    found = verdict(toy.stub)
    assert (found.attempted, found.points, found.possible) == (False, 0, 8)
    assert (found.failure, found.diagnosis) == (None, None)
    assert failed(found) == NAMES
    assert [(each.points, each.possible) for each in found.findings] == [(0, 3), (0, 2), (0, 2), (0, 1)]


def _raises_not_implemented(message: str):
    def answer(*args):
        raise NotImplementedError(message)

    return answer


def test_a_bare_not_implemented_error_is_not_attempted():
    assert not verdict(_raises_not_implemented("")).attempted


def test_another_exercises_stub_is_an_attempt():
    found = verdict(_raises_not_implemented("computational_graphs.backward"))
    assert found.attempted
    assert found.failure.message == "computational_graphs.backward"


def test_an_answer_that_is_written_for_one_case_is_an_attempt():
    def answer(x, numbers, square):
        return toy.running_mean(x, numbers, square) if x.dim() == 1 else toy.stub(x, numbers, square)

    found = verdict(answer)
    assert found.attempted
    assert (found.points, found.failure_case) == (2, "matrix")


def test_nothing_performed_is_no_stub():
    assert judge(toy.EXERCISE, [], [], []).attempted


# failures


def test_the_first_failure_is_told_with_its_case():
    found = verdict(lambda x, numbers, square: (x, 1 / (2 - x.dim())))
    assert (found.failure.type, found.failure_case) == ("ZeroDivisionError", "matrix")


def test_a_failure_that_the_reference_shows_too_is_none():
    only = Property(name="p", points=1, keys=("a",), hint="-")
    got = Observation(values={"a": 1}, error=BROKE)
    assert one(only, got=got, expected=got).failure is None
    assert one(only, got=got, expected=values(a=1)).failure == BROKE


def test_what_was_printed_first_is_told():
    seen = [dataclasses.replace(RECORD.references[0], printed=text) for text in ("", "second")]
    assert judge(toy.EXERCISE, RECORD.cases, seen, RECORD.references).printed == "second"


# diagnosis


@pytest.mark.parametrize("wrong", toy.BANK.misconceptions, ids=lambda each: each.name)
def test_every_misconception_is_told_by_name_with_its_cure(wrong):
    found = verdict(wrong.witnesses[0])
    assert (found.diagnosis.name, found.diagnosis.hint) == (wrong.name, wrong.hint)
    assert found.points < found.possible


def test_another_wrong_answer_has_no_diagnosis():
    found = verdict(lambda x, numbers, square: (square(x) + 1, sum(numbers)))
    assert (found.points, found.diagnosis) == (2, None)


def test_two_mistakes_that_leave_nothing_right_have_no_diagnosis():
    found = verdict(lambda x, numbers, square: (square(x) * x, sum(numbers[:-1])))
    assert (found.points, found.diagnosis) == (0, None)


REST = Property(name="rest", keys=("c*",), hint="-")


@pytest.mark.parametrize(("right", "more", "told"), [(1, 0, True), (0, 0, False), (3, 1, False)])
def test_beside_another_slip_a_mistake_is_told_where_it_explains_as_much_as_it_leaves(right, more, told):
    """`a` is the mistake that is known, `b` another one, with `more` like it; `right` values are right."""
    others = {f"b{number}": 7.0 for number in range(1 + more)}
    alright = {f"c{number}": 2.0 for number in range(right)}
    expected = values(a=2.0, **dict.fromkeys(others, 2.0), **alright)
    known = suspect(values(a=0.25, **dict.fromkeys(others, 2.0), **alright))
    found = one(VALUE, REST, got=values(a=0.25, **others, **alright), expected=expected, suspects=(known,))
    assert (found.diagnosis is not None) == told


def test_a_mistake_of_which_a_part_is_not_seen_is_not_told():
    found = verdict(lambda x, numbers, square: (square(x) * (x if x.dim() == 1 else 1.5), sum(numbers)))
    assert found.diagnosis is None


@pytest.mark.parametrize(
    ("shown", "told"), [(0.25, True), (1.0, False), (math.nan, False), (BLOWN_UP, False), ("a text", False)]
)
def test_beside_another_slip_only_a_number_that_nothing_else_gives_is_evidence(shown, told):
    got, right = values(a=shown, b=7.0, c=2.0), values(a=2.0, b=2.0, c=2.0)
    found = one(VALUE, REST, got=got, expected=right, suspects=(suspect(values(a=shown, b=2.0, c=2.0)),))
    assert (found.diagnosis is not None) == told


def test_beside_another_slip_a_witness_of_other_cases_matches_nothing():
    got, right = values(a=0.25, b=7.0, c=2.0), values(a=2.0, b=2.0, c=2.0)
    other = suspect(*[values(a=0.25, b=2.0, c=2.0)] * 2)
    assert one(VALUE, REST, got=got, expected=right, suspects=(other,)).diagnosis is None


@pytest.mark.parametrize(("hard", "told"), [(True, True), (False, False)])
def test_a_slip_of_usual_cases_may_break_otherwise_in_a_hard_form(hard, told):
    cases = [Case(name="usual", inputs={}), Case(name="half", inputs={}, hard=hard)]
    seen = [values(a=0.25, c=2.0), Observation(error=Failure(type="RuntimeError", message="half"))]
    found = judge(
        dataclasses.replace(toy.EXERCISE, properties=(VALUE, dataclasses.replace(REST, cases=("usual",))), keeps=()),
        cases,
        seen,
        [values(a=2.0, c=2.0)] * 2,
        (suspect(values(a=0.25, c=2.0), values(a=0.5, c=2.0)),),
    )
    assert (found.diagnosis is not None) == told


@pytest.mark.parametrize(
    ("also", "error", "told"),
    [
        ((), None, True),
        ((), BROKE, True),
        ((EVERY_FORM,), None, True),
        ((EVERY_FORM,), BROKE, False),
        (("other",), None, False),
    ],
)
def test_a_pattern_may_show_in_hard_forms_too_unless_something_broke(also, error, told):
    pattern = Suspect(name="it", hint="Cure.", fails=frozenset({"first"}))
    runs = [(Observation(error=error), torch.float32)]
    assert (diagnose(runs, frozenset({"first", *also}), [pattern]) is not None) == told


def test_a_slip_is_recognised_also_where_nothing_is_refused_yet():
    run = (Observation(values={"a": 1.0, "refused/a negative rate": "nothing"}), torch.float32)
    shown = Observation(values={"a": 1.0, "refused/a negative rate": "ValueError"})
    witness = Witness(observations=(shown,), free=(frozenset(),), sensitivity=({},))
    assert could_explain(run, witness)
    assert not could_explain((Observation(values={"a": 2.0}), torch.float32), witness)


def test_suspects_are_computed_only_where_something_failed():
    asked: list[int] = []

    def suspects():
        asked.append(1)
        return RECORD.suspects

    verdict(toy.running_mean, suspects)
    verdict(toy.stub, suspects)
    assert asked == []
    assert verdict(toy.cubes, suspects).diagnosis.name == "cubes"
    assert asked == [1]


VALUE = Property(name="value", points=1, keys=("a",), hint="-")


def suspect(*observations: Observation, free=(), sensitivity=None, **fields) -> Suspect:
    witness = Witness(
        observations=observations,
        free=tuple(frozenset(free) for _ in observations),
        sensitivity=tuple(sensitivity or {} for _ in observations),
    )
    return Suspect(name="it", hint="Cure.", witnesses=(witness,), **fields)


def is_told(got: Observation, *suspects: Suspect, x=None) -> bool:
    """Whether `got` is diagnosed, where the right value is 1,000."""
    return one(VALUE, got=got, expected=values(a=1000.0), suspects=suspects, x=x).diagnosis is not None


def test_a_value_a_little_off_the_witness_is_still_the_witness():
    assert is_told(values(a=2.0 + 1e-6), suspect(values(a=2.0)))
    assert not is_told(values(a=2.0 + 1e-4), suspect(values(a=2.0)))


def test_a_complex_value_is_no_witness_of_real_ones():
    real, complex_ = (torch.full((2,), 2.0, dtype=dtype) for dtype in (torch.float64, torch.complex128))
    assert is_told(values(a=real), suspect(values(a=real)))
    assert not is_told(values(a=complex_), suspect(values(a=real)))


def test_ranks_measured_outside_are_larger_and_show_of_a_witness_only_what_is_right_at_every_size():
    peaks = torch.tensor([8, 8])
    larger = Observation(values={"a": 3.0}, ledger={"peak_bytes": peaks}, sources={"peak_bytes": "kernel"})
    assert is_told(larger, suspect(values(a=2.0)))
    assert not is_told(larger, suspect(Observation(values={"a": 2.0}, error=BROKE)))
    (witness,) = suspect(values(a=2.0)).witnesses
    assert not shows_a_slip((larger, torch.float32), witness, values(a=1000.0))


def test_any_of_several_witnesses_is_enough():
    row = dataclasses.replace(suspect(values(a=2.0)), witnesses=())
    both = dataclasses.replace(row, witnesses=suspect(values(a=2.0)).witnesses + suspect(values(a=3.0)).witnesses)
    assert is_told(values(a=3.0), both)
    assert not is_told(values(a=3.0), row)


def test_one_case_may_leave_a_misconception_possible_or_rule_it_out():
    (witness,) = suspect(values(a=2.0, b=1.0), free="b").witnesses
    assert could_explain((values(a=2.0, b=7.0), torch.float32), witness)
    assert not could_explain((values(a=3.0, b=1.0), torch.float32), witness)
    assert not could_explain((Observation(error=BROKE), torch.float32), witness)


def test_a_case_looks_right_whatever_it_cost():
    reference = dataclasses.replace(values(a=2.0), ledger={"calls": 1})
    assert looks_right((dataclasses.replace(values(a=2.0), ledger={"calls": 9}), torch.float32), reference)
    assert not looks_right((values(a=2.1), torch.float32), reference)


def test_no_numbers_are_made_of_what_has_another_shape(monkeypatch):
    monkeypatch.setattr("course.judging.diagnosis.as_numbers", None)
    large = values(a=torch.zeros(9, dtype=torch.uint8))
    assert not looks_right((large, torch.float32), values(a=torch.zeros(3)))
    assert not looks_right((large, torch.float32), values(a=1))


def test_the_first_suspect_that_matches_is_told():
    rows = [dataclasses.replace(suspect(values(a=float(n))), name=f"n{n}") for n in (3, 2, 2)]
    found = one(VALUE, got=values(a=2.0), expected=values(a=1.0), suspects=rows)
    assert found.diagnosis.name == "n2"


@pytest.mark.parametrize(
    "got",
    [
        values(a=2.0),
        values(a=2.0, b=1.0, c=1.0),
        values(a=2.0, b=7.0),
        Observation(values={"a": 2.0, "b": 1.0}, error=BROKE),
    ],
    ids=["missing", "more", "other", "failure"],
)
def test_a_match_explains_everything_that_was_seen(got):
    assert is_told(values(a=2.0, b=1.0), suspect(values(a=2.0, b=1.0)))
    assert not is_told(got, suspect(values(a=2.0, b=1.0)))


def broken(message: str, kind: str = "ValueError") -> Observation:
    return Observation(values={"a": 2.0}, error=Failure(type=kind, message=message))


def test_where_everything_broke_the_messages_must_agree_but_for_numbers():
    assert is_told(broken("3 rows and 4 columns"), suspect(broken("12 rows and 1 columns")))
    assert not is_told(broken("no rows"), suspect(broken("no columns")))
    assert not is_told(broken("no rows"), suspect(broken("no rows", "TypeError")))
    assert not is_told(values(a=2.0), suspect(broken("no rows")))


def test_where_some_case_did_not_break_the_kind_of_failure_is_enough():
    exercise = dataclasses.replace(toy.EXERCISE, properties=(VALUE,), keeps=())
    cases = [Case(name=name, inputs={}) for name in ("one", "two")]
    witness = suspect(values(a=2.0), broken("no rows"))
    seen = [values(a=2.0), broken("no columns")]
    assert judge(exercise, cases, seen, [values(a=1.0)] * 2, [witness]).diagnosis is not None


def test_of_two_witnesses_that_break_alike_the_one_with_the_same_words_is_told():
    exercise = dataclasses.replace(toy.EXERCISE, properties=(VALUE,), keeps=())
    cases = [Case(name=name, inputs={}) for name in ("one", "two")]
    rows = [
        dataclasses.replace(suspect(values(a=2.0), broken(f"no {name}")), name=name) for name in ("rows", "columns")
    ]
    seen = [values(a=2.0), broken("no columns")]
    assert judge(exercise, cases, seen, [values(a=1.0)] * 2, rows).diagnosis.name == "columns"


def test_a_different_ledger_is_no_match():
    def counted(calls: int) -> Observation:
        return Observation(values={"a": 2.0}, ledger={"calls": calls})

    assert is_told(counted(3), suspect(counted(3)))
    assert not is_told(counted(4), suspect(counted(3)))
    assert is_told(counted(4), suspect(counted(3), free=["ledger/calls"]))


def test_the_size_of_the_widest_step_is_a_matter_of_style():
    def widest(numbers: int) -> Observation:
        return Observation(values={"a": 2.0}, ledger={"largest_tensor": numbers})

    assert is_told(widest(48), suspect(widest(72)))


def spent(source="claimed", **costs) -> Observation:
    """The value 2, with costs that have one source."""
    return Observation(values={"a": 2.0}, ledger=costs, sources=dict.fromkeys(costs, source))


@pytest.mark.parametrize("got", [spent(), spent(calls=3, more=1), spent("broker", calls=3)])
def test_a_cost_that_was_counted_on_one_side_only_is_no_difference(got):
    assert is_told(got, suspect(spent(calls=3)))


def test_what_the_kernel_measured_is_never_compared():
    assert is_told(spent("kernel", calls=4), suspect(spent(calls=3)))
    assert not is_told(spent("broker", calls=4), suspect(spent(calls=3)))


def few(name: str) -> Property:
    """At most three of a cost, or of its twin that the kernel measures."""

    def holds(inputs, got, expected):
        return None if got.get("peak", got.get(name)) <= 3 else "too many"

    return Property(name=f"few_{name}", points=1, evidence="ledger", needs=("fits",), holds=holds, hint="-")


@pytest.mark.parametrize(("peak", "told"), [(9, "costly"), (1, "cheap")])
def test_of_two_witnesses_with_equal_values_the_one_that_breaks_the_same_costs_is_told(peak, told):
    fits = Property(name="fits", points=1, keys=("b",), hint="-")
    both = {"a": 2.0, "b": 1.0}
    rows = [
        dataclasses.replace(suspect(dataclasses.replace(spent(calls=calls), values=both)), name=name)
        for name, calls in (("costly", 8), ("cheap", 2))
    ]
    got = dataclasses.replace(spent("kernel", peak=peak), values=both)
    found = one(fits, few("calls"), VALUE, got=got, expected=values(a=1.0, b=1.0), suspects=rows)
    assert found.diagnosis.name == told


def test_a_witness_of_other_cases_matches_nothing():
    assert not is_told(values(a=2.0), suspect(values(a=2.0), values(a=2.0)))
    assert not is_told(values(a=2.0), suspect())


def test_free_keys_are_compared_by_nobody_but_must_be_there():
    witness = suspect(values(a=2.0, b=0.3), free=["b"])
    assert is_told(values(a=2.0, b=9.0), witness)
    assert not is_told(values(a=2.0), witness)


def test_a_sensitive_value_may_move_further():
    assert not is_told(values(a=2.0 + 1e-3), suspect(values(a=2.0)))
    assert is_told(values(a=2.0 + 1e-3), suspect(values(a=2.0), sensitivity={"a": 1e-5}))


def test_no_sensitivity_blurs_more_than_a_thousandth():
    assert not is_told(values(a=2.1), suspect(values(a=2.0), sensitivity={"a": 1e9}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_coarse_dtype_does_not_make_everything_a_match(dtype):
    witness, x = suspect(values(a=torch.tensor([2.0, 1.0]))), torch.ones(2, dtype=dtype)
    assert is_told(values(a=torch.tensor([2.01, 1.0])), witness, x=x)
    assert not is_told(values(a=torch.tensor([0.0, 0.0])), witness, x=x)
    assert not is_told(values(a=torch.tensor([2.0, 1.2])), witness, x=x)


@pytest.mark.parametrize(
    ("got", "told"),
    [
        ([1.0, math.inf], True),
        ([math.nan, 2.0], True),
        ([math.nan, math.nan], True),
        ([1.0, 2.0], False),
        ([math.nan], False),
    ],
)
def test_where_an_overflow_lands_is_a_matter_of_style(got, told):
    witness = suspect(values(a=torch.tensor([math.nan, 1.0])))
    assert is_told(values(a=torch.tensor(got)), witness) == told


@pytest.mark.parametrize(("got", "told"), [(1e235, True), (-3e21, True), (math.inf, True), (1e19, False), (2.0, False)])
def test_how_far_a_value_blew_up_is_a_matter_of_the_processor(got, told):
    blown_up = suspect(values(a=torch.tensor([2e235, 1.0], dtype=torch.float64)))
    assert is_told(values(a=torch.tensor([got, 1.0], dtype=torch.float64)), blown_up) == told


def test_digits_that_were_lost_in_a_coarser_dtype_are_another_mistake():
    fine, coarse = (values(a=torch.tensor([1 / 3, 2.0], dtype=dtype)) for dtype in (torch.float64, torch.float32))
    x = torch.ones(2, dtype=torch.float64)
    assert not is_told(coarse, suspect(fine), x=x)
    assert is_told(coarse, suspect(coarse), x=x)


def test_a_finite_witness_is_not_matched_by_an_overflow():
    assert not is_told(values(a=math.nan), suspect(values(a=2.0)))


@pytest.mark.parametrize(("got", "told"), [("up", True), ("down", False), (None, False), (1.0, False)])
def test_texts_match_exactly(got, told):
    assert is_told(values(a=got), suspect(values(a="up"))) == told


def test_empty_tensors_match():
    assert is_told(values(a=torch.ones(0)), suspect(values(a=torch.ones(0))))


def test_a_misconception_may_be_recognised_by_exactly_what_fails():
    row = Suspect(name="spoils", hint="Cure.", fails=frozenset({"arguments_unchanged"}))
    assert verdict(toy.in_place, [row]).diagnosis.name == "spoils"
    assert verdict(toy.cubes, [row]).diagnosis is None
    more = dataclasses.replace(row, fails=frozenset({"arguments_unchanged", "total"}))
    assert verdict(toy.in_place, [more]).diagnosis is None


def test_a_witness_goes_before_a_pattern_that_is_declared_first():
    pattern = Suspect(name="pattern", hint="Cure.", fails=frozenset(failed(verdict(toy.cubes))))
    assert verdict(toy.cubes, [pattern]).diagnosis.name == "pattern"
    assert verdict(toy.cubes, [pattern, *RECORD.suspects]).diagnosis.name == "cubes"


def test_a_suspect_without_witnesses_or_pattern_matches_nothing():
    assert verdict(toy.cubes, [Suspect(name="empty", hint="")]).diagnosis is None


def test_an_exercise_of_many_cases_is_judged_in_order():
    exercise: Exercise = dataclasses.replace(toy.EXERCISE, properties=(VALUE,), keeps=())
    cases = [Case(name=f"n{n}", inputs={}) for n in range(3)]
    references = [values(a=float(n)) for n in range(3)]
    assert judge(exercise, cases, references, references).points == 1
    assert judge(exercise, cases, references[::-1], references).findings[0].case == "n0"


# the cost that a property shows


@pytest.mark.parametrize(
    ("cost", "shown"),
    [(12, (12.0, 4.0)), (torch.tensor(12), (12.0, 4.0)), (math.nan, None), ("many", None), (None, None)],
)
def test_a_cost_is_shown_beside_ours_where_it_is_a_number(cost, shown):
    value = Property(name="value", points=1, keys=("a",), hint="h")
    kept = Property(
        name="kept", points=1, evidence="ledger", shows="bytes", needs=("value",), hint="h", holds=lambda *_: None
    )
    ledger = {} if cost is None else {"bytes": cost}
    got = Observation(values={"a": 1}, ledger=ledger, sources={"bytes": "claimed"})
    expected = Observation(values={"a": 1}, ledger={"bytes": 4}, sources={"bytes": "claimed"})
    assert finding(one(value, kept, got=got, expected=expected), "kept").measured == shown


def test_an_exception_that_is_only_called_valueerror_is_none():
    def raising(kind):
        raise kind

    own, kin = type("ValueError", (Exception,), {}), type("OutOfRange", (ValueError,), {})
    came = refused({name: functools.partial(raising, kind) for name, kind in {"own": own, "kin": kin}.items()})
    assert came == {"own": "another exception of the name ValueError", "kin": "ValueError"}
