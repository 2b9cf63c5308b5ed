"""Dynamic loss scaling: gradients too small for float16 are made larger on their way, and smaller again at its end.

loss --times factor--> backward --> grads --/ factor--> all finite? --yes--> step; after many in a row factor doubles
                                                                    --no---> no step, and factor is halved
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course.errors import BadArgument, CourseError


class OutOfTurn(CourseError, RuntimeError):
    """A call of a scaler whose turn has passed or has not come."""


class LossScaler:
    """The factor of the loss and its rule, torch.amp.GradScaler's; for each step: scale, unscale_, step, update.

    factor  float32 (), on the CPU, so that it multiplies losses on every device: what the next loss is multiplied by
    It is halved after a step with an inf or nan in any gradient, and doubled after growth_interval steps in a row
    without one, as long as float32 holds it.
    Raises BadArgument where the numbers could not find a factor.
    Source: Micikevicius et al., Mixed Precision Training (arXiv:1710.03740), section 3.2; numbers by torch 2.13.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        *,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        if not (init_scale > 0 and growth_factor > 1 and 0 < backoff_factor < 1 and growth_interval >= 1):
            raise BadArgument(
                "init_scale must be above 0, growth_factor above 1, backoff_factor between 0 and 1 and growth_interval "
                f"at least 1, got {init_scale}, {growth_factor}, {backoff_factor} and {growth_interval}"
            )
        self.factor = torch.tensor(init_scale, dtype=torch.float32)
        self._growth, self._backoff, self._interval = growth_factor, backoff_factor, growth_interval
        self._good_steps = 0  # in a row
        self._finite: bool | None = None  # of this step's gradients; None before they are unscaled
        self._stepped = False

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the factor. A float16 number becomes float32, which does not overflow at 65,504."""
        return loss * self.factor

    @torch.no_grad()
    def unscale_(self, grads: Sequence[Tensor | None]) -> None:
        """Divides all gradients of a step by the factor, in place, and notes whether all were finite.

        Clip after it. Raises OutOfTurn in a second call before `update`, and BadArgument, before anything changes, for
        a float16 gradient: divided, it would underflow after all. Cast it to float32 first.
        """
        if self._finite is not None:
            raise OutOfTurn("unscale_ must be called once between two updates, got a second call")
        present = [g for g in grads if g is not None]
        if any(g.dtype == torch.float16 for g in present):
            raise BadArgument("gradients must be wider than float16 to be unscaled, got torch.float16: cast them first")
        self._finite = all(bool(g.isfinite().all()) for g in present)
        for g in present:
            g.div_(self.factor)

    def step(self, step: Callable[[], object]) -> bool:
        """Calls `step`, `optimizer.step` for instance, unless a gradient was inf or nan; returns whether it did.

        It does not unscale by itself, as torch's does. Raises OutOfTurn before `unscale_`, and in a second call.
        """
        if self._finite is None or self._stepped:
            came = "a second call" if self._stepped else "no call of unscale_"
            raise OutOfTurn(f"step must be called once after unscale_ and before update, got {came}")
        self._stepped = True
        if self._finite:
            step()
        return self._finite

    def update(self) -> None:
        """Sets the factor for the next step. Raises OutOfTurn where no gradient was unscaled since the last call."""
        if self._finite is None:
            raise OutOfTurn("update must follow unscale_, got no call of it since the last update")
        self._good_steps = self._good_steps + 1 if self._finite else 0
        if not self._finite:
            self.factor = _times(self.factor, self._backoff)
        elif self._good_steps == self._interval:
            grown = _times(self.factor, self._growth)
            self.factor = grown if grown.isfinite() else self.factor
            self._good_steps = 0
        self._finite, self._stepped = None, False


def _times(factor: Tensor, number: float) -> Tensor:
    return (factor.double() * number).float()
