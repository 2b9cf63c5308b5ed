"""autograder/sandbox/outside/doctor.py: what is missing is found and said, and nothing is called active untried."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from autograder.cli import app
from autograder.sandbox import RunnerError
from autograder.sandbox.outside import doctor
from autograder.sandbox.wire import seccomp
from autograder.sandbox.wire.policy import PolicyError


@pytest.mark.sandbox
def test_every_protection_is_tried_and_active_here():
    found = doctor.protections()
    assert [each.name for each in found if not each.active] == []
    assert {*doctor.ATTEMPTS, "no network", "watchdog and costs counted outside"} <= {each.name for each in found}
    assert [each.detail for each in found if each.name == "removed machine code stays away"] == [""]


def test_a_missing_bubblewrap_is_told_with_its_package(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    missing = next(each for each in doctor.protections() if not each.active)
    assert (missing.name, missing.detail) == ("bubblewrap", "not found")
    assert "apt install bubblewrap" in missing.remedy


def test_a_missing_libseccomp_is_told_with_its_package(monkeypatch):
    def broken():
        raise PolicyError("libseccomp must be installed")

    monkeypatch.setattr(seccomp, "compiled", broken)
    (missing,) = [each for each in doctor.protections() if each.name == "libseccomp"]
    assert not missing.active
    assert "apt install libseccomp2" in missing.remedy


@pytest.mark.sandbox
def test_walls_that_do_not_stand_are_told_with_how_to_allow_them(monkeypatch):
    class Refused:
        def __enter__(self):
            return self

        def __exit__(self, *exception):
            return None

        def display(self, sources):
            raise RunnerError("a wall was refused")

    monkeypatch.setattr(doctor, "open_runner", Refused)
    missing = doctor.protections()[-1]
    assert (missing.name, missing.active, missing.detail) == ("namespaces", False, "a wall was refused")
    assert "user.max_user_namespaces" in missing.remedy


# The others hold for an ordinary user without a sandbox too.
SEEN_BY_EVERYBODY = (
    "no other process is seen",
    "nothing of the grader's environment",
    "nothing secret can be imported",
)


BOUNDS = ("files are few and small", "limits of a process", "no look at what of a file is in memory")


@pytest.mark.parametrize("name", [*SEEN_BY_EVERYBODY, *BOUNDS, "system call filter"])
def test_an_attempt_outside_the_sandbox_is_not_called_held(name, capsys):
    exec(doctor.attempt(name, port=0).replace("libc.unshare(0x10000000)", "0"), {})
    assert capsys.readouterr().out.strip() != doctor.HELD


def test_the_command_ends_with_1_where_a_protection_is_missing(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 1
    assert "NO" in shown.output
