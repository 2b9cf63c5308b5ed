"""Right and wrong ways to write `minibatch_gradient`."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from autograder.bank import right, wrong
from autograder.edits import edited
from course.reference.optimizers.minibatch_gradient import minibatch_gradient


def counts_the_draws(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """How often each example was drawn over how often it was expected, in NumPy; 0 where it cannot be drawn."""
    p = probs.double().numpy()
    drawn = np.bincount(indices.numpy(), minlength=len(p))
    ratio = np.divide(drawn, len(indices) * p, out=np.zeros_like(p), where=p > 0)
    return torch.from_numpy(np.average(ratio[:, None] * grads.double().numpy(), axis=0)).to(grads.dtype)


def one_draw_at_a_time(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """Adds in place on a new tensor; the weight is a Python number."""
    n, b = len(grads), len(indices)
    total = torch.zeros_like(grads[0])
    for i in indices.tolist():
        total += grads[i] / (n * probs[i].item())
    return total / b


def weights_times_matrix(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """A vector of weights times the matrix of what was drawn."""
    weights = probs[indices].reciprocal() / (grads.shape[0] * indices.numel())
    return weights @ grads.index_select(0, indices)


RIGHT = (
    right(counts_the_draws, independent="numpy: counts over expected counts"),
    right(one_draw_at_a_time),
    right(weights_times_matrix),
)

picked = partial(edited, minibatch_gradient)
loop = partial(edited, one_draw_at_a_time)

WEIGHT, MEAN = "1 / (len(probs) * probs[indices])", "(weights[:, None] * grads[indices]).mean(dim=0)"
EPSILONS = ("1e-6", "1e-8", "1e-10", "1e-12")

WRONG = (
    wrong(
        "sum_for_mean",
        "You add up the weighted gradients and do not divide by their number. A sum grows with the batch, so that "
        "the step would too. The n in the weight 1 / (n p_i) does not replace that: divide the sum by b as well.",
        picked(("mean", "sum")),
    ),
    wrong(
        "divides_by_the_number_of_examples",
        "You divide once too often: by n, which stands in the weight 1 / (n p_i) already, or a second time by b. The "
        "mean of the draws divides by their number, b, and by nothing else.",
        loop(("total / b", "total / n")),
        picked(("mean(dim=0)", "mean(dim=0) / len(probs)")),
        picked(("mean(dim=0)", "mean(dim=0) / len(indices)")),
    ),
    wrong(
        "drops_repeated_indices",
        "An example that was drawn twice counts once in your estimate: unique() and sets drop it, and "
        "`weights[indices] += ...` writes each place once, however often it is named. Repeats are what drawing with "
        "replacement means; grads[indices] keeps them.",
        loop(("    n, b", "    indices = indices.unique()\n    n, b")),
        loop(("indices.tolist()", "set(indices.tolist())")),
    ),
    wrong(
        "weights_dropped",
        "You take the plain mean of what was drawn. Examples that are drawn often then count often: on average "
        "that gives the sum of p_i g_i, not the mean. Each drawn gradient needs the weight 1 / (n p_i).",
        picked(("weights[:, None] * ", "")),
    ),
    wrong(
        "n_missing_in_the_weight",
        "The weight is 1 / (n p_i), which is 1 where all probabilities are equal; n is the number of all examples, "
        "len(probs), not the size of the batch. With 1 / p_i the estimate is right for the *sum* of all gradients.",
        loop(("(n * ", "(")),
        loop(("(n * ", "(b * ")),
    ),
    wrong(
        "counts_only_what_can_be_drawn",
        "Your n counts the examples of a probability above 0. The mean to be estimated is over all n examples, "
        "whether they can be drawn or not; an example that is never drawn is missing from the estimate, and no weight "
        "on the others makes up for that. n is len(probs).",
        loop(("len(grads)", "int((probs > 0).sum())")),
    ),
    wrong(
        "multiplies_by_the_probability",
        "You multiply by the probability, so what is drawn often counts even more. It is the other way round: "
        "what is drawn twice as often must count half as much each time.",
        picked((WEIGHT, "len(probs) * probs[indices]")),
        picked((WEIGHT, "probs[indices]")),
        picked((WEIGHT, "probs[indices]"), ("mean", "sum")),
    ),
    wrong(
        "weights_made_to_sum_to_1",
        "You divide the weights, or the probabilities of what was drawn, by their own sum. That sum differs from "
        "draw to draw, and a ratio of two random numbers is not right on average: with b = 1 the weight would always "
        "be 1. Divide by b.",
        picked((MEAN, "(weights / weights.sum()) @ grads[indices]")),
        picked((WEIGHT, "probs[indices] / probs[indices].sum()"), ("mean", "sum")),
        picked((WEIGHT, "probs[indices].sum() / (len(indices) * probs[indices])")),
        picked((WEIGHT, "probs[indices].sum() / probs[indices]")),
        picked((WEIGHT, "probs[indices].sum() / (len(probs) * probs[indices])")),
    ),
    wrong(
        "another_dtype",
        "Your numbers are right, but not in the dtype of `grads`. torch.zeros makes float32 unless told "
        "otherwise, and .double() and NumPy make float64: take the dtype from the gradients, with zeros_like or "
        ".to(grads.dtype).",
        picked(("* grads[indices]", "* grads[indices].double()")),
        loop(("torch.zeros_like(grads[0])", "torch.zeros(grads.shape[1])")),
        fails=("dtype_of_the_gradients",),
    ),
    wrong(
        "epsilon_beside_the_probability",
        "A small number beside p_i makes every weight a little too small, so the estimate is not right on "
        "average. No protection is needed: what was drawn has a probability above 0.",
        *(picked(("probs[indices])", f"probs[indices] + {eps})")) for eps in EPSILONS),  # beside n p
        *(picked(("probs[indices]", f"(probs[indices] + {eps})")) for eps in EPSILONS),
    ),
    wrong(
        "weight_held_back",
        "Only where an example of a very small probability was drawn is your estimate another. The weight is "
        "1 / (n p_i) there as well, however large that is: look at what keeps a probability from being small, or a "
        "weight from being large (a clamp, a max or min, a small number that is added).",
        picked(("probs[indices])", "probs[indices].clamp(min=1e-8))")),
        picked((WEIGHT, f"({WEIGHT}).clamp(max=100)")),
        fails=("a_rare_example",),
    ),
    wrong(
        "probabilities_of_others",
        "The weights do not belong to the gradients beside them. Take the probabilities with the same indices as "
        "the gradients: probs[indices] and grads[indices], both of length b.",
        picked(("probs[indices]", "probs")),
        loop(("for i in indices.tolist()", "for k, i in enumerate(indices.tolist())"), ("probs[i]", "probs[k % n]")),
    ),
    wrong(
        "nan_from_what_was_not_drawn",
        "You divide by all n probabilities. Where one is 0 that gives infinity or nan, and multiplying by 0 does "
        "not help: 0 * inf is nan. Pick what was drawn first, then divide.",
        edited(counts_the_draws, (", out=np.zeros_like(p), where=p > 0", "")),
    ),
    wrong(
        "weights_along_the_columns",
        "Weights of shape (b,) times gradients of shape (b, d) line up with the columns: an error, or wrong "
        "numbers where b happens to equal d. Give the weights a second dimension of size 1, [:, None].",
        picked(("[:, None]", "")),
    ),
    wrong(
        "mean_over_another_dimension",
        "The shape of your result is not (d,). The mean is over the draws, dimension 0; the d numbers of a "
        "gradient stay apart.",
        picked(("dim=0", "dim=1")),
        picked(("dim=0", "")),
        picked((".mean(dim=0)", "")),
    ),
    wrong(
        "dimension_of_length_1_dropped",
        "squeeze() drops every dimension of length 1: where d is 1, that of the numbers of a gradient too. The result "
        "must be (d,) there as well, with one number in it.",
        picked((MEAN, f"{MEAN}.squeeze()")),
        picked(("* grads[indices]", "* grads[indices].squeeze()")),
    ),
)
