"""A function that is run twice, so that nothing of its first run need be kept but what went in.

forward:  args --save--> fn, recording nothing --> outputs
backward: args --cut off--> fn again, recorded, in the same random state and autocast --backward--> gradients of args
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor


def checkpoint(fn: Callable[..., Any], *args: Any) -> Any:
    """fn(*args), of which only args are kept until backward; there fn runs a second time.

    args  tensors on the CPU or on CUDA devices, and anything else; fn returns a tensor or a tuple that may hold None
    Gradients come by `backward()`, also of parameters that fn holds, where some tensor of args requires one.
    Source: Chen, Xu, Zhang and Guestrin, Training deep nets with sublinear memory cost (arXiv 1604.06174), section 3.
    """
    return _Twice.apply(fn, Surroundings(args), *args)  # type: ignore[no-untyped-call]


class Surroundings:
    """What a run of fn depends on besides its arguments: random states, and autocast on each kind of device."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.devices = sorted({arg.get_device() for arg in args if isinstance(arg, Tensor) and arg.is_cuda})
        self.random = torch.get_rng_state()
        self.random_on = [torch.cuda.get_rng_state(device) for device in self.devices]
        kinds = ["cpu", "cuda"] if self.devices else ["cpu"]
        self.autocast = [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds]

    @contextmanager
    def again(self) -> Iterator[None]:
        """As it was then; afterwards the random states are what they are now."""
        with ExitStack() as entered:
            entered.enter_context(torch.random.fork_rng(self.devices))
            torch.set_rng_state(self.random)
            for device, state in zip(self.devices, self.random_on, strict=True):
                torch.cuda.set_rng_state(state, device)
            for kind, dtype, enabled in self.autocast:
                entered.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
            yield


class _Twice(torch.autograd.Function):
    """The first run of fn in forward, the second in backward."""

    @staticmethod
    def forward(ctx: Any, fn: Callable[..., Any], surroundings: Surroundings, *args: Any) -> Any:
        """Autograd records nothing in here."""
        ctx.fn, ctx.surroundings = fn, surroundings
        ctx.others = [None if isinstance(arg, Tensor) else arg for arg in args]
        ctx.places = [place for place, arg in enumerate(args) if isinstance(arg, Tensor)]
        ctx.save_for_backward(*(args[place] for place in ctx.places))
        ctx.set_materialize_grads(False)
        return fn(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """The gradients of args; those of parameters are added to their `.grad`."""
        args = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)  # the graph of the second run ends here
        with torch.enable_grad(), ctx.surroundings.again():
            outputs = ctx.fn(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if grad is not None and output.requires_grad  # not what the loss ignores, nor what fn detached
        ]
        torch.autograd.backward([output for output, _ in pairs], [grad for _, grad in pairs])
        return None, None, *(arg.grad if isinstance(arg, Tensor) else None for arg in args)
