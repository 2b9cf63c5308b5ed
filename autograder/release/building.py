"""`autograder build`: from `solutions/` to everything that is made of it.

    solutions/NN_slug.py --> notebooks/NN_slug.ipynb                    students; committed
                         --> course/sheets/slug.safetensors.gz          answer sheet; committed
                         --> build/source/NN_slug/NN_slug.ipynb         nbgrader's instructor version
                         --> build/release/NN_slug/NN_slug.ipynb        nbgrader's student version

Nothing is written before every lesson is sound: a mistake of an author leaves all files as they were.
"""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from autograder.release import authored, notebook, numbers, rules, sheets, worked
from autograder.release.authored import Lesson
from autograder.release.errors import ReleaseError
from course.errors import SheetError
from course.judging import sheet
from course.judging.sheet import Record

Records: TypeAlias = dict[str, Record] | None  # None: not recorded


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build did.

    lessons    stems of the lessons, in order
    written    files whose bytes changed, relative to the root
    differing  a sentence for each committed file that is not what the lessons make
    """

    lessons: tuple[str, ...]
    written: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()


def build(root: Path, lesson: str = "*", *, check: bool = False, with_sheets: bool = True) -> BuildReport:
    """Build every lesson under `root`; with `check`, write nbgrader's trees alone and say which committed files differ.

    lesson       the name of one, such as 01_computational_graphs, to build no other
    with_sheets  whether to record answer sheets, too, which takes most of the time
    Raises AuthorError with file and line, ReleaseError where there is no lesson.
    """
    lessons = [_sound(path, root) for path in _files(root, lesson)]
    names = tuple(lesson.unit.notebook for lesson in lessons)
    made = [(each, worked.records(each, _committed(root, each.unit.slug)) if with_sheets else None) for each in lessons]
    differing: list[str] = []
    if check:
        differing += [sentence for each, records in made for sentence in _differing(root, each, records)]
        differing += _strays(root)
    written = [name for each, records in made for name in _write(root, each, records, committed=not check)]
    return BuildReport(lessons=names, written=tuple(written), differing=tuple(differing))


def _files(root: Path, lesson: str) -> list[Path]:
    found = sorted(each for each in (root / "solutions").glob("*.py") if fnmatch.fnmatch(each.stem, lesson))
    if not found:
        raise ReleaseError(f"{root / 'solutions'} must hold lessons NN_slug.py, but holds none; name the checkout")
    return found


def _sound(path: Path, root: Path) -> Lesson:
    lesson = authored.read(path, root)
    rules.enforce(lesson)
    return numbers.written(lesson, root)


# --- comparing -------------------------------------------------------------------------------------


def _differing(root: Path, lesson: Lesson, records: Records) -> list[str]:
    name = f"notebooks/{lesson.unit.notebook}.ipynb"
    found = [] if _bytes(root / name) == notebook.students(lesson) else [f"{name} is not what {lesson.file} makes"]
    slug = lesson.unit.slug
    return found + [f"{_sheet_name(slug)}: {each}" for each in _sheet_differs(root, slug, records)]


def _strays(root: Path) -> list[str]:
    """Committed notebooks that no lesson makes any more."""
    found = sorted((root / "notebooks").glob("*.ipynb"))
    strays = [path for path in found if not (root / "solutions" / f"{path.stem}.py").is_file()]
    return [f"notebooks/{path.name} is made by no lesson; delete it" for path in strays]


def _sheet_name(slug: str) -> str:
    return f"course/sheets/{slug}.safetensors.gz"


def _committed(root: Path, slug: str) -> dict[str, Record]:
    """What the unit's sheet holds now; nothing where it cannot be read."""
    data = _bytes(root / _sheet_name(slug))
    try:
        return {} if data is None else sheet.from_file(data)
    except SheetError:
        return {}


def _sheet_differs(root: Path, slug: str, records: Records) -> list[str]:
    if records is None:
        return []
    data = _bytes(root / _sheet_name(slug))
    if data is None:
        return ["there is no such file"]
    try:
        return sheets.sheets_differ(sheet.from_file(data), records)
    except SheetError as error:
        return [str(error)]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


# --- writing ---------------------------------------------------------------------------------------


def _write(root: Path, lesson: Lesson, records: Records, *, committed: bool) -> list[str]:
    """Writes a lesson's files, those that are committed too or not; returns the names of those whose bytes changed.

    An equivalent sheet stays as it is, so that the last bits of this machine make no commit.
    """
    stem, slug = lesson.unit.notebook, lesson.unit.slug
    for_students = notebook.students(lesson)
    files = {
        f"build/source/{stem}/{stem}.ipynb": notebook.instructor(lesson),
        f"build/release/{stem}/{stem}.ipynb": for_students,
    }
    if committed:
        files[f"notebooks/{stem}.ipynb"] = for_students
        if records is not None and _sheet_differs(root, slug, records):
            files[_sheet_name(slug)] = sheet.compressed(sheet.write(slug, records))
    return [name for name, data in files.items() if _replace(root / name, data)]


def _replace(path: Path, data: bytes) -> bool:
    """Writes beside and renames, so that nobody reads half a file; False where the bytes are there already."""
    if _bytes(path) == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial")
    beside.write_bytes(data)
    os.replace(beside, path)
    return True
