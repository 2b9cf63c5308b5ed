"""The floor is the true one: by enumeration of a finite language, and by an independent parser on the dialects."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from course.errors import BadArgument
from course.lessons.floor import characters_per_sentence, entropy_per_character, perfect_loss, surprisal
from course.lessons.grammar import ALPHABET, NORTH, SOUTH, START, Dialect, batch, encode, rules_from, text

BOTH = pytest.mark.parametrize("dialect", [NORTH, SOUTH], ids=["north", "south"])
TINY = """
    SENTENCE -> 1 NP VERB .
    NP       -> 0.5 a NOUN | 0.5 NOUN THAT
    NOUN     -> 0.25 cat | 0.75 cats
    THAT     -> 0.6 | 0.4 that VERB
    VERB     -> 0.9 run | 0.1 sleep
"""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def firsts(dialect: Dialect, symbols: tuple[str, ...], first: dict[str, set[str]]) -> set[str]:
    """The words that can come first in what the symbols derive; "" among them if that can be nothing."""
    found = set()
    for symbol in symbols:
        found |= first[symbol] if symbol in dialect.rules else {symbol}
        if "" not in found:
            return found
        found.discard("")
    return found | {""}


def lookahead(dialect: Dialect) -> dict[tuple[str, str], list[int]]:
    """The LL(1) table: which rules of a nonterminal fit the next word (Aho, Lam, Sethi, Ullman 2007, section 4.4)."""
    first: dict[str, set[str]] = {name: set() for name in dialect.rules}
    follow: dict[str, set[str]] = {name: set() for name in dialect.rules}
    size = -1
    while size != (size := sum(map(len, [*first.values(), *follow.values()]))):
        for name, rules in dialect.rules.items():
            for rule in rules:
                first[name] |= firsts(dialect, rule.symbols, first)
                for index, symbol in enumerate(rule.symbols):
                    after = firsts(dialect, rule.symbols[index + 1 :], first)
                    if symbol in dialect.rules:
                        follow[symbol] |= (after - {""}) | (follow[name] if "" in after else set())
    table: dict[tuple[str, str], list[int]] = {}
    for name, rules in dialect.rules.items():
        for index, rule in enumerate(rules):
            words = firsts(dialect, rule.symbols, first)
            for word in (words - {""}) | (follow[name] if "" in words else set()):
                table.setdefault((name, word), []).append(index)
    return table


def minus_log_p(dialect: Dialect, table: dict[tuple[str, str], list[int]], sentence: str) -> float:
    """-log p of a sentence, from its only derivation; KeyError where it has none."""
    words = [f" {word}" for word in sentence.removesuffix(".").split()] + ["."]
    stack, total = [START], 0.0
    while stack:
        symbol = stack.pop()
        if symbol in dialect.rules:
            rule = dialect.rules[symbol][table[symbol, words[0]][0]]
            total -= math.log(rule.probability)
            stack.extend(reversed(rule.symbols))
        elif symbol != words.pop(0):
            raise KeyError(symbol)
    return total


def sentences(dialect: Dialect, symbols: tuple[str, ...] = (START,)) -> list[tuple[float, str]]:
    """All sentences of a finite language, with their probabilities."""
    if not symbols:
        return [(1.0, "")]
    first, rest = symbols[0], sentences(dialect, symbols[1:])
    if first not in dialect.rules:
        return [(p, first + after) for p, after in rest]
    heads = [(r.probability * p, s) for r in dialect.rules[first] for p, s in sentences(dialect, r.symbols)]
    return [(p * q, head + after) for (p, head), (q, after) in itertools.product(heads, rest)]


@BOTH
def test_the_next_word_says_which_rule_was_used_so_no_sentence_has_two_derivations(dialect: Dialect) -> None:
    assert all(len(rules) == 1 for rules in lookahead(dialect).values())


def test_the_table_finds_an_ambiguous_grammar() -> None:
    double = Dialect(name="double", rules=rules_from("SENTENCE -> 0.5 A . | 0.5 a .\nA -> 1 a"))
    assert max(map(len, lookahead(double).values())) == 2


@BOTH
def test_a_full_stop_ends_every_sentence_and_stands_nowhere_else(dialect: Dialect) -> None:
    assert dialect.rules[START][0].symbols[-1] == "."
    others = [s for name, rules in dialect.rules.items() if name != START for rule in rules for s in rule.symbols]
    assert not any("." in symbol for symbol in others)


def test_entropy_and_length_are_those_of_the_enumerated_sentences() -> None:
    tiny = Dialect(name="tiny", rules=rules_from(TINY))
    all_of_them = sentences(tiny)
    assert len({sentence for _, sentence in all_of_them}) == len(all_of_them) == 2 * 2 + 2 * (1 + 2) * 2
    assert sum(p for p, _ in all_of_them) == pytest.approx(1)
    entropy = -sum(p * math.log(p) for p, _ in all_of_them)
    length = sum(p * len(sentence) for p, sentence in all_of_them)
    assert characters_per_sentence(tiny) == pytest.approx(length, rel=1e-12)
    assert entropy_per_character(tiny) == pytest.approx(entropy / length, rel=1e-12)


def test_a_recursive_rule_is_summed_to_the_end() -> None:
    """` a` n times with chance 2^-n: entropy 2 log 2, length 2 x 2 + 1."""
    chain = Dialect(name="chain", rules=rules_from("SENTENCE -> 1 A .\nA -> 0.5 a | 0.5 a A"))
    assert characters_per_sentence(chain) == pytest.approx(5)
    assert entropy_per_character(chain) == pytest.approx(2 * math.log(2) / 5)


def test_the_entropies_stay_what_they_are() -> None:
    """They are drawn under recorded curves."""
    assert entropy_per_character(NORTH) == pytest.approx(0.44471312905972316, rel=1e-12)
    assert entropy_per_character(SOUTH) == pytest.approx(0.38819777165116626, rel=1e-12)


@BOTH
def test_the_mean_of_minus_log_p_comes_to_the_entropy(dialect: Dialect) -> None:
    """A ratio estimate: total -log p over total characters, with the delta method's standard error."""
    table = lookahead(dialect)
    drawn = [f"{sentence}." for sentence in text(dialect, 300_000, seeded(3)).split(".")[:-1]]
    nats = torch.tensor([minus_log_p(dialect, table, sentence) for sentence in drawn])
    sizes = torch.tensor([len(sentence) for sentence in drawn]).float()
    ratio = nats.sum() / sizes.sum()
    error = (nats - ratio * sizes).std() / sizes.mean() / len(drawn) ** 0.5
    assert error < 0.01 * ratio
    assert abs(ratio.item() - entropy_per_character(dialect)) < 4 * error
    assert abs(sizes.mean().item() - characters_per_sentence(dialect)) < 4 * sizes.std() / len(drawn) ** 0.5


@BOTH
def test_surprisal_of_whole_sentences_is_their_minus_log_p(dialect: Dialect) -> None:
    table = lookahead(dialect)
    for sentence in text(dialect, 4000, seeded(4)).split(".")[:-1]:
        total = surprisal(dialect, f"{sentence}.").sum().item()
        assert total == pytest.approx(minus_log_p(dialect, table, sentence), rel=1e-9, abs=1e-9)


def test_surprisal_starts_anew_after_a_full_stop() -> None:
    first, second = " my cat runs.", " if the cats run then no dog sleeps."
    apart = torch.cat([surprisal(NORTH, first), surprisal(NORTH, second)])
    torch.testing.assert_close(surprisal(NORTH, first + second), apart)


def test_all_readings_of_a_text_count() -> None:
    double = Dialect(name="double", rules=rules_from("SENTENCE -> 0.25 A . | 0.25 a . | 0.5 b .\nA -> 1 a"))
    assert surprisal(double, " a.").sum().item() == pytest.approx(math.log(2))


def chances(dialect: Dialect, read: str) -> Tensor:
    """The chance of each character after `read`, from the surprisals."""
    found = []
    for character in ALPHABET:
        try:
            found.append(math.exp(-surprisal(dialect, read + character)[-1].item()))
        except BadArgument:
            found.append(0.0)
    return torch.tensor(found)


@pytest.mark.parametrize(
    "read", ["", " ", " t", " the cat", " the cats that", " the cat sees the dog", " my man runs."]
)
def test_the_chances_of_the_next_character_sum_to_one(read: str) -> None:
    assert chances(NORTH, read).sum().item() == pytest.approx(1)


def test_the_chance_of_a_character_is_that_of_the_rules() -> None:
    """After ` the cat`: an s with the plural's share. After ` the cat sleep`: surely an s, for it is one cat."""
    assert chances(NORTH, " the cat")[ALPHABET.index("s")].item() == pytest.approx(0.4)
    assert surprisal(NORTH, " the cat sleeps.")[-2:].tolist() == pytest.approx([0, 0])


@pytest.mark.parametrize(
    "wrong", [" the cat sleep.", " if my cat runs.", "the cat", " the cat sees.", " the hound runs."]
)
def test_a_text_outside_the_language_is_refused(wrong: str) -> None:
    with pytest.raises(BadArgument, match="text must be sentences of the north dialect"):
        surprisal(NORTH, wrong)


def test_a_text_of_one_dialect_is_none_of_the_other() -> None:
    with pytest.raises(BadArgument, match="south dialect"):
        surprisal(SOUTH, text(NORTH, 500, seeded()))


@BOTH
def test_windows_from_batch_have_a_floor_little_above_the_entropy(dialect: Dialect) -> None:
    _, targets = batch(encode(text(dialect, 100_000, seeded(5))), 400, 64, seeded(6))
    assert 1 < perfect_loss(dialect, targets) / entropy_per_character(dialect) < 1.05


def test_a_window_that_starts_inside_a_sentence_has_no_floor() -> None:
    with pytest.raises(BadArgument, match="text must be sentences"):
        perfect_loss(NORTH, encode("cat sleeps.")[None])


def test_sentences_without_an_end_are_refused() -> None:
    endless = Dialect(name="endless", rules=rules_from("SENTENCE -> 1 A .\nA -> 0.5 a | 0.5 a A A"))
    with pytest.raises(BadArgument, match="sentences of endless must have a finite mean length"):
        entropy_per_character(endless)
