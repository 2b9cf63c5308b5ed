"""Text of the dialects is drawn from their rules, is the same for a seed, and comes back from its encoding."""

from __future__ import annotations

import collections
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course.errors import BadArgument
from course.lessons.grammar import ALPHABET, NORTH, SOUTH, Dialect, Rule, batch, decode, encode, rules_from, text

BOTH = pytest.mark.parametrize("dialect", [NORTH, SOUTH], ids=["north", "south"])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@BOTH
def test_the_same_seed_gives_the_same_text(dialect: Dialect) -> None:
    torch.manual_seed(1)
    first = text(dialect, 3000, seeded())
    torch.manual_seed(2)
    assert first == text(dialect, 3000, seeded())
    assert first != text(dialect, 3000, seeded(1))


def test_the_texts_stay_what_they_were() -> None:
    """Recorded curves belong to these texts."""
    assert text(NORTH, 60, seeded()) == " the red cats see the girl. the cats run. my cats that the m"
    assert text(SOUTH, 60, seeded()) == " the lassen wee hear the hound. the foxen sing. thy birden t"


@BOTH
@given(length=st.integers(0, 200))
def test_a_shorter_text_is_the_beginning_of_a_longer_one(dialect: Dialect, length: int) -> None:
    short = text(dialect, length, seeded())
    assert len(short) == length
    assert text(dialect, 200, seeded()).startswith(short)


@BOTH
def test_a_text_has_sentences_of_words_with_a_space_before_each(dialect: Dialect) -> None:
    *sentences, _ = text(dialect, 20_000, seeded()).split(".")
    assert len(sentences) > 200
    for sentence in sentences:
        assert all(word.isalpha() for word in sentence[1:].split(" "))
        assert sentence[0] == " "


@BOTH
def test_rules_are_chosen_as_often_as_they_say(dialect: Dialect) -> None:
    """Every noun in the singular comes from one rule: counts are multinomial."""
    words = collections.Counter(text(dialect, 200_000, seeded()).replace(".", "").split())
    counts = torch.tensor([words[rule.symbols[0].strip()] for rule in dialect.rules["CAT_ONE"]]).double()
    expected = counts.sum() * torch.tensor([rule.probability for rule in dialect.rules["CAT_ONE"]]).double()
    assert ((counts - expected).square() / expected).sum() < 30  # chi squared, 7 degrees: p = 1e-4


@BOTH
@pytest.mark.parametrize("pattern", ["NOUN that VERB", "that THE NOUN VERB", "^ THE NOUN that THE noun SEE VERB"])
def test_a_verb_agrees_with_its_subject_however_far_it_stands(dialect: Dialect, pattern: str) -> None:
    """The noun and the verb in capitals are of one number; what stands between them may be of the other."""
    found = [number[noun] == number[verb] for noun, verb, number in matches(dialect, pattern)]
    assert len(found) > 20
    assert all(found)


def matches(dialect: Dialect, pattern: str) -> list[tuple[str, str, dict[str, str]]]:
    """The noun and the verb of each place that fits, and the number of every noun and verb."""
    kinds = {kind: [rule.symbols[0].strip() for rule in rules if rule.symbols] for kind, rules in dialect.rules.items()}
    number = {word: kind.split("_")[-1] for kind, words in kinds.items() for word in words if word.islower()}
    either = {kind: kinds[f"{kind}_ONE"] + kinds[f"{kind}_MANY"] for kind in ("CAT", "SLEEP", "SEE", "SAY")}
    verbs, nouns = "|".join(either["SLEEP"] + either["SEE"] + either["SAY"]), "|".join(either["CAT"])
    parts = {
        "NOUN": f"({nouns})",
        "VERB": f"({verbs})",
        "noun": f"(?:{nouns})",
        "SEE": f"(?:{'|'.join(either['SEE'])})",
    }
    parts |= {"THE": f"(?:{'|'.join(kinds['THE'])})", "that": "that", "^": "^"}
    regex = re.compile(" ".join(parts[part] for part in pattern.split()) + r"\b")
    drawn = text(dialect, 300_000, seeded()).split(".")
    return [(*found.groups(), number) for sentence in drawn for found in regex.finditer(sentence)]


@BOTH
def test_each_opening_word_has_its_closing_word(dialect: Dialect) -> None:
    pairs = {"if": "then", "when": "so", "either": "or"}
    for sentence in text(dialect, 50_000, seeded()).split(".")[:-1]:
        waiting: list[str] = []
        for word in sentence.split():
            if word in pairs:
                waiting.append(pairs[word])
            elif word in pairs.values():
                assert waiting.pop() == word
        assert not waiting


def test_the_dialects_share_some_words_and_not_others() -> None:
    north, south = (set(text(dialect, 100_000, seeded()).replace(".", "").split()) for dialect in (NORTH, SOUTH))
    assert 20 <= len(north & south) <= 40
    assert min(len(north - south), len(south - north)) >= 15


def test_notation_is_read_as_it_says() -> None:
    assert rules_from("A -> 0.75 b C . | 0.25")["A"] == (Rule(0.75, (" b", "C", ".")), Rule(0.25, ()))
    assert rules_from("A_# ~ b c") == {
        name: (Rule(pytest.approx(2 / 3), (" b",)), Rule(pytest.approx(1 / 3), (" c",))) for name in ("A_ONE", "A_MANY")
    }


@pytest.mark.parametrize(
    ("notation", "message"),
    [
        ("A -> 1 .", "rules must hold SENTENCE, got A"),
        ("", "rules must hold SENTENCE, got none"),
        ("SENTENCE -> 0.5 a . | 0.4 b .", "probabilities of SENTENCE must be positive and sum to 1"),
        ("SENTENCE -> 1.5 a . | -0.5 b .", "probabilities of SENTENCE must be positive and sum to 1"),
        ("SENTENCE -> 1 NOUN .", "NOUN in SENTENCE must have rules"),
        ("SENTENCE -> 1 caf3 .", "caf3 in SENTENCE must have rules or be a word"),
    ],
)
def test_rules_that_are_no_grammar_are_refused(notation: str, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        Dialect(name="broken", rules=rules_from(notation))


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(BadArgument, match="characters must be at least 0, got -1"):
        text(NORTH, -1, seeded())


@given(written=st.text(ALPHABET))
def test_what_is_encoded_can_be_decoded(written: str) -> None:
    tokens = encode(written)
    assert tokens.dtype == torch.int64
    assert tokens.shape == (len(written),)
    assert decode(tokens) == written


def test_a_character_outside_the_alphabet_is_refused() -> None:
    with pytest.raises(BadArgument, match="got 'AB'"):
        encode("a Bad cAt.")


def test_windows_start_with_a_sentence_and_targets_are_one_ahead() -> None:
    tokens = encode(text(NORTH, 5000, seeded()))
    inputs, targets = batch(tokens, 50, 40, seeded())
    assert inputs.shape == targets.shape == (50, 40)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    written = decode(tokens)
    assert all(decode(row) in written for row in targets)
    assert {decode(row[:2]) for row in inputs} == {". "}


def test_windows_begin_everywhere_and_end_at_the_last_character() -> None:
    tokens = encode(" a. bc. de. f")
    rows = {decode(row) for row in batch(tokens, 100, 6, seeded())[1]}
    assert rows == {" bc. d", " de. f"}


def test_windows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadArgument, match="tokens must hold a full stop and 8 more after it, got 9 in all"):
        batch(encode(" the cat."), 1, 8, seeded())
