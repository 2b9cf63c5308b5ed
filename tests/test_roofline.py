"""The roof lies where peak and bandwidth say, operators under it, and fusing changes no number."""

from __future__ import annotations

import pytest
import torch

from course.lessons.experiments.roofline import A100, Machine, chain, elementwise, measure, multiply, planned, product
from course.lessons.figures.roofline import roofs
from course.lessons.widgets.roofline import Board, Settings, sentence

SMALL = Machine(name="a small machine", peaks={"fp32": 1e9, "bf16": 4e9}, bandwidth=1e8)


def test_the_roof_is_a_slope_up_to_the_ridge_and_flat_beyond() -> None:
    ridge = A100.ridge("bf16")
    assert ridge == pytest.approx(153, abs=0.1)
    assert A100.reachable(ridge / 3, "bf16") == pytest.approx(104e12)
    assert A100.reachable(ridge, "bf16") == A100.reachable(10 * ridge, "bf16") == 312e12


def test_half_the_bytes_are_twice_the_intensity() -> None:
    assert product(300).intensity("bf16") == pytest.approx(100)
    assert product(300).intensity("fp32") == pytest.approx(50)
    assert elementwise(2, 5)["add"].intensity("bf16") == pytest.approx(1 / 6)


def test_a_fused_chain_moves_a_kth_of_the_bytes() -> None:
    apart, fused = (chain(8, 1000, fused=each) for each in (False, True))
    assert apart.flops == fused.flops == 8000
    assert apart.moved == 8 * fused.moved == 16000


def test_pieces_change_no_bit() -> None:
    x = torch.linspace(-3, 3, 1000)
    assert torch.equal(multiply(x.clone(), 5, piece=64), multiply(x.clone(), 5))


def test_every_operator_is_measured_in_both_formats() -> None:
    machine, points = measure(rows=4, sides=(8, 16), k=2)
    assert len(points) == 2 * (2 + 4 + 2)
    assert machine.peaks["fp32"] >= max(
        each.rate for each in points if "matmul" in each.work.name and each.form == "fp32"
    )
    assert all(each.moved <= machine.bandwidth for each in points if "matmul" not in each.work.name)


def test_planned_operators_stand_on_the_roof() -> None:
    for point in planned(A100, "tf32", n=512, k=4):
        assert point.rate == pytest.approx(A100.reachable(point.intensity, "tf32"))


def test_the_figure_has_a_roof_for_each_format_and_a_marker_for_each_operator() -> None:
    points = planned(SMALL, "fp32", n=64, k=4)
    figure = roofs(SMALL, points, title="A roof")
    (axes,) = figure.axes
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [label.split(":")[0] for label in labels[:2]] == ["fp32", "bf16"]
    assert labels[2:] == [point.work.name for point in points]
    assert "FLOP/byte" in axes.get_xlabel()


def test_the_sentence_says_what_limits_the_product() -> None:
    words = [sentence(Settings(machine=A100, form="bf16", n=n, k=8)) for n in (256, 512)]
    assert "left of the ridge at 153: memory limits it" in words[0]
    assert "right of the ridge at 153: arithmetic limits it" in words[1]
    assert "8 multiplications take 4.11 µs one by one and 514 ns fused." in words[1]


def test_the_widget_keeps_the_format_where_the_machine_knows_it() -> None:
    board = Board((A100, SMALL))
    first = board.words.value
    board.machine.value = SMALL.name
    assert board.form.value == "bf16"
    assert list(board.form.options) == ["fp32", "bf16"]
    assert board.words.value != first
