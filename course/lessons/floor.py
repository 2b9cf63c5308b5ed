"""The least loss that any model can reach on text of the course's grammar: the floor under its loss curves.

rules --linear equations--> entropy per character         rules, text --all readings--> -log p of each character

Why the entropy is exact. A derivation is a sequence of independent choices, one per use of a nonterminal, so

    H(derivation) = sum over nonterminals of (expected uses) x (entropy of one choice).

No sentence of our dialects has two derivations, because the next word alone says which rule was used: the grammars
are LL(1), which a test proves, and such grammars are unambiguous (Rosenkrantz and Stearns 1970, Information and
Control 17, 226-256). So H(sentence) = H(derivation). A full stop ends a sentence and stands nowhere else, so a text
can be cut into sentences in one way only, and by the law of large numbers -log p of its first n characters, divided
by n, tends to

    entropy per character = H(sentence) / E[characters of a sentence]

(Soule 1974, Entropies of Probabilistic Grammars, Information and Control 25, 57-74). No model has a smaller loss in
the long run, for the difference is a Kullback-Leibler divergence (Cover and Thomas, Elements of Information Theory,
2nd ed., sections 4.2 and 5.4).

What the entropy supposes. Each character is predicted from all of its sentence that came before. A window that starts
inside a sentence is harder, for its first characters are predicted from too little: over windows of T characters cut
anywhere, a perfect model's mean loss is about E / T higher, E being the excess entropy of the source (Crutchfield and
Feldman 2003, arXiv cond-mat/0102181). Measured, E is 5.2 nats in the north and 5.8 in the south, so with T = 64 such a
loss stays about a fifth above the entropy. The windows of `batch` start with a sentence. They are still cut at their
end, and sentences begin harder than they end; that costs about 0.7 / T and 0.5 / T in long ones, at T = 64 2.1% and
1.8%. `perfect_loss` gives the floor of the very windows that a model was judged on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from course.errors import BadArgument
from course.lessons.grammar import START, Dialect, Rule, decode

State = tuple[str, tuple[str, ...]]  # the letters of the present word that are to come, and the symbols after it


def entropy_per_character(dialect: Dialect) -> float:
    """In nats: the mean loss of a perfect model over long texts. Exact up to rounding, for an unambiguous grammar.

    Raises BadArgument where the mean length of a sentence is infinite.
    """
    surprise = _per_sentence(dialect, lambda rule: -math.log(rule.probability))
    return surprise / characters_per_sentence(dialect)


def characters_per_sentence(dialect: Dialect) -> float:
    """The expected number of characters of a sentence, its full stop included. Raises BadArgument where infinite."""
    return _per_sentence(dialect, lambda rule: sum(len(s) for s in rule.symbols if s not in dialect.rules))


def _per_sentence(dialect: Dialect, cost: Callable[[Rule], float]) -> float:
    """The expected cost of a derivation: x = b + M x, with one row for each nonterminal A.

    b  the expected cost of one use of A
    M  how many of each nonterminal one use of A brings, on average
    """
    names, each = list(dialect.rules), dialect.rules.values()
    b = torch.tensor([sum(r.probability * cost(r) for r in rules) for rules in each], dtype=torch.float64)
    brings = [[sum(r.probability * r.symbols.count(name) for r in rules) for name in names] for rules in each]
    m = torch.tensor(brings, dtype=torch.float64)
    if torch.linalg.eigvals(m).abs().max() >= 1:
        raise BadArgument(f"sentences of {dialect.name} must have a finite mean length: let rules bring fewer symbols")
    return float(torch.linalg.solve(torch.eye(len(names), dtype=torch.float64) - m, b)[names.index(START)])


def surprisal(dialect: Dialect, text: str) -> Tensor:
    """-log p(character | all before it) in nats, float64 (characters,), for a text that starts with a sentence.

    The loss of a perfect model, character by character: it knows the rules, and keeps each reading of what came so
    far with its probability. On the same characters a trained model's loss minus this one is what it has yet to
    learn, without the noise of the draw. Some 6 microseconds per character. Raises BadArgument where the text leaves
    the language.
    """
    following = cache(lambda symbols: tuple(_next_words(dialect, symbols)))
    belief: dict[State, float] = {("", ()): 1.0}
    losses = []
    for index, character in enumerate(text):
        spelt: dict[State, float] = {}
        for (rest, symbols), chance in belief.items():
            for factor, word, after in following(symbols) if not rest else ((1.0, rest, symbols),):
                spelt[word, after] = spelt.get((word, after), 0.0) + chance * factor
        fits = {(word[1:], after): chance for (word, after), chance in spelt.items() if word[0] == character}
        if not fits:
            read = text[max(0, index - 20) : index + 1]
            raise BadArgument(f"text must be sentences of the {dialect.name} dialect, got {read!r} in it")
        total = sum(fits.values())
        losses.append(-math.log(total))
        belief = {state: chance / total for state, chance in fits.items()}
    return torch.tensor(losses, dtype=torch.float64)


def perfect_loss(dialect: Dialect, targets: Tensor) -> float:
    """The mean loss of a perfect model, in nats per character, on targets int64 (count, context) that `batch` drew.

    Raises BadArgument where a row does not start with a sentence of the dialect.
    """
    return torch.stack([surprisal(dialect, decode(row)) for row in targets]).mean().item()


def _next_words(dialect: Dialect, symbols: tuple[str, ...]) -> Iterator[tuple[float, str, tuple[str, ...]]]:
    """Each way to the next word: its chance, the word, and the symbols after it. After a sentence comes another."""
    first, *rest = symbols or (START,)
    if first not in dialect.rules:
        yield 1.0, first, tuple(rest)
        return
    for rule in dialect.rules[first]:
        for chance, word, after in _next_words(dialect, (*rule.symbols, *rest)):
            yield rule.probability * chance, word, after
