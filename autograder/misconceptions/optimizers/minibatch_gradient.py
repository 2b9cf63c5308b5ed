"""Wrong ways to write `minibatch_gradient`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from autograder.bank import Misconception
from course.performing.exercise import Answer
from course.reference.optimizers.minibatch_gradient import minibatch_gradient as right


def weighted(weight: Callable[[Tensor, int, int], Tensor]) -> Answer:
    """The mean over the draws, with weights from (probabilities of what was drawn, n, b)."""

    def answer(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
        weights = weight(probs[indices], len(probs), len(indices))
        return (weights[:, None] * grads[indices]).mean(0)

    return answer


def scaled(factor: Callable[[int, int, int], float]) -> Answer:
    """The right estimate times a number from (n, b, number of distinct indices)."""

    def answer(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
        return right(grads, probs, indices) * factor(len(probs), len(indices), len(set(indices.tolist())))

    return answer


def each_example_once(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """Repeated indices are dropped."""
    return right(grads, probs, torch.tensor(sorted(set(indices.tolist()))))


def adds_at_indices(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """`weights[indices] += ...` writes each place once, however often it is named."""
    weights = torch.zeros_like(probs)
    weights[indices] += 1 / (len(probs) * probs[indices])
    return weights @ grads / len(indices)


def mean_of_all(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """What is to be estimated."""
    return grads.mean(0)


def expectation_without_weights(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """What the plain mean of a draw estimates."""
    return probs @ grads


def weights_of_all(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """All examples with their weights, and the draw is not looked at."""
    return (grads / (len(probs) * probs[:, None])).mean(0)


def does_not_pick_probabilities(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """b gradients over n probabilities: shapes that do not fit."""
    return (grads[indices] / (len(probs) * probs[:, None])).mean(0)


def first_probabilities(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """As many probabilities as draws, but not those of the drawn."""
    p = probs.repeat(2)[: len(indices)]
    return (grads[indices] / (len(probs) * p[:, None])).mean(0)


def counts_over_probabilities(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """How often each was drawn over how often it was expected: 0 / 0 where it cannot be drawn."""
    drawn = torch.bincount(indices, minlength=len(probs)).to(grads.dtype)
    return (drawn / (len(indices) * probs)) @ grads / len(probs)


def weighs_all_then_selects(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """Every gradient over its probability, then a product with a 0 for what was not drawn."""
    drawn = torch.bincount(indices, minlength=len(probs)).to(grads.dtype)
    return drawn @ (grads / (len(probs) * probs[:, None])) / len(indices)


def weights_along_the_columns(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """(b,) times (b, d) lines up the weights with the columns."""
    return (1 / (len(probs) * probs[indices]) * grads[indices]).mean(0)


def mean_of_each_draw(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """The mean over the columns: one number for each draw."""
    return (grads[indices] / (len(probs) * probs[indices, None])).mean(1)


def mean_of_everything(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """One number."""
    return right(grads, probs, indices).mean()


def one_row_for_each_draw(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """No mean."""
    return grads[indices] / (len(probs) * probs[indices, None])


def in_float64(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """More digits, and nobody takes them back."""
    return right(grads.double(), probs.double(), indices)


def counts_what_can_be_drawn(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """n without the examples of probability 0."""
    return right(grads, probs, indices) * len(probs) / (probs > 0).sum()


def into_zeros(grads: Tensor, probs: Tensor, indices: Tensor) -> Tensor:
    """Adds up in a new tensor of torch's default dtype."""
    total = torch.zeros(grads.shape[1])
    for i in indices:
        total += grads[i] / (len(probs) * probs[i])
    return total / len(indices)


MISCONCEPTIONS = (
    Misconception(
        name="sum_for_mean",
        witnesses=(scaled(lambda n, b, distinct: b),),
        hint="You add up the weighted gradients and do not divide by their number. A sum grows with the batch, so that "
        "the step would too. The n in the weight 1 / (n p_i) does not replace that: divide the sum by b as well.",
    ),
    Misconception(
        name="divides_by_the_number_of_examples",
        witnesses=(scaled(lambda n, b, distinct: b / n), scaled(lambda n, b, distinct: 1 / n)),
        hint="You divide by n once too often: it stands in the weight 1 / (n p_i) already. The mean of the draws "
        "divides by their number, b.",
    ),
    Misconception(
        name="divides_by_the_batch_twice",
        witnesses=(scaled(lambda n, b, distinct: 1 / b),),
        hint="You divide by b twice, once in the weight and once in the mean.",
    ),
    Misconception(
        name="divides_by_distinct_indices",
        witnesses=(scaled(lambda n, b, distinct: b / distinct),),
        hint="You divide by the number of different examples. A repeated index is a draw like any other: divide by the "
        "number of draws, len(indices).",
    ),
    Misconception(
        name="drops_repeated_indices",
        witnesses=(each_example_once, adds_at_indices),
        hint="An example that was drawn twice counts once in your estimate: unique() and sets drop it, and "
        "`weights[indices] += ...` writes each place once, however often it is named. Repeats are what drawing with "
        "replacement means; grads[indices] keeps them.",
    ),
    Misconception(
        name="weights_dropped",
        witnesses=(weighted(lambda p, n, b: torch.ones_like(p)),),
        hint="You take the plain mean of what was drawn. Examples that are drawn often then count often: on average "
        "that gives the sum of p_i g_i, not the mean. Each drawn gradient needs the weight 1 / (n p_i).",
    ),
    Misconception(
        name="n_missing_in_the_weight",
        witnesses=(weighted(lambda p, n, b: 1 / p),),
        hint="The weight 1 / p_i makes your estimate right for the *sum* of all gradients. For their mean it is 1 / (n "
        "p_i), which is 1 where all probabilities are equal.",
    ),
    Misconception(
        name="batch_for_n_in_the_weight",
        witnesses=(weighted(lambda p, n, b: 1 / (b * p)),),
        hint="In the weight 1 / (n p_i) the n is the number of all examples, len(probs), not the size of the batch.",
    ),
    Misconception(
        name="counts_only_what_can_be_drawn",
        witnesses=(counts_what_can_be_drawn,),
        hint="Your n counts the examples of a probability above 0. The mean to be estimated is over all n examples, "
        "whether they can be drawn or not; who is never drawn is missing in the estimate, and no weight of others "
        "makes up for that. n is len(probs).",
    ),
    Misconception(
        name="multiplies_by_the_probability",
        witnesses=(weighted(lambda p, n, b: n * p), weighted(lambda p, n, b: p), weighted(lambda p, n, b: b * p)),
        hint="You multiply by the probability, so what is drawn often counts even more. It is the other way round: "
        "what is drawn twice as often must count half as much each time.",
    ),
    Misconception(
        name="weights_made_to_sum_to_1",
        witnesses=(
            weighted(lambda p, n, b: b * (1 / p) / (1 / p).sum()),
            weighted(lambda p, n, b: b * p / p.sum()),
            weighted(lambda p, n, b: p.sum() / (b * p)),
            weighted(lambda p, n, b: p.sum() / p),
            weighted(lambda p, n, b: p.sum() / (n * p)),
        ),
        hint="You divide the weights, or the probabilities of what was drawn, by their own sum. That sum differs from "
        "draw to draw, and a ratio of two random numbers is not right on average: with b = 1 the weight would always "
        "be 1. Divide by b.",
    ),
    Misconception(
        name="another_dtype",
        witnesses=(in_float64, into_zeros),
        fails=("dtype_of_the_gradients",),
        hint="Your numbers are right, but not in the dtype of `grads`. torch.zeros makes float32 unless told "
        "otherwise, and .double() and NumPy make float64: take the dtype from the gradients, with zeros_like or "
        ".to(grads.dtype).",
    ),
    Misconception(
        name="epsilon_beside_the_probability",
        witnesses=tuple(
            weighted(weight)
            for eps in (1e-6, 1e-8, 1e-10, 1e-12)
            for weight in (
                lambda p, n, b, eps=eps: 1 / (n * p + eps),
                lambda p, n, b, eps=eps: 1 / (n * (p + eps)),
            )
        ),
        hint="A small number beside p_i makes every weight a little too small, so the estimate is not right on "
        "average. No protection is needed: what was drawn has a probability above 0.",
    ),
    Misconception(
        name="ignores_the_draw",
        witnesses=(mean_of_all, expectation_without_weights, weights_of_all),
        hint="Your result does not depend on what was drawn. The point of a mini-batch is to read only b of the n "
        "gradients: take the rows in `indices`, and from those estimate the mean of all.",
    ),
    Misconception(
        name="probabilities_of_others",
        witnesses=(does_not_pick_probabilities, first_probabilities),
        hint="The weights do not belong to the gradients beside them. Take the probabilities with the same indices as "
        "the gradients: probs[indices] and grads[indices], both of length b.",
    ),
    Misconception(
        name="nan_from_what_was_not_drawn",
        witnesses=(counts_over_probabilities, weighs_all_then_selects),
        hint="You divide by all n probabilities. Where one is 0 that gives infinity or nan, and multiplying by 0 does "
        "not help: 0 * inf is nan. Pick what was drawn first, then divide.",
    ),
    Misconception(
        name="weights_along_the_columns",
        witnesses=(weights_along_the_columns,),
        hint="Weights of shape (b,) times gradients of shape (b, d) line up with the columns: an error, or wrong "
        "numbers where b happens to equal d. Give the weights a second dimension of size 1, [:, None].",
    ),
    Misconception(
        name="mean_over_another_dimension",
        witnesses=(mean_of_each_draw, mean_of_everything, one_row_for_each_draw),
        hint="The shape of your result is not (d,). The mean is over the draws, dimension 0; the d numbers of a "
        "gradient stay apart.",
    ),
)
