"""Floating point operations of one op, by torch's own formulas: a multiplication and an addition count as two."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from course.meter.kept import Call


def flops(call: Call) -> int:
    """FLOPs of a matrix product, a convolution or an attention, forward or backward, from its shapes; of others 0.

    Element-wise ops, sums, softmax and norms are not counted. Attention counts in full where it is causal, too.
    Products of integers count as those of floats do, those inside of an op that is more than one of these (the CPU's
    LSTM, the fast path of nn.TransformerEncoderLayer, nn.Bilinear) not at all. Source: torch.utils.flop_counter, which
    lacks the products with a vector, sums of products, those of int8 and the CPU's attention.
    """
    formula = _formulas().get(call.op.overloadpacket)
    return int(formula(*call.args, **call.kwargs, out_val=call.result)) if formula else 0


@functools.cache
def _formulas() -> dict[Any, Callable[..., Any]]:
    from torch.utils import flop_counter  # here, because it imports triton where there is one

    aten = torch.ops.aten
    return {
        aten.addbmm: lambda bias, a, b, out_val, **scales: 2 * a.numel() * b.shape[2],
        aten.dot: lambda a, b, out_val: 2 * a.numel(),
        aten.mv: lambda matrix, vector, out_val: 2 * matrix.numel(),
        aten._int_mm: lambda a, b, out_val: 2 * a.numel() * b.shape[1],
        aten.addmv: lambda bias, matrix, vector, out_val, **scales: 2 * matrix.numel(),
        aten._scaled_dot_product_flash_attention_for_cpu: flop_counter.sdpa_flop,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_counter.sdpa_backward_flop,
        **flop_counter.flop_registry,
    }
