"""The packed layers: what they compute, keep and make on the way; adapters beside them; torch's and torchao's own."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from course.errors import BadArgument
from course.lessons.int8 import int8_product
from course.lessons.nf4 import NF4
from course.meter import kept_bytes, metered
from course.reference.lora.finetune_bytes import finetune_bytes
from course.reference.quantization.int8linear import by_rows
from course.reference.quantization.layers import TILE, Int4Linear, Int8Linear, LoRA4, NF4Linear

M, N, BLOCK = 3 * TILE + 5, 256, 64  # a last tile that is smaller
torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is in the extra peers")
KINDS = pytest.mark.parametrize("kind", [Int4Linear, NF4Linear])


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@KINDS
def test_rows_are_no_farther_from_the_weight_than_half_a_gap_of_their_block(kind):
    weight = normal(M, N)
    weight[3] *= 1000
    weight[4] = 0
    layer = kind(weight, scale_dtype=torch.float32)
    largest = weight.reshape(M, -1, BLOCK).abs().amax(2, keepdim=True).expand(M, -1, BLOCK).reshape(M, N)
    gap = 1 / 7 if kind is Int4Linear else max(b - a for a, b in itertools.pairwise(NF4))
    error = (layer.rows(0, M, torch.float32) - weight).abs()
    assert (error <= largest * (gap / 2 + 8 * 2.0**-23)).all()


@KINDS
@pytest.mark.parametrize("shape", [(N,), (1, N), (0, N), (2, 3, N)])
def test_output_and_gradient_are_those_of_the_unpacked_weight(kind, shape):
    layer, x = kind(normal(M, N), normal(M, seed=1)), normal(*shape, seed=2).requires_grad_()
    weight = layer.rows(0, M, torch.float32)
    y = layer(x)
    (dx,) = torch.autograd.grad(y.square().sum(), x)
    ours = x.detach().requires_grad_()
    expected = nn.functional.linear(ours, weight, layer.bias)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(dx, torch.autograd.grad(expected.square().sum(), ours)[0], rtol=1e-4, atol=1e-3)


@KINDS
def test_layer_keeps_codes_and_scales_and_makes_no_more_than_a_tile(kind):
    with kept_bytes() as meter:
        layer = kind(normal(1024, N))
    size = 1024 * N // 2 + 1024 * N // BLOCK * layer.scales.element_size()
    assert meter.bytes_alive() == size
    with metered() as run:
        layer(normal(2, N))
    assert run.largest.bytes <= TILE * N * 4


def test_block_that_does_not_divide_a_row_is_refused():
    with pytest.raises(BadArgument, match="block must divide"):
        Int4Linear(normal(4, 60))


def test_adapter_learns_beside_four_bits_and_the_base_has_no_gradient():
    layer = LoRA4(NF4Linear(normal(M, N)), 4, 8.0, torch.Generator().manual_seed(0))
    before, x = layer.base.packed.clone(), normal(8, N, seed=1).requires_grad_()
    optimizer = torch.optim.AdamW([each for each in layer.parameters() if each.requires_grad], lr=1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (layer(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert x.grad is not None
    assert {name for name, _ in layer.named_parameters()} == {"A", "B"}
    assert torch.equal(layer.base.packed, before)


def test_bytes_are_those_that_finetune_bytes_computes():
    layer = LoRA4(NF4Linear(normal(M, N)), 4, 8.0)
    layer(normal(2, N)).sum().backward()
    held = sum(each.nbytes for each in layer.buffers()) + sum(4 * each.nbytes for each in layer.parameters())
    recipe = {"weights": 4, "gradients": 4, "states": 8, "base": 4 / 8 + 4 / BLOCK, "others": 4}
    assert held == finetune_bytes({"w": (M, N)}, ["w"], 4, recipe)


@pytest.mark.parametrize(("m", "k", "n"), [(3, 1, 4), (1, 5, 4), (4, 5, 1), (0, 3, 2), (2, 1, 1)])
def test_product_of_views_is_exact_where_a_size_is_1(m, k, n):
    rng = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-128, 128, shape, generator=rng).to(torch.int8) for shape in ((m, k), (n, k)))
    assert torch.equal(int8_product(a, b.T).long(), a.long() @ b.T.long())


PRODUCT = """
import torch
from course.lessons.int8 import int8_product
from course.meter import metered
with metered() as run:
    int8_product(torch.ones(3, 4, dtype=torch.int8), torch.ones(4, 5, dtype=torch.int8))
print(run.largest.bytes)
a, b = torch.full((9, 64), 127, dtype=torch.int8), torch.randint(-128, 128, (64, 33)).to(torch.int8)
print(torch.equal(int8_product(a, b), a.int() @ b.int()), torch.equal(int8_product(a[:1], b), a[:1].int() @ b.int()))
"""


@pytest.mark.parametrize("instructions", ["SSE41", "AVX2", "AVX512_CORE"])
def test_product_is_exact_and_makes_nothing_else_on_a_processor_without_instructions_for_int8(instructions):
    command = [sys.executable, "-c", PRODUCT]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": instructions}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(3 * 5 * 4), "True", "True"]


def test_codes_stand_for_what_torchs_own_quantizer_gives():
    weight = normal(M, N)
    codes, step = by_rows(weight)
    zeros = torch.zeros(M, dtype=torch.int32)
    torchs = torch.fake_quantize_per_channel_affine(weight, step[:, 0], zeros, 0, -127, 127)
    # Torch multiplies by 1 / step: a quotient nearer to a tie than its three roundings may go the other way.
    away = ((weight / step).frac().abs() - 0.5).abs() > 3 * 127 * 2.0**-23
    assert torch.equal((codes * step)[away], torchs[away])


@torchao
def test_int8_codes_and_outputs_are_torchaos():
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    weight, x = normal(M, N), normal(16, N, seed=1)
    model = nn.Sequential(nn.Linear(N, M, bias=False))
    model[0].weight = nn.Parameter(weight)
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    ours, theirs = Int8Linear(weight)(x), model(x).detach()
    # Both round once to 255 levels. One code of x or w may differ where a quotient lies at a tie.
    dx, dw = (each.abs().amax(1, keepdim=True) / 127 for each in (x, weight))
    most = x.abs().sum(1, keepdim=True) @ dw.T / 2 + dx @ weight.abs().sum(1, keepdim=True).T / 2 + N * dx @ dw.T / 4
    exact = x @ weight.T
    assert ((ours - exact).abs() <= most).all()
    assert ((theirs - exact).abs() <= most * 128 / 127).all()
    assert (ours - exact).norm() <= 1.02 * (theirs - exact).norm()


@torchao
def test_nf4_is_torchaos():
    nf4tensor = pytest.importorskip(
        "torchao.quantization.quantize_.workflows.nf4.nf4_tensor", reason="this torchao has no NF4"
    )
    weight = normal(64, N)
    theirs = nf4tensor.to_nf4(weight, block_size=BLOCK, scaler_block_size=64).get_original_weight()
    ours = NF4Linear(weight).rows(0, 64, torch.float32)
    # torchao rounds its scales to 8 bits; beside that both have the same codes but for numbers at a midpoint.
    assert (ours - weight).norm() <= (theirs - weight).norm() * 1.02
    assert (ours - theirs).norm() <= 0.03 * weight.norm()
