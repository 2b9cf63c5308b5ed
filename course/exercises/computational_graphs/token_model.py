"""The model of `accumulate_gradients`: small, and it knows how much went through it.

inputs --tanh--> activations, noted in the book --linear--> logits
"""

from __future__ import annotations

from torch import Tensor, nn

from course.meter import KeptBytes
from course.meter.storage import unwrapped


class Traffic:
    """What went through a model and through all copies of it: a copy writes into the same book.

    calls       tokens of each call, in order; under `torch.func.vmap` those of all rows
    most_alive  the largest number of tokens whose activations were alive at once
    """

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.most_alive = 0
        self._alive = KeptBytes()

    def __deepcopy__(self, memo: object) -> Traffic:
        return self

    def add(self, activations: Tensor) -> None:
        """One more call; activations (..., F)."""
        self.calls.append(unwrapped(activations).numel() // activations.shape[-1])
        self._alive.watch(activations)
        token = activations.shape[-1] * activations.element_size()
        self.most_alive = max(self.most_alive, self._alive.bytes_alive() // token)


class TokenModel(nn.Module):
    """tanh and one linear layer on every token, with a book of its traffic.

    Each call saves the tanh of its input for backward, so the activations alive are those of the micro-batches whose
    graphs are. The tanh is also there so that the parameters in a linear layer of somebody else's give other logits.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)
        self.traffic = Traffic()

    def forward(self, inputs: Tensor) -> Tensor:
        """inputs (n, T, F) to logits (n, T, C)."""
        activations = inputs.tanh()
        self.traffic.add(activations)
        return nn.functional.linear(activations, self.weight, self.bias)
