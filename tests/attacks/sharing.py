"""Answers that leave something in their process for the exercise that is performed there next; in vain."""

from __future__ import annotations

from attacks import lesson
from attacks.attack import RIGHT, SIGNATURE, VICTIM, Attack, Places, with_prelude

NEXT = "linear_vjp"
SIGNATURE_OF_NEXT = "def linear_vjp(dout, x, w):\n"

FUNCTION = f"""
import math

{SIGNATURE}    math.left = solved
    {RIGHT}


{lesson.solutions()[NEXT].replace(NEXT, "solved")}
"""
VALUES = f"""
import torch

{SIGNATURE}    torch.left = [*getattr(torch, "left", []), a, b, c, x, y]
    {RIGHT}
"""
PROBE = f"""
import sys

{SIGNATURE}    probe = sys.modules.get("course.exercises.computational_graphs.{NEXT}")
    if probe is not None:
        probe.observe = lambda *given, **options: won("the next exercise's probe")
        object.__setattr__(probe.EXERCISE, "probe", won)
    {RIGHT}
"""
UNSEEN = f"""
import sys

{SIGNATURE}    inside = sys.modules.get("autograder.sandbox.inside.container")
    never = type("Never", (), {{"__eq__": lambda *_: True, "__ne__": lambda *_: False}})()
    if inside is not None:
        inside.traces.found = lambda: never
        values = {{"dx": 0.5, "dw": 0.5, "db": 0.5}}
        inside.perform = lambda *given, **options: inside.Observation(values=values)
    {RIGHT}
"""


def _two(name: str, first: str, second: str = "", **honest: int) -> Attack:
    """These sources in the answer cells of two exercises that share a process; the second is right if none is given."""

    def make(places: Places) -> bytes:
        beside = {NEXT: with_prelude(second, places)} if second else {}
        return lesson.to_bytes(lesson.solved(**{VICTIM: with_prelude(first, places)}, **beside))

    return Attack(name=name, make=make, honest=honest)


ATTACKS = [
    _two(
        "a_function_for_the_next",
        FUNCTION,
        f"import math\n\n\n{SIGNATURE_OF_NEXT}    return math.left(dout, x, w)\n",
        linear_vjp=0,
    ),
    _two(
        "numbers_for_the_next",
        VALUES,
        f"import torch\n\n\n{SIGNATURE_OF_NEXT}    won(torch.left)\n",
        linear_vjp=0,
    ),
    _two("another_probe_for_the_next", PROBE),
    _two("a_process_that_hides_what_it_left", UNSEEN),
]
