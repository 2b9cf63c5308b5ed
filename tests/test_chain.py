"""Chains: what is counted of an answer to tokens, and what the schedule shows."""

from __future__ import annotations

import copy
import tracemalloc

import pytest
import torch
from judged import verdict

from course import exercises
from course.errors import CourseError, WrongOutput
from course.exercises.gradient_checkpointing import backward_checkpointed as checkpointed
from course.exercises.gradient_checkpointing.chains import LAYERS, PRIME, ChainOracle, Run, Token, TokenLayer, probe
from course.lessons.experiments.chain import ALL, BACKWARD, NONE, SOME, evaluations, highest, moments
from course.lessons.widgets.chain import last_step, picture, watch_chain
from course.performing.exercise import Case
from course.performing.oracle import Here
from course.reference.gradient_checkpointing.backward_checkpointed import backward_checkpointed

PAIRS = [(n, every) for n in range(1, 41) for every in range(1, n + 3)]


def costs(pairs: list[tuple[int, int]]) -> dict[str, list[int]]:
    coefficients = torch.randint(1, PRIME, (40, 3), generator=torch.Generator().manual_seed(0))
    inputs = {"runs": torch.tensor(pairs), "distinct": LAYERS}
    oracle = ChainOracle(
        Case(name="", inputs=inputs, hidden={"coefficients": coefficients, "given": torch.tensor([2, 3])})
    )
    probe(backward_checkpointed, inputs, Here(oracle))
    return {"alive": oracle.most_alive, **{name: leaf.tolist() for name, leaf in oracle.ledger().items()}}


@pytest.mark.parametrize("part", range(4))
def test_the_schedule_shows_what_is_counted_of_the_reference_for_every_spacing(part):
    pairs = PAIRS[part::4]
    counted = costs(pairs)
    assert counted["evaluations"] == [evaluations(SOME, *pair) for pair in pairs]
    assert counted["evaluations"] == [checkpointed.due(*pair) for pair in pairs]
    assert counted["alive"] == [highest(SOME, *pair) for pair in pairs]
    assert counted["steps_back"] == [n for n, _ in pairs]


def test_right_answers_have_one_activation_less_than_is_allowed_where_segments_are_full():
    assert all(highest(SOME, *pair) <= checkpointed.allowed(*pair) - 1 for pair in PAIRS)
    assert highest(SOME, 12, 4) == checkpointed.allowed(12, 4) - 1


def test_both_ends_are_counted_too():
    for n in range(1, 17):
        assert (evaluations(ALL, n), highest(ALL, n)) == (n, n)
        assert (evaluations(NONE, n), highest(NONE, n)) == (n * (n + 1) // 2, min(n, 2))


@pytest.mark.parametrize("strategy", [ALL, NONE, SOME])
def test_every_call_finds_its_input_alive_and_backward_comes_from_the_last_layer_to_the_first(strategy):
    for n, spacing in [(1, 1), (7, 3), (12, 4), (16, 16)]:
        found = moments(strategy, n, spacing)
        assert all(each.layer - 1 in each.alive and each.checkpoints <= each.alive for each in found)
        assert [each.layer for each in found if each.does == BACKWARD] == list(range(n, 0, -1))


def test_a_token_that_is_gone_cannot_be_used_again_under_its_number():
    run, oracle = Run(), ChainOracle(exercises.load("backward_checkpointed").draw(0)[0])
    x, dy = Token(run, "x_0"), Token(run, "dy")
    layer = TokenLayer(run, 0)
    gone = layer.forward(x).number
    forged = object.__new__(Token)
    forged.run, forged.name, forged.number = run, "", gone
    y = layer.backward(forged, dy)
    events = torch.tensor(run.events)
    with pytest.raises(CourseError, match="KeyError"):
        oracle.ask("run", {"layers": 1, "events": events, "y": y.number, "dx": y.number})


@pytest.mark.parametrize("name", ["backward_keep_none", "backward_checkpointed"])
def test_steps_back_that_begin_with_the_first_layer_earn_nothing(name):
    """Each could be made beside its layer's evaluation: nothing would be kept, and none be needed again."""

    def answer(chain, x, dy, every=0):
        if isinstance(x, torch.Tensor):  # nobody counts there
            return backward_checkpointed(chain, x, dy, 1)
        first, n = x, len(chain)
        due = checkpointed.due(n, every) if every else n * (n + 1) // 2
        for layer in chain:
            dy, x = layer.backward(x, dy), layer.forward(x)
        for _ in range(due - n):
            chain[0].forward(first)
        return x, dy

    assert {each.property for each in verdict(name, answer).findings if each.held} == {"y"}


def test_a_copy_of_a_token_is_the_token():
    run = Run()
    x = Token(run, "x_0")
    assert copy.copy(x) is copy.deepcopy(x) is x.clone() is x


def test_layers_take_no_tokens_of_another_chain():
    mine, other = Run(), Run()
    with pytest.raises(WrongOutput, match="their own chain"):
        TokenLayer(mine, 0).forward(Token(other, "x_0"))
    with pytest.raises(WrongOutput, match="got None"):
        TokenLayer(mine, 0).forward(None)


def test_the_oracle_refuses_more_events_than_a_case_may_send():
    oracle = ChainOracle(exercises.load("backward_checkpointed").draw(0)[0])
    with pytest.raises(CourseError):
        oracle.ask("run", {"layers": 1, "events": torch.zeros(100_001, 4, dtype=torch.int64), "y": 0, "dx": 0})
    with pytest.raises(CourseError):
        oracle.ask("solve", {})


@pytest.mark.parametrize("shape", [(1, 300_000, 4), (1, 300_000, 1, 1, 1, 1)])
def test_the_oracle_makes_no_list_of_what_are_no_events(shape):
    oracle, events = (
        ChainOracle(exercises.load("backward_checkpointed").draw(0)[0]),
        torch.zeros(shape, dtype=torch.int64),
    )
    tracemalloc.start()
    try:
        with pytest.raises(CourseError, match="ValueError"):
            oracle.ask("run", {"layers": 1, "events": events, "y": 0, "dx": 0})
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_the_widget_shows_every_step_and_follows_its_sliders():
    for step in range(1, last_step(5, 2) + 1):
        assert "<svg" in picture(5, 2, step).text
    assert "evaluations 5 of 7" in picture(5, 2, 5).text
    widget = watch_chain(12, 4)
    layers, spacing = widget.children[0].children
    layers.value = 3
    assert spacing.max == 3
    assert "3 layers" in widget.children[2].value
