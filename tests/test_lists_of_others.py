"""What other ranks than the root give for its list is ignored on every transport, also where torch refuses it."""

from __future__ import annotations

import pytest
import torch
from gloo_room import by_value, gloo

from autograder.sandbox import Brokered
from course.cluster import run_ranks

by_value(__name__)

RANKS, ROOT = 3, 1


def gather(verbs, rank, given):
    """What has come into the root's list, rank by rank."""
    come = [torch.zeros(2) for _ in range(3)] if rank == 1 else given
    verbs.gather(torch.full((2,), float(rank)), come, 1)
    return [int(each[0]) for each in come] if rank == 1 else []


def scatter(verbs, rank, given):
    """What this rank has received."""
    out = torch.zeros(2)
    verbs.scatter(out, [torch.full((2,), float(place)) for place in range(3)] if rank == 1 else given, 1)
    return [int(out[0])]


def gather_object(verbs, rank, given):
    """As gather."""
    come = [None] * 3 if rank == 1 else given
    verbs.gather_object(rank, come, 1)
    return come if rank == 1 else []


def scatter_object_list(verbs, rank, given):
    """As scatter."""
    out = [None]
    verbs.scatter_object_list(out, [0, 1, 2] if rank == 1 else given, 1)
    return out


def with_every_list(comm, is_torch):
    """By verb and by what the others give: what each function returns, and in which words the list was refused."""
    verbs, found = torch.distributed if is_torch else comm, {}
    lists = {"nothing": None, "an empty list": [], "a list": [torch.ones(2)] * 3, "a short list": [torch.ones(2)]}
    for verb in (gather, scatter, gather_object, scatter_object_list):
        for name, given in lists.items():
            said = ""
            try:
                come = verb(verbs, comm.rank, given)
            except ValueError as error:  # nothing was sent: the rank may call again
                said, come = str(error), verb(verbs, comm.rank, None)
            found[f"{verb.__name__} with {name}"] = [come, said]
    return found


TRANSPORTS = ("simulated", "gloo", "torch's own", pytest.param("brokered", marks=pytest.mark.sandbox))


@pytest.fixture(scope="module", params=TRANSPORTS)
def ran(request):
    """A transport, and what every rank says on it."""
    inputs = [(request.param == "torch's own",)] * RANKS
    if request.param == "brokered":
        with Brokered() as brokered:
            return request.param, run_ranks(with_every_list, RANKS, transport=brokered, inputs=inputs).values
    run = run_ranks if request.param == "simulated" else gloo
    return request.param, run(with_every_list, RANKS, inputs=inputs).values


VERBS = ("gather", "scatter", "gather_object", "scatter_object_list")
REFUSED = {"nothing": (), "an empty list": (), "a list": VERBS[:3], "a short list": VERBS[:3]}  # by torch


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("given", REFUSED)
def test_what_others_give_is_ignored(ran, verb, given):
    transport, found = ran
    for rank, of_rank in enumerate(found):
        come, said = of_rank[f"{verb} with {given}"]
        assert come == ([rank] if "scatter" in verb else [0, 1, 2] if rank == ROOT else [])
        assert bool(said) == (transport == "torch's own" and rank != ROOT and verb in REFUSED[given])
