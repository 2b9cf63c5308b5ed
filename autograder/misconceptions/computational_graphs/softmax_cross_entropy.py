"""Wrong ways to write `softmax_cross_entropy`: formulas and means here, slips with the maximum beside it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autograder.bank import Misconception
from autograder.misconceptions.computational_graphs import softmax_cross_entropy_maxima
from course.reference.computational_graphs.softmax_cross_entropy import softmax_cross_entropy

Result = tuple[Tensor, Tensor]


def _rows(targets: Tensor) -> Tensor:
    return torch.arange(len(targets))


def _gradient(probabilities: Tensor, targets: Tensor) -> Tensor:
    """The right gradient from whatever probabilities came out."""
    probabilities = probabilities.clone()
    probabilities[_rows(targets), targets] -= 1.0
    return probabilities / len(targets)


def exponentials_without_shift(logits: Tensor, targets: Tensor) -> Result:
    """exp of the logits as they are: infinite above 88."""
    weights = logits.exp()
    p = weights / weights.sum(1, keepdim=True)
    return -p[_rows(targets), targets].log().mean(), _gradient(p, targets)


def log_sum_without_shift(logits: Tensor, targets: Tensor) -> Result:
    """The log is taken of the sum, as it should be, and the sum overflows all the same."""
    log_p = logits - logits.exp().sum(1, keepdim=True).log()
    return -log_p[_rows(targets), targets].mean(), _gradient(log_p.exp(), targets)


def log_of_a_probability(logits: Tensor, targets: Tensor) -> Result:
    """Shifted well, but a probability that was rounded to 0 has no log."""
    p = torch.softmax(logits, dim=1)
    return -p[_rows(targets), targets].log().mean(), _gradient(p, targets)


def epsilon_in_the_log(eps: float) -> Callable[[Tensor, Tensor], Result]:
    """log(p + eps): finite, and -log(eps) wherever the truth is larger. Which eps changes the value."""

    def answer(logits: Tensor, targets: Tensor) -> Result:
        p = torch.softmax(logits, dim=1)
        return -(p[_rows(targets), targets] + eps).log().mean(), _gradient(p, targets)

    return answer


def normalises_over_the_batch(logits: Tensor, targets: Tensor) -> Result:
    """Softmax over dimension 0: columns sum to 1, rows do not."""
    log_p = torch.log_softmax(logits, dim=0)
    return -log_p[_rows(targets), targets].mean(), _gradient(log_p.exp(), targets)


def gradient_of_the_sum(logits: Tensor, targets: Tensor) -> Result:
    """The loss is a mean, its gradient is not divided by N."""
    loss, dlogits = softmax_cross_entropy(logits, targets)
    return loss, dlogits * len(targets)


def sums(logits: Tensor, targets: Tensor) -> Result:
    """Sum for mean, in the loss and so in the gradient."""
    loss, dlogits = softmax_cross_entropy(logits, targets)
    return loss * len(targets), dlogits * len(targets)


def sums_in_the_loss_only(logits: Tensor, targets: Tensor) -> Result:
    """A summed loss beside the gradient of the mean."""
    loss, dlogits = softmax_cross_entropy(logits, targets)
    return loss * len(targets), dlogits


def means_over_all_entries(logits: Tensor, targets: Tensor) -> Result:
    """`.mean()` of the (N, C) products with a one-hot matrix divides by N C."""
    loss, dlogits = softmax_cross_entropy(logits, targets)
    return loss / logits.shape[1], dlogits / logits.shape[1]


def means_over_all_entries_in_the_loss(logits: Tensor, targets: Tensor) -> Result:
    """The same, where the gradient was written from the formula."""
    loss, dlogits = softmax_cross_entropy(logits, targets)
    return loss / logits.shape[1], dlogits


def means_over_all_entries_in_the_gradient(logits: Tensor, targets: Tensor) -> Result:
    """The right loss, and a gradient divided by numel()."""
    loss, dlogits = softmax_cross_entropy(logits, targets)
    return loss, dlogits / logits.shape[1]


def probabilities_for_gradient(logits: Tensor, targets: Tensor) -> Result:
    """The one-hot part is missing."""
    loss, _ = softmax_cross_entropy(logits, targets)
    return loss, torch.softmax(logits, dim=1) / len(targets)


def target_minus_probability(logits: Tensor, targets: Tensor) -> Result:
    """The direction of descent, not the gradient."""
    loss, dlogits = softmax_cross_entropy(logits, targets)
    return loss, -dlogits


def picks_columns(logits: Tensor, targets: Tensor) -> Result:
    """`log_p[:, targets]` is an (N, N) matrix: every row with every target."""
    log_p = torch.log_softmax(logits, dim=1)
    p = log_p.exp()
    p[:, targets] -= 1.0
    return -log_p[:, targets].mean(), p / len(targets)


def picks_columns_in_the_loss(logits: Tensor, targets: Tensor) -> Result:
    """The same slip in the loss only."""
    log_p = torch.log_softmax(logits, dim=1)
    return -log_p[:, targets].mean(), _gradient(log_p.exp(), targets)


def picks_columns_in_the_gradient(logits: Tensor, targets: Tensor) -> Result:
    """The same slip in the gradient only."""
    loss, _ = softmax_cross_entropy(logits, targets)
    p = torch.softmax(logits, dim=1)
    p[:, targets] -= 1.0
    return loss, p / len(targets)


def computes_in_float64(logits: Tensor, targets: Tensor) -> Result:
    """More digits, to be safe, and nobody takes them back."""
    return softmax_cross_entropy(logits.double(), targets)


def gradient_in_float32(logits: Tensor, targets: Tensor) -> Result:
    """What is computed goes into zeros of torch's default dtype."""
    loss, dlogits = softmax_cross_entropy(logits, targets)
    return loss, torch.zeros(logits.shape).copy_(dlogits)


MISCONCEPTIONS = (
    *softmax_cross_entropy_maxima.MISCONCEPTIONS,
    Misconception(
        name="no_max_shift",
        witnesses=(exponentials_without_shift, log_sum_without_shift),
        hint="exp(89) is already infinite in float32, and infinity over infinity is nan. Softmax does not "
        "change when a row is shifted, so subtract the row's largest logit first: then every exponential is at "
        "most 1.",
    ),
    Misconception(
        name="log_of_a_rounded_probability",
        witnesses=(log_of_a_probability,),
        hint="Your softmax is safe, but a small probability is rounded to 0 and its log is -infinity. Never form the "
        "probability: log p = (l - m) - log(sum exp(l - m)) needs only the log of a sum that is at least 1.",
    ),
    Misconception(
        name="epsilon_in_the_log",
        witnesses=tuple(epsilon_in_the_log(eps) for eps in (1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15)),
        hint="An epsilon inside the log hides the infinity and not the error: the loss can then not exceed -log(eps), "
        "18 for 1e-8, however wrong the model is. Take the log of the sum of exponentials, which needs no epsilon.",
    ),
    Misconception(
        name="normalises_over_the_batch",
        witnesses=(normalises_over_the_batch,),
        hint="Your probabilities sum to 1 down each column, so the examples of a batch compete with each other. It is "
        "the classes of one example, dim=1, that share the probability.",
    ),
    Misconception(
        name="gradient_not_divided",
        witnesses=(gradient_of_the_sum,),
        hint="The loss is the mean of N losses, so each row's gradient carries the factor 1/N too. Yours is "
        "the gradient of their sum: N times as long, which acts like a learning rate that grows with the batch.",
    ),
    Misconception(
        name="sum_for_mean",
        witnesses=(sums, sums_in_the_loss_only),
        hint="Your loss is the sum over the batch: it grows with the batch, so losses of different batches do "
        "not compare and the step size changes with N. Divide by the number of rows, in the loss and in its "
        "gradient.",
    ),
    Misconception(
        name="mean_over_classes_too",
        witnesses=(
            means_over_all_entries,
            means_over_all_entries_in_the_loss,
            means_over_all_entries_in_the_gradient,
        ),
        hint="You divide by N times C somewhere: numel() does that, and so does `.mean()` over an (N, C) product with "
        "a one-hot matrix, of which all but N entries are 0. The mean is over the N rows only, in the loss and in its "
        "gradient.",
    ),
    Misconception(
        name="one_hot_missing",
        witnesses=(probabilities_for_gradient,),
        hint="Your gradient holds the probabilities alone: it would push every logit down. The log of the sum "
        "gives the probabilities; the target's own logit gives -1 at the target. A row of the gradient sums to "
        "0.",
    ),
    Misconception(
        name="gradient_negated",
        witnesses=(target_minus_probability,),
        hint="Your gradient points downhill: one-hot minus probabilities. The gradient points uphill, and the "
        "optimizer does the subtracting: probabilities minus one-hot.",
    ),
    Misconception(
        name="picks_columns_for_every_row",
        witnesses=(picks_columns, picks_columns_in_the_loss, picks_columns_in_the_gradient),
        hint="`[:, targets]` takes the columns of *all* targets from *every* row, an (N, N) matrix. One entry per row "
        "needs two lists of indices that go in step, the rows' own numbers and the targets, or an operation that "
        "gathers along the classes.",
    ),
    Misconception(
        name="another_dtype",
        witnesses=(computes_in_float64, gradient_in_float32),
        fails=("dtype_of_the_logits",),
        hint="Your numbers are right, but not in the dtype of the logits. .double() and NumPy make float64, and "
        "torch.zeros makes float32 unless it is told otherwise. You may compute with more digits inside; what you "
        "return takes its dtype from the logits.",
    ),
)
