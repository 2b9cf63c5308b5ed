"""pyproject.toml, constraints.txt, environment.yml and the Makefile agree, and what they name exists."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
FIRST_PARTY = ("course", "autograder")


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _pin_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _pins() -> dict[str, Version]:
    """Constrained version by canonical name."""
    pins = {}
    for line in _pin_lines():
        name, version = line.split("==")
        pins[canonicalize_name(name)] = Version(version)
    return pins


def _requirements(extra: str | None = None) -> list[Requirement]:
    project = _pyproject()["project"]
    lines = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def _environment() -> tuple[list[str], list[str]]:
    """conda's own dependencies, and the lines that conda hands to pip."""
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = [item for item in dependencies if isinstance(item, str)]
    (pip,) = [item["pip"] for item in dependencies if isinstance(item, dict)]
    return conda, pip


def _make(checkout: Path, *arguments: str) -> str:
    """What make prints in `checkout`, free of the variables of a make that runs these tests."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", *arguments], cwd=checkout, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A checkout in which nothing was installed yet, as far as make looks at it."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.fixture
def installed(fresh: Path) -> Path:
    """The same after both sets of requirements were installed."""
    (fresh / ".venv/bin").mkdir(parents=True)
    for mark in ("bin/pip", ".torch", ".lab", ".dev"):
        (fresh / ".venv" / mark).touch()
    return fresh


# Versions


def test_every_constraint_is_one_exact_public_version():
    exact = re.compile(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*")
    assert [line for line in _pin_lines() if not exact.fullmatch(line)] == []


def test_no_constraint_is_given_twice_and_they_are_sorted():
    names = [canonicalize_name(line.split("==")[0]) for line in _pin_lines()]
    assert names == sorted(set(names))


@pytest.mark.parametrize("extra", [None, "dev", "peers", "fuzz"])
def test_every_requirement_is_constrained_to_a_version_that_it_allows(extra):
    pins = _pins()
    for requirement in _requirements(extra):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


def test_every_runtime_requirement_has_a_lower_bound():
    bare = [str(r) for r in _requirements() if not any(s.operator == ">=" for s in r.specifier)]
    assert bare == []


def test_torch_range_is_the_tested_one():
    (torch,) = [r for r in _requirements() if r.name == "torch"]
    allowed = [version for version in ("2.10.0", "2.11.0", "2.13.0", "2.14.0") if version in torch.specifier]
    assert allowed == ["2.11.0", "2.13.0"]


def test_conda_users_get_each_runtime_requirement_at_the_same_version():
    _, pip = _environment()
    listed = {line.split("==")[0]: Version(line.split("==")[1]) for line in pip if not line.startswith("-")}
    pins = _pins()
    assert listed == {r.name: pins[canonicalize_name(r.name)] for r in _requirements()}


def test_conda_users_install_the_checkout_under_the_constraints():
    _, pip = _environment()
    assert [line for line in pip if line.startswith("-")] == ["-c constraints.txt", "-e ."]


def test_conda_python_is_one_that_the_project_allows():
    conda, _ = _environment()
    (python,) = [item.removeprefix("python=") for item in conda if item.startswith("python=")]
    assert Requirement(f"python{_pyproject()['project']['requires-python']}").specifier.contains(python)


# What the configuration names


@pytest.mark.parametrize("command", ["course", "autograder"])
def test_console_script_names_a_function(command):
    module, function = _pyproject()["project"]["scripts"][command].split(":")
    assert callable(getattr(importlib.import_module(module), function))


NAMING = ("modules", "protected_modules", "allowed_importers", "containers", "source_modules", "forbidden_modules")


def _named_modules() -> set[str]:
    """Our modules named in the settings of mypy and import-linter, without wildcards."""
    tool = _pyproject()["tool"]
    names = [name for override in tool["mypy"]["overrides"] for name in override["module"]]
    for contract in tool["importlinter"]["contracts"]:
        for key in (
            "modules",
            "protected_modules",
            "allowed_importers",
            "containers",
            "source_modules",
            "forbidden_modules",
        ):
            names += contract.get(key, [])
        for container in contract.get("containers", []):
            names += [f"{container}.{layer}" for layer in _required_layers(contract)]
    names = [name.removesuffix(".*") for name in names]
    return {name for name in names if name.split(".")[0] in FIRST_PARTY}


def _required_layers(contract: dict[str, Any]) -> list[str]:
    """The modules of a layers contract; one in parentheses may be missing."""
    words = [word.strip() for layer in contract["layers"] for word in re.split(r"[|:]", layer)]
    return [word for word in words if not word.startswith("(")]


@pytest.mark.parametrize("module", sorted(_named_modules()))
def test_module_named_in_the_settings_exists(module):
    assert importlib.util.find_spec(module) is not None


def test_every_marker_says_what_it_means():
    markers = _pyproject()["tool"]["pytest"]["ini_options"]["markers"]
    assert [marker for marker in markers if not re.fullmatch(r"\w+: \w.+", marker)] == []


def test_no_file_inside_a_package_is_ignored_by_git_and_so_left_out_of_the_wheel():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    listing = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", *FIRST_PARTY]
    ignored = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    scratch = re.compile(r"__pycache__|\.ipynb_checkpoints")
    assert [name for name in ignored.splitlines() if not scratch.search(name)] == []


def test_wheel_holds_both_packages():
    assert _pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == list(FIRST_PARTY)


# make


@pytest.mark.parametrize(
    "target", ["lab", "test", "grade", "sandbox", "build", "prove", "soak", "fuzz", "lint", "clean"]
)
def test_make_without_a_target_lists(target, fresh):
    assert re.search(rf"^  make {target} +\w", _make(fresh), re.MULTILINE)


def test_torch_is_installed_first_and_alone(fresh):
    installs = [line for line in _make(fresh, "-n", "lab").splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert installs[0].split("install ")[1].strip() == f"'torch=={_pins()['torch']}'"
    assert "-c constraints.txt -e ." in installs[1]


def test_torch_alone_comes_from_the_index_that_was_asked_for(fresh):
    plan = _make(fresh, "-n", "test", "TORCH_INDEX=https://index.example").splitlines()
    (line,) = [line for line in plan if "https://index.example" in line]
    assert "--index-url 'https://index.example'" in line
    assert "'torch==" in line


def test_lab_arguments_reach_the_command(fresh):
    plan = _make(fresh, "-n", "lab", "LAB_ARGS=--no-browser --port 8899")
    assert "course lab --no-browser --port 8899" in plan


@pytest.mark.parametrize("target", ["lab", "test"])
def test_second_start_installs_nothing(target, installed):
    assert "pip install" not in _make(installed, "-n", target)


@pytest.mark.parametrize("target", ["lab", "test"])
@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_again(changed, target, installed):
    later = (installed / ".venv/.dev").stat().st_mtime + 10
    os.utime(installed / changed, (later, later))
    assert "pip install" in _make(installed, "-n", target)


def test_clean_keeps_the_gradebook(installed):
    for name in ("build/gradebook.db", "course/a.py", "autograder/a.py", "tests/a.py"):
        (installed / name).parent.mkdir()
        (installed / name).touch()
    _make(installed, "clean")
    assert (installed / "build/gradebook.db").exists()
    assert not (installed / ".venv").exists()


# CI


def test_ci_script_is_executable_and_parses():
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
