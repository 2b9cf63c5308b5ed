"""What a function would find in another process of Python, as far as that can be shown in this one.

    answer --Memory--> what it may keep --forget--> as it was before the first call
    another_process --> other hashes of texts, another pid

In grading a process may start no other. So who hides what he keeps (in a module that he has imported, say) still finds
it again.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import inspect
import os
import threading
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from course.performing.exercise import Answer

CACHE = type(functools.cache(lambda: None))


class Memory:
    """What an answer, and what it calls of its own, may keep results in: caches, and dicts, lists and sets."""

    def __init__(self, answer: Answer) -> None:
        found: list[Any] = []
        reached: list[Any] = [answer]
        for each in reached:  # which grows
            own = inspect.unwrap(each)
            if not isinstance(own, FunctionType):
                continue
            named: list[Any] = [own.__globals__.get(name) for name in own.__code__.co_names]
            found += [each, vars(own), *named, *(own.__defaults__ or ())]
            of_its_own = (one for one in named if getattr(inspect.unwrap(one), "__globals__", None) is own.__globals__)
            reached += [one for one in of_its_own if one not in reached]
        self._caches = [each for each in found if isinstance(each, CACHE)]
        self._before = [(each, copy.copy(each)) for each in found if isinstance(each, (dict, list, set))]

    def forget(self) -> None:
        """Everything is as it was."""
        for cache in self._caches:
            cache.cache_clear()
        for each, before in self._before:
            each.clear()
            each.extend(before) if isinstance(each, list) else each.update(before)


@contextlib.contextmanager
def another_process() -> Iterator[None]:
    """`hash` gives texts and bytes, and what holds them, other numbers, and os.getpid this thread another one."""
    usual, pid, here = builtins.hash, os.getpid, threading.get_ident()

    def otherwise(value: object) -> int:
        if isinstance(value, (str, bytes)):
            return usual(("another process", value))
        return usual((*map(otherwise, value),)) if isinstance(value, tuple) else usual(value)

    builtins.hash, os.getpid = otherwise, lambda: pid() + (threading.get_ident() == here)
    try:
        yield
    finally:
        builtins.hash, os.getpid = usual, pid
