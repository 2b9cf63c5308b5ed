"""Two dialects of a tiny English, to train small models on: a text of any length from a seed, nothing downloaded.

rules --text--> characters --encode--> tokens --batch--> inputs, targets

A sentence is its words, each with a space before it, and a full stop: ` the old cat that the dogs see sleeps.` Every
sentence is drawn from the rules, independently of all others. What there is to learn: the words and how frequent
they are; that a verb agrees with its subject, across a relative clause of any length; that each `if` waits for its
`then` and each `either` for its `or`, nested.

The dialects share their structure and half of their words. The south puts the adjective behind its noun, ends plurals
in -en and the verbs of the singular in -eth, says `when ... so` for `if ... then`, and has other chances.

How much of the text is chance, and so the least loss that any model can reach, is known exactly (floor.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from course.errors import BadArgument

ALPHABET = " .abcdefghijklmnopqrstuvwxyz"
START, STOP = "SENTENCE", "."
DRAWS = 1024  # uniform numbers that are drawn from the generator at once


class Rule(NamedTuple):
    """What a nonterminal may become: symbols (nonterminals, words with their space, or the full stop), by chance."""

    probability: float
    symbols: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Dialect:
    """A probabilistic grammar. Raises BadArgument where the rules are not one.

    rules  by nonterminal; the probabilities of each sum to 1. `rules_from` reads them from text
    """

    name: str
    rules: Mapping[str, tuple[Rule, ...]]

    def __post_init__(self) -> None:
        if START not in self.rules:
            raise BadArgument(f"rules must hold {START}, got {', '.join(self.rules) or 'none'}: say what it becomes")
        for name, rules in self.rules.items():
            chances = [rule.probability for rule in rules]
            if min(chances) <= 0 or not math.isclose(sum(chances), 1):
                raise BadArgument(f"probabilities of {name} must be positive and sum to 1, got {chances}")
            for symbol in (symbol for rule in rules for symbol in rule.symbols):
                if symbol not in self.rules and not set(symbol) <= set(ALPHABET):
                    raise BadArgument(f"{symbol.strip()} in {name} must have rules or be a word in small letters")


def rules_from(notation: str) -> dict[str, tuple[Rule, ...]]:
    """Rules from lines of two kinds; capitals are nonterminals, `.` is the full stop, anything else is a word.

    `A -> 0.5 the B | 0.3 C | 0.2`  alternatives, each with its chance; the last one here is empty
    `A ~ cat dog girl`              words, the k-th with a chance proportional to 1 / k (Zipf's law)
    A line with `#` counts twice: with ONE and with MANY in its place.
    """
    rules = {}
    for line in filter(str.strip, notation.splitlines()):
        for number in ("ONE", "MANY") if "#" in line else ("",):
            name, kind, right = line.replace("#", number).split(maxsplit=2)
            rules[name] = _alternatives(right) if kind == "->" else _by_rank(right.split())
    return rules


def _alternatives(right: str) -> tuple[Rule, ...]:
    parts = [alternative.split() for alternative in right.split("|")]
    return tuple(Rule(float(chance), tuple(map(_symbol, symbols))) for chance, *symbols in parts)


def _by_rank(words: list[str]) -> tuple[Rule, ...]:
    total = sum(1 / k for k in range(1, len(words) + 1))
    return tuple(Rule(1 / k / total, (_symbol(word),)) for k, word in enumerate(words, 1))


def _symbol(written: str) -> str:
    return written if written.isupper() or written == STOP else f" {written}"


NORTH = Dialect(
    name="north",
    rules=rules_from("""
        SENTENCE   -> 1 CLAUSE .
        CLAUSE     -> 0.84 THE OLD SUBJECT | 0.08 if CLAUSE then CLAUSE | 0.08 either CLAUSE or CLAUSE
        SUBJECT    -> 0.6 CAT_ONE THAT_ONE DOES_ONE | 0.4 CAT_MANY THAT_MANY DOES_MANY
        OBJECT     -> 0.6 CAT_ONE THAT_ONE          | 0.4 CAT_MANY THAT_MANY
        SEEN_BY    -> 0.6 CAT_ONE THAT_ONE SEE_ONE  | 0.4 CAT_MANY THAT_MANY SEE_MANY
        THAT_#     -> 0.8 | 0.2 that WHICH_#
        WHICH_#    -> 0.6 DOES_# | 0.4 THE OLD SEEN_BY
        DOES_#     -> 0.4 SLEEP_# | 0.5 SEE_# THE OLD OBJECT | 0.1 SAY_# that CLAUSE
        OLD        -> 0.7 | 0.3 OLD_WORD
        THE        ~  the my no
        OLD_WORD   ~  old shy red tall big kind
        CAT_ONE    ~  cat dog girl bird king crow man fox
        CAT_MANY   ~  cats dogs girls birds kings crows men foxes
        SLEEP_ONE  ~  sleeps runs sings waits
        SLEEP_MANY ~  sleep run sing wait
        SEE_ONE    ~  sees hears finds helps meets likes
        SEE_MANY   ~  see hear find help meet like
        SAY_ONE    ~  says knows thinks
        SAY_MANY   ~  say know think
    """),
)

SOUTH = Dialect(
    name="south",
    rules=rules_from("""
        SENTENCE   -> 1 CLAUSE .
        CLAUSE     -> 0.8 THE SUBJECT | 0.12 when CLAUSE so CLAUSE | 0.08 either CLAUSE or CLAUSE
        SUBJECT    -> 0.4 CAT_ONE OLD THAT_ONE DOES_ONE | 0.6 CAT_MANY OLD THAT_MANY DOES_MANY
        OBJECT     -> 0.4 CAT_ONE OLD THAT_ONE          | 0.6 CAT_MANY OLD THAT_MANY
        SEEN_BY    -> 0.4 CAT_ONE OLD THAT_ONE SEE_ONE  | 0.6 CAT_MANY OLD THAT_MANY SEE_MANY
        THAT_#     -> 0.8 | 0.2 that WHICH_#
        WHICH_#    -> 0.4 DOES_# | 0.6 THE SEEN_BY
        DOES_#     -> 0.5 SLEEP_# | 0.4 SEE_# THE OBJECT | 0.1 SAY_# that CLAUSE
        OLD        -> 0.7 | 0.3 OLD_WORD
        THE        ~  the thy no
        OLD_WORD   ~  wee old fair red kind shy
        CAT_ONE    ~  hound cat lass bird fox crow man king
        CAT_MANY   ~  hounden caten lassen birden foxen crowen men kingen
        SLEEP_ONE  ~  resteth singeth runneth sleepeth
        SLEEP_MANY ~  rest sing run sleep
        SEE_ONE    ~  heareth seeth seeketh findeth meeteth helpeth
        SEE_MANY   ~  hear see seek find meet help
        SAY_ONE    ~  saith knoweth thinketh
        SAY_MANY   ~  say know think
    """),
)


def text(dialect: Dialect, characters: int, rng: torch.Generator) -> str:
    """That many characters, beginning with a sentence; the last sentence is cut. Takes 0.3 s per million.

    Numbers are drawn from `rng` by the thousand, so the generator ends up further than the text needed. Raises
    BadArgument for a negative length.
    """
    if characters < 0:
        raise BadArgument(f"characters must be at least 0, got {characters}")
    uniform, pieces, length = _uniform(rng), list[str](), 0
    stack: list[str] = []
    while length < characters:
        symbol = stack.pop() if stack else START
        if symbol in dialect.rules:
            stack.extend(reversed(_choose(dialect.rules[symbol], next(uniform)).symbols))
        else:
            pieces.append(symbol)
            length += len(symbol)
    return "".join(pieces)[:characters]


def _choose(rules: tuple[Rule, ...], drawn: float) -> Rule:
    for rule in rules:
        drawn -= rule.probability
        if drawn < 0:
            return rule
    return rules[-1]  # the probabilities summed to a rounding less than 1


def _uniform(rng: torch.Generator) -> Iterator[float]:
    while True:
        yield from torch.rand(DRAWS, generator=rng, dtype=torch.float64, device=rng.device).tolist()


def encode(text: str) -> Tensor:
    """The index in ALPHABET of each character: int64 (characters,). Raises BadArgument for any other character."""
    unknown = set(text) - set(ALPHABET)
    if unknown:
        raise BadArgument(f"text must hold small letters, spaces and full stops, got {''.join(sorted(unknown))!r}")
    return torch.tensor([ALPHABET.index(character) for character in text], dtype=torch.int64)


def decode(tokens: Tensor) -> str:
    """The characters of indices (characters,)."""
    return "".join(ALPHABET[index] for index in tokens.tolist())


def batch(tokens: Tensor, count: int, context: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs and targets, int64 (count, context) each: windows that start with a sentence, drawn from an encoded text.

    The first input of a row is the full stop of the sentence before; its targets are a sentence and what follows. So
    every character is predicted from all of its sentence that came before, as the floor supposes. Raises BadArgument
    where no window fits.
    """
    starts = (tokens[: max(0, len(tokens) - context)] == ALPHABET.index(STOP)).nonzero().flatten()
    if not len(starts):
        raise BadArgument(f"tokens must hold a full stop and {context} more after it, got {len(tokens)} in all")
    drawn = starts[torch.randint(len(starts), (count,), generator=rng, device=rng.device).to(starts.device)]
    rows = tokens[drawn[:, None] + torch.arange(context + 1, device=tokens.device)]
    return rows[:, :-1], rows[:, 1:]
