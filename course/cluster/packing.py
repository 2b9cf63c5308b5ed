"""A function and its inputs as bytes for other processes, also where they were defined in a notebook's cell.

cloudpickle sends functions and classes of `__main__` by value, with the globals and variables that they use. What
cannot be sent is named before any process starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

from course.cluster.job import Job
from course.errors import BadArgument
from course.failing import message_of


def packed_jobs(job: Job) -> list[bytes]:
    """For each rank: the pickled function and inputs. Raises BadArgument."""
    reason = _refused(job.function)
    if reason:
        what = _culprit(job.function)
        raise BadArgument(
            f"the function must be sent to other processes, but {what} cannot be: {reason}; "
            "make it inside of the function"
        )
    for rank, inputs in enumerate(job.inputs):
        for place, each in enumerate(inputs):
            if reason := _refused(each):
                raise BadArgument(
                    f"inputs must be sent to other processes, but inputs[{rank}][{place}], "
                    f"of type {type(each).__name__}, cannot be: {reason}"
                )
    return [cloudpickle.dumps((job.function, tuple(inputs))) for inputs in job.inputs]


def _refused(what: object) -> str:
    """Why it cannot be pickled; "" where it can."""
    try:
        cloudpickle.dumps(what)
    except Exception as error:  # whatever the thing's own __reduce__ raises
        return message_of(error)
    return ""


def _culprit(function: Callable[..., Any]) -> str:
    """The variable of the function that cannot be sent, if it can be told."""
    try:
        used = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return "it"
    names: Mapping[str, Any] = {**used.globals, **used.nonlocals}
    return next((f"`{name}`, which it uses," for name, value in names.items() if _refused(value)), "it")
