"""How questions about a model and its ranks are named: whoever fails one can work it out by hand.

a question --> "stage 1: 1,000,003 parameters of 2 + 2 + 12 bytes, 183 ranks" --> its answer
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Asked: TypeAlias = dict[str, Any]  # arguments by name
USUAL, STATES_FIRST = ["parameters", "gradients", "states"], ["states", "parameters", "gradients"]


def by_name(questions: Iterable[Asked]) -> dict[str, Asked]:
    """The questions, each under a name that has all of its numbers."""
    return {", ".join([_model(each), *_conditions(each)]): each for each in questions}


def laid_in(order: Iterable[str], recipe: Mapping[str, int]) -> dict[str, int]:
    """The recipe with its names in this order, which a sheet does not keep."""
    return {name: recipe[name] for name in order}


def _model(asked: Asked) -> str:
    stage = f"stage {asked['stage']}: " if "stage" in asked else ""
    recipe = f" of {_bytes(asked['recipe'])}" if "recipe" in asked else ""
    return f"{stage}{_count(asked['n'], 'parameter')}{recipe}, {_count(asked['size'], 'rank')}"


def _bytes(recipe: Mapping[str, int]) -> str:
    """In the order in which exercises name them."""
    return " + ".join(str(recipe[name]) for name in USUAL) + " bytes"


def _conditions(asked: Asked) -> list[str]:
    limit = [f"at most {_count(asked['limit'], 'byte')}"] if "limit" in asked else []
    often = [_count(asked["micro_batches"], "micro-batch", "micro-batches")] if "micro_batches" in asked else []
    return [*limit, *often, *(["kept full"] if asked.get("keeps_full") else [])]


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
