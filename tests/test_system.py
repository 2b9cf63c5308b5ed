"""What the course takes from the system is installed where it may be, and said where it may not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import soak

from tools import ending, system

ROOT = Path(__file__).parents[1]

# A system whose packages are files on the path: `apt-get install chromium` makes an executable `chromium`. It has
# bubblewrap, Chromium and make, and whoever asks it for anything else gets nothing at all.
APT_GET = """#!/bin/sh
echo "$DEBIAN_FRONTEND: $*" >> {here}/asked
[ "$1" = install ] || exit 0
for word; do case $word in install|-*|bubblewrap|chromium|make) ;; *) exit 100 ;; esac; done
for word; do case $word in
    bubblewrap) cp {here}/true {here}/bwrap ;;
    chromium|make) cp {here}/true {here}/$word ;;
esac; done
"""
SUDO = '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n'
SUDO_THAT_ASKS = "#!/bin/sh\necho 'a password is required' >&2\nexit 1\n"


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A path on which nothing of the table lies, and no apt-get either."""
    for name in ("bash", "cp", "dirname", "env", "true"):
        (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(system, "POSTGRES", str(tmp_path / "postgresql"))
    return tmp_path


@pytest.fixture
def debian(bare, monkeypatch):
    """The same with apt-get, for root."""
    executable(bare / "apt-get", APT_GET.format(here=bare))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return bare


def names(*uses: str) -> list[str]:
    return [need.name for need in system.missing(uses)]


# What is missing, in words


def test_a_bare_system_lacks_every_program_and_what_uses_them_is_named(bare):
    assert {"make", "bubblewrap", "Chromium", "PostgreSQL"} <= set(names())
    assert names("browser") == ["Chromium"]


def test_what_is_missing_is_said_in_one_sentence_with_what_is_left_out_and_what_helps(bare):
    assert system.sentence(system.missing(["browser"])) == (
        "Chromium is missing, so the tests marked browser are left out (apt install chromium)"
    )
    assert system.sentence(system.missing(["browser", "postgres"])) == (
        "Chromium and PostgreSQL are missing, so the tests marked browser and postgres are left out "
        "(apt install chromium postgresql)"
    )


def test_namespaces_that_are_forbidden_are_no_matter_of_a_package(bare):
    executable(bare / "bwrap", "#!/bin/sh\nexit 1\n")
    (need,) = [need for need in system.missing(["sandbox"]) if need.name != "libseccomp"]
    assert system.sentence([need]) == (
        "leave to make namespaces is missing, so the tests marked sandbox are left out "
        "(`autograder doctor` says how to give it)"
    )


def test_without_what_everything_needs_the_command_ends_with_1(bare, capsys):
    assert system.main(["make"]) == 1
    assert capsys.readouterr().out == "== make is missing, and nothing runs without (apt install make)\n"


def test_an_unknown_use_is_refused(capsys):
    assert system.main(["sandbax"]) == 2
    assert "got sandbax" in capsys.readouterr().out


# What is installed


def test_what_is_missing_is_installed_without_a_question(debian, capsys):
    assert system.main(["browser", "make"]) == 0
    assert names("browser", "make") == []
    assert (debian / "asked").read_text().splitlines() == [
        "noninteractive: update -qq",
        "noninteractive: install -y -qq --no-install-recommends make chromium",
    ]
    assert capsys.readouterr().out == "== Debian packages: make chromium\n"


def test_what_is_there_is_not_asked_for_again(debian):
    system.main(["browser"])
    (debian / "asked").unlink()
    assert system.main(["browser"]) == 0
    assert not (debian / "asked").exists()


def test_a_package_that_the_system_does_not_have_keeps_no_other_away(debian, capsys):
    assert system.main(["browser", "postgres"]) == 0
    assert names("browser", "postgres") == ["PostgreSQL"]
    assert capsys.readouterr().out.splitlines()[-1].startswith("== PostgreSQL is missing, so the tests marked postgres")


@pytest.mark.parametrize(("sudo", "installed"), [(SUDO, True), (SUDO_THAT_ASKS, False), (None, False)])
def test_another_user_than_root_installs_where_sudo_asks_no_password(debian, monkeypatch, sudo, installed):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if sudo:
        executable(debian / "sudo", sudo)
    assert system.main(["browser"]) == 0
    assert (names("browser") == []) is installed


def test_without_apt_get_nothing_is_tried(bare, capsys):
    assert system.main(["browser"]) == 0
    assert "Chromium is missing" in capsys.readouterr().out


def test_ci_is_make_test_and_gets_make_where_it_is_missing(debian):
    executable(debian / "sudo", SUDO)
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(["bash", ROOT / ".ci/run"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "== Debian packages: make\n"
    assert (debian / "make").exists()


# The end of make test


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("course/exercises/ddp/tree.py", {"ddp"}),
        ("autograder/answers/lora/new.py", {"lora"}),
        ("solutions/05_ddp.py", {"ddp"}),
        ("course/sheets/lora.safetensors.gz", {"lora"}),
        ("course/judging/judge.py", {"ddp", "lora"}),
        ("course/lessons/ddp.py", {"ddp", "lora"}),  # no unit's own
        ("README.md", set()),
    ],
)
def test_a_proof_is_made_again_where_what_it_can_read_has_changed(tmp_path, changed, again):
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def marks() -> dict[str, str]:
        show = ["make", "-s", "--eval", 'marks: ; @echo "$(PROVEN)"', "marks"]
        said = subprocess.run(show, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        return {each.split("-")[1]: each for each in said.split()}

    shutil.copy(ROOT / "Makefile", tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write("constraints.txt", "torch==0")
    for unit in ("ddp", "lora"):
        write(f"autograder/answers/{unit}/__init__.py", "")
    before = marks()
    write(changed, "1")
    assert {unit for unit, mark in marks().items() if mark != before[unit]} == again


def test_the_last_line_says_again_what_was_left_out():
    assert ending.last_line(470.2, 0, 21, "").startswith("== all tests passed in 470 s (the rule for two quiet cores ")
    assert ending.last_line(470.2, 0, 21, "").endswith(" that import torch in 0.93 s: 476 s)")
    assert ending.last_line(1, 0, 21, "Chromium is missing").endswith(" s), but Chromium is missing")
    assert ending.last_line(1, 75.4, 21, "").endswith(", after 75 s in which their tools were installed")


def test_the_time_rule_is_eight_minutes_for_three_lessons_and_fifteen_for_eleven():
    assert ending.allowed(21) <= 8 * 60
    assert ending.allowed(91) <= 15 * 60


def test_on_a_slower_machine_it_is_as_much_longer_as_the_import_of_torch_takes(monkeypatch):
    asked = []
    monkeypatch.setattr(ending.subprocess, "run", lambda command, **how: asked.append(command))
    ticks = iter([0.0, 1.9, 1.9, 3.76])  # processor time of children when each of both begins and ends
    monkeypatch.setattr(ending.os, "times", lambda: (9.0, 9.0, next(ticks), 0.0, 9.0))
    assert ending.import_of_torch() == pytest.approx(1.86)
    assert [command[-1] for command in asked] == ["import torch"] * 2
    assert ending.allowed(114, 1.86) == 2 * ending.allowed(114)


# A part of the suite on a machine that has nothing

LEAST = ("browser", "test_doctor.py", "test_nbgrader_postgres.py")  # of each kind some
PART = (
    *("attacks/test_whole_class.py", "test_brokered_transport.py", "test_engine.py", "test_hostile_ranks.py"),
    *(*LEAST, "test_sandbox.py"),
)
RUN = """
import sys
import pytest
from tools import system

system.POSTGRES = "/nowhere"
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("names", [LEAST, soak(PART)])
def test_a_machine_that_has_nothing_passes_what_it_can_and_names_the_rest(names):
    part = [f"tests/{name}" for name in names]
    environment = {**os.environ, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *part], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    *_, said = done.stdout.splitlines()
    assert "passed" in said
    assert "skipped" in said
    for marker in ("sandbox", "browser", "postgres"):
        assert f"so the tests marked {marker} are left out" in done.stdout
