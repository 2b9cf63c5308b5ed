"""The reference of `clip_grad_norm_`: what torch's own does to the same gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from autograder import bank as banks
from autograder import recording
from course.errors import BadArgument
from course.judging.judge import judge
from course.performing.exercise import PUBLIC_SEED
from course.performing.perform import perform_all
from course.reference.optimizers.clip_grad_norm_ import clip_grad_norm_

SHAPES = ((3, 4), (5,), (2, 3, 2), ())


def torchs(grads: list[Tensor], max_norm: float) -> Tensor:
    """torch.nn.utils.clip_grad_norm_ on parameters that hold the very tensors as their gradients."""
    parameters = [torch.nn.Parameter(torch.empty_like(g)) for g in grads]
    for parameter, g in zip(parameters, grads, strict=True):
        parameter.grad = g
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)


def drawn(*dtypes: torch.dtype) -> list[Tensor]:
    rng = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=rng).to(dtype) for shape in SHAPES for dtype in dtypes]


def same_as_torchs(grads: list[Tensor], max_norm: float) -> None:
    ours, theirs = ([g.clone() for g in grads] for _ in range(2))
    norm, expected = clip_grad_norm_(ours, max_norm), torchs(theirs, max_norm)
    torch.testing.assert_close([norm, *ours], [expected, *theirs], equal_nan=True)


@pytest.mark.parametrize("max_norm", [0.0, 1e-3, 1.0, 1e3, math.inf])
@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float32,),
        (torch.float64,),
        (torch.bfloat16,),
        (torch.float16,),
        (torch.float32, torch.float64),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.bfloat16),
    ],
)
def test_it_does_what_torch_does(dtypes, max_norm):
    same_as_torchs(drawn(*dtypes), max_norm)


@pytest.mark.parametrize("values", [(math.inf,), (-math.inf,), (math.nan,), (math.nan, math.inf)])
@pytest.mark.parametrize("max_norm", [1.0, math.inf])
def test_what_is_not_finite_leaves_what_torch_leaves(values, max_norm):
    grads = drawn(torch.float32)
    grads[0][0, : len(values)] = torch.tensor(values)
    same_as_torchs(grads, max_norm)


@pytest.mark.parametrize("max_norm", [0.0, 1.0])
def test_zero_gradients_stay_zero(max_norm):
    grads = [torch.zeros(shape) for shape in (*SHAPES, (0, 3))]
    assert clip_grad_norm_(grads, max_norm) == 0
    assert all(bool((g == 0).all()) for g in grads)


def test_below_the_limit_no_bit_changes():
    grads = drawn(torch.float32)
    before = [g.clone() for g in grads]
    assert clip_grad_norm_(grads, 100.0) < 100
    assert all(torch.equal(g, old) for g, old in zip(grads, before, strict=True))


def test_views_of_one_storage_are_clipped_in_place():
    storage = torch.arange(12.0)
    grads = [storage[:6].view(2, 3).t(), storage[6:]]
    norm = clip_grad_norm_(grads, 1.0)
    assert norm == pytest.approx(math.sqrt(506))
    torch.testing.assert_close(storage, torch.arange(12.0) / math.sqrt(506))


def test_an_empty_list_has_the_norm_0():
    torch.testing.assert_close(clip_grad_norm_([], 1.0), torch.tensor(0.0))


@pytest.mark.parametrize("max_norm", [-1.0, math.nan])
def test_a_limit_below_0_is_refused_before_anything_changes(max_norm):
    grads = [torch.ones(2)]
    with pytest.raises(BadArgument, match=f"max_norm must be at least 0, got {max_norm}"):
        clip_grad_norm_(grads, max_norm)
    assert torch.equal(grads[0], torch.ones(2))


def test_torchs_own_function_lacks_the_refusal_only():
    bank = banks.load("clip_grad_norm_")
    cases = bank.exercise.draw(PUBLIC_SEED)
    seen = perform_all(bank.exercise, torchs, cases)
    verdict = judge(bank.exercise, cases, seen, recording.references(bank, cases))
    assert [each.property for each in verdict.findings if not each.held] == ["refuses_a_negative_limit"]
