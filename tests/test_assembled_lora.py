"""Adapters of the small GPT: trained, saved, loaded, merged and served, with our answers and with what stands in."""

from __future__ import annotations

import re

import pytest
import torch
from conftest import soak
from safetensors.torch import load_file

from course.lessons import floor, grammar
from course.lessons.experiments import assembled_lora as assembled
from course.lessons.experiments import fine_tuning
from course.lessons.experiments.adapters import MIRROR, SHIFTED, batches, trainable
from course.lessons.experiments.small_gpt import judged, loss_on, small_gpt
from course.lessons.widgets.swap import Board
from course.reference.lora.adapter_state import adapter_state
from course.reference.lora.inject import inject
from course.reference.lora.load_adapter import load_adapter
from course.reference.lora.lora_linear import LoRALinear
from course.reference.lora.merge_ import merge_
from course.reference.lora.mixed_adapter_forward import mixed_adapter_forward

OURS = {
    each.__name__: each for each in (LoRALinear, inject, merge_, adapter_state, load_adapter, mixed_adapter_forward)
}
FEW = 12  # steps


@pytest.fixture(params=[soak({}), OURS], ids=["stand-ins", "ours"], scope="module")
def parts(request):
    return assembled.PARTS.with_yours(request.param)


@pytest.fixture(scope="module")
def folder(parts, tmp_path_factory):
    path = tmp_path_factory.mktemp("adapters")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembled, "STEPS", FEW)
        lines = [*assembled.make_files(parts, path)]
    assert len(lines) == 1 + len(assembled.DIALECTS)
    return path


def test_the_small_gpt_is_nearly_perfect_in_the_north_and_lost_elsewhere():
    model, windows = small_gpt(), judged(grammar.NORTH, 64)
    assert loss_on(model, windows) == pytest.approx(floor.perfect_loss(grammar.NORTH, windows[1]), abs=0.01)
    assert all(loss_on(model, judged(each, 16)) > 3 for each in (grammar.SOUTH, MIRROR, SHIFTED))


def test_training_moves_the_factors_and_nothing_else(parts):
    windows = list(batches(grammar.SOUTH, FEW))
    model, before = assembled.trained(parts, windows), small_gpt().state_dict()
    after = {name.replace(".base.", "."): each for name, each in model.state_dict().items()}
    assert all(torch.equal(each, after[name]) for name, each in before.items())
    assert sum(each.numel() for each in trainable(model)) == 4_608
    windows = judged(grammar.SOUTH, 16)
    assert loss_on(model, windows) < loss_on(small_gpt(), windows) - 1


def test_a_file_has_the_factors_alone(folder):
    found = load_file(folder / "south.safetensors")
    assert sum(each.numel() for each in found.values()) == 4_608
    assert (folder / "south.safetensors").stat().st_size < 14_000


def test_a_mixed_batch_has_the_losses_of_each_adapter_alone(parts, folder):
    _, *rows, _ = assembled.served(parts, folder)
    assert len(rows) == 4
    for row in rows:
        alone, mixed = map(float, re.findall(r"\d+\.\d+", row))
        assert mixed == pytest.approx(alone, abs=2e-5)


def test_a_merged_model_has_the_loss_of_the_adapter_beside_it(parts, folder):
    beside, merged = map(float, re.findall(r"\d+\.\d+", assembled.merged(parts, folder)))
    assert merged == pytest.approx(beside, abs=2e-5)


def test_the_widget_swaps_factors_and_scales_them(folder):
    adapters = assembled.adapters_in(folder)
    board = Board(assembled.adapted(assembled.PARTS.torchs), adapters, {"south": grammar.SOUTH})
    losses = {}
    for name, strength in (("none", 1.0), ("south", 1.0), ("south", 0.0), ("mirror", 1.0)):
        board.choice.value, board.strength.value = name, strength
        losses[name, strength] = float(re.findall(r"south (\d+\.\d+)", board.losses.value)[0])
    assert losses["south", 0.0] == losses["none", 1.0]
    assert losses["south", 1.0] < losses["none", 1.0] - 1 < losses["mirror", 1.0]


def test_what_was_recorded_is_what_the_methods_train():
    measured = fine_tuning.loaded().data
    for each in measured.methods:
        assert each.numbers == sum(p.numel() for p in trainable(fine_tuning.prepared(each.name)))
        assert each.losses[-1] > measured.least
