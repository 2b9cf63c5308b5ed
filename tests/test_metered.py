"""A run under `metered` costs what pencil and paper say, op by op."""

from __future__ import annotations

import copy
import threading
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as modules
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from course.errors import BadArgument
from course.lessons.figures.meter import memory_timeline
from course.lessons.models import GPT, GPTConfig, mlp, next_token_loss
from course.meter import counted, forward_calls, kept_bytes, metered

N = 100
BYTES = 4 * N  # of N numbers in float32
F32, BF16 = torch.float32, torch.bfloat16


@pytest.fixture(scope="module")
def gpt():
    return GPT(GPTConfig(vocabulary=11, context=8, width=12, heads=3, layers=2), torch.Generator().manual_seed(0))


def step(model, tokens=None):
    model.zero_grad()
    tokens = torch.arange(16).reshape(2, 8) % 11 if tokens is None else tokens
    next_token_loss(model(tokens), tokens).backward()


def casts(run, shape):
    return sum(op.is_cast and op.shape == shape for op in run.trace)


# Live bytes


def test_live_bytes_of_an_mlp_by_pencil():
    net, x = mlp((3, 5, 2)), torch.rand(4, 3)
    with metered() as run:
        loss = net(x).sum()
        loss.backward()
    forward = [(op.name, op.live) for op in run.trace if op.made and not op.backward]
    hidden, out, number = 4 * 5 * 4, 4 * 2 * 4, 4
    assert forward == [
        ("addmm", hidden),
        ("relu", 2 * hidden),
        ("addmm", hidden + out),  # relu keeps its output only
        ("sum", hidden + out + number),
        ("ones_like", hidden + number + number),  # the sum keeps nothing; backward starts from 1
    ]
    assert run.kept_by_forward == hidden + number + number
    weights = 4 * sum(each.numel() for each in net.parameters())
    assert run.kept() == weights + number  # as many gradients as weights
    assert run.kept(ignore=[loss]) == weights
    assert run.given.bytes_alive() == weights + x.nbytes


def test_peak_is_the_first_moment_at_which_most_is_live():
    with metered() as run:
        x = torch.ones(N)
        y = x * 2
        del x
        z = y + 1
        del y, z
        torch.ones(1)
    assert run.timeline == [BYTES, 2 * BYTES, 2 * BYTES, 4]
    assert (run.peak.live, run.peak.index, run.peak.name) == (2 * BYTES, 1, "mul")


def test_without_an_op_there_is_no_peak():
    with metered() as run:
        pass
    assert (run.peak, run.largest, run.timeline, run.flops, run.kept()) == (None, None, [], {}, 0)
    assert run.kept_by_forward is None


def test_views_and_in_place_ops_make_nothing():
    with metered() as run:
        x = torch.ones(N)
        views = [x[:3], x.view(10, 10).t(), x.detach()]
        x.add_(1).mul_(2)
    assert {op.made for op in run.trace[1:]} == {0}
    assert run.timeline == [BYTES] * len(run.trace)
    assert len(views) == 3


def test_view_of_something_large_keeps_it_live():
    with metered() as run:
        small = torch.ones(N)[:2]
        torch.zeros(1)
    assert run.timeline == [BYTES, BYTES, BYTES + 4]
    assert small.nbytes == 8


def test_emptied_storage_is_not_live():
    with metered() as run:
        full = torch.ones(N)
        full.untyped_storage().resize_(0)
        torch.zeros(1)
        full.untyped_storage().resize_(BYTES)
        torch.zeros(1)
    assert run.timeline == [BYTES, 4, BYTES + 4]


def test_what_was_made_before_is_given_and_never_live():
    weight, x = torch.rand(N, requires_grad=True), torch.rand(N)
    with metered() as run:
        x.add_(1)
        weight.detach()[:5]
    assert run.timeline == [0] * len(run.trace)
    assert run.given.bytes_alive() == 2 * BYTES


def test_tied_weights_count_once(gpt):
    with metered() as run:
        gpt(torch.zeros(1, 8, dtype=torch.int64))
    shapes = [row.shape for row in run.given.rows()]
    assert shapes.count(gpt.token_embedding.weight.shape) == 1
    assert run.given.bytes_alive() == 4 * gpt.config.parameters


def test_timeline_is_what_kept_bytes_sees_after_each_op(gpt):
    seen = []
    with kept_bytes(after=lambda meter: seen.append(meter.bytes_alive())), metered() as run:
        step(gpt)
    assert run.timeline == seen
    assert run.peak.live == max(seen)


def test_tensors_that_torch_func_wraps_are_followed():
    with metered() as run:
        torch.func.vmap(torch.func.grad(lambda row: (row.clone() * 2).sum()))(torch.ones(4, N))
    assert run.trace[0].name == "ones"
    assert max(run.timeline) >= 3 * 4 * BYTES
    assert run.kept() == 0


def test_largest_is_the_storage_with_most_bytes():
    with metered() as run:
        torch.ones(3) + torch.ones(5, 3)
    assert (run.largest.op, run.largest.shape, run.largest.bytes) == ("ones", (5, 3), 60)


def test_what_a_function_keeps_as_an_attribute_is_kept_by_forward():
    class Attribute(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x * 3
            return x.sum()

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.x

    with metered() as run:
        Attribute.apply(torch.rand(N, requires_grad=True)).backward()
    assert run.kept_by_forward == 2 * BYTES + 4 + 4  # x and its multiple, the sum, and the 1 that backward starts from


# FLOPs


def test_flops_of_an_mlp_by_pencil():
    net, x = mlp((3, 5, 2)), torch.rand(4, 3)
    with metered() as run:
        net(x).sum().backward()
    first, second = 2 * 4 * 3 * 5, 2 * 4 * 5 * 2
    # Backward has two products of the same size, but nobody needs the gradient of x.
    assert run.flops == {"addmm": first + second, "mm": first + 2 * second}


def test_flops_of_attention_by_pencil():
    batch, heads, time, width = 2, 3, 8, 4
    q, k, v = torch.rand(3, batch, heads, time, width, requires_grad=True)
    product = 2 * batch * heads * time * time * width
    with metered() as written_out:
        ((q @ k.mT / 2).softmax(-1) @ v).sum().backward()
    assert written_out.flops == {"bmm": 6 * product}
    with metered() as fused:
        F.scaled_dot_product_attention(q, k, v).sum().backward()
    assert list(fused.flops.values()) == [2 * product, 5 * product]  # its backward computes the scores again


def test_flops_of_a_model_are_those_of_its_matrices_and_attention(gpt):
    tokens = torch.zeros(2, 8, dtype=torch.int64)
    with torch.no_grad(), metered() as run:
        gpt(tokens)
    c = gpt.config
    matrices = c.vocabulary * c.width + c.layers * 12 * c.width**2
    assert sum(run.flops.values()) == 2 * tokens.numel() * (matrices + c.layers * 2 * c.context * c.width)


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 3), nn.ConvTranspose1d(3, 4, 3), nn.Linear(3, 4)])
def test_flops_are_those_of_torch(layer):
    shapes = {nn.Conv2d: (2, 3, 9, 9), nn.ConvTranspose1d: (2, 3, 9), nn.Linear: (2, 3)}
    x = torch.rand(shapes[type(layer)], requires_grad=True)
    with FlopCounterMode(display=False) as torchs, metered() as run:
        layer(x).sum().backward()
    assert sum(run.flops.values()) == torchs.get_total_flops() > 0


def test_products_of_int8_count():
    a, b = torch.ones(5, 3, dtype=torch.int8), torch.ones(3, 4, dtype=torch.int8)
    with metered() as run:
        torch._int_mm(a, b)
    assert run.flops == {"_int_mm": 2 * 5 * 3 * 4}


def test_a_sum_of_products_counts_each():
    with metered() as run:
        torch.addbmm(torch.zeros(3, 5), torch.rand(2, 3, 4), torch.rand(2, 4, 5))
    assert run.flops == {"addbmm": 2 * 2 * 3 * 4 * 5}


def test_products_with_a_vector_count():
    matrix, x, bias = torch.rand(5, 3), torch.rand(3), torch.rand(5)
    with metered() as run:
        torch.addmv(bias, matrix, x), matrix @ x, x @ x
    assert run.flops == {"addmv": 30, "mv": 30, "dot": 6}


def test_flops_count_in_inference_mode_too():
    layer, x = nn.Linear(3, 5), torch.rand(2, 3)
    with torch.inference_mode(), metered() as run:
        layer(x)
    assert run.flops == {"addmm": 60}


def test_recomputation_costs_another_forward():
    net, x = mlp((3, 5, 5, 2)), torch.rand(4, 3)
    with metered() as plain:
        net(x).sum().backward()
    with metered(evaluations=[net]) as run:
        checkpoint(net, x, use_reentrant=False).sum().backward()
    forward = plain.flops["addmm"]
    assert sum(run.flops.values()) - sum(plain.flops.values()) in {
        forward,
        forward - 2 * 4 * 5 * 2,
    }  # it may stop early
    assert run.kept_by_forward < plain.kept_by_forward
    assert run.evaluations == {net: 2}


# The trace


def test_cast_of_a_weight_is_seen_once_for_each_autocast_region():
    layer, x = nn.Linear(3, 5), torch.rand(2, 3)
    with metered() as run:
        for _ in range(2):
            with torch.autocast("cpu", BF16):
                layer(x), layer(x)
    assert casts(run, (5, 3)) == 2
    assert casts(run, (2, 3)) == 4  # x is no parameter: it is cast each time
    products = [op for op in run.trace if op.flops]
    assert [(op.inputs, op.outputs) for op in products] == [((BF16,) * 3, (BF16,))] * 4


def test_copy_into_the_same_dtype_or_an_integer_one_is_no_cast():
    x = torch.rand(3)
    with metered() as run:
        x.to(torch.float32, copy=True), x.long(), torch.arange(3).float(), x.double()
    assert [op.is_cast for op in run.trace if op.name == "_to_copy"] == [False, False, False, True]


def test_ops_know_their_module_forward_and_backward(gpt):
    with metered() as run:
        step(gpt)
    products = [op for op in run.trace if op.name in ("addmm", "mm")]
    forward = [op.module for op in products if not op.backward]
    layer = ["attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.out_proj", "mlp.up", "mlp.down"]
    assert forward == [*(f"GPT.blocks.{block}.{name}" for block in (0, 1) for name in layer), "GPT.head"]
    backward = [op.module for op in products if op.backward]
    assert sorted(backward) == sorted(2 * forward)
    assert backward[:2] == ["GPT.head"] * 2


def test_ops_that_need_no_gradient_lend_their_module_to_no_other():
    layer, x = nn.Linear(3, 3), torch.rand(2, 3)
    graph = nn.Linear(3, 3)(x).sin()
    with metered() as run:
        with torch.no_grad():
            layer(x)
        y = layer(graph).sin()
        with torch.no_grad():
            layer(x)
        y.sum().backward()
    assert {op.module for op in run.trace if op.name == "cos"} == {""}
    assert [op.module for op in run.trace if op.name == "mm"] == ["Linear", "Linear", ""]


def test_other_threads_are_not_seen():
    layer, x = nn.Linear(3, 3), torch.rand(2, 3)

    class Starter(nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=layer, args=(x,))
            thread.start()
            thread.join()
            return x + 1

    with metered(evaluations=[layer]) as run:
        Starter()(x)
    assert [(op.name, op.module) for op in run.trace] == [("add", "Starter")]
    assert run.evaluations[layer] == 1


def test_backward_is_told_from_forward():
    x = torch.rand(N, requires_grad=True)
    with metered() as run:
        y = x.sin().sum()
        y.backward()
    names = [op.name for op in run.trace if op.backward]
    assert [op.name for op in run.trace if not op.backward] == ["sin", "sum", "ones_like"]
    assert "cos" in names


# Calls


def test_calls_of_modules_and_counted_functions_are_counted():
    block, f = nn.Linear(3, 3), counted(torch.sin)
    f(torch.rand(1))
    with metered(evaluations=(block, f)) as run:
        f(block(block(torch.rand(2, 3))))
    f(torch.rand(1))
    assert run.evaluations == {block: 2, f: 1}


def test_plain_function_is_refused():
    said = "evaluations must be modules, or functions that `counted` returned"
    with pytest.raises(BadArgument, match=said), metered(evaluations=[torch.sin]):
        pass


# Nested runs, errors


def test_nested_runs_both_see_what_runs_inside():
    block = nn.Linear(3, 3)
    with metered(evaluations=[block]) as outer:
        x = block(torch.rand(2, 3))
        with metered(evaluations=[block]) as inner:
            y = block(x).sum()
        y.backward()
    assert (outer.evaluations[block], inner.evaluations[block]) == (2, 1)
    names = [op.name for op in outer.trace]
    assert [op.name for op in inner.trace] == ["t", "addmm", "sum"]
    assert names[:6] == ["rand", "t", "addmm", "t", "addmm", "sum"]
    assert (inner.trace[0].module, outer.trace[1].module) == ("Linear", "Linear")
    assert inner.timeline[-1] < outer.timeline[5]  # x is the outer run's only


def test_module_counted_twice_is_itself_again():
    block = nn.Linear(3, 3)
    with forward_calls(block) as outer:
        with forward_calls(block) as inner:
            block(torch.rand(1, 3))
        block(torch.rand(1, 3))
    assert (outer.calls, inner.calls, "forward" in vars(block)) == (2, 1, False)


def test_error_in_the_body_ends_the_run_and_leaves_nothing_behind():
    class Broken(nn.Module):
        def forward(self, x):
            return (x + 1) @ torch.rand(7)

    broken = Broken()
    with metered(evaluations=[broken]) as run:
        with pytest.raises(RuntimeError):
            broken(torch.rand(3))
        torch.zeros(1)
    with pytest.raises(RuntimeError), metered(evaluations=[broken]) as second:
        broken(torch.rand(3))
    torch.zeros(1)
    assert [op.module for op in run.trace if op.name == "zeros"] == [""]
    assert (run.evaluations[broken], second.evaluations[broken]) == (1, 1)
    assert [op.name for op in second.trace] == [op.name for op in run.trace[:-1]]
    assert not modules._global_forward_hooks
    assert not modules._global_forward_pre_hooks


def test_copy_of_a_run_has_its_trace_and_follows_nothing():
    with metered() as run:
        x = torch.ones(N)
    again = copy.deepcopy(run)
    assert (again.trace, again.kept(), run.kept()) == (run.trace, 0, x.nbytes)


# CUDA


def test_without_cuda_there_is_no_allocator():
    with mock.patch("torch.cuda.is_initialized", return_value=False), metered() as run:
        torch.ones(1)
    assert run.cuda is None


def test_nested_runs_share_the_allocators_one_peak():
    highest = mock.Mock(side_effect=[900, 300, 500])  # before the inner run resets it, after that run, at the end
    allocated = mock.Mock(side_effect=[100, 200, 200, 250, 150])
    cuda = mock.patch.multiple(
        torch.cuda,
        is_initialized=lambda: True,
        reset_peak_memory_stats=lambda: None,
        max_memory_allocated=highest,
        memory_allocated=allocated,
    )
    with cuda, metered() as outer, metered() as inner:
        pass
    assert (outer.cuda.before, outer.cuda.peak, outer.cuda.after) == (100, 900, 150)
    assert (inner.cuda.before, inner.cuda.peak, inner.cuda.after) == (200, 300, 250)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_peak_is_that_of_cudas_allocator():
    """To 512 bytes for each storage: the allocator's blocks. cuBLAS takes its workspace in the first step."""
    net = nn.Sequential(nn.Linear(512, 2048, bias=False), nn.ReLU(), nn.Linear(2048, 300, bias=False)).cuda()
    x, dy = torch.rand(250, 512, device="cuda"), torch.rand(250, 300, device="cuda")
    net(x).backward(dy)
    net.zero_grad()
    with metered() as run:
        net(x).backward(dy)
    storages = sum(op.made > 0 for op in run.trace)
    assert 0 <= run.cuda.peak - run.cuda.before - run.peak.live <= 512 * storages
    assert 0 <= run.cuda.after - run.cuda.before - run.kept() <= 512 * storages
    assert {op.module for op in run.trace if op.backward and op.flops} == {"Sequential.0", "Sequential.2"}


# The figure


def test_figure_names_the_peak_and_what_forward_kept(gpt):
    with metered() as run:
        step(gpt)
    upper, lower = memory_timeline(run).axes
    (peak,) = upper.texts
    assert peak.get_text().startswith("peak ")
    assert run.peak.name in peak.get_text()
    legend = [each.get_text() for each in upper.get_legend().get_texts()]
    assert [words.split(":")[0] for words in legend] == ["forward", "backward", "kept by forward"]
    assert {"blocks.0", "blocks.1"} <= {each.get_text() for each in lower.texts}


def test_figure_of_a_run_without_backward_or_without_ops():
    with metered() as run:
        torch.ones(N)
    (upper, _) = memory_timeline(run, title="t").axes
    assert [each.get_text() for each in upper.get_legend().get_texts()] == ["forward"]
    with metered() as empty:
        pass
    memory_timeline(empty)._repr_png_()
