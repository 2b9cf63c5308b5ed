"""What grading needs of a notebook's file: bytes in, plain cells out, or one sentence that says why not.

    bytes --stdin--> python slim.py --stdout--> cells as JSON, or why they were refused

A large file, and one of an old format, is read by a process of its own, which runs this file, so that nobody else pays
for what a stranger's JSON costs. Therefore it imports nothing of ours, and of others' only what it uses.
"""

from __future__ import annotations

import html
import json
import resource
import sys
from typing import Any

MAX_CELLS = 5_000
MAX_PARTS = 500_000  # lists and objects, each of which takes a hundred bytes of memory and more
CELL, TOTAL = 200_000, 2 * 2**20  # bytes of one cell, and of all, as pages hold them, where & takes five
MARGIN = 4  # bytes that each further line of a text gets, which is shown as it was typed
NAMES = {"hpml": ("exercise", "role"), "nbgrader": ("grade_id", "locked", "solution")}  # in a cell's metadata
LONGEST = 1_000  # characters of one of them
LEFT_OUT = f"left out: a cell may hold {CELL:,} bytes of HTML, and all together {TOTAL:,}"  # in place of a longer one
MEMORY, SECONDS = 2**30, 20  # that a process of its own may take


class Refused(ValueError):
    """What is no notebook, or none that can be read; in one sentence."""


class Old(Exception):
    """A notebook of a format before 4: to upgrade one, nbformat validates it, which takes a hundred times its size."""


def slim(data: bytes, *, upgrade: bool = True) -> list[dict[str, Any]]:
    """The cells of a notebook: kind, source, id, and the names under which the course knows them.

    Nothing is validated against a schema, because everything else is dropped. Older formats are upgraded first.
    Raises Refused, and Old where one is not to be upgraded here.
    """
    if _parts(data) > MAX_PARTS:
        raise Refused(f"a notebook must not hold more than {MAX_PARTS:,} lists and objects")
    notebook = _parse(data)
    if notebook.get("nbformat", 4) != 4:
        if not upgrade:
            raise Old
        notebook = _latest(notebook)
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise Refused("the file is JSON, but no notebook: it has no list of cells")
    if len(cells) > MAX_CELLS:
        raise Refused(f"a notebook must not have more than {MAX_CELLS} cells, got {len(cells)}")
    return _without_long_ones([_needed(cell) for cell in cells if isinstance(cell, dict)])


def _parts(data: bytes) -> int:
    """The lists and objects of a JSON text; what stands in its strings, such as a list that was printed, is none."""
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # every quote that is left opens or closes a string
    outside = b"".join(bare.split(b'"')[::2])
    return outside.count(b"{") + outside.count(b"[")


def source_of(value: object) -> str:
    """Of a cell: a string, or a list of them, with lines that end as everywhere."""
    text = "".join(map(text_of, value)) if isinstance(value, list) else text_of(value)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def text_of(value: object) -> str:
    """The string without half surrogate pairs, which no file can hold; "" for anything else."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def mapping_of(value: object) -> dict[str, Any]:
    """The dict; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _needed(cell: dict[str, Any]) -> dict[str, Any]:
    metadata = mapping_of(cell.get("metadata"))
    names = {part: _short(mapping_of(metadata.get(part)), *fields) for part, fields in NAMES.items()}
    return {**_short(cell, "cell_type", "id"), "source": source_of(cell.get("source")), "metadata": names}


def _short(given: dict[str, Any], *fields: str) -> dict[str, Any]:
    """These fields, as far as they are truth values or short texts."""
    found = {field: given.get(field) for field in fields}
    return {field: value for field, value in found.items() if value is True or 0 < len(text_of(value)) <= LONGEST}


def _without_long_ones(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A sentence in place of a source that is too long by itself, or with those above it. Texts, which decide nothing,
    have the room that code leaves.
    """
    room, kept = TOTAL, [*cells]
    for at in sorted(range(len(cells)), key=lambda at: cells[at].get("cell_type") != "code"):
        cell, is_code = cells[at], cells[at].get("cell_type") == "code"
        margins = 0 if is_code else MARGIN * len(cell["source"].splitlines()[1:])
        if (size := len(html.escape(cell["source"]).encode()) + margins) > min(CELL, room):
            said = f"{LEFT_OUT}; this one held {size:,}"
            kept[at] = {**cell, "source": f"# {said}" if is_code else said}
        else:
            room -= size
    return kept


def _parse(data: bytes) -> dict[str, Any]:
    try:
        notebook = json.loads(data.decode("utf-8-sig"), parse_int=_small)
    except RecursionError:
        raise Refused("the file is nested too deeply to be read") from None
    except UnicodeDecodeError:
        raise Refused("the file is not UTF-8, in which Jupyter saves notebooks") from None
    except ValueError as error:  # includes json.JSONDecodeError
        place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise Refused(f"the file is not valid JSON{place}") from None
    if not isinstance(notebook, dict):
        raise Refused("the file is JSON, but no notebook")
    return notebook


def _small(digits: str) -> int:
    """Two digits of a whole number: only the format is needed, and a heading of format 3 becomes so many #."""
    return int(digits[:2])


def _latest(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook in format 4."""
    version = notebook["nbformat"]
    if type(version) is int and version > 4:
        raise Refused(f"the notebook has format {version}, newer than 4; save it in format 4")
    import nbformat

    try:
        for sheet in (notebook, *notebook.get("worksheets", [])):
            for cell in sheet.get("cells", []):
                if "outputs" in cell:
                    cell["outputs"] = []  # nobody needs them, and to validate each would take long
        node = nbformat.from_dict(notebook)  # type: ignore[no-untyped-call]
        if version == 3:  # in a file a text is a list of lines, of which the upgrade of a heading knows nothing
            node = nbformat.v3.rwbase.rejoin_lines(node)  # type: ignore[no-untyped-call]
        upgraded: dict[str, Any] = nbformat.convert(node, 4)  # type: ignore[no-untyped-call]
    except Exception as error:
        shown = version if type(version) is int else f"of type {type(version).__name__}"  # nothing that somebody wrote
        said = f"has a format {shown} and cannot be upgraded to 4 ({type(error).__name__})"
        raise Refused(f"the notebook {said}") from None
    return upgraded


def main() -> None:
    """Read a notebook from standard input, within MEMORY and SECONDS of the processor."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        found: Any = slim(sys.stdin.buffer.read())
    except Refused as error:
        found = {"refused": str(error)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
