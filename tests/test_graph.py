"""course/lessons/graph.py: nodes record what computed them, and know the derivative of their own operation."""

from __future__ import annotations

import math
import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course.lessons.graph import Node, named, run_program

NUMBERS = st.floats(0.1, 3.0)
UNARY = {
    "neg": lambda x: -x,
    "relu": lambda x: x.relu(),
    "sigmoid": lambda x: x.sigmoid(),
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "**3": lambda x: x**3,
    "**-1": lambda x: x**-1,
    "**0.5": lambda x: x**0.5,
    "**0": lambda x: x**0,
}
BINARY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def in_torch(function, *values: float) -> tuple[float, tuple[float, ...]]:
    """The value of a function and its derivatives, as torch computes them in float64."""
    leaves = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]
    result = function(*leaves)
    return result.item(), tuple(grad.item() for grad in torch.autograd.grad(result, leaves))


@pytest.mark.parametrize("op", sorted(UNARY))
@given(NUMBERS)
def test_operations_of_one_number_agree_with_torch(op, x):
    node, (value, slopes) = UNARY[op](Node(x)), in_torch(UNARY[op], x)
    assert (node.op, len(node.inputs)) == (op, 1)
    assert node.value == pytest.approx(value)
    assert node.local_derivatives() == pytest.approx(slopes)


@pytest.mark.parametrize("op", sorted(BINARY))
@given(NUMBERS, NUMBERS)
def test_operations_of_two_numbers_agree_with_torch(op, x, y):
    a, b = Node(x), Node(y)
    node, (value, slopes) = BINARY[op](a, b), in_torch(BINARY[op], x, y)
    assert (node.op, node.inputs) == (op, (a, b))
    assert node.value == pytest.approx(value)
    assert node.local_derivatives() == pytest.approx(slopes)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda x: x + 1, 3.0),
        (lambda x: 1 + x, 3.0),
        (lambda x: x - 1, 1.0),
        (lambda x: 1 - x, -1.0),
        (lambda x: x * 3, 6.0),
        (lambda x: 3 * x, 6.0),
        (lambda x: x / 4, 0.5),
        (lambda x: 1 / x, 0.5),
    ],
)
def test_plain_numbers_become_leaves(function, value):
    node = function(Node(2.0))
    assert node.value == value
    assert {leaf.op for leaf in node.inputs} == {""}


@pytest.mark.parametrize("op", ["relu", "sigmoid", "**0", "**3", "**0.5", "**1.5", "**-0.5"])
@pytest.mark.parametrize("x", [-1000.0, -2.0, 2.0, 1000.0, math.nan])
def test_far_from_0_and_where_there_is_no_real_number_the_value_is_torchs_too(op, x):
    def function(x):
        return x ** float(op.removeprefix("**")) if op.startswith("**") else getattr(x, op)()

    node, (value, slopes) = function(Node(x)), in_torch(function, x)
    assert node.value == pytest.approx(value, nan_ok=True)
    assert node.local_derivatives() == pytest.approx(slopes, nan_ok=True)


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge])
@pytest.mark.parametrize(("a", "b"), [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (math.nan, 2.0)])
def test_nodes_and_numbers_are_compared_by_value(compare, a, b):
    found = [compare(Node(a), Node(b)), compare(Node(a), b), compare(a, Node(b))]
    assert found == [compare(a, b)] * 3


@pytest.mark.parametrize("x", [-1.0, 0.0])
def test_relu_passes_nothing_where_it_is_off_nor_at_the_kink(x):
    node = Node(x).relu()
    assert (node.value, node.local_derivatives()) == (0.0, (0.0,))


def test_the_power_zero_is_constant_even_at_zero():
    node = Node(0.0) ** 0
    assert (node.value, node.local_derivatives()) == (1.0, (0.0,))


def test_a_number_used_twice_stands_twice_among_the_inputs():
    x = Node(3.0)
    node = x * x
    assert node.inputs == (x, x)
    assert node.local_derivatives() == (3.0, 3.0)


def test_a_leaf_has_no_inputs_and_no_derivatives():
    x = Node(2.0)
    assert (x.op, x.inputs, x.local_derivatives(), x.grad) == ("", (), (), 0.0)


def test_nodes_are_told_apart_by_identity():
    assert Node(1.0) != Node(1.0)
    assert len({Node(1.0), Node(1.0)}) == 2


def test_a_node_is_printed_without_its_graph():
    node = Node(1.0)
    for _ in range(100):
        node = node + node
    assert repr(node) == f"Node(value={2.0**100}, op='+', name='', grad=0.0)"


def test_a_name_is_for_pictures():
    node = named(Node(2.0), "x")
    assert (node.name, node.value) == ("x", 2.0)


def test_a_program_makes_a_graph():
    nodes = run_program([2.0, 3.0], [["*", 0, 1], ["+", 2, 0], ["-", 3, 1], ["relu", 4], ["exp", 4]])
    assert [node.value for node in nodes] == [2.0, 3.0, 6.0, 8.0, 5.0, 5.0, math.exp(5.0)]
    assert [node.op for node in nodes] == ["", "", "*", "+", "-", "relu", "exp"]
    assert nodes[3].inputs == (nodes[2], nodes[0])


def test_a_program_makes_nodes_of_the_class_that_was_asked_for():
    class Counted(Node):
        pass

    nodes = run_program([1.0], [["+", 0, 0], ["exp", 1]], Counted)
    assert {type(node) for node in nodes} == {Counted}
    assert type(nodes[0] * 2).__name__ == "Counted"


def test_a_chain_of_thousands_is_no_problem():
    nodes = run_program([1.0, 1e-4], [["+", last, 1] if last else ["*", 0, 1] for last in range(5_000)])
    assert len(nodes) == 5_002
