"""Bits of their own for each matrix of the small GPT: what is handed out, what plans cost, what they leave."""

from __future__ import annotations

import pytest
import torch

from course.lessons.experiments import bits_by_matrix
from course.lessons.experiments.assembled_quantization import weights
from course.lessons.experiments.small_gpt import loss_on, small_gpt
from course.reference.quantization.choose_bits import choose_bits

TEXT = 11


@pytest.fixture(scope="module")
def layers():
    return bits_by_matrix.calibration(10, 256)


def test_a_layer_has_its_weight_and_of_each_token_an_input_and_a_gradient_of_an_output(layers):
    shapes = [(w.shape, x.shape, g.shape) for w, x, g in layers]
    assert shapes == [(w.shape, (256, w.shape[1]), (256, w.shape[0])) for w in weights().values()]
    assert {each.dtype for layer in layers for each in layer} == {torch.float32}


def test_a_small_change_of_a_weight_changes_losses_as_inputs_and_gradients_say():
    tokens = 32 * 64
    text = bits_by_matrix.hidden(10)  # the calibration's own
    _, x, g = bits_by_matrix.calibration(10, tokens)[8]
    change = torch.zeros(64, 64).index_put_((torch.tensor(3), torch.tensor(5)), torch.tensor(1e-3))
    model, name = small_gpt(), list(weights())[8]
    before = loss_on(model.double(), text)
    with torch.no_grad():
        model.blocks.get_submodule(name).weight += change
    expected = float(((x @ change.T) * g).sum()) / tokens
    assert loss_on(model, text) - before == pytest.approx(expected, rel=0.02)


def test_eight_bits_for_all_cost_nothing_and_two_bits_more_than_a_nat():
    text = bits_by_matrix.hidden(TEXT)
    float32 = loss_on(small_gpt(), text)
    losses = [bits_by_matrix.loss_with([plan] * len(weights()), text) - float32 for plan in ((8, 8), (2, 0))]
    assert abs(losses[0]) < 1e-3
    assert losses[1] > 1


@pytest.mark.parametrize(("plan", "bits"), [((3, 0), 4 * (20 * 3 + 16)), ((3, 8), 4 * (20 * 3 + 3 * 16))])
def test_each_run_of_weights_has_a_step_in_sixteen_bits(plan, bits):
    assert bits_by_matrix.price(torch.zeros(4, 20), plan) == bits


def test_with_gradients_a_plan_is_better_than_one_for_all_and_without_them_worse_than_with():
    rows = [line.split() for line in bits_by_matrix.compared(choose_bits, (3.5,))]
    same, without, ours = (float(each) for each in rows[-1][1:])
    assert ours < same
    assert ours < without
