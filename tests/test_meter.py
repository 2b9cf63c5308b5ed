"""The instruments count what they say, and are blind where they say so."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from course.errors import BadArgument
from course.meter import (
    KeptBytes,
    counted,
    cycles_freed,
    forward_calls,
    hooks_called,
    kept_bytes,
    memory_limit,
    saved_bytes,
)

N = 100
BYTES = 4 * N  # of N numbers in float32


def leaf():
    return torch.rand(N, requires_grad=True)


class Attribute(torch.autograd.Function):
    """Keeps its input where saved-tensor hooks do not look."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


class Saver(torch.autograd.Function):
    """Keeps its input as one should."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def kept_besides_y(f):
    """Bytes that f keeps of an input that nobody else holds, and of what it made."""
    x0 = leaf()
    with kept_bytes() as meter:
        x = x0.clone()
        y = f(x)
        del x
    return meter.bytes_alive(ignore=[y])


# What is saved


def test_product_saves_both_factors():
    with saved_bytes() as meter:
        y = leaf() * leaf()
    assert (meter.total, [row.op for row in meter.rows]) == (2 * BYTES, ["mul", "mul"])
    assert y.requires_grad


def test_sum_saves_nothing():
    with saved_bytes() as meter:
        leaf() + leaf()
    assert (meter.total, meter.rows) == (0, [])


def test_tensor_saved_by_two_ops_counts_once():
    x = leaf()
    with saved_bytes() as meter:
        torch.sin(x) + torch.cos(x)
    assert meter.by_op() == {"sin": BYTES, "cos": 0}
    assert [row.note for row in meter.rows] == ["", "counted before"]


def test_view_counts_with_its_whole_storage():
    x = leaf()
    with saved_bytes() as meter:
        torch.sin(x[:3])
    assert (meter.rows[0].shape, meter.total) == ((3,), BYTES)


def test_ignored_weight_is_listed_and_does_not_count():
    layer, x = torch.nn.Linear(3, 5), torch.rand(4, 3, requires_grad=True)
    with saved_bytes(ignore=layer.parameters()) as meter:
        layer(layer(x).sin()[:, :3])
    weights = [row for row in meter.rows if row.note == "ignored"]
    assert weights
    assert all(row.bytes == 0 for row in weights)
    assert meter.by_op()["sin"] == 4 * 5 * 4


def test_ops_are_named_as_they_were_written():
    logits = torch.rand(2, 3, requires_grad=True)
    with saved_bytes() as meter:
        F.cross_entropy(logits @ torch.rand(3, 3), torch.tensor([0, 1]))
        logits**2
        Saver.apply(logits)
    assert set(meter.by_op()) == {"matmul", "cross_entropy", "pow", "Saver"}


def test_storage_at_a_freed_address_counts_again():
    with saved_bytes() as meter:
        for _ in range(5):
            torch.sin(leaf())
    assert meter.total == 5 * BYTES


def test_derivatives_are_those_without_the_meter():
    x = leaf()
    with saved_bytes():
        y = (x.exp() * x).sum()
        (dx,) = torch.autograd.grad(y, x, create_graph=True)
    (again,) = torch.autograd.grad(dx.sum(), x)
    torch.testing.assert_close(dx, (1 + x) * x.exp())
    torch.testing.assert_close(again, (2 + x) * x.exp())


def test_metered_graph_is_freed_without_the_collector():
    gc.disable()
    try:
        with kept_bytes() as kept, saved_bytes():
            y = leaf().exp()
        del y
        assert kept.bytes_alive() == 0
    finally:
        gc.enable()


def test_checkpoint_saves_its_input_only():
    x = leaf()
    with saved_bytes() as plain:
        x.sin().sin()
    with saved_bytes() as meter:
        checkpoint(lambda x: x.sin().sin(), x, use_reentrant=False)
    assert (plain.total, meter.total) == (2 * BYTES, BYTES)


def test_compiled_function_is_one_op_and_saves_what_it_saves_without_the_meter():
    x = leaf()
    compiled = torch.compile(lambda x: x * torch.sigmoid(x), backend="aot_eager", dynamic=False)
    alone = compiled(x).grad_fn.saved_tensors
    with saved_bytes() as meter:
        compiled(x)
    assert [row.shape for row in meter.rows] == [each.shape for each in alone]
    assert list(meter.by_op()) == ["CompiledFunction"]


def test_attribute_of_ctx_is_not_saved():
    with saved_bytes() as meter:
        Attribute.apply(leaf())
    assert meter.total == 0


# What is kept


@pytest.mark.parametrize("function", [Attribute, Saver])
def test_input_counts_however_it_is_kept(function):
    assert kept_besides_y(function.apply) == BYTES


def test_nothing_is_kept_of_a_sum():
    assert kept_besides_y(lambda x: x + x) == 0


def test_intermediate_that_a_graph_needs_counts():
    assert kept_besides_y(lambda x: x * torch.sigmoid(x)) == 2 * BYTES


def test_closure_and_list_count():
    attic = []

    def f(x):
        attic.append(x.detach().sin())
        return x + 1

    assert kept_besides_y(f) == BYTES


def test_watching_keeps_nothing_alive():
    with kept_bytes() as meter:
        x = torch.rand(N)
        held = meter.bytes_alive()
        del x
    assert (held, meter.bytes_alive()) == (BYTES, 0)


@pytest.mark.parametrize("transform", [torch.func.grad, lambda f: torch.func.vmap(torch.func.grad(f))])
def test_tensors_that_torch_func_wraps_are_followed(transform):
    meter, alive = KeptBytes(), []

    def f(row):
        copy = row.clone()
        meter.watch(copy)
        alive.append(meter.bytes_alive())
        return (copy * copy).sum()

    transform(f)(torch.rand(4, N))
    assert (alive, meter.bytes_alive()) == ([4 * BYTES], 0)


def test_of_a_tensor_that_wraps_others_those_are_followed():
    with kept_bytes() as meter:
        wrapped = TwoTensor(torch.rand(N), torch.rand(N))
        doubled = wrapped * 2
        del wrapped
    assert [row.op for row in meter.rows()] == ["mul", "mul"]
    assert (doubled.nbytes, meter.bytes_alive()) == (BYTES, 2 * BYTES)


def test_deep_copy_of_a_meter_starts_empty():
    with kept_bytes() as meter:
        x = torch.rand(N)
    assert (copy.deepcopy(meter).bytes_alive(), meter.bytes_alive()) == (0, x.nbytes)


def test_what_was_made_before_does_not_count_nor_do_its_views():
    x = torch.rand(N)
    with kept_bytes() as meter:
        views = [x[:5], x.view(10, 10), x.add_(1)]
    assert meter.bytes_alive() == 0
    assert len(views) == 3


def test_small_view_keeps_a_large_storage_alive():
    with kept_bytes() as meter:
        small = torch.rand(N)[:2]
    assert [(row.shape, row.bytes) for row in meter.rows()] == [((N,), BYTES)]
    assert small.nbytes == 8


def test_what_lies_in_a_cycle_is_freed_when_the_body_ends():
    with kept_bytes() as meter, cycles_freed():
        cycle = {"x": torch.rand(N)}
        cycle["itself"] = cycle
        many = [[] for _ in range(5000)]  # after 700 the collector would begin, and what is left be older
        del cycle, many
        assert (meter.bytes_alive(), gc.isenabled()) == (BYTES, False)
    assert (meter.bytes_alive(), gc.isenabled()) == (0, True)


def test_storage_that_was_emptied_counts_nothing():
    with kept_bytes() as meter:
        x = torch.rand(N)
    x.untyped_storage().resize_(0)
    assert meter.bytes_alive() == 0


def test_rows_name_the_op_and_leave_out_what_is_ignored():
    with kept_bytes() as meter:
        x = torch.rand(N)
        y = x.sin()
    assert [row.op for row in meter.rows(ignore=[y])] == ["rand"]


def test_tensor_made_from_a_list_counts():
    with kept_bytes() as meter:
        x = torch.tensor([1.0, 2.0])
    assert meter.bytes_alive() == x.nbytes


def test_numpy_copy_is_not_seen():
    copies = []

    def f(x):
        copies.append(x.detach().numpy().copy())
        return x + 1

    assert kept_besides_y(f) == 0


# Calls


def test_calls_and_shapes_are_counted():
    f = counted(lambda scale, x: x * scale)
    f(2.0, torch.rand(3, 4))
    f(2.0, x=torch.rand(5))
    assert (f.calls, f.shapes, f.rows) == (2, [(3, 4), (5,)], [3, 5])


def test_counted_function_returns_what_the_function_returns():
    assert counted(divmod)(7, 2) == (3, 1)


def test_call_that_raises_counts():
    f = counted(torch.linalg.inv)
    with pytest.raises(torch.linalg.LinAlgError):
        f(torch.zeros(2, 2))
    assert f.calls == 1


def test_call_without_tensors_has_one_row():
    f = counted(abs)
    f(-1)
    assert (f.shapes, f.rows) == ([()], [1])


def test_forward_is_counted_by_call_and_by_name():
    model, x = torch.nn.Linear(3, 2), torch.rand(4, 3)
    with forward_calls(model) as calls:
        model(x)
        model.forward(x[:1])
    model(x)
    assert (calls.calls, calls.rows) == (2, [4, 1])


def test_module_is_itself_again_after_an_error():
    model = torch.nn.Linear(3, 2)
    with pytest.raises(RuntimeError), forward_calls(model):
        model(torch.rand(4, 5))
    assert "forward" not in vars(model)


def test_hooks_are_counted_also_those_of_nodes_that_nobody_can_list():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, dy):
            return 2 * dy

    w = torch.ones(3, requires_grad=True)
    node = w.view_as(w).grad_fn.next_functions[0][0]  # of w itself, which outlives every graph while somebody keeps it
    assert hooks_called(Doubled.apply(w).sum()) == 0
    handles = [node.register_hook(lambda *_: None), w.register_post_accumulate_grad_hook(lambda _: None)]
    assert hooks_called(Doubled.apply(w).sum()) == 2
    for handle in handles:
        handle.remove()
    assert hooks_called(Doubled.apply(w).sum()) == 0
    assert w.grad.tolist() == [6.0] * 3


@pytest.mark.parametrize("ignored", [torch.nn.Linear(1, 1), [1.0], "x", None])
def test_what_is_ignored_must_be_tensors(ignored):
    words = r"ignore must hold tensors, such as model.parameters\(\), got "
    with pytest.raises(BadArgument, match=words), saved_bytes(ignored):
        pass
    with kept_bytes() as meter, pytest.raises(BadArgument, match="ignore must hold tensors"):
        meter.bytes_alive(ignored)


@pytest.mark.parametrize("function", [3, None, "f"])
def test_only_what_can_be_called_counts_its_calls(function):
    with pytest.raises(BadArgument, match=r"only a function counts its calls, got "):
        counted(function)


@pytest.mark.parametrize("limit", ["1 MiB", None, float("nan"), -1])
def test_a_limit_is_a_number_of_bytes(limit):
    with pytest.raises(BadArgument, match=r"limit must be at least 0 bytes, got "), memory_limit(limit):
        pass
