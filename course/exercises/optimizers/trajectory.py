"""What the probes of optimizer steps share: parameters are driven through scripted gradients, and watched.

params, gradients of T steps --drive--> params after every step, gradients as the steps left them, state at the end

The gradients are inputs of a case; they do not depend on where the parameters are. So a rounding in one step stays as
small as it is, where Adam in a closed loop would amplify it near a gradient of zero.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from course.performing.exercise import Form, Property
from course.performing.forms import at_once, cut, in_dtype, inside, put, strided
from course.performing.refusals import refused
from course.tree import Leaf

State: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[list[Tensor], list[Tensor | None], list[State], int], object]


FEW = 4  # numbers beside the tensors
BITS, CHARACTERS = 64, 100  # of a whole number and a text: longer ones can hold what a tensor does
NUMBERS = (int, float, complex, np.generic)
PLAIN = (int, float, complex, str, type(None), torch.dtype, torch.device)  # NumPy's numbers have a dtype to look at


def drive(
    step: Step,
    params: list[Tensor],
    grads: list[Tensor],
    *,
    present: Tensor | None = None,
    same_memory: bool = False,
    in_turns: bool = False,
) -> dict[str, Any]:
    """Calls `step(params, grads, state, t)` for t = 0 to T - 1; what it returns is ignored.

    params       P tensors of any shapes to start from; they are copied, and the memory of the copies is observed
    grads        P tensors (T, *shape)
    present      bool (T, P): False where a parameter has no gradient in a step, and None is handed in
    same_memory  each step's gradients are written into the tensors of the step before, as in a training loop that
                 fills `.grad` with zeros and adds to it
    in_turns     each parameter is a model of its own: in every step there is a call for each of them, with a list of
                 one, and with a copy of its state, as if it had been saved and loaded; half way the parameters too go
                 on as copies, in other memory, after a step of other copies, which nobody needs any more

    Returns values to observe: `params` and `grads`, P tensors (T, *shape) each, as they are after each step; `state`, P
    strings (see `form`). The state is one dict per parameter, empty at the start, and kept between the steps.
    """
    stepped, scripted = ([copied(each) for each in tensors] for tensors in (params, grads))
    held = [each.view_as(each) for each in stepped]
    state: list[State] = [{} for _ in params]
    memory = [torch.empty_like(each[0]) for each in grads]
    after, left = [], []
    for t in range(len(grads[0])):
        fresh = [each[t] for each in scripted]
        given = [old.copy_(new) for old, new in zip(memory, fresh, strict=True)] if same_memory else fresh
        there = [True] * len(given) if present is None else present[t].tolist()
        seen = [grad if here else None for grad, here in zip(given, there, strict=True)]
        if in_turns and t == len(grads[0]) // 2:
            for param, kept, grad in zip(stepped, state, seen, strict=True):
                step([copied(param)], [None if grad is None else 1 - 2 * grad], [loaded(kept)], t)
            stepped = [copied(each) for each in stepped]
            held = [each.view_as(each) for each in stepped]
        for at in range(len(state)) if in_turns else ():
            own = [loaded(state[at])]
            step([stepped[at].view_as(stepped[at])], [seen[at]], own, t)
            state[at] = own[0]
        if not in_turns:
            step(list(stepped), seen, state, t)
        after.append([each.detach().clone() for each in held])
        left.append([each.detach().clone() for each in given])
    return {
        "params": [torch.stack(each) for each in zip(*after, strict=True)],
        "grads": [torch.stack(each) for each in zip(*left, strict=True)],
        "state": [
            form([kept, [each for each in attached(own) if each is not grad]], param)
            for kept, own, grad, param in zip(state, stepped, given, params, strict=True)
        ],
    }


def copied(tensor: Tensor) -> Tensor:
    """A copy that lies in memory as the tensor does: a view into a wider tensor stays one.

    One that is contiguous becomes a piece of a longer tensor, as parameters in a flat buffer are.
    """
    return inside(tensor) if tensor.is_contiguous() else copy.deepcopy(tensor)


def loaded(kept: Any) -> Any:
    """A state as it comes back from a file: other tensors with the same numbers."""
    if isinstance(kept, Tensor):
        return kept.detach().clone()
    if isinstance(kept, dict):
        return {key: loaded(each) for key, each in kept.items()}
    return type(kept)(map(loaded, kept)) if type(kept) in (list, tuple) else copy.deepcopy(kept)


def refuse(
    step: Callable[..., object], params: list[Tensor], numbers: dict[str, dict[str, Any]], **usual: float
) -> dict[str, Any]:
    """Calls `step(params, grads, state, **numbers)` with arguments that make no sense.

    params   handed in as copies, with gradients of ones. An answer that looks at the last gradient only in its turn has
             moved the others.
    numbers  words for what is wrong -> arguments, which replace the `usual` ones; or `gradient`, another shape for the
             gradient number `at`, which is the last one where that is not said

    Returns what each call raised, by its words; and under "left" what it has changed all the same, or "nothing".
    """
    left: dict[str, str] = {}

    def call(words: str) -> object:
        arguments = {**usual, **numbers[words]}
        moved, grads = [each.clone() for each in params], [torch.ones_like(each) for each in params]
        if "gradient" in arguments:
            at = arguments.pop("at", -1)
            grads[at] = torch.ones(arguments.pop("gradient"), dtype=params[at].dtype)
        state: list[State] = [{} for _ in params]
        try:
            return step(list(moved), list(grads), list(state), **arguments)
        finally:
            spoilt = {
                "parameter": [not torch.equal(*pair) for pair in zip(moved, params, strict=True)],
                "gradient": [bool((each != 1).any()) for each in grads],
                "state": [bool(kept) for kept in state],
            }
            found = [f"{kind} {at}" for kind, flags in spoilt.items() for at, flag in enumerate(flags) if flag]
            left[words] = ", ".join(found) or "nothing"

    raised = refused({words: functools.partial(call, words) for words in numbers})
    return {**raised, "left": left}


def in_halves(of: str) -> tuple[Form, ...]:
    """The first step of a case in both half precisions, at a rate that no rounding hides; and a second one, which
    hardly moves the parameters: what it leaves in the state must have their dtype still.
    """

    def two_steps(dtype: torch.dtype) -> Form:
        parts = (
            in_dtype(dtype, "params", "grads"),
            cut("steps", grads=(0, 2)),
            put("rates", {"rates/0": 0.5, "rates/1": 1e-6}),
        )
        return at_once(f"two steps in {str(dtype).removeprefix('torch.')}", *parts, of=of)

    return tuple(two_steps(dtype) for dtype in (torch.float16, torch.bfloat16))


def views_in_float64(of: str) -> Form:
    """All steps of a case in float64, on parameters and gradients that are views."""
    parts = strided("params", "grads"), in_dtype(torch.float64, "params", "grads")
    return at_once("views in float64 that are not contiguous", *parts, of=of)


def one_and_none(name: str, of: str, values: Mapping[str, Leaf]) -> Form:
    """These values in a case of two matrices, of which one is cut to a column and the other to no rows."""
    shapes = {"params/0": (1, 1), "grads/0": (2, 1), "params/1": (0, 0), "grads/1": (1, 0)}
    parts = put("values", values), cut("dimensions", of="", **shapes)
    return at_once(name, *parts, of=of)


def half_precision(forms: tuple[Form, ...]) -> Property:
    """That the step in each of these forms is right, and that what is kept has the parameter's dtype."""
    return Property(
        "half_precision",
        "Parameters may come in float16 or bfloat16. Compute in the dtype of the parameter or in a finer one, and keep "
        "what you keep in the parameter's own: zeros_like(p) has it, torch.zeros(p.shape) has not. A step count is no "
        "such tensor: in bfloat16 it would stay at 256.",
        keys=("params/*", "state/*"),
        roundings=6,
        cases=tuple(form.name for form in forms),
    )


def form(kept: object, param: Tensor) -> str:
    """The tensors that are kept for one parameter, in words that name no entry: `2 like the parameter`.

    A tensor that stands under two names counts once. One number, such as a step count, costs nothing and is left out,
    so that it may be kept in any way; but not in a dtype that ends, or counts no further, after a few steps; and more
    than a few are as good as a tensor. So is whatever else can hold one. The words are the same in every dtype, because
    references run in float64.
    """
    parts = list(_parts(kept))
    words = [_likeness(each, param) for each in {id(each): each for each in parts}.values()]
    if sum(isinstance(each, NUMBERS) for each in parts) > FEW:
        words.append(f"list of more than {FEW} numbers")
    counts = Counter(each for each in words if each)
    return ", ".join(f"{counts[each]} {each}" for each in sorted(counts)) or "no tensors"


def _parts(kept: object) -> Iterator[object]:
    """All that stands in dicts, lists and tuples and hangs on tensors, however deep, whatever subclass they are."""
    if isinstance(kept, dict):
        for pair in dict.items(kept):
            yield from _parts(pair)
    elif isinstance(kept, (list, tuple)):
        for each in list.__iter__(kept) if isinstance(kept, list) else tuple.__iter__(kept):
            yield from _parts(each)
    else:
        yield kept
        yield from _parts(attached(kept)) if isinstance(kept, Tensor) else ()


def attached(tensor: Tensor) -> list[object]:
    """What a tensor keeps alive beside its own numbers: attributes, its gradient, its graph, hooks."""
    held: Any = tensor
    grad = held.grad if held.is_leaf else None
    return [vars(held), grad, held.grad_fn, held._backward_hooks, held._post_accumulate_grad_hooks]


def _counts_no_further(dtype: torch.dtype) -> bool:
    """Whether a step count in it ends, or stays as it is, at 65,536 or before: bfloat16 stays at 256."""
    return dtype == torch.complex32 or (dtype.itemsize < 4 and dtype != torch.bool)


def _likeness(kept: object, param: Tensor) -> str:
    """What a part is in words; "" for what costs nothing."""
    if isinstance(kept, PLAIN):
        long = kept.bit_length() > BITS if isinstance(kept, int) else isinstance(kept, str) and len(kept) > CHARACTERS
        return f"long {type(kept).__name__}" if long else ""
    if isinstance(kept, (np.ndarray, np.generic)):
        kept = torch.as_tensor(np.asarray(kept))
    if not isinstance(kept, Tensor):
        return f"{type(kept).__name__}, which may hold tensors"
    if max(kept.numel(), param.numel() * _counts_no_further(kept.dtype)) <= 1:
        return ""
    if kept.numel() == 1:
        return f"number in {str(kept.dtype).removeprefix('torch.')}"
    if kept.shape != param.shape:
        return f"of shape {tuple(kept.shape)}"
    if kept.dtype != param.dtype:
        return f"of its shape in {str(kept.dtype).removeprefix('torch.')}"
    return "like the parameter"
