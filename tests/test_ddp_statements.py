"""What exercises of lesson 05 state of ranks: each statement on an account that keeps it, and on one that breaks it."""

from __future__ import annotations

import functools
import os
import random

import pytest
import torch

from course import exercises
from course.errors import WrongOutput
from course.exercises.ddp.tensors import BEYOND_FLOAT64, apart, in_the_dtype_of_each, laid, last_digits, one_tensor
from course.exercises.ddp.traffic import (
    all_of,
    at_least_in_all,
    at_most,
    in_all,
    one_message,
    to_the_next_alone,
    within,
)
from course.judging import sheet
from course.judging.judge import judge
from course.performing.perform import perform_all


def sent(*rows):
    """What three ranks sent each other."""
    return {"bytes": torch.tensor(rows), "messages": torch.tensor(rows), "makespan": 2 * one_message(0)}


RING, STAR = sent((0, 2, 0), (0, 0, 2), (2, 0, 0)), sent((0, 2, 2), (1, 0, 0), (1, 0, 0))


@pytest.mark.parametrize(
    ("statement", "kept_by", "broken_by", "words"),
    [
        (to_the_next_alone, RING, STAR, "rank 0 sent to rank 2, where rank 1 is the next"),
        (at_most(lambda inputs: 2), RING, STAR, "rank 0 sent 4 bytes, where 2 are enough"),
        (in_all(lambda inputs: 5), sent((0, 5), (0, 0)), RING, "6 messages in all, where 5 are enough"),
        (at_least_in_all(lambda inputs: 6), RING, sent((0, 5), (0, 0)), "5 bytes in all, where 6 are needed"),
        (within(lambda inputs: one_message(0)), {"makespan": one_message(0)}, RING, "20.0 microseconds"),
        (all_of(to_the_next_alone, at_most(lambda inputs: 2)), RING, STAR, "rank 0 sent to rank 2"),
        (all_of(in_all(lambda inputs: 6), to_the_next_alone), RING, STAR, "rank 0 sent to rank 2"),
    ],
)
def test_a_statement_holds_or_says_what_is_wrong(statement, kept_by, broken_by, words):
    assert statement({}, kept_by, {}) is None
    assert words in statement({}, broken_by, {})


def test_the_dtype_is_that_of_the_ranks_own_input():
    inputs = {"xs": [torch.zeros(1, dtype=torch.float16), torch.zeros(1, dtype=torch.bool)]}
    right = {f"{rank}/y": x for rank, x in enumerate(inputs["xs"])}
    statement = in_the_dtype_of_each("xs", "y")
    assert statement(inputs, right, {}) is None
    assert statement(inputs, {**right, "1/y": torch.zeros(1)}, {}) == "torch.float32 in place of torch.bool"


def test_the_last_digits_tell_whole_numbers_apart_that_are_one_in_float64():
    x = torch.tensor([BEYOND_FLOAT64])
    through_double = x.double().long()
    assert x.double().equal(through_double.double())
    assert (
        last_digits(x, x)["digits"].item() == BEYOND_FLOAT64 % 1_000 != last_digits(through_double, x)["digits"].item()
    )
    assert last_digits(x.float(), x.float()) == {}


def test_a_view_takes_the_place_of_what_was_given():
    inputs = {"x": torch.arange(6.0).view(2, 3), "lies": "strided"}
    x = laid(inputs, "x")
    assert inputs["x"] is x
    assert not x.is_contiguous()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert laid({"x": x, "lies": ""}, "x") is x


@pytest.mark.parametrize("given", [torch.tensor([0.0, 2.0]), torch.tensor([True, False]), torch.tensor([0, 3])])
def test_a_result_that_shares_memory_changes_with_what_was_given(given):
    before = given.clone()
    assert apart(given.clone(), given).equal(before)
    assert not apart(given.view(-1), given).eq(before).any()
    assert given.equal(before)


def test_what_is_no_tensor_is_told():
    with pytest.raises(WrongOutput, match="must return one tensor, got list"):
        one_tensor([torch.zeros(1)])
    with pytest.raises(WrongOutput, match="got None"):
        one_tensor(None)


def test_a_mistake_is_named_also_where_the_calls_have_another_order():
    def never_adds(comm, x):
        chunks = list(x.clone().chunk(comm.size))
        for step in range(comm.size - 1):
            came = torch.empty_like(chunks[0])
            work = comm.irecv(came, (comm.rank - 1) % comm.size)
            comm.send(chunks[(comm.rank - 1 - step) % comm.size], (comm.rank + 1) % comm.size)
            work.wait()
            chunks[(comm.rank - 2 - step) % comm.size] = came
        return chunks[comm.rank]

    exercise = exercises.load("ddp.ring_reduce_scatter")
    record = sheet.load("ddp")["ddp.ring_reduce_scatter"]
    seen = perform_all(exercise, never_adds, record.cases)
    assert judge(exercise, record.cases, seen, record.references, record.suspects).diagnosis.name == "never_adds"


def test_shards_of_no_samples_earn_nothing():
    exercise, record = exercises.load("ddp.shard_indices"), sheet.load("ddp")["ddp.shard_indices"]
    seen = perform_all(exercise, lambda n, rank, size, seed, epoch: [], record.cases)
    assert judge(exercise, record.cases, seen, record.references).points == 0


KEPT = {}


def drawn(n):
    return random.SystemRandom().sample(range(n), n)


@functools.cache
def drawn_once(n, seed, epoch):
    return drawn(n)


def dealt(order, rank, size):
    return [order[place % len(order)] for place in range(rank, -(-len(order) // size) * size, size)]


def in_a_cache(n, rank, size, seed, epoch):
    return dealt(drawn_once(n, seed, epoch), rank, size)


def in_a_dict(n, rank, size, seed, epoch):
    return dealt(KEPT.setdefault((n, seed, epoch), drawn(n)), rank, size)


def in_a_default(n, rank, size, seed, epoch, kept={}):  # noqa: B006
    return dealt(kept.setdefault((n, seed, epoch), drawn(n)), rank, size)


def by_the_process(n, rank, size, seed, epoch):
    return dealt(random.Random(f"{seed}, {epoch}, {os.getpid()}").sample(range(n), n), rank, size)


@pytest.mark.parametrize("answer", [in_a_cache, in_a_dict, in_a_default, by_the_process])
def test_an_order_that_one_process_keeps_is_none_of_all(answer):
    exercise, record = exercises.load("ddp.shard_indices"), sheet.load("ddp")["ddp.shard_indices"]
    findings = judge(exercise, record.cases, perform_all(exercise, answer, record.cases), record.references).findings
    assert [each.property for each in findings if not each.held] == ["in_every_process"]
