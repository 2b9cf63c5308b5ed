"""Statements about what ranks sent each other: for `Property.holds`, over the ledger of a case.

    got["bytes"], got["messages"]   (P, P), from row to column      got["makespan"]   virtual seconds
    got["largest"]                  (P,), bytes in one call

References are performed in float64, so what a float32 answer may send is computed here from the inputs, not read off
the reference's ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from course.cluster import Link
from course.performing.exercise import Inputs, Values

Holds: TypeAlias = Callable[[Inputs, Values, Values], str | None]
LINK = Link()  # of the simulated ranks in a notebook, and of the broker's


def to_the_next_alone(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """Whether every message goes to the next rank of the ring."""
    messages = _matrix(got["messages"])
    others = [(src, dst) for src, dst in messages.nonzero().tolist() if dst != (src + 1) % len(messages)]
    if not others:
        return None
    src, dst = others[0]
    return f"rank {src} sent to rank {dst}, where rank {(src + 1) % len(messages)} is the next"


def at_most(most: Callable[[Inputs], int], what: str = "bytes") -> Holds:
    """Whether no rank sent more: bytes, or messages."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        sent, allowed = _matrix(got[what]).sum(1), most(inputs)
        rank = int(sent.argmax())
        return None if sent[rank] <= allowed else f"rank {rank} sent {sent[rank]} {what}, where {allowed} are enough"

    return holds


def in_all(most: Callable[[Inputs], int], what: str = "messages") -> Holds:
    """Whether all ranks together sent no more: bytes, or messages."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        sent, allowed = int(_matrix(got[what]).sum()), most(inputs)
        return None if sent <= allowed else f"{sent} {what} in all, where {allowed} are enough"

    return holds


def at_least_in_all(least: Callable[[Inputs], int]) -> Holds:
    """Whether all ranks together sent no fewer bytes: a piece, or a summary, would be faster than what they must."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        sent, needed = int(_matrix(got["bytes"]).sum()), least(inputs)
        return None if sent >= needed else f"{sent} bytes in all, where {needed} are needed"

    return holds


def no_message_over(most: Callable[[Inputs], int]) -> Holds:
    """Whether no rank sent more bytes in one message."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        largest, allowed = _matrix(got["largest"]), most(inputs)
        rank = int(largest.argmax())
        wrong = f"a message of rank {rank} has {largest[rank]} bytes, where a chunk has at most {allowed}"
        return None if largest[rank] <= allowed else wrong

    return holds


def all_of(*statements: Holds) -> Holds:
    """Whether each of these holds; the first that does not is told."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        return next((wrong for each in statements if (wrong := each(inputs, got, expected))), None)

    return holds


def within(seconds: Callable[[Inputs], float], slack: float = 1.1) -> Holds:
    """Whether the last rank ended in time, on the virtual clock."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        took, least = float(got["makespan"]), seconds(inputs)  # type: ignore[arg-type]
        if took <= slack * least:
            return None
        return f"{took * 1e6:.1f} microseconds, where {least * 1e6:.1f} are enough"

    return holds


def one_message(size: int) -> float:
    """Seconds that a message of so many bytes takes."""
    return LINK.latency + size / LINK.bandwidth


def _matrix(found: object) -> Tensor:
    assert isinstance(found, Tensor)
    return found
