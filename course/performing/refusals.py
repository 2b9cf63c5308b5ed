"""A statement that several exercises make: what makes no sense is refused with a ValueError."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from course.performing.exercise import REFUSED, Inputs, Property, Values
from course.tree import Leaf

LEFT = f"{REFUSED}left/"  # begins the keys of what was handed to refused calls, as they left it


def refused(calls: Mapping[str, Callable[[], object]]) -> dict[str, Leaf]:
    """What came of each call, by the words for what is wrong with it: the name of an exception, or "nothing".

    `ValueError` stands for all kinds of it. A call that is not written yet raises as it would anywhere.
    """
    return {words: _came(call) for words, call in calls.items()}


def _came(call: Callable[[], object]) -> str:
    try:
        call()
    except NotImplementedError:
        raise
    except ValueError:
        return "ValueError"
    except Exception as error:
        name = type(error).__name__
        return name if name != "ValueError" else "another exception of the name ValueError"
    return "nothing"


def all_refused(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: under `REFUSED` stands ValueError everywhere, apart from what is under `LEFT`.

    Raises KeyError where the case broke before a call could be refused: the judge then says with what.
    """
    wanted = [key for key in expected if key.startswith(REFUSED) and not key.startswith(LEFT)]
    others = [f"{key.removeprefix(REFUSED)}: {got[key]} was raised" for key in wanted if got[key] != "ValueError"]
    return "; ".join(others) or None


def other_shapes(matrix: tuple[int, int]) -> list[tuple[int, ...]]:
    """Shapes that a check which is too lax takes for that of this matrix, whose two lengths differ and are above 1."""
    rows, columns = matrix
    return [
        (),  # broadcasts
        (columns,),  # broadcasts; the rank is another
        (rows, 1),  # broadcasts; rank and length are the same
        (1, rows, columns),  # the same without dimensions of 1
        (rows * columns,),  # as many numbers
        (columns, rows),  # the same lengths
        (rows, columns + 1),  # the same rank and first length
    ]


def refused_in_time(case: str) -> Property:
    """That calls which were refused, all in one case, left everything as it was handed to them. Needs `refusals`."""
    return Property(
        "refused_before_any_change",
        "A refused call has left something behind: a tensor that changed, or an entry in a state. The caller "
        "catches the error and goes on with what is there. Look at everything first, in a loop of its own if need be.",
        keys=(f"{LEFT}*",),
        roundings=0,
        cases=(case,),
        needs=("refusals",),
    )
