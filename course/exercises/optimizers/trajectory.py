"""What the probes of optimizer steps share: parameters are driven through scripted gradients, and watched.

params, gradients of T steps --drive--> params after every step, gradients as the steps left them, state at the end

The gradients are inputs of a case; they do not depend on where the parameters are. So a rounding in one step stays as
small as it is, where Adam in a closed loop would amplify it near a gradient of zero.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from course.exercises.optimizers.refusals import refused

State: TypeAlias = dict[str, Any]
Step: TypeAlias = Callable[[list[Tensor], list[Tensor | None], list[State], int], object]


def drive(
    step: Step,
    params: list[Tensor],
    grads: list[Tensor],
    *,
    present: Tensor | None = None,
    same_memory: bool = False,
) -> dict[str, Any]:
    """Calls `step(params, grads, state, t)` for t = 0 to T - 1; what it returns is ignored.

    params       P tensors of any shapes to start from; they are copied, and the copies are stepped and observed
    grads        P tensors (T, *shape)
    present      bool (T, P): False where a parameter has no gradient in a step, and None is handed in
    same_memory  each step's gradients are written into the tensors of the step before, as in a training loop that
                 fills `.grad` with zeros and adds to it

    Returns values to observe: `params` and `grads`, P tensors (T, *shape) each, as they are after each step; `state`, P
    strings (see `form`). The state is one dict per parameter, empty at the start, and kept between the steps.
    """
    stepped = [each.clone() for each in params]
    state: list[State] = [{} for _ in params]
    memory = [torch.empty_like(each[0]) for each in grads]
    after, left = [], []
    for t in range(len(grads[0])):
        fresh = [each[t].clone() for each in grads]
        given = [old.copy_(new) for old, new in zip(memory, fresh, strict=True)] if same_memory else fresh
        there = [True] * len(given) if present is None else present[t].tolist()
        step(list(stepped), [grad if here else None for grad, here in zip(given, there, strict=True)], state, t)
        after.append([each.detach().clone() for each in stepped])
        left.append([each.detach().clone() for each in given])
    return {
        "params": [torch.stack(each) for each in zip(*after, strict=True)],
        "grads": [torch.stack(each) for each in zip(*left, strict=True)],
        "state": [form(kept, param) for kept, param in zip(state, params, strict=True)],
    }


def refuse(
    step: Callable[..., object], params: list[Tensor], numbers: dict[str, dict[str, Any]], **usual: float
) -> dict[str, Any]:
    """Calls `step(params, grads, state, **numbers)` with numbers that make no sense, and with a gradient that does not.

    params   handed in as copies, with gradients of ones. Where a gradient is to be refused there are at least two, the
             last a matrix, whose gradient lacks a dimension: an answer that looks at it only in its turn has moved the
             others.
    numbers  words for what is wrong -> arguments, which replace the `usual` ones; {} where it is the gradient

    Returns what each call raised, by its words; and under "left" its parameters and the form of its state afterwards.
    """
    handed: dict[str, tuple[list[Tensor], list[State]]] = {}

    def call(words: str) -> object:
        copies = [each.clone() for each in params]
        state: list[State] = [{} for _ in params]
        handed[words] = copies, state
        grads = [torch.ones_like(each) for each in params]
        if not numbers[words]:
            grads[-1] = grads[-1][0]
        return step(copies, grads, state, **{**usual, **numbers[words]})

    raised = refused({words: functools.partial(call, words) for words in numbers})
    left = {
        words: {"params": copies, "state": [form(kept, each) for kept, each in zip(state, params, strict=True)]}
        for words, (copies, state) in handed.items()
    }
    return {**raised, "left": left}


def form(kept: object, param: Tensor) -> str:
    """The tensors that are kept for one parameter, in words that name no entry: `2 like the parameter`.

    A tensor that stands under two names counts once. One number, such as a step count, costs nothing and is left out,
    so that it may be kept in any way. The words are the same in every dtype, because references run in float64.
    """
    found = {id(each): each for each in _tensors(kept) if each.numel() > 1}
    counts = Counter(_likeness(each, param) for each in found.values())
    return ", ".join(f"{counts[words]} {words}" for words in sorted(counts)) or "no tensors"


def _tensors(kept: object) -> Iterator[Tensor]:
    """Every tensor in dicts, lists and tuples."""
    if isinstance(kept, Tensor):
        yield kept
    elif isinstance(kept, dict):
        for each in kept.values():
            yield from _tensors(each)
    elif isinstance(kept, (list, tuple)):
        for each in kept:
            yield from _tensors(each)


def _likeness(kept: Tensor, param: Tensor) -> str:
    if kept.shape != param.shape:
        return f"of shape {tuple(kept.shape)}"
    if kept.dtype != param.dtype:
        return f"of its shape in {str(kept.dtype).removeprefix('torch.')}"
    return "like the parameter"
