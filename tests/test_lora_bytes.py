"""What `finetune_bytes` says is what a step of fine-tuning leaves allocated, method by method."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course.lessons.experiments.small_gpt import CONFIG, small_gpt
from course.lessons.models import next_token_loss
from course.meter import metered
from course.reference.lora.finetune_bytes import finetune_bytes

R, BLOCK = 3, 64
IN_FLOAT32 = {"weights": 4, "gradients": 4, "states": 8, "base": 4, "others": 4}
IN_4_BITS = {**IN_FLOAT32, "base": 4 / 8 + 2 / BLOCK}  # and a scale of 16 bits for each block


class Adapter(nn.Module):
    """A frozen layer and the two factors beside it."""

    def __init__(self, base):
        super().__init__()
        m, n = base.out_features, base.in_features
        self.base = base
        self.A = nn.Parameter(torch.randn(R, n))
        self.B = nn.Parameter(torch.zeros(m, R))

    def forward(self, x):
        return self.base(x) + x @ self.A.T @ self.B.T


class FourBits(nn.Module):
    """A frozen layer: two numbers in each byte, a scale for each block."""

    def __init__(self, linear):
        super().__init__()
        blocks = linear.weight.detach().reshape(-1, BLOCK)
        scales = blocks.abs().amax(1, keepdim=True) / 7
        codes = (blocks / scales).round().to(torch.int8).flatten() + 8
        self.register_buffer("scales", scales.half())
        self.register_buffer("packed", (codes[::2] + 16 * codes[1::2].to(torch.uint8)).to(torch.uint8))
        self.bias, self.shape = linear.bias, linear.weight.shape
        self.out_features, self.in_features = self.shape

    def forward(self, x):
        codes = torch.stack([self.packed % 16, self.packed // 16], 1).reshape(-1, BLOCK)
        weight = (codes.float() - 8) * self.scales.float()
        return F.linear(x, weight.reshape(self.shape), self.bias)


def adapt(model, kept):
    """Freezes the model and gives each projection of queries and values, and each `up`, an adapter."""
    model.requires_grad_(False)
    for name, module in [*model.named_modules()]:
        if name.endswith(("q_proj", "v_proj", "up")):
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, Adapter(kept(module)))


def held(model):
    """Bytes of the model, and of what a step has made and left: gradients and AdamW's states, its counters aside."""
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, foreach=False)
    tokens = torch.randint(CONFIG.vocabulary, (2, CONFIG.context))
    with metered() as run:
        loss = next_token_loss(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        del loss
    counters = [state["step"] for state in optimizer.state.values()]
    weights = {each.untyped_storage().data_ptr(): each.nbytes for each in [*model.parameters(), *model.buffers()]}
    return sum(weights.values()) + run.kept(ignore=counters)


@pytest.mark.parametrize(
    ("r", "recipe", "kept"),
    [(None, IN_FLOAT32, None), (R, IN_FLOAT32, lambda linear: linear), (R, IN_4_BITS, FourBits)],
    ids=["full", "adapters", "adapters on 4 bits"],
)
def test_finetune_bytes_is_what_a_step_leaves(r, recipe, kept):
    model = small_gpt()
    shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}
    adapted = [name for name in shapes if name.endswith(("q_proj.weight", "v_proj.weight", "up.weight"))]
    if kept:
        adapt(model, kept)

    assert held(model) == finetune_bytes(shapes, adapted, r, recipe)


def test_the_papers_model_needs_what_its_abstract_says():
    """More than 780 GB in full, and less than 48 GB with adapters on 4 bits: arXiv 2305.14314."""
    width, inner = 8_192, 22_016
    block = {**dict.fromkeys("qkvo", (width, width)), "gate": (inner, width), "up": (inner, width)}
    block |= {"down": (width, inner), "norm1": (width,), "norm2": (width,)}
    shapes = {f"{layer}.{name}": shape for layer in range(80) for name, shape in block.items()}
    adapted = [name for name, shape in shapes.items() if len(shape) == 2]
    shapes |= {"embedding": (32_000, width), "head": (32_000, width), "norm": (width,)}
    recipe = {"weights": 2, "gradients": 2, "states": 8, "base": 4 / 8 + 4 / 64, "others": 2}

    assert 780e9 < finetune_bytes(shapes, adapted, None, recipe) < 790e9
    assert 45e9 < finetune_bytes(shapes, adapted, 64, recipe) < 48e9
