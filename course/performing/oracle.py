"""Questions to an oracle: in a notebook answered here, beside the probe; in grading sent to another process.

    probe --ask(verb, arguments)--> oracle --> answer       each question is counted where it is answered
    observation --told--> with what the oracle counted, and with what it has seen of the results itself

What is counted in the process of the answer is only claimed: one line of the answer could change it. Whoever runs there
may also ask in the probe's place, at any time; so an oracle tells nothing early that would save work (pledges.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from course.errors import CourseError
from course.performing.exercise import AFTER, Ask, Observation, Oracle, Source
from course.tree import Leaf, Tree, clone


class UnknownQuestion(CourseError):
    """An oracle was asked something that it does not answer."""


@dataclass(frozen=True, eq=False)
class Here:
    """Asks an oracle that lives in this very process."""

    oracle: Oracle

    def __call__(self, verb: str, arguments: Tree) -> Tree:
        """The answer; nothing in it is shared with the oracle, as if it had come from far."""
        return clone(self.oracle.ask(verb, clone(arguments)))


def is_here(ask: Ask) -> bool:
    """Whether questions are answered in this very process, where nobody measures from outside.

    A probe whose cost can only be measured from outside works on a small piece of its case then.
    """
    return isinstance(ask, Here)


def told(seen: Observation, oracle: Oracle, source: Source) -> Observation:
    """The observation with what the oracle knows: costs, and values where it knows those better than the probe."""
    known = oracle.values()
    if known is not None:
        after = {key: value for key, value in seen.values.items() if key.startswith(AFTER)}
        seen = dataclasses.replace(seen, values={**after, **({} if seen.error else known)})
    return with_costs(seen, oracle.ledger(), source)


def with_costs(seen: Observation, costs: Mapping[str, Leaf], source: Source) -> Observation:
    """The observation with costs that were counted elsewhere, over whatever stood there under the same names."""
    return dataclasses.replace(
        seen, ledger={**seen.ledger, **costs}, sources={**seen.sources, **dict.fromkeys(costs, source)}
    )
