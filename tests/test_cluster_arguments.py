"""Arguments that make no sense by themselves: refused where they are written, in words."""

from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as torch_ranks

from course.cluster import Link, RanksFailed, Simulated, fully_connected, ring, run_ranks, two_levels
from course.errors import BadArgument

ONE, TWO = torch.ones(1), torch.ones(2)
NAN = float("nan")
CALLS = {
    "dst must be a rank from 0 to 1, got 2": lambda c: c.send(ONE, 2),
    "dst must be a rank from 0 to 1, got -1": lambda c: c.send(ONE, -1),
    "dst must be a rank from 0 to 1, got True": lambda c: c.isend(ONE, True),
    "src must be a rank from 0 to 1, got '1'": lambda c: c.recv(ONE, "1"),
    "src must be a rank from 0 to 1, got 1.0": lambda c: c.irecv(ONE, 1.0),
    "src must be a rank from 0 to 1, got None": lambda c: c.broadcast(ONE, None),
    "dst must be a rank from 0 to 1, got 7": lambda c: c.gather(ONE, None, 7),
    "src must be another rank, got rank 0 itself": lambda c: c.recv(ONE, 0),
    "dst must be another rank, got rank 0 itself": lambda c: c.send(ONE, 0),
    "op must be one of sum, mean, max, min, product, or torch.distributed's of these, got 'median'": lambda c: (
        c.all_reduce(ONE, "median")
    ),
    "or torch.distributed's of these, got ''": lambda c: c.all_reduce(ONE, ""),
    "or torch.distributed's of these, got <RedOpType.BAND: 5>": lambda c: c.all_reduce(ONE, torch_ranks.ReduceOp.BAND),
    "or torch.distributed's of these, got None": lambda c: c.all_reduce(ONE, None),
    "a max must be of tensors whose values have an order, got torch.complex64": lambda c: c.all_reduce(
        ONE.to(torch.complex64), "max"
    ),
    "a mean must be of floating point tensors, got torch.int64": lambda c: c.all_reduce(ONE.long(), "mean"),
    "tensors of torch.bool must be combined by max (any), min or product (all), got sum; convert": lambda c: (
        c.all_reduce(ONE.bool())
    ),
    "uint8, bool, complex64, complex128, got torch.int16; convert them": lambda c: c.reduce(ONE.short(), 0),
    "tag must be a whole number from 0 to 2147483647, got -1": lambda c: c.send(ONE, 1, tag=-1),
    "tag must be a whole number from 0 to 2147483647, got 2147483648": lambda c: c.irecv(ONE, tag=2**31),
    "tag must be a whole number from 0 to 2147483647, got True": lambda c: c.recv(ONE, 1, tag=True),
    "tag must be a whole number from 0 to 2147483647, got None": lambda c: c.isend(ONE, 1, tag=None),
    "timeout must be a timedelta or a number of seconds above 0, got 0": lambda c: c.isend(ONE, 1).wait(0),
    "timeout must be a timedelta or a number of seconds above 0, got nan": lambda c: c.isend(ONE, 1).wait(NAN),
    "timeout must be a timedelta or a number of seconds above 0, got '1'": lambda c: c.isend(ONE, 1).wait("1"),
    "only a receive has a sender, got send(dst=1)": lambda c: c.isend(ONE, 1).source_rank(),
    "a sender is known when its message has come; wait for the receive first": lambda c: c.irecv(ONE).source_rank(),
    "ops must be a list of messages of this communicator, comm.P2POp(comm.isend, tensor, dst) or": lambda c: (
        c.batch_isend_irecv([])
    ),
    "got <bound method Comm.send of <rank 0 of 2>>": lambda c: c.batch_isend_irecv([c.P2POp(c.send, ONE, 1)]),
    "got <bound method Comm.isend of <rank 0 of 1>>": lambda c: c.batch_isend_irecv(
        [c.P2POp(c.subgroup([0]).isend, ONE, 1)]
    ),
    "src), got (1, 2)": lambda c: c.batch_isend_irecv([(1, 2)]),
    "tensor must be a tensor, got float": lambda c: c.send(1.0, 1),
    "tensor must be a tensor, got list": lambda c: c.all_reduce([ONE]),
    "tensor must be a tensor, got tuple": lambda c: c.all_reduce((ONE,)),
    "tensor must be a tensor, got int": lambda c: c.recv(3),
    "tensors must be a list of 2 tensors, one for each rank of the group, got 1": lambda c: c.all_gather([ONE], ONE),
    "tensors must be a list of 2 tensors, one for each rank of the group, got 3": lambda c: c.reduce_scatter(
        ONE, [ONE] * 3
    ),
    "tensors must be a list of 2 tensors, one for each rank of the group, got a Tensor": lambda c: c.all_gather(
        TWO, ONE
    ),
    "tensors must be a list of 2 tensors, one for each rank of the group, got a NoneType": lambda c: c.scatter(ONE),
    "each of tensors must be a tensor, got int": lambda c: c.all_gather([ONE, 1], ONE),
    "each of outputs must be a tensor, got str": lambda c: c.all_to_all([ONE, "x"], [ONE, ONE]),
    "tensors must be of one dtype and shape": lambda c: c.all_gather([ONE, TWO], ONE),
    "each of tensors must be like tensor, float32 of shape": lambda c: c.all_gather([TWO, TWO], ONE),
    "each of outputs must be like": lambda c: c.all_to_all([TWO, ONE], [ONE, ONE]),
    "output must hold 2 tensors like tensor along dim 0": lambda c: c.all_gather_single(torch.ones(3), ONE),
    "tensor must hold 2 tensors like output along dim 0": lambda c: c.reduce_scatter_single(TWO, TWO),
    "output must have a dim 0 whose rows are sent, got float32 of shape ()": lambda c: c.all_to_all_single(ONE[0], TWO),
    "tensor must have rows for 2 equal pieces, or input_split_sizes, got 1 rows": lambda c: c.all_to_all_single(
        TWO, ONE
    ),
    "input_split_sizes must be 2 whole numbers, one for each rank of the group, that make the 2 rows of tensor, got "
    "[1, 2]": lambda c: c.all_to_all_single(TWO, TWO, None, [1, 2]),
    "that make the 2 rows of output, got [3, -1]": lambda c: c.all_to_all_single(TWO, TWO, [3, -1]),
    "that make the 2 rows of output, got [1.0, 1.0]": lambda c: c.all_to_all_single(TWO, TWO, [1.0, 1.0]),
    "that make the 2 rows of output, got [2]": lambda c: c.all_to_all_single(TWO, TWO, [2]),
    "each of output's pieces must be like the own piece of tensor": lambda c: c.all_to_all_single(TWO, TWO, [0, 2]),
    "object_list must be a list of 2 objects, one for each rank of the group, got 0": lambda c: c.all_gather_object(
        [], 1
    ),
    "object_list must be a list of objects, at least one, got 0": lambda c: c.broadcast_object_list([]),
    "object_list must be a list of objects, at least one, got a dict": lambda c: c.broadcast_object_list({}),
    "object_gather_list must be a list of 2 objects, one for each rank of the group, got a NoneType": lambda c: (
        c.gather_object(1)
    ),
    "scatter_object_input_list must be a list of 2 objects, one for each rank of the group, got 1": lambda c: (
        c.scatter_object_list([None], [1])
    ),
    "scatter_object_output_list must be a list of objects, at least one, got 0": lambda c: c.scatter_object_list(
        [], [1, 2]
    ),
    "an object that is sent must be one that can be pickled, got generator (": lambda c: c.broadcast_object_list(
        [(i for i in "ab")]
    ),
    "along dim 0, got float32 of shape () and float32 of shape ()": lambda c: c.all_gather_single(ONE[0], ONE[0]),
    "tensors must be dense to be sent or received, got one of layout torch.sparse_coo": lambda c: c.all_reduce(
        ONE.to_sparse()
    ),
    "comm.P2POp(comm.irecv, tensor, src), got None": lambda c: c.batch_isend_irecv(None),
    "a group must hold ranks of [0, 1], each once and in rising order, got 1": lambda c: c.subgroup(1),
    "a group must hold ranks of [0, 1], each once and in rising order, got None": lambda c: c.subgroup(None),
    "the sizes of a mesh must be >= 1 and their product 2, whole numbers all, got {'dp': 2.0}": lambda c: c.mesh(
        dp=2 / 1
    ),
    "their product 2, whole numbers all, got {'dp': None}": lambda c: c.mesh(dp=None),
    "seconds must be finite and at least 0, a number of Python's, got tensor(1.)": lambda c: c.compute(ONE[0]),
    "a label must be a text, got 3": lambda c: c.compute(0.1, 3),
}


@pytest.mark.parametrize("words", CALLS)
def test_a_call_that_makes_no_sense_raises_in_its_rank(words):
    def step(comm):
        if comm.rank == 0:
            CALLS[words](comm)

    with pytest.raises(RanksFailed) as failed:
        run_ranks(step, 2)
    assert (failed.value.rank, failed.value.type) == (0, "BadArgument")
    assert words in failed.value.without_line  # the line is one of those above


def step(comm):
    yield comm.rank


async def begun(comm):
    return comm.rank


RUNS = {
    "ranks must be a number from 1 to 1024, got 0": lambda: run_ranks(print, 0),
    "ranks must be a number from 1 to 1024, got 1025": lambda: run_ranks(print, 1025),
    "ranks must be a number from 1 to 1024, got 2.0": lambda: run_ranks(print, 2.0),
    "ranks must be a number from 1 to 1024, got True": lambda: run_ranks(print, True),
    "ranks that are processes must be at most 128, got 129; use transport=": lambda: run_ranks(
        print, 129, transport="gloo"
    ),
    "seconds must be a number above 0 and at most 1,000,000, got 0": lambda: run_ranks(print, 2, seconds=0),
    "seconds must be a number above 0 and at most 1,000,000, got nan": lambda: run_ranks(
        print, 2, seconds=float("nan")
    ),
    "function must be something to call with a communicator, got 3": lambda: run_ranks(3, 2),
    "inputs must hold one sequence of arguments for each of 2 ranks, got 1": lambda: run_ranks(print, 2, inputs=[(1,)]),
    "inputs must hold a sequence of arguments for each rank, got Tensor for rank 0; write (x,)": lambda: run_ranks(
        print, 2, inputs=[ONE, ONE]
    ),
    "inputs must be a list of sequences, one for each rank, got Tensor": lambda: run_ranks(print, 2, inputs=TWO),
    "transport must be simulated, gloo or nccl, or a transport such as autograder.sandbox.Brokered()": lambda: (
        run_ranks(print, 2, transport="mpi")
    ),
    "transport must be a name or a transport, such as Simulated(seed=1), got <class": lambda: run_ranks(
        print, 2, transport=Simulated
    ),
    "transport must be a name or a transport, such as Simulated(seed=1), got None": lambda: run_ranks(
        print, 2, transport=None
    ),
    "the topology must have 2 ranks, got fully connected of 3": lambda: run_ranks(
        print, 2, transport=Simulated(topology=fully_connected(3))
    ),
    "seconds must be a number above 0 and at most 1,000,000, got inf": lambda: run_ranks(print, 2, seconds=math.inf),
    "verbs must be a list of some of send, recv, broadcast, reduce, gather, scatter": lambda: run_ranks(
        print, 2, verbs="send"
    ),
    "all_reduce, all_gather, reduce_scatter, all_to_all, barrier, got 3": lambda: run_ranks(print, 2, verbs=3),
    "function must return what it computes, but step is a generator function: it has a yield": lambda: run_ranks(
        step, 2
    ),
    "function must return what it computes, but begun is an async function: write it with def": lambda: run_ranks(
        begun, 2
    ),
    "topology must be that of a ring, fully_connected, two_levels or a Topology, got 'ring'": lambda: Simulated(
        topology="ring"
    ),
    "topology must be that of a ring, fully_connected, two_levels or a Topology, got <function ring": lambda: Simulated(
        topology=ring
    ),
    "seed must be a whole number, got None": lambda: Simulated(seed=None),
    "a link must be a Link, got 0.1": lambda: ring(2, 0.1),
    "a link must be a Link, got 'slow'": lambda: fully_connected(2, "slow"),
    "a link must be a Link, got 1e-05": lambda: two_levels(1, 2, between=1e-5),
    "a bandwidth > 0 bytes/s, got Link(latency='1', bandwidth=10000000000.0)": lambda: Link(latency="1"),
    "the number of ranks must be from 1 to 1024, got '2' nodes of 4": lambda: two_levels("2", 4),
    "clock must be declared or measured, got 'wall'": lambda: Simulated(clock="wall"),
    "send must be eager or rendezvous, got 'lazy'": lambda: Simulated(send="lazy"),
}


@pytest.mark.parametrize("words", RUNS)
def test_a_run_that_makes_no_sense_is_refused(words):
    with pytest.raises(BadArgument) as refused:
        RUNS[words]()
    assert words in str(refused.value)


def test_ranks_that_may_use_some_verbs_make_no_groups():
    with pytest.raises(RanksFailed, match="no groups may be made here: call what comm offers on comm itself"):
        run_ranks(lambda comm: comm.subgroup([comm.rank]), 2, verbs=("send", "recv"))
