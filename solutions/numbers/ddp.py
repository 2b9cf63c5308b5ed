"""Numbers that the prose of lesson 05 repeats (`autograder/release/numbers.py`)."""

from __future__ import annotations

import math

from course.lessons.experiments import assembled_ddp, imagenet_hour, stale_gradients

GIVEN = {
    "25": "a bandwidth in a question, and the size of DDP's buckets in MiB (its documentation)",
}

stale = stale_gradients.recorded().data


def best_rate(age: int) -> float:
    """The rate with the least loss, for gradients of this age."""
    return stale.best(age)[0]


def best_loss(age: int) -> float:
    """That loss in nats."""
    return stale.best(age)[1]


def best_together(workers: int) -> float:
    """The least loss of so many workers that wait for one another, from as many samples."""
    return stale.together[stale.staleness.index(workers - 1)]


def guessed() -> float:
    """The loss of one who guesses among ten classes, in nats."""
    return math.log(10)


def shards() -> str:
    """How many sequences each worker has."""
    *some, last = map(str, assembled_ddp.SHARDS)
    return f"{', '.join(some)} and {last}"


def latency_ms() -> float:
    """Of the slow links."""
    return assembled_ddp.LINK.latency * 1e3


def bandwidth_mb() -> float:
    """Of the slow links, MB/s."""
    return assembled_ddp.LINK.bandwidth / 1e6


def hours(gpus: int) -> float:
    """Of the published run."""
    return imagenet_hour.HOURS[gpus]


def hour_published() -> float:
    """How much of the ideal speed it had."""
    return imagenet_hour.published()
