"""The small GPT at few bits: in files, on grids, with outliers, above a base of four bits; and what shows it."""

from __future__ import annotations

import re

import pytest
import torch
from conftest import soak
from quantizers import references

from course.lessons.experiments import assembled_quantization as assembled
from course.lessons.experiments import eight_bit_states, four_bit_base, four_bits, torchs_few_bits, two_factors
from course.lessons.experiments.bit_packing import packed_bits, unpacked_bits
from course.lessons.experiments.small_gpt import loss_on, small_gpt
from course.lessons.figures import quantization as figures
from course.lessons.widgets import few_bits, grid


@pytest.fixture(params=[soak("stand-ins"), "ours"], scope="module")
def parts(request):
    return assembled.PARTS.with_yours(references() if request.param == "ours" else {})


def _numbers(line):
    return [float(each.replace(",", "")) for each in re.findall(r"-?\d[\d,]*\.?\d*", line)]


def test_stand_ins_compute_what_the_references_do():
    """Codes may differ by one where a number lies between two; values then lie a rounding apart."""
    ours, theirs = references(), assembled.PARTS.torchs
    rng = torch.Generator().manual_seed(0)
    x, w = torch.randn(12, 64, generator=rng), torch.randn(32, 64, generator=rng)
    for bits in (2, 4, 8):
        assert ours["best_step"](bits) == pytest.approx(theirs["best_step"](bits), abs=4e-4)  # of its trial's distance
        for found, expected in zip(theirs["qparams"](w, bits, 0), ours["qparams"](w, bits, 0), strict=True):
            torch.testing.assert_close(found, expected)
        step, zero = ours["qparams"](w, bits, 0)
        codes = ours["quantize"](w, step, zero, bits)
        assert (codes - theirs["quantize"](w, step, zero, bits)).abs().max() <= 1
        torch.testing.assert_close(theirs["dequantize"](codes, step, zero), ours["dequantize"](codes, step, zero))
        torch.testing.assert_close(theirs["fake_quant"](w, step, zero, bits), ours["fake_quant"](w, step, zero, bits))
    codes = torch.randint(-8, 8, (33,), generator=rng, dtype=torch.int8)
    assert torch.equal(theirs["pack_int4"](codes), ours["pack_int4"](codes))
    assert torch.equal(theirs["unpack_int4"](ours["pack_int4"](codes), 33), codes)
    q = torch.linalg.qr(torch.randn(64, 64, generator=rng))[0]
    for found, expected in zip(theirs["kashin_split"](w, q, 30), ours["kashin_split"](w, q, 30), strict=True):
        torch.testing.assert_close(found, expected)
    for found, expected in zip(theirs["nf4_quantize"](w, 64), ours["nf4_quantize"](w, 64), strict=True):
        assert torch.equal(found, expected)
    torch.testing.assert_close(theirs["Int8Linear"](w, None)(x), ours["Int8Linear"](w, None)(x))
    x[:, 3] *= 50
    torch.testing.assert_close(theirs["split_outliers"](x, w, 6.0), ours["split_outliers"](x, w, 6.0))


def test_bits_are_packed_and_come_back():
    codes = torch.randint(-4, 4, (37,), generator=torch.Generator().manual_seed(0), dtype=torch.int8)
    packed = packed_bits(codes, 3)
    assert packed.dtype == torch.uint8
    assert len(packed) == 14  # 111 bits
    assert torch.equal(unpacked_bits(packed, 3, 37), codes)


def test_files_have_the_bits_that_they_say_and_the_model_survives(parts, tmp_path):
    _, whole, *rows = assembled.make_files(parts, tmp_path)
    bits = [8 + 24 * sum(each[0] for each in _shapes()) / 196_608, 0, 4.75, 4.25, 3.75]
    bits[1] = bits[0] - 4
    for row, expected in zip(rows, bits, strict=True):
        kilobytes, found, loss, _ = _numbers(row[28:])
        assert found == pytest.approx(expected, abs=0.005)
        assert loss == pytest.approx(_numbers(whole[28:])[2], abs=0.005)
        assert kilobytes * 1e3 == pytest.approx(
            196_608 * found / 8 + 2 * 9_344, rel=0.1
        )  # and the names of what is in it
    assert len([*tmp_path.iterdir()]) == 1 + len(rows)


def _shapes():
    return [each.shape for each in assembled.weights().values()]


def test_louder_channels_change_nothing_but_what_integers_make_of_it():
    x = assembled.windows()
    assert loss_on(assembled.louder(500.0), x) == pytest.approx(loss_on(small_gpt(), x), abs=1e-4)


def test_integers_are_ruined_by_an_outlier_and_saved_by_the_split(parts, monkeypatch):
    monkeypatch.setattr(assembled, "GAINS", (1, 500))
    _, exact, integers, split = (_numbers(line[23:]) for line in assembled.outliers(parts))
    assert exact[0] == pytest.approx(exact[1], abs=2e-4)
    assert integers[0] < 0.01 < 1 < integers[1]
    assert max(split) < 0.01


def test_training_through_the_rounding_brings_the_loss_back(parts):
    before, after = (float(re.findall(r": (\S+)", line)[0]) for line in assembled.through(parts, steps=12))
    assert after < 0.8 * before


def test_a_base_of_four_bits_keeps_bytes_and_learns(parts):
    model = four_bit_base.adapted(parts, "NF4")
    held = [each for each in model.modules() if isinstance(each, four_bit_base.Held)]
    kept = sum(buffer.nbytes for each in held for name, buffer in each.named_buffers() if name != "bias")
    assert kept == four_bit_base.base_bytes("NF4") == 196_608 * 4.25 / 8
    assert not [each for layer in held for each in layer.parameters()]
    x = torch.randn(3, 64, requires_grad=True)
    held[0](x).sum().backward()
    torch.testing.assert_close(x.grad, held[0].weight().sum(0).expand(3, 64))


def test_states_in_eight_bits_step_as_adamw_does_and_take_a_quarter():
    rng = torch.Generator().manual_seed(0)
    start, grads = torch.randn(600, generator=rng), torch.randn(5, 600, generator=rng)
    moved = {}
    for name, step in eight_bit_states.WAYS.items():
        param, state = start.clone(), {}
        for grad in grads:
            step(param, grad, state, lr=1e-2)
        moved[name] = param
    oracle = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([oracle], lr=1e-2, weight_decay=0.0)
    for grad in grads:
        oracle.grad = grad
        optimizer.step()
    torch.testing.assert_close(moved["float32"], oracle.detach())
    off = (moved["dynamic code, blocks of 256"] - moved["float32"]).abs().max()
    assert off < 5 * 1e-2 * 0.1  # a tenth of a step, each time
    found = {each.name: each for each in eight_bit_states.loaded().data.runs}
    assert found["dynamic code, blocks of 256"].bytes < 0.3 * found["float32"].bytes
    assert found["dynamic code, blocks of 256"].losses[-1] == pytest.approx(found["float32"].losses[-1], abs=0.02)
    assert found["linear code, blocks of 256"].losses[-1] > 1


def test_torchs_own_paths_tell_their_bytes_or_that_they_are_missing():
    _, first, *lines = torchs_few_bits.lines(repeat=1)
    assert _numbers(first[32:])[0] == 4 * 512 * 512
    for line in lines:
        assert "not in this build" in line or _numbers(line[32:])[1] < 10  # percent


@pytest.mark.parametrize("kind", ["Gaussian", "heavy tails", "trained"])
def test_a_codebook_for_eight_bits_beats_an_even_grid(kind):
    w = four_bits.weights()[kind]
    book, grid = (float((near - w).norm()) for _, near, _ in (four_bits.clustered(w, 8), four_bits.rounded(w, 8, None)))
    assert book < 0.97 * grid


def test_files_of_every_scheme_hold_the_bits_that_are_counted():
    w = four_bits.weights()["trained"]
    for ways in four_bits.schemes({"two_factor_quantize": assembled.PARTS.torchs["two_factor_quantize"]}).values():
        for way in ways:
            kept = way(w)
            assert 8 * sum(each.nbytes for each in kept.held.values()) == pytest.approx(kept.bits * w.numel())
    for each in four_bits.loaded().data.schemes:
        for bits, size in zip(each.gpt_bits, each.gpt_bytes, strict=True):
            assert 0 < size - (196_608 * bits / 8 + 2 * 9_344) < 13_000  # the names of what is in it


def test_figures_draw_every_scheme():
    measured = four_bits.loaded().data
    for figure in (
        figures.perplexity_over_bits(measured, title="t"),
        figures.error_over_bits(measured, title="t"),
        figures.states(eight_bit_states.loaded().data, title="t"),
        figures.two_grids(title="t"),
        figures.factors(two_factors.loaded().data, "random", title="t"),
    ):
        assert figure._repr_png_()[0].startswith(b"\x89PNG")
    (axes,) = figures.perplexity_over_bits(measured, title="t").axes
    assert len(axes.lines) == len(measured.schemes) + 1


def test_the_grid_widget_tells_where_the_error_comes_from():
    whole, cut = grid.Settings(), grid.Settings(end=20)
    assert whole.errors()[1:] == pytest.approx((1, 0))
    assert cut.errors()[2] > 0.5
    rounding, rim = grid.Settings(end=55).errors()[1:]
    assert rounding + rim == pytest.approx(1)
    box = grid.grid()
    assert bytes(box.children[3].value).startswith(b"\x89PNG")
    before = box.children[4].value
    box.children[1].value = 2
    assert box.children[4].value != before


def test_the_writing_widget_follows_its_controls():
    board = few_bits.Board(assembled.PARTS.torchs)
    first = _numbers(board.line.value)[0]
    board.bits.value = 2
    assert _numbers(board.line.value)[0] > 20 > 2 > first
    board.way.value = "rotated, errors made good"
    assert _numbers(board.line.value)[0] < 2
