"""A block of the GPT under three kinds of checkpoint: none, a plain one, and one that saves what a policy says.

op's name --policy--> "save" or "recompute" --torch's contexts--> bytes kept over the forward, FLOPs of the step
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from course.lessons.experiments import planned
from course.meter import metered

Policy: TypeAlias = Callable[[str], str]  # "aten.mm.default" -> "save" or "recompute"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one block costs: bytes kept from forward to backward besides its input and its output, FLOPs of both."""

    kept: int
    flops: int


def keep_all(block: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The block without a checkpoint."""
    return block(x)


def with_policy(decide: Policy) -> Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]:
    """checkpoint(block, x), which asks `decide` about each op by its full name."""
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts  # 1 s

    def choose(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        saved = decide(str(op)) == "save"
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    def run(block: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        contexts = partial(create_selective_checkpoint_contexts, choose)
        return cast(Tensor, checkpoint(block, x, use_reentrant=False, context_fn=contexts))

    return run


def cost(checkpoint: Callable[..., Tensor]) -> Cost:
    """Forward and backward of the first block of the GPT of `planned`, through this checkpoint(block, x)."""
    model, (tokens, _) = planned.problem()
    x = torch.randn(*tokens.shape, model.config.width, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with metered() as run:
        y = checkpoint(model.blocks[0], x)
        kept = run.kept([y])
        torch.autograd.backward(y.sum())
    return Cost(kept=kept, flops=sum(run.flops.values()))


def ops() -> dict[str, Cost]:
    """The ops of the block's forward in their order, with FLOPs and the bytes of their results; views have none."""
    model, (tokens, _) = planned.problem()
    x = torch.randn(*tokens.shape, model.config.width, requires_grad=True)
    with metered() as run:
        model.blocks[0](x)
    names = dict.fromkeys(op.name for op in run.trace)
    return {name: _sum([(op.made, op.flops) for op in run.trace if op.name == name]) for name in names}


def _sum(costs: list[tuple[int, int]]) -> Cost:
    return Cost(kept=sum(made for made, _ in costs), flops=sum(flops for _, flops in costs))


def table(costs: dict[str, Cost], kept: str) -> str:
    """One line for each, with bytes in KiB, under the heading `kept`, and millions of FLOPs."""
    wide = max(map(len, costs))
    lines = [
        f"{name:{wide}} {each.kept / 2**10:{len(kept)},.0f} {each.flops / 1e6:10,.1f}" for name, each in costs.items()
    ]
    return "\n".join([f"{'':{wide}} {kept} {'MFLOP':>10}", *lines])
