"""The GPT of `course.lessons.models` as a function of its weights: each operator can be done in another precision.

weights, tokens --run(op, ...) for every operator--> logits

`run` decides the dtypes: a plain call leaves them to the inputs, `Autocast.run` casts by CUDA's lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Run: TypeAlias = Callable[..., Tensor]  # of an operator of torch and its arguments
HEADS = 4  # of the GPT in `problems`


def plain(op: Callable[..., Tensor], *args: Any) -> Tensor:
    """The operator as torch does it, in the dtypes that come in."""
    return op(*args)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, in the same memory but without a graph; a tied matrix stands once."""
    return {name: each.detach() for name, each in model.named_parameters()}


def logits(weights: Mapping[str, Tensor], tokens: Tensor, run: Run = plain, *, heads: int = HEADS) -> Tensor:
    """What `GPT.forward` returns, without dropout: tokens (batch, time) to (batch, time, vocabulary).

    weights  by the names of a GPT whose head is tied to its token embedding
    """

    def linear(x: Tensor, name: str) -> Tensor:
        return run(F.linear, x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return run(F.layer_norm, x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    time = tokens.shape[-1]
    future = torch.full((time, time), -torch.inf, device=tokens.device).triu(1)
    table = weights["token_embedding.weight"]
    x = run(torch.add, F.embedding(tokens, table), weights["position_embedding.weight"][:time])
    block = 0
    while f"blocks.{block}.mlp.up.weight" in weights:
        name = f"blocks.{block}"
        x = run(
            torch.add, x, _attention(norm(x, f"{name}.attention_norm"), f"{name}.attention", linear, run, future, heads)
        )
        x = run(
            torch.add, x, linear(run(F.gelu, linear(norm(x, f"{name}.mlp_norm"), f"{name}.mlp.up")), f"{name}.mlp.down")
        )
        block += 1
    return run(F.linear, norm(x, "norm"), table)


def _attention(
    x: Tensor, name: str, linear: Callable[[Tensor, str], Tensor], run: Run, future: Tensor, heads: int
) -> Tensor:
    """`CausalSelfAttention`, operator by operator; `future` is 0, or -inf above the diagonal."""
    q, k, v = (
        linear(x, f"{name}.{part}_proj").reshape(*x.shape[:-1], heads, -1).transpose(1, 2) for part in ("q", "k", "v")
    )
    scores = run(torch.matmul, q * (1 / math.sqrt(q.shape[-1])), k.transpose(-1, -2))
    shares = run(F.softmax, scores + future.to(scores.dtype), -1)
    return linear(run(torch.matmul, shares, v).transpose(1, 2).flatten(2), f"{name}.out_proj")
