"""How many bytes does a training run need?

    parameters --Recipe--> states;  layers, width, heads, batch --Formula, checkpoints--> activations;  --> Budget

words, and their letters in the formulas
    s b h a L   sequence length, sequences in a batch, width of a token's vector, attention heads, layers
    states      what lives from step to step, and the gradients: bytes per parameter
    activation  what a layer's forward keeps for its backward
    checkpoint  a layer's input in 2 bytes per value, kept in place of its activations

All numbers are bytes of one worker that shares nothing. GB are 10^9 bytes, as in the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from course.errors import BadArgument

CHECKPOINT = 2  # bytes per value of a layer's input, fp16 or bf16
FUSED = 4  # bytes per parameter of a fused fp32 buffer
GB = 10**9


def _positive(holder: object, *names: str) -> None:
    for name in names:
        if getattr(holder, name) < 1:
            raise BadArgument(f"{name} must be at least 1, got {getattr(holder, name)}")


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """The shape of a transformer: layers L, width h, heads a, and its parameters. Raises BadArgument below 1."""

    layers: int
    width: int
    heads: int
    parameters: int

    def __post_init__(self) -> None:
        _positive(self, "layers", "width", "heads", "parameters")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one forward pass reads: `size` sequences (b) of `sequence` tokens (s). Raises BadArgument below 1."""

    sequence: int
    size: int

    def __post_init__(self) -> None:
        _positive(self, "sequence", "size")


# Radford et al., Language Models are Unsupervised Multitask Learners, 2019, Table 2: 48 layers of width 1,600. The 25
# heads are those of the released weights. ZeRO rounds the parameters to 1.5 billion, and so does this.
GPT2 = Transformer(layers=48, width=1600, heads=25, parameters=1_500_000_000)


# --- states ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Bytes per parameter of what a step reads and leaves: moments are both averages of Adam together."""

    parameters: int
    gradients: int
    moments: int
    master: int


RECIPES = {
    "fp32": Recipe(parameters=4, gradients=4, moments=8, master=0),
    "fp16": Recipe(parameters=2, gradients=2, moments=8, master=4),  # 16 bytes: ZeRO, arXiv 1910.02054, section 3.1
    "bf16, fp32 moments, no master copy": Recipe(parameters=2, gradients=2, moments=8, master=0),
}


def state_bytes(parameters: int, recipe: Recipe) -> dict[str, int]:
    """Bytes of parameters, gradients, moments and master copy, by these names."""
    return {name: parameters * count for name, count in vars(recipe).items()}


def fused_buffer_bytes(parameters: int) -> int:
    """A temporary buffer that holds all gradients in fp32 at once, as for an all-reduce or a norm: 4 bytes each.

    Source: ZeRO, arXiv 1910.02054, section 3.2.
    """
    return FUSED * parameters


# --- activations -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Formula:
    """Bytes of one layer's activations: s b h (linear + quadratic a s / h), values of 2 bytes, masks of 1.

    linear     bytes per token and unit of width
    quadratic  bytes per pair of tokens and head; what selective recomputation drops
    """

    name: str
    linear: int
    quadratic: int

    def layer(self, model: Transformer, batch: Batch) -> int:
        """Bytes of a layer."""
        return self.tokens(model, batch) + self.pairs(model, batch)

    def tokens(self, model: Transformer, batch: Batch) -> int:
        """The part that is linear in the sequence length: linear s b h."""
        return self.linear * batch.sequence * batch.size * model.width

    def pairs(self, model: Transformer, batch: Batch) -> int:
        """The part that is quadratic in it: quadratic a s^2 b."""
        return self.quadratic * model.heads * batch.sequence**2 * batch.size


ZERO = Formula(name="ZeRO", linear=24, quadratic=0)
"""12 h b s L values of 2 bytes: ZeRO (Rajbhandari et al., arXiv 1910.02054), section 3.2, footnote 3.

It is a total for architectures like GPT-2's: the paper does not list the tensors. Nothing in it has a size for each
pair of tokens, so no attention score is counted.
"""

KORTHIKANTI = Formula(name="Korthikanti et al.", linear=34, quadratic=5)
"""s b h (34 + 5 a s / h) bytes per layer: Korthikanti et al., arXiv 2205.05198, section 4.1, equation 1.

In multiples of s b h it counts 4 for the inputs of two layer norms; 11 for attention, which are the input of q, k and v
2, q and k 4, v 2, the input of the output projection 2, and a dropout mask 1; and 19 for the MLP, which are the inputs
of its two matrices 2 + 8, GELU's input 8, and a mask 1. In multiples of a s^2 b: softmax's output 2, dropout's mask 1,
dropout's output 2. It leaves out means and deviations of the norms; the embeddings and the loss stand in section 4.3.
"""

FORMULAS = {each.name: each for each in (ZERO, KORTHIKANTI)}


class Checkpointing(Enum):
    """What is recomputed in backward.

    NONE       nothing
    SELECTIVE  what has a size for each pair of tokens: 34 s b h remain (Korthikanti et al., section 5)
    FULL       all but checkpoints: 2 s b h for each (the same, section 5, with one for each layer)
    """

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Bytes of activations at the peak: kept over the forward pass, and recomputed in backward, at most at a time."""

    kept: int
    recomputed: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.kept + self.recomputed


def activation_bytes(
    model: Transformer,
    batch: Batch,
    formula: Formula,
    checkpointing: Checkpointing = Checkpointing.NONE,
    *,
    every: int = 1,
) -> Activations:
    """Bytes of the activations of all layers. `every`: layers from one checkpoint to the next, where it is FULL.

    Papers give the kept bytes alone. Recomputed is what backward needs beside them: the quadratic part of a layer
    (SELECTIVE), or all activations of a segment (FULL; its first input counts twice). Raises BadArgument where `every`
    is not between 1 and the number of layers.
    """
    if not 1 <= every <= model.layers:
        raise BadArgument(f"every must be between 1 and the {model.layers} layers, got {every}")
    whole, pairs = formula.layer(model, batch), formula.pairs(model, batch)
    if checkpointing is Checkpointing.NONE:
        return Activations(kept=model.layers * whole, recomputed=0)
    if checkpointing is Checkpointing.SELECTIVE:
        return Activations(kept=model.layers * (whole - pairs), recomputed=pairs)
    checkpoints = -(-model.layers // every)
    kept = checkpoints * CHECKPOINT * batch.sequence * batch.size * model.width
    return Activations(kept=kept, recomputed=every * whole)


def recomputation_overhead(backward: float = 2.0) -> float:
    """Extra compute of one more forward pass, as a share of a step; `backward` is the cost of backward in forwards.

    Two is the count of products: one for the gradient of each factor.
    """
    return 1 / (1 + backward)


# --- all of it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Bytes of a run by what they are for; a moment at which all of it lives at once is assumed."""

    states: dict[str, int]
    activations: Activations
    buffer: int

    @property
    def parts(self) -> dict[str, int]:
        """Every part by name, states first."""
        own = {"activations kept": self.activations.kept, "recomputed at a time": self.activations.recomputed}
        return {**self.states, **own, "fused buffer": self.buffer}

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self.parts.values())


def budget(
    model: Transformer,
    batch: Batch,
    formula: Formula,
    checkpointing: Checkpointing = Checkpointing.NONE,
    *,
    every: int = 1,
    recipe: Recipe = RECIPES["fp16"],
) -> Budget:
    """States by the recipe, activations by the formula, and a fused buffer of all gradients."""
    return Budget(
        states=state_bytes(model.parameters, recipe),
        activations=activation_bytes(model, batch, formula, checkpointing, every=every),
        buffer=fused_buffer_bytes(model.parameters),
    )
