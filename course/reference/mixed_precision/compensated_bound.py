"""How far a compensated sum may be off, from what one step may lose.

one step:   y = (x + lost) (1 + a)    s' = (s + y) (1 + d)    lost' = s + y - s'        |a|, |d| <= v = u / (1 + u)
added up:   s' + lost' = s + lost + x + a (x + lost), so at the end    s - sum x = sum a_i (x_i + lost_(i-1)) - lost_n
"""

from __future__ import annotations

import math


def compensated_bound(n: int, u: float) -> float:
    """B with |computed - exact| <= B sum |x| for every n numbers; u is the unit roundoff of the format.

    Let P be how large |s + lost| may be. Then |lost| <= v P, and a step makes of P at most (1 + v^2) P + (1 + v) |x|.
    The first two y are x itself, so that of a sum |x| = 1 P becomes at most (1 + v) (1 + v^2)^(n - 3): what it is
    above 1 is the error of s + lost, and v P the last loss. To first order B is 2 u + n u^2.
    Numbers that come close are in course/exercises/mixed_precision. Smaller bounds may well hold.
    Source: Higham, Accuracy and Stability of Numerical Algorithms (2nd edition, 2002), section 4.3, has the order of
    this bound, 2 u + O(n u^2).
    """
    if n <= 2:
        return (n - 1) * u  # nothing is rounded, or the one sum
    v = u / (1 + u)
    return math.expm1(2 * math.log1p(v) + (n - 3) * math.log1p(v * v))  # (1 + v)^2 (1 + v^2)^(n - 3) - 1
