"""The small GPT by recipes with one thing taken away: what a file holds, and what comes back."""

from __future__ import annotations

import pytest
import torch
from conftest import soak
from quantizers import references

from course.lessons.experiments import assembled_quantization as assembled
from course.lessons.experiments import one_taken_away as recipes

MATRIX = "0.attention.q_proj"


@pytest.fixture(params=[soak("stand-ins"), "ours"], scope="module")
def parts(request):
    return assembled.PARTS.with_yours(references() if request.param == "ours" else {})


def _error(layer, near):
    return float(torch.sum((near - layer.w) @ layer.hessian * (near - layer.w)))


def test_nothing_is_one_step_for_the_matrix_in_its_own_basis(parts):
    layer = recipes.layers(1)[MATRIX]
    step = (layer.w.abs().max() / 3).half().float()
    torch.testing.assert_close(recipes.made(parts, recipes.NOTHING, 3, layer), (layer.w / step).round() * step)


def test_hessian_and_all_together_lower_the_error_of_the_outputs(parts):
    layer = recipes.layers()[MATRIX]
    every = (recipes.made(parts, recipes.RECIPES[name], 3, layer) for name in ("all", "no Hessian", "nothing"))
    errors = [_error(layer, near) for near in every]
    assert errors == sorted(errors)


@pytest.mark.parametrize("title", recipes.RECIPES)
def test_columns_of_outliers_come_back_as_they_were_where_they_are_apart(parts, title):
    layer, recipe = recipes.layers()[MATRIX], recipes.RECIPES[title]
    assert layer.loud.nonzero().flatten().tolist() == [assembled.LOUD]
    column = recipes.made(parts, recipe, 4, layer)[:, assembled.LOUD]
    assert torch.equal(column, layer.w[:, assembled.LOUD].half().float()) == recipe.outliers


def test_columns_after_a_group_move_to_where_they_make_good_for_it():
    """Where the first group becomes 0, the damped error has no slope by what the second one has become."""
    seen = []

    def nothing(w, hessian, step, bits, damp):
        seen.append(w.double())
        return torch.zeros(w.shape, dtype=torch.int8)

    parts = {**assembled.PARTS.torchs, "gptq_quantize": nothing}
    rng = torch.Generator().manual_seed(0)
    w, x = torch.randn(5, 2 * recipes.GROUP, generator=rng), torch.randn(200, 2 * recipes.GROUP, generator=rng)
    x[:, 40:] += x[:, :24]
    h = x.T @ x
    recipes.fed_forward(parts, recipes.ALL, 4, w, h)
    damped = (h + recipes.DAMP * h.diagonal().mean() * torch.eye(len(h))).double()
    slope = (w.double() - torch.cat([torch.zeros_like(seen[0]), seen[1]], dim=1)) @ damped
    assert slope[:, : recipes.GROUP].abs().max() > 10
    assert slope[:, recipes.GROUP :].abs().max() < 1e-2


@pytest.mark.parametrize("title", ["all, and a second factor", "no groups, a step for each row", "nothing"])
def test_a_file_holds_the_model(parts, title, tmp_path):
    recipe = recipes.RECIPES[title]
    size = recipes.written(parts, recipe, 4, tmp_path / "file")
    assert size == (tmp_path / "file").stat().st_size
    changed = {name: recipes.made(parts, recipe, 4, each) for name, each in recipes.layers().items()}
    expected = recipes.above(recipes.with_layers(changed))
    assert recipes.above(recipes.read(recipe, 4, tmp_path / "file")) == pytest.approx(expected, abs=1e-6)


def test_the_table_has_a_line_for_each_recipe_and_blanks_where_bits_are_too_few(monkeypatch, tmp_path):
    some = {name: recipes.RECIPES[name] for name in ("all, and a second factor", "nothing")}
    monkeypatch.setattr(recipes, "RECIPES", some)
    _, second, nothing, books = recipes.lines(assembled.PARTS.torchs, tmp_path, bits=(4, 3))
    kilobytes, loss, *more = (float(each) for each in second[31:].split())
    assert not more
    assert [len(each[31:].split()) for each in (nothing, books)] == [4, 2]
    assert kilobytes > float(nothing[31:].split()[0])
    assert loss < float(nothing[31:].split()[1])
