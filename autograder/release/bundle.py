"""`autograder release --to DIR`: what students are given, in one folder.

    README.md AGENTS.md LICENSE     how to start; how an AI assistant should help
    constraints.txt environment.yml exact versions, for pip and for conda
    hpml_course-*.whl               `course` with its answer sheets, without references and grader
    notebooks/                      the lessons
    bundle.json                     the hash of every file: by it an earlier bundle is known

The folder appears as a whole: it is written beside and renamed last.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from string import Template

from autograder.release.building import build
from autograder.release.errors import ReleaseError
from autograder.release.wheel import requirement_name, requirements, student_wheel

MANIFEST = "bundle.json"
ENVIRONMENT = (
    "name: hpml-course",
    "channels:",
    "  - conda-forge",
    "dependencies:",
    "  - python=3.11",
    "  - pip",
    "  - pip:",
)
TEXTS = Path(__file__).parent / "student"


def release(to: Path, *, root: Path) -> tuple[str, ...]:
    """Write the student bundle of the course at `root` to the folder `to`; returns the names of its files.

    Raises ReleaseError where committed notebooks or sheets are not what the lessons make, or where `to` holds
    anything else than an untouched earlier bundle or cannot be written; AuthorError where a lesson is not sound.
    """
    target = to.resolve()
    _demand_replaceable(target)
    report = build(root, check=True)
    if report.differing:
        raise ReleaseError(
            f"notebooks and answer sheets must be those of the lessons, but {report.differing[0]}; "
            "run `autograder build` and look at what changed"
        )
    files = bundle_files(root, report.lessons)
    write_bundle(files, target)
    return tuple(files)


def bundle_files(root: Path, lessons: tuple[str, ...]) -> dict[str, bytes]:
    """Every file of the bundle by name, sorted; the same checkout gives the same bytes."""
    wheel, data = student_wheel(root)
    pins = [line for line in _text(root, "constraints.txt").splitlines() if line and not line.startswith("#")]
    torch = next((line for line in pins if requirement_name(line) == "torch"), "torch")
    files = {
        wheel: data,
        "LICENSE": _text(root, "LICENSE").encode(),
        "constraints.txt": "\n".join(["# The versions that the course was tested with.", *pins, ""]).encode(),
        "environment.yml": _environment(wheel, [requirement_name(line) for line in requirements(root)], pins).encode(),
        "README.md": Template(_text(TEXTS, "README.md")).substitute(wheel=wheel, torch=torch).encode(),
        "AGENTS.md": _text(TEXTS, "AGENTS.md").encode(),
    }
    for stem in lessons:
        files[f"notebooks/{stem}.ipynb"] = (root / "notebooks" / f"{stem}.ipynb").read_bytes()
    return dict(sorted(files.items()))


def _text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except OSError as error:
        raise ReleaseError(f"{folder / name} must be readable to make a bundle, but {error.strerror}") from None


def _environment(wheel: str, needed: list[str], pins: list[str]) -> str:
    """conda gives Python, pip the rest at the constrained versions."""
    exact = [line for line in pins if requirement_name(line) in needed]
    by_pip = [f"      - {line}" for line in ("-c constraints.txt", *exact, f"./{wheel}")]
    return "\n".join([*ENVIRONMENT, *by_pip, ""])


# --- writing ---------------------------------------------------------------------------------------


def write_bundle(files: dict[str, bytes], target: Path) -> None:
    """Write the files and their manifest to `target`, in place of an earlier bundle. Raises ReleaseError."""
    _demand_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.partial-") as temporary:
        new, old = Path(temporary) / "new", Path(temporary) / "old"
        for name, data in {**files, MANIFEST: _manifest(files)}.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(data)
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(new, target)
        except BaseException:
            if old.exists():
                os.rename(old, target)
            raise


def _manifest(files: dict[str, bytes]) -> bytes:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    body = {"bundle": "hpml-course", "schema": 1, "files": hashes}
    return (json.dumps(body, indent=1, sort_keys=True) + "\n").encode()


def _demand_replaceable(target: Path) -> None:
    """A bundle may replace nothing, an empty folder, or an earlier bundle in which nobody has worked."""
    if target == target.parent:
        raise ReleaseError(f"a bundle is a folder that can be replaced, which {target} is not; name another place")
    place = next(each for each in target.parents if each.exists())
    try:
        tempfile.TemporaryDirectory(dir=place).cleanup()
    except OSError as error:
        raise ReleaseError(f"a bundle must be written in {place}, but: {error.strerror}; name another place") from None
    if not target.exists():
        return
    if not target.is_dir():
        raise ReleaseError(f"a bundle is a folder, but {target} is a file; name another place")
    present = {path.relative_to(target).as_posix(): path for path in target.rglob("*") if not path.is_dir()}
    if not present:
        return
    hashes = _hashes(target / MANIFEST)
    if hashes is None:
        raise ReleaseError(f"{target} must be empty or an earlier bundle, but holds other files; name another folder")
    for name, path in present.items():
        untouched = name in hashes and hashes[name] == hashlib.sha256(path.read_bytes()).hexdigest()
        if name != MANIFEST and not untouched:
            raise ReleaseError(
                f"the earlier bundle {target} must be as it was released, but {name} was added or changed; "
                "move your work away or name another folder"
            )


def _hashes(manifest: Path) -> dict[str, str] | None:
    """The hashes that a bundle's manifest holds; None where it is no such manifest."""
    try:
        body = json.loads(manifest.read_text(encoding="utf-8"))
        return dict(body["files"]) if body["bundle"] == "hpml-course" else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
