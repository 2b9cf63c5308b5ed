"""A computational graph of plain numbers, recorded while ordinary Python computes.

    x = Node(2.0, name="x");  y = x * x + 1      y.inputs -> (x*x, 1),  y.op -> "+"

A node knows its value, the operation that made it, its inputs, and the derivative of its own operation with
respect to each input. What it does not know is the derivative of anything else: that is the work of `backward`,
which is an exercise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Number = float | int


@dataclass(eq=False)
class Node:
    """One value in a graph.

    value   the number
    op      `+ - * / **n neg relu sigmoid exp log`, or "" for a leaf (a value that nothing computed)
    inputs  the nodes it was computed from, in order; the same node may stand there twice
    grad    the derivative of some root with respect to this node; 0 until a backward pass adds to it
    `< <= > >=` compare values, also with numbers; `==` is identity, so that leaves of one value are several dict keys.
    """

    value: float
    op: str = ""
    inputs: tuple[Node, ...] = field(default=(), repr=False)  # a ladder of diamonds has 2^30 paths to print
    name: str = ""
    grad: float = 0.0
    _local: tuple[float, ...] = field(default=(), repr=False)

    def local_derivatives(self) -> tuple[float, ...]:
        """The derivative of this node's value with respect to each of its inputs, in order; () for a leaf."""
        return self._local

    def make(self, op: str, value: float, inputs: Sequence[Node], local: Sequence[float]) -> Node:
        """A new node of the same class, computed from `inputs` by `op` with these local derivatives."""
        return type(self)(value, op=op, inputs=tuple(inputs), _local=tuple(local))

    def _wrap(self, other: Node | Number) -> Node:
        return other if isinstance(other, Node) else type(self)(float(other))

    def __add__(self, other: Node | Number) -> Node:
        b = self._wrap(other)
        return self.make("+", self.value + b.value, (self, b), (1.0, 1.0))

    def __sub__(self, other: Node | Number) -> Node:
        b = self._wrap(other)
        return self.make("-", self.value - b.value, (self, b), (1.0, -1.0))

    def __mul__(self, other: Node | Number) -> Node:
        b = self._wrap(other)
        return self.make("*", self.value * b.value, (self, b), (b.value, self.value))

    def __truediv__(self, other: Node | Number) -> Node:
        b = self._wrap(other)
        value = self.value / b.value
        return self.make("/", value, (self, b), (1.0 / b.value, -value / b.value))

    def __pow__(self, exponent: Number) -> Node:
        """A power with a constant exponent; nan where it is complex, as in torch.

        Raises ZeroDivisionError where it has no slope, as 0 ** 0.5.
        """
        slope = exponent * _real_power(self.value, exponent - 1) if exponent else 0.0
        return self.make(f"**{exponent:g}", _real_power(self.value, exponent), (self,), (slope,))

    def __neg__(self) -> Node:
        return self.make("neg", -self.value, (self,), (-1.0,))

    def __radd__(self, other: Number) -> Node:
        return self._wrap(other) + self

    def __rsub__(self, other: Number) -> Node:
        return self._wrap(other) - self

    def __rmul__(self, other: Number) -> Node:
        return self._wrap(other) * self

    def __rtruediv__(self, other: Number) -> Node:
        return self._wrap(other) / self

    def __lt__(self, other: Node | Number) -> bool:
        return self.value < _value(other)

    def __le__(self, other: Node | Number) -> bool:
        return self.value <= _value(other)

    def __gt__(self, other: Node | Number) -> bool:
        return self.value > _value(other)

    def __ge__(self, other: Node | Number) -> bool:
        return self.value >= _value(other)

    def relu(self) -> Node:
        """max(0, value); its derivative at 0 is 0, and nan stays nan with a derivative of 1, as in torch."""
        off = self.value <= 0  # False for nan, of which max(0.0, nan) would make 0
        return self.make("relu", 0.0 if off else self.value, (self,), (0.0 if off else 1.0,))

    def sigmoid(self) -> Node:
        """1 / (1 + e^-value), between 0 and 1."""
        decay = math.exp(-abs(self.value))  # at most 1: e^1000 would overflow
        value = (decay if self.value < 0 else 1.0) / (1.0 + decay)
        return self.make("sigmoid", value, (self,), (value * (1.0 - value),))

    def exp(self) -> Node:
        """e to the value."""
        value = math.exp(self.value)
        return self.make("exp", value, (self,), (value,))

    def log(self) -> Node:
        """Natural logarithm; the value must be positive."""
        return self.make("log", math.log(self.value), (self,), (1.0 / self.value,))


def _value(other: Node | Number) -> Number:
    return other.value if isinstance(other, Node) else other


def _real_power(base: float, exponent: Number) -> float:
    """Python's own power of a negative number is complex where the exponent is not whole."""
    power: complex = base**exponent
    return math.nan if isinstance(power, complex) else power


def named(node: Node, name: str) -> Node:
    """The same node, called `name` in pictures."""
    node.name = name
    return node


OPS: dict[str, Callable[..., Node]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "relu": Node.relu,
    "exp": Node.exp,
}


def run_program(leaves: Sequence[float], program: Sequence[Sequence[Any]], make: type[Node] = Node) -> list[Node]:
    """All nodes of a graph that is given as plain data; the root is the last one.

    leaves   values of the leaves, which get the numbers 0, 1, ...
    program  rows of (op, number of the first input[, number of the second]); each row makes the next number.
             Ops: `+ - * relu exp`.
    """
    nodes = [make(float(value)) for value in leaves]
    for op, *numbers in program:
        inputs = [nodes[int(number)] for number in numbers]
        nodes.append(OPS[op](*inputs))
    return nodes
