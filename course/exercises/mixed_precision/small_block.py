"""A transformer block of eleven operators, each of which writes its result in a format of its own.

x -> norm -> query, key, value -> scores -> softmax -> mixed -> out (+ x) -> up -> relu -> down (+)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "e4m3": torch.float8_e4m3fn,
}
BYTES = {name: dtype.itemsize for name, dtype in DTYPES.items()}
ORDER = ("norm", "query", "key", "value", "scores", "softmax", "mixed", "out", "up", "relu", "down")
WIDTH, HIDDEN = 16, 64
SHAPES = {  # of the weights
    **dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH)),
    "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH),
}


@dataclass(frozen=True)
class Block:
    """x (tokens, 16) and the weights by operator, float32; one head."""

    x: Tensor
    weights: Mapping[str, Tensor]

    def numbers(self) -> dict[str, int]:
        """How many numbers each operator writes, in the order in which they run."""
        tokens = len(self.x)
        wide, square, hidden = tokens * WIDTH, tokens * tokens, tokens * HIDDEN
        names = ("norm", "query", "key", "value")
        return {
            **dict.fromkeys(names, wide),
            "scores": square,
            "softmax": square,
            **{"mixed": wide, "out": wide, "up": hidden, "relu": hidden, "down": wide},
        }

    def __call__(self, plan: Mapping[str, str]) -> Tensor:
        """What the block adds to x, float64, where every operator's result is rounded to its format.

        Operators compute in float64: in float32 their roundings are the processor's, and another plan could be best.
        """

        def rounded(name: str, result: Tensor) -> Tensor:
            return result.to(DTYPES[plan[name]]).double()

        x, w = self.x.double(), {name: weight.double() for name, weight in self.weights.items()}
        h = rounded("norm", torch.nn.functional.layer_norm(x, (WIDTH,)))
        q, k, v = (rounded(name, h @ w[name]) for name in ("query", "key", "value"))
        scores = rounded("scores", q @ k.T / math.sqrt(WIDTH))
        p = rounded("softmax", scores.softmax(dim=-1))
        out = rounded("out", rounded("mixed", p @ v) @ w["out"])
        up = rounded("up", (x + out) @ w["up"])
        return out + rounded("down", rounded("relu", up.relu()) @ w["down"])


def block(rng: torch.Generator, tokens: int, *, sharp: float = 1.0, value: float = 1.0, hidden: float = 1.0) -> Block:
    """Drawn at random. Scores are `sharp` times as large as usual, the others what they are called.

    What is made large or small is undone by the next weight, so that the block's result is as large as ever.
    """
    weights = {
        name: torch.randn(shape, generator=rng, dtype=torch.float64) / math.sqrt(shape[0])
        for name, shape in SHAPES.items()
    }
    gains = {"query": sharp, "value": value, "out": 1 / value, "up": hidden, "down": 1 / hidden}
    scaled = {name: (weight * gains.get(name, 1.0)).float() for name, weight in weights.items()}
    return Block(torch.randn(tokens, WIDTH, generator=rng, dtype=torch.float64).float(), scaled)


def error(exact: Tensor, found: Tensor) -> float:
    """The squared error as a share of the squares of what is exact; inf where something is not finite."""
    share = float((found - exact).square().sum() / exact.square().sum())
    return share if math.isfinite(share) else math.inf


def alone(drawn: Block) -> dict[str, dict[str, float]]:
    """The error of the block with one operator in a format and all others in float32, by operator and format."""
    whole = dict.fromkeys(ORDER, "float32")
    exact = drawn(whole)
    forms = [form for form in BYTES if form != "float32"]
    return {name: {form: error(exact, drawn(whole | {name: form})) for form in forms} for name in ORDER}
