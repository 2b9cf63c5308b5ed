"""The student bundle: complete enough to work with, and without a line of an answer."""

from __future__ import annotations

import ast
import functools
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import soak
from packaging.requirements import Requirement

from autograder import bank, edits
from autograder.release import BuildReport, ReleaseError, bundle, release
from autograder.release.authored import Cell, Lesson, parse, read
from autograder.release.bundle import MANIFEST, bundle_files, write_bundle
from autograder.release.wheel import requirement_name, student_wheel
from course.syllabus import entries

ROOT = Path(__file__).resolve().parent.parent
LESSONS = tuple(path.stem for path in sorted((ROOT / "solutions").glob("*.py")))
OPTIONAL = {"course", "optuna"}  # itself, and what a lesson does without where it is missing
BROUGHT = {"IPython": "jupyterlab"}  # modules that come with a requirement of another name

pytestmark = pytest.mark.skipif(not LESSONS, reason="needs solutions/")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The bundle of this checkout, as `release` writes it."""
    target = tmp_path_factory.mktemp("release") / "bundle"
    write_bundle(bundle_files(ROOT, LESSONS), target)
    return target


def _wheel(folder: Path) -> zipfile.ZipFile:
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def _names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# --- the wheel -------------------------------------------------------------------------------------


def test_wheel_holds_the_students_half_of_the_course(folder):
    names = _wheel(folder).namelist()
    assert {name.split("/")[0] for name in names} == {"course", "hpml_course-0.1.0.dist-info"}
    assert [name for name in names if name.startswith("course/reference") or "__pycache__" in name] == []


def test_wheel_holds_every_answer_sheet(folder):
    sheets = {path.name for path in (ROOT / "course/sheets").glob("*.safetensors.gz")}
    shipped = {name.removeprefix("course/sheets/") for name in _wheel(folder).namelist() if "/sheets/" in name}
    assert sheets == shipped == {f"{stem[3:]}.safetensors.gz" for stem in LESSONS}


def test_wheel_offers_one_command(folder):
    text = _wheel(folder).read("hpml_course-0.1.0.dist-info/entry_points.txt").decode()
    assert text == "[console_scripts]\ncourse = course.cli:main\n"


def test_record_names_every_file_of_the_wheel_with_its_size(folder):
    wheel = _wheel(folder)
    rows = [line.split(",") for line in wheel.read("hpml_course-0.1.0.dist-info/RECORD").decode().splitlines()]
    assert [name for name, _, _ in rows] == wheel.namelist()
    assert all(int(size) == wheel.getinfo(name).file_size for name, _, size in rows[:-1])


def test_wheel_is_the_same_bytes_from_another_checkout_of_another_time(tmp_path):
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "course", tmp_path / "course", copy_function=shutil.copyfile)
    (tmp_path / "course" / ".hidden").write_text("")
    (tmp_path / "course" / "reference" / "more.py").write_text("")
    assert student_wheel(tmp_path) == student_wheel(ROOT)


def test_wheel_requires_what_course_imports_and_nothing_of_grading(folder):
    wheel = _wheel(folder)
    metadata = wheel.read("hpml_course-0.1.0.dist-info/METADATA").decode().splitlines()
    required = {requirement_name(line.split(": ")[1]) for line in metadata if line.startswith("Requires-Dist: ")}
    sources = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".py")]
    imported = {module for source in sources for module in _imported(source)} - sys.stdlib_module_names - OPTIONAL
    assert {BROUGHT.get(module, module) for module in imported} <= required
    assert required.isdisjoint({"nbgrader", "jupytext", "nbclient"})


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


def test_where_there_is_no_project_a_sentence_says_so(tmp_path):
    with pytest.raises(ReleaseError, match=r"must hold the course's pyproject.toml"):
        student_wheel(tmp_path)


# --- what lies beside it ---------------------------------------------------------------------------


def test_bundle_holds_what_a_student_needs_and_no_more(folder):
    fixed = {"AGENTS.md", "LICENSE", "README.md", "bundle.json", "constraints.txt", "environment.yml"}
    lessons = {f"notebooks/{stem}.ipynb" for stem in LESSONS}
    assert _names(folder) == fixed | lessons | {"hpml_course-0.1.0-py3-none-any.whl"}


def test_readme_installs_torch_first_and_then_the_wheel_under_the_constraints(folder):
    lines = (folder / "README.md").read_text().splitlines()
    installs = [line for line in lines if line.startswith("pip install")]
    assert installs[0].startswith("pip install torch==")
    assert installs[1:] == ["pip install -c constraints.txt ./hpml_course-0.1.0-py3-none-any.whl"]
    assert (folder / "constraints.txt").read_text().splitlines().count(installs[0].split()[-1]) == 1


def test_conda_users_get_the_same_versions_and_the_same_wheel(folder):
    dependencies = yaml.safe_load((folder / "environment.yml").read_text())["dependencies"]
    by_pip = dependencies[-1]["pip"]
    constraints = (folder / "constraints.txt").read_text().splitlines()
    assert (by_pip[0], by_pip[-1]) == ("-c constraints.txt", "./hpml_course-0.1.0-py3-none-any.whl")
    assert {requirement_name(line) for line in by_pip[1:-1]} >= {"torch", "jupyterlab", "numpy"}
    assert set(by_pip[1:-1]) <= set(constraints)


def test_assistants_are_asked_to_tutor_and_not_to_answer(folder):
    text = (folder / "AGENTS.md").read_text()
    for word in ("Ask first", "Point", "Explain the check", "Do not write", "hint(entry)"):
        assert word in text
    assert 250 < len(text.split()) < 450


def test_texts_speak_to_students_only(folder):
    for name in ("README.md", "AGENTS.md", "constraints.txt", "environment.yml"):
        text = (folder / name).read_text()
        assert [word for word in ("autograder", "make lab", "pyproject", "nbgrader_config", "$") if word in text] == []


# --- writing it ------------------------------------------------------------------------------------

FILES = {"README.md": b"hello", "notebooks/a.ipynb": b"{}"}


def test_bundle_lists_the_hash_of_every_file(tmp_path):
    write_bundle(FILES, tmp_path / "to")
    hashes = json.loads((tmp_path / "to" / MANIFEST).read_text())["files"]
    assert hashes == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    assert _names(tmp_path / "to") == {*FILES, MANIFEST}


def test_earlier_bundle_is_replaced_as_a_whole(tmp_path):
    write_bundle({**FILES, "old.txt": b"old"}, tmp_path / "to")
    write_bundle(FILES, tmp_path / "to")
    assert _names(tmp_path) == {f"to/{name}" for name in (*FILES, MANIFEST)}


def test_empty_folder_may_be_named_and_missing_ones_are_made(tmp_path):
    (tmp_path / "empty").mkdir()
    write_bundle(FILES, tmp_path / "empty")
    write_bundle(FILES, tmp_path / "a" / "b")
    assert _names(tmp_path / "empty") == _names(tmp_path / "a" / "b")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda to: (to / MANIFEST).unlink(), "must be empty or an earlier bundle"),
        (lambda to: (to / MANIFEST).write_text("[]"), "must be empty or an earlier bundle"),
        (lambda to: (to / "notes.txt").write_text("mine"), "notes.txt was added or changed"),
        (lambda to: (to / "notebooks/a.ipynb").write_text("mine"), "a.ipynb was added or changed"),
    ],
)
def test_folder_with_anything_else_is_refused_and_left_alone(spoil, sentence, tmp_path):
    write_bundle(FILES, tmp_path / "to")
    spoil(tmp_path / "to")
    before = {name: (tmp_path / name).read_bytes() for name in _names(tmp_path)}
    with pytest.raises(ReleaseError, match=sentence):
        write_bundle(FILES, tmp_path / "to")
    assert {name: (tmp_path / name).read_bytes() for name in _names(tmp_path)} == before


def test_file_is_refused(tmp_path):
    (tmp_path / "to").write_text("")
    with pytest.raises(ReleaseError, match="is a file"):
        write_bundle(FILES, tmp_path / "to")


def test_place_below_a_file_is_refused_before_anything_is_built(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReleaseError, match=r"must be written in .*/file, but: Not a directory"):
        release(tmp_path / "file" / "to", root=tmp_path)


@pytest.mark.parametrize("failing", [1, 2])
def test_crash_while_writing_leaves_the_earlier_bundle(failing, tmp_path, monkeypatch):
    write_bundle(FILES, tmp_path / "to")
    before = {name: (tmp_path / name).read_bytes() for name in _names(tmp_path)}
    calls = []

    def replace(source, target, real=os.replace):
        calls.append(target)
        if len(calls) == failing:
            raise OSError("disk full")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="disk full"):
        write_bundle({"README.md": b"new"}, tmp_path / "to")
    assert {name: (tmp_path / name).read_bytes() for name in _names(tmp_path)} == before


def test_release_writes_what_the_lessons_make(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "build", lambda root, check: BuildReport(lessons=LESSONS))
    names = release(tmp_path / "to", root=ROOT)
    assert _names(tmp_path / "to") == {*names, MANIFEST}


def test_release_refuses_notebooks_that_are_not_those_of_the_lessons(tmp_path, monkeypatch):
    report = BuildReport(lessons=LESSONS, differing=("notebooks/x.ipynb is not what solutions/x.py makes",))
    monkeypatch.setattr(bundle, "build", lambda root, check: report)
    with pytest.raises(ReleaseError, match=r"x.ipynb is not what solutions/x.py makes; run `autograder build`"):
        release(tmp_path / "to", root=ROOT)
    assert not (tmp_path / "to").exists()


# --- no answer in it -------------------------------------------------------------------------------

LONG = 25  # characters; shorter lines stand everywhere
BLOCK = (LONG + 1) // 2


ENTRIES = [entry.id for entry in entries()]


@functools.cache
def _right() -> set[str]:
    """Every long line of a function's body, without docstrings, in references, alternatives and worked solutions."""
    references = [path.read_text() for path in (ROOT / "course/reference").rglob("*.py")]
    worked = [cell.source for path in (ROOT / "solutions").glob("*.py") for cell in read(path, ROOT).answers]
    answers = [edits.source(each.answer) for name in ENTRIES for each in bank.load(name).alternatives]
    return {line for source in (*references, *worked, *answers) for line in _body_lines(source)}


def _wrong(exercise: str) -> set[str]:
    """The same of its misconceptions, without what stands in right answers too."""
    witnesses = [each for known in bank.load(exercise).misconceptions for each in known.witnesses]
    return {line for each in witnesses for line in _body_lines(edits.source(each))} - _right()


def _body_lines(source: str) -> Iterator[str]:
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first, last = node.body[0], node.body[-1]
            start = first.end_lineno if ast.get_docstring(node) else first.lineno - 1
            stripped = [line.strip() for line in lines[start : last.end_lineno]]
            yield from (line for line in stripped if len(line) > LONG and not line.startswith('"""'))


def _texts(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of the bundle: notebooks as their cells' sources too, the wheel as its members, unpacked."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, data = path.relative_to(folder).as_posix(), path.read_bytes()
        if name.endswith(".whl"):
            with zipfile.ZipFile(io.BytesIO(data)) as wheel:
                yield from ((member, _unpacked(member, wheel.read(member))) for member in wheel.namelist())
            continue
        if name.endswith(".ipynb"):
            data += "\n".join("".join(cell["source"]) for cell in json.loads(data)["cells"]).encode()
        yield name, data


def _unpacked(name: str, data: bytes) -> bytes:
    return gzip.decompress(data) if name.endswith(".gz") else data


def _leaks(folder: Path, secrets: set[str], skip: str = "-") -> set[tuple[str, str]]:
    """(file, line) wherever a secret stands: as text, or escaped once or twice as JSON does (sheets do both).

    A file is cut into blocks of half a secret at most, so that one of them lies in the secret as a whole: 25 MB of
    sheets are gone through once, block by block, and not once for each of thousands of lines.
    """
    holding = defaultdict(list)
    for line in secrets:
        once = json.dumps(line)[1:-1]
        for form in {line.encode(), once.encode(), json.dumps(once)[1:-1].encode()}:
            for at in range(BLOCK):
                holding[form[at : at + BLOCK]].append((at, form, line))
    return {
        (name, line)
        for name, data in _texts(folder)
        if not name.startswith(skip)
        for place in range(0, len(data), BLOCK)
        for at, form, line in holding.get(data[place : place + BLOCK], ())
        if data.startswith(form, place - at)
    }


def test_no_line_of_a_right_answer_lies_in_the_bundle(folder):
    secrets = _right()
    assert len(secrets) > 100
    assert _leaks(folder, secrets) == set()


def test_no_line_of_a_wrong_answer_lies_in_the_bundle_but_where_a_lesson_shows_it(folder):
    found = {name: _wrong(name) for name in ENTRIES}
    assert [name for name, lines in found.items() if not lines] == []
    assert _leaks(folder, set().union(*found.values()), skip="notebooks/") == set()


def _zipped(member: str, data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, data)
    return packed.getvalue()


@pytest.mark.parametrize("place", ["wheel", "notebook", "sheet"])
def test_search_finds_an_answer_that_was_put_into(place, tmp_path):
    line = 'raise ValueError("a line with \\"quotes\\" in it")'
    cell = {"cells": [{"source": [f"    {line}\n", "more"]}]}
    data = {
        "wheel": ("x.whl", _zipped("course/x.py", f"def f():\n    {line}\n".encode())),
        "notebook": ("x.ipynb", json.dumps(cell).encode()),
        "sheet": ("x.whl", _zipped("x.gz", gzip.compress(json.dumps({"sheet": json.dumps({"where": line})}).encode()))),
    }
    write_bundle(dict([data[place]]), tmp_path / "to")
    assert len(_leaks(tmp_path / "to", {line})) == 1


@pytest.mark.parametrize("before", range(BLOCK))
def test_search_finds_an_answer_after_any_number_of_other_bytes(before, tmp_path):
    line = "return " + "x" * (LONG - 6)
    write_bundle({"x": bytes(before) + line.encode(), "y": bytes(before) + line.encode()[:-1] + b"y"}, tmp_path / "to")
    assert _leaks(tmp_path / "to", {line}) == {("x", line)}


# --- it works --------------------------------------------------------------------------------------

RUN_LESSONS = """\
import json, sys
import course
assert course.__file__.startswith(sys.prefix), course.__file__
import importlib.util
assert importlib.util.find_spec("course.reference") is None
results = []
for lessons in json.load(open(sys.argv[1])):
    results.append({})
    for cells in lessons:
        namespace = {"__name__": "__main__"}
        for role, exercise, source in cells:
            if role == "check":
                results[-1][exercise] = repr(eval(source, namespace))
            else:
                exec(source, namespace)
json.dump(results, open(sys.argv[2], "w"))
"""


@pytest.fixture(scope="module")
def environment(folder, tmp_path_factory) -> Path:
    """A new virtual environment in which the bundle's wheel is installed.

    To spare the download of torch and JupyterLab, a `.pth` file lets it see the third-party packages of the
    environment that runs this test. It is written after the installation, and comes after the new environment's own
    packages on the path, so that `course` is the wheel's; a `.pth` is not read recursively, so that an editable
    installation of this checkout stays out of sight.
    """
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (wheel,) = folder.glob("*.whl")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(home / "bin" / "python"),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*install, "--disable-pip-version-check", str(wheel)], check=True, env=_clean(home))
    paths = sysconfig.get_paths(scheme="venv", vars={"base": str(home), "platbase": str(home)})
    seen = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (Path(paths["purelib"]) / "third_party.pth").write_text("\n".join(seen) + "\n")
    return home


def _clean(home: Path) -> dict[str, str]:
    """The process environment without ways back to this checkout, and with a home of its own for progress."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV_"))}
    return {**kept, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}


def _run_lessons(environment: Path, *runs: list[list[tuple[str, str, str]]]) -> list[dict[str, str]]:
    """The plain-text result of every check by exercise id, for each run through the lessons."""
    steps, results = environment / "steps.json", environment / "results.json"
    steps.write_text(json.dumps(runs))
    command = [str(environment / "bin" / "python"), "-I", "-c", RUN_LESSONS, str(steps), str(results)]
    done = subprocess.run(
        command, cwd=environment, env=_clean(environment), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(results.read_text())


def _steps(folder: Path, lessons: str, solutions: dict[str, str]) -> list[list[tuple[str, str, str]]]:
    """The bundle's notebooks as (role, exercise, source): answers from `solutions`, of other code the imports."""
    found = []
    for path in sorted((folder / "notebooks").glob(lessons)):
        steps = []
        for cell in json.loads(path.read_text())["cells"]:
            ours = cell["metadata"].get("hpml", {"role": "code", "exercise": ""})
            source = "".join(cell["source"])
            if ours["role"] == "answer":
                source = solutions.get(ours["exercise"], source)
            elif cell["cell_type"] == "markdown":
                continue
            elif ours["role"] == "code":
                source = _imports(source)
            steps.append((ours["role"], ours["exercise"], source))
        found.append(steps)
    return found


def _imports(source: str) -> str:
    body = parse(Cell(role="code", source=source, file="", line=1)).body
    return "\n".join(ast.unparse(each) for each in body if isinstance(each, (ast.Import, ast.ImportFrom)))


def _lessons() -> list[Lesson]:
    return [read(path, ROOT) for path in sorted((ROOT / "solutions").glob("*.py"))]


def _full_marks(folder: Path, lessons: str) -> dict[str, str]:
    cells = [cell for path in folder.glob(f"notebooks/{lessons}") for cell in json.loads(path.read_text())["cells"]]
    checks = [cell["metadata"] for cell in cells if cell["metadata"].get("hpml", {}).get("role") == "check"]
    return {metadata["hpml"]["exercise"]: str(metadata["nbgrader"]["points"]) for metadata in checks}


@pytest.mark.slow
@pytest.mark.parametrize("lessons", ["0[05]_*.ipynb", soak("*.ipynb")], ids=["the first, and one with ranks", "all"])
def test_in_a_new_environment_untouched_notebooks_score_nothing_and_worked_solutions_full_marks(
    folder, environment, lessons
):
    solutions = {f"{each.unit.slug}.{cell.entry}": cell.source for each in _lessons() for cell in each.answers}
    untouched, solved = _run_lessons(environment, _steps(folder, lessons, {}), _steps(folder, lessons, solutions))
    assert untouched == dict.fromkeys(_full_marks(folder, lessons), "0")
    assert solved == _full_marks(folder, lessons)


@pytest.mark.slow
def test_installed_course_has_its_command_and_every_requirement(environment):
    command = [str(environment / "bin" / "course"), "doctor"]
    done = subprocess.run(
        command, cwd=environment, env=_clean(environment), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = environment.rglob("hpml_course-*.dist-info")
    for requirement in map(Requirement, importlib.metadata.Distribution.at(path).requires or []):
        assert requirement.specifier.contains(importlib.metadata.version(requirement.name)), requirement


# --- the checkout ----------------------------------------------------------------------------------


def test_committed_notebooks_hold_no_outputs():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), path.name
