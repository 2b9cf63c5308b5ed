"""Other right ways to write `hinge_backward`."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np

from autograder.bank import Alternative
from course.lessons.graph import Node
from course.reference.computational_graphs.backward import backward

Partials = tuple[list[float], list[float], float, float, float]


def numpy_arrays(w: list[float], x: list[float], b: float, y: float) -> list[Any]:
    """Arrays in place of lists; the branch is a factor 0 or 1."""
    ws, xs = np.array(w), np.array(x)
    on = np.heaviside(ws @ xs + b, 0.0)
    return [-on * xs, -on * ws, -on, np.float64(1.0), -on]


def two_branches(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """Each branch writes its own result, in place on copies; whole numbers where they are whole."""
    dw, dx = x.copy(), w.copy()
    z = b
    for i in range(len(w)):
        z += w[i] * x[i]
    if z <= 0:
        return [0 for _ in dw], [0 for _ in dx], 0, 1, 0
    for i in range(len(w)):
        dw[i] *= -1
        dx[i] *= -1
    return dw, dx, -1, 1, -1


def fractions(w: list[float], x: list[float], b: float, y: float) -> tuple[Any, ...]:
    """Exact fractions in tuples, and numpy's numbers beside them."""
    ws, xs = [Fraction(value) for value in w], [Fraction(value) for value in x]
    dz = -1 if sum(map(operator.mul, ws, xs)) + Fraction(b) > 0 else 0
    return tuple(dz * each for each in xs), tuple(dz * each for each in ws), np.float64(dz), np.array(1.0), Fraction(dz)


def graph_of_numbers(w: list[float], x: list[float], b: float, y: float) -> Partials:
    """Builds the graph and runs a backward pass over it; -0 and 0 are the same number."""
    ws, xs, bias, label = [Node(value) for value in w], [Node(value) for value in x], Node(b), Node(y)
    z = sum((wi * xi for wi, xi in zip(ws, xs, strict=True)), start=bias)
    loss = label - z.relu()
    backward(loss)
    return [node.grad for node in ws], [node.grad for node in xs], bias.grad, label.grad, bias.grad


ALTERNATIVES = (
    Alternative(name="numpy_arrays", answer=numpy_arrays),
    Alternative(name="two_branches", answer=two_branches),
    Alternative(name="fractions", answer=fractions),
    Alternative(name="graph_of_numbers", answer=graph_of_numbers),
)
