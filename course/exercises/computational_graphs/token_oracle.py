"""The oracle of `accumulate_gradients`: computes the model's hidden features, and counts what goes through.

features: tokens, gains (..., F) -> a + gains b and a ticket     a, b = tanh(sin(tokens K^T) M) with hidden K, M
slopes:   ticket, gradient (..., F) -> gradient b                 what a backward pass needs
step                                                              an optimizer step, only counted
matrices                                                          K and M, where a process is measured instead
result:   parameters after the step, on long micro-batches        nothing; they are held against what is right
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from course.exercises.computational_graphs.token_model import after_one_step, long_ones, mixed
from course.performing.compare import measure
from course.performing.exercise import Case
from course.performing.oracle import UnknownQuestion
from course.tree import Leaf, Tree

MOST_TOKENS = 10_000  # that one case may send; right answers send at most 64
SUMMED = 128  # roundings of sums over 262,144 tokens: right answers take 8, without one of the micro-batches 600


class TokenOracle:
    """Counts tokens by call, tokens alive and optimizer steps.

    A token is alive from its forward pass until its backward pass was asked for and its graph is gone. The first is
    known here. The second is told by the other side, and who keeps it back only makes more tokens alive.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._matrices = cast(Tensor | None, case.hidden.get("matrices"))  # (3, H, F)
        self._inputs: Any = case.inputs
        self._long = "seed" in case.inputs
        self._right: bool | None = None
        self._counts = self._matrices is not None
        self._calls: list[int] = []
        self._slopes: dict[int, Tensor] = {}  # by ticket, of calls that were recorded
        self._alive: dict[int, int] = {}
        self._answered: set[int] = set()
        self._most_alive = self._steps = 0

    def ask(self, verb: str, arguments: Tree) -> Tree:
        """One question of the five above. Raises UnknownQuestion."""
        verbs: dict[str, Callable[..., Tree]] = {
            "features": self._features,
            "slopes": self._gradient,
            "step": self._step,
            "matrices": self._tell,
            "result": self._result,
        }
        asked: Any = arguments
        try:
            return verbs[verb](**asked)
        except Exception as error:  # what is asked comes from the process of an answer, and may be anything
            raise UnknownQuestion(
                f"the model's first layer must be asked as the model asks it, got {verb!r:.40} with something else "
                f"({type(error).__name__}); call model(inputs) and backward"
            ) from None

    def ledger(self) -> dict[str, Leaf]:
        """Optimizer steps; and where features are hidden, tokens."""
        if not self._counts:
            return {"optimizer_steps": self._steps}
        return {
            "optimizer_steps": self._steps,
            "tokens_through_the_model": sum(self._calls),
            "tokens_in_one_call": max(self._calls, default=0),
            "tokens_alive": self._most_alive,
        }

    def values(self) -> dict[str, Leaf] | None:
        """Whether the step on long micro-batches was right; of others nothing."""
        return None if not self._long else {} if self._right is None else {"right_parameters": self._right}

    def _features(self, *, tokens: Tensor, gains: Tensor, recorded: bool, freed: list[int]) -> Tree:
        if self._matrices is None:
            raise ValueError("nothing is hidden")
        count = tokens.numel() // self._matrices.shape[-1]
        if sum(self._calls) + count > MOST_TOKENS or len(self._calls) > MOST_TOKENS:
            raise ValueError("too many tokens")
        constant, slope = mixed(tokens, self._matrices)
        features = constant + gains.reshape(tokens.shape) * slope
        ticket = len(self._calls)
        self._calls.append(count)
        self._free(freed)
        if recorded:
            self._slopes[ticket], self._alive[ticket] = slope, count
        self._most_alive = max(self._most_alive, sum(self._alive.values()), count)
        return {"features": features, "ticket": ticket}

    def _free(self, tickets: list[int]) -> None:
        """Forgets the graphs that are gone and whose backward pass has come."""
        for ticket in self._answered.intersection(tickets):
            self._alive.pop(ticket, None)
            self._slopes.pop(ticket, None)

    def _gradient(self, *, ticket: int, gradient: Tensor) -> Tree:
        slope = self._slopes[ticket]
        self._answered.add(ticket)
        ends = gradient.shape[gradient.dim() - slope.dim() :]
        if ends != slope.shape or gradient.numel() > MOST_TOKENS * slope.shape[-1]:
            raise ValueError("another shape")
        return gradient.to(slope.dtype) * slope

    def _tell(self) -> Tree:
        """Who is told counts nothing here any more."""
        if not self._long or self._right is not None:
            raise ValueError("a secret, or too late")
        self._counts = False
        return self._matrices

    def _result(self, **parameters: Tensor) -> Tree:
        """Once. Who was told the matrices must have used all rows of the long micro-batches."""
        if not self._long or self._right is not None:
            raise ValueError("not asked for, or once more")
        self._right = False
        for name, expected in _after_one_step(self._case, long=not self._counts).items():
            if not measure(parameters[name], expected, torch.float32, roundings=SUMMED).held:
                return None
        self._right = True
        return None

    def _step(self) -> Tree:
        self._steps += 1
        return None


@functools.lru_cache(maxsize=2)
def _after_one_step(case: Case, *, long: bool) -> dict[str, Tensor]:
    """Of one case, which all students of a run have: a step on the long micro-batches takes 0.1 s."""
    inputs: Any = case.inputs
    group = long_ones(inputs) if long else zip(inputs["inputs"], inputs["targets"], strict=True)
    return after_one_step(inputs, cast(Tensor, case.hidden["matrices"]), group)
