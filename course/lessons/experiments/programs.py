"""Short programs as text, each with a wrong line that a student replaces.

text, line number, new line --mended--> text --defined--> the function that it defines
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course.apart import apart
from course.errors import BadArgument, WrongOutput


class Programs(dict[str, str]):
    """Texts by name, each of which defines a function of that name."""

    def listing(self, name: str) -> str:
        """The program with a number before each line."""
        return "\n".join(f"{number:2d}  {line}" for number, line in enumerate(self[name].splitlines(), start=1))

    def mended(self, name: str, number: int, line: str) -> str:
        """The program with `line` in the place of line `number`, counted from 1; it gets the indentation of that line.

        Raises BadArgument where there is no such line, or `line` is not one line.
        """
        lines = self[name].splitlines()
        if not 1 <= number <= len(lines):
            raise BadArgument(f"{name} has the lines 1 to {len(lines)}, got {number}")
        new, old = line.strip(), lines[number - 1]
        if len(new.splitlines()) != 1:
            raise BadArgument(f"line {number} of {name} must be replaced by one line, got {len(new.splitlines())}")
        lines[number - 1] = old[: len(old) - len(old.lstrip())] + new
        return "\n".join(lines) + "\n"

    def defined(self, name: str, text: str = "") -> Callable[..., Any]:
        """The function `name` that `text` defines, or the program as it stands here if it is left out.

        It is executed, so only where its author's code is; its lines do not see the frames of who runs them.
        """
        return apart(apart(_executed)(name, text or self[name]))


def _executed(name: str, text: str) -> Any:
    namespace: dict[str, Any] = {"torch": torch, "math": math}
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), namespace)
    return namespace[name]


def replacement(found: Any, name: str) -> tuple[int, str]:
    """What an answer replaces in one program: the number of a line, and its new text.

    found  {program's name: (number, text), ...}; WrongOutput is raised where it has no such pair
    """
    if not isinstance(found, dict) or name not in found:
        came = f"the keys {', '.join(map(str, found))}" if isinstance(found, dict) else type(found).__name__
        raise WrongOutput(f"must return a dict with the key {name!r}, got {came}")
    pair = found[name]
    kinds = [type(each) for each in pair] if isinstance(pair, (tuple, list)) else []
    if kinds[1:] != [str] or not (kinds[0] is int or issubclass(kinds[0], np.integer)):
        raise WrongOutput(f"{name!r} must have a line number and a line, such as (2, 'x = 1'), got {pair!r:.80}")
    return int(pair[0]), pair[1]
