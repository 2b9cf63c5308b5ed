"""Every verb against its definition, on simulated ranks: values, places, and who keeps what."""

from __future__ import annotations

import pytest
import torch
from collectives import Case, cases, laid, reduced, same, share_nothing
from gloo_room import torchs_verbs
from hypothesis import given

from course.cluster import RanksFailed, run_ranks


@given(cases(reducing=True))
def test_all_reduce_gives_every_rank_the_reduced_tensor_in_place(case: Case):
    def step(comm):
        x = case.tensor(comm.rank)
        assert comm.all_reduce(x, case.op) is None
        return x

    got = case.run(step)
    wanted = reduced(case.op, [case.values(rank) for rank in range(case.size)])
    assert all(same(each, wanted) for each in got)
    assert share_nothing(got)


@given(cases(reducing=True))
def test_reduce_changes_the_tensor_of_dst_alone(case: Case):
    def step(comm):
        x = case.tensor(comm.rank)
        comm.reduce(x, case.root, case.op)
        return x

    got = case.run(step)
    for rank, each in enumerate(got):
        whole = reduced(case.op, [case.values(other) for other in range(case.size)])
        assert same(each, whole if rank == case.root else case.values(rank))


@given(cases())
def test_broadcast_gives_every_rank_the_tensor_of_src(case: Case):
    def step(comm):
        x = case.tensor(comm.rank)
        comm.broadcast(x, case.root)
        if comm.rank == case.root:
            x.detach().fill_(1)  # after the call, so nobody else's
        return x

    got = case.run(step)
    assert all(same(each, case.values(case.root)) for rank, each in enumerate(got) if rank != case.root)
    assert share_nothing(got)


@given(cases())
def test_all_gather_gives_every_rank_all_tensors_and_keeps_what_was_given(case: Case):
    def step(comm):
        x, out = case.tensor(comm.rank), [case.empty() for _ in range(comm.size)]
        comm.all_gather(out, x)
        kept = same(x, case.values(comm.rank))
        x.detach().fill_(0)
        return kept, out

    got = case.run(step)
    assert all(kept for kept, _ in got)
    assert all(same(out[rank], case.values(rank)) for _, out in got for rank in range(case.size))
    assert share_nothing([each for _, out in got for each in out])


@given(cases())
def test_all_gather_single_puts_the_tensors_one_after_the_other(case: Case):
    if not case.shape:
        return

    def step(comm):
        out = laid(torch.ones(comm.size * case.shape[0], *case.shape[1:], dtype=case.dtype), case.layout)
        comm.all_gather_single(out, case.tensor(comm.rank))
        return out

    wanted = torch.cat([case.values(rank) for rank in range(case.size)])
    assert all(same(each, wanted) for each in case.run(step))


@given(cases(reducing=True))
def test_reduce_scatter_gives_rank_r_the_reduced_piece_r(case: Case):
    def step(comm):
        x, pieces = case.empty(), [case.tensor(comm.rank, place) for place in range(comm.size)]
        comm.reduce_scatter(x, pieces, case.op)
        assert all(same(each, case.values(comm.rank, place)) for place, each in enumerate(pieces))
        return x

    got = case.run(step)
    for place, each in enumerate(got):
        assert same(each, reduced(case.op, [case.values(rank, place) for rank in range(case.size)]))
    assert share_nothing(got)


@given(cases(reducing=True))
def test_reduce_scatter_single_cuts_one_tensor_along_its_first_dim(case: Case):
    if not case.shape:
        return

    def step(comm):
        x = case.empty()
        whole = laid(torch.cat([case.values(comm.rank, p) for p in range(comm.size)]), case.layout)
        comm.reduce_scatter_single(x, whole, case.op)
        return x

    for place, each in enumerate(case.run(step)):
        assert same(each, reduced(case.op, [case.values(rank, place) for rank in range(case.size)]))


@given(cases())
def test_all_to_all_turns_rows_into_columns(case: Case):
    def step(comm):
        out, pieces = [case.empty() for _ in range(comm.size)], [case.tensor(comm.rank, p) for p in range(comm.size)]
        comm.all_to_all(out, pieces)
        return out

    got = case.run(step)
    assert all(same(out[src], case.values(src, dst)) for dst, out in enumerate(got) for src in range(case.size))
    assert share_nothing([each for out in got for each in out])


@given(cases())
def test_all_to_all_moves_pieces_of_unequal_sizes(case: Case):
    def step(comm):
        out = [torch.zeros(src + 2 * comm.rank) for src in range(comm.size)]
        comm.all_to_all(out, [torch.full((comm.rank + 2 * dst,), 1.0 + comm.rank) for dst in range(comm.size)])
        return out

    for dst, out in enumerate(case.run(step)):
        assert all(same(each, torch.full((src + 2 * dst,), 1.0 + src)) for src, each in enumerate(out))


@given(cases())
def test_gather_gives_dst_all_tensors(case: Case):
    def step(comm):
        out = [case.empty() for _ in range(comm.size)] if comm.rank == case.root else None
        comm.gather(case.tensor(comm.rank), out, case.root)
        return out

    got = case.run(step)
    assert all(same(each, case.values(rank)) for rank, each in enumerate(got[case.root]))


@given(cases())
def test_scatter_gives_rank_r_piece_r_of_src(case: Case):
    def step(comm):
        x = case.empty()
        pieces = [case.tensor(comm.rank, p) for p in range(comm.size)] if comm.rank == case.root else None
        comm.scatter(x, pieces, case.root)
        for each in pieces or ():
            each.detach().fill_(0)
        return x

    got = case.run(step)
    assert all(same(each, case.values(case.root, place)) for place, each in enumerate(got))


@given(cases())
def test_a_message_around_the_ring_arrives_and_leaves_what_was_sent_as_it_was(case: Case):
    def step(comm):
        x, came = case.tensor(comm.rank), case.empty()
        if comm.size == 1:
            return came, x
        comm.send(x, (comm.rank + 1) % comm.size)
        kept = x.detach().clone()
        x.detach().fill_(0)  # eager: the copy is made already
        assert comm.recv(came, (comm.rank - 1) % comm.size) == (comm.rank - 1) % comm.size
        return came, kept

    for rank, (came, kept) in enumerate(case.run(step)):
        if case.size > 1:
            assert same(came, case.values((rank - 1) % case.size))
            assert same(kept, case.values(rank))


def test_a_result_counts_as_a_change_for_autograd():
    def step(comm):
        w = torch.ones(2, requires_grad=True)
        x = w * 3
        y = (x * x).sum()
        comm.all_reduce(x)
        y.backward()

    with pytest.raises(RanksFailed, match="modified by an inplace operation"):
        run_ranks(step, 2)


def test_one_collective_may_be_all_gather_here_and_all_gather_single_there():
    def step(comm):
        if comm.rank:
            out = [torch.zeros(1), torch.zeros(1)]
            comm.all_gather(out, torch.ones(1))
            return torch.cat(out).tolist()
        out = torch.zeros(2)
        comm.all_gather_single(out, torch.zeros(1))
        return out.tolist()

    assert run_ranks(step, 2).values == [[0.0, 1.0]] * 2


def test_a_mean_of_half_precision_is_taken_in_half_precision():
    def step(comm):
        x = torch.full((1,), 40_000.0, dtype=torch.float16)
        comm.all_reduce(x, "mean")
        return x.item()

    assert run_ranks(step, 2).values == [float("inf")] * 2  # 80,000 is more than float16 holds


def test_what_torch_programs_call_gives_what_it_says():
    for size in (1, 2, 4):
        ran = run_ranks(torchs_verbs, size)
        sums = torch.tensor([size + 1j * size * (size - 1) / 2, size * (2 - 1j)], dtype=torch.complex64)
        for me, found in enumerate(ran.values):
            objects, told, ragged, equal, mean, product, whole, again, by_op, *rest = found
            assert (bool(objects), told.numel()) == (True, size)
            counts = [[(rank + 2 * place) % 3 for place in range(size)] for rank in range(size)]
            sent = [
                (torch.arange(2.0 * sum(row)).view(-1, 2) + 100 * rank).split(row) for rank, row in enumerate(counts)
            ]
            assert torch.equal(ragged.real, torch.cat([pieces[me] for pieces in sent]))
            wanted = [2 * me + place + 10 * rank for rank in range(size) for place in range(2)]
            assert equal.real.tolist() == wanted
            assert torch.equal(whole, sums)
            assert torch.equal(mean, sums / size)
            assert torch.equal(again, mean)
            factors = torch.tensor([[1 + 1j * rank, 2 - 1j] for rank in range(size)], dtype=torch.complex64)
            torch.testing.assert_close(product, factors.prod(0), rtol=0, atol=1e-4)
            assert torch.equal(by_op, product)
            largest = size - 1 if me == 0 else me
            assert [each.real.tolist() for each in rest[:2]] == [
                [largest, 0 if me == 0 else -me],
                [0 if me == 0 else me, -largest],
            ]
            assert rest[2].real.tolist() == [1.0] * size
            assert torch.equal(rest[3], torch.tensor([1, 2 - 1j], dtype=torch.complex64))


def test_an_object_that_comes_is_a_copy():
    def step(comm):
        kept = {"list": [comm.rank]}
        found = [None, None]
        comm.all_gather_object(found, kept)
        kept["list"].append("later")
        return found

    assert run_ranks(step, 2).values == [[{"list": [0]}, {"list": [1]}]] * 2


def test_what_objects_cost_is_in_the_ledger():
    def step(comm):
        comm.broadcast_object_list([b"x" * 10_000, 1], 1)

    ledger = run_ranks(step, 3).ledger
    assert [event.verb for event in ledger.events if event.rank == 0] == ["broadcast", "broadcast"]
    assert sum(map(ledger.bytes_sent, range(3))) > 2 * 10_000


@pytest.mark.parametrize(
    "program",
    [
        lambda comm: torch.distributed.all_reduce(torch.ones(1)),
        lambda comm: torch.distributed.init_process_group("gloo"),
        lambda comm: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1)),
        lambda comm: torch.distributed.fsdp.fully_shard(torch.nn.Linear(1, 1)),
    ],
)
def test_torch_distributed_on_simulated_ranks_is_told_where_it_works(program):
    with pytest.raises(RanksFailed, match=r'torch\.distributed needs transport="gloo"'):
        run_ranks(program, 2)
