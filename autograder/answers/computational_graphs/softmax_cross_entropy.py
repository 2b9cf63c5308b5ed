"""Right and wrong ways to write `softmax_cross_entropy`."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.exercises.computational_graphs.tensors import DIGITS, EVERY_DIGIT
from course.reference.computational_graphs.softmax_cross_entropy import softmax_cross_entropy


def torchs_own(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """torch's loss, and autograd."""
    leaf = logits.detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(leaf, targets)
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def one_hot_matrix(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The targets as a matrix of zeros and ones, and torch's own logsumexp."""
    one_hot = torch.zeros_like(logits).scatter(1, targets[:, None], 1.0)
    log_p = logits - torch.logsumexp(logits, dim=1, keepdim=True)
    return -(one_hot * log_p).sum() / len(targets), (log_p.exp() - one_hot) / len(targets)


def probabilities_first(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient from probabilities, the loss from maximum and sum."""
    top = logits.max(dim=1, keepdim=True).values
    weights = torch.exp(logits - top)
    total = weights.sum(dim=1, keepdim=True)
    p = weights / total
    log_p = logits - top - total.log()
    loss = -log_p.gather(1, targets[:, None]).mean()
    p[range(len(targets)), targets] -= 1
    return loss, p / len(targets)


def row_by_row(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Loops over rows of Python numbers."""
    count, loss, rows = len(targets), 0.0, []
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        top = max(row)
        total = sum(math.exp(value - top) for value in row)
        loss += (math.log(total) + top - row[target]) / count
        ps = [math.exp(value - top) / total for value in row]
        rows.append([(p - (index == target)) / count for index, p in enumerate(ps)])
    return torch.tensor(loss, dtype=torch.float64).to(logits.dtype), torch.tensor(rows, dtype=logits.dtype)


RIGHT = (
    right(torchs_own, independent="torch.nn.functional.cross_entropy"),
    right(one_hot_matrix),
    right(probabilities_first),
    right(row_by_row),
)

from_log_p = partial(edited, softmax_cross_entropy)
from_p = partial(edited, probabilities_first)
with_one_hot = partial(edited, one_hot_matrix)
in_lists = partial(edited, row_by_row)

RETURN, ONE_HOT = "return loss, dlogits / len(targets)", "torch.zeros_like(logits).scatter(1, targets[:, None], 1.0)"
SHIFTED = "logits - logits.amax(dim=1, keepdim=True)"
FINE = (SHIFTED, f"{SHIFTED}\n    fine = torch.float32 if logits.dtype == torch.bfloat16 else logits.dtype")
LOG_OF_P = ("logits - top - total.log()", "p.log()")
EPSILONS = (1e-7, 1e-8, 1e-10, 1e-12)
SUM_OF_LOSSES, SUM_OF_GRADIENTS = (".mean()", ".sum()"), ("dlogits / len(targets)", "dlogits")
MEAN_OVER_ENTRIES = ("-(one_hot * log_p).sum() / len(targets)", "-(one_hot * log_p).mean()")
GRADIENT_OVER_ENTRIES = ("(log_p.exp() - one_hot) / len(targets)", "(log_p.exp() - one_hot) / logits.numel()")
LOSS_COLUMNS, GRADIENT_COLUMNS = ("-log_p[rows,", "-log_p[:,"), ("dlogits[rows,", "dlogits[:,")
MAXIMUM_IN_A_ROW = ("max(dim=1, keepdim=True)", "max(dim=1)")
SUM_IN_A_ROW = ("sum(dim=1, keepdim=True)", "sum(dim=1)")

WRONG = (
    wrong(
        "one_shift_for_all_rows",
        "You subtract the largest logit of the whole batch. A row far below it then has only zeros as exponentials, "
        "and the log of their sum is -infinity. Each row needs its own maximum.",
        from_log_p((SHIFTED, "logits - logits.max()")),
    ),
    wrong(
        "shifts_by_columns",
        "You subtract the maximum of each column. Softmax stays the same only when all logits of one row move by the "
        "same amount: take the maximum over the classes and keep that dimension, so that it broadcasts along the row.",
        from_log_p((SHIFTED, "logits - logits.amax(dim=0)")),
    ),
    wrong(
        "maximum_not_added_back",
        "Your log of the sum is that of the shifted logits, log sum exp(l - m), and you take it from logits that are "
        "not shifted. Either subtract it from l - m, or add m back to it: log sum exp(l) = m + log sum exp(l - m).",
        from_log_p(("log_p = shifted", "log_p = logits")),
        from_p(("logits - top - total.log()", "logits - total.log()")),
    ),
    wrong(
        "row_value_without_its_dimension",
        "A maximum or sum over the classes has the shape (N,), and next to (N, C) torch lines it up with the classes: "
        "an exception unless N equals C or is 1, and wrong numbers, without a word, where N equals C. Keep the "
        "dimension with keepdim=True: (N, 1) broadcasts along the row.",
        from_log_p(MAXIMUM_IN_A_ROW),
        from_log_p(SUM_IN_A_ROW),
        from_log_p(MAXIMUM_IN_A_ROW, SUM_IN_A_ROW),
        from_p(MAXIMUM_IN_A_ROW, SUM_IN_A_ROW, LOG_OF_P),
    ),
    wrong(
        "clamps_the_logits",
        "clamp keeps exp finite by changing the logits: two of them beyond the limit become equal, and the loss cannot "
        "exceed what the limit allows, however wrong the model is. Subtract the row's largest logit, which changes "
        "nothing, and take the log of the sum; no limit is needed then.",
        from_log_p((SHIFTED, "logits.clamp(-80, 80)")),
        *(from_log_p((SHIFTED, f"({SHIFTED}).clamp(min={lowest})")) for lowest in (-50, -80, -88, -100)),
    ),
    wrong(
        "no_max_shift",
        "exp(89) is already infinite in float32, and infinity over infinity is nan. Softmax does not change when a row "
        "is shifted, so subtract the row's largest logit first: then every exponential is at most 1.",
        from_p(("exp(logits - top)", "exp(logits)"), LOG_OF_P),
        from_log_p((SHIFTED, "logits")),
    ),
    wrong(
        "log_of_a_rounded_probability",
        "Your softmax is safe, but a small probability is rounded to 0 and its log is -infinity; l - m in its place "
        "lacks the log of the sum. Never form the probability: log p = (l - m) - log(sum exp(l - m)) needs only the "
        "log of a sum that is at least 1.",
        from_p(LOG_OF_P),
        from_p((LOG_OF_P[0], "torch.where(p > 0, p.log(), logits - top)")),
    ),
    wrong(
        "epsilon_in_the_log",
        "An epsilon inside the log, added to p or as its lower limit, hides the infinity and not the error: the loss "
        "cannot exceed -log(eps), 18 for 1e-8, however wrong the model is. Take the log of the sum of exponentials, "
        "which needs no epsilon.",
        *(
            from_p((LOG_OF_P[0], f"({floored}).log()"))
            for eps in EPSILONS
            for floored in (f"p + {eps}", f"p.clamp({eps})")
        ),
    ),
    wrong(
        "normalises_over_the_batch",
        "Your probabilities sum to 1 down each column, so the examples of a batch compete with each other. It is the "
        "classes of one example, dim=1, that share the probability.",
        from_log_p(("amax(dim=1", "amax(dim=0"), ("sum(dim=1", "sum(dim=0")),
    ),
    wrong(
        "gradient_not_divided",
        "The loss is the mean of N losses, so each row's gradient carries the factor 1/N too. Yours is the gradient of "
        "their sum: N times as long, which acts like a learning rate that grows with the batch.",
        from_log_p(SUM_OF_GRADIENTS),
    ),
    wrong(
        "sum_for_mean",
        "Your loss is the sum over the batch: it grows with the batch, so losses of different batches do not compare "
        "and the step size changes with N. Divide by the number of rows, in the loss and in its gradient.",
        from_log_p(SUM_OF_LOSSES, SUM_OF_GRADIENTS),
        from_log_p(SUM_OF_LOSSES),
    ),
    wrong(
        "mean_over_classes_too",
        "You divide by N times C somewhere: numel() does that, and so does `.mean()` over an (N, C) product with a "
        "one-hot matrix, of which all but N entries are 0. The mean is over the N rows only, in the loss and in its "
        "gradient.",
        with_one_hot(MEAN_OVER_ENTRIES, GRADIENT_OVER_ENTRIES),
        with_one_hot(MEAN_OVER_ENTRIES),
        with_one_hot(GRADIENT_OVER_ENTRIES),
    ),
    wrong(
        "one_hot_missing",
        "Your gradient holds the probabilities alone: it would push every logit down. The log of the sum gives the "
        "probabilities; the target's own logit gives -1 at the target. A row of the gradient sums to 0.",
        from_log_p(("    dlogits[rows, targets] -= 1.0\n", "")),
    ),
    wrong(
        "gradient_negated",
        "Your gradient points downhill: one-hot minus probabilities. The gradient points uphill, and the optimizer "
        "does the subtracting: probabilities minus one-hot.",
        with_one_hot(("log_p.exp() - one_hot", "one_hot - log_p.exp()")),
    ),
    wrong(
        "picks_columns_for_every_row",
        "`[:, targets]` takes the columns of *all* targets from *every* row, an (N, N) matrix. One entry per row needs "
        "two lists of indices that go in step, the rows' own numbers and the targets, or an operation that gathers "
        "along the classes.",
        from_log_p(LOSS_COLUMNS, GRADIENT_COLUMNS),
        from_log_p(LOSS_COLUMNS),
        from_log_p(GRADIENT_COLUMNS),
    ),
    wrong(
        "counts_classes_from_the_targets",
        "one_hot takes the largest target for the last class unless it is told their number: a class that no row of "
        "the batch has is missing then. The logits know: they have C columns.",
        with_one_hot((ONE_HOT, "torch.nn.functional.one_hot(targets)")),
    ),
    wrong(
        "drops_dimensions_of_size_1",
        "Right until there is one row or one class: `squeeze()` drops every dimension of size 1, and dlogits has the "
        "shape of the logits, (N, C), always.",
        from_log_p((RETURN, "return loss, (dlogits / len(targets)).squeeze()")),
        from_log_p((RETURN, "return loss, (dlogits / len(targets)).squeeze(0)")),
    ),
    wrong(
        "view_of_scattered_numbers",
        "Right for logits whose numbers lie in a row, and an exception for those where they do not: a transpose, or a "
        "slice of a wider tensor. `view` cannot fold these; `reshape` copies where it must.",
        from_log_p(("log_p[rows, targets]", "log_p.view(-1)[rows * logits.shape[1] + targets]")),
        from_log_p(("shifted = logits", "shifted = logits.view(logits.numel()).reshape(logits.shape)")),
    ),
    wrong(
        "another_dtype",
        "Your numbers are right, but not both of what you return are tensors in the dtype of the logits. `.item()` "
        "makes a Python number, .double() and NumPy make float64, and torch.zeros makes float32 unless it is told "
        "otherwise. You may compute with more digits inside; what you return takes its dtype from the logits.",
        from_log_p((SHIFTED, f"{SHIFTED}.double()")),
        in_lists(("torch.tensor(rows, dtype=logits.dtype)", "torch.tensor(rows)")),
        from_log_p(("return loss", "return loss.item()")),
        from_log_p(
            (RETURN, "return loss, dlogits / len(targets) if logits.shape[1] > 1 else torch.zeros(len(targets), 1)")
        ),
        with_one_hot((ONE_HOT, "torch.zeros(logits.shape).scatter(1, targets[:, None], 1.0)")),
        fails=("dtype_of_the_logits",),
    ),
    wrong(
        "digits_lost_in_float64",
        DIGITS,
        from_log_p(
            (SHIFTED, f"({SHIFTED}).float()"),
            (RETURN, "return loss.to(logits.dtype), dlogits.to(logits.dtype) / len(targets)"),
        ),
        from_log_p((".mean()", ".float().mean().to(logits.dtype)")),
        fails=(EVERY_DIGIT, "every_form"),
    ),
    wrong(
        "one_over_n_in_float32",
        "torch.tensor(1 / N) is a float32 number, and 1/3 has 7 digits there: what you multiply by it keeps the dtype "
        "of the logits, and no more digits than that. Divide by N, or use the Python number.",
        from_log_p((RETURN, "return loss, dlogits * torch.tensor(1 / len(targets))")),
    ),
    wrong(
        "added_up_in_half_precision",
        "You add numbers one by one in the dtype of the logits. In bfloat16, 256 + 1 is 256, and in float16, 2048 + 1 "
        "is 2048: a sum of many numbers stands still there. torch's sum and mean add up in float32, NumPy's do not; "
        "where you add yourself, convert first, and back at the end.",
        from_log_p(("shifted.exp().sum(dim=1, keepdim=True)", "sum(shifted.exp().split(1, dim=1))")),
        from_log_p(("-log_p[rows, targets].mean()", "-sum(log_p[rows, targets]) / len(targets)")),
        from_log_p(
            FINE,
            ("shifted.exp().sum(dim=1, keepdim=True)", "sum(shifted.exp().to(fine).split(1, dim=1)).to(logits.dtype)"),
        ),
        from_log_p(
            FINE,
            (".mean()", ".to(fine)"),
            (RETURN, "return (sum(loss) / len(targets)).to(logits.dtype), dlogits / len(targets)"),
        ),
    ),
)
