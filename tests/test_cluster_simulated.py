"""What each simulated rank has of its own: random numbers, gradient mode, inputs, prints, memory. And many of them."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from course.cluster import Simulated, run_ranks

MEMORY = Simulated(memory=True)


def test_every_rank_begins_with_the_random_state_of_the_caller_and_keeps_its_own():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    wanted = torch.rand(4).tolist()
    torch.set_rng_state(state)

    def step(comm):
        drawn = []
        for _ in range(4):
            drawn.append(torch.rand(1).item())
            comm.barrier()
        return drawn

    assert run_ranks(step, 3).values == [wanted] * 3
    assert torch.equal(torch.get_rng_state(), state)


def test_a_seed_that_one_rank_sets_is_not_that_of_the_others():
    def step(comm):
        torch.manual_seed(comm.rank)
        comm.barrier()
        return torch.rand(1).item()

    values = run_ranks(step, 3).values
    assert len(set(values)) == 3
    assert run_ranks(step, 3, transport=Simulated(seed=1)).values == values


def test_no_grad_in_one_rank_is_not_that_of_the_others():
    def step(comm):
        with torch.set_grad_enabled(comm.rank == 1):
            comm.barrier()
            return torch.is_grad_enabled()

    assert run_ranks(step, 3).values == [False, True, False]
    assert torch.is_grad_enabled()


def test_hooks_of_a_backward_may_call_the_others():
    def step(comm):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        for each in model.parameters():
            each.register_post_accumulate_grad_hook(lambda p: comm.all_reduce(p.grad, "mean"))
        torch.manual_seed(10 + comm.rank)
        model(torch.randn(5, 3)).square().mean().backward()
        return [each.grad for each in model.parameters()]

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    rows = []
    for rank in range(3):
        torch.manual_seed(10 + rank)
        rows.append(torch.randn(5, 3))
    model(torch.cat(rows)).square().mean().backward()
    for got in run_ranks(step, 3).values:
        torch.testing.assert_close(got, [each.grad for each in model.parameters()])


def test_works_begun_in_hooks_are_waited_for_after_the_backward():
    def step(comm):
        w, works = torch.ones(2, requires_grad=True), []
        w.register_post_accumulate_grad_hook(lambda p: works.append(comm.all_reduce(p.grad, async_op=True)))
        (w * (comm.rank + 1)).sum().backward()
        for work in works:
            work.wait()
        return w.grad.tolist()

    assert run_ranks(step, 3).values == [[6.0, 6.0]] * 3


# --- inputs ---


def test_inputs_are_copied_for_each_rank():
    x, model = torch.zeros(2, requires_grad=True), nn.Linear(2, 2)

    def step(comm, given):
        given["x"].detach().add_(1)
        given["model"].weight.detach().zero_()
        return given["x"].is_leaf, given["x"].requires_grad, given["x"].tolist()

    run = run_ranks(step, 2, inputs=[({"x": x, "model": model},)] * 2)
    assert run.values == [(True, True, [1.0, 1.0])] * 2
    assert x.tolist() == [0.0, 0.0]
    assert model.weight.abs().sum() > 0


def a_step(model, optimizer):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model.weight.tolist()


def with_optimizer():
    model = nn.Linear(2, 1, bias=False)
    nn.init.ones_(model.weight)
    return model, torch.optim.SGD(model.parameters(), lr=0.5)


def add_in_place(adds):
    """To a thing that a rank may share with others, who look at it when all have added."""

    def added(comm, thing):
        adds(thing, comm.rank + 1)
        comm.barrier()
        return thing

    return added


@dataclass
class Pair:
    x: torch.Tensor
    y: object = None


ITSELF: list[object] = [1]
ITSELF.append(ITSELF)
TWICE = torch.zeros(1)
RESULT = torch.zeros(1, requires_grad=True) * 2
LOCK = threading.Lock()
TOGETHER = {
    "an optimizer": (lambda comm, *each: a_step(*each), with_optimizer(), [[0.5, 0.5]]),
    "an optimizer before its model": (lambda comm, *each: a_step(*each[::-1]), with_optimizer()[::-1], [[0.5, 0.5]]),
    "the parameters": (
        lambda comm, model, parameters: parameters[0] is model.weight,
        (model := nn.Linear(2, 1), list(model.parameters())),
        True,
    ),
    "one module twice": (lambda comm, models: models[0] is models[1], ([model, model],), True),
    "one tensor twice": (lambda comm, x, y: x is y, (TWICE, TWICE), True),
    "a list that holds itself": (lambda comm, x: x[1] is x, (ITSELF,), True),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_what_the_inputs_of_a_rank_hold_twice_is_one_thing_in_its_copies(name):
    function, inputs, expected = TOGETHER[name]
    assert run_ranks(function, 2, inputs=[inputs] * 2).values == [expected] * 2


OWN = {
    "a dataclass": (lambda pair, n: pair.x.add_(n), Pair(torch.zeros(1)), lambda pair: pair.x.item()),
    "a result in one": (lambda pair, n: pair.x.detach().add_(n), Pair(RESULT), lambda pair: pair.x.item()),
    "an array": (lambda array, n: array.__iadd__(n), np.zeros(1), lambda array: array.item()),
    "a set": (lambda numbers, n: numbers.add(n), {0}, sum),
    "a dict of lists": (lambda lists, n: lists["a"].append(n), {"a": [0]}, lambda lists: sum(lists["a"])),
}


@pytest.mark.parametrize("name", OWN)
def test_whatever_can_be_copied_among_the_inputs_is(name):
    adds, thing, seen = OWN[name]
    values = run_ranks(add_in_place(adds), 3, inputs=[(thing,)] * 3).values
    assert [seen(each) for each in values] == [1, 2, 3]
    assert seen(thing) == 0


def test_ranks_draw_the_same_from_a_generator_among_their_inputs():
    ours = torch.Generator().manual_seed(1)
    values = run_ranks(lambda comm, drawn: torch.rand(1, generator=drawn).item(), 3, inputs=[(ours,)] * 3).values
    assert values == [torch.rand(1, generator=ours).item()] * 3


def test_what_cannot_be_copied_among_the_inputs_is_the_callers():
    inputs = (LOCK, Pair(torch.zeros(1), LOCK))
    assert (
        run_ranks(lambda comm, lock, pair: lock is LOCK and pair.y is LOCK, 2, inputs=[inputs] * 2).values == [True] * 2
    )


def test_tensors_of_a_class_that_each_rank_has_defined_are_combined_and_sent():
    def step(comm):
        class Own(torch.Tensor):
            pass

        x, y = torch.full((2,), 1.0 + comm.rank).as_subclass(Own), torch.zeros(2).as_subclass(Own)
        comm.all_reduce(x)
        comm.isend(x * (comm.rank + 1), 1 - comm.rank)
        comm.recv(y, 1 - comm.rank)
        return type(y) is Own, x.tolist(), y.tolist()

    assert run_ranks(step, 2).values == [(True, [3, 3], [6, 6]), (True, [3, 3], [3, 3])]


def test_a_parameter_among_the_inputs_stays_one():
    run = run_ranks(lambda comm, p: type(p) is nn.Parameter, 2, inputs=[(nn.Parameter(torch.ones(1)),)] * 2)
    assert run.values == [True, True]


def test_a_result_of_a_graph_may_be_an_input():
    y = torch.ones(2, requires_grad=True) * 2
    assert run_ranks(lambda comm, y: y.is_leaf and y.sum().item(), 1, inputs=[(y,)]).values == [4.0]


# --- prints ---


def test_lines_come_out_whole_with_the_rank_that_printed_them(capsys):
    def step(comm):
        print("a", end="")
        comm.barrier()
        print("b", comm.rank)
        print("two\nlines\n\nmore", end="")

    run_ranks(step, 3)
    lines = capsys.readouterr().out.splitlines()
    for rank in range(3):
        own = [line.removeprefix(f"[rank {rank}] ") for line in lines if line.startswith(f"[rank {rank}] ")]
        assert own == [f"ab {rank}", "two", "lines", "", "more"]
    assert len(lines) == 15


def test_each_stream_has_lines_of_its_own(capsys):
    def step(comm):
        print("out", end="")
        print("err", file=sys.stderr)
        print("rest", end="", file=sys.stderr)
        print("put")

    run_ranks(step, 1)
    came = capsys.readouterr()
    assert came.out == "[rank 0] output\n"
    assert came.err == "[rank 0] err\n[rank 0] rest\n"


def test_what_was_printed_before_a_run_broke_comes_out(capsys):
    def step(comm):
        print("before")
        raise ValueError

    with pytest.raises(Exception, match="ValueError"):
        run_ranks(step, 1)
    assert capsys.readouterr().out == "[rank 0] before\n"


def test_what_a_rank_prints_in_its_finally_comes_out_with_its_rank(capsys):
    def step(comm):
        try:
            comm.recv(torch.zeros(1))
        finally:
            print("tidied")

    with pytest.raises(Exception, match="all wait"):
        run_ranks(step, 2)
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank 0] tidied", "[rank 1] tidied"]


# --- memory ---


def live_of(step, inputs=None):
    ledger = run_ranks(step, 2, transport=MEMORY, inputs=inputs).ledger
    return ledger, [[each.bytes for each in ledger.live if each.rank == rank] for rank in range(2)]


def test_live_bytes_are_those_of_the_tensors_that_a_rank_holds():
    def step(comm):
        x = torch.zeros(1000)
        y = x + 1
        del x
        y.add_(1)
        comm.compute(1.0)
        torch.zeros(500)

    ledger, live = live_of(step)
    assert live == [[4000, 8000, 4000, 6000]] * 2
    assert ledger.peak_bytes(0) == 8000
    assert [each.time for each in ledger.live if each.rank == 0] == [0.0, 0.0, 0.0, 1.0]


def test_what_the_cluster_itself_holds_is_nobodys():
    def step(comm):
        x = torch.zeros(1000)
        comm.all_reduce(x)
        comm.all_reduce(x, async_op=True).wait()
        comm.send(x, 1 - comm.rank)
        comm.recv(x)
        return x + 1

    assert live_of(step)[1] == [[4000, 8000]] * 2


def test_inputs_count_until_the_rank_returns():
    def step(comm, x):
        y = x + 1
        del x
        return y * 2

    assert live_of(step, [(torch.zeros(1000),)] * 2)[1] == [[4000, 8000, 12000]] * 2


# --- many ---


def test_1024_ranks():
    def step(comm):
        x = torch.tensor(comm.rank)
        comm.all_reduce(x)
        y = torch.tensor(0)
        comm.send(torch.tensor(comm.rank), (comm.rank + 1) % 1024)
        comm.recv(y)
        return x.item(), y.item()

    assert run_ranks(step, 1024).values == [(523_776, (rank - 1) % 1024) for rank in range(1024)]
