"""Adam's terms can be taken away one at a time; the recorded ablation holds what the lesson says of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from course.lessons.experiments import ablation, stand_ins
from course.lessons.experiments.ablation import TUNED, Measured, search
from course.lessons.experiments.problems import digits_problem
from course.lessons.experiments.terms import DECAYS, FORMS, Form, loss_on, step, train
from course.lessons.figures.ablation import forms_by_rate


@pytest.fixture(scope="module")
def short() -> Measured:
    """Both tasks, all forms, few steps and rates."""
    return ablation.measure(steps=8, epochs=1, reach=1)


def drawn() -> tuple[Tensor, list[Tensor]]:
    rng = torch.Generator().manual_seed(0)
    return torch.randn(5, generator=rng), [torch.randn(5, generator=rng) for _ in range(20)]


def after(gradients: list[Tensor], begin: Tensor, one: Callable[[Tensor, Tensor, int], None]) -> Tensor:
    p = begin.clone()
    for t, g in enumerate(gradients, 1):
        one(p, g, t)
    return p


def of_torch(make: Callable[[list[Tensor]], Optimizer]) -> Tensor:
    """Where an optimizer of torch comes to with the drawn gradients."""
    begin, gradients = drawn()
    p = nn.Parameter(begin.clone())
    optimizer = make([p])
    for g in gradients:
        p.grad = g.clone()
        optimizer.step()
    return p.detach()


@pytest.mark.parametrize(
    ("form", "make"),
    [
        (Form(), lambda p: AdamW(p, 0.1, weight_decay=0.2)),
        (Form(through=True), lambda p: Adam(p, 0.1, weight_decay=0.2)),
        (Form(mean=False), lambda p: AdamW(p, 0.1, betas=(0.0, 0.999), weight_decay=0.2)),
    ],
    ids=["whole", "through", "no mean"],
)
def test_the_forms_that_torch_has_are_torchs(form: Form, make: Callable[[list[Tensor]], Optimizer]) -> None:
    begin, gradients = drawn()
    kept: dict[str, Tensor] = {}
    found = after(gradients, begin, lambda p, g, t: step(form, p, g, kept, t, 0.1, 0.2))
    assert torch.allclose(found, of_torch(make), atol=1e-6)


def test_without_division_and_correction_it_is_momentum_with_an_average() -> None:
    begin, gradients = drawn()
    kept: dict[str, Tensor] = {}
    form = Form(division=False, correction=False)
    found = after(gradients, begin, lambda p, g, t: step(form, p, g, kept, t, 0.1, 0.0))
    summed = of_torch(lambda p: SGD(p, 0.1 * (1 - 0.9), momentum=0.9))  # b_1 = g_1: not damped, as a sum is
    assert torch.allclose(found, summed, atol=1e-6)


def test_without_correction_it_is_the_whole_under_another_schedule() -> None:
    problem, pairs = digits_problem(steps=30), (("no correction", "constant"), ("whole", "as without correction"))
    models = [train(problem, replace(FORMS[name], eps=1e-12), schedule, 0.005, seed=0) for name, schedule in pairs]
    one, other = (loss_on(model, problem.judged) for model in models)
    assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("best", [1e-4, 1.0, 300.0])
def test_the_grid_is_extended_until_the_least_is_inside(best: float) -> None:
    tried = search(lambda rate: abs(math.log(rate / best)), 1.0, 2, 10**0.25)
    rate = min(tried, key=tried.__getitem__)
    assert min(tried) < rate < max(tried)
    assert list(tried) == sorted(tried)


def test_a_grid_of_runs_that_all_burst_ends() -> None:
    assert set(search(lambda rate: math.inf, 1.0, 1, 10.0).values()) == {math.inf}


def test_every_form_is_measured_under_both_schedules(short: Measured) -> None:
    assert [row.form for row in short.rows] == [*FORMS, *FORMS, *DECAYS, *DECAYS]
    assert all(row.decay > 0 for row in short.rows if row.form in ("around", "through"))
    assert ablation.table(short, "decay").count("no decay") == len(TUNED)


def test_the_recorded_ablation_says_what_the_lesson_says() -> None:
    data = ablation.recorded().data
    constant, scheduled = (data.of("terms", schedule) for schedule in TUNED)
    assert set(constant) == set(scheduled) == set(FORMS)
    for rows, winner in ((constant, "no correction"), (scheduled, "whole")):
        seeds = zip(*(row.losses for row in rows.values()), strict=True)
        assert {min(zip(losses, rows, strict=True))[1] for losses in seeds} == {winner}
    assert scheduled["whole"].spread() == "0.0015 to 0.0038"
    decayed = data.of("decay", "warm-up, descent")
    least, greatest = zip(*((min(row.losses), max(row.losses)) for row in decayed.values()), strict=True)
    assert max(least) < min(greatest)  # the ranges of all three overlap
    assert ablation.tenfold(decayed["no decay"]) > 1.5 * ablation.tenfold(decayed["through"])
    assert ablation.decay_ratio(decayed["around"], decayed["through"]) == 100
    for row in data.rows:
        rates = [float(rate) for rate in row.tried]
        assert min(rates) < row.rate < max(rates)


def test_the_picture_has_a_panel_for_each_schedule_and_a_line_for_each_form() -> None:
    data = ablation.recorded().data
    figure = forms_by_rate({name: data.of("terms", name) for name in TUNED}, quantity="loss (nats)", title="t")
    assert [axes.get_title() for axes in figure.axes] == list(TUNED)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(FORMS)
    assert {axes.get_xlabel() for axes in figure.axes} == {"learning rate"}


# The parts of torch that stand in for answers


def test_torchs_steps_change_the_callers_memory() -> None:
    for one in (stand_ins.adamw_step, stand_ins.muon_step):
        params, state = [torch.ones(3, 2)], [dict[str, Any]()]
        for _ in range(2):
            one(params, [torch.ones(3, 2)], state, lr=0.1)
        assert (params[0] < 0.99).all()


def test_torchs_clipping_is_in_place_and_returns_the_norm_before() -> None:
    grads = [torch.tensor([3.0]), torch.tensor([[4.0]])]
    assert float(stand_ins.clip_grad_norm_(grads, 1.0)) == pytest.approx(5.0)
    assert torch.cat([grad.flatten() for grad in grads]).tolist() == pytest.approx([0.6, 0.8])


def test_torchs_schedule_is_that_of_the_exercise() -> None:
    rates = [stand_ins.warmup_cosine(step, peak=1.0, warmup=4, total=12) for step in (0, 1, 4, 6, 8, 12, 100)]
    assert rates == pytest.approx([0.0, 0.25, 1.0, 0.8536, 0.5, 0.0, 0.0], abs=1e-4)


def test_whose_each_part_is_stands_in_one_line() -> None:
    assert stand_ins.PARTS.whose({}) == "PyTorch's: adamw_step, clip_grad_norm_, warmup_cosine, orthogonalize"
    yours = {"warmup_cosine": math.cos}
    assert stand_ins.PARTS.with_yours(yours)["warmup_cosine"] is math.cos
    assert stand_ins.PARTS.whose(yours).startswith("yours: warmup_cosine; PyTorch's: adamw_step, ")


def test_answers_that_a_notebook_has_not_or_that_do_not_pass_are_left_out() -> None:
    written = {"orthogonalize": math.sin, "adamw_step": math.cos, "clip_grad_norm_": None, "warmup_cosine": math.tan}
    found = stand_ins.PARTS.passed({**written, "exp": math.exp}, solved=lambda answer: answer is not math.tan)
    assert list(found.items()) == [("adamw_step", math.cos), ("orthogonalize", math.sin)]


def test_muon_takes_the_hidden_matrices_and_the_other_step_the_rest() -> None:
    problem = digits_problem(steps=1)
    params = [p.detach() for p in problem.model(torch.Generator()).parameters()]
    taken: dict[str, list[torch.Size]] = {}

    def noting(name: str) -> stand_ins.Step:
        return lambda params, grads, state, *, lr: taken.update({name: [p.shape for p in params]})

    stand_ins.shared(problem, noting("muon"), noting("adamw"))(params, params, [{} for _ in params], lr=0.1)
    assert taken["muon"] == [(64, 64), (64, 64)]
    assert taken["adamw"] == [(64,), (64,), (10, 64), (10,)]
