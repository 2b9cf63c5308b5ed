"""Which exercises of a submission are performed in one process, and when that counts.

    written exercises --shares--> [those that share a process, ...]      all others: alone
    Together.perform  --judge-->  full marks: the verdict;  else: performed again, alone

Alone stands what is measured, what has ranks, and what would share with nobody. Those that do without autograd have
one process, which does without all that any of them does without; the others have another. Nothing counts there but
full marks: so whoever is refused what only others do without, comes after one that has left something behind, or
takes long, loses nothing by it.
"""

from __future__ import annotations

from collections.abc import Sequence

from course.performing.exercise import Exercise
from course.performing.removals import AUTOGRAD


def shares(written: Sequence[Exercise]) -> list[list[Exercise]]:
    """The exercises of each shared process, in their order."""
    can = [each for each in written if not each.measured and each.split is None]
    without = [each for each in can if not set(AUTOGRAD).isdisjoint(each.removes)]
    others = [each for each in can if each not in without]
    return [each for each in (without, others) if len(each) > 1]
