"""What a loss scale buys: the experiment, the histogram of gradients, and the widget over it."""

from __future__ import annotations

import pytest
import torch

from course.lessons.experiments import gradient_range, half_stand_ins, loss_scaling
from course.lessons.experiments.loss_scaling import Run, train
from course.lessons.figures.loss_scaling import loss_and_scale
from course.lessons.widgets.loss_scale import Settings, loss_scale, percent
from course.reference.mixed_precision.loss_scaler import LossScaler


def test_our_scaler_trains_bit_for_bit_as_torchs() -> None:
    ours, theirs = (
        train(torch.float16, scaler(init_scale=2.0**40, growth_interval=3), steps=20)
        for scaler in (LossScaler, half_stand_ins.LossScaler)
    )
    assert ours == theirs
    assert [*map(any, (ours.taken, [not each for each in ours.taken]))] == [True, True]


def test_fp16_needs_the_scale_where_the_loss_is_a_mean_over_many_and_only_there() -> None:
    fp32, fp16 = (train(dtype, steps=60).losses[-1] for dtype in (torch.float32, torch.float16))
    scaled = train(torch.float16, half_stand_ins.LossScaler(2.0**36, growth_interval=20), steps=60).losses[-1]
    alone = train(torch.float16, parts=1, steps=60).losses[-1]
    assert max(abs(scaled - fp32), abs(alone - fp32)) < 0.1 < 2 < fp16


def test_what_was_recorded_says_what_the_lesson_says() -> None:
    data = loss_scaling.recorded().data
    assert max(data.fp32 + data.scaled + data.alone) < 0.1 < 1 < min(data.fp16)


@pytest.mark.parametrize("name", gradient_range.FORMATS)
def test_limits_are_where_casts_begin_to_lose_bits(name: str) -> None:
    limits, dtype = gradient_range.limits(name), gradient_range.FORMATS[name]
    lost, overflow = torch.tensor([limits.lost, limits.overflow])
    assert (lost.to(dtype).item(), lost.nextafter(torch.tensor(1.0)).to(dtype).item() > 0) == (0.0, True)
    assert overflow.to(dtype).isinf()
    assert overflow.nextafter(torch.tensor(0.0)).to(dtype).float() == torch.finfo(dtype).max


def test_shares_are_those_of_a_cast() -> None:
    cast = (gradient_range.magnitudes("activations") * 2.0**8).half()
    found = gradient_range.shares("activations", 2.0**8)
    assert found.lost == pytest.approx((cast == 0).double().mean().item())
    assert found.lost + found.subnormal == pytest.approx((cast < 2.0**-14).double().mean().item(), abs=1e-4)


def test_the_widget_says_the_shares_and_draws_again() -> None:
    assert [percent(share) for share in (0.0, 0.0001, 0.034, 0.703)] == ["none", "less than 0.1%", "3.4%", "70%"]
    assert "none are rounded to 0" in Settings(format="bf16").sentence()
    box = loss_scale()
    (_, power, image, words) = box.children
    before = image.value, words.value
    power.value = 20
    assert image.value != before[0]
    assert words.value != before[1]


def test_each_skipped_step_is_marked() -> None:
    run = Run(losses=[1.0] * 12, scales=[4.0, 3.0] * 6, taken=[False, True] * 6)
    scale = loss_and_scale({"fp16": run}, title="t").axes[1]
    (marks,) = (line for line in scale.lines if line.get_label() == "skipped step")
    assert list(marks.get_xdata()) == [1, 3, 5, 7, 9, 11]
