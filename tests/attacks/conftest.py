"""One course folder with secrets and one warm process for the attacks that a test process runs one after the other.

All of it goes, and the environment is as before, when the next test is one of another folder.
"""

from __future__ import annotations

import secrets
import tempfile
from multiprocessing import resource_tracker

import pytest

from attacks import lesson
from attacks.scene import Machine, Scene, adopted_orphans
from autograder.sandbox import Limits, open_runner

LIMITS = Limits(load_seconds=6.0, spare_seconds=0.5, display_seconds=30.0)
SECRET_NAME = "GRADEBOOK_PASSWORD"


@pytest.fixture(scope="package")
def scene(tmp_path_factory):
    """Where attacks find what they look for; temporary files lie beside it, and the environment holds the secret."""
    resource_tracker.ensure_running()  # Python's own: one process and one descriptor, which the first pool would start
    folder = tmp_path_factory.mktemp("hpml")
    (folder / "temporary").mkdir()
    with adopted_orphans(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder / "temporary"))
        patch.setattr(tempfile, "tempdir", None)
        token = f"token-{secrets.token_hex(16)}"
        patch.setenv(SECRET_NAME, token)
        made = Scene.prepare(folder / "build", token)
        release = made.folder / "release" / lesson.ASSIGNMENT / lesson.FILE
        release.parent.mkdir(parents=True)
        release.write_bytes(lesson.built()["release"])
        yield made
        made.ears.close()


@pytest.fixture(scope="package")
def runner(scene):
    """The sandbox, as grading opens it; when it is closed, nothing is left."""
    before = Machine.now()
    with open_runner(LIMITS) as walled:
        yield walled
    assert before.left() == ""


@pytest.fixture(scope="package")
def unwalled(scene):
    """The same without walls, for attacks that do no harm."""
    with open_runner(LIMITS, trusted=True) as plain:
        yield plain
