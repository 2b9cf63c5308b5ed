"""The reference checkpoint against torch's own, and the experiments that stand beside it."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint as torchs_own

from course.lessons.experiments import checkpoint_runs, reentrant
from course.meter import kept_bytes
from course.reference.gradient_checkpointing.checkpoint import checkpoint


def block(seed=1, device="cpu"):
    torch.manual_seed(seed)
    layers = torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(32, 8)
    return torch.nn.Sequential(*layers).to(device)


def step(kind, device="cpu"):
    """Loss, gradients and the next draw of a step with two checkpointed blocks under autocast."""
    models = block(1, device), block(2, device)  # a cast of weights used twice would add up in bfloat16
    x = torch.linspace(-1, 1, 32, device=device).view(4, 8).requires_grad_()
    torch.manual_seed(2)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = kind(models[1], kind(models[0], x) + x)
    loss = y.float().square().sum()
    loss.backward()
    return [loss, x.grad, *(each.grad for model in models for each in model.parameters()), torch.rand(3, device=device)]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_step_with_dropout_and_autocast_is_that_of_the_plain_model_and_of_torchs_checkpoint():
    found = step(checkpoint)
    assert same(found, step(lambda fn, x: fn(x)))
    assert same(found, step(lambda fn, x: torchs_own(fn, x, use_reentrant=False)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_step_on_a_gpu_has_the_masks_of_the_plain_model():
    assert same(step(checkpoint, "cuda"), step(lambda fn, x: fn(x), "cuda"))


def test_only_the_input_is_alive_after_forward():
    leaf, model = torch.ones(64, 8, requires_grad=True), block()
    with kept_bytes() as meter:
        x = leaf * 2
        y = checkpoint(model, x)
        del x
    assert meter.bytes_alive(ignore=[y]) == leaf.nbytes


def test_torchs_reentrant_kind_grants_none_of_the_wishes_and_the_other_kind_all():
    found = reentrant.tried().values()
    assert all(one != "yes" and other == "yes" for one, other in found)


def test_one_program_leaves_the_plain_losses_in_its_second_step_and_the_other_grows():
    given = checkpoint_runs.example()
    logs = {name: checkpoint_runs.run(name, **given) for name in checkpoint_runs.PROGRAMS}
    plain = checkpoint_runs.run("masked", checkpointed=False, **given)
    assert logs["masked"].losses[0] == plain.losses[0]
    assert logs["masked"].losses[1] != plain.losses[1]
    assert logs["watched"].losses == pytest.approx(plain.losses, rel=1e-6)
    assert sorted(set(logs["watched"].peaks)) == logs["watched"].peaks
    assert len(set(logs["masked"].peaks[1:])) == 1
