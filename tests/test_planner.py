"""The planner gives published figures within stated errors, grows as its formulas say, and explains our own block."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course.errors import BadArgument
from course.lessons.models import Block, GPTConfig
from course.lessons.widgets.budget import BARS, Settings, budget_board
from course.meter import metered
from course.planner.memory import (
    FORMULAS,
    GPT2,
    KORTHIKANTI,
    RECIPES,
    ZERO,
    Batch,
    Checkpointing,
    Transformer,
    activation_bytes,
    budget,
    state_bytes,
)
from course.planner.published import FINE_TUNING, SETTING, batches_by_room, figures, planned
from course.planner.sharding import STAGES, sharded_state_bytes, training_days, training_hours

ERRORS = {"states": 0.0, "activations": 0.01, "checkpointed": 0.09, "recomputation": 0.011, "buffer": 0.0}
ERRORS |= {
    "stage 0": 0.0,
    "stage 1": 0.0003,
    "stage 2": 0.003,
    "stage 3": 0.014,
}  # of a figure with two or three digits
ERRORS |= {"days of 175B": 0.006, "throughput of 175B": 0.001, "throughput of 1T": 0.003}
ERRORS |= {"adapter, r = 1": 0.004, "adapter, r = 8": 0.002, "checkpoint, full": 0.0, "checkpoint, r = 4": 0.08}
ERRORS |= {"few bits, scales of NF4": 0.0, "few bits, scales in 8 bits": 0.001}
ERRORS |= {"few bits, saved at 65B": 0.011, "few bits, OPT-175B at 3": 0.017}
SMALL = Transformer(layers=6, width=64, heads=4, parameters=1000)
sizes = st.integers(1, 50)


@pytest.mark.parametrize("name", ERRORS)
def test_published_figures_come_out_within_the_stated_error(name: str) -> None:
    assert planned()[name] == pytest.approx(figures()[name].value, rel=ERRORS[name], abs=1e-12)


def test_every_figure_has_a_source() -> None:
    assert set(figures()) == set(planned()) == set(ERRORS)
    assert all("section" in each.source for each in figures().values())
    assert all("arXiv" in each.source or "et al." in each.source for each in figures().values())


def test_the_room_that_states_leave_explains_the_batches_of_the_fine_tuning_table() -> None:
    found = batches_by_room()
    assert [*found] == [name for name in FINE_TUNING if name not in ("DDP", "fp16")]
    errors = {name: batch / FINE_TUNING[name][0] - 1 for name, batch in found.items()}
    assert errors.pop("gradients") == pytest.approx(0.21, abs=0.01)  # what is full for a moment is not counted
    assert all(abs(each) < 0.11 for each in errors.values())
    assert [*found.values()] == sorted(found.values())


def test_hours_are_shared_by_the_gpus_of_a_run() -> None:
    hours = training_hours(10**12, 300e9, share=0.27)
    assert 24 * 128 * training_days(10**12, 300e9, gpus=128, share=0.27) == pytest.approx(hours)


def test_states_are_sixteen_bytes_with_a_master_copy_and_without_half_precision() -> None:
    totals = {name: sum(state_bytes(10, recipe).values()) for name, recipe in RECIPES.items()}
    assert totals == {"fp32": 160, "fp16": 160, "bf16, fp32 moments, no master copy": 120}


@given(s=sizes, b=sizes, times=sizes)
def test_activations_are_linear_in_the_batch(s: int, b: int, times: int) -> None:
    for formula in FORMULAS.values():
        for each in Checkpointing:
            once, often = (activation_bytes(SMALL, Batch(sequence=s, size=n), formula, each) for n in (b, b * times))
            assert (often.kept, often.recomputed) == (times * once.kept, times * once.recomputed)


@given(s=sizes, times=sizes)
def test_only_korthikanti_is_quadratic_in_the_sequence(s: int, times: int) -> None:
    short, long = Batch(sequence=s, size=1), Batch(sequence=times * s, size=1)
    assert ZERO.layer(SMALL, long) == times * ZERO.layer(SMALL, short)
    assert KORTHIKANTI.pairs(SMALL, long) == times**2 * KORTHIKANTI.pairs(SMALL, short)
    assert KORTHIKANTI.tokens(SMALL, long) == times * KORTHIKANTI.tokens(SMALL, short)


def test_korthikanti_is_the_formula_as_printed() -> None:
    s, b, h, a = 1024, 32, GPT2.width, GPT2.heads
    assert KORTHIKANTI.layer(GPT2, SETTING) == s * b * h * (34 + 5 * a * s / h)
    assert activation_bytes(GPT2, SETTING, KORTHIKANTI, Checkpointing.SELECTIVE).kept == 34 * s * b * h * 48
    assert activation_bytes(GPT2, SETTING, KORTHIKANTI, Checkpointing.FULL).kept == 2 * s * b * h * 48


def test_a_checkpoint_for_every_kth_layer_keeps_fewer_and_recomputes_more() -> None:
    batch = Batch(sequence=8, size=2)
    value = 8 * 2 * SMALL.width
    for every, checkpoints in ((1, 6), (2, 3), (4, 2), (6, 1)):  # 4 leaves a short segment
        found = activation_bytes(SMALL, batch, ZERO, Checkpointing.FULL, every=every)
        assert (found.kept, found.recomputed) == (checkpoints * 2 * value, every * 24 * value)


def test_a_budget_is_the_sum_of_its_parts() -> None:
    whole = budget(GPT2, SETTING, ZERO)
    assert whole.total == 24 * 10**9 + 12 * 1600 * 32 * 1024 * 48 * 2 + 6 * 10**9
    assert list(whole.parts)[:4] == ["parameters", "gradients", "moments", "master"]


def test_shapes_and_segments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadArgument, match="size must be at least 1"):
        Batch(sequence=8, size=0)
    with pytest.raises(BadArgument, match="heads must be at least 1"):
        Transformer(layers=1, width=1, heads=0, parameters=1)
    with pytest.raises(BadArgument, match="between 1 and the 48 layers"):
        activation_bytes(GPT2, SETTING, ZERO, Checkpointing.FULL, every=49)


@pytest.mark.parametrize("s", [16, 48])
def test_our_block_keeps_the_tensors_of_korthikanti_without_masks_and_scores(s: int) -> None:
    """34 s b h bytes are 16 tensors of width h in 2 bytes and two masks. We have the 16 in 4 bytes, and no dropout.

    For each pair of tokens nothing is kept: scaled_dot_product_attention keeps a number for each token and head. What
    the formula leaves out are 4 numbers for each token, the means and deviations of two norms.
    """
    b, h, a = 3, 32, 4
    block = Block(GPTConfig(vocabulary=2, context=s, width=h, heads=a, layers=1))
    x = torch.zeros(b, s, h, requires_grad=True)
    with metered() as run:
        y = block(x)  # made here, the next block's input takes the place of x
    tensors = (KORTHIKANTI.linear - 2) // 2
    assert tensors == 16
    assert run.kept() == 4 * b * s * (tensors * h + a + 4)
    assert y.shape == (b, s, h)


def test_the_first_frame_is_zeros_setting() -> None:
    first = Settings()
    assert (first.sequence, first.size, first.formula) == (SETTING.sequence, SETTING.size, "ZeRO")
    assert "24.0 GB of states, 60.4 GB of activations and 6.0 GB of buffers, 90.4 GB in all" in first.sentence()
    assert "none of the three" in first.sentence()
    assert "fits into 40 GB" in Settings(checkpointing=Checkpointing.FULL).sentence()


def test_the_picture_has_a_bar_for_each_way_and_the_chosen_one_is_bold() -> None:
    (axes,) = Settings(checkpointing=Checkpointing.SELECTIVE).picture().axes
    weights = {label.get_text(): label.get_fontweight() for label in axes.get_yticklabels()}
    assert weights == {words: "bold" if words == "selective" else "normal" for words in BARS.values()}
    assert "GB" in axes.get_xlabel()


def test_another_choice_redraws() -> None:
    formula, recompute = budget_board().children[0].children
    *_, image, words = budget_board().children
    assert image.value[:4] == b"\x89PNG"
    assert "90.4 GB in all" in words.value
    assert (formula.value, recompute.value) == ("ZeRO", Checkpointing.NONE)


@given(parameters=st.integers(1, 1000), ranks=st.integers(1, 70))
def test_each_stage_holds_less_and_all_ranks_together_hold_everything(parameters: int, ranks: int) -> None:
    recipe = RECIPES["fp16"]
    held = [sum(sharded_state_bytes(parameters, recipe, ranks=ranks, stage=stage).values()) for stage in STAGES]
    assert held == sorted(held, reverse=True)
    assert held[0] == 16 * parameters <= ranks * held[3] < 16 * (parameters + ranks)


@pytest.mark.parametrize("wrong", [{"ranks": 0, "stage": 1}, {"ranks": 2, "stage": 4}])
def test_a_stage_or_a_number_of_ranks_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadArgument, match="must be"):
        sharded_state_bytes(10, RECIPES["fp16"], **wrong)
