"""Recipes of mixed precision keep what they say, and drop what they say."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from course.errors import BadArgument
from course.lessons.experiments import functional_gpt, half_stand_ins, which_bits
from course.lessons.experiments.problems import Problem, gpt_problem
from course.lessons.experiments.which_bits import (
    HIGH_PEAK,
    RECIPES,
    SEEDS,
    added_in_half,
    in_eight,
    measure,
    table,
    train,
)
from course.lessons.figures.which_bits import costs_by_recipe, loss_curves
from course.lessons.models import next_token_loss


@pytest.fixture(scope="module")
def problem() -> Problem:
    return gpt_problem(steps=4)


def test_the_function_of_the_weights_is_the_model(problem: Problem) -> None:
    model = problem.model(torch.Generator().manual_seed(0))
    tokens, targets = problem.batch(torch.Generator().manual_seed(1))
    weights = {name: each.clone().requires_grad_() for name, each in functional_gpt.weights_of(model).items()}
    loss, its = (next_token_loss(each, targets) for each in (functional_gpt.logits(weights, tokens), model(tokens)))
    torch.testing.assert_close(loss, its)
    grads = torch.autograd.grad(loss, list(weights.values()))
    torch.testing.assert_close(list(grads), list(torch.autograd.grad(its, list(model.parameters()))))


@pytest.mark.parametrize(
    ("name", "most"), [("fp32", 16), ("fp16", 16), ("bf16, stochastic", 12), ("bf16, moments in bf16", 12)]
)
def test_a_recipe_keeps_so_many_bytes_per_parameter(problem: Problem, name: str, most: float) -> None:
    assert train(problem, RECIPES[name], seed=0, points=1).state_bytes == most


def test_a_small_rate_leaves_bfloat16_weights_where_they_are(problem: Problem) -> None:
    still = {
        name: train(problem, RECIPES[name], seed=0, points=1, peak=1e-6).still
        for name in ("bf16", "bf16, no master copy")
    }
    assert still["bf16"] < 0.1 < 0.9 < still["bf16, no master copy"]


def test_each_partial_sum_is_rounded() -> None:
    assert added_in_half(torch.ones(1000, dtype=torch.bfloat16)).item() == 256


def test_eight_bits_lose_what_no_scale_lifts() -> None:
    small = torch.tensor([2.0**-20, -(2.0**-21)])
    assert in_eight(small, torch.float8_e5m2, scaled=False).tolist() == [0, 0]
    assert torch.equal(in_eight(small, torch.float8_e5m2, scaled=True), small)


def test_the_stand_in_for_the_scaler_skips_and_halves() -> None:
    scaler, called = half_stand_ins.LossScaler(), []
    for number in (1.0, torch.inf):
        first = scaler.scale(torch.ones(())).item()
        grads = [torch.tensor([first * number])]
        scaler.unscale_(grads)
        assert scaler.step(lambda: called.append(0)) == (number == 1)
        scaler.update()
    assert len(called) == 1
    assert scaler.scale(torch.ones(())).item() == first / 2


def test_the_stand_in_for_stochastic_rounding_is_right_on_average() -> None:
    x = torch.tensor([1 + 2.0**-9, -1 - 2.0**-9])  # a quarter of a gap
    u = torch.arange(16) / 16
    mean = torch.stack([half_stand_ins.stochastic_round(x, each.expand(2)).float() for each in u]).mean(0)
    assert torch.equal(mean, x)


def test_the_stand_ins_give_way_to_answers_that_pass() -> None:
    yours = {"round_to": nn.Identity()}
    assert half_stand_ins.PARTS.with_yours(yours)["round_to"] is yours["round_to"]
    assert half_stand_ins.PARTS.whose(yours).startswith("yours: round_to; PyTorch's: LossScaler")


def test_what_is_recorded_has_all_recipes_and_can_be_drawn() -> None:
    data = which_bits.recorded().data
    assert {row.recipe for row in data.rows} == set(RECIPES)
    assert {len(row.losses) for row in data.rows} == {len(SEEDS)}
    assert len(table(data).splitlines()) == len(RECIPES) + 1
    assert costs_by_recipe(data, {"all": list(RECIPES)}, title="").axes
    assert len(loss_curves(data, {0.001: ("bf16",), HIGH_PEAK: ("bf16",)}, title="").axes) == 2
    with pytest.raises(BadArgument, match="half"):
        data.row("half")


def test_a_short_measurement_has_the_rows_that_were_asked_for() -> None:
    data = measure(2, (0,), ("fp16",), (), points=1)
    assert [row.recipe for row in data.rows] == ["fp16"]
    assert data.at == [2]


def test_what_is_recorded_says_what_the_lesson_says() -> None:
    data = which_bits.recorded().data
    exact = data.row("fp32")
    for harmless in ("fp16", "fp16, no loss scale", "bf16", "bf16, stochastic", "bf16, moments in bf16", "fp8"):
        assert abs(data.row(harmless).mean - exact.mean) < 0.02
    for harmful in ("bf16, no master copy", "fp16, shrunk, no loss scale", "fp8, shrunk, no scales"):
        assert min(loss or 0 for loss in data.row(harmful).losses) > max(loss or 0 for loss in exact.losses)
    assert min(data.row("fp16, moments in fp16").skipped) > data.steps / 2
