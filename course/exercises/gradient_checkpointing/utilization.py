"""`utilization(model, recomputed, tokens_per_second, peak)`: MFU and HFU of a GPT's training run.

Counts are whole numbers, so that only the last division is rounded. HFU is judged by what it adds to the answer's own
MFU, so that one slip in the forward's products costs one statement.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe, outputs
from course.tree import Leaf

Run = dict[str, Any]


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks about several runs."""
    draw = partial(integer, rng)

    def run(*recomputed: str, **changed: int) -> Run:
        """A model whose blocks recompute that, as GPT-2's but for what is changed."""
        heads, size = draw(4, 9) * 4, draw(3, 9) * 16
        width = heads * size
        model = {"width": width, "heads": heads, "kv_heads": heads, "hidden": 4 * width}
        model |= {"vocabulary": draw(20, 60) * 1_000, "sequence": draw(1, 5) * 1_024, **changed}
        return {
            "model": model,
            "recomputed": list(recomputed),
            "tokens_per_second": float(draw(1_000, 9_000)),
            "peak": draw(50, 200) * 1e12,
        }

    few, many = draw(2, 5), draw(6, 12)
    runs: dict[str, dict[str, Run]] = {
        "nothing recomputed": {
            "few blocks": run(*["nothing"] * few),
            "long sequences": run(*["nothing"] * many, sequence=65_536),
            "a large vocabulary": run("nothing", vocabulary=256_000),
            "whole numbers, above the peak": {**run("nothing"), "tokens_per_second": draw(5_000, 9_000), "peak": 10**9},
        },
        "other shapes": {
            "a narrow MLP": run(*["nothing"] * few, hidden=draw(3, 9) * 64),
            "a wide MLP": run(*["nothing"] * many, hidden=draw(9, 20) * 1_000),
            "shared keys and values": run(*["nothing"] * few, heads=16, kv_heads=2, width=1_024),
            "one head": run(*["nothing"] * few, heads=1, kv_heads=1),
            "one head of them": run(*["nothing"] * few, heads=32, kv_heads=1, width=4_096),
        },
        "blocks": {
            "all": run(*["block"] * many),
            "a large vocabulary": run(*["block"] * few, vocabulary=256_000),
            "some": run(*["nothing"] * few, *["block"] * (few + 1)),
            "shared keys and values": run("block", "nothing", heads=16, kv_heads=4, width=2_048, hidden=5_632),
        },
        "parts": {
            "scores": run(*["scores"] * many),
            "scores of some": run("nothing", *["scores"] * few, sequence=16_384),
            "MLPs": run(*["mlp"] * many),
            "a wide MLP": run(*["mlp"] * few, "nothing", hidden=draw(9, 20) * 1_000),
            "of each kind": run("block", "scores", "scores", "mlp", "nothing", "mlp", "mlp", sequence=8_192),
        },
    }
    return [Case(name=name, inputs=dict(each)) for name, each in runs.items()]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each run."""

    def ask(model: dict[str, int], recomputed: list[str], **rates: float) -> dict[str, Any]:
        given = dict(model), list(recomputed)
        shares = outputs(answer(*given, **rates), "mfu", "hfu")
        return {**shares, "left": "as they were" if given == (model, recomputed) else "changed"}

    return observe({label: ask(**run) for label, run in inputs.items()})


def _right_share_again(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """States that HFU - MFU is right, to a billionth of MFU; else the first run in which it is not."""
    for label in inputs:
        (mfu, hfu), (needed, whole) = (
            [_number(values[f"{label}/{name}"]) for name in ("mfu", "hfu")] for values in (got, expected)
        )
        if not abs(hfu - mfu - (whole - needed)) <= 1e-9 * needed:
            return f"{label}: HFU - MFU is {hfu - mfu:.9g}, where {whole - needed:.9g} is right"
    return None


def _number(value: Leaf) -> float:
    """Raises TypeError where it is none."""
    if isinstance(value, (int, float, Tensor)):
        return float(value)
    raise TypeError(f"{type(value).__name__} is no share")


EXERCISE = Exercise(
    id="gradient_checkpointing.utilization",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "mfu",
            "The products of every block and of the head, 2 m k n FLOPs each; a backward pass takes two products for "
            "each product of forward. The share of `peak` that tokens_per_second of them take.",
            points=2,
            keys=("*/mfu",),
            cases=("nothing recomputed",),
        ),
        Property(
            "other_shapes",
            "The MLP is `hidden` wide, whatever the width is, and keys and values have kv_heads of the queries' heads.",
            points=2,
            keys=("*/mfu",),
            cases=("other shapes",),
        ),
        Property(
            "nothing_recomputed",
            "Where nothing is recomputed both are equal.",
            holds=_right_share_again,
            cases=("nothing recomputed", "other shapes"),
            needs=("mfu",),
        ),
        Property(
            "recomputed_blocks",
            "HFU counts the forward products of each recomputed block once more. The head is in no block.",
            holds=_right_share_again,
            cases=("blocks",),
            points=2,
        ),
        Property(
            "recomputed_parts",
            'For "scores" only the two products with the keys and with the values are repeated, for "mlp" only the '
            "MLP's two.",
            holds=_right_share_again,
            cases=("parts",),
            points=2,
        ),
        Property(
            "mfu_does_not_count_it",
            "MFU is the same whatever is recomputed: the model needs no recomputation.",
            keys=("*/mfu",),
            cases=("blocks", "parts"),
            needs=("mfu", "other_shapes"),
        ),
        Property(
            "nothing_changed",
            "`model` and `recomputed` are the caller's: read them, and take nothing out.",
            keys=("*/left",),
            needs=("mfu",),
        ),
    ),
    hints=(
        "Which matrices is one token's vector multiplied with in a block, and how many multiplications is each?",
        "A linear layer from m to n takes 2 m n FLOPs a token. A query meets `sequence` keys, in all heads together "
        "2 sequence width FLOPs; the weights meet the values likewise. Backward takes two products for each.",
        "needed = 3 (blocks x block + head); recomputed = one more forward of what each word names. MFU is needed x "
        "tokens per second / peak, HFU (needed + recomputed) x tokens per second / peak.",
    ),
    promises={
        "width, heads, hidden, vocabulary, sequence": ("mfu", "other_shapes"),
        "kv_heads, which may be fewer than heads": ("other_shapes",),
        '"nothing", "scores", "mlp" or "block"': ("recomputed_blocks", "recomputed_parts"),
        "of the whole run; this and peak may be a whole number": ("mfu",),
        "stay as they are": ("nothing_changed",),
        "FLOPs a second": ("mfu",),
        "as shares": ("mfu",),
    },
)
