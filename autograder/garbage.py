"""Answers that nobody means: the stub as it is handed out, zeros, noise, an argument handed back, a refusal.

They look right from outside (the type, the shape) and must earn nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autograder.bank import Bank
from course.performing.exercise import Answer
from course.tree import Leaf, map_leaves, plain


def stub(bank: Bank) -> Answer:
    """What the student finds: everything raises NotImplementedError with the exercise's id."""

    def unwritten(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(bank.exercise.id)

    if not isinstance(bank.reference, type):
        return unwritten
    return type(
        bank.reference.__name__, bank.reference.__bases__, {name: staticmethod(unwritten) for name in _methods(bank)}
    )


def _methods(bank: Bank) -> list[str]:
    return [name for name, value in vars(bank.reference).items() if callable(getattr(value, "__func__", value))]


def garbage(bank: Bank, seed: int) -> Iterator[tuple[str, Answer]]:
    """Zeros and random numbers in the form of the right output, each argument handed back, and every call refused."""
    rng = torch.Generator().manual_seed(seed)

    def noise(leaf: Leaf) -> Leaf:
        whole = partial(torch.randint, 1000, (), generator=rng)
        return _replaced(leaf, real=partial(torch.randn, generator=rng), whole=whole, text="noise")

    def zero(leaf: Leaf) -> Leaf:
        return _replaced(leaf, real=torch.zeros, whole=partial(torch.zeros, ()), text="")

    if isinstance(bank.reference, type):
        yield from _garbage_classes(noise, zero)
        return
    yield "zeros", _like(bank.reference, zero)
    yield "noise", _like(bank.reference, noise)
    yield "nothing", lambda *args, **kwargs: None
    yield "everything refused", _refuses
    for position in range(3):
        yield f"argument {position} returned", _returns_argument(position)


def _replaced(leaf: Leaf, *, real: Callable[..., Tensor], whole: Callable[[], Tensor], text: str) -> Leaf:
    """Numbers of the same kind and shape, or the text, in the leaf's place; what is neither stays."""
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        return real(leaf.shape).to(leaf.dtype)
    if isinstance(leaf, Tensor) and not leaf.is_complex() and leaf.dtype != torch.bool:  # codes, counts
        return torch.tensor([int(whole()) for _ in range(leaf.numel())]).to(leaf.dtype).reshape(leaf.shape)
    if type(leaf) is int:
        return int(whole())
    if isinstance(leaf, str):
        return text
    return float(real(())) if isinstance(leaf, float) else leaf


def _like(reference: Answer, change: Callable[[Leaf], Leaf]) -> Answer:
    """The reference's output with every number in it changed; where it returns nothing, nothing is done."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        copied, named = copy.deepcopy((args, kwargs))  # whatever the reference does to its arguments is undone
        result = reference(*copied, **named) if _returns(reference) else None
        made = map_leaves(change, plain(result))
        return tuple(made) if isinstance(result, tuple) and isinstance(made, list) else made

    return answer


def _returns(reference: Answer) -> bool:
    """A reference annotated `-> None` works in place: calling it would be the right answer."""
    return getattr(reference, "__annotations__", {}).get("return") not in (None, "None")


def _refuses(*args: Any, **kwargs: Any) -> Any:
    """A ValueError of a kind that no wrong answer raises."""
    raise UnicodeError("no argument is good enough")


def _returns_argument(position: int) -> Answer:
    def answer(*args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        return values[position] if position < len(values) else None

    return answer


def _garbage_classes(noise: Callable[[Leaf], Leaf], zero: Callable[[Leaf], Leaf]) -> Iterator[tuple[str, Answer]]:
    """Autograd functions that return zeros, noise or their input, forward and backward."""

    def made(change: Callable[[Leaf], Leaf]) -> Answer:
        def forward(ctx: Any, x: Tensor) -> Leaf:
            return change(x)

        def backward(ctx: Any, dy: Tensor) -> Leaf:
            return change(dy)

        body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        return type("Garbage", (torch.autograd.Function,), body)

    yield "zeros", made(zero)
    yield "noise", made(noise)
    yield "input returned", made(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)
