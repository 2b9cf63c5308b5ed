"""Which piece of a result is looked at is told for a pledge of all of it, and only what was pledged is observed."""

from __future__ import annotations

import pytest
import torch

from course.performing.exercise import Case, observe
from course.performing.oracle import Here, UnknownQuestion, told
from course.performing.pledges import MOST_SHOWN, Look, Sample, Stage, number, pieces, pledged, shown

X, Y = torch.arange(12.0).view(6, 2), torch.arange(6).view(3, 2)
CASE = Case(name="", inputs={}, hidden={"layer": 1, "row": 4, "start": 1})
LOOK = Look(
    stages=(Stage(pieces={"x": 3}, tells=("row",)), Stage(pieces={"y": 3}, tells=("layer",))),
    at=lambda numbers: {"x": numbers["row"] // 2, "y": numbers["layer"]},
    cut=lambda piece, numbers: piece[..., numbers["start"]],
)


@pytest.fixture
def oracle() -> Sample:
    return Sample(CASE, LOOK)


def test_each_stage_tells_its_numbers_and_what_is_shown_is_observed(oracle):
    assert pledged(oracle.ask, {"x": pieces(X, 2)}) == {"row": 4}
    assert pledged(oracle.ask, {"y": Y}) == {"layer": 1}
    seen = told(shown(oracle.ask, {"x": X[4:], "y": Y[1]}), oracle, "broker")
    assert {name: each.tolist() for name, each in seen.values.items()} == {"x": [9.0, 11.0], "y": 3}


def test_what_the_process_of_the_answer_says_besides_is_not_observed(oracle):
    pledged(oracle.ask, {"x": pieces(X, 2)})
    assert told(observe({"x": X[4:, 1], "y": 3, "after": {"z": 1}}), oracle, "broker").values == {"after/z": 1}


@pytest.mark.parametrize("verb", ["row", "layer", "start", "peek", "show", "odd"])
def test_nothing_is_told_before_a_pledge(oracle, verb):
    with pytest.raises(UnknownQuestion, match="must have the shape that the docstring says"):
        oracle.ask(verb, {})


@pytest.mark.parametrize(
    "hashes",
    [
        {"y": torch.zeros(3, 32, dtype=torch.uint8)},
        {"x": torch.zeros(3, 32, dtype=torch.uint8), "y": torch.zeros(3, 32, dtype=torch.uint8)},
        {"x": torch.zeros(2, 32, dtype=torch.uint8)},
        {"x": torch.zeros(3, 32)},
        *({"x": 1}, {}, None, []),
    ],
)
def test_a_pledge_holds_a_hash_of_each_piece_of_what_is_due(oracle, hashes):
    with pytest.raises(UnknownQuestion):
        oracle.ask("pledge", hashes)


def test_a_result_is_pledged_once_and_shown_once_when_all_are_pledged(oracle):
    pledged(oracle.ask, {"x": pieces(X, 2)})
    for early in (lambda: pledged(oracle.ask, {"x": pieces(X, 2)}), lambda: shown(oracle.ask, {"x": X[4:]})):
        with pytest.raises(UnknownQuestion):
            early()
    pledged(oracle.ask, {"y": Y})
    shown(oracle.ask, {"x": X[4:]})
    for late in (lambda: pledged(oracle.ask, {"y": Y}), lambda: shown(oracle.ask, {"x": X[4:]})):
        with pytest.raises(UnknownQuestion):
            late()


@pytest.mark.parametrize("other", [X[:2], X[4:] + 1e-6, X[4:].double(), X[4:].T, X[4:].flatten(), None])
def test_only_the_piece_that_was_pledged_can_be_shown(oracle, other):
    pledged(oracle.ask, {"x": pieces(X, 2)})
    pledged(oracle.ask, {"y": Y})
    with pytest.raises(UnknownQuestion):
        oracle.ask("show", {"x": other})
    assert oracle.values() == {}


def test_what_is_shown_is_no_larger_than_any_piece(oracle):
    large = torch.zeros(MOST_SHOWN + 1, dtype=torch.uint8)
    pledged(oracle.ask, {"x": [large] * 3})
    pledged(oracle.ask, {"y": Y})
    with pytest.raises(UnknownQuestion):
        shown(oracle.ask, {"x": large})


def test_what_is_no_such_result_is_pledged_in_words_and_observed_so(oracle):
    assert pledged(oracle.ask, {"x": "another shape"}) == {"row": 4}
    pledged(oracle.ask, {"y": Y})
    with pytest.raises(UnknownQuestion):
        shown(oracle.ask, {"x": X[4:]})
    shown(oracle.ask, {"y": Y[1]})
    assert oracle.values() == {"x": "another shape", "y": Y[1, 1]}


def test_a_probe_beside_the_oracle_peeks_and_observes_itself(oracle):
    assert number(Here(oracle), "row") == 4
    assert told(observe({"x": 9.0}), oracle, "claimed").values == {"x": 9.0}


def test_where_nothing_is_hidden_the_probe_observes():
    assert Sample(Case(name="", inputs={})).values() is None


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64, torch.complex64])
def test_every_dtype_and_no_numbers_can_be_pledged(dtype):
    piece = torch.ones(2, 3).to(dtype).T
    look = Look(stages=(Stage(pieces={"x": 2}, tells=()),), at=lambda numbers: {"x": 0})
    oracle = Sample(CASE, look)
    pledged(oracle.ask, {"x": [piece, piece[:0]]})
    shown(oracle.ask, {"x": piece.clone()})
    assert torch.equal(oracle.values()["x"], piece)
