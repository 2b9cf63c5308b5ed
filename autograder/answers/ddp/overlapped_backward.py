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
    """Gradients are views of their bucket from the start: autograd adds to its zeros, and nothing is written back.

    A rank that is alone reduces nothing.
    """
    flats = [torch.zeros(sum(p.numel() for p in bucket), dtype=bucket[0].dtype) for bucket in buckets]
    waiting, handles = [{*bucket} for bucket in buckets], []
    works: list[Work] = []
    for flat, bucket in zip(flats, buckets, strict=True):
        start = 0
        for p in bucket:
            p.grad = flat[start : start + p.numel()].view(p.shape)
            start += p.numel()

    if comm.size == 1:
        loss.backward()  # type: ignore[no-untyped-call]
        return

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
        while len(begun) < len(buckets) and missing[len(begun)] == 0:
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
    missing[:] = map(len, buckets)


def consumes_the_buckets(comm: Comm, loss: Tensor, buckets: list[list[Parameter]]) -> None:
    """The right gradients; the list is empty afterwards."""
    missing = [{*bucket} for bucket in buckets]
    begun: list[tuple[list[Parameter], Tensor, Work]] = []

    def begin() -> None:
        bucket = buckets.pop(0)
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        begun.append((bucket, flat, comm.all_reduce(flat, "mean", async_op=True)))

    def arrived(p: Tensor) -> None:
        for left in missing:
            left.discard(p)
        while buckets and not missing[len(begun)]:
            begin()

    hooks = [p.register_post_accumulate_grad_hook(arrived) for bucket in buckets for p in bucket]  # type: ignore[no-untyped-call]
    loss.backward()  # type: ignore[no-untyped-call]
    for hook in hooks:
        hook.remove()
    while buckets:
        begin()
    for bucket, flat, work in begun:
        work.wait()
        for p, mean in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
            p.grad = mean.view_as(p)


edit = partial(edited, overlapped_backward)
BEGUN = 'begun.append((flat, comm.all_reduce(flat, "mean", async_op=True)))'
WRITTEN = "p.grad = mean.view_as(p)"
REST = "    for bucket in buckets[len(begun) :]:\n        begin(bucket)\n"
UNUSED_CALL = "    if any(missing):\n        comm.all_reduce(torch.tensor(missing))\n"
COMPLETE = "missing[len(begun)] == 0"
FLAT = "(torch.zeros_like(p) if p.grad is None else p.grad).flatten()"
ZEROED = "if p.grad is None:\n                p.grad = torch.zeros_like(p)\n            "
REGISTERED = "hooks = [p.register_post_accumulate_grad_hook(arrived) for p in bucket_of]"
ON_NODES = """nodes = {p: p.view_as(p).grad_fn.next_functions[0][0] for p in bucket_of}
    overlapped_backward.__dict__.setdefault("kept", []).append(nodes)
    hooks = [node.register_hook(lambda *_, p=p: arrived(p)) for p, node in nodes.items()]"""
LATE = ("begins_during_backward", "overlapped", "as_soon_as_complete")

WRONG = (
    wrong(
        "after_backward",
        "All reductions begin when backward is over, and until then the links are idle. Begin a bucket in the hook "
        "that brings its last gradient.",
        edit((COMPLETE, "False")),
        fails=LATE,
    ),
    wrong(
        "when_all_are_complete",
        "Your first bucket begins when no gradient is missing any more, in any bucket. Begin each when its own last "
        "gradient is there, in the order of the list.",
        edit((COMPLETE, "not any(missing)")),
        fails=("begins_during_backward", "overlapped"),
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
        fails=("overlapped", "as_soon_as_complete"),
    ),
    wrong(
        "waits_in_the_last_hook",
        "The hook that begins the last bucket waits for all. Backward may still have much to do, where the loss "
        "depends on other things, too: wait when loss.backward() has returned.",
        edit(
            (BEGUN, f"{BEGUN}\n        if len(begun) == len(buckets):\n            [work.wait() for _, work in begun]")
        ),
    ),
    wrong(
        "one_for_each_hook",
        "The first bucket may be complete last, and then complete ones stand behind it. Your hook begins one of them: "
        "go on while the next one misses nothing.",
        edit(("while len(begun)", "if len(begun)")),
    ),
    wrong(
        "one_hook_late",
        "You look whether a bucket is complete, and only then count the gradient that has come: the bucket begins with "
        "the first gradient of the next one, and the last bucket when backward is over. Count first.",
        edit(
            ("missing[bucket_of[p]] -= 1", "pass"),
            (
                "            begin(buckets[len(begun)])\n",
                "            begin(buckets[len(begun)])\n        missing[bucket_of[p]] -= 1\n",
            ),
        ),
    ),
    wrong(
        "last_bucket_after_backward",
        "Your last bucket begins when backward is over. Its gradients may be there long before, where the loss depends "
        "on other things, too: begin it in the hook, like the others.",
        edit(("while len(begun) < len(buckets)", "while len(begun) < len(buckets) - 1")),
        edit((COMPLETE, f"{COMPLETE} and len(buckets) > 1")),
    ),
    wrong(
        "contiguous_only",
        "You take every gradient for contiguous. That of a transposed parameter has no view(-1), and flatten() and "
        "reshape(-1) give a copy of it: what you write there is lost. Set .grad, or copy to it in its own shape.",
        edit((FLAT, FLAT.replace("flatten()", "view(-1)"))),
        edit((WRITTEN, f"{ZEROED}p.grad.view(-1).copy_(mean)")),
        edit((WRITTEN, f"{ZEROED}p.grad.reshape(-1).copy_(mean)")),
        fails=("any_strides",),
    ),
    wrong(
        "in_another_dtype",
        "You write a dtype in: your zeros for a gradient that is missing are in float32, or the tensor of a bucket is "
        "in float64, whatever the parameters are in. Take zeros_like(p), and p.dtype.",
        edit((FLAT, FLAT.replace("torch.zeros_like(p)", "torch.zeros(p.shape)"))),
        edit((FLAT, f"{FLAT}.double()")),
    ),
    wrong(
        "one_for_each_parameter",
        "You reduce every gradient for itself, and pay the latencies for each. Put a bucket's gradients into one "
        "tensor.",
        one_for_each_parameter,
        fails=("one_reduction_for_each_bucket", "overlapped", "as_soon_as_complete"),
    ),
    wrong(
        "all_in_one",
        "You reduce all gradients at once, after backward. That is as few messages as can be, and no overlap at all: "
        "one all_reduce for each bucket, as soon as it is complete.",
        all_in_one,
        fails=("one_reduction_for_each_bucket", *LATE),
    ),
    wrong(
        "sum_for_mean",
        "Every gradient is the sum over ranks. Divide by their number, or say so to all_reduce.",
        edit((BEGUN, BEGUN.replace("mean", "sum"))),
    ),
    wrong(
        "divides_twice",
        "You divide by the number of ranks what is a mean already.",
        edit((WRITTEN, "p.grad = mean.view_as(p) / comm.size")),
    ),
    wrong(
        "adds_the_mean",
        "You add the mean to this rank's own gradient. It takes its place.",
        edit((WRITTEN, f"{ZEROED}p.grad += mean.view_as(p)")),
    ),
    wrong(
        "hook_before_the_gradient",
        "What register_hook gets runs before the gradient is in .grad, and you read .grad. "
        "register_post_accumulate_grad_hook calls afterwards.",
        edit(("p.register_post_accumulate_grad_hook(arrived)", "p.register_hook(lambda grad, p=p: arrived(p))")),
    ),
    wrong(
        "one_tensor_for_all_buckets",
        "You put a bucket into the tensor in which another one is on its way. Each needs a tensor of its own until it "
        "has been waited for.",
        edit(
            (
                "    begun: list",
                "    shared = torch.cat([p.detach().flatten() for bucket in buckets for p in bucket])\n    begun: list",
            ),
            (
                f"flat = torch.cat([{FLAT} for p in bucket])",
                f"flat = torch.cat([{FLAT} for p in bucket])\n"
                "        shared[: len(flat)] = flat\n        flat = shared[: len(flat)]",
            ),
        ),
    ),
    wrong(
        "leaves_out_what_is_unused",
        "Your bucket has no place for the gradients that are None on this rank, so that it is shorter than on others, "
        "and numbers are added that do not belong together. Put zeros in their place.",
        edit(
            (f"{FLAT} for p in bucket", "p.grad.flatten() for p in bucket if p.grad is not None"),
            ("[p.numel() for p in bucket]), strict=True)", "[p.numel() for p in bucket if p.grad is not None]))"),
        ),
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
        edit((REGISTERED, ON_NODES), ("        hook.remove()", "        pass")),
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
        "A parameter that was not used keeps None. Where other ranks have a gradient for it, the ranks' parameters "
        "differ from then on. Write the mean back to all, also where it is 0, and where a rank is alone.",
        edit((WRITTEN, f"if p.grad is not None:\n                {WRITTEN}")),
        edit((WRITTEN, f"if mean.any():\n                {WRITTEN}")),
        edit(("    bucket_of =", "    if comm.size == 1:\n        loss.backward()\n        return\n    bucket_of =")),
    ),
    wrong(
        "one_call_for_what_is_unused",
        "A rank that has not used everything makes a call more, for which the others wait in vain, or which they take "
        "for one of their own. What is called must not depend on what one rank alone knows.",
        edit((REST, f"{UNUSED_CALL}{REST}")),
        edit((REST, f"{REST}{UNUSED_CALL}")),
    ),
    wrong(
        "not_written_back",
        "In the end .grad is still this rank's own. The means stay in the tensors that you have sent, because "
        "torch.cat copies; or you copy them back before you have waited for them. First wait(), then write back.",
        edit((WRITTEN, "mean.view_as(p)")),
        edit((WRITTEN, f"{ZEROED}mean.view_as(p)")),
        edit(("        work.wait()\n", ""), (WRITTEN, "p.grad = mean.view_as(p).clone()\n        work.wait()")),
    ),
    wrong(
        "consumes_the_buckets",
        "You take buckets off the caller's list, or parameters off a bucket, and the next step has none. Count in a "
        "list of your own.",
        consumes_the_buckets,
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
