"""The rules of `longest_chain`, taken at their word: all schedules of short chains are searched."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from course.reference.gradient_checkpointing.longest_chain import longest_chain

State = tuple[int, frozenset[int], tuple[int, ...], int]  # in hand, in slots, evaluations of each layer, still to do


def moves(state: State, *, slots: int, sweeps: int) -> Iterator[State]:
    """What can be done next; activations are named by how many layers lie before them."""
    hand, kept, used, left = state
    if hand < left and used[hand] < sweeps:  # evaluate the next layer
        yield hand + 1, kept, (*used[:hand], used[hand] + 1, *used[hand + 1 :]), left
    if hand not in kept and len(kept) < slots:  # keep what is in hand
        yield hand, kept | {hand}, used, left
    for each in kept:
        yield each, kept, used, left  # take it in hand
        yield hand, kept - {each}, used, left  # or empty its slot
    if hand == left - 1:  # layer `left` goes backward
        yield hand, kept, used, left - 1


def can_be_reversed(layers: int, slots: int, sweeps: int) -> bool:
    """Whether any schedule ends with no layer left, beginning with x_0 in a slot and in hand."""
    start: State = (0, frozenset({0}), (0,) * layers, layers)
    seen, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        if state[-1] == 0:
            return True
        new = {*moves(state, slots=slots, sweeps=sweeps)} - seen
        seen |= new
        waiting += new
    return False


@pytest.mark.parametrize(
    ("slots", "sweeps"), [(1, 0), (1, 1), (1, 2), (1, 4), (2, 0), (2, 1), (3, 1), (5, 1), (2, 2), (4, 1)]
)
def test_a_chain_of_the_longest_length_can_be_reversed_and_one_layer_more_cannot(slots: int, sweeps: int) -> None:
    possible = partial(can_be_reversed, slots=slots, sweeps=sweeps)
    longest = longest_chain(slots, sweeps)
    assert (possible(longest), possible(longest + 1)) == (True, False)
