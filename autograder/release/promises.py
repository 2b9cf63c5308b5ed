"""What a student's docstring promises, held against what its exercise declares to judge.

    Refused   with a ValueError: a negative lr, a beta of 1        promises = {"a negative lr": ("refusals",), ...}

A contract paragraph is one with a label at its left (`Refused`, `Cost`, `x`, ...), or a sentence between those. Each
holds a declared promise, each item of `Refused` is one, and no word that promises a dtype, a boundary or an unchanged
argument stands outside of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from course.performing.exercise import PUBLIC_SEED, Exercise

TOLD_ELSEWHERE = ("Example", "Not allowed", "Used as", "You may call")  # `removes` and the worked solution hold these
LABEL = re.compile(r"(?P<label>\S[^\n]*?)  +(?P<text>\S.*)", re.DOTALL)
BINDING = re.compile(r"\bdtypes?\b|\bfloating\b|\bat least 0\b|\bmay (?:be|equal|repeat)\b|\bchanged\b|\bdiffer\b")
NAME_IT = "; name these words in `promises`, with what judges them"


def unkept(exercise: Exercise, docstring: str) -> list[str]:
    """A sentence for each promise that no case and no property judges, and each that is declared and not made."""
    text = _one_line(docstring)
    known = {each.name for each in exercise.properties} | {case.name for case in exercise.draw(PUBLIC_SEED)}
    found = [
        f"`{words}` is declared as a promise and does not stand in the docstring"
        for words in exercise.promises
        if words not in text
    ]
    for words, judges in exercise.promises.items():
        strange = [name for name in judges if name not in known]
        found += [f"`{words}` must name cases or properties, got {', '.join(strange) or 'none'}"] * bool(
            strange or not judges
        )
    for label, paragraph in _paragraphs(docstring):
        found += _open(label, paragraph, [words for words in exercise.promises if words in paragraph])
    return found


def _open(label: str, paragraph: str, made: list[str]) -> Iterator[str]:
    """What of a paragraph no promise covers."""
    rest = paragraph
    for words in sorted(made, key=len, reverse=True):
        rest = rest.replace(words, "...")
    if not made:
        yield f"nothing judges: {label} {paragraph}".rstrip() + NAME_IT
    elif label.startswith("Refused"):
        items = re.split(r"[,;]|\band\b", rest.partition(":")[2])
        open_items = (item.strip() for item in items if re.search(r"[a-z]", item))
        yield from (f"nothing judges the refusal of `{item}`{NAME_IT}" for item in open_items)
    elif bound := BINDING.search(rest):
        yield f"nothing judges `{bound[0]}` in: {label} {rest}".rstrip() + NAME_IT


def _paragraphs(docstring: str) -> Iterator[tuple[str, str]]:
    """(label, text) of every contract paragraph after the first line; "" where a line at the margin has no label."""
    blocks: list[str] = []
    for line in inspect.cleandoc(docstring).split("\n")[1:]:
        if line and not line.startswith(" "):
            blocks.append(line)
        elif line.strip() and blocks:
            blocks[-1] += f" {line.strip()}"
    for block in blocks:
        match = LABEL.fullmatch(block)
        label, text = (match["label"], match["text"]) if match else ("", block)
        if not block.startswith(TOLD_ELSEWHERE):
            yield label, _one_line(text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
