"""Random numbers of cases: what is seen of one exercise's tells nothing of another's."""

from __future__ import annotations

import itertools

import pytest
import torch

from course.performing.draws import HEADER, WORDS, generator

SECRET = 2**127 + 20_220


def words(rng: torch.Generator) -> list[int]:
    """The state of the Mersenne Twister."""
    return rng.get_state()[HEADER : HEADER + 8 * WORDS].view(torch.int64).tolist()


def test_the_same_seed_and_name_draw_the_same():
    assert torch.equal(
        torch.rand(9, generator=generator(SECRET, "a.b")), torch.rand(9, generator=generator(SECRET, "a.b"))
    )


@pytest.mark.parametrize("seed", [0, 20_220, 2**32 - 1])
def test_a_seed_that_torch_takes_whole_is_torchs(seed):
    assert words(generator(seed, "a.b")) == words(torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", [SECRET + 1, SECRET + 2**32, SECRET + 2**64, SECRET - 2**127 + 2**126])
def test_every_bit_of_a_secret_seed_counts(seed):
    assert words(generator(seed, "a.b")) != words(generator(SECRET, "a.b"))


def test_exercises_share_no_word_of_a_state():
    states = [set(words(generator(SECRET, name))) for name in ("a.b", "a.c", "d.e")]
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(states, 2))
    assert all(len(state) == WORDS for state in states)


def test_no_state_is_one_that_torch_makes_of_a_seed():
    """torch fills a state from its first word, 32 bits of the seed, by one rule (mt19937's own)."""
    first, second, *_ = words(generator(SECRET, "a.b"))
    assert second != (1_812_433_253 * (first ^ (first >> 30)) + 1) % 2**32
    torchs, follows, *_ = words(torch.Generator().manual_seed(first))
    assert (torchs, follows) == (first, (1_812_433_253 * (first ^ (first >> 30)) + 1) % 2**32)


def test_what_is_drawn_first_comes_from_the_words_that_were_put_there():
    """By hand: the first word of the twisted state, tempered (Matsumoto and Nishimura 1998, section 2)."""
    rng = generator(SECRET, "a.b")
    state = words(rng)
    mixed = (state[0] & 0x80000000) | (state[1] & 0x7FFFFFFF)
    y = state[397] ^ (mixed >> 1) ^ (0x9908B0DF if state[1] & 1 else 0)
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    y ^= y >> 18
    assert torch.rand((), generator=rng).item() == (y % 2**24) / 2**24
