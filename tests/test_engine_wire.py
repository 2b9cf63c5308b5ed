"""Frames from a process that nobody trusts."""

from __future__ import annotations

import random
import socket
import time

import pytest
import torch

from autograder.engine import wire
from course.exercise import Failure, Observation


def sent(tree) -> object:
    """What arrives when `tree` is sent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, tree)
        return wire.receive(theirs, time.monotonic() + 5)


def received(data: bytes) -> object:
    """What is made of raw bytes, after which the sender is gone."""
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(data)
        return wire.receive(theirs, time.monotonic() + 5)


def test_a_tree_arrives_as_it_was_sent():
    tree = {"a": [1, 2.5, None, "text", True], "b": {"c": float("inf")}}
    assert sent(tree) == tree
    assert torch.equal(sent([torch.ones(2, 3, dtype=torch.bfloat16)])[0], torch.ones(2, 3, dtype=torch.bfloat16))


def test_a_tensor_that_no_frame_can_hold_is_refused_by_the_sender():
    with pytest.raises(wire.BadFrame, match="plain data"):
        sent([torch.ones(1, dtype=torch.complex128)])


def test_a_frame_that_says_it_is_huge_is_refused_unread():
    with pytest.raises(wire.BadFrame, match="larger than 64 MiB"):
        received((2**40).to_bytes(8, "big"))


def test_noise_is_refused_as_noise():
    rng = random.Random(1)
    for _ in range(200):
        body = rng.randbytes(rng.randrange(0, 60))
        with pytest.raises(wire.BadFrame):
            received(len(body).to_bytes(8, "big") + body)


@pytest.mark.parametrize(
    "header", ["[]", "{}", '{"__metadata__": {"tree": "' + "[" * 5000 + '"}}', '{"__metadata__": {"tree": "{}"}}']
)
def test_a_header_that_holds_no_tree_is_refused(header):
    body = len(header).to_bytes(8, "little") + header.encode()
    with pytest.raises(wire.BadFrame):
        received(len(body).to_bytes(8, "big") + body)


def test_a_sender_who_drips_is_late():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"\0\0")
        with pytest.raises(wire.Late):
            wire.receive(theirs, time.monotonic() + 0.1)


def test_a_sender_who_leaves_in_the_middle_has_ended():
    with pytest.raises(wire.Ended):
        received(b"\0\0")


def test_observations_arrive_as_they_were_seen():
    seen = Observation(
        values={"a": torch.ones(2), "b": float("nan")},
        ledger={"calls": 3},
        sources={"calls": "claimed"},
        error=Failure(type="ValueError", message="no", where=("line 1",)),
        printed="hello",
    )
    (found,) = wire.to_observations(sent(wire.from_observations([seen])), 1)
    assert (found.ledger, found.sources, found.error, found.printed) == (seen.ledger, seen.sources, seen.error, "hello")
    assert torch.equal(found.values["a"], torch.ones(2))


def test_a_ledger_is_a_claim_whatever_its_sender_says():
    forged = {"values": {}, "ledger": {"bytes": 0}, "sources": {"bytes": "broker"}, "error": None, "printed": ""}
    assert wire.to_observations([forged], 1)[0].sources == {"bytes": "claimed"}


EMPTY = {"values": {}, "ledger": {}, "error": None, "printed": ""}


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        [EMPTY, EMPTY],
        ["x"],
        [{}],
        [{**EMPTY, "values": [1]}],
        [{**EMPTY, "values": {"a": {"b": 1}}}],
        [{**EMPTY, "error": 3}],
        [{**EMPTY, "ledger": {str(i): 0 for i in range(30_000)}}],
    ],
)
def test_a_reply_that_is_no_row_of_observations_is_refused(tree):
    with pytest.raises(wire.BadFrame):
        wire.to_observations(tree, 1)
