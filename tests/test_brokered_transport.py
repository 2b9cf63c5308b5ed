"""`run_ranks` on brokered ranks: the same function as on simulated ones, also from a notebook's cells."""

from __future__ import annotations

import functools

import nbformat
import pytest
import torch
from gloo_room import torchs_verbs
from nbclient import NotebookClient

from autograder.sandbox import Brokered
from course.cluster import RanksFailed, Simulated, run_ranks
from course.cluster.account.ledger import costs
from course.errors import BadArgument

pytestmark = pytest.mark.sandbox

SHARE = 0.5


def half(comm, x, factor=1.0):
    """Everybody's x, summed around the ring, times a constant of this module."""
    total, came = x.clone(), x.clone()
    for _ in range(comm.size - 1):
        comm.send(came, (comm.rank + 1) % comm.size)
        comm.recv(came, (comm.rank - 1) % comm.size)
        total += came
    return total * SHARE * factor


def ties(comm):
    """Ranks that do all at the same times: nearly every call has a rival."""
    x, heard = torch.full((8,), float(comm.rank)), []
    begun = comm.all_reduce(x.clone(), async_op=True)
    for other in range(comm.size):
        if other != comm.rank:
            comm.send(x, other)
    heard += [comm.recv(torch.empty(8)) for _ in range(comm.size - 1)]
    comm.compute(1.0, "together")
    pair = comm.subgroup([comm.rank // 2 * 2, comm.rank // 2 * 2 + 1])
    pair.all_reduce(x)
    inbox = torch.empty(8)
    later = comm.irecv(inbox, (comm.rank - 1) % comm.size)
    asked = later.is_completed()
    comm.isend(x, (comm.rank + 1) % comm.size).wait()
    begun.wait()
    comm.compute(0.5 * (comm.rank % 2))
    asked = [asked, later.is_completed(), later.is_completed()]
    while not later.is_completed():
        asked.append(False)
    later.wait()
    if comm.rank % 2:
        comm.compute(0.25 * comm.rank)
        comm.isend(x, comm.rank - 1)
    else:
        polled = [comm.irecv(torch.empty(8), comm.rank + 1), comm.irecv(torch.empty(8), comm.rank + 1)]
        while not polled[0].is_completed():
            asked.append(polled[1].is_completed())
        comm.send(x, comm.rank + 1)
    if comm.rank % 2:
        comm.recv(inbox, comm.rank - 1)
        comm.send(inbox, comm.rank - 1)
    else:
        for work in polled:
            work.wait()
    if comm.rank:
        comm.send(inbox, 0)
    else:
        heard += [comm.recv(inbox) for _ in range(comm.size - 1)]
    again, some = comm.subgroup(pair.ranks), comm.subgroup(pair.ranks)
    again.isend(x, 1 - pair.rank, tag=2**31 - 1)
    some.isend(x, 1 - pair.rank, tag=5)
    begun = [pair.barrier(async_op=True), again.barrier(async_op=True)]
    heard += [some.recv(inbox, tag=5), again.recv(inbox, 1 - pair.rank, tag=2**31 - 1)]
    for work in begun:
        work.wait()
    early = comm.irecv(inbox)
    try:
        heard.append(int(early.wait(0.25)))
    except RuntimeError:
        heard.append(-1)
    comm.compute(0.125 * comm.rank)
    comm.batch_isend_irecv([comm.P2POp(comm.isend, x, (comm.rank + 1) % comm.size)])
    heard += [int(early.wait(100.0)), early.source_rank()]
    asked.append(bool(comm.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] is x).wait()))
    works = [comm.gather(x, [torch.empty(8) for _ in range(comm.size)] if comm.rank == 0 else None, async_op=True)]
    works += [comm.scatter(inbox, [x] * comm.size if comm.rank == 0 else None, async_op=True)]
    works += [comm.barrier(async_op=True)]
    for work in works:
        work.wait()
    return {"heard": torch.tensor(heard), "asked": torch.tensor(asked), "x": x}


def several(comm):
    """Not one tensor."""
    same = {"none": None, "empty": [[], {}], "numbers": [1, 2.5, True], "pair": ("a", [1])}
    return {"rank": comm.rank, "parts": [torch.ones(2), "text"]} | same


def nested(comm):
    """Another structure on every rank."""
    return [[1, None]] if comm.rank else (0,)


def fails(comm):
    """One rank raises."""
    if comm.rank == 1:
        raise ValueError("no")
    comm.barrier()


def pipes(comm):
    import os
    import stat

    found = 0
    for descriptor in range(100):
        try:
            found += stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        except OSError:  # closed
            continue
    return found


@pytest.fixture(scope="module")
def brokered():
    """One warm process for all tests of this file."""
    with Brokered() as opened:
        yield opened


def test_values_and_bytes_are_those_of_simulated_ranks(brokered):
    inputs = [(torch.arange(5.0) + rank, 2.0) for rank in range(3)]
    ours, theirs = (run_ranks(half, 3, inputs=inputs, transport=each) for each in ("simulated", brokered))
    assert all(map(torch.equal, ours.values, theirs.values))
    assert torch.equal(costs(ours.ledger)["bytes"], costs(theirs.ledger)["bytes"])
    assert ours.ledger.makespan == theirs.ledger.makespan


def test_ties_are_broken_as_on_simulated_ranks(brokered):
    ours, theirs = (run_ranks(ties, 6, transport=each) for each in ("simulated", brokered))
    for mine, other in zip(ours.values, theirs.values, strict=True):
        assert all(torch.equal(mine[key], other[key]) for key in mine)
    assert ours.ledger == theirs.ledger  # events in their order, waits, bytes, messages and clocks
    assert ours.ledger.events != run_ranks(ties, 6, transport=Simulated(seed=1)).ledger.events


def test_what_torch_programs_call_does_what_it_does_on_simulated_ranks(brokered):
    ours, theirs = (run_ranks(torchs_verbs, 3, transport=each) for each in ("simulated", brokered))
    assert all(all(map(torch.equal, mine, other)) for mine, other in zip(ours.values, theirs.values, strict=True))
    assert ours.ledger.messages == theirs.ledger.messages  # a pickle's bytes depend on which texts are one object


def test_what_is_returned_keeps_its_structure(brokered):
    found = run_ranks(several, 2, transport=brokered).values[1]
    parts = found.pop("parts")
    assert found == {"rank": 1, "none": None, "empty": [[], {}], "numbers": [1, 2.5, True], "pair": ["a", [1]]}
    assert (parts[0].tolist(), parts[1]) == ([1.0, 1.0], "text")
    assert [type(each) for each in found["numbers"]] == [int, float, bool]
    assert run_ranks(nested, 2, transport=brokered).values == [[0], [[1, None]]]


def test_a_rank_can_reach_no_pipe_of_the_warm_process(brokered):
    assert run_ranks(pipes, 4, transport=brokered).values == [0, 0, 0, 0]


def begins(comm, calls, numbers):
    """Many calls before it waits for one: more than one message may hold."""
    given = [torch.full((numbers,), float(comm.rank + at)) for at in range(calls)]
    works = [comm.all_reduce(each, async_op=True) for each in given]
    for work in works:
        work.wait()
    return [each[0].item() for each in given]


@pytest.mark.parametrize(("calls", "numbers"), [(4, 2**21), (2_500, 1)], ids=["large", "many"])
def test_what_is_begun_may_be_more_than_one_message_holds(brokered, calls, numbers):
    run = run_ranks(begins, 2, transport=brokered, inputs=[(calls, numbers)] * 2)
    assert run.values == [[2.0 * at + 1 for at in range(calls)]] * 2


def test_a_failure_names_the_rank(brokered):
    with pytest.raises(RanksFailed, match="rank 1 raised ValueError: no") as caught:
        run_ranks(fails, 3, transport=brokered)
    assert caught.value.rank == 1
    assert caught.value.ledger is not None


def asks_torch(comm):
    """Wants the default group."""
    torch.distributed.all_reduce(torch.ones(1))


def wraps_in_ddp(comm):
    """Wants it, too."""
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("program", [asks_torch, wraps_in_ddp])
def test_torch_distributed_on_brokered_ranks_is_told_where_it_works(brokered, program):
    with pytest.raises(RanksFailed, match=r'torch\.distributed needs transport="gloo"'):
        run_ranks(program, 2, transport=brokered)


@torch.no_grad()
def decorated(comm, x):
    """With a decorator."""
    print("x is", x.item(), torch.is_grad_enabled())
    return x * comm.size


def conjugates(comm):
    """What lies in memory is another number than what the tensor holds."""
    x = (torch.tensor([1 + 2j, 3j]) * (1 + comm.rank)).conj()
    y, minus = torch.zeros(2, dtype=torch.complex64).conj(), torch._neg_view(torch.ones(2))
    comm.send(x, 1 - comm.rank)
    comm.recv(y, 1 - comm.rank)
    comm.all_reduce(x)
    comm.broadcast(minus, 0)
    return x.resolve_conj(), y.resolve_conj(), minus.resolve_neg()


def test_a_conjugate_is_sent_and_received_by_its_values(brokered):
    here, there = run_ranks(conjugates, 2), run_ranks(conjugates, 2, transport=brokered)
    torch.testing.assert_close(there.values, list(map(list, here.values)), rtol=0, atol=0)
    assert [each.tolist() for each in here.values[0]] == [[3 - 6j, -9j], [2 - 4j, -6j], [-1, -1]]


def test_a_decorated_function_runs_and_what_it_prints_comes_out(brokered, capsys):
    run = run_ranks(decorated, 2, transport=brokered, inputs=[(torch.tensor(float(rank)),) for rank in range(2)])
    assert [each.item() for each in run.values] == [0.0, 2.0]
    assert capsys.readouterr().out == "[rank 0] x is 0.0 False\n[rank 1] x is 1.0 False\n"


def test_functions_that_no_sandbox_can_define_are_refused(brokered):
    def inner(comm):
        return comm.rank

    for function in (lambda comm: comm.rank, inner, functools.partial(half, factor=2.0)):
        with pytest.raises(BadArgument, match="must be defined with `def` at the left margin"):
            run_ranks(function, 2, transport=brokered)


def test_inputs_that_a_stranger_could_not_be_sent_are_refused(brokered):
    with pytest.raises(BadArgument, match="must be tensors, numbers, texts, or lists and dicts of them, got Linear"):
        run_ranks(half, 1, transport=brokered, inputs=[([torch.nn.Linear(1, 1)],)])


def test_verbs_that_are_not_offered_are_refused(brokered):
    with pytest.raises(RanksFailed, match="recv must not be used here, only send"):
        run_ranks(half, 2, transport=brokered, verbs=("send",), inputs=[(torch.ones(2),)] * 2)


NOTEBOOK = (
    "import torch\nfrom course.cluster import run_ranks\nfrom autograder.sandbox import Brokered\nSTART = 0",
    "def place(step, comm):\n    return (comm.rank - step - START) % comm.size",
    """
def ring_all_reduce(comm, x):
    pieces = list(torch.cat([x, x.new_zeros(-len(x) % comm.size)]).chunk(comm.size))
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(2 * (comm.size - 1)):
        comm.send(pieces[place(step, comm)], after)
        came = torch.empty_like(pieces[0])
        comm.recv(came, before)
        if step < comm.size - 1:
            came += pieces[place(step + 1, comm)]
        pieces[place(step + 1, comm)] = came
    return torch.cat(pieces)[: len(x)]
""",
    """
inputs = [(torch.arange(10.0) * (rank + 1),) for rank in range(4)]
names = ["simulated", "gloo"] + ["nccl"] * (torch.cuda.device_count() >= 4)
with Brokered() as brokered:
    for transport in [*names, brokered]:
        run = run_ranks(ring_all_reduce, 4, inputs=inputs, transport=transport)
        sent = [sorted(each.items()) for each in (run.ledger.sent, run.ledger.messages)]
        print([each.tolist() for each in run.values], sent)
""",
)


@pytest.mark.soak
def test_one_function_of_a_notebook_runs_unchanged_on_every_transport():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in NOTEBOOK])
    NotebookClient(notebook, timeout=120).execute()
    simulated, *others = "".join(each.text for each in notebook.cells[-1].outputs).splitlines()
    assert len(others) >= 2
    assert set(others) == {simulated}
    assert str([float(10 * value) for value in range(10)]) in simulated
    assert "((0, 1), 72)" in simulated
