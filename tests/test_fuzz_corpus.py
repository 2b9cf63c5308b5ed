"""What the fuzzer found worth keeping does no harm; fuzz/README.md says how to look for more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parent.parent / "fuzz"
CORPUS = sorted((FUZZ / "corpus/wire").iterdir())


@pytest.fixture
def wire_input(monkeypatch):
    """The module that feeds one input; it needs no atheris."""
    monkeypatch.syspath_prepend(FUZZ)
    import wire_input

    yield wire_input
    del sys.modules["wire_input"]


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_an_input_of_the_corpus_does_no_harm(path, wire_input):
    wire_input.one_input(path.read_bytes())


def test_the_corpus_is_small():
    assert 10 <= len(CORPUS) <= 40
    assert sum(path.stat().st_size for path in CORPUS) < 40_000


def test_the_corpus_holds_frames_that_are_accepted_and_frames_that_are_not(wire_input):
    frames = [wire_input.frame(path.read_bytes()) for path in CORPUS]
    outcomes = [wire_input.received(frame) is wire_input.NOTHING for frame in frames]
    assert 5 < sum(outcomes) < len(outcomes) - 5


def test_a_dangerous_parser_is_found_out(wire_input, monkeypatch):
    monkeypatch.setattr(wire_input.messages, "clean_text", lambda value, limit=0: value)
    with pytest.raises(UnicodeEncodeError):
        wire_input.one_input(b' ["",[[{"$dict":{"a":"\\ud800"}}]]]')
