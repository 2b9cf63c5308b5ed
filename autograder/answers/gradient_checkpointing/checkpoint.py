"""Right and wrong ways to write `checkpoint`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor

from autograder.bank import Alternative, right, wrong
from autograder.edits import edited
from course.reference.gradient_checkpointing.checkpoint import Surroundings, checkpoint


def torchs_own(fn: Callable[..., Any], *args: Any) -> Any:
    """The kind that is not reentrant."""
    return torch.utils.checkpoint.checkpoint(fn, *args, use_reentrant=False)


def torchs_reentrant(fn: Callable[..., Any], *args: Any) -> Any:
    """The kind that this exercise writes."""
    return torch.utils.checkpoint.checkpoint(fn, *args, use_reentrant=True)


def by_hooks(fn: Callable[..., Any], *args: Any) -> Any:
    """Records the first run, whose graph holds numbers in place of tensors; the first that is asked for makes all."""
    surroundings, places = Surroundings(args), itertools.count()
    made: list[Tensor | None] = []

    def unpack(place: int) -> Tensor:
        if not made:
            keep = torch.autograd.graph.saved_tensors_hooks(lambda each: made.append(each.detach()), lambda none: none)
            with torch.enable_grad(), surroundings.again(), keep:
                fn(*args)
        tensor, made[place] = made[place], None
        assert tensor is not None
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: next(places), unpack):
        return fn(*args)


class WithAttributes(torch.autograd.Function):
    """Arguments as an attribute of ctx, gradients of copies by hand, random states set and put back."""

    @staticmethod
    def forward(ctx: Any, fn: Callable[..., Any], *args: Any) -> Any:
        ctx.fn, ctx.args, ctx.state = fn, args, torch.get_rng_state()
        ctx.cast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return fn(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        state = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        copies = [
            each.detach().requires_grad_() if isinstance(each, Tensor) and each.requires_grad else each
            for each in ctx.args
        ]
        with torch.enable_grad(), torch.autocast("cpu", enabled=ctx.cast[0], dtype=ctx.cast[1]):
            outputs = ctx.fn(*copies)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            terms = [(y * dy).sum() for y, dy in zip(outputs, grads, strict=True) if y is not None and y.requires_grad]
        torch.set_rng_state(state)
        torch.autograd.backward(terms)
        return None, *(getattr(copy, "grad", None) for copy in copies)


def with_attributes(fn: Callable[..., Any], *args: Any) -> Any:
    """The CPU alone."""
    return WithAttributes.apply(fn, *args)  # type: ignore[no-untyped-call]


once = partial(edited, checkpoint)
CAST = "entered.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))"
BY_HAND = """entered.callback(torch.set_autocast_enabled, kind, torch.is_autocast_enabled(kind))
                entered.callback(torch.set_autocast_dtype, kind, torch.get_autocast_dtype(kind))
                torch.set_autocast_enabled(kind, enabled)
                torch.set_autocast_dtype(kind, dtype)"""

RIGHT = (
    right(torchs_own, independent="torch.utils.checkpoint"),
    right(torchs_reentrant, independent="torch.utils.checkpoint.CheckpointFunction"),
    right(by_hooks),
    right(with_attributes),
    Alternative(
        name="autocast_by_hand",
        answer=once((CAST, f"entered.callback(torch.clear_autocast_cache)\n{' ' * 16}{BY_HAND}")),
    ),
)


class KeepsTheGraph(torch.autograd.Function):
    """Records the first run, and has no second."""

    @staticmethod
    def forward(ctx: Any, fn: Callable[..., Any], *args: Any) -> Any:
        ctx.copies = [
            each.detach().requires_grad_(each.requires_grad) if isinstance(each, Tensor) else each for each in args
        ]
        with torch.enable_grad():
            outputs = fn(*ctx.copies)
        ctx.outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        found = tuple(each if each is None else each.detach() for each in ctx.outputs)
        return found if isinstance(outputs, tuple) else found[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        pairs = [(y, dy) for y, dy in zip(ctx.outputs, grads, strict=True) if y is not None and y.requires_grad]
        torch.autograd.backward([y for y, _ in pairs], [dy for _, dy in pairs])
        return None, *(getattr(copy, "grad", None) for copy in ctx.copies)


def keeps_the_graph(fn: Callable[..., Any], *args: Any) -> Any:
    """One run, recorded in forward."""
    return KeepsTheGraph.apply(fn, *args)  # type: ignore[no-untyped-call]


def keeps_everything(fn: Callable[..., Any], *args: Any) -> Any:
    """No checkpoint at all."""
    return fn(*args)


RUN, SAVED = "return fn(*args)", "ctx.set_materialize_grads(False)"
FORK, SET = "entered.enter_context(torch.random.fork_rng(self.devices))", "torch.set_rng_state(self.random)"
CUT, FLAG = "tensor.detach().requires_grad_(tensor.requires_grad)", ".requires_grad_(tensor.requires_grad)"
PAIRED, USED = "zip(outputs, grads, strict=True)", "if grad is not None and output.requires_grad"
BACK = "torch.autograd.backward([output for output, _ in pairs], [grad for _, grad in pairs])"
GRADS = "*(arg.grad if isinstance(arg, Tensor) else None for arg in args)"
FORWARD, BACKWARD = "    def forward(ctx", "    def backward(ctx"
TO = "None if getattr(arg, 'grad', None) is None else arg.grad.{}().to(arg.dtype) if"
SOME = ("arg.ndim != 1", "arg.ndim < 3", "(len(args) < 3 or arg is not args[-1])")
LEAVES = """def leaves(nodes):
    below = [each for node in nodes if node for each, _ in node.next_functions]
    return [node.variable for node in nodes if hasattr(node, "variable")] + (leaves(below) if below else [])"""
WANTED = "[arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]"
BY_NAME = "found = iter(torch.autograd.grad([y for y, _ in pairs], wanted, [dy for _, dy in pairs], allow_unused=True))"


def with_amp(way: str, line: str) -> str:
    """The line behind the decorator that torch has for Functions under autocast."""
    return f'    @torch.amp.custom_{way}(device_type="cpu")\n{line}'


WRONG = (
    wrong(
        "recorded_nothing",
        "backward runs without recording, and so does your second run: nothing leads back from its outputs. Turn "
        "recording on with torch.enable_grad().",
        once(("with torch.enable_grad(), ctx", "with ctx")),
    ),
    wrong(
        "keeps_the_graph",
        "You let autograd record the first run, and everything that fn made stays until backward. Keep what went in, "
        "run fn without recording, and run it a second time in backward.",
        keeps_the_graph,
        keeps_everything,
    ),
    wrong(
        "keeps_more_than_arguments",
        "Besides the arguments you keep what fn returned, or copies of arguments (clone, contiguous). The second run "
        "makes an output again, and the caller holds the arguments themselves: save them as they are.",
        once((RUN, "ctx.outputs = fn(*args)\n        return ctx.outputs")),
        once((SAVED, "ctx.copies = [args[place].clone() for place in ctx.places]\n        " + SAVED)),
    ),
    wrong(
        "none_taken_for_a_tensor",
        "You put a tensor wherever you find None, 0 or False among the other arguments. They are arguments too: note "
        "the places of the tensors.",
        once(("return fn(*args)", "return fn(*(arg if isinstance(arg, Tensor) else arg or None for arg in args))")),
    ),
    wrong(
        "another_mask",
        "Your second run draws new random numbers, so that the gradient belongs to another mask than the loss. Note "
        "the random state before the first run and set it before the second.",
        once((SET, "pass")),
        once((SET, "pass"), (FORK, "pass")),
    ),
    wrong(
        "state_of_the_last_call",
        "You keep the random state with fn, where its next call writes over it: one function called for every block "
        "gets the last one's mask in all second runs. Each call has a state of its own: keep it in ctx.",
        once(
            (SAVED, f"{SAVED}\n        fn.__dict__['around'] = surroundings"),
            ("ctx.surroundings.again()", "ctx.fn.__dict__['around'].again()"),
        ),
    ),
    wrong(
        "state_noted_too_late",
        "You note the random state when fn has already drawn its mask. Note it before fn is called.",
        once((RUN, "outputs = fn(*args)\n        surroundings.random = torch.get_rng_state()\n        return outputs")),
    ),
    wrong(
        "state_not_put_back",
        "The second run gets the first one's mask, and leaves the generator where that run left it: what the program "
        "draws next, it has drawn before. Put back the state that was there: torch.random.fork_rng does it.",
        once((FORK, "pass")),
    ),
    wrong(
        "put_back_in_forward",
        "You put the random state back after the first run too, so that the program draws the numbers of fn once more. "
        "A plain run moves the generator on; only the second run must leave it alone.",
        once((RUN, "with torch.random.fork_rng([]):\n            " + RUN)),
    ),
    wrong(
        "seeds_itself",
        "You set a seed of your own, so both runs have one mask, but every call has the same, and so has the rest "
        "of the program. Note the state that is there.",
        once(
            ("self.random = torch.get_rng_state()", "torch.manual_seed(0)\n        self.random = torch.get_rng_state()")
        ),
    ),
    wrong(
        "autocast_lost",
        "backward is called outside of autocast, so your second run computes in the dtype of its inputs. Note in "
        "forward whether autocast is on, and its dtype, and enter the same around the second run.",
        once((CAST, "pass")),
    ),
    wrong(
        "autocast_dtype_lost",
        "You turn autocast on again, with its default dtype. Note torch.get_autocast_dtype in forward as well.",
        once((CAST, "entered.enter_context(torch.autocast(kind, enabled=enabled))")),
    ),
    wrong(
        "autocast_never_turned_off",
        "Where autocast was off in forward and is on around backward, your second run is cast. Enter "
        "torch.autocast with enabled=False then.",
        once(("enabled in self.autocast:", "enabled in [each for each in self.autocast if each[2]]:")),
    ),
    wrong(
        "casts_left_behind",
        "You set autocast by hand for the second run, and its casts of the parameters that fn holds stay in torch's "
        "cache: the next step computes with weights from before the update. Enter torch.autocast, which empties the "
        "cache where the outermost one ends.",
        once((CAST, BY_HAND)),
    ),
    wrong(
        "autocast_of_another_device",
        'You ask for the autocast of GPUs: torch.is_autocast_enabled() and torch.get_autocast_dtype("cuda") do. Name '
        'the device, "cpu", in both questions.',
        once(("torch.is_autocast_enabled(kind)", "torch.is_autocast_enabled()")),
        once(("torch.get_autocast_dtype(kind)", 'torch.get_autocast_dtype("cuda")')),
    ),
    wrong(
        "backward_under_autocast",
        "The backward of your second run is under the autocast of forward, by your `with` or by torch.amp.custom_bwd, "
        "and casts what fn alone would not. Leave the `with` when fn has run, and call backward outside of it.",
        once((BACK, f"with ctx.surroundings.again():\n            {BACK}")),
        once((FORWARD, with_amp("fwd", FORWARD)), (BACKWARD, with_amp("bwd", BACKWARD))),
    ),
    wrong(
        "only_the_first_gradient",
        "You return a gradient for the first argument alone. Each tensor that requires one gets its own.",
        once((GRADS, '*(getattr(arg, "grad", None) if place == 0 else None for place, arg in enumerate(args))')),
    ),
    wrong(
        "gradients_of_some_shapes",
        "Some of the arguments get no gradient from you: the last of several, vectors, or tensors of three dimensions. "
        "Each that requires one gets its own, whatever its place and shape.",
        *(once((GRADS, GRADS.replace("Tensor)", f"Tensor) and {some}"))) for some in SOME),
    ),
    wrong(
        "gradients_in_another_order",
        "You return the gradients of the tensors one after the other. What backward returns goes to forward's "
        "arguments by place: None stands where an argument is no tensor.",
        once(
            (
                GRADS,
                "*(arg.grad for arg in args if isinstance(arg, Tensor)), "
                "*(None for arg in args if not isinstance(arg, Tensor))",
            )
        ),
    ),
    wrong(
        "gradients_rounded",
        "You convert gradients to a coarser dtype, or through one. Return each as it comes, in its argument's dtype.",
        *(once((GRADS, GRADS.replace("arg.grad if", TO.format(dtype)))) for dtype in ("bfloat16", "half")),
    ),
    wrong(
        "dy_changed",
        "You change a gradient that backward was given, in place. The same tensor goes to other terms of the loss: "
        "make a new one.",
        once((BACK, f"{BACK}\n        torch._foreach_zero_([grad for _, grad in pairs])")),
        once((BACK, f"{BACK}\n        torch._foreach_mul_([grad for _, grad in pairs], 2.0)")),
    ),
    wrong(
        "parameters_lost",
        "torch.autograd.grad gives the gradients of what you name, the arguments, and adds nothing to the `.grad` of "
        "the parameters that fn holds. torch.autograd.backward does both.",
        once(
            (BACK, f"wanted = {WANTED}\n        {BY_NAME}"),
            (GRADS, "*(next(found) if isinstance(arg, Tensor) and arg.requires_grad else None for arg in args)"),
        ),
    ),
    wrong(
        "gradients_overwritten",
        "Parameters had gradients before your backward, and they are gone. backward adds to .grad; do not clear or "
        "assign it.",
        once(
            (
                BACK,
                "for leaf in leaves([output.grad_fn for output, _ in pairs]):\n            leaf.grad = None\n"
                f"        {BACK}",
            ),
            ("def checkpoint(", f"{LEAVES}\n\n\ndef checkpoint("),
        ),
    ),
    wrong(
        "not_cut_off",
        "Your second run begins at the arguments themselves: its backward goes on into the graph that made them, or "
        "into their `.grad`, where autograd adds what you return once more. Detach them.",
        once((CUT, "tensor")),
    ),
    wrong(
        "gradients_not_asked_for",
        "A detached tensor does not require a gradient, so that nothing comes back to it. Let it require one where the "
        "argument does.",
        once((FLAG, "")),
    ),
    wrong(
        "integers_require_gradients",
        "You let every tensor among the arguments require a gradient. Integers cannot, and where the argument does "
        "not, nobody wants it.",
        once((FLAG, ".requires_grad_()")),
    ),
    wrong(
        "shared_copy",
        "An argument that is given twice has one copy in your second run, whose gradient is that of both uses "
        "together. You return it twice: make a copy for each place.",
        once(
            ("args = list(ctx.others)", "args, copies = list(ctx.others), {}"),
            (CUT, f"copies.setdefault(id(tensor), {CUT})"),
        ),
    ),
    wrong(
        "dy_left_out",
        "You begin the backward of the second run with ones. It begins with the gradients that backward was given.",
        once(("[grad for _", "[torch.ones_like(grad) for _")),
    ),
    wrong(
        "first_output_only",
        "Of a tuple you take the first output through backward alone. Each output that requires a gradient, and got "
        "one, takes part.",
        once((PAIRED, "zip(outputs[:1], grads[:1], strict=True)")),
        once((BACK, BACK.replace("in pairs", "in pairs[:1]"))),
    ),
    wrong(
        "every_output_differentiated",
        "An output that does not require a gradient (None, integers, what fn detached), or that the loss does not use, "
        "cannot take part in the backward of the second run. Leave it out.",
        once((USED, "if grad is not None")),
        once((USED, "if output is not None and output.requires_grad")),
        once((USED, "if isinstance(output, Tensor)"), (SAVED, "pass")),
    ),
    wrong(
        "tensor_taken_for_a_tuple",
        "Where fn returns one tensor, your backward goes through its rows. Put it into a tuple of one first.",
        once(("outputs if isinstance(outputs, tuple) else (outputs,)", "tuple(outputs)")),
    ),
    wrong(
        "tuple_unpacked",
        "Where fn returns a tuple of one, the caller gets the tensor in it. Return what fn returns.",
        once(
            (
                RUN,
                "found = fn(*args)\n        return found[0] if type(found) is tuple and not found[1:] else found",
            )
        ),
    ),
    wrong(
        "called_twice_in_forward",
        "fn is called twice in forward. One run without recording gives what is to be returned; the other is "
        "backward's.",
        once((RUN, f"fn(*args)\n        {RUN}")),
        once((RUN, f"with torch.random.fork_rng([]):\n            fn(*args)\n        {RUN}")),
    ),
    wrong(
        "inner_ones_ignored",
        "A checkpoint that is called while the fn of another runs does nothing in your code: all that its fn makes is "
        "kept in the backward of the outer one. It is a checkpoint too.",
        once(
            (RUN, "running.append(fn)\n        found = fn(*args)\n        running.pop()\n        return found"),
            (
                "outputs = ctx.fn(*args)",
                "running.append(ctx.fn)\n            outputs = ctx.fn(*args)\n            running.pop()",
            ),
            ("    return _Twice.apply(fn", "    if running:\n        return fn(*args)\n    return _Twice.apply(fn"),
            ("def checkpoint(", "running = []\n\n\ndef checkpoint("),
        ),
    ),
    wrong(
        "sum_not_recorded",
        "You multiply outputs by their gradients where recording is off, so that nothing leads back from the sum. "
        "Do it under torch.enable_grad(), or hand both to torch.autograd.backward, which needs no sum.",
        once((BACK, "sum((output * grad).sum() for output, grad in pairs).backward()")),
    ),
    wrong(
        "one_none_too_few",
        "backward must return a value for each argument of forward, also for fn: None where there is no gradient.",
        once(("return None, None, *", "return None, *")),
    ),
)
