"""Right and wrong ways to write `overlapped_backward`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import Parameter

from autograder.bank import right, wrong
from autograder.edits import edited
from course.cluster import Comm, Work
from course.reference.ddp.overlapped_backward import overlapped_backward

Buckets = Sequence[Sequence[Parameter]]


def views_of_flat_tensors(comm: Comm, loss: Tensor, buckets: Buckets) -> None:
    """Gradients are views of their bucket from the start: autograd adds to its zeros, and nothing is written back."""
    flats = [torch.zeros(sum(p.numel() for p in bucket), dtype=bucket[0].dtype) for bucket in buckets]
    waiting, handles = [{*bucket} for bucket in buckets], []
    works: list[Work] = []
    for flat, bucket in zip(flats, buckets, strict=True):
        start = 0
        for p in bucket:
            p.grad = flat[start : start + p.numel()].view(p.shape)
            start += p.numel()

    def start_complete(p: Parameter | None = None) -> None:
        for left in waiting:
            left.discard(p)
        while len(works) < len(flats) and (p is None or not waiting[len(works)]):
            works.append(comm.all_reduce(flats[len(works)], "sum", async_op=True))

    for bucket in buckets:
        handles += [p.register_post_accumulate_grad_hook(start_complete) for p in bucket]  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    start_complete()
    for handle in handles:
        handle.remove()
    for work, flat in zip(works, flats, strict=True):
        work.wait()
        flat /= comm.size


def multi_grad_hooks(comm: Comm, loss: Tensor, buckets: Buckets) -> None:
    """torch's own hook for several tensors, which gets their gradients when all that come are there."""
    sent: list[tuple[Tensor, Work]] = []
    came: dict[int, Tensor] = {}

    def send(last: bool = False) -> None:
        while len(sent) < len(buckets) and (last or len(sent) in came):
            shapes = buckets[len(sent)]
            flat = came.get(len(sent), torch.zeros(sum(p.numel() for p in shapes), dtype=shapes[0].dtype))
            sent.append((flat, comm.all_reduce(flat, "avg", async_op=True)))

    def take(number: int, grads: Sequence[Tensor | None]) -> None:
        known = zip(buckets[number], grads, strict=True)
        came[number] = torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in known])
        send()

    hook = torch.autograd.graph.register_multi_grad_hook
    handles = [hook([*bucket], partial(take, number)) for number, bucket in enumerate(buckets)]
    loss.backward()  # type: ignore[no-untyped-call]
    send(last=True)
    for handle in handles:
        handle.remove()
    for bucket, (flat, work) in zip(buckets, sent, strict=True):
        work.wait()
        torch._foreach_copy_([_gradient(p) for p in bucket], _pieces(flat, bucket))


def _gradient(p: Parameter) -> Tensor:
    p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    return p.grad


def _pieces(flat: Tensor, bucket: Sequence[Parameter]) -> list[Tensor]:
    return [
        piece.view(p.shape) for piece, p in zip(torch.split(flat, [p.numel() for p in bucket]), bucket, strict=True)
    ]


RIGHT = (
    right(views_of_flat_tensors),
    right(multi_grad_hooks, independent="torch.autograd.graph.register_multi_grad_hook"),
)


def one_for_each_parameter(comm: Comm, loss: Tensor, buckets: Buckets) -> None:
    """A reduction of each gradient as soon as it is there."""
    order = [p for bucket in buckets for p in bucket]
    there: set[Parameter] = set()
    works: list[Work] = []

    def begin_next(p: Parameter) -> None:
        there.add(p)
        while len(works) < len(order) and order[len(works)] in there:
            works.append(comm.all_reduce(_gradient(order[len(works)]), "mean", async_op=True))

    hooks = [p.register_post_accumulate_grad_hook(begin_next) for p in order]  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    for hook in hooks:
        hook.remove()
    works += [comm.all_reduce(_gradient(p), "mean", async_op=True) for p in order[len(works) :]]
    for work in works:
        work.wait()


def all_in_one(comm: Comm, loss: Tensor, buckets: Buckets) -> None:
    """One reduction of all gradients, after backward."""
    loss.backward()  # type: ignore[no-untyped-call]
    order = [p for bucket in buckets for p in bucket]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in order])
    comm.all_reduce(flat, "mean")
    for p, mean in zip(order, torch.split(flat, [p.numel() for p in order]), strict=True):
        p.grad = mean.view_as(p)


def as_they_come(comm: Comm, loss: Tensor, buckets: Buckets) -> None:
    """A bucket begins when it is complete, whether or not those before it have begun."""
    missing = [{*bucket} for bucket in buckets]
    begun: dict[int, tuple[Tensor, Work]] = {}

    def begin(number: int) -> None:
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in buckets[number]]
        flat = torch.cat(parts)
        begun[number] = flat, comm.all_reduce(flat, "mean", async_op=True)

    def arrived(p: Tensor) -> None:
        for number, left in enumerate(missing):
            left.discard(p)
            if not left and number not in begun:
                begin(number)

    hooks = [p.register_post_accumulate_grad_hook(arrived) for bucket in buckets for p in bucket]  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    for hook in hooks:
        hook.remove()
    for number, bucket in enumerate(buckets):
        if number not in begun:
            begin(number)
        flat, work = begun[number]
        work.wait()
        for p, mean in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
            p.grad = mean.view_as(p)


def hooks_for_ever(comm: Comm, loss: Tensor, buckets: Buckets) -> None:
    """The hooks stay, and begin again with the next backward."""
    missing = [len(bucket) for bucket in buckets]
    begun: list[tuple[Tensor, Work]] = []

    def begin(bucket: Sequence[Parameter]) -> None:
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        begun.append((flat, comm.all_reduce(flat, "mean", async_op=True)))

    def hook(number: int, p: Tensor) -> None:
        missing[number] -= 1
        if missing[number] == 0:
            missing[number] = len(buckets[number])
            while len(begun) <= number:
                begin(buckets[len(begun)])

    for number, bucket in enumerate(buckets):
        for p in bucket:
            p.register_post_accumulate_grad_hook(partial(hook, number))  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    for bucket in buckets[len(begun) :]:
        begin(bucket)
    for bucket, (flat, work) in zip(buckets, begun, strict=True):
        work.wait()
        for p, mean in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
            p.grad = mean.view_as(p)
    begun.clear()


edit = partial(edited, overlapped_backward)
BEGUN = 'begun.append((flat, comm.all_reduce(flat, "mean", async_op=True)))'
WRITTEN = "p.grad = mean.view_as(p)"
REST = "    for bucket in buckets[len(begun) :]:\n        begin(bucket)\n"
COMPLETE = "missing[len(begun)] == 0"
LATE = ("begins_during_backward", "overlapped")

WRONG = (
    wrong(
        "after_backward",
        "All reductions begin when backward is over, and until then the links are idle. Begin a bucket in the hook "
        "that brings its last gradient.",
        edit((COMPLETE, "False")),
        edit((COMPLETE, "not any(missing)")),
        fails=LATE,
    ),
    wrong(
        "waits_in_the_hook",
        "A hook of yours waits until the bucket has been reduced, and backward waits with it. Use async_op=True, keep "
        "the work, and wait when backward is over.",
        edit(
            (
                BEGUN,
                "work = comm.all_reduce(flat, 'mean', async_op=True)\n        work.wait()\n"
                "        begun.append((flat, work))",
            )
        ),
        edit((BEGUN, "for _, work in begun:\n            work.wait()\n        " + BEGUN)),
        fails=("overlapped",),
    ),
    wrong(
        "one_for_each_parameter",
        "You reduce every gradient for itself, and pay the latencies for each. Put a bucket's gradients into one "
        "tensor.",
        one_for_each_parameter,
        fails=("one_reduction_for_each_bucket", "overlapped"),
    ),
    wrong(
        "all_in_one",
        "You reduce all gradients at once, after backward. That is as few messages as can be, and no overlap at all: "
        "one all_reduce for each bucket, as soon as it is complete.",
        all_in_one,
        fails=("one_reduction_for_each_bucket", "begins_during_backward"),
    ),
    wrong(
        "sum_for_mean",
        "Every gradient is the sum over ranks. Divide by their number, or say so to all_reduce.",
        edit((BEGUN, BEGUN.replace("mean", "sum"))),
    ),
    wrong(
        "at_the_first_gradient",
        "A bucket of yours begins when the first of its gradients is there, and sends zeros, or nothing, for the "
        "others. Count down what it misses.",
        edit((COMPLETE, "missing[len(begun)] < len(buckets[len(begun)])")),
        edit(
            ("missing = [len(bucket) for bucket in buckets]", "missing = [1 for bucket in buckets]"),
            (COMPLETE, "missing[len(begun)] <= 0"),
        ),
    ),
    wrong(
        "at_the_last_of_the_list",
        "A bucket of yours begins when the gradient of the last parameter in its list is there. Backward may bring it "
        "before another one of the bucket: count down what is missing.",
        edit(
            (
                "{p: number for number, bucket in enumerate(buckets) for p in bucket}",
                "{bucket[-1]: number for number, bucket in enumerate(buckets)}",
            ),
            ("[len(bucket) for bucket in buckets]", "[1 for bucket in buckets]"),
        ),
    ),
    wrong(
        "hooks_left",
        "Your hooks are still there after the call. Keep what registering returns, and call remove() of each.",
        edit(("        hook.remove()", "        pass")),
        edit(
            (
                "    for hook in hooks:\n        hook.remove()",
                "    for p, hook in zip(bucket_of, hooks):\n        if p.grad is not None:\n            hook.remove()",
            )
        ),
        hooks_for_ever,
        fails=("hooks_removed",),
    ),
    wrong(
        "not_waited_for",
        "You read a bucket that may still be on its way. Call wait() of its work first.",
        edit(("        work.wait()\n", "")),
    ),
    wrong(
        "as_they_come",
        "A bucket begins when it is complete on this rank. Where ranks use different layers, another one is complete "
        "first on another rank, and they meet in the same all_reduce. Begin in the order of the list.",
        as_they_come,
    ),
    wrong(
        "incomplete_never_begun",
        "A bucket with a parameter that was not used is never complete, and never begins on this rank: the others wait "
        "for it. When backward is over, begin what is left, with zeros.",
        edit((REST, ""), ("zip(buckets, begun, strict=True)", "zip(buckets, begun, strict=False)")),
    ),
    wrong(
        "none_stays_none",
        "A parameter that this rank has not used keeps None, though other ranks have a gradient for it: from then on "
        "the ranks' parameters differ. Write the mean back to all.",
        edit((WRITTEN, f"if p.grad is not None:\n                {WRITTEN}")),
    ),
    wrong(
        "not_written_back",
        "The means stay in the tensors that you have sent: .grad is still this rank's own. torch.cat copies.",
        edit((WRITTEN, "mean.view_as(p)")),
    ),
    wrong(
        "written_back_too_early",
        "You copy out of a bucket before it was waited for, and get this rank's own gradients back.",
        edit(("        work.wait()\n", ""), (WRITTEN, "p.grad = mean.view_as(p).clone()\n        work.wait()")),
        same_as=("not_written_back",),
    ),
    wrong(
        "backward_twice",
        "You run backward twice, once to see which gradients come. That doubles the time. A hook is told by the "
        "one backward, and what has not come when it is over does not come.",
        edit(
            (
                "    loss.backward()",
                "    torch.autograd.grad(loss, [*bucket_of], retain_graph=True, allow_unused=True)\n"
                "    loss.backward()",
            )
        ),
        fails=("overlapped", "one_backward"),
    ),
)
