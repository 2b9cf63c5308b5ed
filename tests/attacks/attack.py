"""What an attack is, and how to write one in a few lines.

    Attack(name, make, honest, ...)        make(places) -> the bytes that the attacker hands in

    body("exit", "os._exit(0)")            lines of the attacked answer `quadratic_grads`
    answer("late_reply", source)           the whole answer cell
    cell("forged", source)                 a free cell above all others; it runs in the display run only
    changed("tags", function)              a change of the solved notebook
    raw("no_json", data)                   a file that is no notebook

An attack that succeeds calls `won()`, sends something, writes something, or shows the secret; tests look for all four.
Each is bounded by itself: 300 forks, 6 GiB, this machine's loopback, 60 seconds.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from attacks import lesson

VICTIM = "quadratic_grads"
SIGNATURE = f"def {VICTIM}(a, b, c, x, y):\n"
RIGHT = "return a * x**2 + b * x * y + c * y**2, 2 * a * x + b * y, b * x + 2 * c * y"
WRONG = f"{SIGNATURE}    return 0.5, 0.5, 0.5\n"

PRELUDE = """\
import os

PLACES = {places!r}


def won(how=""):
    raise RuntimeError(PLACES["shout"][::-1] + " " + str(how)[:200])


def alone():
    # Whether the grader's own processes are out of sight: nothing is killed before that is known.
    try:
        return os.readlink("/proc/self/ns/pid") != PLACES["namespace"]
    except OSError:
        return True


"""


@dataclass(frozen=True, kw_only=True)
class Places:
    """What an attacker may know. Nothing of it is secret; the defaults lead nowhere.

    shout      the word of success, spelt backward, so that the notebook itself does not contain it
    outside    a file that nobody may write; `home` a home folder that nobody may write in
    namespace  the process namespace of the grader, and `pid` its number there
    """

    shout: str = "enohon"
    gradebook: str = "/nonexistent/gradebook.db"
    solution: str = "/nonexistent/source.ipynb"
    other: str = "/nonexistent/other.ipynb"
    outside: str = "/nonexistent/outside"
    home: str = "/nonexistent/home"
    port: int = 9
    unix: str = "/nonexistent/socket"
    abstract: str = "hpml-nobody"
    namespace: str = ""
    pid: int = 0


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One submission that tries to get what it does not deserve.

    honest   points by exercise name where they are not those of an honest student
    display  whether cells are executed for people to look at: where the attack is
    bites    harmless, and leaves its trace where there are no walls: proof that the test would see it
    beside   puts files beside the notebook
    times    how often it is graded: something of an earlier run may be what a later one looks for
    wait     seconds until the trace would show
    costly   to grade it takes seconds or gigabytes: only a release's tests do so
    heavy    so costly that even the large class of a release leaves it out
    """

    name: str
    make: Callable[[Places], bytes]
    honest: Mapping[str, int] = field(default_factory=dict)
    display: bool = False
    bites: bool = False
    beside: Callable[[Path, Places], None] | None = None
    times: int = 1
    wait: float = 0.0
    costly: bool = False
    heavy: bool = False

    def expected(self) -> dict[str, int]:
        """The honest points of every exercise."""
        return {**lesson.honest(), **self.honest}


NOTHING = dict.fromkeys(lesson.honest(), 0)


def with_prelude(source: str, places: Places) -> str:
    """The source, below what it needs to know."""
    return PRELUDE.format(places=dataclasses.asdict(places)) + source


def body(name: str, lines: str, *, earns: int = 0, **fields: object) -> Attack:
    """An answer to `quadratic_grads(a, b, c, x, y)` made of these lines."""
    return answer(name, SIGNATURE + textwrap.indent(textwrap.dedent(lines).strip("\n"), "    "), earns=earns, **fields)


def answer(name: str, source: str, *, exercise: str = VICTIM, earns: int = 0, **fields: object) -> Attack:
    """An answer cell with this source, and all that an honest student has solved."""

    def make(places: Places) -> bytes:
        return lesson.to_bytes(lesson.solved(**{exercise: with_prelude(source, places)}))

    return Attack(name=name, make=make, honest={exercise: earns}, **fields)  # type: ignore[arg-type]


def cell(name: str, source: str, **fields: object) -> Attack:
    """A free cell that runs before all others; `quadratic_grads` is wrong, the rest honest."""

    def make(places: Places) -> bytes:
        notebook = lesson.solved(**{VICTIM: WRONG})
        notebook.cells.insert(0, new_code_cell(with_prelude(source, places), id="attack"))
        return lesson.to_bytes(notebook)

    return Attack(name=name, make=make, honest={VICTIM: 0}, display=True, **fields)  # type: ignore[arg-type]


def changed(name: str, change: Callable[[NotebookNode], None], **fields: object) -> Attack:
    """The solved notebook after a change in place."""

    def make(places: Places) -> bytes:
        notebook = lesson.solved()
        change(notebook)
        return lesson.to_bytes(notebook)

    return Attack(name=name, make=make, **fields)  # type: ignore[arg-type]


def raw(name: str, data: Callable[[], bytes], **fields: object) -> Attack:
    """A file with these bytes, which earns nothing unless said otherwise."""
    return Attack(name=name, make=lambda places: data(), **{"honest": NOTHING, **fields})  # type: ignore[arg-type]
