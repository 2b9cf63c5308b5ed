"""The model of `accumulate_gradients`: small, and where costs are judged an oracle computes its first layer.

inputs --features--> a + gain b --carried, linear--> logits       a, b = tanh(sin(inputs K^T) M), with K and two M
d gain <--slopes-- d (a + gain b)

A token takes half of what the one before it in its sequence has, as tokens of a language model depend on those before,
and a quarter of what comes after it, as padding at the end does in models that look both ways.
Where K and M are hidden, features and slopes are questions: no forward pass without the first, no backward without the
second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from course.exercises.computational_graphs.tensors import AnotherShape
from course.meter.storage import weakly
from course.performing.exercise import Ask, Inputs
from course.tree import Tree

PARAMETERS = ("weight", "bias", "gain")
RATE = 0.5  # of SGD with momentum
ROWS = 2**12  # of a micro-batch that is long, in grading


def carried(features: Tensor) -> Tensor:
    """Features (n, T, F), each token's with half of those of the one before it, and a quarter of the next one's."""
    before, after = (nn.functional.pad(features, (0, 0, by, -by)) for by in (1, -1))
    return features + before / 2 + after / 4


def long_ones(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor]]:
    """A case's micro-batches in grading, where each has many rows of its own in place of the case's one."""
    rng = torch.Generator().manual_seed(inputs["seed"])
    classes = len(inputs["weight"])
    for row, targets in zip(inputs["inputs"], inputs["targets"], strict=True):
        tokens = torch.rand(ROWS, *row.shape[1:], generator=rng, dtype=row.dtype).mul_(4).sub_(2)
        yield tokens, torch.randint(classes, (ROWS, *targets.shape[1:]), generator=rng)


def after_one_step(inputs: Inputs, matrices: Tensor, group: Iterable[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """The parameters after the first step, on a group without padding: by the closed form of the loss's derivative."""
    weight, bias, gain = before = [inputs[name].double() for name in PARAMETERS]
    slopes, count = [torch.zeros_like(each) for each in before], 0
    for tokens, targets in group:
        a, b = mixed(tokens, matrices.double())
        features = carried(a + gain * b)
        p = (features @ weight.T + bias).softmax(-1)
        by_logits = p - nn.functional.one_hot(targets, len(bias))
        more = (
            by_logits.flatten(0, 1).T @ features.flatten(0, 1),
            by_logits.sum((0, 1)),
            (by_logits @ weight * carried(b)).sum((0, 1)),
        )
        slopes = [slope + each for slope, each in zip(slopes, more, strict=True)]
        count += targets.numel()
    return {name: each - RATE * slope / count for name, each, slope in zip(PARAMETERS, before, slopes, strict=True)}


def mixed(tokens: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    """a and b, (..., F) each, of tokens (..., F) and matrices (3, H, F): K and two M."""
    rows = tokens.to(matrices.dtype).reshape(-1, matrices.shape[-1])
    waves = (rows @ matrices[0].T).sin()
    a, b = (waves @ matrices[1:]).tanh().reshape(2, *tokens.shape)
    return a, b


class Known:
    """Features from matrices that are no secret."""

    def __init__(self, matrices: Tensor) -> None:
        self._matrices = matrices

    def __call__(self, tokens: Tensor, gain: Tensor) -> Tensor:
        """a + gain b."""
        a, b = mixed(tokens, self._matrices)
        return a + gain * b


class Asked:
    """Features from an oracle; a model and all copies of it share what is known of their graphs."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self._graphs: dict[int, StorageWeakRef] = {}

    def __deepcopy__(self, memo: object) -> Asked:
        return self

    def __call__(self, tokens: Tensor, gain: Tensor) -> Tensor:
        """a + gain b."""
        recorded = torch.is_grad_enabled() and gain.requires_grad
        features: Tensor = Features.apply(tokens, gain.expand_as(tokens), recorded, self)[0]  # type: ignore[no-untyped-call]
        return features

    def add(self, ticket: Tensor) -> None:
        """A graph that keeps this ticket, a number, until its backward frees what forward saved."""
        self._graphs[int(ticket)] = weakly(ticket)

    def freed(self) -> list[Tree]:
        """The tickets whose graphs are gone since the last call."""
        gone = [number for number, storage in self._graphs.items() if storage.expired()]  # type: ignore[no-untyped-call]
        for number in gone:
            del self._graphs[number]
        return list(gone)


class Features(torch.autograd.Function):
    """(tokens, gains, both (..., F)) to a + gains b, (..., F), and the ticket with which to ask for the slopes."""

    @staticmethod
    def forward(tokens: Tensor, gains: Tensor, recorded: bool, asked: Asked) -> tuple[Tensor, Tensor]:
        """One question. `recorded` where a backward pass may come."""
        question: dict[str, Tree] = {"tokens": tokens, "gains": gains, "recorded": recorded, "freed": asked.freed()}
        answer = cast(dict[str, Any], asked.ask("features", question))
        ticket = torch.tensor(answer["ticket"])
        asked.add(ticket)
        return answer["features"], ticket

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Saves the ticket, which says as long as it lives that the graph does."""
        ctx.asked = inputs[3]
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: object) -> tuple[None, Tensor, None, None]:
        """The derivative by the gains alone: inputs are data."""
        transformed = torch._C._are_functorch_transforms_active()
        slopes = Slopes.apply if transformed else Slopes.forward  # alone, forward takes half the time
        return None, slopes(gradient, ctx.saved_tensors[0], ctx.asked), None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], tokens: Tensor, gains: Tensor, recorded: bool, asked: Asked
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """Token by token, so the rows of a batch are more tokens; one ticket for all of them."""
        rows = [_rows(info, *each) for each in zip((tokens, gains), in_dims, strict=False)]
        features, ticket = Features.apply(*rows, recorded, asked)  # type: ignore[no-untyped-call]
        return (features, ticket.expand(info.batch_size)), (0, 0)


class Slopes(torch.autograd.Function):
    """(gradient of the features (..., F), ticket) to the gradient of the gains, gradient times b."""

    @staticmethod
    def forward(gradient: Tensor, ticket: Tensor, asked: Asked) -> Tensor:
        """One question."""
        return cast(Tensor, asked.ask("slopes", {"ticket": int(ticket), "gradient": gradient}))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is saved: nobody differentiates twice here."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], gradient: Tensor, ticket: Tensor, asked: Asked) -> tuple[Tensor, int]:
        """All rows have one ticket."""
        one = ticket if in_dims[1] is None else ticket.select(in_dims[1], 0)
        slopes: Tensor = Slopes.apply(_rows(info, gradient, in_dims[0]), one, asked)  # type: ignore[no-untyped-call]
        return slopes, 0


def _rows(info: Any, tensor: Tensor, dim: int | None) -> Tensor:
    """The tensor with the batch's dimension first."""
    return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


class _Modes(set[bool]):
    """Shared by all copies of a model."""

    def __deepcopy__(self, memo: object) -> _Modes:
        return self


class TokenModel(nn.Module):
    """Two features, one with a trainable gain, and one linear layer, on every token and its neighbours.

    spare  if given, the values of two parameters more: `frozen`, which is added to the logits, and `unused`
    modes  `training` as it was in the calls, each value once
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, gain: Tensor, features: Known | Asked, spare: Tensor | None = None
    ) -> None:
        super().__init__()
        self.modes = _Modes()
        self.frozen = self.unused = None
        if spare is not None:
            self.frozen, self.unused = nn.Parameter(spare.clone(), requires_grad=False), nn.Parameter(spare.clone())
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)
        self.gain = nn.Parameter(gain)
        self.features = features

    def forward(self, inputs: Tensor) -> Tensor:
        """inputs (n, T, F) to logits (n, T, C). Raises AnotherShape."""
        if inputs.dim() != 3:
            raise AnotherShape(f"the model takes inputs of the shape (n, T, F), got one of shape {tuple(inputs.shape)}")
        self.modes.add(self.training)
        logits = nn.functional.linear(carried(self.features(inputs, self.gain)), self.weight, self.bias)
        return logits if self.frozen is None else logits + self.frozen

    def leave(self, gradient: Tensor) -> None:
        """Gradients from before, also in parameters that get no new one."""
        for parameter in (self.bias, self.frozen, self.unused):
            if parameter is not None:
                parameter.grad = gradient.to(parameter.dtype, copy=True)


class Steps:
    """A hook after each step of the optimizer, which the oracle counts."""

    def __init__(self, model: TokenModel, ask: Ask) -> None:
        self.count = 0
        self._model, self._ask = model, ask
        self._moved: dict[str, Tensor] = {}
        self._before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def __call__(self, *_: object) -> None:
        self.count += 1
        self._ask("step", {})
        if any(each.grad is not None and bool(each.grad.any()) for each in self._model.parameters()):
            self._moved = self._now()

    def parameters(self, due: int) -> dict[str, Tensor]:
        """As they are; after more steps than are due, as they were after the last one that had a gradient.

        So a step too many, in which momentum alone moves them, is told as just that.
        """
        return self._moved if self._moved and self.count > due else self._now()

    def _now(self) -> dict[str, Tensor]:
        """Beside what each was: where a step ends near 0, its roundings are those of what it came from."""
        now = {name: parameter.detach() for name, parameter in self._model.named_parameters()}
        return {name: torch.stack([self._before[name], each]) for name, each in now.items()}
