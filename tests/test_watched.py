"""computational_graphs/graphs.py: deep graphs are built as all others are, and leave Python as it was."""

from __future__ import annotations

import gc
import sys

import pytest

from course.errors import WrongOutput
from course.exercises.computational_graphs.graphs import rows, watched
from course.lessons.graph import Node, run_program

DEEP = {"leaves": [1.0, 0.25], "program": {"chain": 50}}


def held(nodes: list[Node]) -> list[tuple[object, ...]]:
    number = {node: index for index, node in enumerate(nodes)}
    return [
        (node.value, node.op, [number[each] for each in node.inputs], node.grad, node.local_derivatives())
        for node in nodes
    ]


def test_a_chain_holds_what_its_program_makes():
    with watched(DEEP, calls=1) as nodes:
        assert held(nodes) == held(run_program(DEEP["leaves"], rows(DEEP)))


def test_the_deep_input_of_a_chain_is_the_left_one_and_the_right_one_in_turns():
    with watched(DEEP, calls=1) as nodes:
        assert [node.inputs.index(nodes[at + 2]) for at, node in enumerate(nodes[3:])] == [1, 0] * 24


def test_a_limit_that_stays_raised_is_refused_though_nothing_was_read_under_it():
    limit = sys.getrecursionlimit()
    with pytest.raises(WrongOutput, match="recursion limit must stay"), watched(DEEP, calls=1):
        sys.setrecursionlimit(limit + 1)
    sys.setrecursionlimit(limit)


def test_garbage_is_collected_again_also_after_an_answer_that_breaks():
    with pytest.raises(ZeroDivisionError), watched(DEEP, calls=1):
        raise ZeroDivisionError
    assert gc.isenabled()
