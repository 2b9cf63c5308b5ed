"""The students' wheel: `course` without the references, and without `autograder`.

A wheel is a zip of the package with three small files about it (packaging.python.org, "Binary distribution format",
version 1.0), so that no build tool is needed where a bundle is made. Every time stamp is the same and nothing is
compressed: same input, same bytes, whatever zlib is at hand.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from autograder.release.errors import ReleaseError

PACKAGE = "course"
REFERENCES = "course/reference/"
GRADING_ONLY = {"jinja2", "jupytext", "nbclient", "nbgrader"}  # requirements that `course` itself never imports
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can hold
WHEEL = "Wheel-Version: 1.0\nGenerator: hpml-course\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def student_wheel(root: Path) -> tuple[str, bytes]:
    """File name and bytes of the wheel, from the checkout at `root`. Raises ReleaseError."""
    project = _project(root)
    stem = f"{re.sub(r'[-_.]+', '_', project['name']).lower()}-{project['version']}"
    info = f"{stem}.dist-info"
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in package_files(root)}
    files |= {f"{info}/licenses/{name}": (root / name).read_bytes() for name in project["license-files"]}
    files[f"{info}/METADATA"] = _metadata(project).encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    files[f"{info}/entry_points.txt"] = f"[console_scripts]\ncourse = {project['scripts']['course']}\n".encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    return f"{stem}-py3-none-any.whl", _zip(files)


def package_files(root: Path) -> list[Path]:
    """What of `course` students get: every file but references, caches and hidden ones, sorted."""
    return sorted(path for path in (root / PACKAGE).rglob("*") if path.is_file() and _shipped(path.relative_to(root)))


def _shipped(name: Path) -> bool:
    hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    return not hidden and not name.as_posix().startswith(REFERENCES)


def requirements(root: Path) -> list[str]:
    """What `course` needs at run time: the project's requirements but for those of grading."""
    needed: list[str] = _project(root)["dependencies"]
    return [line for line in needed if requirement_name(line) not in GRADING_ONLY]


def requirement_name(line: str) -> str:
    """`nbgrader` of `nbgrader>=0.9.5,<0.10`."""
    return re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0].lower()


def _project(root: Path) -> dict[str, Any]:
    try:
        project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise ReleaseError(f"{root} must hold the course's pyproject.toml, but: {error}") from None
    return project


def _metadata(project: dict[str, Any]) -> str:
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Summary: {project['description']}", f"License-Expression: {project['license']}"]
    lines += [f"License-File: {name}" for name in project["license-files"]]
    lines += [f"Requires-Python: {project['requires-python']}"]
    needed = [line for line in project["dependencies"] if requirement_name(line) not in GRADING_ONLY]
    return "\n".join([*lines, *[f"Requires-Dist: {line}" for line in needed]]) + "\n"


def _record(files: dict[str, bytes], own_name: str) -> str:
    """Name, hash and size of every file; of itself only the name."""
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*rows, f"{own_name},,"]) + "\n"


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.create_system = 3  # Unix, wherever this runs
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()
