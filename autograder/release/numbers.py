"""Numbers in a lesson's prose: the build writes those that an experiment gives, and no others are typed.

    {{ expression }}, {{ expression : format spec }} --evaluate--> the text that students read

An expression may use the names of `solutions/numbers/<slug>.py`, whose functions compute from recorded data or from a
lesson's experiments, `workload`, and `spelled` for a count in words. What stands outside of expressions, formulas,
code, headings, links and references (section 3.2) is typed, and must be small or a year, a number of the lesson's code
cells, beside its source in its sentence, list item or table row, or a key of the module's `GIVEN`, a dict that says
why for each.
"""

from __future__ import annotations

import ast
import functools
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from autograder.release.authored import Cell, Lesson, parse
from autograder.release.errors import AuthorError
from course.syllabus import Unit

EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
NUMBER = re.compile(r"(?<![A-Za-z_\d.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?%?")
MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
EXEMPT = re.compile(
    r"\{\{.*?\}\}|```.*?```|`[^`]*`|\$\$.*?\$\$|\$(?:[^$\n]|\n(?!\n))*\$|^#+ [^\n]*|\[[^\]]*\]\([^)]*\)|https?://\S+"
    rf"|\b\d+ {MONTH}\b"
    r"|\b(?:[Ss]ections?|Theorems?|Algorithm|JMLR)\s\d[\d.]*(?:(?:,| and| to)\s\d[\d.]*)*",
    re.DOTALL | re.MULTILINE,
)
TITLE = rf"\b(?!In\b|{MONTH}\b)[A-Z]\w+(?: \d+)?,? \(?(?:19|20)\d\d\b"  # with its year
SOURCE = re.compile(rf"arXiv|https?://|\bet al\.|{TITLE}|[A-Z]\w+, section \d")
BLOCK_END = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=\|)")
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\bal\.)[)\"*]*\s+(?=[A-Z\d(\"*$`{\[])")
COUNTS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ITEM = re.compile(r"\s*(?:[-*] |\d+\. |\|)")


def written(lesson: Lesson, root: Path) -> Lesson:
    """The lesson with every expression's value in its place. Raises AuthorError with file and line."""
    file = f"solutions/numbers/{lesson.unit.slug}.py"
    source = (root / file).read_text(encoding="utf-8") if (root / file).is_file() else ""
    names: dict[str, Any] = {"workload": functools.partial(workload, lesson.unit), "spelled": spelled}
    names |= _names(source, file, root)
    _demand_no_typed_results(lesson, names.get("GIVEN", {}), source, file)
    return replace(lesson, cells=tuple(_filled(cell, names) if cell.role == "text" else cell for cell in lesson.cells))


def workload(unit: Unit, *, reading: int, sittings: int) -> str:
    """What a lesson asks for, in a sentence; the exercises' minutes are the syllabus's, `reading` is all else."""
    work = sum(each.minutes for each in unit.entries if not each.bonus)
    bonus = sum(each.minutes for each in unit.entries if each.bonus)
    said = f"The exercises take about {work} minutes, reading and experiments about {reading}: "
    said += f"{spelled(sittings)} sittings of about {(work + reading) / sittings:.0f} minutes."
    return said + (f" The bonus exercise adds {bonus} minutes." if bonus else "")


def spelled(count: int) -> str:
    """A count as it stands in text: in words from 0 to 12, in digits beyond."""
    return COUNTS[count] if 0 <= count < len(COUNTS) else f"{count:,}"


def _names(source: str, file: str, root: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "numbers", "__file__": str(root / file)}
    try:
        exec(compile(source, file, "exec", dont_inherit=True), names)
    except Exception as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = error.lineno if isinstance(error, SyntaxError) else own[-1]
        raise AuthorError(file, line or 1, f"it must run, but raised {type(error).__name__}: {error}") from error
    return names


def _filled(cell: Cell, names: dict[str, Any]) -> Cell:
    def value(found: re.Match[str]) -> str:
        expression, _, spec = " ".join(found[1].split()).partition(" : ")
        try:
            result = eval(expression, names)
            if isinstance(result, float) and not spec:
                raise ValueError("a float needs a format, as in `{{ loss : .2f }}`")
            return format(result, spec)
        except Exception as error:
            sentence = f"`{found[0]}` must give a number, but: {type(error).__name__}: {error}"
            raise cell.mistake(sentence, _line(cell.source, found.start())) from error

    return replace(cell, source=EXPRESSION.sub(value, cell.source))


def _demand_no_typed_results(lesson: Lesson, given: dict[str, str], source: str, file: str) -> None:
    shown = {value for cell in lesson.cells if cell.role == "code" for value in _literals(cell)}
    used = set()
    for cell in lesson.cells:
        for number, at in _unsourced(cell.source) if cell.role == "text" else ():
            if _value(number) in shown:
                continue
            if number not in given:
                raise cell.mistake(
                    f"`{number}` is typed: let the build write it (`{{{{ expression }}}}`), give its source in its "
                    f"sentence, or, where no experiment gives it, its reason in GIVEN of {file}",
                    _line(cell.source, at),
                )
            used.add(number)
    for number in given:
        if number not in used:
            line = _line(source, max(source.find(f'"{number}"'), 0))
            raise AuthorError(file, line, f"GIVEN must hold only what the lesson needs, but nothing needs `{number}`")


def _literals(cell: Cell) -> Iterator[float]:
    for node in ast.walk(parse(cell)):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            yield float(node.value)


def _unsourced(text: str) -> Iterator[tuple[str, int]]:
    """Typed numbers with their places, but for small ones, years, and those with a source beside them."""
    masked = EXEMPT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for start, block in _pieces(text, BLOCK_END):
        for offset, piece in [(0, block)] if ITEM.match(block) else _pieces(block, SENTENCE_END):
            begin = start + offset
            if not SOURCE.search(" ".join(piece.split())):
                found = NUMBER.finditer(masked, begin, begin + len(piece))
                yield from ((each[0], each.start()) for each in found if not _structural(each[0]))


def _pieces(text: str, end: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The pieces of the text between the ends, each with the place where it begins."""
    begin = 0
    for found in end.finditer(text):
        yield begin, text[begin : found.start()]
        begin = found.end()
    yield begin, text[begin:]


def _structural(number: str) -> bool:
    return number.isdigit() and (int(number) <= 12 or 1900 <= int(number) <= 2099)


def _value(number: str) -> float:
    plain = Decimal(number.rstrip("%").replace(",", ""))
    return float(plain / 100 if number.endswith("%") else plain)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
