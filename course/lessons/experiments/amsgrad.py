"""Does Adam always converge where the problem is convex, one-dimensional and without noise?

    slopes C, -1, -1, C, -1, -1, ... --play, with torch's Adam--> positions and average regret

In round t the player chooses x_t in [-1, 1], and then the loss f_t comes to light: f_t(x) = C x in the first round of
every three, -x in the other two. Three rounds cost (C - 2) x, so that for C > 2 the best fixed choice is x = -1. Regret
is what the choices cost beyond what that one would have cost; a method that learns has an average regret that tends
to 0.

Source: S. J. Reddi, S. Kale and S. Kumar, On the Convergence of Adam and Beyond, arXiv 1904.09237, section 3.
Theorem 1: Adam's average regret need not tend to 0. Its proof lets Adam play this game with beta1 = 0, beta2 =
1 / (1 + C^2) and steps alpha / sqrt(t): it ends at x = 1, the worst choice there is. Theorem 2: for any beta1 <
sqrt(beta2) there is such a game, with a longer period. AMSGrad divides by the root of the *greatest* second moment so
far (Algorithm 2); by Theorem 4 its average regret tends to 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from course.errors import BadArgument

STEEP = 3.0  # C
ROUNDS = 3000
RATE = 0.5  # alpha; the proof of Theorem 1 asks for less than sqrt(1 - beta2) = 0.95


@dataclass(frozen=True, kw_only=True)
class Game:
    """`positions` x_t, t = 1 to T; `average_regret` of the first t rounds, against the best fixed choice for these."""

    positions: list[float]
    average_regret: list[float]


def slopes(rounds: int = ROUNDS, steep: float = STEEP) -> Tensor:
    """The slopes of the losses f_t, t = 1 to `rounds`: C, -1, -1, C, ... (rounds,), float64."""
    if not steep > 2:
        raise BadArgument(f"steep must be above 2, got {steep}: else x = -1 is not the best choice")
    each = torch.full((rounds,), -1.0, dtype=torch.float64)
    each[::3] = steep
    return each


def forgetful(steep: float = STEEP) -> float:
    """The beta2 of Theorem 1, 1 / (1 + C^2): after two rounds of slope -1, next to nothing is left of C^2."""
    return 1 / (1 + steep**2)


def play(losses: Tensor, *, beta2: float, amsgrad: bool = False, rate: float = RATE) -> Game:
    """torch's Adam against losses of these slopes (T,), from x = 0, with beta1 = 0 and steps rate / sqrt(t).

    After each step x is put back into [-1, 1]. The steps must shrink for the theorems on average regret: with a
    constant rate, AMSGrad would go on swinging too. torch divides the moments by 1 - beta2^t, the paper does not; with
    the beta2 of Theorem 1 this matters for the first two or three rounds.
    """
    x = torch.zeros((), dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([x], lr=rate, betas=(0.0, beta2), amsgrad=amsgrad, foreach=False)
    positions = []
    for number, slope in enumerate(losses, start=1):
        positions.append(x.item())
        adam.param_groups[0]["lr"] = rate / number**0.5
        x.grad = slope  # of f_t(x) = slope x
        adam.step()
        with torch.no_grad():
            x.clamp_(-1, 1)
    return Game(positions=positions, average_regret=average_regret(losses, torch.tensor(positions)).tolist())


def average_regret(losses: Tensor, positions: Tensor) -> Tensor:
    """(sum of f_s(x_s) - min over x of sum of f_s(x)) / t, over the rounds s = 1 to t, for every t: (T,)."""
    paid = (losses * positions).cumsum(0)
    best = -losses.cumsum(0).abs()  # a line on [-1, 1] is least at one of its ends
    return (paid - best) / torch.arange(1, len(losses) + 1)


def compare(rounds: int = ROUNDS) -> dict[str, Game]:
    """Adam and AMSGrad with the beta2 of Theorem 1, and Adam with torch's default beta2, 0.999."""
    losses, short = slopes(rounds), forgetful()
    return {
        f"Adam, beta2 = {short:g}": play(losses, beta2=short),
        f"AMSGrad, beta2 = {short:g}": play(losses, beta2=short, amsgrad=True),
        "Adam, beta2 = 0.999": play(losses, beta2=0.999),
    }
