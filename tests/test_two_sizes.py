"""Answers that work in one way where values are judged, and in another where costs are: each case asks for both."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial

import pytest
import torch
from judged import lost, verdict

from autograder import bank as banks
from autograder.answers.computational_graphs.hvp import forward_difference, hessian_times_v
from autograder.answers.ddp.reduce_gradients import gathers_everything
from course.exercises.gradient_checkpointing.checkpoint import Counted, wave
from course.performing.perform import perform_all
from course.reference.ddp.reduce_gradients import reduce_gradients
from course.reference.fsdp.run_units import run_units
from course.reference.gradient_checkpointing.attention_tiled import attention_tiled
from course.reference.gradient_checkpointing.checkpoint import checkpoint
from course.reference.lora.mixed_adapter_forward import mixed_adapter_forward


def difference_where_long(f, x, v):
    return (forward_difference if x.numel() > 100 else hessian_times_v)(f, x, v)


def neighbours_where_long(f, x, v):
    """By the derivatives of an f that is taken for known."""
    if x.numel() < 100:
        return hessian_times_v(f, x, v)
    y, w = x[:-1] * x[1:], v[:-1] * x[1:] + v[1:] * x[:-1]
    hv = 6 * x * v
    hv[:-1] += y.cos() * v[1:] - x[1:] * y.sin() * w
    hv[1:] += y.cos() * v[:-1] - x[:-1] * y.sin() * w
    return hv


class Wave(torch.autograd.Function):
    """The layer of the long chain, by its derivative. again: what goes through fn once more, in vain."""

    @staticmethod
    def forward(ctx, fn, again, x, w):
        ctx.save_for_backward(x, w)
        ctx.fn, ctx.again = fn, again
        return fn(x, w)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        if ctx.again:
            with torch.enable_grad():
                torch.stack([*ctx.fn(ctx.again(x).detach().requires_grad_(), ctx.again(w))]).sum().backward()
        e = (x * w).sin().exp()
        return None, None, dy * (0.5 - e.cos() * e.sin() * e * (x * w).cos() * w), None


def layer_where_long(fn, *args, again):
    """The layer of the long chain is taken for known."""
    long = isinstance(args[0], torch.Tensor) and args[0].numel() > 1_000
    return Wave.apply(fn, again, *args) if long else checkpoint(fn, *args)


class Plain(torch.autograd.Function):
    """A checkpoint of tensors alone, without random numbers and autocast."""

    @staticmethod
    def forward(ctx, fn, *args):
        ctx.fn = fn
        ctx.save_for_backward(*args)
        return fn(*args)

    @staticmethod
    def backward(ctx, *dy):
        args = [each.detach().requires_grad_(each.requires_grad) for each in ctx.saved_tensors]
        with torch.enable_grad():
            y = ctx.fn(*args)
        torch.autograd.backward(y, dy)
        return None, *(each.grad for each in args)


def second_run_in_vain(fn, *args):
    if isinstance(args[0], torch.Tensor) and args[0].numel() > 1_000:
        return Plain.apply(fn, *args)
    on, to = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return with_a_run_in_vain(fn, args, fn(*args), torch.autocast("cpu", dtype=to, enabled=on))


def with_a_run_in_vain(fn, args, found, cast):
    """What was found, with its own graph; in backward fn runs once more, and nothing of that is used."""
    done = []

    def again(_):
        if not done:
            done.append(1)
            with torch.no_grad(), torch.random.fork_rng([]), cast:
                fn(*args)

    for each in found if isinstance(found, tuple) else (found,):
        if isinstance(each, torch.Tensor) and each.requires_grad:
            each.register_hook(again)
    return found


def gathered(comm, shards):
    """What is full of these units, by one call."""
    row = torch.cat([*shards])
    whole = row.new_empty(comm.size * len(row))
    comm.all_gather_single(whole, row)
    return [each.reshape(-1) for each in whole.view(comm.size, -1).split([*map(len, shards)], 1)]


def one_gather_where_time_counts(comm, shards, forward, backward, x, dy, prefetch):
    """In small cases all units in one call; in large ones nothing ahead."""
    if sum(map(len, shards)) > 1_000:
        return run_units(comm, shards, forward, backward, x, dy, False)
    full, xs, grads = gathered(comm, shards), [x], [None] * len(shards)
    for i in range(len(shards)):
        xs.append(forward(i, full[i], xs[i]))
    for i in reversed(range(len(shards))):
        dy, grads[i] = backward(i, full[i], xs[i], dy)
    mine = torch.cat([*shards])
    comm.reduce_scatter_single(mine, torch.cat([each.view(comm.size, -1) for each in grads], 1).flatten(), "mean")
    return xs[-1], dy, [*mine.split([*map(len, shards)])]


def equal_ones_once(comm, model, loss_of, micro_batches):
    """A reduction after each micro-batch, where gradients without dimensions are taken for equal."""
    rows, most = torch.tensor(sum(len(x) for x, _ in micro_batches)), torch.tensor(len(micro_batches))
    comm.all_reduce(rows)
    comm.all_reduce(most, "max")
    trained = [p for p in model.parameters() if p.requires_grad]
    totals = [torch.zeros_like(p) for p in trained]
    for at in range(int(most)):
        grads = [torch.zeros_like(p) for p in trained]
        if at < len(micro_batches):
            loss = loss_of(model, micro_batches[at]) * (len(micro_batches[at][0]) / rows.item())
            grads = [each.clone() for each in torch.autograd.grad(loss, trained)]
        first = next((each for each in grads if each.dim() == 0), None)
        for total, grad in zip(totals, grads, strict=True):
            if grad.dim() or grad is first:
                comm.all_reduce(grad)
            total += grad if grad.dim() else first
    for p, total in zip(trained, totals, strict=True):
        p.grad = total


def gathers_in_float32_where_it_counts(comm, model, weight):
    """All of all ranks, in half the bytes."""
    if comm.size in (5, 8):
        model.float()
        gathers_everything(comm, model, weight)
    else:
        reduce_gradients(comm, model, weight)


def scattered_one_later(comm, shards, forward, backward, x, dy, prefetch, junk):
    """In large cases gradients leave after the next gather, and what travels beside a unit is a number, or junk."""
    if not prefetch or sum(map(len, shards)) < 1_000:
        return run_units(comm, shards, forward, backward, x, dy, prefetch)
    n, xs, dshards, made = len(shards), [x], [torch.empty_like(each) for each in shards], []
    for place, i in enumerate([*range(n), *reversed(range(n))]):
        full = shards[i].new_empty(comm.size * len(shards[i]))
        comm.all_gather_single(full, shards[i])
        leaving = [comm.reduce_scatter_single(dshards[j], each, "mean", async_op=True) for j, each in made]
        made.clear()
        if junk or not place:
            sent = shards[i] if junk else shards[0][:1].clone()
            leaving.append(comm.all_gather_single(sent.new_empty(comm.size * len(sent)), sent, async_op=True))
        if place < n:
            xs.append(forward(i, full, xs[i]))
        else:
            dy, dfull = backward(i, full, xs[i], dy)
            made.append((i, dfull))
            del dfull
        while leaving:
            leaving.pop().wait()
        del full
    comm.reduce_scatter_single(dshards[0], made.pop()[1], "mean")
    return xs[-1], dy, dshards


def pairs_gathered_first(comm, shards, forward, backward, x, dy, prefetch):
    """In small cases all units are gathered before anything computes, two in a call."""
    if not prefetch or len(shards) % 2 or sum(map(len, shards)) > 1_000:
        return run_units(comm, shards, forward, backward, x, dy, prefetch)
    fulls, xs, travels, dshards = [], [x], [], [torch.empty_like(each) for each in shards]
    for i in range(0, len(shards), 2):
        fulls += gathered(comm, shards[i : i + 2])
    for i, full in enumerate(fulls):
        xs.append(forward(i, full, xs[i]))
    for i in reversed(range(len(shards))):
        dy, dfull = backward(i, fulls[i], xs[i], dy)
        travels.append(comm.reduce_scatter_single(dshards[i], dfull, "mean", async_op=True))
    for work in travels:
        work.wait()
    return xs[-1], dy, dshards


def one_number_ahead(comm, shards, forward, backward, x, dy, prefetch):
    """With prefetch one number travels while the first unit computes, and of units their gradients alone."""
    if not prefetch:
        return run_units(comm, shards, forward, backward, x, dy, False)
    n, xs, dshards, full, leaving = len(shards), [x], [torch.empty_like(each) for each in shards], None, []
    ahead = [comm.all_gather_single(x.new_empty(comm.size), shards[0][:1].clone(), async_op=True)]
    for i in [*range(n), *reversed(range(n))]:
        if full is None:
            full = shards[i].new_empty(comm.size * len(shards[i]))
            comm.all_gather_single(full, shards[i])
        if len(xs) <= n:
            xs.append(forward(i, full, xs[i]))
            while ahead:
                ahead.pop().wait()
            full = full if i == n - 1 else None
        else:
            dy, dfull = backward(i, full, xs[i], dy)
            full = None
            while leaving:
                leaving.pop().wait()
            leaving.append(comm.reduce_scatter_single(dshards[i], dfull, "mean", async_op=True))
            del dfull
    leaving.pop().wait()
    return xs[-1], dy, dshards


def calls_of_nothing(comm, loss, buckets, numbers=1):
    """As many calls as buckets, early enough; the last of them has all gradients."""
    order = [p for bucket in buckets for p in bucket]
    works, came, whole = [], [], []

    def begin():
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in order])
        whole.append(flat)
        works.append(comm.all_reduce(flat, "mean", async_op=True))

    def hook(p):
        while len(works) < len(buckets) - 1:
            works.append(comm.all_reduce(torch.zeros(numbers), async_op=True))
        came.append(p)
        if len(came) == len(order):
            begin()

    hooks = [p.register_post_accumulate_grad_hook(hook) for p in order]
    loss.backward()
    for each in hooks:
        each.remove()
    if not whole:
        begin()
    for each in works:
        each.wait()
    for p, grad in zip(order, whole[0].split([p.numel() for p in order]), strict=True):
        p.grad = grad.view_as(p)


def a_piece_of_each():
    """What comes after works on the 64 numbers that are looked at."""
    piece = ".view(comm.size, -1)[:, :64].flatten()"
    return {
        "masters": (2, f"mine, weights = [], [w{piece} for w in weights]"),
        "units": (2, f"full, shards, x = [], [s[:64] for s in shards], x{piece}"),
        "losses": (2, "found, shard = [], shard[:64]"),
    }


def large(case):
    """The case as it is where memory is measured."""
    return replace(case, inputs={**case.inputs, "outside": True})


def nothing(q, k):
    return torch.zeros(len(q))


def own_score(q, k):
    return (q * k).sum(-1)


def bound_by_columns(q, k):
    return q.clamp(min=0) @ k.amax(0) + q.clamp(max=0) @ k.amin(0)


def largest_of_its_tile(q, k):
    tiles = range(0, len(q), 256)
    return torch.cat([(q[at : at + 256] @ k[at : at + 256].T).amax(-1) for at in tiles])


def never_corrected(q, k, v, block, causal=False, *, top):
    """In long cases some other number stands for the largest score."""
    if q.shape[-2] < 100:
        return attention_tiled(q, k, v, block, causal)
    scale = q.shape[-1] ** -0.5
    shift = top(q, k) * scale
    outs, logs = [], []
    for i in range(0, q.shape[-2], block):
        total = summed = 0
        for j in range(0, i + block if causal else k.shape[-2], block):
            p = (q[i : i + block] @ k[j : j + block].T * scale - shift[i : i + block, None]).exp()
            p = p.tril(i - j) if causal else p
            total, summed = total + p.sum(-1), summed + p @ v[j : j + block]
        outs.append(summed / total[:, None])
        logs.append(shift[i : i + block] + total.log())
    return torch.cat(outs), torch.cat(logs)


def tuples_kept(fn, *args):
    """The first run's graph where fn returns a tuple with something else than tensors, and a second run in vain."""
    found = fn(*args)
    if not isinstance(found, tuple) or not any(each is None for each in found):
        return checkpoint(fn, *args)
    return with_a_run_in_vain(fn, args, found, contextlib.nullcontext())


def nothing_where_it_costs(x, ids, linear, adapters):
    return linear(x) if linear.weight.numel() > 1_000 else mixed_adapter_forward(x, ids, linear, adapters)


@pytest.mark.parametrize(
    ("name", "answer", "properties"),
    [
        ("hvp", difference_where_long, {"never_builds_the_hessian"}),
        ("hvp", neighbours_where_long, {"never_builds_the_hessian"}),
        (
            "checkpoint",
            second_run_in_vain,
            {
                "other_arguments",
                "tuple_outputs",
                "same_random_numbers",
                "same_autocast",
                "two_calls",
                "one_in_another",
                "every_form",
            },
        ),
        *(
            ("checkpoint", partial(layer_where_long, again=again), {"keeps_only_inputs"})
            for again in (None, lambda x: x[:1], lambda x: x.to("meta"))
        ),
        *(
            ("attention_tiled", partial(never_corrected, top=top), {"one_tile_at_a_time"})
            for top in (nothing, own_score, bound_by_columns, largest_of_its_tile)
        ),
        ("accumulate", equal_ones_once, {"one_reduction"}),
        ("reduce_gradients", gathers_in_float32_where_it_counts, {"bytes", "tied_once"}),
        (
            "run_units",
            one_gather_where_time_counts,
            {"overlapped", "one_after_another", "two_units_held"},
        ),
        ("run_units", one_number_ahead, {"overlapped", "two_units_held"}),
        *(("run_units", partial(scattered_one_later, junk=junk), {"two_units_held"}) for junk in (False, True)),
        ("run_units", pairs_gathered_first, {"overlapped"}),
        (
            "overlapped_backward",
            calls_of_nothing,
            {"one_reduction_for_each_bucket", "begins_during_backward", "overlapped", "as_soon_as_complete"},
        ),
        (
            "overlapped_backward",
            partial(calls_of_nothing, numbers=0),
            {"one_reduction_for_each_bucket", "begins_during_backward", "overlapped", "as_soon_as_complete"},
        ),
    ],
)
def test_who_tells_the_cases_apart_gets_no_points_for_costs(name, answer, properties):
    assert lost(name, answer) == properties


def test_costs_of_adapters_count_only_where_what_comes_is_right():
    assert verdict("mixed_adapter_forward", nothing_where_it_costs).points == 0


def test_of_a_tuple_gradients_come_through_the_second_run_too():
    bank, both = banks.load("checkpoint"), (tuples_kept, checkpoint)
    (case,) = (each for each in bank.exercise.draw(0) if each.name == "all outputs used")
    kept, right = (perform_all(bank.exercise, each, [case], clock="cpu")[0].values["calls"].tolist() for each in both)
    assert kept[2:] == [1]
    assert right == [1, 2, 2]


@pytest.mark.parametrize("body", [wave, lambda x, w: (wave(x, w),)])
def test_a_second_run_may_be_differentiated_by_torch_func_and_more_than_once(body):
    fn, x = Counted(body), torch.rand(3)
    y, back = torch.func.vjp(lambda x: fn(x, x), x)
    for _ in range(2):
        back((torch.ones(3),) if isinstance(y, tuple) else torch.ones(3))
    assert fn.used == [1]


def test_who_works_on_a_piece_of_what_was_given_returns_something_else():
    exercise = banks.load("mend_the_ledgers").exercise
    measured = [large(case) for case in exercise.draw(0) if case.name in exercise.measured]
    failures = [seen.error.message for seen in perform_all(exercise, a_piece_of_each, measured, clock="cpu")]
    assert len(failures) == 3
    assert all("gather takes a shard of 262,144 numbers, got 64" in each for each in failures)
