"""Messages from a process that nobody trusts."""

from __future__ import annotations

import math
import os
import socket
import threading
import time

import pytest
import torch
from conftest import same_leaf, same_tree
from hypothesis import given
from hypothesis import strategies as st

from autograder.sandbox.wire import messages, stream
from autograder.sandbox.wire.frame import BadFrame, decode, encode
from course.performing.exercise import Case, Failure, Observation


def soon() -> float:
    return time.monotonic() + 5


@pytest.fixture
def pair():
    """Our end of a connection, and theirs."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def sent(tree) -> object:
    """What arrives when `tree` is sent."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream.send(theirs, tree)
        return stream.receive(ours, soon())


def received(data: bytes) -> object:
    """What is made of raw bytes, after which the sender is gone."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(data)
        return stream.receive(ours, soon())


def raw(tree, token: str = "") -> bytes:
    """A frame with its length, as `send` writes it."""
    frame = encode(tree, token)
    return len(frame).to_bytes(8, "big") + frame


# Sending and receiving


def test_a_tree_arrives_as_it_was_sent():
    tree = {"a": [1, 2.5, None, "text", True], "b": {"c": float("inf"), "d": torch.ones(2).bfloat16()}}
    assert same_tree(sent(tree), tree)


def test_trees_arrive_one_by_one(pair):
    ours, theirs = pair
    theirs.sendall(raw(1) + raw(2))
    assert [stream.receive(ours, soon()), stream.receive(ours, soon())] == [1, 2]


def test_a_large_tree_arrives_whole(pair):
    ours, theirs = pair
    thread = threading.Thread(target=stream.send, args=(theirs, torch.ones(2**20)))
    thread.start()
    assert same_leaf(stream.receive(ours, soon()), torch.ones(2**20))
    thread.join()


@pytest.mark.parametrize("size", [2**26 + 1, 2**40, 2**63, 2**64 - 1])
def test_a_frame_that_says_it_is_huge_is_refused_unread(size):
    with pytest.raises(BadFrame, match="larger than 24 MiB"):
        received(size.to_bytes(8, "big"))


@given(st.binary(max_size=60))
def test_noise_is_refused_as_noise(body):
    with pytest.raises(BadFrame):
        received(len(body).to_bytes(8, "big") + body)


@given(st.binary(max_size=60))
def test_noise_without_a_length_is_refused_or_ends(data):
    with pytest.raises((BadFrame, stream.Closed)):
        received(data)


def test_a_sender_who_leaves_in_the_middle_has_ended():
    for end in range(len(raw("text"))):
        with pytest.raises(stream.Closed):
            received(raw("text")[:end])


def test_a_connection_that_broke_has_ended(pair):
    ours, _ = pair
    ours.close()
    with pytest.raises(stream.Closed):
        stream.receive(ours, soon())


def test_nobody_can_be_sent_to_who_is_gone(pair):
    ours, theirs = pair
    theirs.close()
    with pytest.raises(stream.Closed):
        stream.send(ours, 1)


def test_descriptors_that_come_with_a_frame_are_dropped(pair):
    ours, theirs = pair
    before = len(os.listdir("/dev/fd"))
    socket.send_fds(theirs, [raw("text")], [theirs.fileno()] * 5)
    assert stream.receive(ours, soon()) == "text"
    assert len(os.listdir("/dev/fd")) == before


# Deadlines


def test_a_sender_who_stops_is_late(pair):
    ours, theirs = pair
    theirs.sendall(b"\0\0")
    with pytest.raises(stream.Late):
        stream.receive(ours, time.monotonic() + 0.05)


def test_a_sender_who_drips_is_late(pair):
    ours, theirs = pair
    late = threading.Event()

    def drip() -> None:
        for byte in (2**20).to_bytes(8, "big") + bytes(500):
            theirs.sendall(bytes([byte]))
            if late.wait(0.01):
                return

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(stream.Late):
        stream.receive(ours, time.monotonic() + 0.2)
    late.set()
    thread.join()


def test_a_frame_that_waits_after_the_deadline_is_late(pair):
    ours, theirs = pair
    stream.send(theirs, 1)
    with pytest.raises(stream.Late):
        stream.receive(ours, time.monotonic() - 1)


def test_a_receiver_who_never_reads_is_late(pair):
    ours, _ = pair
    with pytest.raises(stream.Late):
        stream.send(ours, torch.ones(2**20), deadline=time.monotonic() + 0.05)


def test_a_deadline_may_be_far(pair):
    ours, theirs = pair
    stream.send(theirs, 1, deadline=math.inf)
    assert stream.receive(ours, math.inf) == 1


# Tokens


def test_an_answer_carries_the_token_of_its_question(pair):
    ours, theirs = pair
    token = stream.new_token()
    stream.send(ours, "question", token=token)
    question, came = stream.receive_request(theirs, soon())
    stream.send(theirs, f"answer to {question}", token=came)
    assert stream.receive(ours, soon(), token=token) == "answer to question"


def test_an_answer_sent_before_the_question_is_refused(pair):
    ours, theirs = pair
    stream.send(theirs, "early")
    token = stream.new_token()
    stream.send(ours, "question", token=token)
    with pytest.raises(BadFrame, match="the question that was asked"):
        stream.receive(ours, soon(), token=token)


def test_two_answers_at_once_do_not_answer_the_next_question(pair):
    ours, theirs = pair
    first, second = stream.new_token(), stream.new_token()
    theirs.sendall(raw("one", first) + raw("two", first))
    assert stream.receive(ours, soon(), token=first) == "one"
    with pytest.raises(BadFrame):
        stream.receive(ours, soon(), token=second)


def test_tokens_differ():
    assert len({stream.new_token() for _ in range(100)}) == 100


# Cases


def test_cases_arrive_as_they_were_drawn():
    case = Case(name="small", inputs={"x": torch.ones(2), "steps": [1, 2]})
    (found,) = messages.to_cases(sent(messages.from_cases([case])))
    assert same_tree(found.inputs, case.inputs)


def test_what_is_hidden_is_never_sent_and_neither_is_what_a_case_is_called():
    case = Case(name="small", inputs={"x": 1}, hidden={"secret": "the answer"})
    tree = messages.from_cases([case])
    assert tree == [{"inputs": {"x": 1}, "lies": {}}]
    assert b"secret" not in raw(tree)
    assert b"the answer" not in raw(tree)
    assert b"small" not in raw(tree)
    assert messages.to_cases(sent(tree))[0].hidden == {}


# Questions


def test_a_question_arrives_as_it_was_asked():
    arguments = {"x": torch.ones(2), "names": ["a", None, 1.5]}
    verb, found = messages.to_question(sent(messages.from_question("all_reduce", arguments)))
    assert verb == "all_reduce"
    assert same_tree(found, arguments)


VERBS = ["", "a" * 65, "a b", "a\n", "é", "\uff41", "a1", "a\0", "__class__.x", None, 3, ["a"], torch.ones(1)]


@pytest.mark.parametrize("verb", VERBS, ids=repr)
def test_a_verb_is_a_short_word(verb):
    with pytest.raises(BadFrame, match="verb"):
        messages.to_question({"ask": verb, "arguments": None})


@pytest.mark.parametrize("tree", [None, "a", [], {}, {"ask": "a"}, {"ask": "a", "arguments": 1, "more": 2}], ids=repr)
def test_a_question_is_a_verb_and_arguments(tree):
    with pytest.raises(BadFrame, match="question"):
        messages.to_question(tree)


def test_text_in_a_question_is_clean():
    _, arguments = messages.to_question({"ask": "a", "arguments": {"\ud800\0": ["\udfff\0" + "a" * 20_000]}})
    assert arguments == {"?\ufffd": ["?\ufffd" + "a" * 9_998]}


# Observations


def test_observations_arrive_as_they_were_seen():
    seen = Observation(
        values={"a": torch.ones(2), "b": float("nan")},
        ledger={"calls": 3},
        sources={"calls": "claimed"},
        error=Failure(type="ValueError", message="no", where=("line 1",), rank=2),
        printed="hello",
    )
    (found,) = messages.to_observations(sent(messages.from_observations([seen])), 1)
    assert same_tree(found, seen)
    assert found.printed == "hello"


def test_a_leaf_that_no_frame_carries_costs_only_itself():
    odd = {"a": torch.ones(1, dtype=torch.complex128), "b": -(10**100_000), "c": 1.0}
    (found,) = messages.to_observations(sent(messages.from_observations([Observation(values=odd, ledger=odd)])), 1)
    assert found.values == {"a": "<tensor of torch.complex128>", "b": "<integer of 332193 bits>", "c": 1.0}
    assert found.ledger == found.values


def test_a_ledger_is_a_claim_whatever_its_sender_says():
    forged = {"values": {}, "ledger": {"bytes": 0}, "sources": {"bytes": "broker"}, "error": None, "printed": ""}
    assert messages.to_observations([forged], 1)[0].sources == {"bytes": "claimed"}


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
    with pytest.raises(BadFrame):
        messages.to_observations(tree, 1)


def test_text_in_an_observation_is_clean():
    error = {"type": "\0" * 200, "message": "\ud800", "where": ["\0"] * 50}
    tree = {"values": {"\ud800": "\0", "\x1b": "a\u202e\nb"}, "ledger": {}, "error": error, "printed": "a" * 20_000}
    (seen,) = messages.to_observations([tree], 1)
    assert seen.values == {"?": "\ufffd", "\ufffd": "a\ufffd\nb"}
    assert seen.error == Failure(type="\ufffd" * 100, message="?", where=("\ufffd",) * 6)
    assert len(seen.printed) == 2_000


def test_a_failure_says_no_more_than_an_honest_process_would():
    seen = messages.to_failure({"type": "E", "message": "x" * 10_000, "where": ["x" * 10_000] * 20, "rank": None})
    assert len(seen.message) + sum(map(len, seen.where)) < 6_000


@pytest.mark.parametrize("rank", [-1, 2**40, True, 1.0, "1", [1]], ids=repr)
def test_a_rank_that_is_none_is_dropped(rank):
    failure = messages.to_failure({"type": "E", "message": "", "where": 3, "rank": rank})
    assert failure == Failure(type="E", message="")


# Outputs


def test_outputs_arrive_as_they_were_shown():
    picture = {"output_type": "display_data", "data": {"image/png": "iVBO" * 400_000}, "metadata": {}}
    shown = [[{"output_type": "stream", "text": "é" * 5_000}, picture], []]
    assert messages.to_outputs(decode(encode(messages.from_outputs(shown)))[1], 2) == shown


def test_of_a_text_that_is_shown_no_more_is_read_than_a_cell_may_show():
    shown = [[{"output_type": "stream", "text": "a" * (messages.MAX_SHOWN + 1)}]]
    assert messages.to_outputs(messages.from_outputs(shown), 1) == [
        [{"output_type": "stream", "text": "a" * messages.MAX_SHOWN}]
    ]


@pytest.mark.parametrize(
    "tree",
    [
        None,
        {},
        [],
        [[], []],
        [{}],
        [["text"]],
        [[{"a": float("nan")}]],
        [[{"a": [float("-inf")]}]],
        [[{"a": torch.ones(2)}]],
        [[{"a": torch.ones(2, 2, dtype=torch.uint8)}]],
    ],
)
def test_outputs_that_are_no_json_are_refused(tree):
    with pytest.raises(BadFrame):
        messages.to_outputs(tree, 1)


def test_text_in_outputs_is_clean():
    broken = torch.tensor([0x61, 0xFF, 0], dtype=torch.uint8)
    assert messages.to_outputs([[{"\0": "\ud800", "b": broken}]], 1) == [[{"\ufffd": "?", "b": "a\ufffd\ufffd"}]]
