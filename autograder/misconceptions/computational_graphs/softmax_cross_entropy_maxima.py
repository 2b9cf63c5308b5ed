"""Wrong ways to write `softmax_cross_entropy`: what goes wrong with the maximum, and what is done instead of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autograder.bank import Misconception

Result = tuple[Tensor, Tensor]


def _result(log_p: Tensor, p: Tensor, targets: Tensor) -> Result:
    """Loss from the log-probabilities, gradient from the probabilities."""
    rows = torch.arange(len(targets))
    p = p.clone()
    p[rows, targets] -= 1.0
    return -log_p[rows, targets].mean(), p / len(targets)


def one_shift_for_all_rows(logits: Tensor, targets: Tensor) -> Result:
    """The largest logit of the whole batch: a row far below it has only zeros left."""
    shifted = logits - logits.max()
    log_p = shifted - shifted.exp().sum(1, keepdim=True).log()
    return _result(log_p, log_p.exp(), targets)


def shifts_by_columns(logits: Tensor, targets: Tensor) -> Result:
    """Each column's maximum: entries of one row are moved by different amounts."""
    shifted = logits - logits.amax(dim=0)
    log_p = shifted - shifted.exp().sum(1, keepdim=True).log()
    return _result(log_p, log_p.exp(), targets)


def log_sum_without_the_maximum(logits: Tensor, targets: Tensor) -> Result:
    """log sum exp(l - m) is taken from l: the m is lost, in loss and gradient."""
    log_sum = (logits - logits.amax(1, keepdim=True)).exp().sum(1, keepdim=True).log()
    log_p = logits - log_sum
    return _result(log_p, log_p.exp(), targets)


def loss_without_the_maximum(logits: Tensor, targets: Tensor) -> Result:
    """The same in the loss only; the probabilities are made from the shifted exponentials."""
    log_sum = (logits - logits.amax(1, keepdim=True)).exp().sum(1, keepdim=True).log()
    return _result(logits - log_sum, torch.softmax(logits, 1), targets)


def shifts_without_keepdim(logits: Tensor, targets: Tensor) -> Result:
    """The maximum as (N,): it broadcasts along the columns, where it fits at all."""
    shifted = logits - logits.amax(1)
    log_p = shifted - shifted.exp().sum(1, keepdim=True).log()
    return _result(log_p, log_p.exp(), targets)


def normalises_without_keepdim(logits: Tensor, targets: Tensor) -> Result:
    """The sum as (N,)."""
    shifted = logits - logits.amax(1, keepdim=True)
    log_p = shifted - shifted.exp().sum(1).log()
    return _result(log_p, log_p.exp(), targets)


def neither_keeps_its_dimension(logits: Tensor, targets: Tensor) -> Result:
    """Both as (N,)."""
    shifted = logits - logits.amax(1)
    log_p = shifted - shifted.exp().sum(1).log()
    return _result(log_p, log_p.exp(), targets)


def probabilities_without_keepdim(logits: Tensor, targets: Tensor) -> Result:
    """Both as (N,), and the log of a quotient: where the shapes fit, an exponential may be 0."""
    weights = (logits - logits.amax(1)).exp()
    p = weights / weights.sum(1)
    return _result(p.log(), p, targets)


def clamps_the_logits(logits: Tensor, targets: Tensor) -> Result:
    """Every logit within 80 of 0; what differs beyond that becomes equal."""
    log_p = torch.log_softmax(logits.clamp(-80, 80), 1)
    return _result(log_p, log_p.exp(), targets)


def clamps_after_the_shift(lowest: float) -> Callable[[Tensor, Tensor], Result]:
    """Shifted well, and then not more than `-lowest` below the maximum. Which number changes the value."""

    def answer(logits: Tensor, targets: Tensor) -> Result:
        shifted = logits - logits.amax(1, keepdim=True)
        log_p = torch.log_softmax(shifted.clamp(min=lowest), 1)
        return _result(log_p, log_p.exp(), targets)

    return answer


MISCONCEPTIONS = (
    Misconception(
        name="one_shift_for_all_rows",
        witnesses=(one_shift_for_all_rows,),
        hint="You subtract the largest logit of the whole batch. A row far below it then has only zeros as "
        "exponentials, and the log of their sum is -infinity. Each row needs its own maximum.",
    ),
    Misconception(
        name="shifts_by_columns",
        witnesses=(shifts_by_columns,),
        hint="You subtract the maximum of each column. Softmax stays the same only when all logits of one row move by "
        "the same amount: take the maximum over the classes and keep that dimension, so that it broadcasts along the "
        "row.",
    ),
    Misconception(
        name="maximum_not_added_back",
        witnesses=(log_sum_without_the_maximum, loss_without_the_maximum),
        hint="Your log of the sum is that of the shifted logits, log sum exp(l - m), and you take it from logits that "
        "are not shifted. Either subtract it from l - m, or add m back to it: log sum exp(l) = m + log sum exp(l - m).",
    ),
    Misconception(
        name="row_value_without_its_dimension",
        witnesses=(
            shifts_without_keepdim,
            normalises_without_keepdim,
            neither_keeps_its_dimension,
            probabilities_without_keepdim,
        ),
        hint="A maximum or sum over the classes has the shape (N,), and next to (N, C) torch lines it up with the "
        "classes: an exception unless N equals C or is 1, and wrong numbers, without a word, where N equals C. Keep "
        "the dimension with keepdim=True: (N, 1) broadcasts along the row.",
    ),
    Misconception(
        name="clamps_the_logits",
        witnesses=(clamps_the_logits, *(clamps_after_the_shift(lowest) for lowest in (-50.0, -80.0, -88.0, -100.0))),
        hint="clamp keeps exp finite by changing the logits: two of them beyond the limit become equal, and the loss "
        "cannot exceed what the limit allows, however wrong the model is. Subtract the row's largest logit, which "
        "changes nothing, and take the log of the sum; no limit is needed then.",
    ),
)
