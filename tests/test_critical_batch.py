"""The hyperbola is found again, the noise of the gradient is what a hand computes, and the networks learn alone."""

from __future__ import annotations

import math
from itertools import islice

import pytest
import torch
from torch import Tensor, nn

from course.errors import BadArgument
from course.lessons.data import digits_split
from course.lessons.experiments import critical_batch, noise_scale
from course.lessons.experiments.critical_batch import Hyperbola, Steps, best, fit_hyperbola, predicted
from course.lessons.experiments.side_by_side import batches, descend, fresh, losses

SIZES = (4, 16, 64, 256, 1024)


def quadratic(theta: Tensor, points: Tensor, labels: Tensor) -> Tensor:
    """The mean of |theta - point|^2 / 2: the gradient of an example is theta - point, and H is the identity."""
    return (theta - points).square().sum(1).mean() / 2


def stretched(theta: Tensor, points: Tensor, labels: Tensor) -> Tensor:
    """As `quadratic`, curved 1 along the first axis and 9 along the second."""
    return ((theta - points).square() * torch.tensor([1.0, 9.0])).sum(1).mean() / 2


POINTS = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 2.0], [2.0, -2.0]])  # mean (2, 0); spread 2 + 8 over 4
LABELS = torch.zeros(4, dtype=torch.int64)


def test_the_fit_finds_the_hyperbola_that_made_the_steps() -> None:
    true = Hyperbola(60.0, 1500.0)
    found = fit_hyperbola(SIZES, [true.steps(size) for size in SIZES])
    assert found.s_min == pytest.approx(60, rel=1e-3)
    assert found.critical == pytest.approx(25, rel=2e-3)


def test_the_fit_is_close_where_the_steps_are_noisy() -> None:
    true, luck = Hyperbola(60.0, 1500.0), (1.05, 0.96, 1.03, 0.95, 1.02)
    found = fit_hyperbola(SIZES, [true.steps(size) * factor for size, factor in zip(SIZES, luck, strict=True)])
    assert found.critical == pytest.approx(25, rel=0.2)


def test_at_the_critical_size_steps_and_examples_are_twice_their_least() -> None:
    curve = Hyperbola(60.0, 1500.0)
    steps = curve.steps(curve.critical)
    assert steps == pytest.approx(2 * curve.s_min)
    assert steps * curve.critical == pytest.approx(2 * curve.e_min)


def test_two_points_are_too_few_for_a_fit() -> None:
    with pytest.raises(BadArgument, match="at least 3"):
        fit_hyperbola((4, 16), (100.0, 50.0))


def test_the_simple_noise_scale_is_that_of_a_hand_computation() -> None:
    grads = noise_scale.example_gradients(quadratic, torch.zeros(2), POINTS, LABELS)
    assert torch.equal(grads, -POINTS)
    noise = noise_scale.simple(grads)
    assert noise == pytest.approx((2.5, 4.0, 0.625))  # (1 + 1 + 4 + 4) / 4, |(2, 0)|^2


def test_with_the_identity_as_hessian_both_noise_scales_agree() -> None:
    grads = noise_scale.example_gradients(quadratic, torch.zeros(2), POINTS, LABELS)
    assert noise_scale.curved(quadratic, torch.zeros(2), POINTS, LABELS, grads) == pytest.approx(0.625)


def test_the_curved_noise_scale_counts_directions_by_their_curvature() -> None:
    """Gradients (theta - p) * (1, 9): Sigma = diag(0.5, 2 * 81), H = diag(1, 9), G = (-2, 0)."""
    grads = noise_scale.example_gradients(stretched, torch.zeros(2), POINTS, LABELS)
    expected = (0.5 + 9 * 2 * 81) / 4
    assert noise_scale.curved(stretched, torch.zeros(2), POINTS, LABELS, grads) == pytest.approx(expected)


def test_two_batch_sizes_estimate_the_noise_scale_without_bias() -> None:
    generator = torch.Generator().manual_seed(0)
    grads = torch.randn(500, 10, generator=generator) + 0.5
    exact = noise_scale.simple(grads).scale
    assert noise_scale.estimated(grads, generator, draws=2000) == pytest.approx(exact, rel=0.1)


def test_a_gradient_of_pure_noise_may_have_no_estimate() -> None:
    grads = torch.randn(500, 10, generator=torch.Generator().manual_seed(1))
    guesses = [
        noise_scale.estimated(grads - grads.mean(0), torch.Generator().manual_seed(s), draws=2) for s in range(9)
    ]
    assert None in guesses


def test_the_flat_network_is_the_one_that_is_trained() -> None:
    data, _ = digits_split()
    params = [each.detach() for each in fresh(2, 1)]
    theta = torch.cat([each[0, 0].flatten() for each in params])
    flat = noise_scale.network_loss(theta, *data)
    assert float(flat) == pytest.approx(float(losses(params, *data)[0, 0]), rel=1e-5)


def test_networks_side_by_side_learn_as_one_alone_does() -> None:
    """Against torch's own layers and torch.optim.SGD, with the examples of the second seed."""
    data, _ = digits_split()
    params, rates = fresh(2, 2), torch.tensor([0.1, 0.5])
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with torch.no_grad():
        for own, side in zip(model.parameters(), params, strict=True):
            own.copy_(side[1, 1].T if own.ndim == 2 else side[1, 1, 0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    together = zip(descend(params, batches(data, 8, 2), rates), batches(data, 8, 2), strict=False)
    for _, (images, labels) in islice(together, 20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[1]), labels[1]).backward()
        optimizer.step()
    alone = nn.functional.cross_entropy(model(data.images), data.labels)
    assert losses(params, *data)[1, 1].item() == pytest.approx(alone.item(), rel=1e-4)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(BadArgument, match="rule must be one of sgd, adam"):
        next(descend(fresh(1, 1), batches(digits_split()[0], 4, 1), torch.tensor([0.1]), rule="lion"))


def test_the_best_rate_brought_every_seed_to_the_target() -> None:
    runs = Steps(
        rule="sgd", target=0.2, batch_sizes=[8], rates=[0.1, 0.2, 0.4], steps=[[[90, 80], [50, 60], [20, None]]]
    )
    assert best(runs)[0] == (0.2, 55.0, [50, 60])


def test_without_a_rate_that_arrives_there_is_no_best() -> None:
    runs = Steps(rule="sgd", target=0.2, batch_sizes=[8], rates=[0.1], steps=[[[90, None]]])
    with pytest.raises(BadArgument, match="batches of 8, got none"):
        best(runs)


def test_the_prediction_leaves_out_what_could_not_be_estimated() -> None:
    assert predicted([10.0, None, 20.0]) == 15


def test_the_short_form_measures_steps_and_noise() -> None:
    found = critical_batch.measure((16, 64, 256), (0.5, 1.0), seeds=1, target=1.0, looks=2)
    steps = [point.steps for point in best(found.runs)]
    assert all(0 < each < 100 for each in steps)
    assert found.noise.steps[0] == 0
    assert found.noise.loss[0] == pytest.approx(math.log(10), abs=0.1)
    assert all(value > 0 for value in found.noise.simple)


def test_the_recorded_run_holds_the_numbers_of_the_lesson() -> None:
    data = critical_batch.recorded().data
    fit = fit_hyperbola(data.runs.batch_sizes, [point.steps for point in best(data.runs)])
    assert 10 < fit.critical < 60
    assert "B_crit" in critical_batch.report(data)
