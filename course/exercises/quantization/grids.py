"""Numbers whose codes nobody can dispute: each lies well inside the interval that rounds to its code.

And whether codes were multiplied as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course.meter import Run

AWAY = 0.3  # of a step, from the code; ties lie at 0.5
EXACT_AWAY = 0.2  # bfloat16 moves a number of 127 steps by a quarter of a step at most
# Multiples of float16's least number: a row's step is 0.496 of it, which float16 rounds to 0. 32 and 33 lie at 64.508
# and 66.524 steps: clear of ties, but not where quotients are in float16, which become 64 and 66.
SMALL = torch.tensor([[63, 63, 32, 33, 33, 32, 12, -12], [-63, 25, 2, 37, -48, 12, 49, -13]]).half() * 2**-24
# Products with SMALL's first row: most cancels but for the four numbers whose codes such quotients change.
SIGNS = torch.tensor([[-1, -1, 1, 1, 1, 1, 1, 1], [1, -1, 1, -1, -1, 1, 1, 1]]).half() * 2**10
# bfloat16 rounds the step of both, 255 / 127, so far up that every code but 127 becomes one less; quotients in bfloat16
# lie at ties, and become one less, too. Products of codes nearly cancel. BEYOND in bfloat16 is ROUGH's largest number.
ROUGH = torch.tensor([[255, 242, 170, 162, 194, 178]]).bfloat16() / 32
ROUGH_TOO = torch.tensor([[-226, -255, 138, 230, 150, 170]]).bfloat16() / 32
BEYOND = 7.97


def on_grid(rng: torch.Generator, rows: int, n: int, *, exact: bool = False) -> Tensor:
    """(rows, n), float32: in each row one number has the code 127 or -127, and others codes in between, with a step
    that is drawn for the row.

    exact  steps are powers of two, so that half precision holds the largest number of each row
    """
    codes = torch.randint(-126, 127, (rows, n), generator=rng).double()
    codes += (2 * torch.rand(rows, n, generator=rng, dtype=torch.float64) - 1) * (EXACT_AWAY if exact else AWAY)
    place = torch.randint(n, (rows, 1), generator=rng)
    sign = 2 * torch.randint(2, (rows, 1), generator=rng).double() - 1
    codes.scatter_(1, place, 127 * sign)
    drawn = torch.rand(rows, 1, generator=rng, dtype=torch.float64)
    step = 2.0 ** torch.floor(-7 + 3 * drawn) if exact else 0.01 + 0.03 * drawn
    return (codes * step).float()


def multiplies_int8(run: Run, m: int, k: int, n: int) -> bool:
    """Whether this run multiplies as much in int8 as (m, k) by (k, n) takes, by `int8_product`, at once or in parts."""
    return run.flops.get("_int_mm", 0) >= 2 * m * k * n
