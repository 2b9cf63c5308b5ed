"""The models that the course trains: a character GPT, and a multilayer perceptron for the digits.

tokens --embed--> x --block--> x --block--> x --norm, head--> logits          x (batch, time, width) throughout

A block maps x to x and needs nothing else, so that it can be checkpointed, sharded, placed or wrapped alone. Every
matrix is an `nn.Linear` with a name of its own, so that it can be found by name and replaced.

The GPT is that of Radford et al. (2019), Language Models are Unsupervised Multitask Learners, section 2.3, in small:
normalisation before each part and after the last block, learned positions, GELU, 4 x width inside the MLP. Two
differences: queries, keys and values have a matrix each, and there is no dropout unless asked for.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.errors import BadArgument

INIT_STD = 0.02  # of GPT and GPT-2 (Radford et al. 2018, Improving Language Understanding, section 4.1)


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The size of a GPT. Raises BadArgument where a size makes no sense.

    vocabulary  number of different tokens
    context     the most tokens that it reads at once
    width       of a token's vector; `heads` must divide it
    dropout     share of entries that are dropped after embedding, attention and MLP, and of attention weights
    tied        whether the head's matrix is the token embedding's (Press and Wolf, arXiv 1608.05859)
    """

    vocabulary: int
    context: int
    width: int
    heads: int
    layers: int
    dropout: float = 0.0
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("vocabulary", "context", "width", "heads", "layers"):
            if getattr(self, name) < 1:
                raise BadArgument(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.width % self.heads:
            raise BadArgument(f"width must be a multiple of heads, got {self.width} for {self.heads} heads")
        if not 0 <= self.dropout < 1:
            raise BadArgument(f"dropout must lie in [0, 1), got {self.dropout}")

    @property
    def parameters(self) -> int:
        """How many numbers are trained; V, T, d, L for vocabulary, context, width and layers.

        embeddings    V d + T d
        one block     4 (d^2 + d) attention, 4 d^2 + 4 d up, 4 d^2 + d down, 4 d norms: 12 d^2 + 13 d
        last norm     2 d
        head          V d, or nothing where it is tied
        """
        d = self.width
        head = 0 if self.tied else self.vocabulary * d
        return (self.vocabulary + self.context) * d + self.layers * (12 * d**2 + 13 * d) + 2 * d + head


class CausalSelfAttention(nn.Module):
    """Multi-head attention to the present and earlier tokens: (batch, time, width) to the same.

    softmax(Q K^T / sqrt(width / heads), future masked) V, per head (Vaswani et al., arXiv 1706.03762, section 3.2).
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q_proj = nn.Linear(config.width, config.width)
        self.k_proj = nn.Linear(config.width, config.width)
        self.v_proj = nn.Linear(config.width, config.width)
        self.out_proj = nn.Linear(config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, time, width) to the same shape."""
        q, k, v = (self._split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        dropped = self.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropped, is_causal=True)
        output: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return output

    def _split(self, x: Tensor) -> Tensor:
        """(batch, time, width) to (batch, heads, time, width / heads)."""
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class MLP(nn.Module):
    """Each token by itself, through a layer of 4 x width: (batch, time, width) to the same."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, time, width) to the same shape."""
        output: Tensor = self.down(F.gelu(self.up(x)))
        return output


class Block(nn.Module):
    """Attention, then the MLP, each on a normalised copy and added to x: (batch, time, width) to the same."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.mlp = MLP(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, time, width) to the same shape."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        x = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return x


class GPT(nn.Module):
    """A decoder-only transformer: tokens int64 (batch, time) to logits (batch, time, vocabulary).

    rng  draws the first weights; without one, torch's global generator does
    """

    def __init__(self, config: GPTConfig, rng: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary, config.width)
        self.position_embedding = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.init_weights(rng)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (batch, time) to logits (batch, time, vocabulary). Raises BadArgument for more than the context."""
        if tokens.shape[-1] > self.config.context:
            raise BadArgument(f"tokens must be at most {self.config.context} in a row, got {tokens.shape[-1]}")
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def init_weights(self, rng: torch.Generator | None = None) -> None:
        """Ties the head and draws all weights anew, in GPT-2's way: deviation 0.02, biases 0, norms 1 and 0.

        The two matrices per block whose results are added to x start smaller by 1 / sqrt(2 layers), so that x does
        not grow with depth (Radford et al. 2019, section 2.3; its N residual layers are read as these 2 per block).
        """
        if self.config.tied:  # here, because `to_empty` after building on the meta device parts them
            self.head.weight = self.token_embedding.weight
        for name, module in self.named_modules():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            if isinstance(module, (nn.Linear, nn.Embedding)):
                added = name.endswith(("attention.out_proj", "mlp.down"))
                std = INIT_STD / math.sqrt(2 * self.config.layers) if added else INIT_STD
                nn.init.normal_(module.weight, std=std, generator=rng)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats per token: logits (batch, time, vocabulary), targets int64 (batch, time) to ()."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def mlp(widths: Sequence[int], rng: torch.Generator | None = None) -> nn.Sequential:
    """Linear layers with ReLU between them: (batch, widths[0]) to (batch, widths[-1]); `mlp((64, 32, 10))` for digits.

    Weights are normal with variance 2 / fan-in, biases 0 (He et al., arXiv 1502.01852, section 2.2). The layers are
    named linear1, linear2, ... Raises BadArgument for fewer than two widths, or one below 1.
    """
    if len(widths) < 2 or min(widths) < 1:
        raise BadArgument(f"widths must be two or more numbers of at least 1, got {tuple(widths)}")
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for index, (inputs, outputs) in enumerate(pairwise(widths), 1):
        linear = layers[f"linear{index}"] = nn.Linear(inputs, outputs)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu", generator=rng)
        nn.init.zeros_(linear.bias)
        if index < len(widths) - 1:
            layers[f"relu{index}"] = nn.ReLU()
    return nn.Sequential(layers)
