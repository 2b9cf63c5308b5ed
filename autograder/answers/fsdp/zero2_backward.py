"""Right and wrong ways to write `zero2_backward`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm, Work
from course.reference.fsdp.zero2_backward import zero2_backward

Buckets = Sequence[Sequence[Parameter]]


def one_on_its_way(comm: Comm, loss: Tensor, buckets: Buckets) -> list[Tensor]:
    """A bucket travels while backward goes on, and is waited for before the next one is put together."""
    waiting = [{*bucket} for bucket in buckets]
    shards: list[Tensor] = []
    travels: list[tuple[Tensor, Work]] = []

    def land() -> None:
        for _, work in travels:
            work.wait()
        travels.clear()

    def start_complete(p: Parameter | None = None) -> None:
        for left in waiting:
            left.discard(p)
        while len(shards) < len(buckets) and (p is None or not waiting[len(shards)]):
            land()
            bucket = buckets[len(shards)]
            parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in bucket]
            for each in bucket:
                each.grad = None
            n = sum(each.numel() for each in bucket)
            flat = torch.cat([*(part.reshape(-1) for part in parts), bucket[0].new_zeros(-n % comm.size)]).detach()
            shards.append(torch.empty_like(flat[: len(flat) // comm.size]))
            travels.append((flat, comm.reduce_scatter_single(shards[-1], flat, "sum", async_op=True)))

    handles = [p.register_post_accumulate_grad_hook(start_complete) for bucket in buckets for p in bucket]  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    start_complete()
    land()
    for handle in handles:
        handle.remove()
    return [shard / comm.size for shard in shards]


def numpys_rows(comm: Comm, loss: Tensor, buckets: Buckets) -> list[Tensor]:
    """The nodes that accumulate call the hooks, as in DDP; rows are NumPy's, and messages are parts of them."""
    handles, shards = [], list[Tensor]()
    missing = [len(bucket) for bucket in buckets]

    def scatter() -> None:
        bucket = buckets[len(shards)]
        grads = [np.zeros(p.numel(), p.detach().numpy().dtype) if p.grad is None else p.grad.numpy() for p in bucket]
        for p in bucket:
            p.grad = None
        padding = np.zeros(-sum(grad.size for grad in grads) % comm.size, grads[0].dtype)
        row = torch.from_numpy(np.concatenate([*(grad.ravel() for grad in grads), padding]))
        parts = [*row.view(comm.size, -1)]
        shards.append(torch.empty_like(parts[0]))
        comm.reduce_scatter(shards[-1], parts, "mean")

    def arrived(number: int, *_: object) -> None:
        missing[number] -= 1
        while len(shards) < len(buckets) and not missing[len(shards)]:
            scatter()

    nodes = [(number, p.view_as(p).grad_fn) for number, bucket in enumerate(buckets) for p in bucket]
    for number, view in nodes:
        assert view is not None
        node = view.next_functions[0][0]
        assert node is not None
        handles.append(node.register_hook(partial(arrived, number)))
    loss.backward()  # type: ignore[no-untyped-call]
    for handle in handles:
        handle.remove()
    while len(shards) < len(buckets):
        scatter()
    return shards


RIGHT = (
    right(one_on_its_way),
    right(numpys_rows, independent="the hooks of autograd's nodes, and numpy.concatenate"),
)


def one_bucket_after_another(comm: Comm, loss: Tensor, buckets: Buckets) -> list[Tensor]:
    """No hooks: the gradients of one bucket at a time, with a graph that stays."""
    shards = []
    for bucket in buckets:
        grads = torch.autograd.grad(loss, [*bucket], retain_graph=True, materialize_grads=True, allow_unused=True)
        n = sum(p.numel() for p in bucket)
        flat = torch.cat([*(grad.flatten() for grad in grads), bucket[0].new_zeros(-n % comm.size).detach()])
        del grads
        shards.append(torch.empty_like(flat[: len(flat) // comm.size]))
        comm.reduce_scatter_single(shards[-1], flat, "mean")
        del flat
    return shards


def all_at_once(comm: Comm, loss: Tensor, buckets: Buckets) -> list[Tensor]:
    """No hooks, and all gradients in one call."""
    params = [p for bucket in buckets for p in bucket]
    found = torch.autograd.grad(loss, params, materialize_grads=True, allow_unused=True)
    gradients = dict(zip(params, found, strict=True))
    shards = []
    for bucket in buckets:
        n = sum(p.numel() for p in bucket)
        flat = torch.cat([*(gradients[p].flatten() for p in bucket), loss.new_zeros(-n % comm.size).detach()])
        shards.append(torch.empty_like(flat[: len(flat) // comm.size]))
        comm.reduce_scatter_single(shards[-1], flat, "mean")
    return shards


def rows_that_wait(comm: Comm, loss: Tensor, buckets: Buckets) -> list[Tensor]:
    """Gradients go from .grad into the row of their bucket, and rows are scattered when backward is over."""
    places, rows, shards = {}, dict[int, Tensor](), []
    for number, bucket in enumerate(buckets):
        start = 0
        for p in bucket:
            places[p] = number, start
            start += p.numel()

    def row_of(number: int) -> Tensor:
        n = sum(p.numel() for p in buckets[number])
        if number not in rows:
            rows[number] = torch.zeros(n + -n % comm.size, dtype=buckets[0][0].dtype)
        return rows[number]

    def arrived(p: Parameter) -> None:
        number, start = places[p]
        assert p.grad is not None
        row_of(number)[start : start + p.numel()] = p.grad.flatten()
        p.grad = None

    handles = [p.register_post_accumulate_grad_hook(arrived) for p in places]  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    for handle in handles:
        handle.remove()
    for number in range(len(buckets)):
        row = row_of(number)
        shards.append(row.new_empty(len(row) // comm.size))
        comm.reduce_scatter_single(shards[-1], row, "mean")
        del row, rows[number]
    return shards


def freed_one_by_one(comm: Comm, loss: Tensor, buckets: Buckets) -> list[Tensor]:
    """Backward first; each .grad goes as soon as it is in its bucket's row."""
    loss.backward()  # type: ignore[no-untyped-call]
    shards = []
    for bucket in buckets:
        n = sum(p.numel() for p in bucket)
        row, start = torch.zeros(n + -n % comm.size, dtype=bucket[0].dtype), 0
        for p in bucket:
            if p.grad is not None:
                row[start : start + p.numel()] = p.grad.flatten()
            p.grad = None
            start += p.numel()
        shards.append(row.new_empty(len(row) // comm.size))
        comm.reduce_scatter_single(shards[-1], row, "mean")
        del row
    return shards


edit = partial(edited, zero2_backward)
LANDED = "        for _, work in travels:\n            work.wait()\n        travels.clear()"
LANDED_BUT = "        while len(travels) > 1:\n            travels.pop(0)[1].wait()"
ALL_LANDED = (
    "    start_complete()\n    land()",
    "    start_complete()\n    for _, work in travels:\n        work.wait()",
)
LANDED_LATE = ("            shards.append", "            land()\n            shards.append")
COPIED = ("]).detach()", "]).detach().clone()")
COMPLETE = "missing[len(shards)] == 0"
REDUCE = 'comm.reduce_scatter_single(shard, flat, "mean")'
REST = "    for bucket in buckets[len(shards) :]:\n        scatter(bucket)\n"
PIECES = (
    "for part, piece in zip(shard.tensor_split({0}), flat.view(comm.size, -1).tensor_split({0}, 1)):\n"
    '            comm.reduce_scatter_single(part, piece.flatten(), "mean")'
)
EACH = (
    "for rank, part in enumerate(flat.view(comm.size, -1)):\n"
    "            comm.reduce(part, rank)\n"
    "        shard.copy_(flat.view(comm.size, -1)[comm.rank] / comm.size)"
)
NEW = "shard = bucket[0].new_empty(-(-sum(p.numel() for p in bucket) // comm.size))"
FREED = "            p.grad = None\n"
REDUCED = 'comm.all_reduce(flat, "mean")\n        '

WRONG = (
    wrong(
        "after_backward",
        "Gradients of the whole model are alive at once, as high as without sharding: they are in .grad until "
        "backward is over. Scatter a bucket in the hook that brings its last gradient, and set .grad to None there.",
        edit((COMPLETE, "False")),
        edit((COMPLETE, "not any(missing)")),
        edit((FREED, ""), ("    return shards", "    for p in bucket_of:\n        p.grad = None\n    return shards")),
        freed_one_by_one,
        fails=("let_go", "few_buckets", "memory"),
    ),
    wrong(
        "buckets_stay",
        "You empty .grad in time, and the flat gradients of most buckets are alive all the same. They stand in a "
        "dict of yours until backward is over, or travel until you wait for them then, or have arrived and something "
        "leads to them: a list of tensors, or of works, because a Work holds its tensors. Wait for a bucket before the "
        "next one is put together, and then let go of its Work. (Where one torch.autograd.grad makes all gradients, "
        "they are all there, too.)",
        edit(
            (REDUCE, 'works.append((flat, comm.reduce_scatter_single(shard, flat, "mean", async_op=True)))'),
            ("    shards: list[Tensor] = []", "    shards: list[Tensor] = []\n    works = []"),
            ("    return shards", "    for _, work in works:\n        work.wait()\n    return shards"),
        ),
        edit(
            (REDUCE, 'works.append(comm.reduce_scatter_single(shard, flat, "mean", async_op=True))'),
            ("    shards: list[Tensor] = []", "    shards: list[Tensor] = []\n    works = []"),
            ("        shards.append(shard)", "        shards.append(shard)\n        works[-1].wait()"),
        ),
        edit(
            (REDUCE, f"{REDUCE}\n        rows.append(flat)"),
            ("    shards: list[Tensor] = []", "    shards: list[Tensor] = []\n    rows = []"),
        ),
        edited(one_on_its_way, ("        travels.clear()", "        pass")),
        all_at_once,
        fails=("few_buckets", "memory"),
    ),
    wrong(
        "one_bucket_too_many",
        "You empty .grad, but more is alive than one bucket and one copy of it. A bucket too many is still on its way, "
        "or gradients wait in rows of yours until backward is over, or one copy too many is alive. Scatter a bucket "
        "when it is complete, wait for it before the next one is put together, and delete what cat or pad has copied.",
        edited(one_on_its_way, (LANDED, LANDED_BUT), ALL_LANDED),
        edited(one_on_its_way, ("            land()\n", ""), LANDED_LATE),
        edited(one_on_its_way, COPIED),
        rows_that_wait,
        fails=("memory",),
    ),
    wrong(
        "one_bucket_late",
        "When backward comes to the first layer, more than a bucket of gradients is in .grad, although you empty it: "
        "a bucket that is complete is scattered later, as when the next one is complete, too. Scatter it in the "
        "hook that brings its last gradient.",
        edit((COMPLETE, "sum(missing[len(shards) : len(shards) + 2]) == 0")),
        fails=("let_go", "memory"),
    ),
    wrong(
        "a_pass_for_each_bucket",
        "Each bucket has a backward pass of its own, so that the gradients of the last layers are computed as often as "
        "there are buckets. Call loss.backward() once: hooks hear of each gradient when it has come.",
        one_bucket_after_another,
        edit(
            ("loss.backward()", "for bucket in buckets:\n        loss.backward(inputs=bucket, retain_graph=True)"),
        ),
        fails=("one_pass",),
    ),
    wrong(
        "row_of_the_bucket_before",
        "You put a bucket together where the one before was: what you do not write is that one's. Fill the row with "
        "zeros first, or at least the places of parameters without a gradient and the padding.",
        edit(
            (
                "flat = shard.new_zeros(comm.size * len(shard))",
                "flat = rows.setdefault(len(shard), shard.new_zeros(comm.size * len(shard)))",
            ),
            ("    shards: list[Tensor] = []", "    shards: list[Tensor] = []\n    rows = {}"),
        ),
    ),
    wrong(
        "too_few_pieces",
        "torch.chunk and torch.split may give fewer pieces than there are ranks, where a bucket has few elements: 5 of "
        "them in pieces of 2 are 3 pieces, and 4 ranks want one each. Fill the row up with zeros before you cut it.",
        edit(
            (
                REDUCE,
                "import torch\n        n = sum(p.numel() for p in bucket)\n        pieces = [\n"
                "            torch.nn.functional.pad(each, (0, len(shard) - len(each)))\n"
                "            for each in flat[:n].chunk(comm.size)\n        ]\n"
                '        comm.reduce_scatter(shard, pieces, "mean")',
            )
        ),
    ),
    wrong(
        "in_float32",
        "You put buckets together in torch's default dtype, whatever the parameters have: bucket[0].new_zeros(n) is "
        "like them.",
        edit((NEW, f"{NEW}.float()")),
        edit(
            (NEW, f"{NEW}.float()"),
            ("shards.append(shard)", "shards.append(shard.to(bucket[0].dtype))"),
        ),
        edited(
            one_on_its_way,
            ("torch.zeros_like(each) if", "torch.zeros(each.shape) if"),
            ("bucket[0].new_zeros(-n % comm.size)", "torch.zeros(-n % comm.size)"),
        ),
        rounds_to=torch.float32,
        by_chance=True,  # whether the values beside a cost show float32's roundings
    ),
    wrong(
        "gradients_not_freed",
        "The gradients stay in .grad after they were scattered. Set it to None.",
        edit((FREED, "")),
        fails=("nothing_left", "let_go", "few_buckets", "memory"),
    ),
    wrong(
        "all_reduce_then_slice",
        "You do something else than one reduce_scatter of each bucket, and send more. An all_reduce gives every rank "
        "the mean of all parts, of which it keeps one: twice the bytes.",
        edit((REDUCE, f"{REDUCED}shard = flat.view(comm.size, -1)[comm.rank].clone()")),
        fails=("one_of_each", "bytes"),
    ),
    wrong(
        "bucket_in_pieces",
        "No byte too many is sent, but not in one reduce_scatter for each bucket: you cut buckets into pieces, or "
        "call something else several times. Every call costs its latency. Put the gradients of a bucket into one "
        "tensor.",
        edit((REDUCE, PIECES.format(2))),
        edit((REDUCE, PIECES.format("len(bucket)"))),
        edit((REDUCE, EACH)),
        fails=("one_of_each",),
    ),
    wrong(
        "view_of_the_bucket",
        "What you return is a view, and keeps the whole bucket's gradients behind it alive. Give it memory of its own.",
        edit((REDUCE, f"{REDUCED}shard = flat.view(comm.size, -1)[comm.rank]")),
        fails=("one_of_each", "bytes", "few_buckets", "memory"),
    ),
    wrong(
        "sizes_of_the_first",
        "You take all parameters of a bucket to be as large as the first, or of as many dimensions. A bucket holds "
        "what comes one after the other in a model: ask each parameter for its numel(), and flatten each gradient.",
        edit((NEW, NEW.replace("sum(p.numel() for p in bucket)", "len(bucket) * bucket[0].numel()"))),
        edit(("start += p.numel()", "start += bucket[0].numel()")),
        edited(one_on_its_way, ("*(part.reshape(-1) for part in parts)", "torch.cat(parts).flatten()")),
        edited(one_on_its_way, ("*(part.reshape(-1) for part in parts)", "torch.stack(parts).flatten()")),
    ),
    wrong(
        "sum_for_mean",
        "Every gradient is the sum over ranks. Divide by their number, or say so to reduce_scatter.",
        edit((REDUCE, REDUCE.replace("mean", "sum"))),
    ),
    wrong(
        "hook_before_the_gradient",
        "A hook of register_hook is called when a gradient has been computed and is not yet in .grad: the last one "
        "of each bucket is missing, and stays when it comes. Use register_post_accumulate_grad_hook.",
        edit(
            (
                "p.register_post_accumulate_grad_hook(arrived)",
                "p.register_hook(lambda gradient, p=p: arrived(p))",
            )
        ),
    ),
    wrong(
        "this_ranks_own",
        "You keep a part of this rank's own gradient: nothing came from the others.",
        edit((REDUCE, "shard = flat.view(comm.size, -1)[comm.rank].clone()")),
    ),
    wrong(
        "at_the_first_gradient",
        "A bucket of yours is scattered when the first of its gradients is there. Count down what it misses.",
        edit((COMPLETE, "missing[len(shards)] < len(buckets[len(shards)])")),
    ),
    wrong(
        "incomplete_never_scattered",
        "A bucket with a parameter that was not used is never complete. When backward is over, scatter what is left, "
        "with zeros.",
        edit((REST, "")),
    ),
    wrong(
        "last_bucket_twice",
        "When backward is over you scatter a bucket once more that was scattered during it: zeros come, in a shard "
        "that the list has too many. Begin with the first one that is left.",
        edit((REST, REST.replace("len(shards) :", "max(len(shards) - 1, 0) :"))),
    ),
    wrong(
        "as_they_come",
        "A bucket is scattered when it is complete on this rank. Where ranks use different layers, another one is "
        "complete first on another rank, and they meet in one reduce_scatter. Keep the order of the list.",
        edit(
            (f"while len(shards) < len(buckets) and {COMPLETE}", "if missing[bucket_of[p]] == 0"),
            ("            scatter(buckets[len(shards)])", "            scatter(buckets[bucket_of[p]])"),
            (
                REST,
                "    for left, bucket in zip(missing, buckets):\n        if left:\n            scatter(bucket)\n",
            ),
        ),
    ),
    wrong(
        "hooks_left",
        "Something is left on the parameters after the call. Hooks: keep what registering returns, and call remove() "
        "of each. Or, where a rank is alone, gradients, to which the next backward adds: set .grad to None there, too.",
        edit(("        hook.remove()", "        pass")),
        edit(
            (
                "p.register_post_accumulate_grad_hook(arrived) for p in bucket_of]",
                "p.view_as(p).grad_fn.next_functions[0][0] for p in bucket_of]\n"
                '    zero2_backward.__dict__.setdefault("nodes", []).extend(hooks)\n'
                "    for p, node in zip(bucket_of, hooks, strict=True):\n"
                "        node.register_hook(lambda *_, p=p: arrived(p))",
            ),
            ("        hook.remove()", "        pass"),
        ),
        edit((FREED, f"            if comm.size > 1:\n    {FREED}")),
        fails=("nothing_left",),
    ),
)
