"""`softmax_cross_entropy(logits, targets)`: the mean loss of a batch and its gradient, finite for any logits."""

from __future__ import annotations

import torch
from torch import Tensor

from course.exercise import Answer, Case, Exercise, Inputs, Observation, Property, arguments_unchanged, observe, outputs


def cases(rng: torch.Generator) -> list[Case]:
    """Ordinary logits, one row alone, as many rows as classes, and logits of 10,000 with wide gaps.

    Ordinary logits stay small enough that no probability comes near 1, where the loss would be all rounding.
    The wide gaps keep every probability at 0 or 1, so that a right answer may form `logits - logsumexp`, whose
    rounding at 10,000 would show in any other probability.
    """

    def case(name: str, logits: Tensor, targets: Tensor) -> Case:
        return Case(name=name, inputs={"logits": logits, "targets": targets})

    def ordinary(name: str, rows: int, classes: int) -> Case:
        targets = torch.randint(classes, (rows,), generator=rng)
        return case(name, torch.randn(rows, classes, generator=rng), targets)

    ranks = torch.stack([torch.randperm(5, generator=rng) for _ in range(4)])
    noise = torch.rand(4, 5, generator=rng)
    levels = torch.tensor([1e4, -3e4, 1e4, -3e4])[:, None]
    ranked = ranks.argsort(dim=1)  # from the smallest logit of a row to the largest
    some_right = ranked[torch.arange(4), torch.tensor([4, 3, 1, 4])]
    return [
        ordinary("a batch", 4, 5),
        ordinary("as many rows as classes", 4, 4),
        ordinary("one row", 1, 6),
        case("logits of 10,000", 2.5e3 * ranks + noise, some_right),
        case("rows far apart", levels + 2e3 * ranks + noise, some_right.roll(1, 0)),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call; the loss and the gradient."""
    return observe(outputs(answer(inputs["logits"], inputs["targets"]), "loss", "dlogits"))


ORDINARY = ("a batch", "as many rows as classes", "one row")

EXERCISE = Exercise(
    id="computational_graphs.softmax_cross_entropy",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            name="mean_loss",
            points=2,
            keys=("loss",),
            cases=ORDINARY,
            hint="For each row minus the log of the probability of its own target; then the mean over the "
            "rows, one number.",
        ),
        Property(
            name="gradient",
            points=3,
            keys=("dlogits",),
            cases=ORDINARY,
            hint="Each row of the gradient is (probabilities - one-hot of the target) / N, so each row sums to 0.",
        ),
        Property(
            name="large_logits",
            points=3,
            keys=("loss", "dlogits"),
            cases=("logits of 10,000", "rows far apart"),
            hint="exp overflows float32 above 88 and is 0 below -104. Subtract from each row its own largest "
            "logit, and take the log of the sum, never of a probability.",
        ),
        arguments_unchanged(needs=("gradient",)),
    ),
    hints=(
        "What happens to softmax when the same number is added to all logits of a row? Which number would you choose?",
        "log p_i = (z_i - m) - log(sum_j exp(z_j - m)), with m the row's largest logit. And d loss / d z_i is a "
        "difference of two simple things.",
        "shifted = logits minus the maximum of each row; log_p = shifted minus the log of each row's sum of "
        "exponentials. The loss picks one entry per row. The gradient starts as exp(log_p), loses 1 at each "
        "target, and is divided by N.",
    ),
    keeps=("logits", "targets"),
    removes=("torch.autograd",),
)
