"""Random numbers of cases: what is seen of some tells nothing of others."""

from __future__ import annotations

import itertools

import pytest
import torch

from course.performing.draws import HEADER, WORDS, drawing, near_one, signs

SECRET = 2**127 + 20_220


def words(rng: torch.Generator) -> list[int]:
    """The state of the Mersenne Twister."""
    return rng.get_state()[HEADER : HEADER + 8 * WORDS].view(torch.int64).tolist()


def states(seed: int, name: str = "a.b", calls: int = 1) -> list[list[int]]:
    """From which so many calls draw: these take no number, so that the state is still what it was."""
    found = []
    with drawing(seed, name) as rng:
        for _ in range(calls):
            torch.rand(0, generator=rng)
            found.append(words(rng))
    return found


def drawn(seed: int, name: str = "a.b") -> torch.Tensor:
    """The numbers of two calls."""
    with drawing(seed, name) as rng:
        return torch.stack([torch.rand(9, generator=rng), torch.empty(9).uniform_(generator=rng)])


def test_the_same_seed_and_name_draw_the_same():
    assert torch.equal(drawn(SECRET), drawn(SECRET))


@pytest.mark.parametrize("seed", [0, 20_220, 2**32 - 1])
def test_a_seed_that_torch_takes_whole_is_torchs(seed):
    assert torch.equal(drawn(seed).flatten(), torch.rand(18, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("seed", [SECRET + 1, SECRET + 2**32, SECRET + 2**64, SECRET - 2**127 + 2**126])
def test_every_bit_of_a_secret_seed_counts(seed):
    assert states(seed) != states(SECRET)


def test_exercises_and_calls_share_no_word_of_a_state():
    found = [set(state) for name in ("a.b", "a.c", "d.e") for state in states(SECRET, name, calls=3)]
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(found, 2))
    assert all(len(state) == WORDS for state in found)


def test_who_knows_the_state_after_a_call_does_not_know_what_the_next_one_draws():
    with drawing(SECRET, "a.b") as rng:
        torch.randn(1_000, generator=rng)
        known = torch.Generator().set_state(rng.get_state())
        assert not torch.equal(torch.rand(9, generator=rng), torch.rand(9, generator=known))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8])
def test_signs_are_of_both_kinds_where_there_are_two(count):
    rng = torch.Generator().manual_seed(count)
    found = [signs(rng, count).tolist() for _ in range(40)]
    assert {sign for each in found for sign in each} == ({-1.0, 1.0} if count else set())
    assert all(len({*each}) == min(count, 2) for each in found)


def test_numbers_near_one_have_the_signs_of_their_columns():
    rng = torch.Generator().manual_seed(1)
    x = near_one(rng, torch.tensor([1.0, -1.0]), 50, 2, dtype=torch.float16)
    assert (x.dtype, x.shape) == (torch.float16, (50, 2))
    assert ((x * torch.tensor([1.0, -1.0]) >= 0.5) & (x.abs() <= 1.5)).all()


def test_no_state_is_one_that_torch_makes_of_a_seed():
    """torch fills a state from its first word, 32 bits of the seed, by one rule (mt19937's own)."""
    ((first, second, *_),) = states(SECRET)
    assert second != (1_812_433_253 * (first ^ (first >> 30)) + 1) % 2**32
    torchs, follows, *_ = words(torch.Generator().manual_seed(first))
    assert (torchs, follows) == (first, (1_812_433_253 * (first ^ (first >> 30)) + 1) % 2**32)


def test_what_is_drawn_first_comes_from_the_words_that_were_put_there():
    """By hand: the first word of the twisted state, tempered (Matsumoto and Nishimura 1998, section 2)."""
    (state,) = states(SECRET)
    mixed = (state[0] & 0x80000000) | (state[1] & 0x7FFFFFFF)
    y = state[397] ^ (mixed >> 1) ^ (0x9908B0DF if state[1] & 1 else 0)
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    y ^= y >> 18
    with drawing(SECRET, "a.b") as rng:
        assert torch.rand((), generator=rng).item() == (y % 2**24) / 2**24
