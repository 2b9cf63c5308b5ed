"""What 8 bits keep of a tensor, and what one outlier does to the rest of it.

tensors() -> activations, gradients of a small network --near--> share that becomes 0, error of a number
normal numbers, one of them replaced --near--> product --> error of the rows in which it does not stand, over its size
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course.lessons.data import digits_split
from course.lessons.experiments.formats import dtypes
from course.lessons.models import mlp

FORMATS = dtypes("e4m3", "e5m2")
SIZES = tuple(10.0 ** (power / 2) for power in range(1, 17))  # of the outlier, where all others are about 1
WAYS = ("8-bit integers, one scale", "e4m3, one scale", "e4m3, blocks of 128", "e5m2, one scale")
BLOCK = 128


def near(x: Tensor, name: str, block: int | None = None) -> Tensor:
    """What is left of x (rows, k) in e4m3, e5m2 or 8-bit integers (-127 to 127), scaled by amax; whole blocks."""
    parts = x.reshape(len(x), -1, block or x.shape[1])
    amax = parts.abs().amax(dim=-1, keepdim=True) if block else parts.abs().amax()
    if name not in FORMATS:
        scale = amax / 127
        return ((parts / scale).round() * scale).reshape(x.shape)
    dtype = FORMATS[name]
    return rounded(parts, amax / torch.finfo(dtype).max, dtype).reshape(x.shape)


def rounded(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """x, float32, divided by the scale, rounded to an 8-bit dtype, whose ends nothing passes, and multiplied again."""
    ends = torch.finfo(dtype)
    return (x / scale).clamp(ends.min, ends.max).to(dtype).float() * scale


def tensors(steps: int = 60) -> dict[str, Tensor]:
    """Activations and gradients of the loss, both (examples, features), of an MLP's hidden layers on the digits."""
    x, labels = _digits()
    model = mlp([64, 128, 128, 10], torch.Generator().manual_seed(0))
    _trained(model.parameters(), lambda: cross_entropy(model(x), labels), steps)
    before = model[:-2](x)  # of the last hidden layer's function
    before.retain_grad()
    loss = cross_entropy(model[-2:](before), labels)
    torch.autograd.backward(loss)
    assert before.grad is not None
    return {"activations": before.detach(), "gradients": before.grad}


def kept(x: Tensor, name: str) -> tuple[float, float]:
    """Of the numbers of x but 0: the share that becomes 0, and the median error of a number, relative to it."""
    numbers = x[x != 0]
    found = near(x, name)[x != 0]
    return float((found == 0).float().mean()), float(((found - numbers) / numbers).abs().median())


def outlier_errors(sizes: Sequence[float] = SIZES, seed: int = 0) -> dict[str, list[float]]:
    """By way, for each size of one number of a: the error of a @ b in the other rows, as a share of their size."""
    rng = torch.Generator().manual_seed(seed)
    a, b = torch.randn(64, 1024, generator=rng), torch.randn(64, 1024, generator=rng)  # b is transposed
    exact = (a.double() @ b.double().T)[1:]
    errors: dict[str, list[float]] = {way: [] for way in WAYS}
    for size in sizes:
        a[0, 0] = size
        for way, found in errors.items():
            name, _, scales = way.partition(", ")
            block = BLOCK if scales.startswith("blocks") else None
            product = (near(a, name, block).double() @ near(b, name, block).double().T)[1:]
            found.append(float((product - exact).norm() / exact.norm()))
    return errors


def error_at(size: float) -> Mapping[str, float]:
    """The error of each way with one outlier of this size."""
    return {way: found[0] for way, found in outlier_errors([size]).items()}


def train(linear: Callable[[Tensor, Tensor, int], Tensor], steps: int = 60) -> float:
    """The loss of two layers on the digits after so many steps of Adam, where linear(x, w, layer) gives x @ w.T."""
    x, labels = _digits()
    rng = torch.Generator().manual_seed(0)
    weights = [(torch.randn(shape, generator=rng) / shape[1] ** 0.5).requires_grad_() for shape in ((64, 64), (10, 64))]

    def loss() -> Tensor:
        return cross_entropy(linear(linear(x, weights[0], 0).relu(), weights[1], 1), labels)

    return _trained(weights, loss, steps)


def _digits() -> tuple[Tensor, Tensor]:
    """Images (n, 64) and labels."""
    train, _ = digits_split()
    return train.images.reshape(-1, 64).float(), train.labels


def _trained(weights: Iterable[Tensor], loss_of: Callable[[], Tensor], steps: int) -> float:
    """The loss before the last of so many steps of Adam."""
    optimizer = torch.optim.Adam(weights, lr=3e-3)
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return float(loss.detach())
