"""`softmax_cross_entropy(logits, targets)`: the mean loss of a batch and its gradient, finite for any logits."""

from __future__ import annotations

import torch
from torch import Tensor

from course.exercises.computational_graphs.tensors import every_digit_in_float64, tensors_in_the_dtype_of, with_dtypes
from course.performing.draws import integer
from course.performing.exercise import (
    Answer,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    call_once,
    every_form,
    observe,
    outputs,
)
from course.performing.forms import at_once, between_calls, in_dtype, offset, put, strided, transposed


def cases(rng: torch.Generator) -> list[Case]:
    """Ordinary logits, one row alone, as many rows as classes, float64, and logits up to 10,000 with wide gaps.

    In one row alone the mean over the batch is no matter, so that a forgotten 1/N spoils only what speaks of batches.

    Ordinary logits lie within 3 of each other, so that no probability comes near 1, where the loss would be all
    rounding. The last class is never their target: one that is counted from the targets is missing.
    The wide gaps keep every probability at 0 or 1, so that a right answer may form `logits - logsumexp`, whose
    rounding at 10,000 would show in any other probability.
    """

    def case(name: str, logits: Tensor, targets: Tensor) -> Case:
        return Case(name=name, inputs={"logits": logits, "targets": targets})

    def ordinary(name: str, rows: int, classes: int, dtype: torch.dtype = torch.float32) -> Case:
        first = integer(rng, 0, classes)
        targets = (first + torch.randperm(rows, generator=rng)) % (classes - 1)  # not all the same
        return case(name, 3 * torch.rand(rows, classes, generator=rng, dtype=dtype) - 1.5, targets)

    ranks = torch.stack([torch.randperm(5, generator=rng) for _ in range(4)])
    noise = torch.rand(4, 5, generator=rng)
    levels = torch.tensor([2e3, -1e4, 2e3, -1e4])[:, None]
    ranked = ranks.argsort(dim=1)  # from the smallest logit of a row to the largest
    some_right = ranked[torch.arange(4), torch.tensor([4, 3, 1, 4])]
    return [
        ordinary("a batch", 4, 5),
        ordinary("as many rows as classes", 4, 4),
        ordinary("one row", 1, 6),
        ordinary("in float64", 1, 4, torch.float64),
        case("logits up to 10,000", (2.4e3 * ranks + noise)[:1], ranked[:1, 2]),
        case("rows far apart", levels + 1.9e3 * ranks + noise, some_right.roll(1, 0)),
    ]


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call; the loss and the gradient."""
    return observe(with_dtypes(outputs(call_once(answer, inputs, inputs["logits"], inputs["targets"]), *RESULT)))


RESULT = ("loss", "dlogits")
BATCHES = ("a batch", "as many rows as classes")
ORDINARY = (*BATCHES, "one row", "in float64")
LARGE = ("logits up to 10,000", "rows far apart")

EXERCISE = Exercise(
    id="computational_graphs.softmax_cross_entropy",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "loss_of_a_row",
            "The loss of a row is minus the log of the probability of its target.",
            keys=("loss",),
            cases=("one row",),
        ),
        Property(
            "gradient_of_a_row",
            "A row of the gradient is probabilities - one-hot of the target, so it sums to 0.",
            points=2,
            keys=("dlogits",),
            cases=("one row",),
        ),
        Property(
            "mean_over_the_batch",
            "The loss is one number, the mean over the N rows; then each row of the gradient is that of the row alone "
            "divided by N. Rows know nothing of each other: each has its own softmax and its own target.",
            points=2,
            keys=RESULT,
            cases=BATCHES,
        ),
        Property(
            "large_logits",
            "exp overflows float32 above 88 and is 0 below -104. Subtract from the row its own largest logit, and take "
            "the log of the sum, never of a probability.",
            points=2,
            keys=("loss",),
            cases=LARGE[:1],
            needs=("loss_of_a_row",),
        ),
        Property(
            "rows_far_apart",
            "The rows of this batch lie 12,000 apart. Loss and gradient are finite only if every row is shifted by its "
            "own largest logit before exp.",
            keys=RESULT,
            cases=LARGE[1:],
            needs=("mean_over_the_batch", "large_logits"),
        ),
        every_digit_in_float64(*RESULT),
        Property(
            "dtype_of_the_logits",
            "Loss and gradient are tensors in the dtype of the logits: float64 where those are, and not otherwise.",
            holds=tensors_in_the_dtype_of("logits", *RESULT),
            cases=(*ORDINARY, "10,000 and -10,000 in float16", "in bfloat16", "one row of one class in float64"),
            needs=("loss_of_a_row",),
        ),
        every_form(needs=("loss_of_a_row",), keys=RESULT),
    ),
    hints=(
        "What happens to softmax when the same number is added to all logits of a row? Which number would you choose?",
        "log p_j = (l_j - m) - log(sum_k exp(l_k - m)), with m the row's largest logit. And d loss / d l_j is a "
        "difference of two simple things.",
        "shifted = logits minus the maximum of each row; log_p = shifted minus the log of each row's sum of "
        "exponentials. The loss picks one entry per row. The gradient starts as exp(log_p), loses 1 at each target, "
        "and is divided by N.",
    ),
    keeps=("logits", "targets"),
    forms=(
        in_dtype(torch.bfloat16, "logits"),
        at_once("views, between two other calls", strided("logits", "targets"), between_calls("logits")),
        at_once("transposed logits, targets in a longer tensor", transposed("logits"), offset("targets")),
        put("equal logits, the last class", logits=torch.full((4, 5), 0.5), targets=torch.full((4,), 4)),
        put(
            "1,000 equal classes in bfloat16",  # added up one by one in bfloat16 they come to 256
            logits=torch.full((2, 1000), 0.5, dtype=torch.bfloat16),
            targets=torch.tensor([257, 999]),
        ),
        put(
            "300 equal rows in bfloat16",  # added up one by one in bfloat16 they come to 256
            logits=torch.tensor([[0.0, 0.54]] * 300, dtype=torch.bfloat16),
            targets=torch.zeros(300, dtype=torch.int64),
        ),
        put(
            "3,000 equal rows in float16",  # added up one by one in float16 they come to 2048
            logits=torch.tensor([[0.0, 0.5]] * 3000, dtype=torch.float16),
            targets=torch.zeros(3000, dtype=torch.int64),
        ),
        put(
            "5,000 equal classes in float16",  # added up one by one in float16 they come to 2048
            logits=torch.full((2, 5000), 0.5, dtype=torch.float16),
            targets=torch.tensor([2049, 4999]),
        ),
        put(
            "two equal largest, 110 above the target",  # a probability of 0; log 2 is a share of its loss
            logits=torch.tensor([[0.0, 0.0, -110.0]]),
            targets=torch.tensor([2]),
        ),
        put(
            "three rows in float64",
            logits=torch.tensor([[0.5, 1.5, -0.25], [1.0, -0.5, 0.75], [-1.0, 0.25, 0.5]], dtype=torch.float64),
            targets=torch.tensor([0, 2, 1]),
            of="in float64",
        ),
        put(
            "one row of one class in float64",
            logits=torch.tensor([[-1e4]], dtype=torch.float64),
            targets=torch.tensor([0]),
            of="one row",
        ),
        put(
            "10,000 and -10,000 in float16",
            logits=torch.tensor([[-1e4, 1e4, 0.0]] * 8, dtype=torch.float16),  # seven of them would overflow a sum
            targets=torch.tensor([0, *[1] * 7]),
            of=LARGE[0],
        ),
    ),
    promises={
        "(N, C)": ("a batch", "one row of one class in float64"),
        "floating": ("dtype_of_the_logits", "every_digit_in_float64", "10,000 and -10,000 in float16", "in bfloat16"),
        "N and C at least 1": ("one row of one class in float64",),
        "entries up to 1e4 in size": (
            "large_logits",
            "rows_far_apart",
            "two equal largest, 110 above the target",
            "10,000 and -10,000 in float16",
        ),
        "int64, each in 0 .. C-1": ("mean_over_the_batch", "equal logits, the last class"),
        "the mean over the N rows": ("mean_over_the_batch",),
        "a tensor of shape ()": ("dtype_of_the_logits",),
        "d loss / d logits, (N, C)": ("gradient_of_a_row", "mean_over_the_batch"),
        "both in the dtype of the logits": ("dtype_of_the_logits",),
        "added up in float32 or finer": (
            "300 equal rows in bfloat16",
            "1,000 equal classes in bfloat16",
            "5,000 equal classes in float16",
        ),
        "Nothing that was handed in is changed": ("arguments_unchanged",),
    },
    removes=("torch.autograd", "torch.func", "torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"),
)
