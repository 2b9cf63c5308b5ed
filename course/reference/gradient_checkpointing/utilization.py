"""Model and hardware FLOPs utilization of a GPT's training run."""

from __future__ import annotations

from collections.abc import Sequence


def utilization(
    model: dict[str, int], recomputed: Sequence[str], tokens_per_second: float, peak: float
) -> tuple[float, float]:
    """Products of one token's forward; three times as many with backward; once more what is recomputed."""
    d = model["width"]
    keys_and_values = 2 * d * d * model["kv_heads"] // model["heads"]
    scores = 4 * model["sequence"] * d  # with the keys, and with the values
    mlp = 4 * d * model["hidden"]
    block = 2 * (2 * d * d + keys_and_values) + scores + mlp
    needed = 3 * (len(recomputed) * block + 2 * d * model["vocabulary"])
    again = sum({"nothing": 0, "scores": scores, "mlp": mlp, "block": block}[each] for each in recomputed)
    rate = tokens_per_second / peak
    return needed * rate, (needed + again) * rate
