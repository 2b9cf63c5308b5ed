"""What 8 bits keep: an outlier costs integers their bits at once, e4m3 only where its exponents end, blocks hardly."""

from __future__ import annotations

import torch

from course.lessons.experiments import eight_bits
from course.lessons.figures.eight_bits import below_the_largest, error_over_outlier


def test_an_outlier_of_1000_costs_integers_their_bits_and_e4m3_nothing() -> None:
    none, some = eight_bits.error_at(4.0), eight_bits.error_at(1000.0)
    assert some["8-bit integers, one scale"] > 10 * none["8-bit integers, one scale"]
    assert some["e4m3, one scale"] < 1.2 * none["e4m3, one scale"]


def test_beyond_the_exponents_of_e4m3_only_blocks_help() -> None:
    none, some = eight_bits.error_at(4.0), eight_bits.error_at(1e7)
    assert some["e4m3, one scale"] > 0.9
    assert some["e4m3, blocks of 128"] < 1.1 * none["e4m3, blocks of 128"]


def test_e4m3_has_more_mantissa_and_e5m2_more_exponents() -> None:
    x = torch.randn(50, 50, generator=torch.Generator().manual_seed(0))
    assert eight_bits.kept(x, "e4m3")[1] < 0.6 * eight_bits.kept(x, "e5m2")[1]
    tiny = torch.cat([torch.ones(1, 50), x * 1e-7])
    assert [eight_bits.kept(tiny, form)[0] > 0.5 for form in ("e4m3", "e5m2")] == [True, False]


def test_the_figures_have_a_curve_for_each_way_and_a_panel_for_each_tensor() -> None:
    curves = error_over_outlier([1.0, 10.0], {way: [0.1, 0.2] for way in eight_bits.WAYS})
    assert len(curves.axes[0].lines) == len(eight_bits.WAYS)
    assert len(below_the_largest({"a": torch.ones(3), "b": torch.ones(2)}).axes) == 2
