"""Wrong ways to write `accumulate_gradients`, by what is wrong: shapes, counts, weights, steps, losses or cost."""

from __future__ import annotations

from autograder.misconceptions.computational_graphs import (
    accumulate_gradients_costs,
    accumulate_gradients_counts,
    accumulate_gradients_losses,
    accumulate_gradients_steps,
    accumulate_gradients_weights,
)

MISCONCEPTIONS = (
    *accumulate_gradients_weights.MISCONCEPTIONS,
    *accumulate_gradients_steps.MISCONCEPTIONS,
    *accumulate_gradients_counts.MISCONCEPTIONS,
    *accumulate_gradients_losses.MISCONCEPTIONS,
    *accumulate_gradients_costs.MISCONCEPTIONS,
)
