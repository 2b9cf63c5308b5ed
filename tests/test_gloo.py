"""Ranks that are processes over gloo have the values and bytes of simulated ranks."""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch
from gloo_room import LIMIT, both, by_value, every_verb, gloo, ring_all_reduce, torchs_verbs

from course.cluster import run_ranks

by_value(__name__)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_ring_all_reduce_has_the_values_and_bytes_of_simulated_ranks(ranks):
    inputs = [(torch.arange(24.0) * (rank + 1),) for rank in range(ranks)]
    run = both(ring_all_reduce, ranks, inputs=inputs)
    assert torch.equal(run.values[0], sum(x for (x,) in inputs))
    assert run.ledger.bytes_sent(0) == 2 * (ranks - 1) * 24 // ranks * 4


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_verb_does_what_it_does_on_simulated_ranks(ranks):
    both(every_verb, ranks)


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_torch_programs_call_does_what_it_does_on_simulated_ranks(ranks):
    real, simulated = gloo(torchs_verbs, ranks), run_ranks(torchs_verbs, ranks)
    torch.testing.assert_close(real.values, simulated.values, rtol=0, atol=0)
    assert real.ledger.messages == simulated.ledger.messages  # a pickle's bytes depend on which texts are one object


def test_every_reducible_dtype_is_reduced():
    def reduced(comm):
        from collectives import ops_of

        from course.cluster.calls import REDUCIBLE

        found = []
        for dtype in REDUCIBLE:
            for op in ops_of(dtype):
                for turn in (1, 1j) if dtype.is_complex else (1,):
                    x = (torch.tensor([comm.rank % 2, 2, 3 + comm.rank]) * turn).to(dtype)
                    out = torch.empty(1, dtype=dtype)
                    comm.all_reduce(x, op=op)
                    comm.reduce_scatter(out, [x[:1], x[1:2], x[2:]], op=op)
                    comm.reduce(x, dst=1, op=op)
                    found += [x, out]
        return found

    both(reduced, 3)


def test_a_nan_of_one_rank_is_the_maximum_and_the_minimum_of_all():
    def combined(comm):
        found = []
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            for op, limit in (("max", torch.inf), ("min", -torch.inf)):
                for who in range(comm.size):
                    x = torch.tensor([-1.5, -0.0, 0.0, 7, -limit, limit, 1]).to(dtype) * (1 + comm.rank)
                    x[-1] = torch.nan if comm.rank == who else limit
                    for begun in (False, True):
                        whole, here = x.clone(), x.clone()
                        work = comm.all_reduce(whole, op, async_op=begun)
                        if begun:
                            work.wait()
                        comm.reduce(here, 1, op)
                        found += [each.nan_to_num(nan=42) for each in (whole, here)]
        return found

    both(combined, 3)


def test_what_is_returned_comes_back_as_it_is():
    def returned(comm):
        itself = [comm.rank]
        itself.append(itself)
        return itself, torch.ones(2, 3).shape

    for rank, (itself, shape) in enumerate(gloo(returned, 2).values):
        assert (itself[0], itself[1] is itself, type(shape), shape) == (rank, True, torch.Size, (2, 3))


def test_every_dtype_is_moved():
    def moved(comm):
        found = []
        for dtype in (torch.bool, torch.complex64, torch.int16, torch.float8_e4m3fn, torch.uint8, torch.float64):
            x = torch.tensor([1, 0, comm.rank]).to(dtype)
            come = [torch.empty_like(x) for _ in range(2)]
            comm.all_gather(come, x)
            comm.send(x, 1 - comm.rank)
            comm.recv(x, 1 - comm.rank)
            found += [each.to(torch.complex64) for each in (x, *come)]
        return found

    both(moved, 2)


def test_tensors_may_have_any_strides_and_no_elements():
    def strided(comm):
        x = torch.arange(12.0).reshape(3, 4).t() + comm.rank
        y = torch.zeros(4, 6)[:, ::2]
        comm.send(x, 1 - comm.rank)
        comm.recv(y, 1 - comm.rank)
        comm.all_reduce(x[1:])
        comm.all_reduce(torch.empty(0))
        number = torch.tensor(1.0 + comm.rank)
        comm.broadcast(number, 1)
        return [x, y, number]

    both(strided, 2)


def test_ranks_of_one_call_may_have_tensors_of_different_strides():
    def mixed(comm):
        """Rank 1 gives and takes every other element of something; so rank 0 works in place, and rank 1 cannot."""

        def like(values):
            return torch.tensor(values).repeat_interleave(2, 0)[::2] if comm.rank else torch.tensor(values)

        x, found = like([1.0 + comm.rank, 2.0, 3.0]), []
        rows, outs = [like([float(row), comm.rank]) for row in range(2)], [like([0.0, 0.0]) for _ in range(2)]
        for verb in (comm.all_to_all, lambda outs, rows: comm.all_gather(outs, rows[1])):
            verb(outs, rows)
            found += [each.clone() for each in outs]
        comm.gather(rows[0], outs if comm.rank == 0 else None)
        comm.scatter(rows[1], outs if comm.rank == 0 else None)
        comm.reduce_scatter(rows[0], outs)
        comm.broadcast(outs[0], 1)
        comm.all_reduce(x, "mean")
        comm.reduce(x, 0)
        comm.send(x, 1 - comm.rank)
        comm.recv(x, 1 - comm.rank)
        return [*found, *rows, *outs, x]

    both(mixed, 2)


def test_one_tensor_may_hold_the_pieces_of_all_ranks():
    def single(comm):
        x, whole = torch.arange(3.0) + comm.rank, torch.zeros(3 * comm.size)
        for wide in (whole, torch.zeros(6 * comm.size)[::2], torch.zeros(3 * comm.size, dtype=torch.bool)):
            comm.all_gather_single(wide, x.to(wide.dtype))
        part = torch.zeros(3)
        comm.reduce_scatter_single(part, whole)
        return [whole, wide, part]

    both(single, 3)


def test_autograd_is_told_of_what_is_received():
    def changed(comm):
        x, rows, versions = torch.ones(2), [torch.ones(2) for _ in range(2)], []
        whole, other = torch.ones(4), 1 - comm.rank
        works = [comm.irecv(rows[0], other)]
        comm.send(x, other)
        for work in works:
            work.wait()
        comm.send(x, other)
        for takes, verb in [
            ([x], lambda: comm.recv(x, other)),
            ([x], lambda: comm.all_reduce(x)),
            ([x], lambda: comm.all_reduce(x, "mean")),
            ([x], lambda: comm.broadcast(x, 0)),
            ([x], lambda: comm.scatter(x, rows if comm.rank == 0 else None)),
            ([x], lambda: comm.reduce_scatter(x, rows)),
            (rows, lambda: comm.all_gather(rows, x)),
            (rows, lambda: comm.all_to_all(rows, [x, x])),
            ([whole], lambda: comm.all_gather_single(whole, x)),
        ]:
            before = [each._version for each in takes]
            verb()
            versions += [each._version > was for each, was in zip(takes, before, strict=True)]
        return versions, rows[0]._version > 0

    assert all(all(versions) and first for versions, first in gloo(changed).values)


def test_more_messages_may_be_on_their_way_than_are_held():
    def crossing(comm):
        for part in range(700):
            comm.send(torch.tensor([part]), 1 - comm.rank, tag=part % 3)
        found = []
        for part in sorted(range(700), key=lambda part: part % 3):
            x = torch.zeros(1, dtype=torch.int64)
            comm.recv(x, 1 - comm.rank, tag=part % 3)
            found.append(x.item() == part)
        return all(found)

    assert gloo(crossing).values == [True, True]


def test_the_launcher_is_not_woken_by_each_call(monkeypatch):
    from course.cluster.processes import launch

    looks, look = [], launch.Launch._look
    monkeypatch.setattr(launch.Launch, "_look", lambda self: (looks.append(1), look(self))[1])
    began = time.monotonic()
    ledger = gloo(lambda comm: [comm.barrier() for _ in range(2000)] and None).ledger
    told = 2 * (1 + 1 + 1 + 1)  # ready, torch's, returned and the end, of each rank
    assert len(looks) <= (time.monotonic() - began) / launch.LOOK_SECONDS + 3 * told
    assert [len(each) for each in ledger.orders()] == [2000, 2000]


def test_sizes_of_an_all_to_all_may_differ():
    def exchanged(comm):
        gives = [torch.full((dst,), comm.rank, dtype=torch.int16) for dst in range(comm.size)]
        takes = [torch.empty(comm.rank, dtype=torch.int16) for _ in range(comm.size)]
        comm.all_to_all(takes, gives)
        return takes

    both(exchanged, 3)


def test_sends_wait_for_nobody():
    def crossing(comm):
        """Each sends a megabyte to all before it receives, and asks for the last sender first."""
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        for dst in others:
            for part in range(3):
                comm.send(torch.full((1 << 18,), 10.0 * comm.rank + part), dst)
        found = []
        for src in reversed(others):
            for _ in range(3):
                found.append(torch.empty(1 << 18))
                comm.recv(found[-1], src)
        return [each[0] for each in found]

    both(crossing, 3)


def test_asynchronous_verbs_may_be_waited_for_in_any_order():
    def begun(comm):
        other = 1 - comm.rank
        come, x, y = torch.empty(2, 3), torch.ones(3), torch.full((3,), 2.0)
        works = [comm.irecv(come[0], other), comm.irecv(come[1], other), comm.all_reduce(x, async_op=True)]
        works += [comm.isend(y, other), comm.isend(y + 1, other), comm.all_reduce(y, async_op=True)]
        for work in reversed(works):
            work.wait()
        return [come, x, y, [work.is_completed() for work in works]]

    run = both(begun, 2)
    assert {each.verb for each in run.ledger.events if each.is_async} == {"send", "recv", "all_reduce"}


def test_whether_an_asynchronous_verb_is_completed_can_be_asked_until_it_is():
    def polled(comm):
        x, many = torch.ones(2), [torch.ones(2) for _ in range(comm.size)]
        came, summed = torch.zeros(2), x.clone()
        works = [
            comm.broadcast(x.clone(), 0, async_op=True),
            comm.all_reduce(summed, async_op=True),
            comm.reduce(x.clone(), 0, async_op=True),
            comm.all_gather(many, x, async_op=True),
            comm.reduce_scatter(x.clone(), many, async_op=True),
            comm.all_to_all([torch.ones(2) for _ in many], many, async_op=True),
            comm.gather(x, many if comm.rank == 0 else None, async_op=True),
            comm.scatter(x.clone(), many if comm.rank == 0 else None, async_op=True),
            comm.barrier(async_op=True),
            comm.isend(x, 1 - comm.rank),
            comm.irecv(came, 1 - comm.rank),
        ]
        while not all(work.is_completed() for work in works):
            time.sleep(0.01)
        return [each.item() for each in (came[0], *summed)]

    assert gloo(polled).values == [[1.0, 2.0, 2.0]] * 2


def test_a_wait_may_have_an_end_and_what_was_given_up_is_no_deadlock_and_not_left_over():
    def timed(comm):
        work, told = comm.irecv(torch.zeros(1), 1 - comm.rank), []
        for _ in range(2):
            try:
                work.wait(0.1)
            except RuntimeError as error:
                told.append(str(error))
        return told, comm.all_reduce(torch.ones(1), async_op=True).wait(timeout=10.0)

    words = "must end within 0.1 s, but has not; look at what the others do meanwhile, or wait longer"
    assert gloo(timed).values == [([f"recv(src={1 - rank}) {words}"] * 2, True) for rank in range(2)]


def test_futures_and_batches_are_those_of_simulated_ranks():
    def handled(comm):
        x, came, other = torch.arange(3.0) + comm.rank, torch.zeros(3), 1 - comm.rank
        mean = comm.all_reduce(x.clone(), async_op=True).get_future().then(lambda done: done.value()[0] / comm.size)
        works = comm.batch_isend_irecv([comm.P2POp(comm.isend, x, other), comm.P2POp(comm.irecv, came, other)])
        return [mean.wait(), works[1].get_future().wait()[0], [work.wait() for work in works]]

    both(handled, 2)


def test_a_reduce_scatter_may_have_no_elements_and_any_place():
    def scattered(comm):
        x, none = torch.zeros(6)[::2], torch.empty(0)
        comm.reduce_scatter(x, [torch.rand(3) for _ in range(comm.size)])
        comm.reduce_scatter(none, [none] * comm.size)
        return x

    both(scattered, 3)


def test_a_receive_from_anybody_names_its_sender_and_keeps_the_order_of_each():
    def heard(comm):
        if comm.rank:
            for part in range(5):
                comm.send(torch.tensor([comm.rank, part]), 0)
            return None
        early = torch.empty(2, dtype=torch.int64)
        work, found = comm.irecv(early), []
        for _ in range(9):
            x = torch.empty(2, dtype=torch.int64)
            found.append((comm.recv(x), x.tolist()))
        work.wait()
        assert work.source_rank() == early[0]
        return found, early.tolist()

    for _ in range(3):
        found, early = gloo(heard, 3).values[0]
        assert all(sender == x[0] for sender, x in found)
        in_order = [early, *(x for _, x in found)]
        assert [x for x in in_order if x[0] == 2] == [[2, part] for part in range(5)]
        assert [x for x in in_order if x[0] == 1] == [[1, part] for part in range(5)]


def test_anybody_and_somebody_may_be_mixed():
    def mixed(comm):
        if comm.rank:
            comm.barrier()
            comm.send(torch.tensor([comm.rank]), 0)
            comm.send(torch.tensor([comm.rank + 10]), 0)
            return None
        a, b, c, d = (torch.zeros(1, dtype=torch.int64) for _ in range(4))
        works = [comm.irecv(a, 2), comm.irecv(b), comm.irecv(c, 1)]
        comm.barrier()
        comm.recv(d)
        for work in works:
            work.wait()
        return sorted([a.item(), b.item(), c.item(), d.item()]), a.item()

    assert gloo(mixed, 3).values[0] == ([1, 2, 11, 12], 2)


def test_groups_that_overlap_and_were_made_in_different_orders_work():
    def meshed(comm):
        axes = comm.mesh(dp=2, tp=2)
        x, y = torch.tensor([comm.rank + 1.0]), torch.tensor([comm.rank + 1.0])
        axes["tp"].all_reduce(x)
        axes["dp"].all_reduce(y)
        if comm.rank in (0, 3):
            pair = comm.subgroup([0, 3])
            pair.send(x, 1 - pair.rank)
            pair.recv(x, 1 - pair.rank)
            pair.all_reduce(y)
        if comm.rank < 3:
            comm.subgroup([0, 1, 2]).all_reduce(x)
        return [x, y]

    both(meshed, 4)


def test_groups_of_the_same_ranks_and_tags_do_not_mix():
    def mixed(comm):
        one, two, x = comm.subgroup([0, 1]), comm.subgroup([0, 1]), torch.arange(5.0) + 10 * comm.rank
        found, ways = list(x.split(1)), [(comm, 0), (one, 0), (two, 0), (two, 7), (one, 2**31 - 1)]
        for place in range(5):
            ways[place][0].send(found[place], 1 - comm.rank, tag=ways[place][1])
        for place in (4, 2, 0, 3, 1):
            ways[place][0].recv(found[place], 1 - comm.rank if place % 2 else None, tag=ways[place][1])
        one.barrier()
        two.barrier()
        groups = [one, two] if comm.rank else [two, one]
        for work in [each.all_reduce(x[:3] if each is one else x[3:], async_op=True) for each in groups]:
            work.wait()
        return [x]

    both(mixed, 2)


def test_a_tag_for_each_message_leaves_no_thread_for_each():
    def tagged(comm):
        for tag in range(1, 51):
            come = [comm.irecv(torch.zeros(1), 1 - comm.rank, tag=tag) for _ in range(2)]
            for _ in come:
                comm.send(torch.ones(1), 1 - comm.rank, tag=tag)
            for work in come:
                work.wait()
        while threading.active_count() > 10:  # the last ones are about to end
            time.sleep(0.01)

    gloo(tagged)


def test_two_of_a_group_may_speak_while_its_third_member_never_uses_it():
    def speaking(comm):
        three = comm.subgroup([0, 1, 2]) if comm.rank < 3 else comm
        x = torch.tensor([comm.rank])
        if comm.rank == 0:
            three.send(x, 1)
        if comm.rank == 1:
            three.recv(x, 0)
        return x

    both(speaking, 4)


def test_random_numbers_are_those_of_simulated_ranks():
    torch.manual_seed(7)
    both(lambda comm: torch.rand(3), 2)


def test_a_rank_has_one_thread_and_the_environment_of_now(monkeypatch):
    monkeypatch.setenv("SET_AFTER_THE_SERVER_STARTED", "yes")
    run = gloo(lambda comm: (torch.get_num_threads(), os.environ["SET_AFTER_THE_SERVER_STARTED"]))
    assert run.values == [(1, "yes")] * 2


def test_inputs_may_want_gradients_and_are_copies():
    x = torch.ones(2, requires_grad=True)

    def changed(comm, x):
        with torch.no_grad():
            x.add_(comm.rank)
        return x.requires_grad, x.sum().item()

    assert gloo(changed, inputs=[(x,), (x,)]).values == [(True, 2.0), (True, 4.0)]
    assert x.sum().item() == 2


def test_the_ledger_has_the_times_of_a_clock():
    def timed(comm):
        work = comm.all_reduce(torch.ones(2), async_op=True)
        comm.compute(0.5, "matmul")
        if comm.rank:
            time.sleep(0.2)
        work.wait()
        comm.barrier()

    ledger = gloo(timed).ledger
    first = next(each for each in ledger.events if each.rank == 0 and each.verb == "barrier")
    assert ledger.calls(0) == ledger.calls(1) == ["all_reduce", "barrier"]
    assert 0 < first.called <= first.start <= first.end <= ledger.makespan < LIMIT
    assert first.start - first.called > 0.1  # it was there before rank 1
    assert sum(each.verb == "compute" for each in ledger.events) == 2


def test_torch_distributed_is_there_too():
    def sharded(comm):
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(0)
        model = fully_shard(torch.nn.Linear(4, 4))
        model(torch.ones(1, 4)).sum().backward()
        return dist.get_rank(), tuple(model.weight.to_local().shape)

    assert gloo(sharded).values == [(0, (2, 4)), (1, (2, 4))]
