"""How long a chain can be whose backward has few slots and few sweeps.

m(slots, sweeps) = m(slots, sweeps - 1) + m(slots - 1, sweeps)
                   before the checkpoint    after it
"""

from __future__ import annotations


def longest_chain(slots: int, sweeps: int) -> int:
    """The most layers that can go backward, exact: (slots + sweeps)! / (slots! sweeps!).

    slots   inputs that are kept at one time, x_0 among them, besides the activation in hand; at least 1
    sweeps  evaluations of any one layer, at least 0. Going backward through a layer is none.
    The layers before the first checkpoint x_k are evaluated once on the way to it. Those after it go backward with one
    slot less; then its slot is free again, and those before it go backward with all slots and one sweep less.
    Source: Griewank and Walther, Algorithm 799: revolve, ACM TOMS 26 (2000).
    """
    longest = [1] * (sweeps + 1)  # no slot: the activation in hand is good for one layer
    for _ in range(slots):
        for used in range(1, sweeps + 1):
            longest[used] += longest[used - 1]
    return longest[sweeps]
