"""How far a compensated sum may be off, from what one step may lose.

one step:   y = (x + lost) (1 + a)    s' = (s + y) (1 + d)    lost' = s + y - s'        |a|, |d| <= u
added up:   s' + lost' = s + lost + x + a (x + lost), so at the end    s - sum x = sum a_i (x_i + lost_(i-1)) - lost_n
"""

from __future__ import annotations


def compensated_bound(n: int, u: float) -> float:
    """B with |computed - exact| <= B sum |x| for every n numbers; u is the unit roundoff of the format.

    Let A = sum |x| and T = |lost_1| + ... + |lost_(n-1)|. Every s_i + lost_i is at most A + u (A + T) in size, and
    lost_i at most u times that. So T <= (n - 1) u ((1 + u) A + u T), which is solved for T; needs (n - 1) u^2 < 1.
    To first order B is 2 u + n u^2. Numbers that come close are in course/exercises/mixed_precision.
    Source: Higham, Accuracy and Stability of Numerical Algorithms (2nd edition, 2002), section 4.3, has the order of
    this bound, 2 u + O(n u^2).
    """
    carried = (n - 1) * u * (1 + u) / (1 - (n - 1) * u * u)  # T / A: what all steps but the last lose
    last = u * (1 + u + u * carried)  # |lost_n| / A: it is never added
    return u * (1 + carried) + last
