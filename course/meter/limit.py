"""A budget of memory that is enforced: the op that goes beyond it is the last one.

op --its new storages--> live bytes --more than the limit?--> OverBudget
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real

from course.errors import BadArgument, CourseError
from course.meter.kept import KeptBytes, kept_bytes


class OverBudget(CourseError):
    """More bytes were live than a `memory_limit` allows."""


@contextmanager
def memory_limit(limit: int) -> Iterator[KeptBytes]:
    """Stops the body of the `with` as soon as what its ops made, and what is still alive of it, has over `limit` bytes.

    What was made before the body, such as parameters and a batch, does not count: see `kept_bytes`. Raises OverBudget
    right after the op that exceeds the limit, in forward and in backward, and BadArgument for a limit below 0.
    """
    if not isinstance(limit, Real) or not limit >= 0:
        raise BadArgument(f"limit must be at least 0 bytes, got {limit!r}")

    def look(meter: KeptBytes) -> None:
        live = meter.bytes_alive()
        if live > limit:
            op = meter.rows()[-1].op
            raise OverBudget(f"live bytes must be at most {limit:,}, but are {live:,} after `{op}`: keep less")

    with kept_bytes(after=look) as meter:
        yield meter
